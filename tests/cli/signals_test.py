"""Ctrl-C and its like, sent to fem train, eval and generate.

Usage: signals_test.py path/to/fem
"""

import signal
import subprocess
import time

from training import TrainingCase, main, words_of


class Signals(TrainingCase):
    def test_a_signal_saves_and_ends_the_command_by_it(self):
        for which in (signal.SIGINT, signal.SIGTERM):
            out = f"run-{which.name}"
            process = self.begin(out)
            self.await_file(self.folder / out / "metrics.jsonl", written=True)
            process.send_signal(which)
            output, error = process.communicate(timeout=60)
            self.assertEqual(process.returncode, -which, error)  # 128 + which in a shell
            self.assertIn(f"Go on with: fem train {out} --resume", output)
            self.assertEqual(len(list((self.folder / out / "checkpoints").glob("step-*"))), 1)

    def test_a_signal_is_seen_inside_a_step(self):
        process = self.begin("run", sets=["train.batch=65536", "train.micro_batch=1"])  # minutes a step
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT, error)
        self.assertIn("Stopped after step 0, which is saved", output)
        self.assertIn("a second signal stops at once: the step in progress is lost", error)
        self.assertEqual([path.name for path in (self.folder / "run" / "checkpoints").iterdir()], ["step-00000000"])

    def test_a_second_signal_says_what_is_lost(self):
        process = self.begin("run", sets=["train.batch=256"])
        self.await_file(self.folder / "run" / "metrics.jsonl", written=True)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        error = process.communicate(timeout=60)[1]
        self.assertIn(process.returncode, (-signal.SIGINT, -signal.SIGTERM), error)
        self.assertRegex(error, r"\nfem: stopped at once: steps? 1 (to \d+ are|is) lost; there is no checkpoint yet\n$")

    def test_a_signal_to_one_process_stops_and_saves_all(self):
        first, second = self.ranks(2, "two", "--set", "train.steps=100000", "--set", "train.checkpoint_every=0")
        self.await_file(self.folder / "two" / "metrics.jsonl", written=True)
        second.send_signal(signal.SIGTERM)
        errors = [process.communicate(timeout=60)[1] for process in (first, second)]
        self.assertEqual([process.returncode for process in (first, second)], [-signal.SIGTERM] * 2, errors)
        self.assertGreaterEqual(self.steps_saved("two"), 1)

    def test_eval_and_generate_end_by_a_signal_as_well(self):
        self.assertEqual(self.train("run", "--plain", "--set", "train.steps=2").returncode, 0)
        (self.folder / "long.txt").write_text("some words and then more\n" * 40000)
        commands = {
            "eval": ("eval", "run", "--data", "long.txt", "--length", 64, "--batch-rows", 1),
            "generate": ("generate", "run", "--prompt", "a", "--max-tokens", 10**7, "--temperature", 0.01),
        }
        for name, words in commands.items():
            process = subprocess.Popen(
                words_of(*words), cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            time.sleep(1.5)  # it has loaded the model by now, or ends by the signal all the same
            process.send_signal(signal.SIGINT)
            error = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, -signal.SIGINT, f"{name}: {error}")


if __name__ == "__main__":
    main({})
