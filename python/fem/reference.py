"""Checkpoints of the authors' public fem.py."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fem._reference_effects import Effects, measure
from fem._reference_report import Difference, ReferenceReport, report_on
from fem.config import FreeEnergyMixerConfig
from fem.mixer import FreeEnergyMixer

__all__ = ["Difference", "ReferenceReport", "load_reference"]


def load_reference(
    weights: Mapping[str, Any] | str | os.PathLike[str],
    config: FreeEnergyMixerConfig,
    x: Tensor | None = None,
    attention_mask: Tensor | None = None,
    *,
    prefix: str = "",
) -> tuple[FreeEnergyMixer, ReferenceReport]:
    """A mixer with weights trained with the authors' file, and how that file differs from the other dialects.

    The mixer has `dialect="reference"`, the dtype of the weights, and a copy of them. Names and shapes must fit the
    configuration exactly. They cannot tell everything: `n_head`, `causal`, `use_rope`, `rope_theta`, `use_temperature`,
    and which of softmax, linear and rnn_softmax it was, must be those of the training.

    Args:
        weights: a state_dict, or the path of a .safetensors or a torch.save file that holds one, alone or as
            "state_dict" or "model".
        config: the options the weights were trained with, in any dialect.
        x: an input [B, T, D] on which to measure how much each difference moves the output.
        attention_mask: of x, [B, T] bool or integer, 1 = a real token.
        prefix: read only the names that begin with this, such as "layers.0.mixer.", and strip it.

    Returns:
        the mixer, and a report to print.
    """
    if config.prior_type == "rnn_decay":
        raise ValueError(
            'load_reference: the authors\' file has no prior_type "rnn_decay"; of ours use FreeEnergyMixer.load'
        )
    if x is None and attention_mask is not None:
        raise ValueError("load_reference: attention_mask belongs to an input: expected x as well, got None")
    config = replace(config, dialect="reference")
    given = _with_prefix(_state_dict(weights), prefix)
    names, shapes = torch.ops.fem.mixer_parameters(config.to_json())
    _check(given, dict(zip(names, shapes, strict=True)))

    mixer = FreeEnergyMixer(config, device="meta")
    mixer.load_state_dict({name: given[name].detach().clone() for name in names}, strict=True, assign=True)
    effects = Effects() if x is None else measure(mixer, x, attention_mask)
    head_key = given["W_q.weight"].shape[0] // config.n_head if "W_q.weight" in given else None
    return mixer, report_on(config, head_key, effects)


def _state_dict(weights: Mapping[str, Any] | str | os.PathLike[str]) -> Mapping[str, Any]:
    content: Any = weights if isinstance(weights, Mapping) else _read(weights)
    for wrapper in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not all(isinstance(name, str) for name in content):
        raise ValueError(
            f"load_reference: expected a state_dict (names and tensors), got {type(content).__name__}; "
            "of a module pass module.state_dict()"
        )
    return content


def _read(path: Any) -> Any:
    if not isinstance(path, str | os.PathLike):
        return path
    path = os.fspath(path)
    if path.endswith(".safetensors"):
        return torch.ops.fem.load_safetensors(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"load_reference: {path}: cannot be read: {error.strerror}") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"load_reference: {path}: expected a .safetensors file, or tensors written by torch.save (of a module: "
            "torch.save(module.state_dict(), path))"
        ) from error


def _with_prefix(weights: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    found = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
    if "W_v.weight" in found:
        return found
    mixers = [name.removesuffix("W_v.weight") for name in weights if name.endswith("W_v.weight")]
    if mixers:
        choices = ", ".join(f'prefix="{mixer}"' for mixer in mixers[:8]) + (", ..." if len(mixers) > 8 else "")
        raise ValueError(f'load_reference: expected W_v.weight after prefix="{prefix}", found mixers at {choices}')
    raise ValueError(
        f'load_reference: expected W_v.weight after prefix="{prefix}" among the names of an authors\' mixer, got '
        + (", ".join(list(weights)[:8]) or "no names")
    )


def _check(given: Mapping[str, Any], expected: Mapping[str, Tensor]) -> None:
    faults = [f"missing {name} {list(shape.shape)}" for name, shape in expected.items() if name not in given]
    for name, value in given.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            faults.append(f"{name}: expected a floating-point tensor, got {kind}")
        elif name not in expected:
            faults.append(f"unexpected {name} {list(value.shape)}")
        elif value.shape != expected[name].shape:
            faults.append(f"{name}: expected {list(expected[name].shape)}, got {list(value.shape)}")
    if not faults:
        return
    asked, told = _options_told_by(expected), _options_told_by(given)
    hints = [f"{option}={told[option]}" for option in told if option in asked and told[option] != asked[option]]
    message = "load_reference: the weights do not fit the configuration: " + "; ".join(faults)
    raise ValueError(message + (f". The weights speak for {', '.join(hints)}" if hints else ""))


def _options_told_by(weights: Mapping[str, Any]) -> dict[str, Any]:
    """The options that names and shapes give away."""
    shapes = {name: tuple(value.shape) for name, value in weights.items() if isinstance(value, Tensor)}

    def has(group: str) -> bool:
        return any(name.startswith(group) for name in shapes)

    told: dict[str, Any] = {
        "prior_type": '"mamba"'
        if has("W_p.")
        else '"gla"'
        if has("W_decay.")
        else '"softmax", "linear" or "rnn_softmax"',
        "bias": "W_v.bias" in shapes,
        "(use_lse or use_temperature)": has("W_lambda."),
        "use_outer_gate": has("W_gate."),
        "use_conv": has("tdc."),
    }
    if len(shapes.get("W_v.weight", ())) == 2:
        told["fem_dim"], told["n_embd"] = shapes["W_v.weight"]
    if "W_q.weight" in shapes:
        told["qk_dim"] = shapes["W_q.weight"][0]
    if "W_decay.weight" in shapes:
        told["n_head"] = shapes["W_decay.weight"][0]
    if "A_log" in shapes:
        told["ssm_rank"] = shapes["A_log"][-1]
    if "tdc.fwd.in_f.weight" in shapes:
        told["conv_norm_first"] = has("tdc.fwd.norm.")
        told["conv_bidirectional"] = has("tdc.bwd.")
        told["conv_hidden"] = shapes["tdc.fwd.in_f.weight"][0] * (2 if has("tdc.bwd.") else 1)
    return told
