"""The operators under torch.func: vmap, grad, jvp and their combinations."""

import pytest
import torch
from fem import MixerState
from ops_cases import Case
from ops_compare import FLOAT32, Arguments, all_cases, assert_near, function_of, gradients, leaves_of, loss_of
from support import random_mixer, tokens
from torch import Tensor
from torch.func import functional_call, grad, jvp, vmap


def stacked(each: list[Arguments]) -> Arguments:
    def stack(name: str) -> Tensor:
        return torch.stack([x[name].detach() for x in each]).requires_grad_(each[0][name].requires_grad)

    return {name: stack(name) for name in each[0]}


@all_cases
def test_vmap_is_a_loop(case: Case) -> None:
    each = [leaves_of(case, seed=seed) for seed in range(3)]
    together = stacked(each)
    results = vmap(function_of(case))(together)
    assert_near(results, tuple(torch.stack(x) for x in zip(*map(function_of(case), each))), FLOAT32)
    looped = zip(*(gradients(function_of(case)(x), x) for x in each))
    assert_near(gradients(results, together), tuple(torch.stack(x) for x in looped), FLOAT32)


@all_cases
def test_func_grad_is_autograd(case: Case) -> None:
    def loss(leaves: Arguments, constants: Arguments) -> Tensor:
        results = function_of(case)(leaves | constants)
        return loss_of(results[:2] if case.op == "softmax_read" else results)

    def split(arguments: Arguments) -> tuple[Arguments, Arguments]:
        leaves = {name: x for name, x in arguments.items() if x.requires_grad}
        return leaves, {name: x for name, x in arguments.items() if name not in leaves}

    each = [leaves_of(case, dtype=torch.float64, seed=seed) for seed in range(2)]
    expected = [torch.autograd.grad(loss(*split(x)), list(split(x)[0].values())) for x in each]
    assert_near(tuple(grad(loss)(*split(each[0])).values()), expected[0], 1e-12)
    per_sample = vmap(grad(loss))(*split(stacked(each)))
    assert_near(tuple(per_sample.values()), tuple(torch.stack(x) for x in zip(*expected)), 1e-12)

    leaves, constants = split(each[0])
    detached = {name: x.detach() for name, x in leaves.items()}
    _, derivative = jvp(lambda x: loss(x, constants), (detached,), (detached,))
    along = sum((x * g).sum() for x, g in zip(detached.values(), expected[0]))
    assert derivative.item() == pytest.approx(float(along), rel=1e-10)


@pytest.mark.parametrize("prior", ["softmax", "gla", "mamba"])
def test_per_sample_gradients_of_a_mixer(prior: str) -> None:
    mixer, x = random_mixer(prior, dtype=torch.float64), tokens(3, dtype=torch.float64)
    parameters = {name: p.detach() for name, p in mixer.named_parameters()}

    def loss(parameters: Arguments, row: Tensor) -> Tensor:
        y: Tensor = functional_call(mixer, parameters, (row.unsqueeze(0),))
        return y.square().sum()

    per_sample = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i, row in enumerate(x):
        mixer.zero_grad()
        mixer(row.unsqueeze(0)).square().sum().backward()
        for name, parameter in mixer.named_parameters():
            assert parameter.grad is not None
            scale = parameter.grad.abs().max().item() + 1e-3  # some gradients are zero
            assert (per_sample[name][i] - parameter.grad).abs().max().item() <= 1e-10 * scale


def test_vmap_cannot_continue_a_state() -> None:
    mixer, state = random_mixer(), MixerState()
    with pytest.raises(ValueError, match="vmap cannot continue a state"):
        vmap(lambda x: mixer(x, state=state))(tokens().unsqueeze(0))
