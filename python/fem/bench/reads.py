"""The reads alone, against torch's attention of the same total width and against their definitions, compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fem import ops
from fem.bench.cases import COMPILED, Case, Shape, Side, forward_and_training

BETA = 1.95  # where the layer's beta starts
LOG_DECAY = -0.01  # a memory of a hundred tokens
RANK = 16  # ssm_rank's default
CASES = 2  # of a prior and shape

Read = Callable[..., Sequence[Tensor | None]]


def cases(priors: Sequence[str], shapes: Sequence[Shape], opponents: Sequence[str]) -> Iterator[Case]:
    for prior in priors:
        for shape in shapes:
            inputs, read, definition = read_of(prior, shape)
            others = {}
            if "sdpa" in opponents:
                others["torch sdpa"] = _attention_of(shape)
            if "compile" in opponents and definition is not None:
                torch.compiler.reset()
                others[COMPILED] = _side(inputs, torch.compile(definition, dynamic=False))
            yield from forward_and_training(f"{prior} {shape.name}", _side(inputs, read), others)


def read_of(prior: str, shape: Shape) -> tuple[list[Tensor], Read, Read | None]:
    """Inputs as a layer would give them, the read, and its definition unless that is a loop over the tokens."""
    width = shape.width // shape.heads
    value = _projected(shape, width // 2)
    beta = torch.full(value.shape[2:], BETA)
    if prior == "softmax":
        return [_projected(shape, width), _projected(shape, width), value, beta], ops.softmax_read, softmax_definition
    if prior in ("linear", "gla"):
        query, key = (_projected(shape, width).relu() + 1e-6 for _ in range(2))
        decay = [torch.full(value.shape[:3], LOG_DECAY)] if prior == "gla" else []
        return [query, key, value, beta, *decay], _linear_read, linear_definition
    if prior == "rnn_softmax":
        return [torch.randn_like(value), value, beta], ops.aft_read, aft_definition
    if prior == "rnn_decay":
        return [value, beta, torch.full_like(value, LOG_DECAY)], ops.decay_read, decay_definition
    delta, by_token = torch.full_like(value, 0.03), (*value.shape[:2], RANK)
    response = [-_positive(*beta.shape, RANK), _positive(*by_token), _positive(*by_token), _positive(*beta.shape)]
    return [value, beta, delta, *response], _ssm_read, None


def softmax_definition(query: Tensor, key: Tensor, value: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("bthk,bshk->bhts", query, key) * query.shape[-1] ** -0.5
    return _read(scores.masked_fill(~_visible(scores), float("-inf")).softmax(-1), value, beta)


def linear_definition(
    query: Tensor, key: Tensor, value: Tensor, beta: Tensor, log_decay: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    weights = torch.einsum("bthk,bshk->bhts", query, key)
    visible = _visible(weights)
    if log_decay is not None:
        total = log_decay.cumsum(1).transpose(1, 2)
        between = total[..., :, None] - total[..., None, :]
        weights = weights * between.masked_fill(~visible, 0).exp()
    weights = weights * visible
    return _read(weights / weights.sum(-1, keepdim=True), value, beta)


def aft_definition(key: Tensor, value: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    weights = (key - key.amax(1, keepdim=True)).exp()
    total = weights.cumsum(1)
    mean = (weights * value).cumsum(1) / total
    return mean, ((weights * (beta * value).exp()).cumsum(1) / total).log() / beta


def decay_definition(value: Tensor, beta: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    # exp(G_t - G_i) is exp(-G_i) up to a factor that the normalisation takes out.
    return aft_definition(-log_decay.cumsum(1), value, beta)


def _read(prior: Tensor, value: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    pair = torch.cat([value, (beta * value).exp()], dim=-1).transpose(1, 2)
    mean, exponential = (prior @ pair).transpose(1, 2).chunk(2, dim=-1)
    return mean, exponential.log() / beta


def _visible(scores: Tensor) -> Tensor:
    return torch.ones(scores.shape[-2:], dtype=torch.bool).tril()


def _linear_read(
    query: Tensor, key: Tensor, value: Tensor, beta: Tensor, log_decay: Tensor | None = None
) -> ops.RecurrentRead:
    return ops.linear_read(query, key, value, beta, log_decay=log_decay)


def _ssm_read(
    value: Tensor, beta: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor
) -> ops.RecurrentRead:
    return ops.ssm_read(value, beta, delta=delta, A=A, B=B, C=C, D=D)


def _attention_of(shape: Shape) -> Side:
    def attention(*inputs: Tensor) -> Sequence[Tensor]:
        query, key, value = (x.transpose(1, 2) for x in inputs)
        return [scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)]

    return _side([_projected(shape, shape.width // shape.heads) for _ in range(3)], attention)


def _side(inputs: list[Tensor], read: Read) -> Side:
    inputs = [x.detach().requires_grad_() for x in inputs]
    return Side(inputs, lambda: [output for output in read(*inputs)[:2] if output is not None])


def _projected(shape: Shape, width: int) -> Tensor:
    """[B, T, H, width], a view of [B, T, H * width]: what a projection leaves."""
    rows = torch.randn(shape.batch, shape.length, shape.heads * width)
    return rows.view(shape.batch, shape.length, shape.heads, width)


def _positive(*shape: int) -> Tensor:
    return torch.rand(shape) + 0.1
