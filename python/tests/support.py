"""Small mixers, and what "close" means."""

from typing import Any

import torch
from fem import FreeEnergyMixer, FreeEnergyMixerConfig
from torch import Tensor
from torch.func import functional_call, vjp

PRIORS = ("softmax", "linear", "gla", "rnn_softmax", "rnn_decay", "mamba")
DIALECTS = ("corrected", "reference", "paper")
WIDTH, HEADS, TOKENS = 32, 4, 12

# Bounds relative to the largest expected magnitude, as in the C++ tests.
FLOAT64 = 1e-9  # another arrangement of the same formula in float64
FLOAT32_LAYER = 512 * 2.0**-23  # a dozen operators, two normalisations
FLOAT32_GRADIENT = 2048 * 2.0**-23  # and back
# Kernels in bfloat16 against the definitions in bfloat16: error over error. Most gradients are at 1; that of gla's
# beta, a difference of sums in which the rounded free energy stands, is at 3.
TIMES_PLAIN, TIMES_PLAIN_GRADIENT = 2.0, 4.0


def small_config(prior_type: str = "softmax", **fields: Any) -> FreeEnergyMixerConfig:
    sizes = {"n_embd": WIDTH, "n_head": HEADS, "conv_hidden": 8, "ssm_rank": 4}
    return FreeEnergyMixerConfig(**{**sizes, "prior_type": prior_type, **fields})


def random_mixer(
    prior_type: str = "softmax", *, layer_idx: int | None = None, dtype: torch.dtype | None = None, **fields: Any
) -> FreeEnergyMixer:
    """Every parameter random: with its initial values the conditioner would be silent and all scores nearly equal."""
    mixer = FreeEnergyMixer(small_config(prior_type, **fields), layer_idx, dtype=dtype)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_(0.1, 0.3)
    return mixer


def tokens(batch: int = 2, length: int = TOKENS, dtype: torch.dtype | None = None) -> Tensor:
    return torch.randn(batch, length, WIDTH, dtype=dtype)


def gradients(mixer: torch.nn.Module, x: Tensor, **arguments: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """The output, and the gradient of the sum of its squares by every parameter and by x."""
    x = x.detach().clone().requires_grad_()
    mixer.zero_grad()
    y = mixer(x, **arguments)
    y.square().sum().backward()
    assert x.grad is not None
    return y.detach(), {"x": x.grad} | {n: p.grad.clone() for n, p in mixer.named_parameters() if p.grad is not None}


def plain_gradients(mixer: torch.nn.Module, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The same by the operators' definitions, which are what torch.func differentiates."""

    def run(leaves: dict[str, Tensor]) -> Tensor:
        y: Tensor = functional_call(mixer, {n: p for n, p in leaves.items() if n != "x"}, (leaves["x"],))
        return y

    y, backward = vjp(run, {"x": x.detach(), **{n: p.detach() for n, p in mixer.named_parameters()}})
    return y, backward(2 * y)[0]


def error(actual: Tensor, expected: Tensor) -> float:
    """The largest deviation relative to the largest expected magnitude. All zeros prove nothing and are refused."""
    assert actual.shape == expected.shape
    actual, expected = actual.detach().double(), expected.detach().double()
    scale = expected.abs().max().item()
    assert scale > 0, "expected something other than zeros"
    return (actual - expected).abs().max().item() / scale


def gradient_error(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest error over all gradients, each relative to its own largest magnitude."""
    assert actual.keys() == expected.keys()
    return max(error(actual[name], expected[name]) for name in expected)


def times_plain(actual: Tensor, plain: Tensor, exact: Tensor) -> float:
    """How often the root-mean-square error of plain goes into that of actual."""
    return ((actual - exact).square().mean() / (plain - exact).square().mean()).sqrt().item()
