"""The operators as torch sees them: registration, shapes, gradients of both orders, repeatability, errors."""

import doctest
import math
from typing import Any

import pytest
import torch
from fem import ops
from ops_cases import (
    ATTENTION,
    CASES,
    KERNEL_CASES,
    KEY_WIDTH,
    READ_CASES,
    SSM,
    Case,
    gradient_operator,
    tensors_in,
    uniform,
)
from torch import Tensor
from torch.library import opcheck

FLOAT_DTYPES = [torch.float32, torch.float64]


def of_cases(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.id)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
@of_cases(KERNEL_CASES)
def test_opcheck(case: Case, dtype: torch.dtype) -> None:
    opcheck(case.run, (), case.arguments(dtype, 6))


@of_cases(READ_CASES)
def test_opcheck_of_compositions(case: Case) -> None:
    opcheck(case.run, (), case.arguments(torch.float32, 6))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
@of_cases([case for case in KERNEL_CASES if case.op != "free_energy_attention"])
def test_opcheck_of_gradient_operators(case: Case, dtype: torch.dtype) -> None:
    gradient, arguments = gradient_operator(case, dtype, 6)
    with torch.no_grad():  # as in backward; recorded, they would be the definition
        opcheck(gradient, (), arguments, test_utils=("test_schema", "test_faketensor"))


@of_cases(CASES)
def test_gradients_of_both_orders(case: Case) -> None:
    arguments = case.arguments(torch.float64, 3)
    names = [name for name, x in arguments.items() if isinstance(x, Tensor) and x.requires_grad]

    def differentiable(*leaves: Tensor) -> tuple[Tensor, ...]:
        results = tensors_in(case.run(**(arguments | dict(zip(names, leaves)))))
        if case.op.startswith("channel") and len(results[3]):
            scale, sums = results[3][:, :1], results[3][:, 1:]  # a scale alone is a choice of units
            results[3] = sums * scale.exp()
        return tuple(x.masked_fill(x.isinf(), 0) for x in results if x.requires_grad)

    leaves = tuple(arguments[name] for name in names)
    assert torch.autograd.gradcheck(differentiable, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(differentiable, leaves, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tokens", [1, 5, 300])
@of_cases(CASES)
def test_shapes_without_data_are_those_of_results(case: Case, tokens: int, dtype: torch.dtype) -> None:
    arguments = case.arguments(dtype, tokens)
    meta = {name: x.to("meta") if isinstance(x, Tensor) else x for name, x in arguments.items()}
    for fake, real in zip(tensors_in(case.run(**meta)), tensors_in(case.run(**arguments)), strict=True):
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


@pytest.mark.parametrize("tokens", [64, 257])
@of_cases(CASES)
def test_results_and_gradients_repeat_bit_by_bit(case: Case, tokens: int) -> None:
    arguments = case.arguments(torch.float32, tokens)
    leaves = [x for x in arguments.values() if isinstance(x, Tensor) and x.requires_grad]

    def everything() -> list[Tensor]:
        torch.full((1 << 18,), float("nan"))  # what freed memory may hold
        results = [x for x in tensors_in(case.run(**arguments)) if x.requires_grad and x.numel()]
        return results + list(torch.autograd.grad(results, leaves, [torch.ones_like(x) for x in results]))

    for first, again in zip(everything(), everything(), strict=True):
        assert torch.equal(first, again)


def test_functions_are_the_operators() -> None:
    a = Case("ssm_read", (*SSM, *ATTENTION, "log_weight", "log_decay", "u", "bias", "slopes")).arguments(
        torch.float32, 6
    )
    bias, slopes = a["bias"], a["slopes"]
    query, key, value, beta = (a[name] for name in ATTENTION)
    ssm = {name: a[name] for name in SSM[2:]}
    per_channel = -a["delta"]
    fem = torch.ops.fem
    pairs = [
        (ops.free_energy_attention(query, key, value, beta), fem.free_energy_attention(query, key, value, beta)),
        (ops.free_energy_attention(*a4(a), bias=bias), fem.free_energy_attention(*a4(a), bias)),
        (
            ops.softmax_read(query, key, value, beta, scale=0.3, window=2),
            fem.softmax_read(*a4(a), None, None, 0.3, True, 2),
        ),
        (ops.softmax_read(*a4(a), bias=bias, slopes=slopes), fem.softmax_read(*a4(a), bias, slopes)),
        (
            ops.free_energy_read(bias.exp()[None], value[:1], beta),
            fem.free_energy_read(bias.exp()[None], value[:1], beta),
        ),
        (ops.linear_read(query, key, value, beta, log_decay=a["log_decay"]), fem.linear_read(*a4(a), a["log_decay"])),
        (ops.aft_read(a["log_weight"], value, beta), fem.channel_read(value, beta, a["log_weight"])),
        (ops.decay_read(value, beta, per_channel), fem.channel_read(value, beta, None, per_channel)),
        (ops.ssm_read(value, beta, **ssm), fem.ssm_read(value, beta, **ssm)),
        (ops.decay_scan(a["u"], -a["u"].abs()), fem.decay_scan(a["u"], -a["u"].abs())),
        (ops.gated_read(value, gate_logit=per_channel), fem.gated_read(value, None, None, per_channel)),
    ]
    for ours, registered in pairs:
        for x, y in zip(tensors_in(ours), tensors_in(registered), strict=True):
            assert torch.equal(x, y)


def a4(arguments: dict[str, Any]) -> list[Tensor]:
    return [arguments[name] for name in ATTENTION]


def test_what_is_not_there_is_none() -> None:
    query, key, value, beta = a4(Case("linear_read", ATTENTION).arguments(torch.float32, 6))
    assert ops.softmax_read(query, key, value).free_energy is None
    assert ops.linear_read(query, key, value).free_energy is None
    assert ops.linear_read(query, key, value, beta).state is not None
    assert ops.linear_read(query, key, value, beta, causal=False).state is None
    assert ops.aft_read(value, value, causal=False)[1::2] == (None, None)


@pytest.mark.parametrize("tokens", [5, 300])
def test_slopes_are_a_bias_that_falls_with_the_distance(tokens: int) -> None:
    a = Case("softmax_read", (*ATTENTION, "slopes")).arguments(torch.float32, tokens)
    position = torch.arange(tokens)
    bias = -a["slopes"][:, None, None] * (position[:, None] - position).abs()
    for x, y in zip(ops.softmax_read(**a, causal=False), ops.softmax_read(*a4(a), bias=bias, causal=False)):
        assert x is not None
        torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)


def test_free_energy_read_of_a_prior_of_ones_own() -> None:
    p, v = torch.tensor([[1.0, 3.0], [0.0, 0.0]]).view(1, 1, 2, 2), torch.tensor([1e4, 2e4]).view(1, 2, 1, 1)
    free_energy, posterior = ops.free_energy_read(p, v, torch.ones(1, 1))
    expected = torch.tensor([2e4 + math.log(0.75), 0.0])
    torch.testing.assert_close(free_energy.flatten(), expected)
    torch.testing.assert_close(posterior.flatten(), torch.tensor([2e4, 0.0]))


@pytest.mark.parametrize("made_by", ["modulate", "layer_norm"])
def test_what_is_recomputed_is_not_kept_and_changes_no_gradient(made_by: str) -> None:
    case = Case("modulate", ("x", "hidden", "weight")) if made_by == "modulate" else Case("layer_norm", ("x", "weight"))
    arguments = case.arguments(torch.float32, 300)
    leaves = [x for x in arguments.values() if isinstance(x, Tensor)]
    weight = uniform(5, KEY_WIDTH, dtype=torch.float32).requires_grad_()

    def run(recompute: bool) -> tuple[bool, tuple[Tensor, ...]]:
        kept: list[int] = []

        def pack(x: Tensor) -> Tensor:
            kept.append(x.data_ptr())
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            made = tensors_in(case.run(**arguments, recompute=recompute))[0]
            (y,) = torch.ops.fem.project(made, [weight], [])
        return made.data_ptr() in kept, torch.autograd.grad(y.square().sum(), [*leaves, weight])

    kept, expected = run(False)
    kept_if_recomputed, actual = run(True)
    assert kept and not kept_if_recomputed
    for a, e in zip(actual, expected, strict=True):
        assert torch.equal(a, e)


def test_examples_in_the_documentation() -> None:
    assert doctest.testmod(ops).failed == 0


def test_clip_value_keeps_the_kernels_range() -> None:
    value, beta = torch.tensor([-300.0, 0.5, 300.0]).view(1, 3, 1, 1), torch.full((1, 1), 2.0)
    assert torch.equal(ops.clip_value(value, beta), torch.tensor([-20.0, 0.5, 20.0]).view(1, 3, 1, 1))
    assert torch.isfinite(ops.aft_read(value, ops.clip_value(value, beta), beta).mean).all()
    for cap in (0.0, -1.0, 41.0, float("nan")):
        with pytest.raises(ValueError, match=r"clip_value: expected cap in \(0, 40\]"):
            ops.clip_value(value, beta, cap)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q, k, v, b: ops.softmax_read(q, k, v, b[0]), r"softmax_read: expected beta of shape \[H=2, V=3\], got"),
        (lambda q, k, v, b: ops.softmax_read(q, k, v, b, bias=b), r"expected bias as Float \[H=2 or 1, Tq=6, Tk=6\]"),
        (
            lambda q, k, v, b: ops.softmax_read(q, k, v, slopes=b),
            r"softmax_read: expected slopes .*\(ALiBi: one for each",
        ),
        (lambda q, k, v, b: ops.free_energy_read(q, v, b), r"free_energy_read: expected v .* got"),
        (lambda q, k, v, b: ops.free_energy_read(q[0], v, b), r"expected p of shape \[B, H, Tq, Tk\], got"),
        (lambda q, k, v, b: ops.softmax_read(q, k, v, b, window=0), "softmax_read: expected a window of at least 1"),
        (lambda q, k, v, b: ops.softmax_read(q, k, v.double(), b), "expected query, key and value of one dtype"),
        (lambda q, k, v, b: ops.softmax_read(q.half(), k.half(), v.half()), "cast to bfloat16"),
        (lambda q, k, v, b: ops.softmax_read(q, k, 100 * v, b), r"clip the value first \(clip_value\)"),
        (lambda q, k, v, b: ops.free_energy_attention(q[0], k, v, b), r"expected query of shape \[B, T, H, K\]"),
        (lambda q, k, v, b: ops.linear_read(q, k[:, 1:], v, b), "linear_read: expected key of shape"),
        (lambda q, k, v, b: ops.linear_read(q, k, v, b, initial=q), r"initial .*\(the state of an earlier call\), got"),
        (lambda q, k, v, b: ops.linear_read(q, k, v, b, causal=False, initial=q), "linear_read: "),
        (
            lambda q, k, v, b: ops.linear_read(q, k, v, b, key_mask=q > 0),
            r"linear_read: expected key_mask as Bool \[2, 6\]",
        ),
        (lambda q, k, v, b: ops.channel_read(v, b), "channel_read: expected log_weight, log_decay or both"),
        (lambda q, k, v, b: ops.aft_read(v, v, b, cu_seqlens=torch.tensor([0, 6])), "packed in one row"),
        (lambda q, k, v, b: ops.aft_read(v[:1], v[:1], b, cu_seqlens=torch.tensor([0, 5])), "must run from 0 to T=6"),
        (lambda q, k, v, b: ops.ssm_read(v, b, delta=v, A=b, B=v, C=v, D=b), "ssm_read: expected A of shape"),
        (lambda q, k, v, b: ops.decay_scan(v, v), r"decay_scan: expected u of shape \[B, T, C\]"),
        (lambda q, k, v, b: ops.gated_read(v, v), "free_energy and temperature_logit belong together"),
    ],
)
def test_errors_are_value_errors(call: Any, message: str) -> None:
    tensors = [x.detach() for x in a4(Case("softmax_read", ATTENTION).arguments(torch.float32, 6))]
    with pytest.raises(ValueError, match=message):
        call(*tensors)


@pytest.mark.parametrize("case", [case for case in CASES if "beta" in case.names], ids=lambda case: case.id)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_beta_of_zero_or_below_is_refused(case: Case, dtype: torch.dtype) -> None:
    arguments = case.arguments(dtype, 6)
    for wrong in (0.0, -1.0):
        beta = arguments["beta"].detach().clone()
        beta[-1, -1] = wrong
        with pytest.raises(ValueError, match=f"expected beta > 0, got {wrong:g} in channel 2 of head 1"):
            case.run(**{**arguments, "beta": beta})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_float16_is_refused_with_the_remedy(case: Case) -> None:
    arguments = case.arguments(torch.float32, 6)
    halves = {n: x.half() if isinstance(x, Tensor) and x.dtype == torch.float32 else x for n, x in arguments.items()}
    with pytest.raises(ValueError, match=r"got Half \(float16 cannot hold exp\(beta v\): cast to bfloat16\)"):
        case.run(**halves)
