#!/usr/bin/env python3
"""Checks that code quoted in the documents is the code in the tree. Usage: check_docs.py [--write]

A block after `<!-- file: PATH -->` quotes a whole file, one after `<!-- part: PATH -->` some lines of it, however they
are indented there; every block of C++ is one of these. --write puts whole files as they are now into the documents."""

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUOTE = re.compile(
    r"(?P<mark><!-- (?P<kind>file|part): (?P<path>\S+) -->\n)?(?P<fence>^```\w+\n)(?P<text>.*?)(?P<end>^```$)",
    re.MULTILINE | re.DOTALL,
)


def problem_of(quote: re.Match) -> str | None:
    if quote["mark"] is None:
        return "C++ of no file: say which by <!-- part: PATH -->" if quote["fence"] == "```cpp\n" else None
    content = (ROOT / quote["path"]).read_text()
    if quote["kind"] == "file":
        return None if quote["text"] == content else "code that has changed; run scripts/check_docs.py --write"
    indented = (textwrap.indent(quote["text"], " " * spaces) for spaces in range(0, 9, 2))
    return None if any(part in content for part in indented) else f"lines that are not in {quote['path']}"


def current(quote: re.Match) -> str:
    if quote["kind"] != "file":
        return quote[0]
    return quote["mark"] + quote["fence"] + (ROOT / quote["path"]).read_text() + quote["end"]


def main(write: bool) -> int:
    stale = 0
    for document in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.md")]):
        text = document.read_text()
        if write:
            document.write_text(QUOTE.sub(current, text))
            continue
        for problem in filter(None, map(problem_of, QUOTE.finditer(text))):
            stale += 1
            print(f"{document.relative_to(ROOT)}: quotes {problem}")
    print("quoted code: " + ("written" if write else "stale" if stale else "true"))
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv[1:]))
