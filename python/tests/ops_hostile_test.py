"""No operator of torch.ops.fem ends the process or returns uninitialised memory, whatever its arguments."""

import os
import subprocess
import sys
from pathlib import Path

from ops_hostile import registered, valid_calls

# FEM_HOSTILE_PAIRS=200 makes every call, and so many pairs for each valid one: some minutes.
PAIRS = int(os.environ.get("FEM_HOSTILE_PAIRS", "0"))
EVERY = 1 if PAIRS else 6


def test_every_operator_is_here(tmp_path: Path) -> None:
    assert registered() == {valid.run._schema.name.removeprefix("fem::") for valid in valid_calls(tmp_path)}


def test_no_argument_ends_the_process_or_shows_uninitialised_memory() -> None:
    program, start, calls = Path(__file__).with_name("ops_hostile.py"), 0, 0
    ended: list[str] = []
    wrong: list[str] = []
    while True:
        arguments = [str(x) for x in (program, start, EVERY, PAIRS or 20)]
        run = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
        lines = run.stdout.splitlines()
        wrong += [line for line in lines if line.startswith(("invalid", "differs"))]
        begun = [line for line in lines if line.startswith("next")]
        assert begun, run.stderr
        calls += len(begun)
        if run.returncode == 0:
            break
        ended.append(f"{begun[-1]} ended by {run.returncode}: {run.stderr[-300:]}")
        start = int(begun[-1].split()[1]) + 1
    print(calls, "calls,", lines[-1])
    assert not ended and not wrong, "\n".join([*ended, *wrong])
    assert calls > 5000
