"""The command `python -m fem.bench`."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import torch

from fem.bench import layers, reads
from fem.bench.cases import OPPONENTS, PRIORS, SHAPES
from fem.bench.report import Progress, Result, machine, table_of, text_of, timed, write_lines

DETAILS = """\
Shapes, float32:
  S1   D 768, H 12, T 1024, B 2
  S2   D 512, H  4, T 2048, B 1
  S3   S2 with T 4096
  S4   S2 with T 8192

All sides of a row run in turn in this process. A ratio is the median over the repeats of our time to theirs: below 1
we are faster. Opponents: torch's scaled_dot_product_attention (for --layer a plain attention layer with as many
parameters), and the plain definition under torch.compile where a definition without a loop over the tokens exists.
Ctrl-C ends early with what there is.

example: python -m fem.bench --layer --priors softmax,gla --shapes S1,S2 --repeats 31 --out layer.jsonl"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"fem.bench: {message}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    options = options_of(arguments)
    torch.set_num_threads(options.threads)
    shapes = [shape for name in options.shapes for shape in SHAPES if shape.name == name]
    print("torch {torch}, {threads} threads, {isa}, fem {fem}, float32\n".format(**machine()), flush=True)
    results: dict[str, list[Result]] = {"read": [], "layer": []}
    try:
        if options.layer:
            print(text_of(layers.parameter_counts(options.priors, shapes)), flush=True)
        for bench, module in (("read", reads), ("layer", layers)):
            total = len(options.priors) * len(shapes) * module.CASES * options.repeats
            if getattr(options, bench):
                with Progress(f"bench {bench}", total) as progress:
                    cases = module.cases(options.priors, shapes, options.opponents)
                    for result in timed(cases, options.repeats, progress):
                        results[bench].append(result)
    except KeyboardInterrupt:
        pass
    for bench, rows in results.items():
        if rows:
            print(f"{bench}\n{text_of(table_of(rows))}")
    if options.out:
        write_lines(options.out, results)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m fem.bench",
        description="Compare the speed of the reads and of the mixer with torch's attention.",
        epilog=DETAILS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    shapes = tuple(shape.name for shape in SHAPES)
    parser.add_argument("--read", action="store_true", help="the reads alone (default: reads and layer)")
    parser.add_argument("--layer", action="store_true", help="the whole layer alone")
    parser.add_argument("--shapes", type=_some_of(shapes), default=shapes[:4], metavar="LIST", help="default S1,...,S4")
    parser.add_argument("--priors", type=_some_of(PRIORS), default=PRIORS, metavar="LIST", help="default all six")
    parser.add_argument("--opponents", type=_some_of(OPPONENTS), default=OPPONENTS, metavar="LIST", help="sdpa,compile")
    parser.add_argument("--repeats", type=_positive, default=15, metavar="N", help="runs per case, default 15")
    parser.add_argument("--threads", type=_positive, default=torch.get_num_threads(), metavar="N", help="torch's")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write a line of JSON per comparison")
    options = parser.parse_args(arguments)
    if not options.read and not options.layer:
        options.read = options.layer = True
    compiler = os.environ.get("CXX", "g++")
    if "compile" in options.opponents and shutil.which(compiler) is None:
        parser.error(f"torch.compile needs a C++ compiler, and there is no {compiler}: --opponents sdpa leaves it out")
    if options.out and not os.access(options.out.parent, os.W_OK):
        parser.error(f"argument --out: expected a file in a folder that can be written to, got {options.out}")
    return options


def _some_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parsed(text: str) -> tuple[str, ...]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}, got '{name}'")
        return tuple(text.split(","))

    return parsed


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a positive number, got '{text}'")
    return int(text)


if __name__ == "__main__":
    main()
