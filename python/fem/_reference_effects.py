"""How much the authors' deviations move the output of a mixer, each measured by running the core itself."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fem.config import Dialect, FreeEnergyMixerConfig
from fem.mixer import FreeEnergyMixer
from fem.state import MixerState

# In float32 their conditioner's envelope has fallen to exp(-40 softplus(0)) = 1e-12 by then.
LOST_AFTER = 40
AUTHORS_WIDTH = 64


@dataclass
class Effects:
    """||y - y'|| / ||y|| over the real tokens, in float64; None where there is nothing to measure."""

    formulas: float | None = None
    """y': dialect "corrected" with the same weights."""
    printed: float | None = None
    """y': dialect "paper" with the same weights, where it has parameters of these shapes."""
    conditioner: float | None = None
    """y': the conditioner's h is 0 at every token after the first 40."""
    padding: float | None = None
    """y': padding as ordinary tokens whose x is 0."""


def measure(mixer: FreeEnergyMixer, x: Tensor, mask: Tensor | None) -> Effects:
    exact, x = deepcopy(mixer).double().eval(), x.detach().double()
    with torch.no_grad():
        y = exact(x, mask)
        effects = Effects(formulas=_relative(y, _in_dialect(exact, "corrected")(x, mask), mask))
        if has_printed_twin(mixer.config):
            effects.printed = _relative(y, _in_dialect(exact, "paper")(x, mask), mask)
        if mixer.config.use_conv and mixer.config.causal:
            effects.conditioner = _of_lost_state(exact, x, mask)
        if mask is not None:
            effects.padding = _of_padding(exact, x, mask)
    return effects


def _relative(y: Tensor, other: Tensor, mask: Tensor | None) -> float:
    if mask is not None:
        y, other = y[mask != 0], other[mask != 0]
    difference = (y - other).norm().item()
    return difference / y.norm().item() if difference > 0 else 0.0


def has_printed_twin(config: FreeEnergyMixerConfig) -> bool:
    """Whether the same weights fit the paper's equations: rnn_softmax and mamba have other shapes there."""
    return config.prior_type in ("softmax", "linear", "gla")


def _in_dialect(mixer: FreeEnergyMixer, dialect: Dialect) -> FreeEnergyMixer:
    # What is unset means something else in another dialect.
    config = replace(mixer.config, dialect=dialect, use_rope=mixer.config.use_rope is not False)
    config.conv_hidden = config.conv_hidden or AUTHORS_WIDTH
    twin = FreeEnergyMixer(config, device="meta", dtype=torch.float64)
    twin.load_state_dict(mixer.state_dict(), strict=True, assign=True)
    return twin.eval()


def _of_lost_state(mixer: FreeEnergyMixer, x: Tensor, mask: Tensor | None) -> float:
    if x.shape[1] <= LOST_AFTER:
        return 0.0
    begin, rest = x[:, :LOST_AFTER], x[:, LOST_AFTER:]
    mask_begin, mask_rest = (None, None) if mask is None else (mask[:, :LOST_AFTER], mask[:, LOST_AFTER:])
    state = MixerState()
    y_begin = mixer(begin, mask_begin, state=state)

    # h starts from 0 and, without an input of its own, stays 0.
    tensors = state.to_tensors()
    lost_state = MixerState.from_tensors(tensors | {"conditioner": torch.zeros_like(tensors["conditioner"])})
    lost = deepcopy(mixer)
    for name, parameter in lost.named_parameters():
        if name.startswith("tdc.fwd.x_f."):
            parameter.zero_()

    y = torch.cat([y_begin, mixer(rest, mask_rest, state=state)], 1)
    return _relative(y, torch.cat([y_begin, lost(rest, mask_rest, state=lost_state)], 1), mask)


def _of_padding(mixer: FreeEnergyMixer, x: Tensor, mask: Tensor) -> float:
    padded = x.masked_fill((mask == 0).unsqueeze(-1), 0)
    return _relative(mixer(x, mask), mixer(padded, torch.ones_like(mask)), mask)
