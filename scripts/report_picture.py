#!/usr/bin/env python3
"""Curves of a report, or what the steps of its ladders change, as a picture.

Usage: report_picture.py NUMBERS.json --measures share,drop [--rows a,b] [--after STEP] --out FILE.png
       report_picture.py NUMBERS.json --effects Average,Compress --out FILE.png

NUMBERS.json is what `fem report RUN --out NUMBERS.json` writes; the charts are those of the page."""

import argparse
import json
import math
from pathlib import Path

import report_figures as figures
import vl_convert

WIDTH = 300


def curves(study: dict, measures: list[str], rows: list[str] | None, after: float) -> list[dict]:
    names = rows or [row["label"] for row in study["board"]["rows"]]
    charts = []
    for measure in measures:
        lines = [
            line | {"points": [point for point in line["points"] if point[0] >= after]}
            for line in study["curves"][measure]
            if line["row"] in names
        ]
        chart = figures.curves(measure, lines, lines[0]["column"], names, names, study["along"])
        for name in ("params", "transform"):  # all are shown
            chart.pop(name)
        for layer in chart["layer"]:
            for channel in ("color", "strokeDash"):
                layer["encoding"][channel]["legend"] = {"title": None, "orient": "bottom", "columns": 4}
        charts.append(chart)
    return charts


def effects(study: dict, columns: list[str]) -> list[dict]:
    charts = []
    for column in columns:
        own = [effect for effect in study["effects"] if effect["column"] == column]
        if not own:
            known = ", ".join(dict.fromkeys(effect["column"] for effect in study["effects"])) or "none"
            raise SystemExit(f"--effects: expected columns of the report, {known}; got {column}")
        charts.append({**figures.forest(own, column, study["board"]["unit"]), "title": column})
    return charts


def picture(charts: list[dict]) -> dict:
    """Beside one another, at one width."""
    schema = charts[0]["$schema"]
    for chart in charts:
        for name in ("$schema", "config", "autosize"):
            chart.pop(name)
        chart["width"] = WIDTH if len(charts) > 1 else 2 * WIDTH
    return {"$schema": schema, "config": figures.CONFIG | {"background": "white"}, "hconcat": charts}


def main(arguments: argparse.Namespace) -> None:
    (study,) = json.loads(arguments.numbers.read_text())["studies"]
    if arguments.effects:
        charts = effects(study, arguments.effects)
    else:
        charts = curves(study, arguments.measures, arguments.rows, arguments.after)
    arguments.out.write_bytes(vl_convert.vegalite_to_png(picture(charts), scale=2))


def words(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Curves or effects of a report as a picture.")
    parser.add_argument("numbers", type=Path, metavar="NUMBERS")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--measures", type=words, metavar="LIST", help="curves of these")
    what.add_argument("--effects", type=words, metavar="COLUMNS", help="what each step of a ladder changes in these")
    parser.add_argument("--rows", type=words, metavar="LIST", help="curves of these rows; default: all")
    parser.add_argument("--after", type=float, default=-math.inf, metavar="STEP", help="leave out what is before")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.effects and (arguments.rows or arguments.after > -math.inf):
        parser.error("--rows and --after are for the curves of --measures; leave them out with --effects")
    main(arguments)
