"""The folder of a run from outside: who may write to it, what it knows of its text, what it goes on from.

Usage: runs_test.py path/to/fem [--pairs N] (of trainings that start in one folder; 50 take some minutes)
"""

import json
import random
import shutil
import subprocess
import time

from training import TrainingCase, main, words_of

NUMBERS = {"pairs": 3}


class Runs(TrainingCase):
    def test_of_two_trainings_in_one_folder_one_goes_on(self):
        command = ["train", "tiny.toml", "--data", "texts", "--plain", "--set", "train.steps=30"]
        command += ["--set", "train.keep_checkpoints=99"]
        self.assertEqual(self.fem(*command, "--out", "whole").returncode, 0)
        chance = random.Random(0)
        for pair in range(NUMBERS["pairs"]):
            out = f"pair-{pair}"
            resume = ["--resume"] if pair % 2 else []
            processes = []
            for _ in range(2):
                processes.append(
                    subprocess.Popen(
                        words_of(*command, "--out", out, *resume),
                        cwd=self.folder,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                    )  # fmt: skip
                )
                time.sleep(chance.uniform(0, 0.05))
            errors = [process.communicate(timeout=300)[1] for process in processes]
            codes = [process.returncode for process in processes]
            self.assertEqual(sorted(codes), [0, 1], errors)
            winner, loser = codes.index(0), codes.index(1)
            last = errors[loser].strip().splitlines()[-1]
            holder = f"(process {processes[winner].pid} on|another process)"
            self.assertRegex(last, f"^fem: train: {out} is in use by {holder}")
            self.assertEqual(self.checkpoints(out), self.checkpoints("whole"))
            self.assertEqual(self.losses(out), self.losses("whole"))
            self.assertEqual(*(self.result(run) for run in (out, "whole")))
            shutil.rmtree(self.folder / out)
        print(f"{NUMBERS['pairs']} pairs of trainings in one folder: one of each went on, no checkpoint is torn")

    def test_a_folder_is_all_that_a_run_needs_to_go_on(self):
        steps = ["--set", "train.keep_checkpoints=99"]
        self.assertEqual(self.train("whole", *steps, "--plain").returncode, 0)
        for words in (["parts", "--resume"], ["--resume", "parts"], ["--out", "parts", "--resume"]):
            shutil.copytree(self.folder / "whole", self.folder / "parts")
            for path in (self.folder / "parts" / "checkpoints").iterdir():
                if int(path.name[5:]) > 5:
                    shutil.rmtree(path)
            elsewhere = self.folder / "elsewhere"
            elsewhere.mkdir(exist_ok=True)
            words = [f"../{word}" if word == "parts" else word for word in words]
            result = subprocess.run(
                words_of("train", *words, "--plain"), cwd=elsewhere, capture_output=True, text=True, timeout=300
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("Goes on after step 5", result.stdout)
            self.assertEqual(self.checkpoints("parts"), self.checkpoints("whole"))
            shutil.rmtree(self.folder / "parts")
        again = self.fem("train", "whole", "--out", "again", "--plain")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(self.checkpoints("again"), self.checkpoints("whole"))
        nothing = self.fem("train")
        self.assertEqual(nothing.returncode, 2)
        self.assertIn("RECIPE, or --resume with the folder of a run, is required", nothing.stderr)
        self.assert_error(self.fem("train", "whole"), "add --resume to go on with its run, or --out")
        self.assert_error(self.fem("train", "texts", "--resume"), "texts/config.json")

        # More steps, also from the folder alone.
        result = self.fem("train", "whole", "--resume", "--plain", "--set", "train.steps=15")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("train.steps was 12 and is now 15", result.stdout)
        self.assertEqual(sorted(self.losses("whole")), list(range(1, 16)))

    def test_a_run_knows_its_text_by_content(self):
        cut = ["--set", "train.checkpoint_every=0"]
        self.assertEqual(self.train("run", "--plain", *cut).returncode, 0)
        texts = self.folder / "texts"
        more = ["--resume", "--plain", "--set", "train.steps=13"]

        def resume(*data):
            run = self.folder / "other"
            shutil.rmtree(run, ignore_errors=True)
            shutil.copytree(self.folder / "run", run)
            return self.fem("train", "tiny.toml", "--data", *data, "--out", "other", *cut, *more)

        # The same text elsewhere, newer, and named file by file, is the same.
        shutil.copytree(texts, self.folder / "moved")
        for data in (["moved"], [f"texts/{i}.txt" for i in range(8)], ["moved/*.txt"]):
            result = resume(*data)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("Goes on after step 12", result.stdout)

        def expect(change, sentence, data="changed"):
            shutil.rmtree(self.folder / "changed", ignore_errors=True)
            shutil.copytree(texts, self.folder / "changed")
            change(self.folder / "changed")
            self.assert_error(resume(data), "its training text is another: " + sentence)

        def one_letter(folder):
            text = (folder / "3.txt").read_text()
            (folder / "3.txt").write_text(text.replace("times", "timeS", 1))

        def swap(folder):
            (folder / "a").write_text((folder / "1.txt").read_text())
            (folder / "1.txt").write_text((folder / "2.txt").read_text())
            (folder / "a").replace(folder / "2.txt")

        expect(one_letter, '"3.txt" changed')
        expect(lambda folder: (folder / "4.txt").unlink(), '"4.txt" is no longer there')
        expect(lambda folder: (folder / "9.txt").write_text("9 is new."), '"9.txt" was not there')
        expect(swap, "the files come in another order")
        self.assertEqual(self.steps_saved("other"), 12)

    def test_begins_with_the_weights_and_the_tokenizer_of_another_model(self):
        pieces = ["--tokenizer", "sentencepiece:285"]
        self.assertEqual(self.train("first", "--plain", *pieces, "--set", "train.steps=30").returncode, 0)
        (self.folder / "more.txt").write_text("".join(f"{i} plus {i} is {2 * i}.\n" for i in range(200)))
        init = ["--init-from", "first", "--plain", "--set", "train.warmup_steps=0", "--set", "train.learning_rate=1e-6"]
        more = ["train", "tiny.toml", "--data", "texts", "--out"]
        result = self.fem(*more, "second", *init)
        self.assertEqual(result.returncode, 0, result.stderr)
        last = {name: json.loads(self.saved(name, "tokenizer.json")) for name in ("first", "second")}
        self.assertEqual(last["first"], last["second"])
        self.assertLess(self.losses("second")[1], self.losses("first")[1] - 1)
        # Without the first model, which it no longer needs.
        for path in (self.folder / "second" / "checkpoints").glob("step-00000012"):
            shutil.rmtree(path)
        before = self.result("second")
        (self.folder / "second" / "result.json").unlink()
        (self.folder / "first").rename(self.folder / "gone")
        result = self.fem("train", "second", "--resume", "--plain")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.result("second"), before)

        init[1] = "gone"
        self.assert_error(self.fem(*more, "wide", *init, "--set", "model.n_embd=64"), "model/n_embd is 32 in", "but 64")
        self.assert_error(self.fem(*more, "deep", *init, "--set", "model.n_layer=3"), "model/n_layer is 2 in", "but 3")
        self.assert_error(self.fem(*more, "both", *init, *pieces), "--init-from brings the tokenizer of its model")
        init[1] = "texts"
        self.assert_error(self.fem(*more, "none", *init), "texts/tokenizer.json cannot be read")

    def test_a_flipped_bit_anywhere_in_a_checkpoint_is_found(self):
        self.assertEqual(self.train("run", "--plain").returncode, 0)
        newest = self.folder / "run" / "checkpoints" / "step-00000012"
        chance = random.Random(0)
        for path in sorted(newest.iterdir()):
            whole = path.read_bytes()
            for _ in range(3):
                flipped = bytearray(whole)
                flipped[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
                path.write_bytes(flipped)
                damaged = [self.train("run", "--resume", "--plain", "--set", "train.steps=13")]
                if path.name in ("config.json", "model.safetensors", "tokenizer.json"):
                    damaged.append(self.fem("generate", "run", "--prompt", "a", "--max-tokens", 1))
                for result in damaged:
                    self.assert_error(result, str(newest.relative_to(self.folder)), "step")
            path.write_bytes(whole)
        (newest / "model.safetensors").write_bytes(b"")
        self.assert_error(self.fem("train", "run", "--resume"), "add --resume-from 11")
        result = self.fem("train", "run", "--resume-from", 11, "--plain")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Goes on after step 11", result.stdout)
        self.assertTrue((newest.parent / "aside-step-00000012").is_dir())
        self.assertEqual(self.fem("generate", "run", "--prompt", "a", "--max-tokens", 1).returncode, 0)


if __name__ == "__main__":
    main(NUMBERS)
