#!/usr/bin/env python3
"""Draws DIR/argmax.png from DIR/curve.jsonl. Usage: plot_argmax.py DIR"""

import json
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from jsonl import read_jsonl
from palette import BLUE, VERMILION

STYLE = {
    "fem": {"color": BLUE, "name": "free-energy read", "paper": 100.0, "paper_text": "paper, D 512: about 100 %"},
    "mean": {
        "color": VERMILION,
        "name": "mean of the same prior",
        "paper": 1.5,
        "paper_text": "paper, D 512: 1 to 2 %",
    },
}


def setting_of(config: dict) -> str:
    return json.dumps({k: v for k, v in config.items() if k not in ("mixer", "seed")}, sort_keys=True)


def read(path: Path) -> tuple[dict, dict]:
    """The newest setting in the file, and mixer -> seed -> step -> point; later lines replace earlier ones."""
    lines = read_jsonl(path)
    if not lines:
        raise SystemExit(f"plot_argmax: expected evaluations in {path}, got none; run fem experiment argmax first")
    newest = setting_of(lines[-1]["config"])
    curves = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        config = line["config"]
        if setting_of(config) == newest and config["mixer"] in STYLE:  # an older version had other mixers
            curves[config["mixer"]][config["seed"]][line["step"]] = line
    return lines[-1]["config"], curves


def draw(axis, curves: dict, field: str, factor: float, text: str) -> None:
    for mixer, seeds in sorted(curves.items()):
        style = STYLE[mixer]
        steps = sorted(set.intersection(*(set(points) for points in seeds.values())))
        values = np.array([[factor * points[s][field] for s in steps] for points in seeds.values()])
        if len(values) > 1:
            for row in values:
                axis.plot(steps, row, color=style["color"], linewidth=0.8, alpha=0.45)
        axis.plot(steps, values.mean(0), color=style["color"], linewidth=2.2, label=style["name"])
        last = values[:, -1].mean()
        axis.annotate(
            text.format(last),
            (steps[-1], last),
            xytext=(6, 0),
            va="center",
            textcoords="offset points",
            color=style["color"],
            fontsize=9,
            annotation_clip=False,
        )
        axis.set_xlim(0, steps[-1])


def main(folder: Path) -> None:
    config, curves = read(folder / "curve.jsonl")
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(3, 2), layout="constrained")

    draw(left, curves, "accuracy", 100, "{:.1f} %")
    for mixer in sorted(curves):
        style = STYLE[mixer]
        left.axhline(style["paper"], color=style["color"], linestyle="--", linewidth=1.2, label=style["paper_text"])
    left.set(
        xlabel="training step", ylabel="index accuracy (%)", ylim=(-2, 103), title="Channels whose winner is found"
    )
    left.legend(loc="lower right", bbox_to_anchor=(1, 0.06), frameon=False)

    draw(right, curves, "validation_loss", 1, "{:.3f}")
    right.set(xlabel="training step", ylabel="validation MSE", ylim=(0, None), title="Squared error of the read")

    seeds = max(len(s) for s in curves.values())
    runs = "1 seed" if seeds == 1 else f"{seeds} seeds (thin), their mean (bold)"
    figure.suptitle(f"Channel-wise argmax, D {config['dim']}, H {config['heads']}, T {config['length']}; {runs}")
    figure.savefig(folder / "argmax.png", dpi=150)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
