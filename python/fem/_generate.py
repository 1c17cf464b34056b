"""Text out of a model, a token at a time. Which token comes next is decided in C++, for every language alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fem import _library  # noqa: F401
from fem._inference import inference
from fem._model_state import LanguageModelState
from fem.tokenizer import Tokenizer

if TYPE_CHECKING:
    from fem.language_model import LanguageModel

# A prompt is read in pieces of so many tokens: what a piece needs besides the state stays bounded.
PIECE = int(torch.classes.fem.Generation.prompt_piece())


@dataclass(frozen=True)
class GenerateOptions:
    """How `LanguageModel.generate` continues a text."""

    max_tokens: int = 200
    """At most so many new tokens."""
    temperature: float = 1.0
    """0: greedy."""
    top_k: int | None = None
    """Only the k likeliest tokens."""
    top_p: float | None = None
    """Only the likeliest tokens that hold this much probability."""
    repetition_penalty: float = 1.0
    """Above 1: tokens seen before become less likely (Keskar et al. 2019)."""
    stop: str | Sequence[str] = ()
    """The text ends before any of these."""
    seed: int = 0
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
    generation = _generation(model, prompts, options, tokenizer.separator)
    writers = [TextWriter(tokenizer, prompt[-1], tuple(options.stop)) for prompt in prompts]
    for row, token in _new_tokens(model, prompts, generation):
        if text := writers[row].write(token):
            yield row, text
        if writers[row].stopped:
            generation.stop(row)
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
    for row, token in _new_tokens(model, given, _generation(model, given, options, end)):
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


def _generation(model: LanguageModel, prompts: Sequence[list[int]], options: GenerateOptions, end: int | None) -> Any:
    return torch.classes.fem.Generation(options._in_cpp(end), list(prompts), model.token_count)


def _new_tokens(model: LanguageModel, prompts: Sequence[list[int]], generation: Any) -> Iterator[tuple[int, int]]:
    """(row, token) of every row that is being written in turn."""
    device = model.embedding.weight.device
    state = LanguageModelState()
    tokens: list[int] = []
    while rows := generation.rows():
        with inference(model):
            if not tokens:
                logits, state = _read(model, prompts, state)
            else:
                logits = model(torch.tensor(tokens, device=device)[:, None], state=state)[:, -1]
        yield from zip(rows, generation.choose(logits))
        kept = generation.advance()
        if 0 < len(kept) < len(rows):
            state = state.select(torch.tensor(kept, dtype=torch.int64, device=device))
        tokens = generation.newest()


def _read(
    model: LanguageModel, prompts: Sequence[list[int]], state: LanguageModelState
) -> tuple[Tensor, LanguageModelState]:
    """The logits after each prompt, [B, token_count], and what the model remembers of them."""
    device = model.embedding.weight.device
    tokens, mask, places = torch.classes.fem.Generation.padded(list(prompts))
    for begin in range(0, tokens.shape[1], PIECE):
        real = None if mask is None else mask[:, begin : begin + PIECE].to(device)
        hidden = model.hidden(tokens[:, begin : begin + PIECE].to(device), mask=real, state=state)
    logits = model.logits(hidden[:, -1])
    if places is None:
        return logits, state
    places = places.to(device)
    return logits[places], state.select(places)
