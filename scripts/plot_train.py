#!/usr/bin/env python3
"""Draws the loss curves of training runs. Usage: plot_train.py RUN... --out PICTURE.png"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

# Okabe and Ito's colours, told apart by every kind of colour vision.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]


def read(run: Path) -> dict[str, tuple[list[int], list[float]]]:
    """kind -> steps and losses."""
    curves: dict[str, tuple[list[int], list[float]]] = {"train": ([], []), "validation": ([], [])}
    path = run / "metrics.jsonl"
    if not path.exists():
        raise SystemExit(f"plot_train: expected {path}; a run is a folder that fem train wrote")
    for text in path.read_text().splitlines():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue  # cut short by a crash
        steps, losses = curves[line["kind"]]
        steps.append(line["step"])
        losses.append(line["loss"])
    return curves


def main(runs: list[Path], out: Path) -> None:
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    highest = []
    for place, run in enumerate(runs):
        color, curves = COLORS[place % len(COLORS)], read(run)
        name = run.resolve().name
        steps, losses = curves["train"]
        axis.plot(steps, losses, color=color, linewidth=0.9, alpha=0.55, label=f"{name}, training batch")
        highest += losses[len(losses) // 20 :]
        steps, losses = curves["validation"]
        if steps:
            axis.plot(steps, losses, color=color, linewidth=2.2, marker="o", markersize=4, label=f"{name}, validation")
            axis.annotate(
                f"{losses[-1]:.3f}",
                (steps[-1], losses[-1]),
                xytext=(6, 0),
                va="center",
                textcoords="offset points",
                color=color,
                annotation_clip=False,
            )
    axis.set(xlabel="training step", ylabel="loss (nats a token)", xlim=(0, None))
    if highest:  # the first steps would press all that follows to the floor
        axis.set_ylim(None, 1.05 * max(highest))
    axis.legend(frameon=False)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draws the loss curves of training runs.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, metavar="PICTURE")
    arguments = parser.parse_args()
    main(arguments.runs, arguments.out)
