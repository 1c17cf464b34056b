"""The picture of a benchmark report: for every case the ratio to torch, and how near both come to the roof."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from palette import COLORS


def row_of(case: dict) -> str:
    return f"{case['bench']} {case['kind']}, {case['configuration']['shape']['name']}"


def rows_in_order(cases: list[dict]) -> list[str]:
    """Benchmarks as they were run, their kinds together."""
    benches = list(dict.fromkeys(case["bench"] for case in cases))
    kinds = list(dict.fromkeys(case["kind"] for case in cases))
    ordered = sorted(cases, key=lambda case: (benches.index(case["bench"]), kinds.index(case["kind"])))
    return list(dict.fromkeys(row_of(case) for case in ordered))


def share(work: dict, case: dict) -> float | None:
    """Per cent of the roof that the printed table is about: memory's in decoding, else the arithmetic's."""
    field = "gbytes_per_s" if case["bench"] == "decode" else "gflops"
    return 100 * work[field] / case[f"peak_{field}"] if work[field] else None


def draw_ratios(axis, timed: list[dict], height: dict[str, float]) -> None:
    axis.axvline(1, color="#666666", linewidth=1)
    for case in timed:
        prior, y = case["configuration"]["prior"], height[row_of(case)]
        axis.plot(case["ratio"], y, "o", color=COLORS[prior], markersize=6)
        if prior == "softmax" and case["target"]:
            axis.plot(case["target"], y, "|", color=COLORS[prior], markersize=14, markeredgewidth=1.6)
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    ticks = [t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if low <= t <= high]
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()
    axis.set(xlabel="time of ours / time of torch", title="Below 1 is faster than torch")


def draw_shares(axis, timed: list[dict], height: dict[str, float]) -> None:
    axis.axvline(100, color="#666666", linewidth=1)
    for case in timed:
        y = height[row_of(case)]
        theirs, ours = share(case["opponent_work"], case), share(case, case)
        if theirs and case["configuration"]["prior"] == "softmax":
            axis.plot(theirs, y, "D", markerfacecolor="none", markeredgecolor="black", markersize=6)
        if ours:
            axis.plot(ours, y, "o", color=COLORS[case["configuration"]["prior"]], markersize=6)
    axis.set_xlim(left=0)
    axis.set(
        xlabel="% of the measured roof (decode: memory, else arithmetic)", title="How near to what the machine can do"
    )


def draw(cases: list[dict], picture: Path) -> None:
    timed = [case for case in cases if case["ours_ms"] is not None]
    rows = rows_in_order(timed)
    height = {row: -i for i, row in enumerate(rows)}
    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, 2, figsize=(12, 2.4 + 0.3 * len(rows)), sharey=True, layout="constrained")
    draw_ratios(axes[0], timed, height)
    draw_shares(axes[1], timed, height)
    axes[0].set_yticks(list(height.values()), rows)
    axes[0].set_ylim(-len(rows) + 0.4, 0.6)
    for axis in axes:
        axis.grid(True, axis="y", alpha=0.3)

    priors = dict.fromkeys(case["configuration"]["prior"] for case in timed)
    marks = [Line2D([], [], marker="o", linestyle="", color=COLORS[p], label=p) for p in priors]
    marks.append(Line2D([], [], marker="|", linestyle="", color=COLORS["softmax"], markersize=12, label="softmax, aim"))
    marks.append(Line2D([], [], marker="D", linestyle="", color="black", markerfacecolor="none", label="torch"))
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), frameon=False)
    machine = cases[0]["machine"]
    figure.suptitle(f"{machine['cpu']}, {machine['isa']}, {machine['threads']} threads, float32")
    figure.savefig(picture, dpi=130)
