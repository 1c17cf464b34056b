"""How likely texts are, many at once in packed rows. What is scored and how it is packed is decided in C++."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from fem import _library  # noqa: F401
from fem._inference import inference
from fem.tokenizer import Tokenizer

if TYPE_CHECKING:
    from fem.language_model import LanguageModel

BATCH_TOKENS = 4096


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
    """A separator, context and continuation, of which the continuation is scored."""
    context, continuation = torch.classes.fem.ScoredRows.parted_before_space(context, continuation)
    known, whole = tokenizer.encode(context), tokenizer.encode(context + continuation)
    return Scored(*torch.classes.fem.ScoredRows.pair(tokenizer.separator, known, whole))


def likelihoods(model: LanguageModel, sequences: Sequence[Scored], batch_tokens: int) -> list[Likelihood]:
    """Of the scored tokens of every sequence."""
    device = model.embedding.weight.device
    rows = torch.classes.fem.ScoredRows([tuple(one) for one in sequences], batch_tokens, model.token_count)
    with inference(model):
        while rows.next():
            hidden = model.hidden(rows.tokens().to(device), cu_seqlens=rows.cu_seqlens().to(device))[0]
            for part in torch.split(hidden[rows.places().to(device)], rows.at_once()):
                rows.add(model.logits(part))
    return [Likelihood(*result) for result in rows.results()]
