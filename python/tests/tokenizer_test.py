"""Tokenizers: what is decoded is what was encoded."""

import copy
import io
import json
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fem
import pytest
from fem import ByteTokenizer, LanguageModel, SentencePieceTokenizer, load_tokenizer
from fem._generate import TextWriter
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from small_models import model_config

TEXTS = [
    "",
    "a",
    " two  spaces, \ttabs\t and\n\nlines\n",
    "naïve — 日本語 🙂 \u2581 \u2581\u2581x",
    "0123456789 if x == 1:\r\n        return x\n",
]


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Trains a model of SentencePiece as C++ does, with what is asked for; returns its file."""

    def trained(**settings: Any) -> Path:
        text = Path(__file__).read_text()
        ours = {"byte_fallback": True, "normalization_rule_name": "identity", "add_dummy_prefix": False}
        ours |= {"remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True}
        model = io.BytesIO()
        SentencePieceTrainer.train(
            sentence_iterator=iter(text.splitlines()),
            model_writer=model,
            model_type="bpe",
            vocab_size=400,
            user_defined_symbols=["\n", "\t"],
            minloglevel=2,
            **(ours | settings),
        )
        path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
        path.write_bytes(model.getvalue())
        return path

    return trained


@pytest.fixture(scope="session")
def model_file(train: Callable[..., Path]) -> Path:
    return train()


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(text: str, model_file: Path) -> None:
    for tokenizer in (ByteTokenizer(), SentencePieceTokenizer(model_file)):
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == text
        assert tokenizer.decode([tokenizer.separator, *tokens]) == text
        assert all(0 <= token < tokenizer.vocab_size for token in tokens)


def test_sentencepiece_finds_words(model_file: Path) -> None:
    tokenizer = SentencePieceTokenizer(model_file)
    assert len(tokenizer.encode("tokenizer.decode(tokens)")) < 12
    assert tokenizer.vocab_size == 400 and tokenizer.separator == 1
    assert tokenizer.piece(tokenizer.encode(" return")[0]).startswith(b" ")


def test_models_that_add_a_space_take_it_back(train: Callable[..., Path]) -> None:
    tokenizer = SentencePieceTokenizer(train(add_dummy_prefix=True, bos_id=-1))
    assert tokenizer.decode(tokenizer.encode("return x")) == "return x"
    assert tokenizer.separator == 2


def test_folders_keep_the_tokenizer(tmp_path: Path, model_file: Path) -> None:
    tokenizer = SentencePieceTokenizer(model_file)
    LanguageModel(model_config(vocab_size=400), tokenizer).save_pretrained(tmp_path)
    again = LanguageModel.from_pretrained(tmp_path).tokenizer
    assert again is not None and again.fingerprint == tokenizer.fingerprint
    assert again.encode(TEXTS[3]) == tokenizer.encode(TEXTS[3])
    assert (tmp_path / "tokenizer.model").read_bytes() == model_file.read_bytes()
    described = json.loads((tmp_path / "tokenizer.json").read_text())
    assert described == {"type": "sentencepiece", "fingerprint": tokenizer.fingerprint}


def test_wrong_tokenizers_are_refused(tmp_path: Path, train: Callable[..., Path], model_file: Path) -> None:
    SentencePieceTokenizer(model_file).save(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(train(split_digits=True).read_bytes())
    with pytest.raises(ValueError, match="is sentencepiece:[0-9a-f]{16}, but tokenizer.json beside it belongs to "):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(ValueError, match="tokenizer.model is not a SentencePiece model"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").unlink()
    with pytest.raises(ValueError, match="tokenizer.model cannot be read: No such file"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="neither a piece that begins a text nor one that ends it"):
        SentencePieceTokenizer(train(bos_id=-1, eos_id=-1))
    with pytest.raises(ValueError, match="expected tokens of 0 to 256, got 257"):
        ByteTokenizer().decode([257])


def test_the_package_sentencepiece_is_not_needed(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    assert SentencePieceTokenizer(model_file).vocab_size == 400


@pytest.mark.parametrize("settings", [{}, {"add_dummy_prefix": True}], ids=["ours", "with a space"])
def test_tokens_are_those_of_the_package(train: Callable[..., Path], settings: dict[str, Any]) -> None:
    path = train(**settings)
    tokenizer, package = SentencePieceTokenizer(path), SentencePieceProcessor(model_file=str(path))
    for text in (*TEXTS[:3], TEXTS[4], "return x", "naïve — 日本語 🙂"):
        assert tokenizer.encode(text) == package.encode(text)
        assert tokenizer.decode(package.encode(text)) == text


def test_bytes_that_are_no_text_are_replaced_as_python_does() -> None:
    chance = random.Random(0)
    leads = [0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC1, 0xC3, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    tokenizer = ByteTokenizer()
    for _ in range(2000):
        data = bytes(chance.choices(leads, k=chance.randint(0, 8)))
        writer = TextWriter(tokenizer, tokenizer.separator, ())
        streamed = "".join(writer.write(byte) for byte in data) + writer.finish()
        assert streamed == data.decode(errors="replace") == tokenizer.decode(data)


def test_a_first_word_loses_the_space_that_a_model_adds(train: Callable[..., Path]) -> None:
    tokenizer = SentencePieceTokenizer(train(add_dummy_prefix=True))
    word = tokenizer.encode("return")[0]
    assert tokenizer.piece(word).startswith(b" ")
    assert tokenizer.continuation(tokenizer.separator, word) == tokenizer.piece(word)[1:]
    assert tokenizer.continuation(word, word) == tokenizer.piece(word)


def test_trains_a_model_of_its_own(tmp_path: Path) -> None:
    text = Path(__file__).read_text()
    tokenizer = SentencePieceTokenizer.train([text], 600)
    assert tokenizer.vocab_size == 600 and len(tokenizer.encode(text)) < len(text) / 2
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint
    with pytest.raises(ValueError, match="5000 pieces cannot be trained on 11 bytes of text"):
        SentencePieceTokenizer.train(["hello world"], 5000)


def test_copies_and_pickles(model_file: Path) -> None:
    for tokenizer in (ByteTokenizer(), SentencePieceTokenizer(model_file)):
        for again in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
            assert type(again) is type(tokenizer) and again.fingerprint == tokenizer.fingerprint
            assert again.encode(TEXTS[3]) == tokenizer.encode(TEXTS[3])


def test_surrogates_are_no_text(model_file: Path) -> None:
    for tokenizer in (ByteTokenizer(), SentencePieceTokenizer(model_file)):
        with pytest.raises(ValueError, match="surrogates not allowed"):
            tokenizer.encode("a\ud800")


def test_the_library_is_the_wheels_own(model_file: Path) -> None:
    SentencePieceTokenizer(model_file)
    mapped = {
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libsentencepiece" in line
    }
    carried = Path(fem.__file__).parent / "lib"
    assert {Path(path).name for path in mapped} == {"libsentencepiece.so.0", "libsentencepiece_train.so.0"}
    assert {Path(path).parent for path in mapped} == {carried}
