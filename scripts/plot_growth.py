#!/usr/bin/env python3
"""Draws tokens per second against sequence length. Usage: plot_growth.py GROWTH.jsonl PICTURE.png

GROWTH.jsonl is what `fem bench growth --json` writes."""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from palette import COLORS


def main(source: Path, picture: Path) -> None:
    reads = [json.loads(line) for line in source.read_text().splitlines()]
    if not reads:
        raise SystemExit(f"plot_growth: expected reads in {source}, got none; run fem bench growth --json first")
    figure, axes = plt.subplots(1, 2, figsize=(12.5, 4.2), sharey=True)
    for axis, kind, title in zip(axes, ("forward", "training"), ("forward", "forward and backward")):
        for read in reads:
            rate = [1000 * t / ms for t, ms in zip(read["lengths"], read[f"{kind}_ms"])]
            axis.plot(
                read["lengths"],
                rate,
                color=COLORS[read["read"]],
                marker="o",
                markersize=3.5,
                linewidth=1.8,
                linestyle="--" if read["read"] == "torch sdpa" else "-",
                label=f"{read['read']}  T^{read[f'{kind}_exponent']:.2f}",
            )
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(reads[0]["lengths"], [f"{t // 1024}k" for t in reads[0]["lengths"]])
        axis.set_xlabel("tokens T")
        axis.set_title(title, fontsize=11)
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(
            fontsize=8,
            frameon=False,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
            title="time grows as",
            title_fontsize=8,
        )
    axes[0].set_ylabel("tokens per second")
    versions = reads[0]["versions"]
    figure.suptitle("Reads of D 512, H 4, B 1: flat is linear time", fontsize=12)
    figure.text(
        0.99,
        0.01,
        f"float32, {versions['threads']} threads, {versions['isa']}, torch {versions['torch']}",
        ha="right",
        fontsize=7,
        color="#666666",
    )
    figure.tight_layout()
    figure.savefig(picture, dpi=140)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
