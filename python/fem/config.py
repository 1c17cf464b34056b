"""The options of a mixer."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from fem import _library  # noqa: F401  the checks are the library's

PriorType = Literal["softmax", "linear", "gla", "rnn_softmax", "rnn_decay", "mamba"]
SoftmaxBackend = Literal["auto", "fused", "reference", "sdpa"]
Dialect = Literal["corrected", "reference"]


@dataclass
class FreeEnergyMixerConfig:
    """Fields, names and defaults of the authors' configuration, then ours.

    Wrong or contradictory values raise a ValueError that says what was expected. A mixer reads its configuration when
    it is built; later changes do not reach it.
    """

    n_embd: int
    """Model width D."""
    n_head: int
    """Heads H."""
    fem_dim: int | None = None
    """Value width E; None: `fem_ratio` decides. Rounded to a multiple of 4 n_head."""
    fem_ratio: float = 0.5
    """Value width relative to n_embd."""
    qk_dim: int | None = None
    """Total query (and key) width; None: `p_t_to_fem_ratio` decides. Rounded to a multiple of 2 n_head."""
    p_t_to_fem_ratio: float = 4.0
    """Query plus key width relative to the value width."""
    prior_type: PriorType = "softmax"
    """Selection prior: who may be read, and how likely."""
    softmax_backend: SoftmaxBackend = "auto"
    """Who computes the softmax read: "auto" and "fused" our kernels, "reference" the definition, "sdpa" torch's."""
    dropout: float = 0.0
    """Probability of dropping an element of the gated read in training."""
    causal: bool = True
    """Tokens see no later token; False: encoder."""
    bias: bool = True
    """Projections and norms have biases."""
    beta_max_init: float = 1.8
    """Initial `_beta_param`; beta = softplus(_beta_param) + eps."""
    value_logexp_cap: float = 40.0
    """Values are clipped to |beta v| <= cap, in (0, 40]."""
    eps: float = 1e-6
    """Floor of beta and of the outer gate."""
    use_temperature: bool = True
    """T: learned beta; False: beta = 1."""
    use_lse: bool = True
    """L: free-energy branch even without `use_temperature`."""
    use_outer_gate: bool = True
    """G: outer gate."""
    use_rope: bool = True
    """Rotary positions on queries and keys."""
    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    use_conv: bool = True
    """C: time-decay conditioner."""
    conv_hidden: int = 64
    """Conditioner width."""
    conv_norm_first: bool = True
    """LayerNorm before the conditioner."""
    conv_bidirectional: bool = False
    """Conditioner scans both ways (encoder only)."""
    ssm_rank: int = 16
    """State size of the mamba prior."""
    mamba_normalize: bool = True
    """Mamba prior: normalise its weights."""
    dialect: Dialect = "corrected"
    """"corrected", or "reference": what the authors' file computes, for weights trained with it."""
    window: int | None = None
    """Softmax prior: sees only this many tokens back, itself included."""
    mamba_interact: bool = False
    """Mamba prior: chooses among the channels of its head as well."""

    def __post_init__(self) -> None:
        self.to_json()

    def to_json(self) -> str:
        """Every field as a JSON object, checked."""
        for name, value in vars(self).items():
            _check_plain(name, value)
        checked: str = torch.ops.fem.mixer_config(json.dumps(vars(self)))
        return checked

    @classmethod
    def from_json(cls, text: str) -> FreeEnergyMixerConfig:
        """The inverse of `to_json`; absent fields keep their defaults, unknown ones are errors."""
        return cls(**json.loads(torch.ops.fem.mixer_config(text)))


def _check_plain(name: str, value: Any) -> None:
    # What JSON cannot carry; the library checks the rest.
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"mixer options: expected {name} to be a finite number, got {value}")
    if not isinstance(value, bool | int | float | str | None):
        raise ValueError(f"mixer options: expected {name} to be a plain Python value, got {value!r}")
