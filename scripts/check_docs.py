#!/usr/bin/env python3
"""Checks that code quoted in the documents is the code in the tree. Usage: check_docs.py [--write]

A block after `<!-- file: PATH -->` quotes a whole file. --write puts the files as they are now into the documents."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUOTE = re.compile(r"(<!-- file: (?P<path>\S+) -->\n```\w+\n)(?P<text>.*?)(^```$)", re.MULTILINE | re.DOTALL)


def current(match: re.Match) -> str:
    return match.group(1) + (ROOT / match["path"]).read_text() + match.group(4)


def main(write: bool) -> int:
    stale = 0
    for document in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        before = document.read_text()
        after = QUOTE.sub(current, before)
        if before == after:
            continue
        if write:
            document.write_text(after)
        else:
            stale += 1
            print(f"{document.relative_to(ROOT)}: quotes code that has changed; run scripts/check_docs.py --write")
    print("quoted code: " + ("written" if write else "stale" if stale else "true"))
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]))
