#!/usr/bin/env python3
"""Validation loss of four mixers at equal parameters, several seeds each.

Trains every recipe on every text, as many runs at a time as there are --jobs, and prints the table. A run that is there
already is not made again; one that was stopped goes on. Usage:

    run.py --text tinyshakespeare=input.txt --text wikitext2=wiki.train.tokens,wiki.valid.tokens
"""

import argparse
import concurrent.futures
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
MIXERS = {"attention": "softmax", "fem-softmax": "FEM-softmax", "gla": "gla", "fem-gla": "FEM-gla"}


def train(run: Path, recipe: str, text: str, seed: int, steps: int, threads: int) -> dict:
    """The result of one run, from its folder if it is complete."""
    if (run / "result.json").exists():
        return result_of(run)
    data, _, validation = text.partition(",")
    command = [str(TREE / "build" / "fem"), "train", recipe, "--data", data, "--out", str(run), "--resume"]
    command += ["--threads", str(threads)] + (["--validation", validation] if validation else [])
    changes = {"seed": seed, "steps": steps, "validate_every": 100, "precision": "float32"}
    for name, value in changes.items():
        command += ["--set", f"train.{name}={value}"]
    command += ["--set", "data.validation_tokens=65536", "--set", "data.final_validation_tokens=0"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode != 0 or "Stopped after step" in done.stdout:
        raise SystemExit(f"lm: {run}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
    return result_of(run)


def result_of(run: Path) -> dict:
    """What fem train left of a finished run."""
    result, config = (json.loads((run / name).read_text()) for name in ("result.json", "config.json"))
    measures = result["measures"]
    return {
        "loss": measures["loss"],
        "bits_per_byte": measures["bits_per_byte"],
        "parameters": result["parameters"],
        "config": config,
    }


def mean_and_error(values: list[float]) -> str:
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{statistics.mean(values):.4f} ± {error:.4f}"


def table(results: list[dict], texts: list[str]) -> str:
    lines = ["| mixer | parameters | " + " | ".join(texts) + " |", "|---|---|" + "---|" * len(texts)]
    for mixer, name in MIXERS.items():
        own = [r for r in results if r["mixer"] == mixer]
        cells = [mean_and_error([r["loss"] for r in own if r["text"] == text]) for text in texts]
        lines.append(f"| {name} | {own[0]['parameters']:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: argparse.Namespace) -> None:
    texts = dict(text.split("=", 1) for text in arguments.text)
    plans = [
        {"text": text, "mixer": mixer, "seed": seed}
        for seed in range(arguments.seeds)
        for text in texts
        for mixer in MIXERS
    ]

    def run(plan: dict) -> dict:
        name = f"{plan['text']}-{plan['mixer']}-{plan['seed']}"
        recipe = f"{arguments.size}-{plan['mixer']}"
        text = texts[plan["text"]]
        value = train(arguments.out / name, recipe, text, plan["seed"], arguments.steps, arguments.threads)
        print(f"{name}: {value['loss']:.4f} nats a byte", file=sys.stderr, flush=True)
        return {**plan, **value}

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(run, plans))
    with open(arguments.out / "results.jsonl", "w") as file:
        file.writelines(json.dumps(result) + "\n" for result in results)
    print(
        f"Validation loss, nats a byte, after {arguments.steps} steps; mean ± standard error of {arguments.seeds} seeds"
    )
    print(table(results, list(texts)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", action="append", required=True, metavar="NAME=TRAIN[,VALIDATION]")
    parser.add_argument("--size", default="500k", help="of configs/lm")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--threads", type=int, default=1, help="of one run")
    parser.add_argument("--out", type=Path, default=Path("runs/lm"), metavar="DIR")
    main(parser.parse_args())
