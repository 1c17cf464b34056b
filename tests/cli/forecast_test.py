"""fem forecast from outside: a table in, rows to come out. Usage: forecast_test.py path/to/fem"""

import json
import math
from datetime import datetime, timedelta

from training import TrainingCase, main

SMALL = ("model.n_embd=16", "model.n_head=2", "model.n_layer=1", "model.mixer.conv_hidden=4")
SETS = [word for change in SMALL for word in ("--set", change)]


def table(rows=240, start=datetime(2024, 1, 1)):
    lines = ["time,load,sun"]
    for hour in range(rows):
        load, sun = 50 + 9 * math.sin(hour * math.pi / 12) + hour % 7, max(0.0, math.sin((hour - 6) * math.pi / 12))
        lines.append(f"{start + timedelta(hours=hour):%Y-%m-%d %H:%M},{load:.2f},{sun:.3f}")
    return "\n".join(lines) + "\n"


class Forecast(TrainingCase):
    def setUp(self):
        super().setUp()
        (self.folder / "table.csv").write_text(table())

    def train(self, out, *words):
        sizes = ("--horizon", 12, "--input", 48, "--epochs", 2)
        return self.fem("forecast", "train", "--csv", "table.csv", *sizes, "--out", out, *SETS, *words)

    def test_train_eval_and_predict(self):
        trained = self.train("run")
        self.assertEqual(trained.returncode, 0, trained.stderr)
        for name in ("model", "last value", "seasonal", "ridge", "load", "sun"):
            self.assertIn(f"\n{name} ", trained.stdout)
        self.assertIn("Picture: run/forecast.png", trained.stdout)
        self.assertEqual((self.folder / "run/forecast.png").read_bytes()[:4], b"\x89PNG")
        rows = (self.folder / "run/forecast.csv").read_text().splitlines()
        self.assertEqual([rows[0], rows[1][:16], rows[12][:16], len(rows)],
                         ["time,load,sun", "2024-01-11 00:00", "2024-01-11 11:00", 13])  # fmt: skip
        # The same rows from the run and from the model folder with the table beside it.
        self.assertEqual(self.fem("forecast", "predict", "run").stdout.splitlines(), rows)
        best = (self.folder / "run/best").resolve()
        predicted = self.fem("forecast", "predict", best, "--csv", "table.csv", "--out", "next.csv")
        self.assertEqual(predicted.returncode, 0, predicted.stderr)
        self.assertEqual((self.folder / "next.csv").read_text().splitlines(), rows)
        again = self.fem("forecast", "predict", best, "--csv", "table.csv", "--out", "next.csv")
        self.assert_error(again, "next.csv exists; choose another name")
        # eval gives the figures that training ended with, and its own for every lead time and target.
        measured = self.fem("forecast", "eval", "run", "--json", "errors.jsonl")
        line = json.loads((self.folder / "errors.jsonl").read_text())
        self.assertEqual([score["forecast"] for score in line["scores"]], ["model", "last value", "seasonal", "ridge"])
        self.assertAlmostEqual(line["scores"][0]["mse"], self.result("run")["measures"]["test_mse"], places=6)
        self.assertEqual([len(line["scores"][0][name]) for name in ("mse_by_lead", "mse_by_target")], [12, 2])
        self.assertIn(f"{line['scores'][0]['mse']:.4f}", measured.stdout)
        self.assertIn(f"{line['scores'][0]['mse']:.4f}", trained.stdout)

    def test_inspect_looks_inside(self):
        self.train("run", "--plain")
        page = self.fem("inspect", "run", "--csv", "table.csv", "--target", "sun", "--out", "sun.html")
        self.assertEqual(page.returncode, 0, page.stderr)
        self.assertIn("Page: sun.html", page.stdout)
        self.assertTrue((self.folder / "sun.html").read_text().startswith("<!doctype html>"))
        self.assertEqual(list(self.folder.glob("*.tmp.*")), [])
        unknown = self.fem("inspect", "run", "--csv", "table.csv", "--target", "moon")
        self.assert_error(unknown, "expected --target to be one that the model forecasts, got 'moon'")
        ablated = self.fem("inspect", "run", "--csv", "table.csv", "--ablate", "--rows", 2, "--json", "gates.jsonl")
        self.assertEqual(ablated.returncode, 0, ablated.stderr)
        line = json.loads((self.folder / "gates.jsonl").read_text())
        self.assertEqual(line["ablations"][0]["what"], "as trained")
        self.assertGreater(len({one["loss"] for one in line["ablations"]}), 2)

    def test_one_target_of_a_table_that_is_not_tidy(self):
        lines = table().replace(",", ";").splitlines()
        lines[0] += ";note"
        lines[1:] = [line + ";ok" for line in lines[1:]]
        lines[40] = lines[40].split(";")[0] + ";;0.5;ok"
        lines[60] = lines[60].split(";")[0] + ";-9999;0.5;ok"
        del lines[100:103]
        (self.folder / "table.csv").write_text("\n".join(lines) + "\n")
        trained = self.train("run", "--target", "load", "--plain")
        self.assertEqual(trained.returncode, 0, trained.stderr)
        for note in (
            "they hold text: note",
            "1 of 236 rows are not 1 hour after",
            "1 values of -9999 stand for missing",
            "column 'load': 2 missing values",
        ):
            self.assertIn(note, trained.stderr)
        self.assertEqual((self.folder / "run/forecast.csv").read_text().splitlines()[0], "time,load")
        self.assertFalse((self.folder / "run/forecast.png").exists())

    def test_a_killed_run_goes_on_as_if_it_had_not_been(self):
        sizes = ("--csv", "table.csv", "--horizon", 12, "--input", 48, "--epochs", 2)
        slow = ("--set", "train.checkpoint_every=1", "--set", "train.steps=60")
        self.assert_killed_and_resumed("forecast", (*sizes, *SETS, *slow))

    def test_bad_tables_are_refused_and_nothing_is_written(self):
        head, *rows = table().splitlines()
        wide = ",".join(["time", *(f"c{i}" for i in range(10000))]), ",".join(["2024-01-01", *["1"] * 10000])
        tables = {
            "is empty": b"",
            "at least 2 rows of numbers, got 1 row": f"{head}\n{rows[0]}\n".encode(),
            "column 'sun': expected a number, got 'bright'": f"{head}\n{rows[0]}\n2024-02-01 00:00,1,bright\n".encode(),
            "sort the rows by time": "\n".join([head, *reversed(rows)]).encode(),
            "keep one row of each time": "\n".join([head, *rows[:9], rows[8]]).encode(),
            "is too large to compute with": f"{head}\n{rows[0]}\n2024-02-01 00:00,1e40,1\n".encode(),
            "column 'sun' has no value at all": "\n".join([head, *(r.rsplit(",", 1)[0] + "," for r in rows)]).encode(),
            "at most 4,096 columns of numbers, got 10,000": "\n".join(wide).encode(),
            "is not text": bytes(range(256)) * 8,
            "is damaged": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03broken",
            "rows to train on": "\n".join([head, *rows[:30]]).encode(),
        }
        for sentence, content in tables.items():
            (self.folder / "table.csv").write_bytes(content)
            self.assert_error(self.train("run"), sentence)
            self.assertFalse((self.folder / "run").exists(), sentence)
        (self.folder / "table.csv").unlink()
        self.assert_error(self.train("run"), "table.csv cannot be read")
        self.assert_error(self.fem("forecast", "train", "--out", "run"), "name it with --csv FILE")
        self.assert_error(self.fem("forecast", "predict", "nowhere", "--csv", "a.csv"), "nowhere")
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    main({})
