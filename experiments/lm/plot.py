#!/usr/bin/env python3
"""Draws the validation loss of every run as a dot, and the means. Usage: plot.py RESULTS.jsonl PICTURE.png"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from palette import BLUE, VERMILION  # noqa: E402

MIXERS = {
    "attention": ("softmax", BLUE),
    "fem-softmax": ("FEM-softmax", VERMILION),
    "gla": ("gla", BLUE),
    "fem-gla": ("FEM-gla", VERMILION),
}


def main(results: Path, picture: Path) -> None:
    runs = [json.loads(line) for line in results.read_text().splitlines()]
    texts = list(dict.fromkeys(run["text"] for run in runs))
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, len(texts), figsize=(4.2 * len(texts), 3.8), layout="constrained", squeeze=False)
    for axis, text in zip(axes[0], texts):
        for place, (mixer, (_, color)) in enumerate(MIXERS.items()):
            losses = np.array([run["loss"] for run in runs if run["text"] == text and run["mixer"] == mixer])
            axis.plot(np.full(len(losses), place), losses, "o", color=color, alpha=0.5, markersize=6)
            axis.plot([place - 0.22, place + 0.22], [losses.mean()] * 2, color=color, linewidth=2.5)
            axis.annotate(
                f"{losses.mean():.3f}",
                (place + 0.22, losses.mean()),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                color=color,
                fontsize=9,
            )
        axis.set_xticks(range(len(MIXERS)), [name for name, _ in MIXERS.values()])
        seeds = len({run["seed"] for run in runs if run["text"] == text})
        axis.set(title=f"{text}, {seeds} seeds", ylabel="validation loss (nats a byte)", xlim=(-0.5, len(MIXERS) - 0.3))
    steps = runs[0]["config"]["train"]["steps"]
    parameters = sum(run["parameters"] for run in runs) / len(runs) / 1e6
    figure.suptitle(f"{parameters:.2f} M parameters, {steps} steps; every run a dot, their mean a bar")
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
