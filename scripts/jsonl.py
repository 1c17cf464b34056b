"""Reads what fem appends line by line, by the rule of src/io/jsonl.h."""

import json
from pathlib import Path


def read_jsonl(path: Path) -> list[dict]:
    """Every line. A last one without its end was cut short by a crash and is passed over; another bad one is told."""
    lines = []
    *ended, last = path.read_text().split("\n")  # not splitlines: other line ends may stand inside a string
    for number, text in enumerate([*ended, last], 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            line = None
        if isinstance(line, dict):
            lines.append(line)
        elif number <= len(ended):
            raise SystemExit(f"{path}, line {number}: expected a JSON object, got {text[:60]!r}")
    return lines
