#!/usr/bin/env python3
"""Curves of a report as a picture.

Usage: report_picture.py NUMBERS.json --measures share,drop [--rows a,b] [--after STEP] --out FILE.png

NUMBERS.json is what `fem report RUN --out NUMBERS.json` writes; the curves are those of the page."""

import argparse
import json
import math
from pathlib import Path

import report_figures as figures
import vl_convert

WIDTH = 300


def picture(study: dict, measures: list[str], rows: list[str] | None, after: float) -> dict:
    names = rows or [row["label"] for row in study["board"]["rows"]]
    charts = []
    for measure in measures:
        lines = [
            line | {"points": [point for point in line["points"] if point[0] >= after]}
            for line in study["curves"][measure]
            if line["row"] in names
        ]
        chart = figures.curves(measure, lines, lines[0]["column"], names, names, study["along"])
        for name in ("$schema", "config", "autosize", "params", "transform"):  # all are shown
            chart.pop(name)
        for layer in chart["layer"]:
            for channel in ("color", "strokeDash"):
                layer["encoding"][channel]["legend"] = {"title": None, "orient": "bottom", "columns": 4}
        charts.append({**chart, "width": WIDTH if len(measures) > 1 else 2 * WIDTH})
    schema = "https://vega.github.io/schema/vega-lite/v6.json"
    return {"$schema": schema, "config": figures.CONFIG | {"background": "white"}, "hconcat": charts}


def main(numbers: Path, measures: list[str], rows: list[str] | None, after: float, out: Path) -> None:
    (study,) = json.loads(numbers.read_text())["studies"]
    out.write_bytes(vl_convert.vegalite_to_png(picture(study, measures, rows, after), scale=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Curves of a report as a picture.")
    parser.add_argument("numbers", type=Path, metavar="NUMBERS")
    parser.add_argument("--measures", required=True, type=lambda text: text.split(","), metavar="LIST")
    parser.add_argument("--rows", type=lambda text: text.split(","), metavar="LIST", help="default: all")
    parser.add_argument("--after", type=float, default=-math.inf, metavar="STEP", help="leave out what is before")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    main(arguments.numbers, arguments.measures, arguments.rows, arguments.after, arguments.out)
