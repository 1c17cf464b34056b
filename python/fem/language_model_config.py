"""The options of a language model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from fem.config import FreeEnergyMixerConfig, check_plain

MODEL_TYPE = "fem_language_model"
OF_THE_ENDS = ("vocab_size", "tie_embeddings")  # of embedding and head


@dataclass
class LanguageModelConfig:
    """A pre-norm decoder: embedding, blocks of mixer and MLP, norm, head. The fields of config.json."""

    vocab_size: int
    """Tokens of the vocabulary."""
    n_embd: int
    """Model width D."""
    n_head: int
    """Heads H."""
    n_layer: int
    """Blocks."""
    mlp_width: int
    """Hidden width of the MLP."""
    tie_embeddings: bool = True
    """The head is the embedding."""
    norm_eps: float = 1e-5
    """Added to the mean square in RMSNorm."""
    mlp: Literal["swiglu", "gelu"] = "swiglu"
    """The hidden layer of the MLP: silu(gate x) * up x, or gelu(up x), which has two matrices instead of three."""
    dropout: float = 0.0
    """Probability of dropping an element of what a mixer or an MLP adds, in training."""
    block_mixer: Literal[
        "fem",
        "attention",
        "diff_attention",
        "hyena",
        "delta_net",
        "gated_delta_net",
        "mamba2",
        "newton",
        "newton_light",
        "linear_descent",
        "gated_descent",
    ] = "fem"
    """What mixes the tokens of a block: a Free Energy Mixer, or plain attention and others to compare it with."""
    residual: Literal["plain", "gain", "momentum", "nesterov", "nesterov_query"] = "plain"
    """How a block adds what its mixer says: x + y, with a learned factor, or by a velocity (docs/energy.md)."""
    curvature: Literal["key", "value", "diagonal", "isotropic"] | None = None
    """By which covariance newton (key, the default, or value) and newton_light (diagonal or isotropic) look."""
    rho: float = 0.0
    """newton, by keys: share of -q in the gradient that is preconditioned."""
    mixer: dict[str, Any] = field(default_factory=dict)
    """Fields of `FreeEnergyMixerConfig`, n_embd and n_head excepted: they are the model's. Absent: its defaults."""

    def __post_init__(self) -> None:
        _check(isinstance(self.mixer, dict), f"expected mixer to be a dict of mixer options, got {self.mixer!r}")
        check_plain("language model options", {name: value for name, value in vars(self).items() if name != "mixer"})
        check_plain("mixer options", self.mixer)
        self.mixer = json.loads(torch.ops.fem.language_model_config(self.options_json()))["mixer"]

    def mixer_config(self) -> FreeEnergyMixerConfig:
        """The options of each block's mixer."""
        sizes = {"n_embd": self.n_embd, "n_head": self.n_head}
        return FreeEnergyMixerConfig.from_json(json.dumps(sizes | self.mixer))

    def options_json(self) -> str:
        """All fields, as operators take them."""
        return json.dumps(vars(self))

    def backbone_json(self) -> str:
        """The fields of the backbone, as its operators take them."""
        return json.dumps({name: value for name, value in vars(self).items() if name not in OF_THE_ENDS})

    def to_json(self) -> str:
        """The text of config.json."""
        return json.dumps({"model_type": MODEL_TYPE} | vars(self), indent=2, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> LanguageModelConfig:
        """The inverse of `to_json`; absent fields keep their defaults, unknown ones are errors."""
        return cls(**json.loads(torch.ops.fem.model_folder_config(text)))


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(f"language model options: {sentence}")
