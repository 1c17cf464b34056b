"""Every command line in the documents and in the help is one that fem takes, and prints what they say it prints.

A block after `<!-- output: fem ... -->` is some of the lines that this command prints, or all.

Usage: docs_test.py path/to/fem path/to/parse_command
"""

import functools
import json
import os
import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

FEM = PARSE = ""
TREE = Path(__file__).resolve().parents[2]
MARKDOWN = ("*.md", "docs/**/*.md", "experiments/*/README.md")
DOCUMENTS = [*(path for pattern in MARKDOWN for path in TREE.glob(pattern)), TREE / "scripts/demo"]
COMMANDS = ("info", "letters", "train", "sweep", "eval", "generate", "experiment", "report", "bench", "completion")
CALL = re.compile(r"(?<![\w./-])(?:build/|DIR/bin/)?fem (?P<words>(?:--|[a-z]).*)")
OUTPUT = re.compile(r"<!-- output: fem (?P<words>.+) -->\n```text\n(?P<lines>.*?)^```$", re.MULTILINE | re.DOTALL)


def code_of(text):
    """Lines of code blocks, fenced or indented, with continued lines joined; and code inside sentences."""
    lines = re.sub(r" *\\\n\s+", " ", text).splitlines()
    fenced = False
    for line in lines:
        fenced ^= line.startswith("```")
        if fenced or line.startswith(("    ", "  ")):
            yield line
        else:
            yield from re.findall(r"`([^`]+)`", line)


def calls_of(text):
    """The words after fem, as a shell would hand them over. What is explained after two spaces is no part of them."""
    for line in code_of(text):
        if not (call := CALL.search(line)):
            continue
        plain = re.split(r"\s{2,}| #| \| |\)(?:\s|$)", call["words"])[0]
        if plain.split()[0] not in COMMANDS and not plain.startswith("--"):
            continue  # a sentence
        words = shlex.split(plain.replace("$'", "'"))
        choices = [word.split("|") for word in words]
        for i in range(max(map(len, choices))):
            yield [choice[min(i, len(choice) - 1)] for choice in choices]


@functools.cache
def helps():
    """Every command's help."""
    found, places = {}, [()]
    for place in places:
        text = subprocess.run([FEM, *place, "--help"], capture_output=True, text=True, check=True).stdout
        found[" ".join(("fem", *place))] = text
        commands = re.findall(r"^  (\w+)  ", text.partition("\nSubcommands:\n")[2].partition("\n\n")[0], re.MULTILINE)
        places += [(*place, command) for command in commands]
    return found


class Documents(unittest.TestCase):
    def sources(self):
        yield from ((str(path.relative_to(TREE)), path.read_text()) for path in DOCUMENTS)
        yield from ((f"{name} --help", text.partition("Example")[2]) for name, text in helps().items())

    def errors_of(self, calls):
        given = "".join(json.dumps(words) + "\n" for words in calls)
        parsed = subprocess.run([PARSE], input=given, capture_output=True, text=True, check=True).stdout
        return [json.loads(line) for line in parsed.splitlines()]

    def test_every_call_is_taken(self):
        calls = [(source, words) for source, text in self.sources() for words in calls_of(text)]
        self.assertGreater(len(calls), 60)
        # A command by its name alone is only spoken of.
        whole = [words + ["--help"] * (" ".join(("fem", *words)) in helps()) for _, words in calls]
        for (source, words), error in zip(calls, self.errors_of(whole), strict=True):
            with self.subTest(source=source, call=shlex.join(words)):
                self.assertEqual(error, "")

    def test_what_fem_does_not_take_is_noticed(self):
        wrong = [["eval"], ["train", "x", "--dta", "y"], ["fly"], ["generate", "m", "--top-p", "2"], []]
        self.assertNotIn("", self.errors_of(wrong))

    def test_every_recipe_and_setting_exists(self):
        found = {}
        for source, text in self.sources():
            for words in calls_of(text):
                names_recipe = len(words) > 1 and re.match(r"(?!runs/)[a-z\d]", words[1])  # not the folder of a run
                if words[0] == "train" and names_recipe:
                    settings = [word for i, word in enumerate(words) if "--set" in (word, words[i - 1])]
                    found[(words[1], *settings)] = source
        self.assertGreater(len(found), 6)
        for (recipe, *settings), source in found.items():
            with self.subTest(source=source, recipe=recipe, settings=settings):
                counted = subprocess.run(
                    [FEM, "train", recipe, *settings, "--parameters"], capture_output=True, text=True
                )
                self.assertEqual(counted.returncode, 0, counted.stderr)

    def test_quoted_output_is_what_the_command_prints(self):
        count = 0
        for source, text in self.sources():
            for quote in OUTPUT.finditer(text):
                printed = subprocess.run([FEM, *shlex.split(quote["words"])], cwd=TREE, capture_output=True, text=True)
                with self.subTest(source=source, command=quote["words"]):
                    self.assertTrue(quote["lines"].strip())
                    self.assertIn(quote["lines"], printed.stdout, printed.stderr)
                count += 1
        self.assertGreater(count, 0)

    def test_every_script_and_recipe_file_named_is_there(self):
        count = 0
        for source, text in self.sources():
            for code in code_of(text):
                for name in re.findall(r"(?<![\w/.<-])(?:scripts|benchmarks|configs|examples)/[\w./*-]*\w", code):
                    if re.search("[A-Z]{3}", name):
                        continue  # stands for many
                    with self.subTest(source=source, name=name):
                        self.assertTrue(list(TREE.glob(name)))
                    count += 1
        self.assertGreater(count, 30)


if __name__ == "__main__":
    PARSE = os.path.abspath(sys.argv.pop(2))
    FEM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
