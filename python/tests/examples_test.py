"""The examples run, and so does every block of the documentation."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def output_of(*command: str | Path, folder: Path) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_gpt_block_learns(tmp_path: Path) -> None:
    printed = output_of(TREE / "examples/python/gpt_block.py", folder=tmp_path)
    losses = [float(loss) for loss in re.findall(r"^step +\d+  loss (\d+\.\d+)$", printed, re.MULTILINE)]
    assert len(losses) == 6
    assert losses[0] > 2.5  # a guess among 16 costs log 16 = 2.77
    assert losses[-1] < 1.0  # who has understood pays once, for the second token: log 16 / 24 = 0.12


def test_transformers_llama(tmp_path: Path) -> None:
    printed = output_of(TREE / "examples/python/transformers_llama.py", folder=tmp_path)
    assert printed.splitlines()[-1] == "cached and uncached equal: True"


def test_every_block_of_the_documentation_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # a block writes a file
    blocks = BLOCK.findall((TREE / "docs/python.md").read_text())
    assert len(blocks) == 10
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), namespace)
    printed = capsys.readouterr().out
    for promised in (
        "a window belongs to prior_type softmax",
        "Cache(layers=2, tokens=128)",
        "torch.bfloat16",
        'computed with dialect="reference"',
    ):
        assert promised in printed
