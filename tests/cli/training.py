"""What the tests of `fem train` share: small recipes and texts in a folder of their own, and what a run leaves."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

FEM = ""
TINY = """
task = "language"
[model]
n_embd = 32
n_head = 2
n_layer = 2
mlp_width = 48
[model.mixer]
conv_hidden = 8
[data]
cache = "cache"
length = 64
[train]
steps = 12
batch = 4
warmup_steps = 4
learning_rate = 1e-2
validate_every = 5
checkpoint_every = 1
log_every = 1
precision = "float32"
"""

ARGMAX = """
task = "argmax"
[model]
dim = 16
heads = 2
[data]
length = 24
validation_examples = 96
[train]
steps = 12
batch = 16
learning_rate = 1e-2
validate_every = 3
checkpoint_every = 1
log_every = 1
keep_best = true
precision = "float32"
"""


def words_of(*words):
    return [FEM, *map(str, words), "--threads", "1"]


def main(numbers):
    """Runs the tests of the program; of its words `path/to/fem` and `--name N` for every name in numbers."""
    global FEM
    for name in numbers:
        if f"--{name}" in sys.argv:
            place = sys.argv.index(f"--{name}")
            numbers[name] = int(sys.argv[place + 1])
            del sys.argv[place : place + 2]
    FEM = str(Path(sys.argv.pop(1)).resolve())
    unittest.main()


class TrainingCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "tiny.toml").write_text(TINY)
        (self.folder / "argmax.toml").write_text(ARGMAX)
        (self.folder / "texts").mkdir()
        for i in range(8):
            lines = [f"{i} times {j} is {i * j}.\n" for j in range(60)]
            (self.folder / "texts" / f"{i}.txt").write_text("".join(lines))

    def fem(self, *words, **options):
        return subprocess.run(words_of(*words), cwd=self.folder, capture_output=True, text=True, timeout=300, **options)

    def train(self, out, *words, **options):
        return self.fem("train", "tiny.toml", "--data", "texts", "--out", out, *words, **options)

    def steps_saved(self, run):
        return max((int(path.name[5:]) for path in (self.folder / run / "checkpoints").glob("step-*")), default=0)

    def weights(self, run):
        return (max((self.folder / run / "checkpoints").glob("step-*")) / "model.safetensors").read_bytes()

    def metrics(self, run, kind):
        lines = [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if line["kind"] == kind]

    def losses(self, run):
        return {line["step"]: line["loss"] for line in self.metrics(run, "train")}

    def assert_error(self, result, *parts):
        self.assertEqual(result.returncode, 1, result.stderr)
        last = result.stderr.strip().splitlines()[-1]
        self.assertTrue(last.startswith("fem: "), result.stderr)
        self.assertNotIn("Exception raised from", result.stderr)
        for part in parts:
            self.assertIn(part, last)

    def result(self, run):
        """What is left of a run, but for the clock."""
        result = json.loads((self.folder / run / "result.json").read_text())
        self.assertGreater(result.pop("seconds"), 0)
        return result

    def checkpoints(self, run):
        """Step -> what its model and optimizer are, to the last bit."""
        return {
            path.name: [(path / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]
            for path in (self.folder / run / "checkpoints").iterdir()
        }

    def saved(self, run, name):
        return (max((self.folder / run / "checkpoints").glob("step-*")) / name).read_text()

    def begin(self, out, *words, sets=()):
        """A run that has begun its first step, and would take for ever."""
        changes = ("train.steps=100000", "train.checkpoint_every=0", *sets)
        words = [word for change in changes for word in ("--set", change)]
        process = subprocess.Popen(
            words_of("train", "tiny.toml", "--data", "texts", "--out", out, *words),
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.await_file(self.folder / out / "tensorboard")
        return process

    def assert_killed_and_resumed(self, command, words):
        """`fem COMMAND train WORDS --out ...`, killed after some steps, must leave what an unbroken run does."""
        whole = self.fem(command, "train", *words, "--out", "whole")
        self.assertEqual(whole.returncode, 0, whole.stderr)
        process = subprocess.Popen(
            words_of(command, "train", *words, "--out", "killed"),
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while self.steps_saved("killed") < 5 and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        resumed = self.fem(command, "train", "--out", "killed", "--resume", "--plain")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(self.weights("killed"), self.weights("whole"))
        self.assertEqual(self.result("killed"), self.result("whole"))

    def await_file(self, path, written=False):
        deadline = time.monotonic() + 60
        while not (path.exists() and (not written or path.read_text())) and time.monotonic() < deadline:
            time.sleep(0.02)

    def ranks(self, count, out, *words, words_of_rank=lambda rank: ()):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = words_of("train", "tiny.toml", "--data", "texts", "--out", out, *words)
        return [
            subprocess.Popen(
                [*command, *words_of_rank(rank)],
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "WORLD_SIZE": str(count),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                },
            )
            for rank in range(count)
        ]
