"""The whole mixer, against a plain causal attention layer and against its definition, compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from fem.bench.cases import COMPILED, Case, Shape, Side, forward_and_training
from fem.config import FreeEnergyMixerConfig, PriorType
from fem.mixer import FreeEnergyMixer

CASES = 3  # of a prior and shape


class AttentionLayer(nn.Module):
    """What a user would pick instead: width D, four projections with biases, rotary positions from a table made once,
    torch's fused attention. It has 4 D^2 + 4 D parameters."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query, self.key, self.value, self.output = (nn.Linear(shape.width, shape.width) for _ in range(4))
        half = shape.width // shape.heads // 2
        angle = torch.outer(torch.arange(shape.length), 10000.0 ** -(torch.arange(half) / half))
        self.cosine = nn.Buffer(angle.cos().repeat_interleave(2, -1)[:, None])
        self.sine = nn.Buffer(torch.stack([-angle.sin(), angle.sin()], -1).flatten(-2)[:, None])

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self._by_head(project(x)) for project in (self.query, self.key, self.value))
        query, key, value = (rows.transpose(1, 2) for rows in (self._rotated(query), self._rotated(key), value))
        read = scaled_dot_product_attention(query, key, value, is_causal=True)
        y: Tensor = self.output(read.transpose(1, 2).flatten(-2))
        return y

    def _by_head(self, rows: Tensor) -> Tensor:
        return rows.view(*rows.shape[:2], self.heads, -1)

    def _rotated(self, x: Tensor) -> Tensor:
        swapped = x.view(*x.shape[:-1], -1, 2).flip(-1).flatten(-2)
        return x * self.cosine + swapped * self.sine


def config_of(prior: PriorType, shape: Shape) -> FreeEnergyMixerConfig:
    """As wide as gives the prior the parameters of the attention layer, up to rounding to whole heads."""
    config = FreeEnergyMixerConfig(n_embd=shape.width, n_head=shape.heads, prior_type=prior)
    if prior == "rnn_softmax":  # six projections of width E
        return replace(config, fem_ratio=2 / 3, p_t_to_fem_ratio=2.0)
    if prior in ("rnn_decay", "mamba"):  # five
        return replace(config, fem_ratio=0.8)
    return config


def cases(priors: Sequence[PriorType], shapes: Sequence[Shape], opponents: Sequence[str]) -> Iterator[Case]:
    for prior in priors:
        for shape in shapes:
            name, config = f"{prior} {shape.name}", config_of(prior, shape)
            without = _side(FreeEnergyMixer(replace(config, use_conv=False)), shape)
            others = {"torch sdpa layer": _side(AttentionLayer(shape), shape)} if "sdpa" in opponents else {}
            others_without = {opponent: side.forward for opponent, side in others.items()}
            if "compile" in opponents and prior == "softmax":  # whose definition a mixer can be asked for
                torch.compiler.reset()
                definition = FreeEnergyMixer(replace(config, softmax_backend="reference"))
                definition.compile(dynamic=False)
                others[COMPILED] = _side(definition, shape)
            yield from forward_and_training(name, _side(FreeEnergyMixer(config), shape), others)
            yield Case(f"{name} forward without C", without.forward, others_without)


def parameter_counts(priors: Sequence[PriorType], shapes: Sequence[Shape]) -> list[list[str]]:
    """A table: how many parameters each side has."""
    rows = [["parameters", "mixer", "mixer without C", "sdpa layer"]]
    for prior in priors:
        for shape in shapes:
            config = config_of(prior, shape)
            mixers = [FreeEnergyMixer(replace(config, use_conv=c), device="meta") for c in (True, False)]
            layers: list[nn.Module] = [*mixers, AttentionLayer(shape)]
            counts = [sum(p.numel() for p in layer.parameters()) for layer in layers]
            rows.append([f"{prior} {shape.name}", *(f"{count:,}" for count in counts)])
    return rows


def _side(layer: nn.Module, shape: Shape) -> Side:
    x = torch.randn(shape.batch, shape.length, shape.width, requires_grad=True)
    return Side([x, *layer.parameters()], lambda: [layer(x)])
