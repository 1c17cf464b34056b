#!/usr/bin/env python3
"""Makes one report of what `fem bench` wrote. Usage: bench_report.py FIGURES OUT

FIGURES holds read, layer and decode as .jsonl (--json) and .txt (what was printed); OUT gets <kind of machine>.md,
.jsonl and .png."""

import json
import re
import sys
from pathlib import Path

from bench_plot import draw

BENCHES = {
    "read": "The reads against torch's attention of the same total width",
    "layer": "The layer against an attention layer with as many parameters",
    "decode": "One more token through four layers, after a shape's T tokens",
}


def read_cases(folder: Path) -> list[dict]:
    cases = [json.loads(line) for name in BENCHES for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    if not cases:
        raise SystemExit(f"bench_report: expected cases in {folder}, got none; was fem bench interrupted?")
    return cases


def kind_of(machine: dict) -> str:
    words = f"{machine['cpu']} {machine['isa']} {machine['threads']} threads"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def table(head: list[str], rows: list[list]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def machine_text(cases: list[dict]) -> str:
    machine = cases[0]["machine"]
    caches = ", ".join(f"{name} {size_text(size)}" for name, size in machine["caches"].items())
    best = {field: max(case[field] for case in cases) for field in cases[0] if field.startswith("peak_")}
    one, every = "one thread", f"{machine['threads']} threads"
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['isa']} kernels"
        + (f", caches as a core sees them: {caches}" if caches else "")
        + ".\n\nThe roof, highest of the runs below (each measures its own, and shares are of that):\n\n"
        + table(
            ["", one, every],
            [
                ["multiply-adds", *(f"{best[f'peak_gflops{s}']:.0f} GFLOP/s" for s in ("_one_thread", ""))],
                ["reading memory", *(f"{best[f'peak_gbytes_per_s{s}']:.1f} GB/s" for s in ("_one_thread", ""))],
            ],
        )
    )


def configuration_text(cases: list[dict]) -> str:
    """Shapes, then what the mixers have in common, then what differs."""
    shapes = {case["configuration"]["shape"]["name"]: case["configuration"]["shape"] for case in cases}
    rows = [[s["name"], s["dim"], s["heads"], s["length"], s["batch"]] for s in shapes.values()]
    text = table(["shape", "D", "H", "T", "B"], rows)

    mixers = [case["configuration"] for case in cases if case["configuration"]["mixer"]]
    if not mixers:
        return text
    # C is switched off in the cases that say so.
    fields = ["prior_type", *(name for name in mixers[0]["mixer"] if name not in ("prior_type", "use_conv"))]
    varying = [name for name in fields if len({str(c["mixer"][name]) for c in mixers}) > 1]
    common = {name: mixers[0]["mixer"][name] for name in fields if name not in varying}
    rows = []
    for c in mixers:
        values = [f"{v:.4g}" if isinstance(v, float) else v for v in (c["mixer"][name] for name in varying)]
        row = [*values, c["head_key"], c["head_value"]]
        if row not in rows:
            rows.append(row)
    text += "\nThe mixers' options, K and V being the widths that follow for one head:\n\n"
    text += table([*varying, "K", "V"], rows)
    text += "\nCommon to all: " + ", ".join(f"{name} {json.dumps(value)}" for name, value in common.items()) + ".\n"
    return text + "A read alone has K = D / H and V = K / 2.\n"


def report(cases: list[dict], folder: Path, picture: str) -> str:
    machine, versions = cases[0]["machine"], cases[0]["versions"]
    parts = [
        f"# {machine['cpu']}, {machine['isa']}, {machine['threads']} threads\n",
        f"Written by `scripts/bench`: fem {versions['fem']}, torch {versions['torch']}, float32. "
        "Times are medians of pairs run in turn in one process; ratios below 1 are faster than torch.\n",
        "## Machine\n",
        machine_text(cases),
        f"![Ratios to torch, and shares of the roof]({picture})\n",
    ]
    for name, title in BENCHES.items():
        parts += [f"## {title}\n", f"```text\n{(folder / f'{name}.txt').read_text().rstrip()}\n```\n"]
    parts += ["## Configuration\n", configuration_text(cases)]
    return "\n".join(parts)


def main(folder: Path, out: Path) -> None:
    cases = read_cases(folder)
    path = out / f"{kind_of(cases[0]['machine'])}.md"
    path.with_suffix(".jsonl").write_text("".join((folder / f"{name}.jsonl").read_text() for name in BENCHES))
    draw(cases, path.with_suffix(".png"))
    path.write_text(report(cases, folder, path.with_suffix(".png").name))
    print(f"wrote {path}, and .jsonl and .png beside it")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
