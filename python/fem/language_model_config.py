"""The options of a language model."""

from __future__ import annotations

import json
import math
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

from fem.config import FreeEnergyMixerConfig

MODEL_TYPE = "fem_language_model"
BLOCK_MIXERS = ("fem", "attention")
FROM_THE_MODEL = ("n_embd", "n_head")
OF_ATTENTION = ("bias", "use_rope", "rope_theta")


@dataclass
class LanguageModelConfig:
    """A pre-norm decoder: embedding, blocks of mixer and SwiGLU MLP, norm, head. The fields of config.json."""

    vocab_size: int
    """Tokens of the vocabulary."""
    n_embd: int
    """Model width D."""
    n_head: int
    """Heads H."""
    n_layer: int
    """Blocks."""
    mlp_width: int
    """Hidden width of the SwiGLU MLP."""
    tie_embeddings: bool = True
    """The head is the embedding."""
    norm_eps: float = 1e-5
    """Added to the mean square in RMSNorm."""
    block_mixer: Literal["fem", "attention"] = "fem"
    """What mixes the tokens of a block: a Free Energy Mixer, or plain attention to compare it with."""
    mixer: dict[str, Any] = field(default_factory=dict)
    """Fields of `FreeEnergyMixerConfig`, n_embd and n_head excepted: they are the model's. Absent: its defaults."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "n_embd", "n_head", "n_layer", "mlp_width"):
            value = getattr(self, name)
            _check(type(value) is int and value >= 1, f"expected {name} to be an integer of at least 1, got {value!r}")
        _check(isinstance(self.tie_embeddings, bool), f"expected tie_embeddings as a bool, got {self.tie_embeddings!r}")
        _check(
            type(self.norm_eps) in (int, float) and 0 < self.norm_eps < math.inf,
            f"expected norm_eps to be a positive number, got {self.norm_eps!r}",
        )
        _check(
            self.block_mixer in BLOCK_MIXERS,
            f'expected block_mixer to be one of "fem", "attention", got {self.block_mixer!r}',
        )
        _check(isinstance(self.mixer, dict), f"expected mixer to be a dict of mixer options, got {self.mixer!r}")
        for name in FROM_THE_MODEL:
            _check(name not in self.mixer, f"mixer.{name} follows the model's; set {name} there")
        options = json.loads(self.mixer_config().to_json())
        self.mixer = {name: value for name, value in options.items() if name not in FROM_THE_MODEL}
        _check(self.mixer["causal"], "expected a causal mixer, got mixer.causal = False")
        if self.block_mixer == "attention":
            self._check_attention()

    def mixer_config(self) -> FreeEnergyMixerConfig:
        """The options of each block's mixer."""
        sizes = {"n_embd": self.n_embd, "n_head": self.n_head}
        return FreeEnergyMixerConfig.from_json(json.dumps(sizes | self.mixer))

    def to_json(self) -> str:
        """The text of config.json."""
        return json.dumps({"model_type": MODEL_TYPE} | vars(self), indent=2, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> LanguageModelConfig:
        """The inverse of `to_json`; absent fields keep their defaults, unknown ones are errors."""
        try:
            given = json.loads(text)
        except ValueError as error:
            raise ValueError(f"language model options: expected a JSON object, but it is not JSON: {error}") from None
        _check(
            isinstance(given, dict) and given.pop("model_type", None) == MODEL_TYPE,
            f'expected a JSON object with "model_type": "{MODEL_TYPE}"; this is another model\'s or damaged',
        )
        known = {one.name: one for one in fields(cls)}
        for name in given:
            _check(name in known, f'unknown field "{name}"')
        for name, one in known.items():
            required = one.default is MISSING and one.default_factory is MISSING
            _check(name in given or not required, f"expected the field {name}, which is missing")
        return cls(**given)

    def _check_attention(self) -> None:
        defaults = json.loads(FreeEnergyMixerConfig(self.n_embd, self.n_head).to_json())
        for name, value in self.mixer.items():
            _check(
                name in OF_ATTENTION or value == defaults[name],
                f'plain attention has no mixer option {name}; remove it, or set block_mixer to "fem"',
            )
        _check(
            self.n_embd % (2 * self.n_head) == 0,
            f"expected n_embd of plain attention to be a multiple of twice n_head, got {self.n_embd} and {self.n_head}",
        )


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(f"language model options: {sentence}")
