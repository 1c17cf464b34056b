#!/usr/bin/env python3
"""Checks that every folder includes only folders above it in the ladder. Usage: check_layers.py [tree]"""

import re
import sys
from pathlib import Path

# Top first. Folders of one rung do not include each other.
LADDER = [
    ["include/fem"],
    ["src/util"],
    ["src/io"],
    ["src/parallel"],
    ["src/train"],  # so high because it knows no model, no data and no measure
    ["src/cpu"],
    ["src/ops"],
    ["src/nn", "src/energy"],
    ["src/priors"],
    ["src/mixer"],
    ["src/models"],
    ["src/text"],
    ["src/bindings", "src/data"],
    ["src/evaluate"],
    ["src/tasks"],
    ["src/inspect"],
    ["src/bench"],
    ["src/experiments"],
    ["src/report"],
    ["apps"],
]
RUNG = {folder: rung for rung, folders in enumerate(LADDER) for folder in folders}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


def folder_of(path: str) -> str | None:
    return next((folder for folder in RUNG if path == folder or path.startswith(folder + "/")), None)


def target_of(tree: Path, source: Path, name: str) -> str | None:
    """The ladder's folder an include leads to; None for the standard library and other packages."""
    for base in (source.parent, tree / "src", tree / "include"):
        if (base / name).is_file():
            return folder_of((base / name).resolve().relative_to(tree).as_posix())
    return None


def violations(tree: Path) -> list[str]:
    found = []
    for source in sorted(path for top in ("include", "src", "apps") for path in (tree / top).rglob("*")):
        if source.suffix not in (".h", ".cpp"):
            continue
        place = source.relative_to(tree).as_posix()
        own = folder_of(place)
        if own is None:
            found.append(f"{place}: in no folder of the ladder; add the folder to scripts/check_layers.py")
            continue
        for name in INCLUDE.findall(source.read_text()):
            target = target_of(tree, source, name)
            if target is not None and target != own and RUNG[target] >= RUNG[own]:
                found.append(f"{place}: includes {name}, but {own} stands above {target} or beside it")
    return found


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    problems = violations(root)
    print("\n".join(problems) or "include ladder: clean")
    sys.exit(1 if problems else 0)
