"""Generation: cached and batched gives what one text at a time and nothing remembered gives."""

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fem import ByteTokenizer, GenerateOptions, LanguageModel
from fem.tokenizer import Tokenizer
from small_models import KINDS, random_model

PROMPTS = ["To be, or not to be", "x", "", "that is the"]


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> LanguageModel:
    """A model whose greedy text does not just repeat a token."""
    model = random_model(str(request.param), tie_embeddings=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
    return model


def uncached(model: LanguageModel, prompt: str, max_tokens: int) -> list[int]:
    tokens = model.encode(prompt)
    begin = len(tokens)
    with torch.no_grad():
        while len(tokens) < begin + max_tokens and (len(tokens) == begin or tokens[-1] != 256):
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[begin:]


def test_greedy_text_is_that_of_the_whole_text_read_again(model: LanguageModel) -> None:
    expected = [uncached(model, prompt, 12) for prompt in PROMPTS]
    assert len({token for tokens in expected for token in tokens}) > 4
    together = model.generate(PROMPTS, max_tokens=12, temperature=0)
    for prompt, tokens, text in zip(PROMPTS, expected, together):
        given = torch.tensor([model.encode(prompt)])
        assert model.generate(given, max_tokens=12, temperature=0)[0].tolist() == tokens
        assert text == bytes(token for token in tokens if token < 256).decode(errors="replace")


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    model = random_model("gla")
    alone = model.generate(PROMPTS[0], max_tokens=20, seed=3)
    assert model.generate(PROMPTS, max_tokens=20, seed=3)[0] == alone
    first, second = model.generate([PROMPTS[0]] * 2, max_tokens=20, seed=3)
    assert first == alone != second
    assert model.generate(PROMPTS[0], max_tokens=20, seed=4) != alone
    assert model.generate([]) == [] and model.generate("a", max_tokens=0) == ""


def test_long_prompts_are_read_in_pieces() -> None:
    model = random_model("rnn_decay")
    prompts = ["to be or not to be " * 250, "x"]  # more than two pieces of 2,048 tokens
    expected = [uncached(model, prompt, 3) for prompt in prompts]
    options = GenerateOptions(max_tokens=3, temperature=0)
    generator = model._generator([model.encode(prompt) for prompt in prompts], options, 256)
    made: list[list[int]] = [[], []]
    while rows := generator.next():
        for row, token in rows:
            made[row].append(token)
    assert made == expected


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}])
def test_narrow_draws_are_greedy(narrow: dict[str, Any]) -> None:
    model = random_model()
    greedy = model.generate(PROMPTS, max_tokens=10, temperature=0)
    assert model.generate(PROMPTS, max_tokens=10, **narrow) == greedy
    assert model.generate(PROMPTS, max_tokens=10) != greedy


def constant(logits: dict[int, float]) -> LanguageModel:
    """A model with the same logits after every text; tokens not named are all but impossible."""
    model = random_model(n_layer=1, tie_embeddings=False)
    assert model.head is not None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.weight[:, 0] = 1
        model.norm.weight[0] = 1 / 32**0.5
        model.head.weight[:, 0] = -1000
        for token, value in logits.items():
            model.head.weight[token, 0] = value
    return model


def shares(text: str) -> dict[str, float]:
    return {letter: text.count(letter) / len(text) for letter in sorted(set(text))}


def test_draws_follow_the_probabilities() -> None:
    model = constant({ord("a"): 3.0, ord("b"): 2.0, ord("c"): 1.0})

    def drawn(**options: Any) -> dict[str, float]:
        return shares("".join(model.generate([""] * 20, max_tokens=50, **{"temperature": 1.0, **options})))

    assert drawn() == pytest.approx({"a": 0.665, "b": 0.245, "c": 0.090}, abs=0.05)
    assert drawn(temperature=0.5) == pytest.approx({"a": 0.867, "b": 0.117, "c": 0.016}, abs=0.05)
    assert drawn(top_k=2) == pytest.approx({"a": 0.731, "b": 0.269}, abs=0.05)
    assert drawn(top_p=0.7) == pytest.approx({"a": 0.731, "b": 0.269}, abs=0.05)
    assert drawn(top_p=0.6) == {"a": 1}


def test_what_was_seen_is_penalised() -> None:
    model = constant({ord("a"): 3.0, ord("b"): 2.0, ord("c"): 1.6, ord("d"): -0.5, ord("e"): -0.6})
    assert model.generate("", max_tokens=4, temperature=0) == "aaaa"
    # 3 / 1.7 = 1.76, 2 / 1.7 = 1.18; nobody is penalised twice
    assert model.generate("", max_tokens=4, temperature=0, repetition_penalty=1.7) == "abaa"
    assert model.generate("a", max_tokens=4, temperature=0, repetition_penalty=1.7) == "baaa"


def test_a_predicted_separator_ends_the_text() -> None:
    model = constant({256: 5.0, ord("a"): 5.0})
    texts = model.generate([""] * 50, max_tokens=100)
    lengths = [len(text) for text in texts]
    assert set("".join(texts)) == {"a"} and min(lengths) == 0 and 3 <= max(lengths) < 20
    tokens = model.generate(torch.full((50, 1), 256), max_tokens=100)
    assert [len(row) - 1 for row in tokens] == lengths and all(row[-1] == 256 for row in tokens)


class Said:
    """In place of the library's Generator: makes the bytes of a text, again and again."""

    def __init__(self, said: bytes, max_tokens: int) -> None:
        self.left = [said[place % len(said)] for place in range(max_tokens)]

    def next(self) -> list[tuple[int, int]]:
        return [(0, self.left.pop(0))] if self.left else []

    def stop(self, row: int) -> None:
        self.left = []


class Script(LanguageModel):
    """Says the same text always."""

    def __init__(self, said: str) -> None:
        super().__init__(random_model().config, ByteTokenizer())
        self.said = said.encode()

    def _generator(self, prompts: Any, options: GenerateOptions, end: int | None) -> Said:
        return Said(self.said, options.max_tokens)


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ((), "naïve — 日本 naï"),
        ("—", "naïve "),
        (["本 n", "日"], "naïve — "),
        ("本 n", "naïve — 日"),
        (["本本", "ïv"], "na"),
        ("n", ""),
        ("ïï", "naïve — 日本 naï"),
    ],
)
def test_text_ends_before_a_stop_string(stop: Any, text: str) -> None:
    options: dict[str, Any] = {"max_tokens": len("naïve — 日本 naï".encode()), "stop": stop}
    assert Script("naïve — 日本 ").generate("", **options) == text
    pieces = list(Script("naïve — 日本 ").stream("", **options))
    assert "".join(pieces) == text
    assert all(pieces)


def test_streams_whole_characters_as_they_come() -> None:
    assert list(Script("é日").stream("", max_tokens=5)) == ["é", "日"]
    assert list(Script("é日").stream("", max_tokens=4)) == ["é", "\ufffd"]
    assert list(Script("ab.").stream("", max_tokens=6, stop="b.c")) == ["a", "b.a", "b."]


def test_the_models_mode_comes_back() -> None:
    model = random_model(mixer={"dropout": 0.5}).train()
    text = model.generate("a", max_tokens=5, temperature=0)
    assert model.training and text == model.eval().generate("a", max_tokens=5, temperature=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": -1}, "expected max_tokens of 0 or more, got -1"),
        ({"temperature": -0.1}, "expected a temperature of 0"),
        ({"temperature": float("nan")}, "expected a temperature of 0"),
        ({"top_k": 0}, "expected top_k of 1 or more, got 0"),
        ({"top_p": 1.5}, "expected top_p above 0 and at most 1, got 1.5"),
        ({"repetition_penalty": 0}, "expected a repetition_penalty above 0"),
        ({"stop": ["a", ""]}, "stop strings that are not empty"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^generate: .*{message}|^generate: {message}"):
        random_model().generate("a", **options)


def test_what_cannot_be_continued_is_refused() -> None:
    model = random_model()
    with pytest.raises(ValueError, match=r"expected tokens \[B, T\], T at least 1, got \[2, 0\]"):
        model.generate(torch.zeros(2, 0, dtype=torch.int64))
    with pytest.raises(ValueError, match="expected tokens from 0 to 256, got 400"):
        model.generate(torch.tensor([[400]]))
    with pytest.raises(ValueError, match="stop strings only for prompts of text"):
        model.generate(torch.tensor([[1]]), stop="a")
    model.get_parameter("norm.weight").data.fill_(float("nan"))
    with pytest.raises(ValueError, match="expected finite logits"):
        model.generate("a")


def in_cpp(model: LanguageModel, folder: Path, *words: Any) -> str:
    """What `fem generate` writes after an empty prompt."""
    program = Path(sys.executable).parent / "fem"
    model.save_pretrained(folder)
    words = ("generate", folder, "--prompt", "", "--max-tokens", 40, "--quiet", *words)
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.9, "seed": 2**63 + 5}, {"repetition_penalty": 1.4}])
def test_drawn_text_is_that_of_the_command(options: dict[str, Any], tmp_path: Path) -> None:
    # All logits are well apart, so that rounding cannot change a draw.
    model = constant({ord(letter): 3 - index / 2 for index, letter in enumerate("abcdefgh")})
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    text = model.generate("", max_tokens=40, **options)
    assert len(set(text)) > 2
    assert in_cpp(model, tmp_path, *words) == text + "\n"


def test_what_cannot_be_is_never_written(tmp_path: Path) -> None:
    never = {token: -math.inf for token in range(257)}
    model = constant(never | {ord("a"): 1.0, ord("b"): 0.0})
    for options in ({}, {"temperature": 5.0}, {"top_k": 100}, {"top_p": 1.0}, {"repetition_penalty": 3.0}):
        text = model.generate("", max_tokens=40, **options)
        assert set(text) == {"a", "b"}
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        assert in_cpp(model, tmp_path, *words) == text + "\n"
    assert model.loglikelihood("", "c") == (-math.inf, False)
    assert model.loglikelihood("", "a") == (pytest.approx(-math.log(1 + math.exp(-1)), rel=1e-3), True)
    model = constant(never)
    with pytest.raises(ValueError, match="^generate: expected finite logits, but the model's are not"):
        model.generate("")
    with pytest.raises(ValueError, match="^likelihood: the model's logits are not numbers"):
        model.loglikelihood("", "c")


def test_the_defaults_are_those_of_the_command() -> None:
    program = Path(sys.executable).parent / "fem"
    shown = subprocess.run([program, "generate", "--help"], capture_output=True, text=True, check=True).stdout
    for name in ("max_tokens", "temperature", "repetition_penalty", "seed"):
        [default] = re.findall(rf"--{name.replace('_', '-')} [NX]=(\S+)", shown)
        assert float(default) == getattr(GenerateOptions(), name)


class Letters(Tokenizer):
    """A tokenizer of the user's own: a-z, and 26 for the end."""

    vocab_size, separator, fingerprint = 27, 26, "letters"

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def piece(self, token: int) -> bytes:
        return b"" if token == 26 else bytes([token + ord("a")])

    def save(self, folder: Any) -> None:
        raise NotImplementedError


def test_a_tokenizer_of_the_users_own() -> None:
    model = random_model("gla", vocab_size=27)
    model.tokenizer = Letters()
    text = model.generate("abc", max_tokens=12, temperature=0)
    tokens = model.generate(torch.tensor([[26, 0, 1, 2]]), max_tokens=12, temperature=0)[0].tolist()
    assert text == model.tokenizer.decode(tokens) and text.isalpha()
    nats, greedy = model.loglikelihood("abc", text)
    assert greedy and nats < 0
