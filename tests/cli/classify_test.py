"""fem classify from outside: pictures in, classes out. Usage: classify_test.py path/to/fem"""

import json
import random
import struct
import zlib

from training import TrainingCase, main

SMALL = ("model.n_embd=16", "model.n_head=2", "model.n_layer=1", "model.mlp_width=32", "model.mixer.conv_hidden=4")
SETS = [word for change in (*SMALL, "train.learning_rate=1e-2", "train.batch=16") for word in ("--set", change)]


def png(width, height, pixels, kind=0):
    """kind 0: grey; 2: RGB; 6: RGB and transparency."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    step = len(pixels) // max(height, 1)
    rows = b"".join(b"\0" + bytes(pixels[row * step : (row + 1) * step]) for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def bar(name, numbers):
    """8 x 8: a bar that stands or lies, and noise."""
    place = numbers.randrange(1, 7)
    bright = (lambda y, x: x == place) if name == "standing" else (lambda y, x: y == place)
    return [numbers.randrange(60) + 180 * bright(y, x) for y in range(8) for x in range(8)]


class Classify(TrainingCase):
    def setUp(self):
        super().setUp()
        numbers = random.Random(0)
        for part, count in (("train", 40), ("test", 12)):
            for name in ("lying", "standing"):
                own = self.folder / "bars" / part / name
                own.mkdir(parents=True)
                for i in range(count):
                    (own / f"{i}.png").write_bytes(png(8, 8, bar(name, numbers)))

    def train(self, out, *words):
        return self.fem("classify", "train", "--data", "bars", "--out", out, *SETS, *words)

    def test_train_eval_and_predict(self):
        trained = self.train("run", "--epochs", 12)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("2 classes, 8 x 8 pixels in grey, 72 training, 8 validation and 24 test pictures", trained.stdout)
        self.assertEqual((self.folder / "run/confusion.png").read_bytes()[:4], b"\x89PNG")
        accuracy = self.result("run")["measures"]["test_accuracy"]
        self.assertGreaterEqual(accuracy, 0.9)
        self.assertIn(f"accuracy {100 * accuracy:.2f} %", trained.stdout)
        # eval gives the figures that training ended with, and all confusions.
        measured = self.fem("classify", "eval", "run", "--json", "eval.jsonl")
        self.assertEqual(measured.returncode, 0, measured.stderr)
        line = json.loads((self.folder / "eval.jsonl").read_text())
        self.assertAlmostEqual(line["accuracy"], accuracy, places=9)
        self.assertEqual([sum(row) for row in line["confusion"]], [12, 12])
        self.assertIn(f"accuracy {100 * accuracy:.2f} %", measured.stdout)
        best = (self.folder / "run/best").resolve()
        elsewhere = self.fem("classify", "eval", best, "--data", "bars", "--json", "eval.jsonl")
        self.assertEqual(elsewhere.returncode, 0, elsewhere.stderr)
        lines = [json.loads(line) for line in (self.folder / "eval.jsonl").read_text().splitlines()]
        self.assertEqual(lines[0]["confusion"], lines[1]["confusion"])
        # What is said of a picture does not depend on those beside it.
        files = [f"bars/test/standing/{i}.png" for i in range(3)]
        together = self.fem("classify", "predict", "run", "bars/test/lying", *files, "--plot", "classes.png")
        self.assertEqual(together.returncode, 0, together.stderr)
        self.assertEqual((self.folder / "classes.png").read_bytes()[:4], b"\x89PNG")
        rows = together.stdout.splitlines()
        self.assertEqual(rows[0], "file,class 1,probability 1,class 2,probability 2")
        alone = self.fem("classify", "predict", best, files[1], "--out", "one.csv")
        self.assertEqual(alone.returncode, 0, alone.stderr)
        self.assertIn((self.folder / "one.csv").read_text().splitlines()[1], rows)
        again = self.fem("classify", "predict", best, files[1], "--out", "one.csv")
        self.assert_error(again, "one.csv exists; choose another name")
        # A colour picture of another size is told to be one, and taken.
        (self.folder / "large.png").write_bytes(png(32, 16, [90] * 32 * 16 * 3, 2))
        large = self.fem("classify", "predict", "run", "large.png")
        self.assertIn("large.png: 32 x 16 pixels in colour, taken as 8 x 8 pixels in grey", large.stderr)
        self.assertEqual(len(large.stdout.splitlines()), 2)

    def test_inspect_looks_inside(self):
        self.train("run", "--epochs", 1, "--plain")
        one = self.folder / "bars/test/lying/0.png"
        page = self.fem("inspect", "run", "--image", one, "--out", "one.html")
        self.assertEqual(page.returncode, 0, page.stderr)
        self.assertTrue((self.folder / "one.html").read_text().startswith("<!doctype html>"))
        summary = self.fem(
            "inspect", "run", "--image", "bars", "--summary", "--fresh", "--rows", 3, "--json", "s.jsonl"
        )
        self.assertEqual(summary.returncode, 0, summary.stderr)
        self.assertLessEqual(max(map(len, summary.stdout.splitlines())), 80)
        fresh, trained = map(json.loads, (self.folder / "s.jsonl").read_text().splitlines())
        self.assertEqual([fresh["fresh"], trained["fresh"]], [True, False])
        self.assertNotEqual(fresh["layers"], trained["layers"])
        self.assert_error(self.fem("inspect", "run"), "expected something to show the model")
        self.assert_error(self.fem("inspect", "run", "--image", one, "--ablate"), "a picture alone has no class")

    def test_a_killed_run_goes_on_as_if_it_had_not_been(self):
        changes = ("train.checkpoint_every=1", "data.mixup=0.4", "data.flip=true", "model.dropout=0.1")
        sets = [word for change in changes for word in ("--set", change)]
        self.assert_killed_and_resumed("classify", ("--data", "bars", "--epochs", 12, "--plain", *SETS, *sets))

    def test_idx_files(self):
        folder = self.folder / "idx"
        folder.mkdir()
        numbers = random.Random(1)
        for part, count in (("train", 40), ("t10k", 10)):
            names = ["lying", "standing"] * (count // 2)
            pixels = bytes(value for name in names for value in bar(name, numbers))
            head = struct.pack(">IIII", 0x803, count, 8, 8)
            (folder / f"{part}-images-idx3-ubyte").write_bytes(head + pixels)
            labels = struct.pack(">II", 0x801, count) + bytes([0, 1] * (count // 2))
            (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)
        words = (
            "--data",
            "idx",
            "--out",
            "run",
            "--epochs",
            1,
            "--plain",
            "--set",
            'data.classes=["lying","standing"]',
        )
        trained = self.fem("classify", "train", *words, *SETS)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("36 training, 4 validation and 10 test pictures", trained.stdout)

    def test_bad_pictures_are_refused_and_nothing_is_written(self):
        good = png(8, 8, [100] * 64)
        pictures = {
            "is damaged, or its end is missing": good[:-30],
            "is neither a PNG nor a JPEG file": b"not a picture",
            "is empty": b"",
            "has 8 x 8 pixels in colour, but": png(8, 8, [100] * 192, 2),
            "is transparent in places": png(8, 8, [100] * 256, 6),
            "is 30,000 x 30,000 pixels, expected at most": png(30000, 30000, []),
            "is damaged": png(0, 8, []),
            "scale all with --size N": png(9, 8, [100] * 72),
        }
        bad = self.folder / "bars/train/standing/zz.png"
        self.assertEqual(self.train("run", "--epochs", 1, "--plain").returncode, 0)
        for sentence, content in pictures.items():
            bad.write_bytes(content)
            self.assert_error(self.train("other", "--epochs", 1), sentence, "zz.png")
            self.assertFalse((self.folder / "other").exists(), sentence)
            if "size" in sentence or "colour" in sentence:
                continue
            predicted = self.fem("classify", "predict", "run", bad, "--out", "classes.csv", "--plot", "classes.png")
            self.assert_error(predicted, sentence, "zz.png")
            self.assertFalse((self.folder / "classes.csv").exists() or (self.folder / "classes.png").exists())
        self.assert_error(self.fem("classify", "train", "--out", "other"), "name it with --data DIR")
        self.assert_error(self.fem("classify", "train", "--out", "other", "--data", "none"), "does not exist")
        self.assert_error(self.fem("classify", "predict", "nowhere", bad), "nowhere")
        self.assertFalse((self.folder / "other").exists())


if __name__ == "__main__":
    main({})
