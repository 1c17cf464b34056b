"""A sweep's folder with made-up results, in the shape of the MAD experiment: nothing here was ever measured."""

import json
import math
import random
from pathlib import Path

MIXERS = {"softmax": 0.60, "softmax+C": 0.66, "softmax+CL": 0.71, "softmax+CLT": 0.72, "softmax+CLTG": 0.75,
          "softmax+L": 0.63, "softmax+LT": 0.64, "softmax+LTG": 0.66, "gla": 0.50, "gla+C": 0.55, "gla+CL": 0.57,
          "gla+CLT": 0.53, "gla+CLTG": 0.61, "delta_net": 0.78, "mamba": 0.52}  # fmt: skip
TASKS = {"compression": -0.2, "fuzzy-recall": -0.3, "in-context-recall": 0.2, "memorization": 0.05,
         "noisy-recall": 0.18, "selective-copying": 0.1}  # fmt: skip
RATES = ["learning_rate=0.001", "learning_rate=0.002", "learning_rate=0.004"]


def _line(mixer: str, task: str, choice: str, seed: int, accuracy: float) -> dict:
    return {
        "run": f"{mixer}-{task}-{choice}-seed={seed}",
        "cell": {"mixer": mixer, "task": task},
        "choice": choice,
        "seed": seed,
        "reported": seed > 0,
        "parameters": 100_000 + 8 * len(mixer),
        "goal": {"measure": "accuracy", "larger_is_better": True},
        "measures": {"accuracy": accuracy, "token_accuracy": accuracy + 0.001, "loss": -math.log(accuracy)},
        "curve": [[step, round(accuracy * (1 - math.exp(-step / 200)), 6)] for step in range(100, 801, 100)],
        "recipe": {"task": "mad", "data": {"kind": task}, "model": {"n_embd": 64, "mixer": {"name": mixer}},
                   "train": {"steps": 800, "learning_rate": float(choice.partition("=")[2]), "seed": seed}},
    }  # fmt: skip


def write_sweep(folder: Path) -> None:
    """results.jsonl; the same at every call."""
    noise = random.Random(1)
    folder.mkdir(parents=True)
    lines = []
    for mixer, level in MIXERS.items():
        for task, ease in TASKS.items():
            best = noise.randrange(len(RATES))
            for seed in (0, 1, 2, 3):
                for place, choice in enumerate(RATES):
                    if seed > 0 and place != best:
                        continue
                    mean = min(0.995, level + ease) - 0.05 * (place != best)
                    accuracy = min(0.999, max(0.02, mean + noise.gauss(0, 0.012)))
                    lines.append(_line(mixer, task, choice, seed, round(accuracy, 6)))
    with open(folder / "results.jsonl", "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


FORECASTERS = {"softmax": 0.42, "softmax+CLTG": 0.40, "mamba+CLTG": 0.41, "dlinear": 0.43, "inverted": 0.44}


def write_forecasts(folder: Path, table: str, horizons: list[int]) -> None:
    """One table of fem experiment tsf: rates are a row's own, chosen at 96 and 336 on seed 0 for the horizon after."""
    folder.mkdir(parents=True)
    lines = []
    for model, level in FORECASTERS.items():
        rates = ["0.005", "0.05"] if model == "dlinear" else ["0.001", "0.003"]
        for horizon in horizons:
            chooses = horizon in (96, 336)
            for seed in (0, 1, 2, 3) if chooses else (1, 2, 3):
                for place, rate in enumerate(rates):
                    if seed > 0 and place == 0:
                        continue  # validation chose the other one; who chose by the test would take this one
                    mse = level + horizon / 10_000 + 0.001 * seed - (0.1 if place == 0 else 0)
                    lines.append({
                        "run": f"{model}-{table}_{horizon}-learning_rate={rate}-seed={seed}",
                        "cell": {"model": model, "table": f"{table} {horizon}"},
                        "choice": f"learning_rate={rate}",
                        "seed": seed,
                        "reported": seed > 0,
                        "parameters": 163_025,
                        "goal": {"measure": "loss", "larger_is_better": False},
                        "measures": {"loss": 0.7 - 0.1 * place, "mae": 0.5, "test_mse": mse, "test_mae": 0.4},
                        "curve": [[100, 0.8], [400, 0.7]],
                        "recipe": {"task": "forecast", "train": {"learning_rate": float(rate), "seed": seed}},
                    })  # fmt: skip
    with open(folder / "results.jsonl", "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
