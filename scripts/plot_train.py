#!/usr/bin/env python3
"""Draws the loss curves of training runs and prints how they ended. Usage: plot_train.py RUN... --out PICTURE.png"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from jsonl import read_jsonl
from palette import CURVES


def read(run: Path) -> dict[str, list[dict]]:
    """The lines of each kind."""
    lines: dict[str, list[dict]] = {"train": [], "validation": [], "best": []}
    path = run / "metrics.jsonl"
    if not path.exists():
        raise SystemExit(f"plot_train: expected {path}; a run is a folder that fem train wrote")
    for line in read_jsonl(path):
        lines[line["kind"]].append(line)
    return lines


def summary(runs: list[Path]) -> str:
    width = max(len(run.resolve().name) for run in runs)
    last = {run: (read(run)["validation"] or [{}])[-1] for run in runs}
    measures = [name for name in next(iter(last.values())) if name not in ("kind", "step")]
    rows = [f"{'run':{width}}   steps" + "".join(f"  {name:>15}" for name in measures)]
    for run, line in last.items():
        if line:
            figures = "".join(f"  {line.get(name, float('nan')):15.4f}" for name in measures)
            rows.append(f"{run.resolve().name:{width}}  {line['step']:6}{figures}")
    return "\n".join(rows)


def main(runs: list[Path], out: Path) -> None:
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    highest, unit = [], ""
    for place, run in enumerate(runs):
        color, lines = CURVES[place % len(CURVES)], read(run)
        name = run.resolve().name
        steps, losses = [line["step"] for line in lines["train"]], [line["loss"] for line in lines["train"]]
        axis.plot(steps, losses, color=color, linewidth=0.9, alpha=0.55, label=f"{name}, training batch")
        highest += losses[len(losses) // 20 :]
        steps, losses = [line["step"] for line in lines["validation"]], [line["loss"] for line in lines["validation"]]
        if steps:
            unit = " (nats a token)" if "bits_per_byte" in lines["validation"][-1] else ""
            label = f"{name}, validation: {losses[-1]:.3f} at the end"
            axis.plot(steps, losses, color=color, linewidth=2.2, marker="o", markersize=4, label=label)
    axis.set(xlabel="training step", ylabel=f"loss{unit}", xlim=(0, None))
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
    if len(arguments.runs) > 1:
        print(summary(arguments.runs))
