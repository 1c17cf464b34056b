"""fem sweep from outside: real processes, killed and gone on with. Usage: sweep_test.py path/to/fem"""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

FEM = ""
RECIPE = """
task = "argmax"
[model]
dim = 16
heads = 2
[data]
length = 24
validation_examples = 64
[train]
steps = 60
batch = 16
learning_rate = 1e-2
warmup_steps = 0
validate_every = 0
checkpoint_every = 5
log_every = 5
precision = "float32"
"""
GRID = """
recipe = "recipe.toml"
seeds = [1, 2]
[axes.mixer]
fem = { model.mixer = "fem" }
mean = { model.mixer = "mean" }
[choose]
seeds = [0]
settings.train.learning_rate = [1e-5, 1e-2]
"""
RUNS = 2 * (2 + 2)


class Sweeping(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "recipe.toml").write_text(RECIPE)
        (self.folder / "grid.toml").write_text(GRID)

    def fem(self, *words):
        return subprocess.run(
            [FEM, *map(str, words)], cwd=self.folder, capture_output=True, text=True, timeout=600
        )  # fmt: skip

    def start(self, *words):
        process = subprocess.Popen(
            [FEM, *map(str, words)], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def results(self, out):
        path = self.folder / out / "results.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def figures(self, out):
        """Run -> measures, which must not depend on how often the sweep was stopped."""
        return {line["run"]: line["measures"] for line in self.results(out)}

    def table(self, output):
        """The lines from the header on, without the numbers of seconds."""
        lines = output.splitlines()
        return lines[next(i for i, line in enumerate(lines) if line.startswith("mixer")) :][:4]

    def test_the_energy_experiments_are_sweeps_and_their_results_pages(self):
        toy = ["experiment", "energy", "toy", "--layers", 2, "--seeds", 1, "--temperatures", "4,0.5", "--out", "toy"]
        first = self.fem(*toy)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(len(self.results("toy")), 2 * 9)
        self.assertEqual(self.fem(*toy).stdout, first.stdout)
        self.assertEqual(len(self.results("toy")), 2 * 9, "nothing is computed twice")
        shown = self.fem(*toy[:-2], "--from", "toy")
        self.assertIn(shown.stdout.strip(), first.stdout)
        lis = ["experiment", "energy", "lis", "--preset", "smoke", "--variants", "attention,attention+gain"]
        lis += ["--lr", 0.01, "--seeds", "1", "--out", "lis"]
        trained = self.fem(*lis)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("Preset smoke: 2 runs, at most 8 steps", trained.stdout)
        variants = sorted(line["cell"]["variant"] for line in self.results("lis"))
        self.assertEqual(variants, ["attention", "attention+gain"])
        self.assertEqual([len(line["curve"]) for line in self.results("lis")], [2, 2])
        self.assertIn("2 are finished already", self.fem(*lis).stdout)
        numbers = self.fem("report", "toy", "lis", "--out", "page.json")
        self.assertEqual(numbers.returncode, 0, numbers.stderr)
        titles = [study["title"] for study in json.loads((self.folder / "page.json").read_text())["studies"]]
        self.assertEqual(titles, ["Descent where weights are tied", "Longest increasing subsequences"])
        wrong = self.fem("experiment", "energy", "lm", "--text", "input.txt")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("--text: expected NAME=FILE", wrong.stderr)

    def test_forecasts_of_a_table_choose_rates_at_its_first_horizon_and_become_a_page_beside_the_papers(self):
        rows = (",".join(f"{math.sin(row / (3 + c)) + c:.3f}" for c in range(7)) for row in range(9040))
        table = "".join(f"{row},{values}\n" for row, values in enumerate(rows))
        (self.folder / "ETTh1.csv").write_text("date,a,b,c,d,e,f,g\n" + table)
        tsf = ["experiment", "tsf", "--preset", "smoke", "--data", ".", "--mixers", "softmax", "--letters", "CLTG"]
        tsf += ["--bodies", "ridge,dlinear"]
        first = self.fem(*tsf, "--out", "out")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("Preset smoke: 8 runs, at most 16 steps", first.stdout)
        lines = self.results("out/ETTh1")
        for model in ("softmax+CLTG", "dlinear"):
            own = [line for line in lines if line["cell"]["model"] == model]
            choosing = [line for line in own if not line["reported"]]
            self.assertEqual({line["cell"]["table"] for line in choosing}, {"ETTh1 96"})
            self.assertEqual(len({line["choice"] for line in choosing}), 2)
            best = min(choosing, key=lambda line: line["measures"]["loss"])["choice"]
            reported = [(line["cell"]["table"], line["choice"]) for line in own if line["reported"]]
            self.assertEqual(sorted(reported), [("ETTh1 192", best), ("ETTh1 96", best)])
        ridges = [line for line in lines if line["cell"]["model"] == "ridge"]
        self.assertEqual([line["cell"]["table"] for line in ridges], ["ETTh1 96", "ETTh1 192"])
        self.assertNotIn(str(self.folder), json.dumps(lines))
        again = self.fem(*tsf, "--out", "out")
        self.assertIn("8 are finished already", again.stdout)
        self.assertEqual(self.results("out/ETTh1"), lines)
        (self.folder / "ETTh1.csv").unlink()  # records are read without it
        shown = self.fem(*tsf, "--from", "out")
        self.assertIn(shown.stdout.strip(), first.stdout)
        self.assertEqual(
            [line.split()[0] for line in shown.stdout.splitlines()[4:7]], ["ridge", "softmax+CLTG", "dlinear"]
        )

        numbers = self.fem("report", "out/ETTh1", "--out", "page.json")
        self.assertEqual(numbers.returncode, 0, numbers.stderr)
        study = json.loads((self.folder / "page.json").read_text())["studies"][0]
        self.assertEqual(study["title"], "Forecasting ETTh1")

    def wait_until(self, condition, process):
        deadline = time.monotonic() + 120
        while not condition():
            self.assertLess(time.monotonic(), deadline, "nothing happened")
            self.assertIsNone(process.poll(), process.stderr.read() if process.poll() is not None else "")
            time.sleep(0.005)

    def wait_until_begun(self, out, process, finished=1):
        """So many runs are finished, and another one has left its first checkpoint: the processes seen then."""
        runs = self.folder / out / "runs"
        children = []

        def begun():
            done = {line["run"] for line in self.results(out)}
            if len(done) < finished:
                return False
            children[:] = self.children(process)  # none between the end of one run and the start of another
            return children and any(path.parent.parent.name not in done for path in runs.glob("*/checkpoints/step-*"))

        self.wait_until(begun, process)
        return children

    def commands(self, process):
        return [Path(f"/proc/{child}/cmdline").read_text().split("\0") for child in self.children(process)]

    def children(self, process):
        path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        return [int(word) for word in path.read_text().split()]

    def test_the_best_rate_is_chosen_by_one_seed_and_reported_on_others(self):
        result = self.fem("sweep", "grid.toml", "--out", "out", "--jobs", 2)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        lines = {line["run"]: line for line in self.results("out")}
        self.assertEqual(len(lines), RUNS)
        for mixer in ("fem", "mean"):
            chosen_by = {rate: lines[f"{mixer}-learning_rate={rate}-seed=0"]["measures"] for rate in ("1e-05", "0.01")}
            best = max(chosen_by, key=lambda rate: chosen_by[rate]["accuracy"])
            reported = [lines[f"{mixer}-learning_rate={best}-seed={seed}"] for seed in (1, 2)]
            row = next(line for line in self.table(result.stdout) if line.startswith(mixer + " "))
            self.assertIn(f"learning_rate={best}", row)
            a, b = (line["measures"]["accuracy"] for line in reported)
            self.assertIn(f"{(a + b) / 2:.4f} ± {abs(a - b) / 2:.4f}", row)
        line = lines["fem-learning_rate=0.01-seed=0"]
        self.assertEqual(line["cell"], {"mixer": "fem"})
        self.assertEqual(line["recipe"]["train"]["learning_rate"], 0.01)
        self.assertGreater(line["seconds"], 0)
        self.assertEqual(line["step"], 60)

        # The same runs by hand are the same to the last bit, and a finished sweep only prints its table.
        words = ("--set", "model.mixer=fem", "--set", "train.learning_rate=0.01", "--set", "train.seed=0")
        self.assertEqual(
            self.fem("train", "recipe.toml", "--out", "one", "--plain", "--threads", 1, *words).returncode, 0
        )
        self.assertEqual(json.loads((self.folder / "one" / "result.json").read_text())["measures"], line["measures"])
        before = (self.folder / "out" / "results.jsonl").read_bytes()
        again = self.fem("sweep", "grid.toml", "--out", "out")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(f"{RUNS} are finished already", again.stdout)
        self.assertEqual(self.table(again.stdout), self.table(result.stdout))
        self.assertEqual((self.folder / "out" / "results.jsonl").read_bytes(), before)

    def test_a_killed_sweep_goes_on_where_it_stood(self):
        (self.folder / "recipe.toml").write_text(RECIPE.replace("steps = 60", "steps = 300"))
        whole = self.fem("sweep", "grid.toml", "--out", "whole", "--jobs", 2)
        self.assertEqual(whole.returncode, 0, whole.stderr)

        process = self.start("sweep", "grid.toml", "--out", "cut", "--jobs", 2)
        children = self.wait_until_begun("cut", process)
        process.kill()
        process.communicate()
        deadline = time.monotonic() + 20
        while any(Path(f"/proc/{child}").exists() for child in children):  # they do not outlive it
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        finished = {line["run"] for line in self.results("cut")}
        begun = {path.parent.parent.name for path in (self.folder / "cut" / "runs").glob("*/checkpoints/step-*")}
        self.assertTrue(begun - finished)
        self.assertLess(len(finished), RUNS)

        # Then by Ctrl-C, which saves what runs: a step that is no multiple of checkpoint_every.
        process = self.start("sweep", "grid.toml", "--out", "cut", "--jobs", 2)
        self.wait_until_begun("cut", process, len(finished) + 1)
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=120)
        self.assertEqual(process.returncode, -signal.SIGINT, error)
        self.assertIn("The same command goes on", output)

        result = self.fem("sweep", "grid.toml", "--out", "cut", "--jobs", 2)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("finished already", result.stdout)
        names = [line["run"] for line in self.results("cut")]
        self.assertEqual(len(names), len(set(names)), "a finished run was run again")
        self.assertEqual(self.figures("cut"), self.figures("whole"))
        self.assertEqual(self.table(result.stdout), self.table(whole.stdout))
        logs = "".join((self.folder / "cut" / "runs" / name / "log.txt").read_text() for name in begun - finished)
        self.assertIn("Goes on after step", logs)

    def test_two_runs_at_a_time_of_one_thread_each(self):
        (self.folder / "recipe.toml").write_text(RECIPE.replace("steps = 60", "steps = 100000"))
        process = self.start("sweep", "grid.toml", "--out", "out", "--jobs", 2)
        self.wait_until(lambda: [command[1:2] for command in self.commands(process)] == [["train"]] * 2, process)
        for command in self.commands(process):
            self.assertEqual(command[command.index("--threads") + 1], "1")
        refused = self.fem("sweep", "grid.toml", "--out", "out")
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"out is in use by process {process.pid} on", refused.stderr)
        process.send_signal(signal.SIGTERM)
        output, error = process.communicate(timeout=120)
        self.assertEqual(process.returncode, -signal.SIGTERM, error)

    def test_a_failed_run_is_told_and_does_not_end_the_others(self):
        (self.folder / "grid.toml").write_text(GRID.replace('model.mixer = "mean"', "model.heads = 3"))
        result = self.fem("sweep", "grid.toml", "--out", "out")
        self.assertEqual(result.returncode, 1)
        lines = self.results("out")
        errors = [line["error"] for line in lines if "error" in line]
        self.assertEqual(len(errors), 2)  # both rates; nothing is left to be reported for that cell
        for error in errors:
            self.assertIn("expected dim divisible by heads", error)
        self.assertEqual(len([line for line in lines if "measures" in line]), 4)
        self.assertIn("Failed: mean-learning_rate=", result.stdout)
        self.assertIn("2 of 6 runs failed", result.stdout)
        row = next(line for line in self.table(result.stdout) if line.startswith("mean "))
        self.assertEqual(row.split()[-1], "2")

        # Mended, only what failed is run.
        (self.folder / "grid.toml").write_text(GRID)
        mended = self.fem("sweep", "grid.toml", "--out", "out")
        self.assertEqual(mended.returncode, 0, mended.stderr + mended.stdout)
        self.assertIn("4 are finished already", mended.stdout)
        self.assertEqual(len(self.results("out")), 6 + 4)

    def test_a_run_begun_with_other_steps_is_not_taken_for_one_of_the_grid(self):
        self.assertEqual(self.fem("sweep", "grid.toml", "--out", "out", "--jobs", 2).returncode, 0)
        before = self.figures("out")
        (self.folder / "recipe.toml").write_text(RECIPE.replace("steps = 60", "steps = 90"))
        result = self.fem("sweep", "grid.toml", "--out", "out", "--jobs", 2)
        self.assertEqual(result.returncode, 1)
        errors = [line["error"] for line in self.results("out") if "error" in line]
        self.assertEqual(len(errors), 4)
        for error in errors:
            self.assertIn("it was begun with train.steps = 60; remove out/runs/", error)
        self.assertEqual({line["run"]: line["measures"] for line in self.results("out") if "error" not in line}, before)

    def test_a_bad_grid_is_one_sentence_and_nothing_is_written(self):
        (self.folder / "grid.toml").write_text(GRID.replace("seeds = [1, 2]", "seeds = [0, 1]"))
        result = self.fem("sweep", "grid.toml", "--out", "out")
        self.assertEqual(result.returncode, 1)
        self.assertIn("seed 0 is one to choose by and one to report", result.stderr)
        self.assertFalse((self.folder / "out").exists())
        self.assertEqual(self.fem("sweep").returncode, 2)
        self.assertEqual(self.fem("sweep", "grid.toml", "--jobs", 0).returncode, 2)


if __name__ == "__main__":
    FEM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
