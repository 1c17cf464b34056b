"""How likely texts are, many at once in packed rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fem._inference import inference
from fem.tokenizer import Tokenizer

if TYPE_CHECKING:
    from fem.language_model import LanguageModel

BATCH_TOKENS = 4096
LOGITS_AT_ONCE = 1 << 23  # 32 MB in float32


class Likelihood(NamedTuple):
    """How likely a continuation is."""

    log_probability: float
    """The sum over its tokens, in nats; at most 0."""
    greedy: bool
    """Whether each of its tokens is the likeliest."""


class Scored(NamedTuple):
    """Tokens of which those from `start` on are scored; start >= 1."""

    tokens: list[int]
    start: int


def pair(tokenizer: Tokenizer, context: str, continuation: str) -> Scored:
    """A separator, context and continuation."""
    if not continuation:
        raise ValueError(f"loglikelihood: expected a continuation, got an empty one after the context {context!r}")
    before, whole = tokenizer.encode(context), tokenizer.encode(context + continuation)
    common = next((n for n, (a, b) in enumerate(zip(before, whole)) if a != b), min(len(before), len(whole)))
    # A token may reach over the border of the two, even over all of the continuation.
    start = min(common, len(whole) - 1)
    return Scored([tokenizer.separator, *whole], 1 + start)


def likelihoods(model: LanguageModel, sequences: Sequence[Scored], batch_tokens: int) -> list[Likelihood]:
    """Of the scored tokens of every sequence."""
    if batch_tokens < 1:
        raise ValueError(f"loglikelihood: expected batch_tokens of at least 1, got {batch_tokens}")
    with inference(model):
        return [likelihood for row in _rows(sequences, batch_tokens) for likelihood in _of_row(model, row)]


def _rows(sequences: Sequence[Scored], batch_tokens: int) -> Iterator[list[Scored]]:
    row: list[Scored] = []
    filled = 0
    for sequence in sequences:
        length = len(sequence.tokens) - 1
        if row and filled + length > batch_tokens:
            yield row
            row, filled = [], 0
        row.append(sequence)
        filled += length
    if row:
        yield row


def _of_row(model: LanguageModel, row: list[Scored]) -> Iterator[Likelihood]:
    device = model.embedding.weight.device
    # The last token of a sequence predicts nothing.
    lengths = [len(sequence.tokens) - 1 for sequence in row]
    borders = torch.tensor([0, *lengths]).cumsum(0)
    tokens = torch.tensor([[token for sequence in row for token in sequence.tokens[:-1]]], device=device)
    hidden = model.hidden(tokens, cu_seqlens=borders.to(device, torch.int32))[0]
    scored = [hidden[end - (length + 1 - s.start) : end] for s, length, end in zip(row, lengths, borders[1:].tolist())]
    targets = torch.tensor([token for s in row for token in s.tokens[s.start :]], device=device)
    nats, greedy = _scores(model, torch.cat(scored), targets)
    counts = [len(part) for part in scored]
    for some_nats, some_greedy in zip(torch.split(nats, counts), torch.split(greedy, counts)):
        yield Likelihood(-some_nats.sum().item(), bool(some_greedy.all()))


def _scores(model: LanguageModel, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The nats of every target, float64, and whether it is the likeliest token."""
    nats, greedy = [], []
    at_once = max(LOGITS_AT_ONCE // model.config.vocab_size, 1)
    for some_hidden, some_targets in zip(torch.split(hidden, at_once), torch.split(targets, at_once)):
        logits = model.logits(some_hidden).float()
        nats.append(functional.cross_entropy(logits, some_targets, reduction="none").double())
        greedy.append(logits.argmax(-1) == some_targets)
    return torch.cat(nats), torch.cat(greedy)
