"""What a person sees of fem: a terminal, hints to type, a run's own measures. Usage: terminal_test.py path/to/fem"""

import contextlib
import json
import os
import pty
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FEM = ""
HOSTILE = "a\x1b[31mb\x07\x9b2J"  # recolours, rings, clears the screen
SHOWN = r"a\x1b[31mb\x07\x9b2J"
RECIPE = """
base = "500k-fem-softmax"
[model]
n_embd = 32
n_layer = 1
mlp_width = 48
[model.mixer]
conv_hidden = 8
[data]
length = 48
cache = "cache"
[train]
steps = 4
batch = 4
precision = "float32"
"""


def on_terminal(words, cwd):
    """What a program writes to a terminal of 80 columns; its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(cwd)
        os.execv(words[0], words)
    written = b""
    with contextlib.suppress(OSError):  # Linux says EIO when the other side has closed
        while part := os.read(terminal, 4096):
            written += part
    os.close(terminal)
    return written.decode(errors="replace").replace("\r\n", "\n"), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Terminal(unittest.TestCase):
    RUN = "my run's"

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        (cls.folder / "small.toml").write_text(RECIPE)
        (cls.folder / "text.txt").write_text("".join(f"{i} and {i} are {2 * i}.\n" for i in range(200)))
        words = ["train", "small.toml", "--data", "text.txt", "--out", cls.RUN]
        cls.trained = cls.fem(*words, env={**os.environ, "FEM_PYTHON": "/no/such/python"})
        assert cls.trained.returncode == 0, cls.trained.stderr

    @classmethod
    def fem(cls, *words, **options):
        command = [FEM, *map(str, words), "--threads", "1"]
        return subprocess.run(command, cwd=cls.folder, capture_output=True, text=True, timeout=300, **options)

    def shown(self, *words):
        return on_terminal([FEM, *words, "--threads", "1"], self.folder)

    def test_hints_can_be_typed(self):
        hints = [line.partition(": ")[2] for line in self.trained.stdout.splitlines() if line.startswith("More: ")]
        self.assertEqual(shlex.split(hints[0])[:3], ["fem", "generate", self.RUN])
        drawn = next(line for line in self.trained.stdout.splitlines() if line.startswith("No picture was drawn"))
        words = shlex.split(drawn.partition(": ")[2])
        self.assertEqual(words[2:], [self.RUN, "--out", f"{self.RUN}/loss.png"])
        self.assertTrue(Path(words[1]).is_file())

    def test_control_characters_are_shown_on_a_terminal_and_kept_in_a_pipe(self):
        words = ["generate", self.RUN, "--prompt", HOSTILE, "--max-tokens", "0", "--quiet"]
        text, code = self.shown(*words)
        self.assertEqual((text, code), (SHOWN + "\n", 0))
        self.assertEqual(self.fem(*words).stdout, HOSTILE + "\n")

    def test_errors_show_control_characters(self):
        for words in (["generate", HOSTILE], ["train", HOSTILE], [HOSTILE], ["train", "small.toml", f"--{HOSTILE}"]):
            text, code = self.shown(*words)
            self.assertNotEqual(code, 0)
            self.assertIn(SHOWN, text)
            self.assertNotIn("\x1b", text)
            self.assertIn(HOSTILE, self.fem(*words).stderr)

    def measures(self, *words):
        out = self.folder / "measures.jsonl"
        out.unlink(missing_ok=True)
        result = self.fem("eval", *words, "--json", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(out.read_text())

    def test_eval_measures_a_run_as_the_run_did(self):
        final = json.loads((self.folder / self.RUN / "result.json").read_text())["measures"]
        for model in (self.RUN, f"{self.RUN}/checkpoints/step-00000004"):
            own = self.measures(model)
            self.assertEqual((own["data"], own["length"]), ("validation", 48))
            for name, value in final.items():
                self.assertAlmostEqual(own[name], value, delta=1e-6 * value, msg=name)
        # Another text, the run's own length.
        self.assertEqual(self.measures(self.RUN, "--data", "text.txt")["length"], 48)
        self.assertEqual(self.measures(self.RUN, "--data", "text.txt", "--length", 32)["length"], 32)

    def test_eval_of_a_model_alone_or_elsewhere_needs_a_text(self):
        (self.folder / "alone").symlink_to(self.folder / self.RUN / "checkpoints" / "step-00000004")
        self.assertEqual(self.measures("alone")["length"], 48)  # a link into the run
        (self.folder / "alone").unlink()
        copied = ["cp", "-r", f"{self.RUN}/checkpoints/step-00000004", "alone"]
        subprocess.run(copied, cwd=self.folder, check=True)
        result = self.fem("eval", "alone")
        self.assertEqual(result.returncode, 1)
        self.assertIn("alone is not a run of fem train", result.stderr)
        self.assertEqual(self.measures("alone", "--data", "text.txt")["length"], 512)
        with tempfile.TemporaryDirectory() as elsewhere:
            words = [FEM, "eval", str(self.folder / self.RUN)]
            result = subprocess.run(words, cwd=elsewhere, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stderr)
            (self.folder / "text.txt").rename(self.folder / "moved.txt")
            self.addCleanup((self.folder / "moved.txt").rename, self.folder / "text.txt")
            result = subprocess.run(words, cwd=elsewhere, capture_output=True, text=True)
            self.assert_sentence(result, "text.txt", "name a text with --data")

    def assert_sentence(self, result, *parts):
        self.assertEqual(result.returncode, 1, result.stderr)
        last = result.stderr.strip().splitlines()[-1]
        for part in ("fem: ", *parts):
            self.assertIn(part, last)

    def test_places_that_cannot_be_written_are_told(self):
        # A file where a folder should be, since root may write anywhere.
        data = ("--data", "text.txt", "--out", "text.txt/run")
        self.assert_sentence(self.fem("train", "small.toml", *data), "text.txt", "Not a directory")
        argmax = ("experiment", "argmax", "--preset", "smoke", "--steps", 1, "--out", "text.txt/run")
        self.assert_sentence(self.fem(*argmax), "text.txt/run", "Not a directory", "may it be written to?")
        # Told before the work is done, which the missing text would end.
        words = ("eval", self.RUN, "--data", "no.txt", "--json", "text.txt/x.jsonl")
        self.assert_sentence(self.fem(*words), "eval: --json", "text.txt/x.jsonl", "Not a directory")

    def test_float16_weights_are_told_with_the_remedy(self):
        model = self.folder / "half"
        subprocess.run(["cp", "-r", f"{self.RUN}/checkpoints/step-00000004", model], cwd=self.folder, check=True)
        whole = (model / "model.safetensors").read_bytes()
        size = int.from_bytes(whole[:8], "little")
        header = json.loads(whole[8 : 8 + size])
        for name, tensor in header.items():
            if name != "__metadata__":
                tensor["dtype"] = "F16"
                tensor["data_offsets"] = [offset // 2 for offset in tensor["data_offsets"]]
        text = json.dumps(header).encode()
        half = len(text).to_bytes(8, "little") + text + bytes((len(whole) - 8 - size) // 2)
        (model / "model.safetensors").write_bytes(half)
        (model / "checksums").unlink()
        result = self.fem("generate", "half", "--prompt", "a")
        self.assertEqual(result.stdout, "")
        self.assert_sentence(result, "expected all parameters as float32", "as Half in", "tensor.float()")


if __name__ == "__main__":
    FEM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
