#!/usr/bin/env python3
"""Draws pictures with their classes, or who is taken for whom. Usage: plot_classes.py FIGURES.json --out PICTURE.png"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from palette import CURVES

MOST_CELLS = 20  # classes beside which counts can still be read


def draw_pictures(figures: dict) -> plt.Figure:
    pictures = figures["pictures"]
    columns = min(len(pictures), 3)
    rows = -(-len(pictures) // columns)
    figure, axes = plt.subplots(rows, 2 * columns, figsize=(3.6 * columns, 1.7 * rows), layout="constrained",
                                squeeze=False)  # fmt: skip
    for axis in axes.flat:
        axis.axis("off")
    for place, picture in enumerate(pictures):
        shown, bars = axes[place // columns][2 * (place % columns) :][:2]
        pixels = np.moveaxis(np.array(picture["channels"], dtype=np.uint8), 0, -1)
        shown.imshow(pixels.squeeze(), cmap="gray", vmin=0, vmax=255)
        shown.set_title(picture["file"][-24:], fontsize=7)
        names, values = zip(*picture["top"], strict=True)
        bars.axis("on")
        bars.barh(range(len(names)), values, color=[CURVES[1]] + [CURVES[0]] * (len(names) - 1), height=0.55)
        for line, (name, value) in enumerate(zip(names, values, strict=True)):
            bars.text(0, line - 0.33, f"{name}  {100 * value:.1f} %", fontsize=7, va="bottom")
        bars.set(xlim=(0, 1), ylim=(len(names) - 0.5, -0.9), xticks=[], yticks=[])
        for spine in bars.spines.values():
            spine.set_visible(False)
    if figures["more"]:
        figure.supxlabel(f"and {figures['more']} more", fontsize=8)
    return figure


def draw_confusion(figures: dict) -> plt.Figure:
    counts = np.array(figures["confusion"])
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    names = figures["classes"]
    side = min(2.5 + 0.42 * len(names), 14)
    figure, axis = plt.subplots(figsize=(side, side), layout="constrained")
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(names) <= MOST_CELLS:
        axis.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        for row, column in zip(*np.nonzero(counts), strict=True):
            colour = "white" if shares[row, column] > 0.5 else "0.2"
            axis.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=7, color=colour)
    axis.set(xlabel="taken for", ylabel="is")
    axis.set_title(f"{100 * figures['accuracy']:.2f} % of {figures['pictures']:,} pictures", loc="left", fontsize=10)
    return figure


def main(source: Path, out: Path) -> None:
    figures = json.loads(source.read_text())
    (draw_confusion if "confusion" in figures else draw_pictures)(figures).savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draws pictures with their classes, or who is taken for whom.")
    parser.add_argument("figures", type=Path, metavar="FIGURES")
    parser.add_argument("--out", type=Path, required=True, metavar="PICTURE")
    arguments = parser.parse_args()
    main(arguments.figures, arguments.out)
