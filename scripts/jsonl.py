"""Reads what fem appends line by line, by the rule of src/io/jsonl.h."""

import json
from pathlib import Path


def read_jsonl(path: Path) -> list[dict]:
    """Every line. A last one without its end was cut short by a crash and is passed over; another bad one is told."""
    lines = []
    for number, text in enumerate(path.read_text().splitlines(keepends=True), 1):
        if not text.strip():
            continue
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            if text.endswith("\n"):
                raise SystemExit(f"{path}, line {number}: expected a JSON object, got {text[:60]!r}") from None
    return lines
