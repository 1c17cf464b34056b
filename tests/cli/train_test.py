"""fem train, eval and generate from outside: kills, several processes, memory, bad files.

Usage: train_test.py path/to/fem [--kills N] (how often training is killed; 200 takes some minutes)
                                 [--steps N] (of the run whose memory is watched; 10,000 take some minutes)
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

from training import TINY, TrainingCase, main, words_of

NUMBERS = {"kills": 6, "steps": 500}


class Training(TrainingCase):
    def test_a_run_ends_with_a_model_a_curve_and_text(self):
        result = self.train("run")
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ("parameters", "bits per byte", "A sample:", "run/checkpoints/step-00000012"):
            self.assertIn(part, result.stdout)
        losses = self.losses("run")
        self.assertEqual(sorted(losses), list(range(1, 13)))
        self.assertLess(losses[12], losses[1] - 0.5)
        self.assertEqual(len(list((self.folder / "run" / "checkpoints").iterdir())), 2)
        self.assertEqual(len(list((self.folder / "run" / "tensorboard").iterdir())), 1)

        evaluated = self.fem("eval", "run", "--data", "texts/3.txt", "--length", 64)
        self.assertEqual(evaluated.returncode, 0, evaluated.stderr)
        self.assertIn("bits/byte", evaluated.stdout)
        texts = [
            self.fem("generate", "run", "--prompt", "3 times", "--max-tokens", 20, "--temperature", 0, *more).stdout
            for more in ([], ["--no-cache"])
        ]
        self.assertTrue(texts[0].startswith("3 times"))
        self.assertEqual(*texts)

    def test_killed_at_any_moment_it_goes_on_bit_by_bit(self):
        self.kill_and_resume("train", "tiny.toml", "--data", "texts")

    def test_another_task_killed_at_any_moment_goes_on_bit_by_bit(self):
        self.kill_and_resume("train", "argmax.toml")
        best = self.metrics("whole", "best")
        kept = {path.name for path in (self.folder / "whole" / "checkpoints").iterdir()}
        self.assertIn((self.folder / "whole" / "best").readlink().name, kept)
        self.assertTrue(not best or f"step-{best[0]['step']:08}" in kept)

    def kill_and_resume(self, *command):
        command = [*command, "--plain", "--resume", "--out"]
        self.assertEqual(self.fem(*command, "whole").returncode, 0)
        chance = random.Random(0)
        # A whole run, so that kills fall on all of it: loading, steps and checkpoints.
        start = time.monotonic()
        self.assertEqual(self.fem(*command, "timed").returncode, 0)
        duration = time.monotonic() - start

        def finish():
            before = self.steps_saved("parts")
            finished = (self.folder / "parts" / "result.json").exists()
            result = self.fem(*command, "parts")
            self.assertEqual(result.returncode, 0, result.stderr)
            said = f"Goes on after step {before}" if before else "parameters"
            self.assertIn(f"The run is finished, after step {before}" if finished else said, result.stdout)
            self.assertEqual(self.weights("parts"), self.weights("whole"))
            self.assertEqual(self.losses("parts"), self.losses("whole"))
            self.assertEqual(*(self.result(run) for run in ("parts", "whole")))
            shutil.rmtree(self.folder / "parts")

        between = 0
        for kill in range(NUMBERS["kills"]):
            (self.folder / "parts").mkdir(exist_ok=True)
            before = self.steps_saved("parts")
            process = subprocess.Popen(
                words_of(*command, "parts"),
                cwd=self.folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            # Every other kill falls soon after a checkpoint of its own process, the others anywhere.
            awaits = kill % 2 == 1
            while awaits and process.poll() is None and self.steps_saved("parts") == before:
                time.sleep(0.001)
            try:
                process.wait(timeout=chance.uniform(0, duration / 24 if awaits else 1.1 * duration))
            except subprocess.TimeoutExpired:
                process.kill()
            error = process.communicate()[1]
            self.assertIn(process.returncode, (0, -signal.SIGKILL), f"kill {kill}: {error}")
            between += before < self.steps_saved("parts") < 12 and process.returncode != 0
            if process.returncode == 0 or self.steps_saved("parts") > 6:
                finish()
        self.assertGreaterEqual(between, NUMBERS["kills"] // 3, "too few kills fell between two checkpoints")
        (self.folder / "parts").mkdir(exist_ok=True)
        finish()
        kills = f"{NUMBERS['kills']} kills of {command[1]}, {between} between two checkpoints"
        print(f"{kills}: every run ended bit for bit as whole")

    def test_a_run_of_any_task_ends_with_its_measures(self):
        result = self.fem("train", "argmax.toml", "--out", "run")
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ("832 parameters", "200,000 training and 96 validation examples", "accuracy", "loss.png"):
            self.assertIn(part, result.stdout)
        self.assertEqual(set(self.result("run")["measures"]), {"loss", "accuracy"})
        self.assertEqual(json.loads((self.folder / "run" / "config.json").read_text())["task"], "argmax")
        counted = self.fem("train", "argmax.toml", "--parameters")
        self.assertIn("all", counted.stdout)
        self.assertIn("832", counted.stdout)

    def test_early_stopping_ends_a_run(self):
        stop = ["--set", "train.patience=2", "--set", "train.validate_every=1", "--set", "train.steps=400"]
        result = self.fem("train", "argmax.toml", "--out", "run", "--plain", *stop)
        self.assertEqual(result.returncode, 0, result.stderr)
        accuracy = {line["step"]: line["accuracy"] for line in self.metrics("run", "validation")}
        best = max(accuracy, key=lambda step: (accuracy[step], -step))
        self.assertEqual(max(accuracy), best + 2)
        self.assertEqual((self.result("run")["step"], self.result("run")["measured_step"]), (best + 2, best))
        self.assertIn(f"(the best, after step {best})", result.stdout)

    def test_token_files_are_kept_in_the_users_cache_and_nothing_else_is_left(self):
        text = "".join(line for line in TINY.splitlines(keepends=True) if not line.startswith("cache"))
        (self.folder / "tiny.toml").write_text(text)
        before = {path.name for path in self.folder.iterdir()}
        home = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "xdg")}
        self.assertEqual(self.train("out", "--plain", "--set", "train.steps=1", env=home).returncode, 0)
        self.assertEqual({path.name for path in self.folder.iterdir()}, before | {"out", "xdg"})
        self.assertEqual(len(list((self.folder / "xdg" / "fem").glob("*/corpus.json"))), 1)
        # A folder that cannot be made: somebody's file is in the way.
        blocked = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "texts" / "0.txt")}
        result = self.train("other", "--plain", env=blocked)
        self.assert_error(result, "cannot be made: Not a directory", "--set data.cache=DIR")

    def test_what_does_not_fit_into_memory_is_told_with_the_remedy(self):
        remedy = "lower train.micro_batch (it is 16,000,000 rows), or set train.recompute=true"
        self.assert_error(self.train("run", "--set", "train.batch=16000000"), "a step takes at least", remedy)
        result = self.train("run", "--set", "model.n_embd=65536", "--set", "model.n_layer=96")
        self.assert_error(result, "parameters take", "train a smaller model")
        # What the estimate could not know: less may be allocated than there is.
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))  # noqa: E731
        result = self.train("run", "--set", "train.batch=8192", preexec_fn=limit)
        self.assert_error(result, "memory ran out; lower train.micro_batch (it is 8,192 rows)")

    def test_memory_does_not_grow(self):
        """The resident set after 250 steps, or a tenth of them, and at their end; the long version is --steps 10000."""
        process = self.begin(
            "run", sets=[f"train.steps={NUMBERS['steps']}", "train.validate_every=100", "train.log_every=10"]
        )
        resident = {}
        # By the first mark validations and checkpoints have taken what they keep.
        marks = (max(250, NUMBERS["steps"] // 10), NUMBERS["steps"] * 99 // 100)
        while process.poll() is None and marks[-1] not in resident:
            lines = self.metrics("run", "train") if (self.folder / "run" / "metrics.jsonl").exists() else []
            for mark in marks:
                if lines and lines[-1]["step"] >= mark and mark not in resident:
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    resident[mark] = int(status.split("VmRSS:")[1].split()[0])
            time.sleep(0.05)
        error = process.communicate(timeout=300)[1]
        self.assertEqual(process.returncode, 0, error)
        early, late = (resident[mark] for mark in marks)
        growth = late / early - 1
        print(f"resident set after {marks[0]} steps {early} kB, after {marks[1]} {late} kB: {100 * growth:+.2f} %")
        self.assertLess(growth, 0.01)

    def test_two_processes_train_as_one_and_one_goes_on_where_two_stopped(self):
        # At the tiny recipe's learning rate rounding grows too fast to tell it from a mistake.
        changes = {"steps": 50, "checkpoint_every": 25, "keep_checkpoints": 9, "learning_rate": 1e-3}
        steps = [word for name, value in changes.items() for word in ("--set", f"train.{name}={value}")]
        self.assertEqual(self.train("one", *steps).returncode, 0)
        for process in self.ranks(2, "two", *steps):
            output, error = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0, error)
        one, two = self.losses("one"), self.losses("two")
        self.assertEqual(sorted(two), list(range(1, 51)))
        for step in one:
            self.assertLess(abs(one[step] - two[step]), 1e-5 * one[step], f"step {step}")
        shutil.rmtree(self.folder / "two" / "checkpoints" / "step-00000050")
        result = self.train("two", *steps, "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Goes on after step 25", result.stdout)
        for step, loss in self.losses("two").items():
            self.assertLess(abs(one[step] - loss), 1e-5 * one[step], f"step {step}")

    def test_a_lost_process_ends_the_others_with_a_sentence(self):
        first, second = self.ranks(2, "lost", "--set", "train.steps=100000", "--set", "train.timeout_seconds=20")
        self.await_file(self.folder / "lost" / "metrics.jsonl", written=True)
        second.kill()
        error = first.communicate(timeout=60)[1]
        second.communicate()
        self.assertEqual(first.returncode, 1, error)
        self.assertIn("lost contact with another rank", error.splitlines()[-1])
        self.assertIn("--resume", error.splitlines()[-1])
        self.assertTrue(list((self.folder / "lost" / "checkpoints").glob("step-*")))

    def test_processes_with_different_recipes_are_told(self):
        processes = self.ranks(2, "mixed", words_of_rank=lambda rank: ("--set", f"train.seed={rank}"))
        first, second = (process.communicate(timeout=60)[1] for process in processes)
        self.assertEqual([process.returncode for process in processes], [1, 1], first + second)
        self.assertIn("rank 1 has another recipe", second)

    def test_errors_are_one_sentence_and_nothing_is_overwritten(self):
        self.assert_error(self.train("run", "--set", "train.step=3"), 'unknown field "step"')
        self.assert_error(self.train("run", "--set", "train.steps=soon"), "expected steps to be an integer")
        self.assert_error(self.train("run", "--set", "task=chess"), 'expected task to be one of "language", "argmax"')
        self.assert_error(self.fem("train", "argmax.toml", "--data", "texts"), 'data: unknown field "train"')
        self.assert_error(self.fem("train", "tiny.toml"), "expected --data")
        self.assert_error(self.fem("train", "nothing", "--data", "texts"), "1m-fem-softmax")
        self.assert_error(self.fem("train", "tiny.toml", "--data", "none.txt"), "none.txt")
        (self.folder / "latin1.txt").write_bytes(b"caf\xe9 " * 99)
        self.assert_error(self.fem("train", "tiny.toml", "--data", "latin1.txt"), "latin1.txt", "UTF-8")
        self.assertEqual(self.train("run", "--set", "train.steps=2").returncode, 0)
        self.assert_error(self.train("run", "--set", "train.steps=2"), "already holds a run")
        self.assert_error(self.train("run", "--resume", "--set", "train.steps=1"), "train/steps was 2 and is now 1")

        model = self.folder / "run" / "checkpoints" / "step-00000002"
        whole = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(whole[:-100])
        for words in (("generate", "run", "--prompt", "a"), ("eval", "run", "--data", "texts")):
            self.assert_error(self.fem(*words), "model.safetensors")
        self.assert_error(self.train("run", "--set", "train.steps=2", "--resume"), "model.safetensors")
        (model / "model.safetensors").write_bytes(whole)
        (model / "tokenizer.json").write_text('{"type": "words"}')
        self.assert_error(self.fem("generate", "run", "--prompt", "a"), "tokenizer")

        shard = next((self.folder / "cache").glob("*/train/shard-*"))
        shard.write_bytes(shard.read_bytes()[:-10])
        self.assert_error(self.train("other"), shard.name, "made again")

    def test_a_full_disk_stops_with_a_sentence_and_keeps_the_last_checkpoint(self):
        self.assertEqual(self.train("run", "--set", "train.steps=3").returncode, 0)
        good = self.weights("run")
        shutil.copytree(self.folder / "run", self.folder / "full")
        # No file may grow beyond 20 kB: writing the next checkpoint fails as on a full disk.
        limit = lambda: (  # noqa: E731
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        )
        result = self.train("full", "--set", "train.steps=6", "--resume", preexec_fn=limit)
        self.assert_error(result, "File too large")
        self.assertEqual(self.weights("full"), good)


if __name__ == "__main__":
    main(NUMBERS)
