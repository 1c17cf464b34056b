"""Text out of a model, a token at a time. The tokens are made in C++, for every language alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fem import _library  # noqa: F401
from fem.tokenizer import Tokenizer

if TYPE_CHECKING:
    from fem.language_model import LanguageModel

MAX_TOKENS, TEMPERATURE, REPETITION_PENALTY, SEED = torch.classes.fem.GenerateOptions.defaults()


@dataclass(frozen=True)
class GenerateOptions:
    """How `LanguageModel.generate` continues a text."""

    max_tokens: int = MAX_TOKENS
    """At most so many new tokens."""
    temperature: float = TEMPERATURE
    """0: greedy, 1: as learned."""
    top_k: int | None = None
    """Only the k likeliest tokens."""
    top_p: float | None = None
    """Only the likeliest tokens that hold this much probability."""
    repetition_penalty: float = REPETITION_PENALTY
    """Above 1: tokens seen before become less likely (Keskar et al. 2019)."""
    stop: str | Sequence[str] = ()
    """The text ends before any of these."""
    seed: int = SEED
    """The same seed gives the same text."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))
        self._in_cpp()  # checks
        torch.classes.fem.CertainText(list(self.stop))

    def _in_cpp(self, end: int | None = None) -> Any:
        """As C++ takes them; a row stops after the token `end`."""
        seed = (self.seed + 2**63) % 2**64 - 2**63  # the same bits as an int64
        return torch.classes.fem.GenerateOptions(
            self.max_tokens, self.temperature, self.top_k, self.top_p, self.repetition_penalty, end, seed
        )


def generate_texts(model: LanguageModel, prompts: Sequence[list[int]], options: GenerateOptions) -> list[str]:
    """What follows each prompt, which begins with the separator."""
    texts = [""] * len(prompts)
    for row, text in stream_texts(model, prompts, options):
        texts[row] += text
    return texts


def stream_texts(
    model: LanguageModel, prompts: Sequence[list[int]], options: GenerateOptions
) -> Iterator[tuple[int, str]]:
    """(row, new text) as it is made."""
    tokenizer = model.require_tokenizer()
    generator = model._generator(prompts, options, tokenizer.separator)
    writers = [TextWriter(tokenizer, prompt[-1], tuple(options.stop)) for prompt in prompts]
    for row, token in _new_tokens(generator):
        if text := writers[row].write(token):
            yield row, text
        if writers[row].stopped:
            generator.stop(row)
    for row, writer in enumerate(writers):
        if text := writer.finish():
            yield row, text


def generate_tokens(model: LanguageModel, prompts: Tensor, options: GenerateOptions) -> list[Tensor]:
    """The new tokens of each row; the separator, if one ended the row, is the last."""
    if prompts.dim() != 2 or prompts.shape[1] == 0:
        raise ValueError(f"generate: expected tokens [B, T], T at least 1, got {list(prompts.shape)}")
    if options.stop:
        raise ValueError("generate: expected stop strings only for prompts of text, got some for tokens")
    end = None if model.tokenizer is None else model.tokenizer.separator
    given: list[list[int]] = prompts.tolist()
    rows: list[list[int]] = [[] for _ in given]
    for row, token in _new_tokens(model._generator(given, options, end)):
        rows[row].append(token)
    return [torch.tensor(row, dtype=prompts.dtype, device=prompts.device) for row in rows]


class TextWriter:
    """Text out of tokens as they come: whole characters only, ended before a stop string."""

    def __init__(self, tokenizer: Tokenizer, last: int, stops: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._last = last  # the token before the first that is written
        self._text = torch.classes.fem.CertainText(list(stops))

    @property
    def stopped(self) -> bool:
        return bool(self._text.stopped())

    def write(self, token: int) -> str:
        """The text that is certain now."""
        added = self._tokenizer.continuation(self._last, token)
        self._last = token
        return str(self._text.add(torch.tensor(list(added), dtype=torch.uint8)))

    def finish(self) -> str:
        """The rest."""
        return str(self._text.finish())


def _new_tokens(generator: Any) -> Iterator[tuple[int, int]]:
    """(row, token) of every row that is being written in turn."""
    while made := generator.next():
        yield from made
