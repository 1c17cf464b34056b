"""fem inspect from outside, of text and of argmax. Usage: inspect_test.py path/to/fem"""

import json

from training import TrainingCase, main

HOSTILE = "</script><script>window.hacked = 1</script>"


class Inspect(TrainingCase):
    def test_text_becomes_a_page_and_tables(self):
        self.assertEqual(self.train("run", "--set", "train.steps=2").returncode, 0)
        name = f"{HOSTILE.replace('/', '')}.html"
        page = self.fem("inspect", "run", "--text", HOSTILE, "--out", f"pages/{name}")
        self.assertEqual(page.returncode, 0, page.stderr)
        written = (self.folder / "pages" / name).read_text()
        self.assertNotIn("window.hacked", written)
        self.assertEqual([path.name for path in (self.folder / "pages").iterdir()], [name])

        summary = self.fem("inspect", "run", "run", "--file", "texts/3.txt", "--summary", "--length", 20, "--rows", 2)
        self.assertEqual(summary.returncode, 0, summary.stderr)
        self.assertLessEqual(max(map(len, summary.stdout.splitlines())), 80)
        first, second = (line.split()[2:] for line in summary.stdout.splitlines()[2:4])
        self.assertEqual(first, second, "the same model twice")

    def test_argmax_makes_its_own_examples(self):
        self.assertEqual(self.fem("train", "argmax.toml", "--out", "run").returncode, 0)
        ablated = self.fem("inspect", "run", "--ablate", "--rows", 8, "--json", "gates.jsonl")
        self.assertEqual(ablated.returncode, 0, ablated.stderr)
        losses = {
            one["what"]: one["loss"] for one in json.loads((self.folder / "gates.jsonl").read_text())["ablations"]
        }
        self.assertLess(losses["as trained"], losses["all layers, lambda = 0"], "the mean finds no maximum")

    def test_what_cannot_be_shown_is_a_sentence(self):
        self.assertEqual(self.train("run", "--set", "train.steps=2").returncode, 0)
        for words, part in (
            ((), "expected something to show the model: --text"),
            (("--text", "a", "--out", "page.txt"), "expected --out to be a page, NAME.html, or its numbers"),
            (("--text", "a", "--summary", "--ablate"), "expected --summary or --ablate, got both"),
            (("--text", "a", "--json", "a.jsonl"), "--json is of --summary and --ablate"),
            (("--text", ""), "expected a text of at least one token"),
            (("run", "--text", "a"), "a page shows one model"),
            (("--csv", "none.csv"), "run"),
        ):
            self.assert_error(self.fem("inspect", "run", *words), part)
        self.assertEqual(list(self.folder.glob("*.html")) + list(self.folder.glob("*.jsonl")), [])


if __name__ == "__main__":
    main({})
