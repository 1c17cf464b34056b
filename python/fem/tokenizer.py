"""Text to tokens and back: bytes, or SentencePiece (`pip install "fem[text]"`). The files are those of C++."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path

from fem._files import read_bytes, write_atomically

__all__ = ["ByteTokenizer", "SentencePieceTokenizer", "Tokenizer", "load_tokenizer"]

SPACE_MARK = "\u2581"  # how pieces of SentencePiece spell a space


class Tokenizer(ABC):
    """What a language model needs of a tokenizer."""

    vocab_size: int
    """Tokens are 0 ... vocab_size - 1."""
    separator: int
    """Stands before every document: a text begins with it, and predicting it ends the text."""
    fingerprint: str
    """The same for two tokenizers only if they are the same."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without a separator."""

    @abstractmethod
    def piece(self, token: int) -> bytes:
        """What a token adds to a text, in UTF-8 (perhaps a part of a character); nothing for the separator."""

    @abstractmethod
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes tokenizer.json, and tokenizer.model for SentencePiece."""

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; U+FFFD where they are no UTF-8."""
        return b"".join(self.piece(token) for token in tokens).decode(errors="replace")


class ByteTokenizer(Tokenizer):
    """The bytes of UTF-8 are the tokens; 256 is the separator."""

    vocab_size = 257
    separator = 256
    fingerprint = "bytes"

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        return _of(PIECES_OF_BYTES, token)

    def save(self, folder: str | os.PathLike[str]) -> None:
        _write_json(Path(folder), {"type": "bytes"})


PIECES_OF_BYTES = (*(bytes([byte]) for byte in range(256)), b"")


class SentencePieceTokenizer(Tokenizer):
    """A model of SentencePiece; the separator is its bos piece, or else its eos.

    Args:
        path: the model's file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError as error:
            raise ImportError(f'tokenizer: {path} needs SentencePiece: pip install "fem[text]"') from error
        self._model = read_bytes(Path(path), "tokenizer")
        try:
            self._processor = SentencePieceProcessor(model_proto=self._model)
            self.vocab_size = self._processor.get_piece_size()
        except Exception as error:
            raise ValueError(f"tokenizer: {path} is not a SentencePiece model") from error
        if self.vocab_size == 0:
            raise ValueError(f"tokenizer: {path} is not a SentencePiece model, or one without any piece")
        bos, eos = self._processor.bos_id(), self._processor.eos_id()
        self.separator = bos if bos >= 0 else eos
        if self.separator < 0:
            raise ValueError(
                f"tokenizer: {path} has neither a piece that begins a text nor one that ends it; one of them must part "
                "the documents"
            )
        self.fingerprint = f"sentencepiece:{_fnv1a(self._model):016x}"
        self._pieces = [self._surface(token) for token in range(self.vocab_size)]
        self._adds_space = self._processor.encode("a", out_type=str)[0].startswith(SPACE_MARK)
        mark = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in SPACE_MARK.encode()]
        self._mark = mark if all(self._processor.is_byte(token) for token in mark) else None

    def encode(self, text: str) -> list[int]:
        text.encode()  # refuses surrogates
        if self._mark is None or self._adds_space:
            return list(self._processor.encode(text))
        # SentencePiece takes a mark in the text for a space; its bytes keep it.
        first, *rest = (list(self._processor.encode(part)) for part in text.split(SPACE_MARK))
        return first + [token for part in rest for token in self._mark + part]

    def piece(self, token: int) -> bytes:
        return _of(self._pieces, token)

    def decode(self, tokens: Iterable[int]) -> str:
        text = super().decode(tokens)
        return text.removeprefix(" ") if self._adds_space else text

    def save(self, folder: str | os.PathLike[str]) -> None:
        write_atomically(Path(folder) / "tokenizer.model", self._model)
        _write_json(Path(folder), {"fingerprint": self.fingerprint, "type": "sentencepiece"})

    def _surface(self, token: int) -> bytes:
        piece: str = self._processor.id_to_piece(token)
        if self._processor.is_control(token):
            return b""
        if self._processor.is_unknown(token):
            return str(self._processor.decode([token])).encode()
        if self._processor.is_byte(token):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(SPACE_MARK, " ").encode()


def load_tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a model folder."""
    path = Path(folder) / "tokenizer.json"
    try:
        description = json.loads(read_bytes(path, "tokenizer"))
        kind = description["type"]
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError):
        raise ValueError(f'tokenizer: {path} is not a JSON object with a "type"') from None
    if kind == "bytes":
        return ByteTokenizer()
    if kind != "sentencepiece":
        raise ValueError(f'tokenizer: {path}: expected the type "bytes" or "sentencepiece", got {json.dumps(kind)}')
    model = path.with_name("tokenizer.model")
    tokenizer = SentencePieceTokenizer(model)
    if description.get("fingerprint") != tokenizer.fingerprint:
        raise ValueError(
            f"tokenizer: {model} is {tokenizer.fingerprint}, but tokenizer.json beside it belongs to "
            f"{json.dumps(description.get('fingerprint'))}; put the model's own file back"
        )
    return tokenizer


def _of(pieces: Sequence[bytes], token: int) -> bytes:
    if not 0 <= token < len(pieces):
        raise ValueError(f"tokenizer: expected tokens of 0 to {len(pieces) - 1}, got {token}")
    return pieces[token]


def _write_json(folder: Path, description: dict[str, str]) -> None:
    text = json.dumps(description, separators=(",", ":")) + "\n"
    write_atomically(folder / "tokenizer.json", text.encode())


def _fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value
