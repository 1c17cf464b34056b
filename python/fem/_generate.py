"""Text out of a model, a token at a time."""

from __future__ import annotations

import codecs
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fem._inference import inference
from fem._model_state import LanguageModelState
from fem.tokenizer import Tokenizer

if TYPE_CHECKING:
    from fem.language_model import LanguageModel

# A prompt is read in pieces of so many tokens: what a piece needs besides the state stays bounded.
PIECE = 2048


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
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)
        object.__setattr__(self, "stop", stops)
        _check(self.max_tokens >= 0, f"max_tokens of 0 or more, got {self.max_tokens}")
        _check(0 <= self.temperature < math.inf, f"a temperature of 0 (greedy) or more, got {self.temperature}")
        _check(self.top_k is None or self.top_k >= 1, f"top_k of 1 or more, got {self.top_k}; None keeps every token")
        _check(self.top_p is None or 0 < self.top_p <= 1, f"top_p above 0 and at most 1, got {self.top_p}")
        _check(
            0 < self.repetition_penalty < math.inf,
            f"a repetition_penalty above 0 (1 changes nothing), got {self.repetition_penalty}",
        )
        _check(all(stops), "stop strings that are not empty, got an empty one")


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
    writers = [TextWriter(tokenizer, tuple(options.stop)) for _ in prompts]
    alive = [True] * len(prompts)
    for row, token in _new_tokens(model, prompts, options, tokenizer.separator, alive):
        if text := writers[row].write(token):
            yield row, text
        alive[row] = alive[row] and not writers[row].stopped
    for row, writer in enumerate(writers):
        if text := writer.finish():
            yield row, text


def generate_tokens(model: LanguageModel, prompts: Tensor, options: GenerateOptions) -> list[Tensor]:
    """The new tokens of each row; the separator, if one ended the row, is the last."""
    _check(prompts.dim() == 2 and prompts.shape[1] > 0, f"tokens [B, T], T at least 1, got {list(prompts.shape)}")
    _check(not options.stop, "stop strings only for prompts of text, got some for tokens")
    rows: list[list[int]] = [[] for _ in range(len(prompts))]
    end = None if model.tokenizer is None else model.tokenizer.separator
    for row, token in _new_tokens(model, prompts.tolist(), options, end, [True] * len(rows)):
        rows[row].append(token)
    return [torch.tensor(row, dtype=prompts.dtype, device=prompts.device) for row in rows]


class TextWriter:
    """Text out of tokens as they come: whole characters only, ended before a stop string."""

    def __init__(self, tokenizer: Tokenizer, stops: tuple[str, ...]) -> None:
        self.stopped = False
        self._tokenizer = tokenizer
        self._stops = stops
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""  # may be the beginning of a stop string

    def write(self, token: int) -> str:
        """The text that is certain now."""
        return self._certain(self._decoder.decode(self._tokenizer.piece(token)))

    def finish(self) -> str:
        """The rest."""
        if self.stopped:
            return ""
        text = self._certain(self._decoder.decode(b"", final=True))
        return text if self.stopped else text + self._held

    def _certain(self, new: str) -> str:
        text = self._held + new
        found = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        begun = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - begun :]
        return text[: len(text) - begun]


def _overlap(text: str, stop: str) -> int:
    """How much of the text's end is the beginning of stop."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


def _new_tokens(
    model: LanguageModel, prompts: Sequence[list[int]], options: GenerateOptions, end: int | None, alive: list[bool]
) -> Iterator[tuple[int, int]]:
    """(row, token) of every living row in turn. A row dies with the token `end`, or when the caller clears it."""
    state = LanguageModelState()
    rows = list(range(len(prompts)))
    choosers = [Chooser(options, row, prompt, model.config.vocab_size) for row, prompt in enumerate(prompts)]
    device = model.embedding.weight.device
    tokens: list[int] = []
    for step in range(options.max_tokens):
        if not rows:
            return
        with inference(model):
            if step == 0:
                logits = _read(model, prompts, state)
            else:
                logits = model(torch.tensor(tokens, device=device)[:, None], state=state)[:, -1]
            tokens = [choosers[row].choose(some) for row, some in zip(rows, logits.cpu())]
        for row, token in zip(rows, tokens):
            alive[row] = alive[row] and token != end
            yield row, token
        kept = [place for place, row in enumerate(rows) if alive[row]]
        if len(kept) < len(rows):
            rows, tokens = [rows[place] for place in kept], [tokens[place] for place in kept]
            state = state.select(torch.tensor(kept, dtype=torch.int64, device=device))


def _read(model: LanguageModel, prompts: Sequence[list[int]], state: LanguageModelState) -> Tensor:
    """The logits after each prompt, [B, vocab_size]; shorter prompts are padded on the left."""
    device = model.embedding.weight.device
    longest = max(map(len, prompts))
    tokens = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts], device=device)
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    mask = torch.arange(longest, device=device) >= longest - lengths[:, None]
    padded = not bool(mask.all())
    for piece, real in zip(torch.split(tokens, PIECE, 1), torch.split(mask, PIECE, 1)):
        hidden = model.hidden(piece, mask=real if padded else None, state=state)
    return model.logits(hidden[:, -1])


class Chooser:
    """Draws the tokens of one row. Its random numbers depend on the seed and the row alone."""

    def __init__(self, options: GenerateOptions, row: int, prompt: list[int], vocab_size: int) -> None:
        self._options = options
        self._generator = torch.Generator().manual_seed(random.Random(f"{options.seed}/{row}").getrandbits(63))
        self._seen = torch.zeros(vocab_size, dtype=torch.bool)
        if all(0 <= token < vocab_size for token in prompt):  # if not, the model says so
            self._seen[prompt] = True

    def choose(self, logits: Tensor) -> int:
        """The next token after logits [vocab_size]."""
        o, logits = self._options, logits.double()
        if not logits.isfinite().all():
            raise ValueError("generate: expected finite logits, but the model's are not; its parameters may be broken")
        if o.repetition_penalty != 1:
            penalised = torch.where(logits > 0, logits / o.repetition_penalty, logits * o.repetition_penalty)
            logits = torch.where(self._seen, penalised, logits)
        token = int(logits.argmax() if o.temperature == 0 else self._draw(logits / o.temperature))
        self._seen[token] = True
        return token

    def _draw(self, logits: Tensor) -> Tensor:
        # Of two that are equally likely the earlier token goes first.
        logits, order = logits.sort(descending=True, stable=True)
        probability = logits[: self._options.top_k].softmax(0)
        if self._options.top_p is not None:
            likelier = probability.cumsum(0) - probability  # what the tokens before hold together
            probability = probability.where(likelier < self._options.top_p, 0)
        return order[torch.multinomial(probability, 1, generator=self._generator)]


def _check(holds: bool, expected: str) -> None:
    if not holds:
        raise ValueError(f"generate: expected {expected}")
