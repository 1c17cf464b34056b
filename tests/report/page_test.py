"""The page of fem report in headless Chromium, and what the command says. Usage: page_test.py path/to/fem

--pictures DIR keeps screenshots: light, dark, phone and a PDF of the print."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from made_up import FORECASTERS, write_forecasts, write_sweep

FEM, PICTURES = "", None
TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests/support"))
from browser import Browser, find_chromium  # noqa: E402

PHONE = 390
BOARDS = """[...document.querySelectorAll("section")].map((section) =>
  [...section.querySelectorAll("table.board tbody tr")].map((row) => ({
    label: row.cells[0].firstChild.textContent,
    ours: [...row.querySelectorAll("td .ours")].map((cell) => cell.textContent),
  })))"""


def fem(*words, **environment):
    return subprocess.run(
        [FEM, *map(str, words)], capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )


class Forecasts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def study(self, table, horizons):
        write_forecasts(self.folder / table, table, horizons)
        result = fem("report", self.folder / table, "--out", self.folder / f"{table}.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads((self.folder / f"{table}.json").read_text())["studies"][0]

    def test_the_papers_means_stand_beside_those_of_all_horizons(self):
        study = self.study("ETTh1", [96, 192, 336, 720])
        self.assertEqual(study["title"], "Forecasting ETTh1")
        board = study["board"]
        self.assertEqual((board["measure"], board["larger_is_better"]), ("test_mse", False))
        self.assertEqual([column["title"] for column in board["columns"]], ["96", "192", "336", "720", "Average"])
        published = {"FEM-SM": 0.419, "FEM-Mamba": 0.421, "iTransformer": 0.421, "DLinear": 0.413, "SM": None}
        self.assertEqual({row["title"]: row["cells"][-1]["published_value"] for row in board["rows"]}, published)
        for row in board["rows"]:
            level = FORECASTERS[row["label"]]
            for cell, horizon in zip(row["cells"], (96, 192, 336, 720), strict=False):
                self.assertAlmostEqual(cell["middle"], level + horizon / 10_000 + 0.002, places=9)
                self.assertEqual(list(cell["seeds"]), ["1", "2", "3"])
                self.assertIsNone(cell["published_value"])
            self.assertAlmostEqual(row["cells"][-1]["middle"], level + 336 / 10_000 + 0.002, places=9)
            self.assertEqual(row["cells"][-1]["text"], f"{level + 336 / 10_000 + 0.002:.3f} ± 0.001")

    def test_the_mean_of_some_horizons_is_compared_with_nothing(self):
        study = self.study("ETTm1", [96, 192])
        self.assertEqual(study["title"], "Forecasting ETTm1")
        self.assertEqual([row["cells"][-1]["published_value"] for row in study["board"]["rows"]], [None] * 5)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = find_chromium()
        if program is None:
            raise AssertionError("expected Chromium; install it: apt-get install chromium")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        write_sweep(cls.folder / "made-up")
        cls.page, numbers = cls.folder / "page.html", cls.folder / "page.json"
        runs = [cls.folder / "made-up", TREE / "experiments/argmax", TREE / "experiments/lm"]
        for out in (cls.page, numbers):
            result = fem("report", *runs, "--out", out)
            assert result.returncode == 0, result.stderr
        cls.numbers = json.loads(numbers.read_text())
        cls.browser = Browser(program)
        cls.addClassCleanup(cls.browser.close)

    def open(self, name, **how):
        self.browser.open(self.page, **how)
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual(self.browser.requests(), [])
        charts = self.browser.evaluate("document.querySelectorAll('.chart').length")
        drawn = self.browser.evaluate("document.querySelectorAll('.chart svg').length")
        hidden = self.browser.evaluate("document.querySelectorAll('details .chart').length")
        self.assertGreater(drawn, 20)
        self.assertEqual(drawn, charts - hidden)
        if PICTURES:
            self.browser.picture(PICTURES / f"{name}.png")

    def test_every_number_of_the_tables_is_that_of_the_json(self):
        self.open("light")
        boards = self.browser.evaluate(BOARDS)
        self.assertEqual(len(boards), 3)
        for study, rows in zip(self.numbers["studies"], boards, strict=True):
            for row, shown in zip(study["board"]["rows"], rows, strict=True):
                self.assertEqual(shown["label"], row["label"])
                self.assertEqual(shown["ours"], [cell["text"] or "–" for cell in row["cells"]])
        text = self.browser.evaluate("document.body.innerText")
        for study in self.numbers["studies"]:
            for agreement in study["agreements"]:
                if agreement["is_average"] or len(study["agreements"]) == 1:
                    self.assertIn(agreement["sentence"], text)
        # The README's table of language models, out of the committed records.
        self.assertIn("1.7365 ± 0.0086", text)
        self.assertIn("python experiments/lm/run.py", text)
        inside = self.browser.evaluate("JSON.parse(document.getElementById('numbers').textContent)")
        self.assertEqual(inside["studies"], self.numbers["studies"])

    def test_dark_is_dark_and_a_chart_is_seen_in_it(self):
        background = "getComputedStyle(document.documentElement).backgroundColor"
        ink = "getComputedStyle(document.querySelector('.chart .role-axis-label text')).fill"
        self.open("light")
        light = [self.browser.evaluate(background), self.browser.evaluate(ink)]
        self.open("dark", dark=True)
        dark = [self.browser.evaluate(background), self.browser.evaluate(ink)]
        brightness = lambda color: sum(map(int, color[4:-1].split(",")[:3]))  # noqa: E731
        self.assertGreater(brightness(light[0]), brightness(light[1]) + 300)
        self.assertGreater(brightness(dark[1]), brightness(dark[0]) + 300)

    def test_a_phone_scrolls_down_only(self):
        self.open("phone", width=PHONE, height=844)
        self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), PHONE)
        self.browser.evaluate("document.querySelectorAll('details').forEach((part) => part.open = true)")
        self.browser.evaluate("new Promise((done) => setTimeout(done, 500))")
        self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), PHONE)
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('.chart:empty').length"), 0)
        self.assertEqual(self.browser.complaints(), [])

    def test_names_beside_dots_do_not_cover_one_another(self):
        for width in (1280, PHONE):
            self.open("names", width=width, height=844)
            names = self.browser.evaluate(
                "[...document.querySelectorAll('.chart .mark-text.role-mark text')]"
                ".filter((name) => name.getAttribute('opacity') !== '0').map((name) => name.getBoundingClientRect())"
                ".map(({left, right, top, bottom}) => ({left, right, top, bottom}))"
            )
            self.assertGreater(len(names), 6)
            for one, other in itertools.combinations(names, 2):
                wide = min(one["right"], other["right"]) - max(one["left"], other["left"])
                high = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
                self.assertFalse(wide > 1 and high > 3, (one, other))  # a box is higher than its letters

    def test_the_feet_and_tops_of_ladders_are_shown_first(self):
        self.open("light")
        boxes = (
            "[...document.querySelector('.curves fieldset').querySelectorAll('input:checked')].map((box) => box.value)"
        )
        ends = {"softmax", "softmax+CLTG", "softmax+LTG", "gla", "gla+CLTG"}  # no gla without C was made up
        self.assertEqual(set(self.browser.evaluate(boxes)), ends | {"delta_net", "softmax+C", "softmax+CL"})

    def test_the_legend_hides_curves(self):
        self.open("light")
        lines = "document.querySelector('.curves .chart').querySelectorAll('.mark-line path').length"
        before = self.browser.evaluate(lines)
        self.browser.evaluate("document.querySelector('.curves input:checked').click()")
        self.browser.evaluate("new Promise((done) => setTimeout(done, 300))")
        self.assertEqual(self.browser.evaluate(lines), before - 3, "three seeds of one mixer")
        self.assertEqual(self.browser.complaints(), [])

    def test_figures_and_tables_can_be_read_aloud(self):
        self.open("light")
        named = "[...document.querySelectorAll('.chart')].map((one) => [one.role, (one.ariaLabel || '').length])"
        for role, length in self.browser.evaluate(named):
            self.assertIn(role, ("img", "graphics-document"))  # the latter is Vega's, once it is drawn
            self.assertGreater(length, 20)
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('th:not([scope])').length"), 0)
        levels = self.browser.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((one) => +one.tagName[1])")
        self.assertEqual(levels[0], 1)
        self.assertEqual(levels.count(1), 1)
        self.assertTrue(all(b - a <= 1 for a, b in zip(levels, levels[1:])), levels)

    def test_it_prints(self):
        self.open("light")
        file = (PICTURES or self.folder) / "print.pdf"
        self.browser.print(file)
        self.assertGreater(file.stat().st_size, 10_000)

    def test_a_page_that_complains_or_asks_is_noticed(self):
        """The checks above can fail."""
        page = self.folder / "bad.html"
        page.write_text("<html data-drawn=1><script>console.error('no')</script><img src=http://127.0.0.1:1/a.png>")
        self.browser.open(page)
        self.browser.evaluate("new Promise((done) => setTimeout(done, 300))")
        self.assertIn("['no']", self.browser.complaints())
        self.assertEqual(self.browser.requests(), ["http://127.0.0.1:1/a.png"])


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def assert_refused(self, result, sentence):
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn(sentence, result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)

    def test_without_python_or_its_package_a_sentence_says_what_to_do(self):
        page = self.folder / "page.html"
        page.write_text("mine")
        words = ("report", TREE / "experiments/lm", "--out", page)
        self.assert_refused(fem(*words, FEM_PYTHON="/nowhere/python"), "/nowhere/python cannot be started")
        bare = [sys.executable, "-S", "-c", "import vl_convert"]
        self.assertNotEqual(subprocess.run(bare, capture_output=True).returncode, 0)
        python = self.folder / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        python.chmod(0o755)
        self.assert_refused(fem(*words, FEM_PYTHON=str(python)), "-m pip install vl-convert-python")
        self.assertEqual(page.read_text(), "mine")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["page.html", "python"])

    def test_what_cannot_be_reported_is_a_sentence(self):
        out = self.folder / "page.html"
        self.assert_refused(fem("report", self.folder, "--out", out), "has no results")
        self.assert_refused(fem("report", self.folder / "none", "--out", out), "is no folder")
        self.assert_refused(fem("report", TREE / "experiments/lm", "--out", self.folder / "page.txt"), "NAME.html")
        self.assertFalse(out.exists())

    def test_runs_of_fem_train_make_one_table_with_curves(self):
        runs = []
        for seed in (1, 2):
            runs.append(self.folder / f"run{seed}")
            words = ["--set", "train.steps=4", "--set", "train.validate_every=2", "--set", f"train.seed={seed}"]
            result = fem("train", "argmax/smoke", "--out", runs[-1], "--plain", "--threads", 1, *words)
            self.assertEqual(result.returncode, 0, result.stderr)
        numbers = self.folder / "numbers.json"
        self.assertEqual(fem("report", *runs, "--out", numbers).returncode, 0)
        (study,) = json.loads(numbers.read_text())["studies"]
        recorded = [json.loads((run / "result.json").read_text())["measures"]["accuracy"] for run in runs]
        self.assertEqual([row["cells"][0]["middle"] for row in study["board"]["rows"]], recorded)
        self.assertEqual([row["label"] for row in study["board"]["rows"]], ["run1", "run2"])
        self.assertEqual([line["row"] for line in study["curves"]["accuracy"]], ["run1", "run2"])
        self.assertEqual(study["curves"]["accuracy"][0]["points"][-1][0], 4)
        self.assertIn(f"fem train {runs[0]} --out", study["command"])


class Committed(unittest.TestCase):
    def test_docs_results_is_what_its_command_makes(self):
        page = TREE / "docs/results.html"
        text = page.read_text()
        start = text.index('id="numbers">') + len('id="numbers">')
        committed = json.loads(text[start : text.index("</script>", start)].replace("<\\/", "</"))
        words = committed["command"].split()
        self.assertEqual((words[:2], words[-2:]), (["fem", "report"], ["--out", "docs/results.html"]))
        with tempfile.TemporaryDirectory() as folder:
            again = Path(folder) / "again.json"
            result = subprocess.run([FEM, *words[1:-1], again], cwd=TREE, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(
                json.loads(again.read_text())["studies"], committed["studies"], "make it again by its command"
            )

    def picture(self, numbers, *words):
        """Its width, or why there is none."""
        python = Path(os.environ.get("VIRTUAL_ENV", TREE / ".venv")) / "bin" / "python"
        out = Path(numbers).with_suffix(".png")
        words = [python, TREE / "scripts/report_picture.py", numbers, *words, "--out", out]
        made = subprocess.run(words, capture_output=True, text=True)
        if made.returncode:
            return made.stderr
        self.assertEqual(out.read_bytes()[1:4], b"PNG")
        return int.from_bytes(out.read_bytes()[16:20], "big")

    def test_a_picture_has_its_charts_side_by_side(self):
        with tempfile.TemporaryDirectory() as folder:
            numbers = Path(folder) / "numbers.json"
            self.assertEqual(fem("report", TREE / "experiments/energy/bridge", "--out", numbers).returncode, 0)
            two, three = (self.picture(numbers, "--measures", what) for what in ("share,drop", "share,drop,cosine"))
            self.assertGreater(three, 1.4 * two)
            self.assertIn("got Average", self.picture(numbers, "--effects", "Average"))
            self.assertIn("are for the curves", self.picture(numbers, "--effects", "Average", "--rows", "attention"))
            self.assertEqual(fem("report", TREE / "experiments/mad", "--out", numbers).returncode, 0)
            two, three = (
                self.picture(numbers, "--effects", what) for what in ("Average,Compress", "Average,Compress,Memorize")
            )
            self.assertGreater(three, 1.4 * two)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if "--pictures" in arguments:
        place = arguments.index("--pictures")
        PICTURES = Path(arguments[place + 1])
        PICTURES.mkdir(parents=True, exist_ok=True)
        del arguments[place : place + 2]
    FEM = str(Path(arguments[0]).resolve())
    unittest.main(argv=[sys.argv[0], *arguments[1:]])
