"""Both scripts of the authors' README run as they stand."""

import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parent / "authors"


def output_of(script: str, folder: Path) -> list[str]:
    done = subprocess.run([sys.executable, SCRIPTS / script], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_quick_start(tmp_path: Path) -> None:
    assert output_of("quick_start.py", tmp_path) == ["torch.Size([2, 128, 512])"]


def test_minimal_usage(tmp_path: Path) -> None:
    priors = ["softmax", "linear", "gla", "rnn_softmax", "mamba"]
    assert output_of("minimal_usage_fem.py", tmp_path) == [
        "[env] device=cpu dtype=torch.float32, B=2, T=128, D=512, H=8",
        *(f"{prior:18s} -> out: (2, 128, 512), dtype: torch.float32" for prior in priors),
    ]
