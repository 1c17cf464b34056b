"""The fem command from outside: help, errors, exit codes, files. Usage: command_test.py path/to/fem"""

import functools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

FEM = ""
TREE = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("VIRTUAL_ENV", TREE / ".venv")) / "bin" / "python"
PRIORS = ("softmax", "linear", "gla", "rnn_softmax", "rnn_decay", "mamba")
DIALECTS = ("corrected", "reference", "paper")
TINY = ["experiment", "argmax", "--preset", "smoke", "--dim", "8", "--heads", "2", "--length", "12", "--batch", "16"]


def fem(*words, cwd=None):
    return subprocess.run([FEM, *map(str, words)], capture_output=True, text=True, timeout=300, cwd=cwd)


@functools.cache
def completion_script(shell):
    return fem("completion", shell).stdout


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def assert_error(self, result, code, *parts):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertTrue(result.stderr.startswith("fem: "), result.stderr)
        self.assertNotIn("Exception raised from", result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def test_every_help_has_examples(self):
        for words in (
            [],
            ["train"],
            ["sweep"],
            ["eval"],
            ["generate"],
            ["letters"],
            ["experiment"],
            ["experiment", "argmax"],
            ["experiment", "cost"],
            ["experiment", "energy"],
            ["experiment", "energy", "lm"],
            ["experiment", "energy", "lis"],
            ["experiment", "energy", "toy"],
            ["experiment", "energy", "bridge"],
            ["bench"],
            ["bench", "read"],
            ["bench", "layer"],
            ["bench", "decode"],
            ["bench", "energy"],
            ["bench", "growth"],
            ["bench", "stream"],
            ["completion"],
        ):
            result = fem(*words, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn("Example", result.stdout, words)
            self.assertEqual([line for line in result.stdout.splitlines() if len(line) > 80], [], words)
            self.assertNotIn("tiny", result.stdout)

    def test_info_names_versions_and_hardware(self):
        result = fem("info", "--threads", 1)
        self.assertEqual(result.returncode, 0)
        info = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
        self.assertEqual(info["torch"].split("+")[0], "2.13.0")
        self.assertIn(info["kernels"], ("generic", "avx2", "avx512"))
        self.assertIn(info["kernels"], info["built"].split(", "))
        self.assertIn(info["bfloat16"].split()[0], ("float32", "AMX", "AVX512_BF16"))
        self.assertEqual(info["threads"], "1")
        expected = f"fem {info['fem']} (torch {info['torch']}, {info['kernels']})"
        self.assertEqual(fem("--version").stdout.strip(), expected)

    def test_letters_choose_widths_of_equal_parameters(self):
        for prior in PRIORS:
            for dialect in DIALECTS:
                options = ("--n-embd", 256, "--n-head", 4, "--set", f"prior_type={prior}")
                result = fem("letters", *options, "--set", f"dialect={dialect}", "--json")
                self.assertEqual(result.returncode, 0, result.stderr)
                rows = {o["letters"]: o for o in map(json.loads, result.stdout.splitlines())}
                self.assertEqual(list(rows), ["none", "C", "CL", "CLT", "CLTG", "L", "LT", "LTG"])
                full = rows["CLTG"]["parameters"]
                for letters, o in rows.items():
                    mixer, has = o["mixer"], [c in letters for c in "CLTG"]
                    parts = ("use_conv", "use_lse", "use_temperature", "use_outer_gate")
                    self.assertEqual([mixer.get(part, True) for part in parts], has, letters)
                    self.assertEqual(mixer.get("use_inner_gate", True), letters not in ("L", "CL"), letters)
                    self.assertEqual((o["full_parameters"], mixer["fem_dim"] % 16), (full, 0))
                    # The nearest multiple of 4 heads: a step has at most six weights a channel for D and for H_c.
                    self.assertLessEqual(abs(o["parameters"] - full), 16 * 6 * (256 + 64 + 1) / 2, letters)
        table = fem("letters", "none", "CLTG").stdout.splitlines()
        self.assertEqual([row.split()[0] for row in table[-2:]], ["none", "CLTG"])
        self.assertTrue(table[-1].rstrip().endswith("100.00 %"), table[-1])
        self.assert_error(fem("letters", "GTLC"), 1, 'letters: expected one of ""', '"LTG"', 'got "GTLC"')
        self.assert_error(fem("letters", "--set", "dialect=thesis"), 1, "expected dialect to be one of")

    def completions(self, *words):
        """What bash proposes for the last of the words."""
        ask = 'eval "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fem; printf "%s\\n" "${COMPREPLY[@]}"'
        command = ["bash", "-c", ask, completion_script("bash"), *words]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.split()

    def test_bash_completes_what_the_help_lists(self):
        places = [["fem"]]
        for place in places:
            text = fem(*place[1:], "--help").stdout
            part = {name: text.partition(f"\n{name}:\n")[2].partition("\n\n")[0] for name in ("Options", "Subcommands")}
            options = re.findall(r"^  .*?(--[\w-]+)", part["Options"], re.MULTILINE)
            commands = re.findall(r"^  (\w+)  ", part["Subcommands"], re.MULTILINE)
            self.assertIn("--help", options)
            proposed = self.completions(*place, "-")
            self.assertLessEqual(set(options), set(proposed), place)
            self.assertIn("--threads", proposed, "options of fem itself stand after every command")
            if commands:
                self.assertEqual(self.completions(*place, ""), commands, place)
            places += [[*place, command] for command in commands]
        self.assertGreater(len(places), 12)

    def test_bash_completes_choices_and_leaves_files_to_itself(self):
        self.assertEqual(self.completions("fem", "experiment", "argmax", "--preset", "m"), ["mini"])
        self.assertEqual(self.completions("fem", "completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(self.completions("fem", "gen"), ["generate"])
        self.assertEqual(self.completions("fem", "train", "--threads", "2", "--res"), ["--resume", "--resume-from"])
        self.assertEqual(self.completions("fem", "train", "--data", ""), [])
        self.assertEqual(self.completions("fem", "train", "runs"), [])
        recipes = sorted(path.stem for path in (TREE / "configs/lm").glob("1m-*.toml"))
        self.assertEqual(self.completions("fem", "train", "1m-"), recipes)
        self.assertEqual(self.completions("fem", "train", "argmax/d"), ["argmax/demo"])
        self.assert_error(fem("completion", "tcsh"), 2, "tcsh")

    def test_other_shells_accept_their_scripts(self):
        for shell in ("zsh", "fish"):
            script = completion_script(shell)
            for part in ("fem bench read", "shapes", "Continue a text with a trained model"):
                self.assertIn(part, script)
            if shutil.which(shell):
                checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, timeout=60)
                self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_fish_completes_recipes(self):
        if not shutil.which("fish"):
            self.skipTest("no fish here")
        ask = 'source $argv[1]; complete -C "fem train 1m-fem-s"; complete -C "fem experiment argmax --preset mi"'
        (self.folder / "fem.fish").write_text(completion_script("fish"))
        command = ["fish", "--no-config", "-c", ask, str(self.folder / "fem.fish")]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=self.folder)
        proposed = [line.partition("\t")[0] for line in result.stdout.splitlines()]
        self.assertEqual(proposed, ["1m-fem-softmax", "mini"], result.stderr)

    def test_train_help_lists_every_setting_with_its_value(self):
        text = fem("train", "--help").stdout
        for setting in ("train.steps=1000", "train.learning_rate=0.0004", "data.length=256", "model.n_layer=0"):
            self.assertIn(f"  {setting} ", text)
        header = (TREE / "include/fem/options.h").read_text()
        names = re.findall(r'visit\("(\w+)", o\.', header.partition("visit_mixer_options")[2])
        self.assertGreater(len(names), 25)
        for name in set(names) - {"n_embd", "n_head"}:
            self.assertRegex(text, rf"(?m)^  model\.mixer\.{name}(=\S+)?( |$)")
        self.assertRegex(text, r"(?m)^  model\.mixer\.prior_type=softmax$")
        self.assertNotIn("model.mixer.n_embd", text)

    def test_misspelt_words_are_told_what_was_meant(self):
        self.assert_error(fem("train", "1m-fem-softmax", "--dat", "a.txt"), 2, "--dat; did you mean --data?")
        self.assert_error(fem("genrate", "x"), 2, "genrate; did you mean generate?")
        self.assert_error(fem("train", "1m-fem-sofmax"), 1, "got '1m-fem-sofmax'; did you mean 1m-fem-softmax?")
        for change, meant in {
            "train.lerning_rate=1": "learning_rate",
            "trian.steps=1": "train",
            "model.mixer.prior_typ=gla": "prior_type",
            "data.tokeniser=bytes": "tokenizer",
        }.items():
            result = fem("train", "1m-fem-softmax", "--parameters", "--set", change)
            self.assert_error(result, 1, "unknown field", f"; did you mean {meant}?")

    def test_decoding_is_measured_in_little_memory_unless_asked(self):
        self.assertIn("--shapes LIST=D1,D8 ", fem("bench", "decode", "--help").stdout)
        result = fem("bench", "decode", "--priors", "gla", "--shapes", "tiny", "--repeats", 1)
        self.assertRegex(result.stdout, r"^tiny takes about 0\.0 GB of memory\n")

    def test_usage_errors_exit_with_2(self):
        self.assert_error(fem(), 2, "subcommand")
        self.assert_error(fem("bench"), 2, "subcommand")
        self.assert_error(fem("fly"), 2, "fly")
        self.assert_error(fem("experiment", "sing"), 2, "sing")
        self.assert_error(fem("experiment", "argmax", "--speed", 3), 2, "--speed")
        self.assert_error(fem("experiment", "argmax", "--steps", "many"), 2, "--steps")
        self.assert_error(fem("experiment", "argmax", "--preset", "huge"), 2, "huge")
        self.assert_error(fem("info", "--threads", 0), 2, "--threads")

    def test_bad_values_exit_with_1_and_one_sentence(self):
        self.assert_error(fem("experiment", "argmax", "--prior", "lstm"), 1, 'got "lstm"')
        self.assert_error(fem("experiment", "argmax", "--dim", 10), 1, "dim divisible by heads")
        self.assert_error(fem("experiment", "argmax", "--mixers", "fem,lstm"), 1, 'got "lstm"')
        self.assert_error(fem("bench", "read", "--shapes", "S9"), 1, "got 'S9'")

    def test_bench_json_has_one_object_per_case(self):
        cases = {
            "read": ("forward", "backward", "memory"),
            "layer": (
                *("forward", "forward+backward", "forward without C", "memory"),
                *("forward E/16", "forward+backward E/16"),  # with the paper's conditioner width
            ),
            "decode": ("step",),
        }
        for bench, parts in cases.items():
            names = {f"{prior} tiny {part}" for prior in PRIORS for part in parts}
            path = self.folder / f"{bench}.jsonl"
            result = fem("bench", bench, "--shapes", "tiny", "--repeats", 3, "--json", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            objects = lines(path)
            self.assertEqual({o["case"] for o in objects}, names)
            for o in objects:
                self.assertEqual(o["bench"], bench)
                self.assertTrue(o["opponent"].startswith("torch sdpa"))
                unit = "bytes" if o["case"].endswith("memory") else "ms"
                self.assertGreater(o[f"ours_{unit}"], 0)
                self.assertAlmostEqual(o["ratio"], o[f"ours_{unit}"] / o[f"opponent_{unit}"])
                self.assertEqual(o["repeats"], 1 if unit == "bytes" else 3)
                self.assertLessEqual({"ours_ms", "opponent_ms"}, o.keys())
                self.assertIn(o["case"], result.stdout)

    def test_bench_json_says_how_near_to_the_roof_and_on_what(self):
        path = self.folder / "layer.jsonl"
        result = fem("bench", "layer", "--shapes", "tiny", "--repeats", 1, "--json", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"Roof: \d+ GFLOP/s, \d+\.\d GB/s measured in this run")
        self.assertTrue(all(len(line) <= 110 for line in result.stdout.splitlines()), result.stdout)
        for o in lines(path):
            for peak in ("peak_gflops", "peak_gbytes_per_s"):
                self.assertTrue(0 < o[peak] < math.inf)
            self.assertEqual(o["configuration"]["shape"]["length"], 48)
            self.assertEqual(o["configuration"]["mixer"]["use_conv"], not o["case"].endswith("without C"))
            self.assertLessEqual({"cpu", "cores", "isa", "threads", "caches"}, o["machine"].keys())
            if o["kind"] != "memory":
                self.assertIsNone(o["bytes"])
                self.assertAlmostEqual(o["gflops"], o["flops"] / o["ours_ms"] / 1e6)
                self.assertAlmostEqual(
                    o["opponent_work"]["gflops"], o["opponent_work"]["flops"] / o["opponent_ms"] / 1e6
                )

    def test_bench_report_is_one_page_a_machine(self):
        figures, out = self.folder / "figures", self.folder / "out"
        figures.mkdir()
        out.mkdir()
        for bench in ("read", "layer", "decode"):
            words = ("--priors", "softmax,mamba", "--shapes", "tiny", "--repeats", 1)
            result = fem("bench", bench, *words, "--json", figures / f"{bench}.jsonl")
            (figures / f"{bench}.txt").write_text(result.stdout)
        script = TREE / "scripts" / "bench_report.py"
        made = subprocess.run([PYTHON, script, figures, out], capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        files = {path.suffix: path for path in out.iterdir()}
        self.assertEqual({path.stem for path in files.values()}, {files[".md"].stem})
        self.assertEqual(files[".png"].read_bytes()[1:4], b"PNG")
        self.assertEqual({o["bench"] for o in lines(files[".jsonl"])}, {"read", "layer", "decode"})
        page = files[".md"].read_text()
        for part in (
            "softmax tiny forward+backward",
            "mamba tiny step",
            "GFLOP/s",
            "GB/s",
            files[".png"].name,
            "ssm_rank",
        ):
            self.assertIn(part, page)

    def test_training_speed_is_measured_and_recorded(self):
        script, record = TREE / "benchmarks" / "train_speed.py", self.folder / "speed.jsonl"
        command = [PYTHON, script, "--size", "500k", "--rounds", "1", "--steps", "4", "--json", record]
        result = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("FEM-softmax / PyTorch", result.stdout)
        (line,) = lines(record)
        self.assertEqual(line["tokens_of_a_step"], 16 * 256)
        self.assertEqual([len(rounds) for rounds in line["seconds_of_a_step"].values()], [1, 1, 1])

    def test_bench_growth_fits_an_exponent_for_every_read(self):
        path = self.folder / "growth.jsonl"
        result = fem("bench", "growth", "--longest", 2048, "--repeats", 1, "--json", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        objects = lines(path)
        self.assertEqual([o["read"] for o in objects], [*PRIORS, "torch sdpa"])
        for o in objects:
            self.assertEqual(o["lengths"], [1024, 2048])
            for kind in ("forward", "training"):
                short, long = o[f"{kind}_ms"]
                self.assertAlmostEqual(o[f"{kind}_exponent"], math.log2(long / short), places=6)
            self.assertIn(o["read"] + " forward+backward", result.stdout)
        self.assert_error(fem("bench", "growth", "--priors", "lstm"), 2, "lstm")

    def test_bench_energy_tells_what_a_curvature_costs_beside_attention(self):
        path = self.folder / "energy.jsonl"
        result = fem("bench", "energy", "--shapes", "tiny", "--repeats", 1, "--json", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        objects = lines(path)
        stated = {o["read"]: o["stated"] for o in objects}
        light = {"newton_light, diagonal": 1.5, "newton_light, isotropic": 1}
        full = dict.fromkeys(("newton, by keys", "newton, by values"), 2)
        self.assertEqual(stated, {"attention": 1, "torch sdpa": 1} | full | light)
        self.assertEqual([o["kind"] for o in objects], [k for k in ("forward", "backward", "decode") for _ in stated])
        for o in objects:
            self.assertAlmostEqual(o["ratio"], o["ms"] / o["core_ms"], places=6)
            self.assertIn(o["read"], result.stdout)
        self.assert_error(fem("bench", "energy", "--shapes", "S9"), 1, "S9")

    def test_bench_stream_tells_speed_and_memory_early_and_late(self):
        path = self.folder / "stream.jsonl"
        result = fem("bench", "stream", "--tokens", 20000, "--priors", "gla,softmax", "--window", 64, "--json", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        objects = lines(path)
        self.assertEqual([o["layer"] for o in objects], ["gla", "softmax, window 64"])
        for o in objects:
            self.assertEqual(o["tokens"], 20000)
            self.assertEqual(len(o["resident_bytes"]), 10)
            self.assertEqual(o["growth_bytes"], max(o["resident_bytes"]) - o["early"]["resident_bytes"])
            self.assertIn(o["layer"], result.stdout)
        self.assertEqual(objects[0]["early"]["state_bytes"], objects[0]["late"]["state_bytes"])
        self.assert_error(fem("bench", "stream", "--tokens", 5), 2, "--tokens")

    def test_bench_says_when_it_cannot_write(self):
        result = fem("bench", "read", "--shapes", "tiny", "--repeats", 1, "--json", self.folder / "no" / "x.jsonl")
        self.assert_error(result, 1, "--json")

    def test_argmax_prints_the_table_and_draws(self):
        result = fem(*TINY, "--steps", 20, "--out", "out", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ("fem", "mean", "chance", "~100 %", "1-2 %", "Order of the mixers"):
            self.assertIn(part, result.stdout)
        self.assertEqual(len(lines(self.folder / "out" / "results.jsonl")), 2)
        self.assertIn("argmax.png", result.stdout)
        self.assertEqual((self.folder / "out" / "argmax.png").read_bytes()[1:4], b"PNG")

    def test_argmax_runs_with_every_prior(self):
        for prior in PRIORS:
            result = fem(*TINY, "--steps", 3, "--prior", prior, "--out", prior, cwd=self.folder)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"{prior} prior", result.stdout)
            for o in lines(self.folder / prior / "results.jsonl"):
                self.assertEqual(o["config"]["prior"], prior)
                self.assertTrue(math.isfinite(o["validation_loss"]))

    def test_interrupted_run_resumes_to_the_same_result(self):
        long = [*TINY, "--mixers", "fem", "--steps", "600"]
        process = subprocess.Popen(
            [FEM, *long, "--out", self.folder / "cut"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        curve = self.folder / "cut" / "curve.jsonl"
        while process.poll() is None and not (curve.exists() and curve.read_text().count("\n") >= 3):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
        self.assertEqual(process.returncode, -signal.SIGINT)  # a shell says 130
        self.assertIn("--resume", out)
        self.assertFalse((self.folder / "cut" / "results.jsonl").exists())

        resumed = fem(*long, "--out", self.folder / "cut", "--resume")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(fem(*long, "--out", self.folder / "whole").returncode, 0)
        a, b = (lines(self.folder / name / "results.jsonl")[0] for name in ("cut", "whole"))
        for key in ("validation_loss", "accuracy", "config", "parameters"):
            self.assertEqual(a[key], b[key])

        again = fem(*long, "--out", self.folder / "cut", "--resume")
        self.assertIn("1 of 1 runs are already complete", again.stdout)
        self.assertEqual(len(lines(self.folder / "cut" / "results.jsonl")), 1)


if __name__ == "__main__":
    FEM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
