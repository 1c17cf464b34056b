#!/usr/bin/env python3
"""Training speed side by side: FEM-softmax and attention in `fem train`, and the same GPT in eager PyTorch.

The three take turns, so that a busy machine is busy for all of them: ratios are those of one round, and the median of
the rounds counts. Usage: .venv/bin/python benchmarks/train_speed.py [--size 1m] [--json FILE]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib

TREE = Path(__file__).resolve().parent.parent
WARM_UP = 3  # steps of a round that do not count


def fem_steps(recipe: str, steps: int, folder: Path) -> list[float]:
    out = folder / recipe
    command = [
        str(TREE / "build" / "fem"), "train", recipe, "--data", str(folder / "text.txt"), "--out", str(out),
        "--set", f"train.steps={steps}", "--set", "train.log_every=1", "--set", "train.validate_every=0",
        "--set", "train.checkpoint_every=0", "--set", f"data.cache={folder / 'cache'}",
        "--set", "data.validation_fraction=0.01", "--set", "train.precision=float32",
    ]  # fmt: skip
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"train_speed: fem train failed: {run.stderr.strip().splitlines()[-1]}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    times = [0.0] + [line["seconds"] for line in lines if line["kind"] == "train"]
    subprocess.run(["rm", "-r", str(out)], check=True)
    return [b - a for a, b in zip(times, times[1:])]


def torch_steps(size: str, steps: int) -> list[float]:
    recipe = TREE / "configs" / "lm" / f"{size}-attention.toml"
    command = [sys.executable, str(TREE / "benchmarks" / "torch_gpt.py"), str(recipe), "--steps", str(steps)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["seconds"]


def tokens_of_a_step(size: str) -> int:
    recipe = tomllib.loads((TREE / "configs" / "lm" / f"{size}-attention.toml").read_text())
    return recipe["train"]["batch"] * recipe["data"]["length"]


def machine() -> dict[str, str]:
    printed = subprocess.run([TREE / "build" / "fem", "info"], capture_output=True, text=True, check=True).stdout
    return dict(line.split(maxsplit=1) for line in printed.splitlines())


def main(size: str, rounds: int, steps: int, record: Path | None) -> None:
    seconds: dict[str, list[float]] = {"fem train, FEM-softmax": [], "fem train, attention": [], "PyTorch, eager": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = "".join(path.read_text(errors="ignore") for path in sorted((TREE / "src").rglob("*.cpp")))
        (folder / "text.txt").write_text(text)
        for round_ in range(rounds):
            of_round = [
                fem_steps(f"{size}-fem-softmax", steps, folder),
                fem_steps(f"{size}-attention", steps, folder),
                torch_steps(size, steps),
            ]
            for medians, times in zip(seconds.values(), of_round, strict=True):
                medians.append(statistics.median(times[WARM_UP:]))
            print(f"round {round_ + 1} of {rounds}", file=sys.stderr)
    tokens = tokens_of_a_step(size)
    print(f"{size}: {tokens} tokens a step, {rounds} rounds of {steps} steps, median step of a round, median of rounds")
    for label, own in seconds.items():
        print(f"{label:26}{tokens / statistics.median(own):>10,.0f} tokens/s")
    fem, attention, eager = seconds.values()
    print("Speed relative to another in the same round, and all rounds:")
    for label, own, other in (
        ("FEM-softmax / attention", fem, attention),
        ("FEM-softmax / PyTorch", fem, eager),
        ("attention / PyTorch", attention, eager),
    ):
        ratios = sorted(theirs / mine for mine, theirs in zip(own, other, strict=True))
        print(f"{label:26}{statistics.median(ratios):>10.2f}   {' '.join(f'{ratio:.2f}' for ratio in ratios)}")
    if record:
        line = {"bench": "train_speed", "size": size, "steps": steps, "tokens_of_a_step": tokens}
        with record.open("a") as file:
            file.write(json.dumps(line | {"seconds_of_a_step": seconds, "machine": machine()}) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="1m", help="of configs/lm: 500k, 1m or 10m")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=13)
    parser.add_argument("--json", type=Path, help="also append all rounds to this file, a line of JSON")
    arguments = parser.parse_args()
    main(arguments.size, arguments.rounds, arguments.steps, arguments.json)
