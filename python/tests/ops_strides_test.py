"""Operators take their tensors in any strides: inputs, gradients, and what saved-tensor hooks give back to backward."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ops_cases import CASES, tensors_in, uniform
from ops_compare import FLOAT32
from support import FLOAT32_GRADIENT, FLOAT64, error, random_mixer
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves, tree_map_only

TOKENS = 300  # beyond every operator's first checkpoint
# The kernels give the same bits; torch's own sums, of which the definitions are made, take another order.
BOUNDS = {torch.float32: FLOAT32, torch.bfloat16: 2.0**-7, torch.float64: FLOAT64}

Form = Callable[[Tensor], Tensor]


def with_last_dimension_first(x: Tensor) -> Tensor:
    """The same values, stored with the dimensions in the opposite order."""
    order = list(reversed(range(x.dim())))
    return x.detach().permute(order).contiguous().permute(order)


def with_others_between(x: Tensor) -> Tensor:
    """The same values, each beside one that nobody may read."""
    others = ~x if x.dtype == torch.bool else torch.full_like(x, float("nan") if x.is_floating_point() else -(1 << 30))
    return torch.stack([x.detach(), others], -1)[..., 0]


FORMS = [with_last_dimension_first, with_others_between]
forms = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)


def as_leaves(arguments: Any, form: Form) -> Any:
    return tree_map_only(Tensor, lambda x: form(x).requires_grad_(x.requires_grad), arguments)


def project_arguments(dtype: torch.dtype) -> dict[str, Any]:
    def leaf(*shape: int) -> Tensor:
        return uniform(*shape, low=-1.0, dtype=dtype).requires_grad_()

    return {"x": leaf(2, TOKENS, 6), "weights": [leaf(5, 6), leaf(1, 6)], "biases": [leaf(5), leaf(1)]}


OPERATORS = {case.id: (case.run, lambda dtype, case=case: case.arguments(dtype, TOKENS)) for case in CASES}
OPERATORS["project"] = (torch.ops.fem.project.default, project_arguments)


def test_every_operator_with_a_gradient_is_here() -> None:
    names = {schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("fem::")}
    differentiable = {name for name in names if name + "_backward" in names}
    assert len(differentiable) >= 11
    assert differentiable <= {run._schema.name for run, _ in OPERATORS.values()}


def gradients(run: Any, arguments: Any, form: Form | None) -> list[Tensor]:
    """The gradients of weighted sums of all results, whose weights and saved tensors take the form."""
    leaves = [x for x in tree_leaves(arguments) if isinstance(x, Tensor) and x.requires_grad]
    changed: list[tuple[int, ...]] = []

    def unpack(x: Tensor) -> Tensor:
        # torch's own layer_norm reads the means and deviations that it saved, one a row, as if they were contiguous.
        if form is None or x.numel() < 2 or x.shape[-1] == 1:
            return x
        changed.append(form(x).stride())
        return form(x)

    with saved_tensors_hooks(lambda x: x, unpack):
        results = [x for x in tensors_in(run(**arguments)) if x.requires_grad and x.numel()]
    weights = [torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).view_as(x) for x in results]
    found = torch.autograd.grad(results, leaves, weights if form is None else [form(x) for x in weights])
    assert form is None or changed, "nothing was saved"
    return list(found)


def assert_near(actual: list[Tensor], expected: list[Tensor], bound: float) -> None:
    for a, e in zip(actual, expected, strict=True):
        # A strict ssm_scan does not read the token itself: the gradient of D is zero.
        assert error(a, e) <= bound if e.any() else not a.any()


@forms
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_any_strides_give_the_same_gradients(name: str, dtype: torch.dtype, form: Form) -> None:
    run, arguments_of = OPERATORS[name]
    arguments = arguments_of(dtype)
    expected = gradients(run, arguments, None)
    for actual in (gradients(run, arguments, form), gradients(run, as_leaves(arguments, form), form)):
        assert_near(actual, expected, BOUNDS[dtype])


# 2^20 elements: large enough for the layer to make inputs of its operators again instead of keeping them.
@forms
def test_any_strides_of_what_a_layer_keeps_give_the_same_gradients(prior: str, form: Form) -> None:
    mixer, x = random_mixer(prior, n_embd=128), torch.randn(256, 32, 128)
    arguments = {"x": x.requires_grad_(), **dict(mixer.named_parameters())}

    def run(**leaves: Tensor) -> Tensor:
        return mixer(leaves["x"])

    actual, expected = gradients(run, arguments, form), gradients(run, arguments, None)
    assert_near(actual, expected, FLOAT32_GRADIENT)
