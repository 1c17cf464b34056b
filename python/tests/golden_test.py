"""Outputs and gradients of the authors' layer in float64, 23 configurations."""

from pathlib import Path

import pytest
import torch
from fem import FreeEnergyMixer, FreeEnergyMixerConfig
from safetensors import safe_open
from support import FLOAT64, error

GOLDEN = sorted((Path(__file__).parents[2] / "tests/golden").glob("*.safetensors"))


def test_there_are_23() -> None:
    assert len(GOLDEN) == 23


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    with safe_open(path, "pt") as file:
        golden = {name: file.get_tensor(name) for name in file.keys()}
        config = FreeEnergyMixerConfig.from_json(file.metadata()["config"])
    config.dialect = "reference"
    mixer = FreeEnergyMixer(config, dtype=torch.float64)
    trained = {name.removeprefix("param."): value for name, value in golden.items() if name.startswith("param.")}
    assert {n: p.shape for n, p in mixer.state_dict().items()} == {n: p.shape for n, p in trained.items()}
    mixer.load_state_dict(trained, strict=True)

    x = golden["x"].requires_grad_()
    y = mixer(x)
    assert error(y, golden["y"]) < FLOAT64
    (y * golden["w"]).sum().backward()
    assert x.grad is not None
    assert error(x.grad, golden["grad.x"]) < FLOAT64
    for name, parameter in mixer.named_parameters():
        if parameter.grad is None:  # _beta_param exists even where nothing reads it
            assert golden["grad." + name].count_nonzero() == 0, name
        else:
            assert error(parameter.grad, golden["grad." + name]) < FLOAT64, name
