"""What tests of the page of fem inspect have in common: made-up pages, a browser, what must be shown."""

import json
import math
import struct
import subprocess
import sys
import tempfile
import unittest
from dataclasses import dataclass
from pathlib import Path

import made_up
import numpy as np

TREE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TREE / "tests/support"))
from browser import Browser, find_chromium  # noqa: E402

GUTTER, MARGIN, PRIOR, GAP, CHANNEL, LAYER = 58, 16, 26, 10, 20, 22  # pixels of a picture and of its rows
# The table's columns after the chosen token, and the tensors of those that show one as it is.
COLUMNS = ["weight", "beta", "kl", "gain", "lambda", "gate", "most", "mean", "read", "energy", "back", "entropy", "cap"]
TENSORS = {"beta": "hidden_beta", "kl": "kl_qp", "gate": "outer_gate", "read": "gated", "energy": "free_energy",
           "back": "kl_pq", "lambda": "lambda", "mean": "mean", "entropy": "entropy"}  # fmt: skip

# What the pictures show, of which a page's own canvas would warn if it were read twice.
PIXELS = """((canvas) => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height);
  const pen = copy.getContext("2d", {willReadFrequently: true});
  pen.drawImage(canvas, 0, 0);
  return pen.getImageData(0, 0, canvas.width, canvas.height);
})"""


def script(numbers: Path, out: Path) -> subprocess.CompletedProcess:
    words = [sys.executable, TREE / "scripts/inspect_page.py", numbers, "--out", out]
    return subprocess.run(words, capture_output=True, text=True)


@dataclass
class Made:
    """A page, and the numbers of its file: what is told, and tensors in single precision."""

    page: Path
    about: dict
    of: dict[str, np.ndarray]

    @property
    def rows(self) -> list[int]:
        return self.of["rows"].tolist()


def load(numbers: Path, page: Path) -> Made:
    content = numbers.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    about = json.loads(header.pop("__metadata__")["fem_inspect"])
    of = {
        name: np.frombuffer(data[slice(*one["data_offsets"])], made_up.DTYPES[one["dtype"]]).reshape(one["shape"])
        for name, one in header.items()
    }
    return Made(page, about, of)


def make(folder: Path, kind: str) -> Made:
    numbers, page = folder / f"{kind}.safetensors", folder / f"{kind}.html"
    made_up.save(numbers, *getattr(made_up, kind)())
    made = script(numbers, page)
    assert made.returncode == 0, made.stderr
    return load(numbers, page)


class PageTest(unittest.TestCase):
    pictures = None

    @classmethod
    def start_browser(cls) -> None:
        """One browser for all tests of a module."""
        program = find_chromium()
        if program is None:
            raise AssertionError("expected Chromium; install it: apt-get install chromium")
        folder = tempfile.TemporaryDirectory()
        unittest.addModuleCleanup(folder.cleanup)
        cls.folder, cls.browser, cls.made = Path(folder.name), Browser(program), {}
        unittest.addModuleCleanup(cls.browser.close)

    def page(self, kind: str) -> Made:
        if kind not in self.made:
            self.made[kind] = make(self.folder, kind)
        return self.made[kind]

    def open(self, kind: str, picture: str = "", **how) -> Made:
        made = self.page(kind)
        self.show(made.page, **how)
        self.keep(picture)
        return made

    def show(self, page: Path, **how) -> None:
        self.browser.call("Page.navigate", url="about:blank")  # from another view of the page it would not load again
        self.browser.open(page, **how)
        self.addCleanup(self.assert_quiet)

    def keep(self, picture: str) -> None:
        if self.pictures and picture:
            self.browser.picture(self.pictures / f"{picture}.png")

    def assert_quiet(self) -> None:
        self.assertEqual(self.browser.complaints(), [])
        self.assertEqual(self.browser.requests(), [])

    def evaluate(self, expression: str):
        return self.browser.evaluate(expression)

    def after(self, event: str, act: str) -> None:
        wait = f"addEventListener('{event}', () => setTimeout(done), {{once: true}})"
        self.evaluate(f"new Promise((done) => {{ {wait}; {act}; }})")

    def go(self, address: str) -> None:
        """As a link or the address bar would."""
        self.after("hashchange", f"location.hash = {json.dumps(address)}")

    def text(self, name: str) -> str:
        return self.evaluate(f"document.getElementById({json.dumps(name)}).textContent")

    def each(self, selector: str, of_one: str) -> list:
        return self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => {of_one})")

    def texts(self, selector: str) -> list[str]:
        return self.each(selector, "one.textContent")

    def table(self, name: str) -> list[list[str]]:
        """The texts of all cells but the head's."""
        return self.each(f"#{name} tbody tr", "[...one.cells].map((cell) => cell.textContent)")

    def value(self, name: str) -> str:
        return self.evaluate(f"document.getElementById({json.dumps(name)}).value")

    def chosen(self) -> int:
        (row,) = self.each("[role=radio][aria-checked=true]", "+one.dataset.row")
        return row

    def channels(self) -> list[int]:
        return self.each("#channels tbody tr", "+one.dataset.channel")

    def choose(self, row: int) -> None:
        self.browser.point(f"[data-row='{row}']", click=True)

    def point(self, canvas: str, token: int, tokens: int, y: float, click: bool = False) -> None:
        """The mouse goes to a token in a picture that is as wide as the page."""
        width, height = self.evaluate(f"(({{clientWidth, clientHeight}}) => [clientWidth, clientHeight])({canvas})")
        x = GUTTER + math.floor((token + 0.5) * (width - GUTTER - MARGIN) / tokens) + 0.5
        self.browser.point(f"#{canvas}", x / width, y / height, click)

    def assert_shows(self, shown: str, value: float) -> None:
        """As many digits as are shown are right, and what is not 0 is not shown as 0."""
        if math.isnan(value):
            return self.assertEqual(shown, "–")
        if shown.endswith(" %"):
            shown, value = shown[:-2], 100 * value
        number = shown.replace("−", "-").replace(",", "")
        mantissa, _, exponent = number.partition("e")
        last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        self.assertLessEqual(abs(float(number) - value), 0.5000001 * last, f"{value} is shown as {shown}")

    def assert_reading(self, made: Made, row: int, layer: int, head: int) -> None:
        """All that is told of a token is what the file has; every column counts."""
        place, of, labels = (layer, row, head), made.of, made.about["tokens"]
        token, choice, priors = made.rows[row], of["choice"][place], of["prior_choice"][place]
        self.assertEqual([self.chosen(), self.value("layer"), self.value("head")], [row, str(layer), str(head)])
        self.assertRegex(self.text("reading-title"), rf"^Token {token:,} “.*” in layer {layer}, head {head}$")
        rank, disagree, distinct, entropy, *_ = self.texts("#facts dd:not(.soft)")
        self.assert_shows(rank, of["rank"][place])
        self.assertEqual(disagree, f"{(choice != priors).sum()} of {len(choice)}")
        self.assertEqual(int(distinct), len(set(choice.tolist())))
        self.assert_shows(entropy.removesuffix(" nats"), of["prior_entropy"][place])
        self.assertEqual(sorted(self.channels()), list(range(len(choice))))
        for channel, chose, *figures in self.table("channels"):
            j = int(channel)
            values = {name: of[tensor][place][j] for name, tensor in TENSORS.items()}
            values |= {"weight": of["top_weight"][place][j, 0], "most": of["beta"][layer, head, j]}
            values |= {"cap": of["capped"][layer, head, j]}
            values |= {"gain": float(of["free_energy"][place][j]) - float(of["mean"][place][j])}
            for name, shown in zip(COLUMNS, figures, strict=True):
                self.assert_shows(shown, float(values[name]))
            self.assertIn(f"{choice[j]:,} ", chose)
            self.assertIn(labels[choice[j]].strip()[:10], chose)
            self.assertEqual("not the prior's" in chose, bool(choice[j] != priors[j]))


def brightness(color: str) -> int:
    return sum(map(int, color.removeprefix("rgb(").rstrip(")").replace(",", " ").split()[:3]))


def luminance(color: str) -> float:
    """Relative, as in WCAG 2."""
    parts = [int(part) / 255 for part in color.removeprefix("rgb(").rstrip(")").replace(",", " ").split()[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))


def run() -> None:
    arguments = sys.argv[1:]
    if "--pictures" in arguments:
        place = arguments.index("--pictures")
        PageTest.pictures = Path(arguments[place + 1])
        PageTest.pictures.mkdir(parents=True, exist_ok=True)
        del arguments[place : place + 2]
    unittest.main(argv=[sys.argv[0], *arguments])
