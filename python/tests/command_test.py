"""The command that the wheel brings: it trains by a recipe's name in an empty folder, and Python takes what it made."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fem import LanguageModel, SentencePieceTokenizer, __version__
from sentencepiece import SentencePieceProcessor
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SMALL = {"train.steps": 3, "train.batch": 2, "data.length": 32, "train.warmup_steps": 1}


def command(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "fem"
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "LD_LIBRARY_PATH")}
    return subprocess.run(
        [program, *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_it_is_the_packages_version(tmp_path: Path) -> None:
    done = command(tmp_path, "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"fem {__version__} (torch 2.13.")


def train(folder: Path, out: str, tokenizer: str, **settings: Any) -> LanguageModel:
    text = "".join(f"{i} and {i} are {2 * i}.\n" for i in range(60))
    (folder / "sums.txt").write_text(text)
    fields = SMALL | {"model.n_layer": 1, "data.cache": "cache"} | settings
    words = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    given = ("--data", "sums.txt", "--out", out, "--tokenizer", tokenizer, "--plain")
    done = command(folder, "train", "500k-fem-softmax", *given, *words)
    assert done.returncode == 0, done.stderr
    return LanguageModel.from_pretrained(folder / out)


@pytest.fixture(scope="module", params=["bytes", "sentencepiece:280"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LanguageModel]:
    """A run of `fem train`, as Python loads it."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, train(folder, "run", str(request.param))


def test_it_trains_and_generates_in_an_empty_folder(trained: tuple[Path, LanguageModel]) -> None:
    folder, model = trained
    for words, options in (([], {}), (["--temperature", 0], {"temperature": 0}), (["--top-k", 9], {"top_k": 9})):
        for prompt in ("3 and", "", " ", "naïve 日本"):
            done = command(folder, "generate", "run", "--prompt", prompt, "--max-tokens", 9, "--quiet", *words)
            text = prompt + model.generate(prompt, max_tokens=9, **options) + "\n"
            assert done.stdout == text.replace("\r\n", "\n").replace("\r", "\n"), done.stderr
    newest = folder / "run/checkpoints/step-00000003"
    for file in sorted(newest.iterdir()):
        if file.name.startswith(("optimizer", "trainer_state")):
            continue  # not the model's
        whole = file.read_bytes()
        file.write_bytes(whole[:9] + bytes([whole[9] ^ 16]) + whole[10:])
        with pytest.raises(ValueError, match="step-00000003/.* is damaged"):
            LanguageModel.from_pretrained(folder / "run")
        file.write_bytes(whole)
    unknown = command(folder, "train", "no-such-recipe", "--data", "sums.txt")
    assert unknown.returncode == 1 and "500k-fem-softmax" in unknown.stderr


def test_its_checkpoint_gives_bitwise_the_same_logits(trained: tuple[Path, LanguageModel]) -> None:
    folder, model = trained
    tokens = torch.tensor([model.encode((folder / "sums.txt").read_text())[:200]])
    checkpoint = next((folder / "run/checkpoints").iterdir())
    torch.ops.fem.save_safetensors(str(folder / "in.safetensors"), {"tokens": tokens}, {})
    program = os.environ["FEM_RUN_LANGUAGE_MODEL"]
    subprocess.run([program, checkpoint, folder / "in.safetensors", folder / "out.safetensors"], check=True)
    with torch.no_grad():
        assert torch.equal(model(tokens), torch.ops.fem.load_safetensors(str(folder / "out.safetensors"))["logits"])


def test_it_scores_as_python_does(trained: tuple[Path, LanguageModel]) -> None:
    folder, model = trained
    text = (folder / "sums.txt").read_text()
    done = command(folder, "eval", "run", "--data", "sums.txt", "--json", "scores.jsonl", "--length", 4096)
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "scores.jsonl").read_text())
    tokens = len(model.encode(text)) - 1
    assert found["tokens"] == tokens
    assert found["loss"] == pytest.approx(-model.loglikelihood("", text).log_probability / tokens, rel=1e-5)


def test_tokens_are_those_of_every_language(trained: tuple[Path, LanguageModel]) -> None:
    folder, model = trained
    text = (folder / "sums.txt").read_text()
    expected = list(text.encode())
    if isinstance(model.tokenizer, SentencePieceTokenizer):
        file = next((folder / "run").glob("checkpoints/*/tokenizer.model"))
        expected = SentencePieceProcessor(model_file=str(file)).encode(text)
    assert model.require_tokenizer().encode(text) == expected


def test_a_seed_begins_with_the_same_weights(tmp_path: Path) -> None:
    # Steps so small that float32 does not see them.
    model = train(tmp_path, "run", "bytes", **{"train.seed": 7, "train.learning_rate": 1e-300})
    torch.manual_seed(7)
    fresh = LanguageModel(model.config).state_dict()
    assert fresh.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, fresh[name]), name


def test_tensorboard_reads_its_curves(trained: tuple[Path, LanguageModel]) -> None:
    folder, _ = trained
    events = EventAccumulator(str(folder / "run/tensorboard")).Reload()
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    written = {
        (f"{line['kind']}/{name}", line["step"]): value
        for line in lines
        for name, value in line.items()
        if name not in ("kind", "step") and isinstance(value, (int, float))
    }
    read = {(tag, event.step): event.value for tag in events.Tags()["scalars"] for event in events.Scalars(tag)}
    assert read.keys() == written.keys() and {("train/loss", 3), ("validation/loss", 3)} <= read.keys()
    for key, value in read.items():
        assert value == pytest.approx(written[key], rel=1e-6), key
