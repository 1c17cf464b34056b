#!/usr/bin/env python3
"""The tables of docs/inspect.md from the lines that `fem inspect --json` wrote. Usage: table.py results.jsonl

Models whose names differ by a number at the end are one, trained several times: mean ± standard error."""

import json
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path


def told(values: list[float], digits: int, sign: str = "") -> str:
    text = f"{statistics.mean(values):{sign}.{digits}f}"
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0
    return f"{text} ± {error:.{digits}f}" if len(values) > 1 else text


def rows(lines: list[dict], name: str) -> None:
    fresh, trained = ([line["layers"] for line in lines if "layers" in line and line["fresh"] == new] for new in (1, 0))
    for layer in range(len(trained[0]) if trained else 0):

        def both(figure, digits, layer=layer):
            before, after = (told([figure(model[layer]) for model in models], digits) for models in (fresh, trained))
            return f"{before} → {after}"

        cells = [both(lambda s: s["rank"], 2), both(lambda s: 100 * s["disagree"], 0)]
        cells += [both(lambda s: 100 * s["moved"], 1), both(lambda s: s["kl"], 2)]
        cells += [both(lambda s, q=quantile: s["hidden_beta"][q], 2) for quantile in ("low", "median", "high")]
        print(f"| {name} | {layer} | {' | '.join(cells)} |")


def gates(lines: list[dict], name: str) -> None:
    ablated = [line["ablations"] for line in lines if "ablations" in line]
    for place, first in enumerate(ablated[0] if ablated else []):
        losses = [model[place]["loss"] - (model[0]["loss"] if place else 0) for model in ablated]
        share = told([100 * model[place]["channels"] for model in ablated], 1)
        print(f"| {name} | {first['what']} | {share} | {told(losses, 4, '+' if place else '')} |")


if __name__ == "__main__":
    models = defaultdict(list)
    for text in Path(sys.argv[1]).read_text().splitlines():
        line = json.loads(text)
        models[re.sub(r"-\d+$", "", Path(line["model"]).name)].append(line)
    print("| model | layer | rank | other choice, % | moved, % | nats | beta* 10 % | median | 90 % |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, lines in models.items():
        rows(lines, name)
    print("\n| model | what is set | channels, % | loss, then changes |\n|---|---|---|---|")
    for name, lines in models.items():
        gates(lines, name)
