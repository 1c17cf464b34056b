"""C++ and Python are one implementation: bitwise the same numbers, and files that both read.

FEM_RUN_MIXER names the program run_mixer of the C++ build (build/tests/run_mixer), which loads a mixer and an input and
writes output and gradients.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fem import FreeEnergyMixer
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from support import gradients, random_mixer, small_config, tokens
from torch import Tensor


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def run_in_cpp(mixer: Path, inputs: dict[str, Tensor], folder: Path, threads: int, *seed: str) -> dict[str, Tensor]:
    """The program's output; it saves its mixer as folder/mixer.safetensors."""
    program = os.environ.get("FEM_RUN_MIXER")
    assert program, "set FEM_RUN_MIXER to the C++ build's tests/run_mixer to compare with it"
    folder.mkdir()
    save_file(inputs, folder / "input.safetensors")
    done = subprocess.run(
        [program, mixer, folder / "input.safetensors", folder / "output.safetensors", *seed],
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return load_file(folder / "output.safetensors")


def same(actual: dict[str, Tensor], y: Tensor, gradient: dict[str, Tensor]) -> None:
    expected = {"y": y} | {f"grad.{name}": value for name, value in gradient.items()}
    assert actual.keys() == expected.keys()
    different = [name for name, value in expected.items() if not torch.equal(actual[name], value)]
    assert not different


# 70 tokens fill one block of the kernels and begin another.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_output_and_gradients_are_bitwise_the_same(
    prior: str, dialect: str, dtype: torch.dtype, threads: int, tmp_path: Path
) -> None:
    mixer, x = random_mixer(prior, dialect=dialect).to(dtype), tokens(2, 70, dtype)
    mixer.save(tmp_path / "mixer.safetensors")
    in_cpp = run_in_cpp(tmp_path / "mixer.safetensors", {"x": x}, tmp_path / "cpp", threads)
    same(in_cpp, *gradients(mixer, x))


def test_masked_encoders_are_bitwise_the_same(prior: str, dialect: str, threads: int, tmp_path: Path) -> None:
    mixer, x = random_mixer(prior, causal=False, dialect=dialect), tokens(3, 40)
    mask = torch.arange(40) < torch.tensor([[40], [17], [1]])
    mixer.save(tmp_path / "mixer.safetensors")
    in_cpp = run_in_cpp(tmp_path / "mixer.safetensors", {"x": x, "mask": mask}, tmp_path / "cpp", threads)
    same(in_cpp, *gradients(mixer, x, attention_mask=mask))


def test_one_seed_starts_both_alike(prior: str, dialect: str, tmp_path: Path) -> None:
    torch.manual_seed(42)
    mixer = FreeEnergyMixer(small_config(prior, dialect=dialect))
    random_mixer(prior, dialect=dialect).save(tmp_path / "other.safetensors")
    run_in_cpp(tmp_path / "other.safetensors", {"x": tokens()}, tmp_path / "cpp", 1, "42")
    in_cpp = FreeEnergyMixer.load(tmp_path / "cpp/mixer.safetensors").state_dict()
    assert in_cpp.keys() == mixer.state_dict().keys()
    assert all(torch.equal(in_cpp[name], value) for name, value in mixer.state_dict().items())


def test_files_go_both_ways(prior: str, tmp_path: Path) -> None:
    mixer = random_mixer(prior, dropout=0.25, dtype=torch.bfloat16)
    mixer.save(tmp_path / "mixer.safetensors")
    x = tokens(dtype=torch.bfloat16)
    run_in_cpp(tmp_path / "mixer.safetensors", {"x": x}, tmp_path / "cpp", 1)
    assert (tmp_path / "cpp/mixer.safetensors").read_bytes() == (tmp_path / "mixer.safetensors").read_bytes()
    back = FreeEnergyMixer.load(tmp_path / "cpp/mixer.safetensors", layer_idx=3)
    assert back.config == mixer.config and back.layer_idx == 3
    assert torch.equal(back.eval()(x), mixer.eval()(x))
    assert all(isinstance(p, torch.nn.Parameter) and p.requires_grad for p in back.parameters())


def test_the_safetensors_package_reads_and_writes_our_files(tmp_path: Path) -> None:
    mixer = random_mixer("gla")
    mixer.save(tmp_path / "ours.safetensors")
    with safe_open(tmp_path / "ours.safetensors", "pt") as file:
        weights, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()
    assert weights.keys() == mixer.state_dict().keys()
    assert all(torch.equal(weights[name], value) for name, value in mixer.state_dict().items())
    assert json.loads(metadata["fem.mixer"]) == json.loads(mixer.config.to_json())

    save_file(weights, tmp_path / "theirs.safetensors", metadata)
    again = FreeEnergyMixer.load(tmp_path / "theirs.safetensors")
    assert again.config == mixer.config
    x = tokens()
    assert torch.equal(again(x), mixer(x))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    random_mixer().save(tmp_path / "mixer.safetensors")
    return tmp_path / "mixer.safetensors"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def cut_in_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def not_ours(path: Path) -> None:
    path.write_text("These are not the tensors you are looking for.")


def without_options(path: Path) -> None:
    save_file(load_file(path), path)


def without_a_parameter(path: Path) -> None:
    weights = load_file(path)
    del weights["W_q.weight"]
    save_file(weights, path, {"fem.mixer": small_config().to_json()})


def with_another(path: Path) -> None:
    save_file(load_file(path) | {"W_z": torch.ones(1)}, path, {"fem.mixer": small_config().to_json()})


def of_another_size(path: Path) -> None:
    save_file(load_file(path), path, {"fem.mixer": small_config(fem_dim=32).to_json()})


def with_damaged_options(path: Path) -> None:
    save_file(load_file(path), path, {"fem.mixer": "{"})


def absent(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "ends at byte .*: the file is truncated or its header is wrong"),
        (cut_in_the_header, "expected a safetensors file, got a header length of .* bytes in a file of 200"),
        (empty, "expected a safetensors file, got 0 bytes"),
        (not_ours, "expected a safetensors file, got a header length of"),
        (without_options, "holds tensors but no mixer options .* fem.load_reference"),
        (without_a_parameter, "has no W_q.weight, asked for by its own options"),
        (with_another, "holds W_z, not asked for by its own options"),
        (of_another_size, r"expected W_v.weight of shape \[32, 32\] .*, got \[16, 32\]"),
        (with_damaged_options, "its mixer options: expected JSON"),
        (absent, "cannot be read: No such file or directory"),
    ],
)
def test_a_damaged_file_is_one_clear_error(written: Path, damage: object, message: str) -> None:
    assert callable(damage)
    damage(written)
    with pytest.raises(ValueError, match=message) as raised:
        FreeEnergyMixer.load(written)
    assert str(written) in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^save_safetensors: .*/absent/mixer.safetensors: "):
        random_mixer().save(tmp_path / "absent" / "mixer.safetensors")
