#!/usr/bin/env python3
"""Draws a forecast after its past, and errors by lead time. Usage: plot_forecast.py FIGURES.json --out PICTURE.png"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from palette import CURVES

MOST_TARGETS = 4


def draw_target(axis: plt.Axes, figures: dict, place: int) -> None:
    past, future = figures["past"][place], figures["future"][place]
    axis.plot(range(len(past)), past, color=CURVES[0], linewidth=1.1, label="past")
    steps = range(len(past) - 1, len(past) + len(future))
    axis.plot(steps, [past[-1], *future], color=CURVES[1], linewidth=1.6, label="forecast")
    axis.axvline(len(past) - 1, color="0.8", linewidth=0.8, zorder=0)
    ticks = [0, len(past) - 1, len(past) + len(future) - 1]
    axis.set_xticks(ticks, [figures["stamps"][tick] for tick in ticks], fontsize=8)
    axis.set_title(figures["targets"][place], loc="left", fontsize=10)


def draw_errors(axis: plt.Axes, errors: list[dict]) -> None:
    for place, line in enumerate(errors):
        lead = range(1, len(line["mae_by_lead"]) + 1)
        width = 2.0 if place == 0 else 1.1
        label = f"{line['forecast']}: {line['mae']:.3f}"
        axis.plot(lead, line["mae_by_lead"], color=CURVES[(place + 1) % len(CURVES)], linewidth=width, label=label)
    highest = max(max(line["mae_by_lead"]) for line in errors)
    axis.set(xlabel="rows ahead", ylabel="mean absolute error\n(standardised)", ylim=(0, 1.3 * highest))
    axis.set_title("Error by lead time, on what was held back", loc="left", fontsize=10)
    axis.legend(frameon=False, fontsize=8, loc="upper left", ncols=len(errors))


def main(source: Path, out: Path) -> None:
    figures = json.loads(source.read_text())
    targets = min(len(figures["targets"]), MOST_TARGETS)
    panels = targets + ("errors" in figures)
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(panels, 1, figsize=(8, 1.9 * panels + 0.6), layout="constrained", squeeze=False)
    for place in range(targets):
        draw_target(axes[place][0], figures, place)
    axes[0][0].legend(frameon=False, fontsize=8, loc="upper left")
    if "errors" in figures:
        draw_errors(axes[-1][0], figures["errors"])
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draws a forecast after its past, and errors by lead time.")
    parser.add_argument("figures", type=Path, metavar="FIGURES")
    parser.add_argument("--out", type=Path, required=True, metavar="PICTURE")
    arguments = parser.parse_args()
    main(arguments.figures, arguments.out)
