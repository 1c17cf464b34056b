"""The page of fem inspect for everybody, in headless Chromium: keyboard, ears, dark, phone, paper, and hostile text.

--pictures DIR keeps screenshots and a PDF."""

import math
import struct
import tempfile
import unittest
from pathlib import Path

import made_up
from microscope import PIXELS, PageTest, brightness, luminance, run, script

PHONE = 390
PAPER = 718  # A4 within its margins
BACKGROUND = "getComputedStyle(document.documentElement).backgroundColor"
# The mean of all that is drawn: red, green and blue together.
DRAWN = f"""(({{data}}) => {{
  let [sum, count] = [0, 0];
  for (let at = 0; at < data.length; at += 4)
    if (data[at + 3] === 255) [sum, count] = [sum + data[at] + data[at + 1] + data[at + 2], count + 1];
  return sum / count;
}})({PIXELS}(reading))"""


def setUpModule():
    PageTest.start_browser()


class Everybody(PageTest):
    def test_tab_reaches_every_control(self):
        self.open("text")
        self.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
        controls = "document.querySelectorAll('a, button, input, select, summary, canvas, [tabindex=\"0\"]')"
        seen = f"[...{controls}].filter((one) => one.checkVisibility())"
        count = self.evaluate(f"{seen}.length")
        self.assertGreater(count, 25)
        self.evaluate("window.reached = new Set()")
        for _ in range(count + 2):
            self.browser.press("Tab")
            look = (
                "reached.add(document.activeElement), parseFloat(getComputedStyle(document.activeElement).outlineWidth)"
            )
            outline = self.evaluate(look)
            self.assertGreaterEqual(outline, 2, "what has the focus is seen")
        missed = self.evaluate(f"{seen}.filter((one) => !reached.has(one)).map((one) => one.outerHTML.slice(0, 80))")
        self.assertEqual(missed, [])

    def test_pictures_tables_and_headings_can_be_read_aloud(self):
        made = self.open("text")
        before = self.text("summary")
        self.choose(0 if made.about["opens_at"]["row"] else 1)
        self.assertNotEqual(self.text("summary"), before)
        self.assertEqual(self.each("#summary, #said", "one.ariaLive"), ["polite", "polite"])
        labels = self.each("canvas, [role=img]", "one.ariaLabel || ''")
        self.assertEqual(len(labels), 3)
        self.assertTrue(all(len(label) > 40 for label in labels), labels)
        self.assertTrue(all(self.each("[role=radio]", "one.ariaLabel.startsWith('token ')")))
        self.assertEqual(self.texts("th:not([scope])"), [])
        levels = self.each("h1, h2, h3", "+one.tagName[1]")
        self.assertEqual(levels.count(1), 1)
        self.assertTrue(all(b - a <= 1 for a, b in zip(levels, levels[1:])), levels)

    def test_labels_can_be_read_on_every_colour(self):
        """A contrast of 4.5 to 1 (WCAG 2, level AA)."""
        for dark in (False, True):
            self.open("text", dark=dark)
            for pair in self.each(".token", "[getComputedStyle(one).color, getComputedStyle(one).backgroundColor]"):
                low, high = sorted(map(luminance, pair))
                self.assertGreater((high + 0.05) / (low + 0.05), 4.5, pair)

    def light(self) -> list[float]:
        return [brightness(self.evaluate(BACKGROUND)), self.evaluate(DRAWN)]

    def test_dark_is_dark_and_pictures_follow(self):
        self.open("text")
        light = self.light()
        self.open("text", "dark", dark=True)
        dark = self.light()
        self.assertGreater(light[0], dark[0] + 300)
        self.assertGreater(light[1], dark[1] + 300)
        for media in ({"name": "prefers-color-scheme", "value": "light"},), ():  # changed while the page is open; paper
            self.browser.call("Emulation.setEmulatedMedia", media="" if media else "print", features=list(media))
            self.assertEqual(self.light()[0], light[0])
            self.assertAlmostEqual(self.light()[1], light[1], delta=40)

    def test_a_phone_scrolls_down_only(self):
        for kind in ("text", "image", "series", "hostile"):
            self.open(kind, f"phone-{kind}", width=PHONE, height=844)
            self.go("#all=1")
            self.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
            self.assertLessEqual(self.evaluate("document.documentElement.scrollWidth"), PHONE, kind)

    def test_paper_cuts_nothing_off(self):
        for kind in ("text", "series", "image"):
            self.open(kind, width=PAPER, media="print")
            self.assertLessEqual(self.evaluate("document.documentElement.scrollWidth"), PAPER, kind)

    def test_it_prints(self):
        self.open("text", dark=True)
        file = (self.pictures or self.folder) / "print.pdf"
        self.browser.print(file)
        self.assertGreater(file.stat().st_size, 50_000)

    def test_patches_lie_over_the_picture(self):
        made = self.open("image", "image")
        self.assertEqual(self.each(".patches img", "one.naturalWidth"), [28])
        columns, rows = zip(*self.each(".patches .token", "[one.offsetLeft, one.offsetTop]"))
        self.assertEqual([len(columns), len(set(columns)), len(set(rows))], [49, 7, 7])
        self.choose(9)
        self.browser.press("ArrowDown")
        self.assertEqual(self.chosen(), 16, "the patch below")
        self.assertIn(made.about["tokens"][16], self.text("reading-title"))

    def test_a_series_is_a_row_of_segments(self):
        made = self.open("series", "series")
        self.assertEqual(self.texts(".series .token"), made.about["tokens"])
        self.assertEqual(len(set(self.each(".series .token", "one.offsetTop"))), 1)


class Hostile(PageTest):
    def test_labels_stay_text(self):
        made = self.open("hostile", "hostile")
        shown = self.texts(".token")
        signs = {"\u2028": "⏎", "\0": "U+0000", " ": "␣", "\n": "⏎", "\u202e": "U+202E", "\t": "⇥", "": "∅"}
        self.assertEqual(shown, [signs.get(label, label) for label in made.about["tokens"]])
        self.assertEqual([self.text("title"), self.text("command")], [made.about["title"], made.about["command"]])
        self.assertEqual(self.texts("#notes li"), made.about["notes"])
        for row in range(len(shown)):
            self.choose(row)
            self.assertIn(shown[row][:30], self.text("tip"))
        self.assertIsNone(self.evaluate("window.hacked"))
        counts = "[document.scripts.length, document.images.length, document.querySelectorAll('iframe').length]"
        self.assertEqual(self.evaluate(counts), [2, 0, 0])
        text = made.page.read_text()
        for label in made.about["tokens"][:2]:
            self.assertNotIn(label, text)

    def test_the_policy_lets_no_other_script_run(self):
        self.open("hostile")
        act = "window.hacked = 1"
        self.evaluate(
            f"document.body.append(Object.assign(document.createElement('script'), {{textContent: '{act}'}}))"
        )
        self.evaluate(f"document.body.insertAdjacentHTML('beforeend', '<b onclick=\"{act}\"></b>')")
        self.evaluate("document.querySelector('b').click()")
        self.assertIsNone(self.evaluate("window.hacked"))
        self.assertEqual(sum("Content Security Policy" in one for one in self.browser.complaints()), 2)
        self.browser.events.clear()  # these were asked for


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.bad = self.folder / "bad.safetensors"

    def assert_refused(self, sentence: str) -> None:
        result = script(self.bad, self.folder / "page.html")
        self.assertEqual(result.returncode, 1, sentence)
        self.assertIn(sentence, result.stderr)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["bad.safetensors"])

    def test_another_file_is_a_sentence(self):
        made_up.save(self.bad, *made_up.series())
        whole = self.bad.read_bytes()
        foreign = struct.pack("<Q", 2) + b"{}"
        for content, sentence in ((b"", "no safetensors file"), (b"\xff" * 64, "no safetensors file"),
                                  (whole[:200], "no safetensors file"), (whole[:-8], "cut off"),
                                  (foreign, "no fem_inspect")):  # fmt: skip
            self.bad.write_bytes(content)
            self.assert_refused(sentence)

    def test_numbers_that_do_not_fit_are_a_sentence(self):
        about, tensors = made_up.series()
        for words, others, sentence in (
            ({}, {"prior": tensors["prior"][:, :, :, :5]}, "others have T = 5"),
            ({}, {"beta": tensors["beta"][:2]}, "L = 3"),
            ({}, {"choice": tensors["choice"].astype(float)}, "choice has type F32"),
            ({"opens_at": {"row": 99, "layer": 0, "head": 0}}, {}, "opens_at has row 99"),
            ({}, {"picture": tensors["rows"]}, "the picture has type I32"),
            ({"layers": [{"rank": math.nan}] * 3}, {}, "not finite"),
        ):
            made_up.save(self.bad, {**about, **words}, {**tensors, **others})
            self.assert_refused(sentence)


if __name__ == "__main__":
    run()
