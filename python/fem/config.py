"""The options of a mixer."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from fem import _library  # noqa: F401  the checks are the library's

PriorType = Literal["softmax", "linear", "gla", "rnn_softmax", "rnn_decay", "mamba"]
SoftmaxBackend = Literal["auto", "fused", "reference", "sdpa"]
Dialect = Literal["corrected", "reference", "paper"]
Letters = Literal["", "C", "CL", "CLT", "CLTG", "L", "LT", "LTG"]


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
    """Learned beta; False: beta = 1."""
    use_lse: bool = True
    """Free-energy branch even without `use_temperature`."""
    use_outer_gate: bool = True
    """Outer gate."""
    use_rope: bool | None = None
    """Rotary positions on queries and keys; None: yes, but for "rnn_softmax" only in dialect "reference"."""
    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    use_conv: bool = True
    """Time-decay conditioner."""
    conv_hidden: int | None = None
    """Conditioner width; None: 64, in dialect "paper" a sixteenth of the value width."""
    conv_norm_first: bool = True
    """LayerNorm before the conditioner."""
    conv_bidirectional: bool = False
    """Conditioner scans both ways (encoder only)."""
    ssm_rank: int = 16
    """State size of the mamba prior."""
    mamba_normalize: bool = True
    """Mamba prior: normalise its weights."""
    dialect: Dialect = "corrected"
    """"corrected"; "reference": what the authors' file computes, for weights trained with it; "paper": the paper's
    equations as printed."""
    use_inner_gate: bool = True
    """Gate between mean and free energy; False: the free energy is read."""
    window: int | None = None
    """Softmax prior: sees only this many tokens back, itself included."""
    mamba_interact: bool = False
    """Mamba prior: chooses among the channels of its head as well."""
    use_alibi: bool = False
    """Softmax prior: scores fall with the distance, of head h by 2^(-8 h / n_head) a token (ALiBi)."""

    def __post_init__(self) -> None:
        self.to_json()

    def to_json(self) -> str:
        """Every field as a JSON object, checked."""
        check_plain("mixer options", vars(self))
        checked: str = torch.ops.fem.mixer_config(json.dumps(vars(self)))
        return checked

    @classmethod
    def from_json(cls, text: str) -> FreeEnergyMixerConfig:
        """The inverse of `to_json`; absent fields keep their defaults, unknown ones are errors."""
        return cls(**json.loads(torch.ops.fem.mixer_config(text)))

    def with_letters(self, letters: Letters) -> LetterChoice:
        """The paper's ablation at equal parameters: the parts of these letters, and wider values for the rest.

        C is the conditioner, L the log-sum-exp read at beta = 1, T the learned temperature with the inner gate, G the
        outer gate; "" is the plain prior, "CLTG" the full mixer. Queries, keys and conditioner keep their widths.
        """
        text, parameters, full_parameters, words = torch.ops.fem.mixer_letters(self.to_json(), letters)
        return LetterChoice(FreeEnergyMixerConfig.from_json(text), parameters, full_parameters, words)


@dataclass
class LetterChoice:
    """What `FreeEnergyMixerConfig.with_letters` chose; `print` tells it."""

    config: FreeEnergyMixerConfig
    """The options."""
    parameters: int
    """Of a mixer with them."""
    full_parameters: int
    """Of the full mixer."""
    words: str

    def __str__(self) -> str:
        return self.words


def check_plain(whose: str, options: Mapping[str, Any]) -> None:
    """Refuses what JSON cannot carry; the library checks the rest."""
    for name, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{whose}: expected {name} to be a finite number, got {value}")
        if not isinstance(value, bool | int | float | str | None):
            raise ValueError(f"{whose}: expected {name} to be a plain Python value, got {value!r}")
