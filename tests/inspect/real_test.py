"""A page that fem inspect made of a model, in headless Chromium: it shows the command's own numbers.

Usage: real_test.py path/to/fem"""

import sys

from microscope import TREE, PageTest, load

sys.path.insert(0, str(TREE / "tests/cli"))
from training import TrainingCase, main  # noqa: E402

TEXT = "3 times 4 is </script><script>window.hacked = 1</script>"


def setUpModule():
    PageTest.start_browser()


class Real(TrainingCase, PageTest):
    def test_a_page_shows_the_numbers_of_the_command(self):
        self.assertEqual(self.train("run", "--set", "train.steps=3").returncode, 0)
        for name in ("page.html", "page.safetensors"):
            result = self.fem("inspect", "run", "--text", TEXT, "--out", name)
            self.assertEqual(result.returncode, 0, result.stderr)
        made = load(self.folder / "page.safetensors", self.folder / "page.html")
        opens = made.about["opens_at"]
        self.show(made.page)
        self.assert_reading(made, opens["row"], opens["layer"], opens["head"])
        for row in range(0, len(made.rows), 7):
            layer, head = row % 2, row // 2 % 2
            self.go(f"#token={made.rows[row]}&layer={layer}&head={head}")
            self.assert_reading(made, row, layer, head)
        self.assertIn("</script><script>", "".join(self.texts(".token")))
        self.assertIsNone(self.evaluate("window.hacked"))


if __name__ == "__main__":
    main({})
