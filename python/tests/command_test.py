"""The command that the wheel brings: it trains by a recipe's name in an empty folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fem import LanguageModel, __version__

SMALL = {"train.steps": 3, "train.batch": 2, "data.length": 32, "train.warmup_steps": 1}


def command(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "fem"
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "LD_LIBRARY_PATH")}
    return subprocess.run(
        [program, *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_it_is_the_packages_version(tmp_path: Path) -> None:
    done = command(tmp_path, "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"fem {__version__} (torch 2.13.")


def test_it_trains_and_generates_in_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "sums.txt").write_text("".join(f"{i} and {i} are {2 * i}.\n" for i in range(60)))
    settings = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    small = ("--set", "model.n_layer=1", "--tokenizer", "sentencepiece:280", "--set", "data.cache=cache")
    done = command(tmp_path, "train", "500k-fem-softmax", "--data", "sums.txt", "--out", "run", *settings, *small)
    assert done.returncode == 0, done.stderr
    assert "A sample:" in done.stdout
    words = ("--prompt", "3 and", "--max-tokens", 9, "--temperature", 0, "--quiet")
    model = LanguageModel.from_pretrained(tmp_path / "run")
    assert command(tmp_path, "generate", "run", *words).stdout == (
        "3 and" + model.generate("3 and", max_tokens=9, temperature=0) + "\n"
    )
    newest = tmp_path / "run/checkpoints/step-00000003"
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer.model", "checksums"):
        whole = (newest / name).read_bytes()
        (newest / name).write_bytes(whole[:9] + bytes([whole[9] ^ 16]) + whole[10:])
        with pytest.raises(ValueError, match="step-00000003/.* is damaged"):
            LanguageModel.from_pretrained(tmp_path / "run")
        (newest / name).write_bytes(whole)
    unknown = command(tmp_path, "train", "no-such-recipe", "--data", "sums.txt")
    assert unknown.returncode == 1 and "500k-fem-softmax" in unknown.stderr
