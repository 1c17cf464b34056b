"""Operators with small valid arguments, by name as the schemas have them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import fem  # noqa: F401  registers the operators
import torch
from torch import Tensor

BATCH, HEADS, KEY_WIDTH, VALUE_WIDTH, RANK, CONVOLUTION_WIDTH = 2, 2, 4, 3, 2, 3


def uniform(*shape: int, low: float = 0.1, high: float = 1.0, dtype: torch.dtype) -> Tensor:
    return (torch.rand(shape, dtype=torch.float64) * (high - low) + low).to(dtype)


def tensors_in(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [x for x in result if x is not None]


@dataclass(frozen=True)
class Case:
    """An operator, the tensors it is given (see `tensors`) and its options.

    `key_mask`, `packed` (cu_seqlens, in a batch of one) and `initial` (a state of earlier tokens) are made on demand.
    """

    op: str
    names: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    key_mask: bool = False
    packed: bool = False
    initial: bool = False

    @property
    def id(self) -> str:
        extra = [name for name in ("key_mask", "packed", "initial") if getattr(self, name)]
        missing = [] if "beta" in self.names or self.op not in READS else ["no_beta"]
        given = [name for name in NAMED if name in self.names]
        return "-".join([self.op, *given, *missing, *extra, *(f"{k}={v}" for k, v in self.options.items())])

    @property
    def run(self) -> Any:
        return getattr(torch.ops.fem, self.op).default

    def arguments(self, dtype: torch.dtype, tokens: int, seed: int = 0) -> dict[str, Any]:
        """Everything by name; floating tensors are leaves with gradients."""
        torch.manual_seed(seed)
        batch = 1 if self.packed else BATCH
        given = {name: tensor for name, tensor in tensors(batch, tokens, dtype).items() if name in self.names}
        if self.op == "decay_scan":
            given["log_decay"] = uniform(batch, tokens, VALUE_WIDTH, low=-1.0, high=-0.1, dtype=dtype)
        if self.op == "short_convolution":
            given["x"] = uniform(batch, tokens, VALUE_WIDTH, low=-1.0, dtype=dtype)
            given["weight"] = uniform(VALUE_WIDTH, CONVOLUTION_WIDTH, low=-1.0, dtype=dtype)
        if self.op == "layer_norm":
            given |= {name: uniform(KEY_WIDTH, dtype=dtype) for name in ("weight", "bias") if name in self.names}
        if self.op == "gated_scan":
            given["gate_logit"] = given["gate_logit"][:, :, 0].clone()
        if self.op.startswith("channel") and "log_decay" in given:
            given["log_decay"] = uniform(*given["value"].shape, low=-1.0, high=-0.1, dtype=dtype)
        if self.packed:
            given["cu_seqlens"] = torch.tensor([0, tokens // 2, tokens // 2, tokens])
        if self.initial:
            given["initial"] = self._initial(dtype, given)
        for name, tensor in given.items():
            tensor.requires_grad_(tensor.is_floating_point() and name not in CONSTANT)
        if self.key_mask:
            given["key_mask"] = torch.arange(tokens) >= torch.tensor([[0], [tokens // 2]])[:batch]
        arguments = {**given, **self.options}
        required = (a.name for a in self.run._schema.arguments if not a.has_default_value())
        return {**{name: None for name in required if name not in arguments}, **arguments}

    def _initial(self, dtype: torch.dtype, given: dict[str, Tensor]) -> Tensor:
        if self.op in ("decay_scan", "gated_scan"):
            kept = torch.float32 if self.op == "gated_scan" and dtype == torch.bfloat16 else dtype
            return uniform(BATCH, VALUE_WIDTH, dtype=kept)
        if self.op == "short_convolution":
            return uniform(BATCH, CONVOLUTION_WIDTH - 1, VALUE_WIDTH, low=-1.0, dtype=dtype)
        absent = {} if "beta" in given else {"beta": None}
        state: Tensor = self.run(**given, **absent)[3]  # of the same tokens: any state will do
        return state


def gradient_operator(case: Case, dtype: torch.dtype, tokens: int) -> tuple[Any, dict[str, Any]]:
    """The operator that computes a case's gradients, with everything that autograd would hand to it."""
    gradient = getattr(torch.ops.fem, case.op + "_backward").default
    arguments = {n: x.detach() if isinstance(x, Tensor) else x for n, x in case.arguments(dtype, tokens).items()}
    schema = case.run._schema
    results = {r.name: x for r, x in zip(schema.returns, tensors_in(case.run(**arguments)), strict=True)}
    known = {a.name: arguments.get(a.name, a.default_value) for a in schema.arguments} | results
    known |= {"grad_" + name: torch.ones_like(x) for name, x in results.items()}
    known["wanted"] = [True] * len(gradient._schema.returns)
    return gradient, {a.name: known[a.name] for a in gradient._schema.arguments}


CONSTANT = ("frequency", "slopes")
NAMED = ("log_weight", "log_decay", "hidden", "limit", "free_energy", "bias", "slopes")  # in the ids of cases
READS = (
    "softmax_read",
    "attention_read",
    "linear_read",
    "channel_read",
    "ssm_read",
    "linear_scan",
    "channel_scan",
    "ssm_scan",
)


def tensors(batch: int, tokens: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """One valid tensor for every name in the schemas."""

    def channels(low: float = 0.1, high: float = 1.0) -> Tensor:
        return uniform(batch, tokens, HEADS, VALUE_WIDTH, low=low, high=high, dtype=dtype)

    def over(*shape: int, low: float = 0.1, high: float = 1.0) -> Tensor:
        return uniform(*shape, low=low, high=high, dtype=dtype)

    return {
        "query": over(batch, tokens, HEADS, KEY_WIDTH),
        "key": over(batch, tokens, HEADS, KEY_WIDTH),
        "value": channels(low=-1.0),
        "beta": over(HEADS, VALUE_WIDTH, low=0.5, high=2.0),
        "bias": over(HEADS, tokens, tokens, low=-1.0),
        "slopes": over(HEADS),
        "alpha": over(HEADS, low=-1.0),
        "p": over(batch, HEADS, tokens, tokens),
        "v": channels(low=-1.0),
        "log_weight": channels(low=-1.0),
        "log_decay": over(batch, tokens, HEADS, low=-1.0, high=-0.1),
        "delta": channels(),
        "A": over(HEADS, VALUE_WIDTH, RANK, low=-1.0, high=-0.1),
        "B": over(batch, tokens, RANK),
        "C": over(batch, tokens, RANK),
        "D": over(HEADS, VALUE_WIDTH),
        "u": over(batch, tokens, VALUE_WIDTH, low=-1.0),
        "decay_logit": over(batch, tokens, VALUE_WIDTH, low=-1.0),
        "norm_weight": over(VALUE_WIDTH),
        "norm_bias": over(VALUE_WIDTH, low=-1.0),
        "mean": channels(low=-1.0),
        "free_energy": channels(low=-1.0),
        "temperature_logit": channels(low=-1.0),
        "gate_logit": channels(low=-1.0),
        "x": over(batch, tokens, HEADS, KEY_WIDTH, low=-1.0),
        "hidden": over(batch, tokens, 3, low=-1.0),
        "weight": over(3, HEADS * KEY_WIDTH, low=-1.0),
        "scale": over(KEY_WIDTH),
        "positions": torch.arange(tokens) + 60,
        "frequency": uniform(KEY_WIDTH // 2, dtype=torch.float64),
        "limit": over(HEADS, KEY_WIDTH),
        "gate": over(batch, tokens, VALUE_WIDTH, low=-1.0),
        "up": over(batch, tokens, VALUE_WIDTH, low=-1.0),
    }


ATTENTION = ("query", "key", "value", "beta")
NEWTON = ("query", "key", "value", "alpha")
SSM = ("value", "beta", "delta", "A", "B", "C", "D")
GATED_SCAN = ("u", "decay_logit", "gate_logit", "norm_weight")
GATES = ("mean", "free_energy", "temperature_logit", "gate_logit")

SOFTMAX_CASES = [
    Case("softmax_read", ATTENTION),
    Case("softmax_read", ATTENTION[:3], {"causal": False}),
    Case("softmax_read", ATTENTION, {"window": 3}, key_mask=True),
    Case("softmax_read", ATTENTION, {"scale": 2.0}, packed=True),
    Case("softmax_read", (*ATTENTION, "bias")),
    Case("softmax_read", (*ATTENTION, "bias", "slopes"), {"causal": False, "window": 3}, key_mask=True),
    Case("softmax_read", (*ATTENTION[:3], "slopes"), packed=True),
    Case("attention_read", ATTENTION, {"window": 3}, key_mask=True),
    Case("attention_read", (*ATTENTION, "bias", "slopes")),
    Case("newton_read", NEWTON, {"rho": 0.5}),
    Case("newton_read", NEWTON, {"of_values": True, "causal": False}, key_mask=True),
    Case("newton_read", NEWTON, {"scale": 2.0}, packed=True),
    Case("free_energy_attention", ATTENTION, {"causal": False}),
    Case("free_energy_attention", (*ATTENTION, "bias", "slopes")),
]
SCAN_CASES = [
    Case("linear_scan", ATTENTION, {"strict": True}),
    Case("linear_scan", (*ATTENTION, "log_decay"), key_mask=True, initial=True),
    Case("linear_scan", (*ATTENTION[:3], "log_decay"), packed=True),
    Case("channel_scan", ("value", "beta", "log_weight"), {"strict": True}),
    Case("channel_scan", ("value", "beta", "log_weight", "log_decay"), key_mask=True, initial=True),
    Case("channel_scan", ("value", "log_decay"), packed=True),
    Case("ssm_scan", SSM, {"strict": True}),
    Case("ssm_scan", SSM, {"delayed": True}, initial=True),
    Case("ssm_scan", SSM, key_mask=True, initial=True),
    Case("ssm_scan", tuple(name for name in SSM if name != "beta"), packed=True),
]
READ_CASES = [
    Case("linear_read", (*ATTENTION, "log_decay"), initial=True),
    Case("linear_read", ATTENTION, {"causal": False}, key_mask=True),
    Case("channel_read", ("value", "beta", "log_weight"), initial=True),
    Case("channel_read", ("value", "beta", "log_weight", "log_decay"), {"causal": False}, packed=True),
    Case("ssm_read", SSM, initial=True),
    Case("ssm_read", SSM, {"causal": False}, key_mask=True),
]
OTHER_CASES = [
    Case("decay_scan", ("u",)),
    Case("decay_scan", ("u",), initial=True),
    Case("gated_scan", (*GATED_SCAN, "norm_bias"), initial=True),
    Case("gated_scan", GATED_SCAN, {"reverse": True}),
    Case("gated_scan", GATED_SCAN, {"silu": True}, initial=True),
    Case("gated_read", GATES),
    Case("gated_read", ("mean", "gate_logit")),
    Case("modulate", ("x", "hidden", "weight", "positions", "frequency"), {"floor": 0.1}),
    Case("modulate", ("x", "positions", "frequency"), {"halves": True}),
    Case("modulate", ("x", "hidden", "weight", "limit")),
    Case("modulate", ("x", "limit")),
    Case("modulate", ("x", "hidden", "weight"), {"added": True}),
    Case("modulate", ("x", "hidden", "weight"), {"recompute": True}),
    Case("free_energy_read", ("p", "v", "beta")),
    Case("layer_norm", ("x", "weight", "bias")),
    Case("layer_norm", ("x", "weight"), {"recompute": True}),
    Case("rms_norm", ("x", "scale")),
    Case("short_convolution", ("x", "weight")),
    Case("short_convolution", ("x", "weight"), {"silu": True}, initial=True),
    Case("swiglu", ("gate", "up")),
]
KERNEL_CASES = [*SOFTMAX_CASES, *SCAN_CASES, *OTHER_CASES]
CASES = [*KERNEL_CASES, *READ_CASES]  # the linear-time reads are composed of scans
