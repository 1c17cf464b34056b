"""Outputs and gradients by other implementations, in float64 (tests/golden/README.md)."""

from pathlib import Path

import pytest
import torch
from fem import FreeEnergyMixer, FreeEnergyMixerConfig
from safetensors import safe_open
from support import FLOAT64, error

ROOT = Path(__file__).parents[2] / "tests/golden"
GOLDEN = sorted(ROOT.rglob("*.safetensors"))


def test_all_are_there() -> None:
    assert len(list(ROOT.glob("*.safetensors"))) == 23
    assert len(list(ROOT.glob("paper/*.safetensors"))) >= 14
    assert len(list(ROOT.glob("corrected/*.safetensors"))) >= 14


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: str(path.relative_to(ROOT).with_suffix("")))
def test_golden(path: Path) -> None:
    with safe_open(path, "pt") as file:
        golden = {name: file.get_tensor(name) for name in file.keys()}
        options = file.metadata()["config"]
    config = FreeEnergyMixerConfig.from_json(options)
    if "dialect" not in options:  # the authors' own
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
            # A bias may not matter, as a common shift of keys does not: then its gradient is a sum that cancels.
            terms = golden["grad." + (name[:-4] + "weight" if name.endswith(".bias") else name)]
            difference = (parameter.grad - golden["grad." + name]).abs().max()
            assert difference < FLOAT64 * max(terms.abs().max(), golden["grad." + name].abs().max()), name
