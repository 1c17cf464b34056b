"""Text to tokens and back: bytes, or SentencePiece. The tokenizers are those of C++, and so are their files."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from fem import _library  # noqa: F401

__all__ = ["ByteTokenizer", "SentencePieceTokenizer", "Tokenizer", "load_tokenizer"]


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
        """What a token is inside a text, in UTF-8 (perhaps a part of a character); nothing for the separator."""

    @abstractmethod
    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes tokenizer.json, and tokenizer.model for SentencePiece."""

    def continuation(self, last: int, token: int) -> bytes:
        """What a token adds to a text that ends with the token `last`."""
        return self.piece(token)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; U+FFFD where they are no UTF-8."""
        return b"".join(self.piece(token) for token in tokens).decode(errors="replace")


class _LibraryTokenizer(Tokenizer):
    """A tokenizer of the C++ library."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.vocab_size = int(handle.vocab_size())
        self.separator = int(handle.separator())
        self.fingerprint = str(handle.fingerprint())

    def encode(self, text: str) -> list[int]:
        text.encode()  # refuses surrogates
        return list(self._handle.encode(text))

    def decode(self, tokens: Iterable[int]) -> str:
        return _bytes(self._handle.decode(list(tokens))).decode(errors="replace")

    def continuation(self, last: int, token: int) -> bytes:
        return _bytes(self._handle.continuation(last, token))

    def piece(self, token: int) -> bytes:
        return self.continuation(token, token)  # a first one may lose its space

    def save(self, folder: str | os.PathLike[str]) -> None:
        self._handle.save(os.fspath(folder))

    def __getstate__(self) -> Tensor:
        model: Tensor = self._handle.model()
        return model

    def __setstate__(self, model: Tensor) -> None:
        _LibraryTokenizer.__init__(self, torch.classes.fem.Tokenizer.of_model(model))


class ByteTokenizer(_LibraryTokenizer):
    """The bytes of UTF-8 are the tokens; 256 is the separator."""

    def __init__(self) -> None:
        super().__init__(torch.classes.fem.Tokenizer.bytes())


class SentencePieceTokenizer(_LibraryTokenizer):
    """A model of SentencePiece; the separator is its bos piece, or else its eos.

    Args:
        path: the model's file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(torch.classes.fem.Tokenizer.sentencepiece(os.fspath(path)))

    @classmethod
    def train(cls, texts: Sequence[str], vocab_size: int) -> SentencePieceTokenizer:
        """A byte-fallback BPE model of vocab_size pieces, as `fem train --tokenizer sentencepiece:N` makes it."""
        return cls._of(torch.classes.fem.Tokenizer.train_sentencepiece(list(texts), vocab_size))

    @classmethod
    def _of(cls, handle: Any) -> SentencePieceTokenizer:
        tokenizer = cls.__new__(cls)
        _LibraryTokenizer.__init__(tokenizer, handle)
        return tokenizer


def load_tokenizer(folder: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a model folder."""
    handle = torch.classes.fem.Tokenizer.load(os.fspath(folder))
    return ByteTokenizer() if handle.fingerprint() == "bytes" else SentencePieceTokenizer._of(handle)


def _bytes(data: Tensor) -> bytes:
    return bytes(data.tolist())
