"""Times cases and says what came out."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fem._library import version
from fem.bench.cases import Case, Work

WARM_UPS = 2  # the second finds the allocator's and BLAS's buffers in place


@dataclass
class Result:
    """A timed case: milliseconds of every repeat."""

    name: str
    ours: list[float]
    opponents: dict[str, list[float]]

    def ratio(self, opponent: str) -> float:
        """The median over repeats of ours to theirs: below 1 we are faster."""
        return statistics.median(a / b for a, b in zip(self.ours, self.opponents[opponent], strict=True))


class Progress:
    """A line on the terminal that says how far we are; nothing in a log or a pipe."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total, self._done, self._start = label, total, 0, time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._write("")

    def step(self, note: str) -> None:
        """One repeat of a case is done."""
        self._done += 1
        left = (time.monotonic() - self._start) / self._done * (self._total - self._done)
        self.show(f"ETA {left:.0f} s  {note}")

    def show(self, note: str) -> None:
        """What is being done."""
        self._write(f"{self._label}  {self._done}/{self._total}  {note}")

    def _write(self, text: str) -> None:
        if sys.stderr.isatty():
            print("\r\033[K" + text[: shutil.get_terminal_size().columns - 1], end="", file=sys.stderr, flush=True)


def timed(cases: Iterable[Case], repeats: int, progress: Progress) -> Iterator[Result]:
    """Runs the sides of each case in turn, so that all see the same machine."""
    for case in cases:
        works = [case.ours, *case.opponents.values()]
        progress.show(f"{case.name}: warming up")
        for _ in range(WARM_UPS):
            for work in works:
                work()
        times: list[list[float]] = [[] for _ in works]
        for _ in range(repeats):
            for work, into in zip(works, times, strict=True):
                into.append(_milliseconds(work))
            progress.step(case.name)
        yield Result(case.name, times[0], dict(zip(case.opponents, times[1:], strict=True)))


def table_of(results: Sequence[Result]) -> list[list[str]]:
    """Medians and ratios; "-" where an opponent has no such case."""
    names = list(dict.fromkeys(name for result in results for name in result.opponents))
    rows = [["case", "ours"] + [head for name in names for head in (name, "ratio")]]
    for result in results:
        cells = [result.name, _cell(result.ours)]
        for name in names:
            known = name in result.opponents
            cells += [_cell(result.opponents[name]), f"{result.ratio(name):.2f}"] if known else ["-", "-"]
        rows.append(cells)
    return rows


def text_of(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, the first to the left, with a rule under the header."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(w) if c else cell.ljust(w) for c, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def machine() -> dict[str, str | int]:
    """What the numbers hold for."""
    isa = torch.backends.cpu.get_cpu_capability()
    return {"fem": version(), "torch": torch.__version__, "isa": isa, "threads": torch.get_num_threads()}


def write_lines(path: Path, results: Mapping[str, Sequence[Result]]) -> None:
    """One JSON object per benchmark, case and opponent, a line each; the file appears when it is whole."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with open(temporary, "x") as file:
        for bench, result in ((bench, result) for bench, several in results.items() for result in several):
            for opponent, theirs in result.opponents.items():
                line = {"bench": bench, "case": result.name, "opponent": opponent, "ratio": result.ratio(opponent)}
                times = {"ours_ms": statistics.median(result.ours), "opponent_ms": statistics.median(theirs)}
                file.write(json.dumps({**line, **times, "repeats": len(theirs), "versions": machine()}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _milliseconds(work: Work) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def _cell(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.2f} ms"
