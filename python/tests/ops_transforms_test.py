"""The operators compiled, exported, under autocast, checkpointed, and on other devices."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from fem import ops
from ops_cases import ATTENTION, KERNEL_CASES, Case, gradient_operator, tensors_in
from ops_compare import (
    CAUSAL,
    FLOAT32,
    TOKENS,
    Arguments,
    all_cases,
    assert_equal,
    assert_near,
    function_of,
    gradients,
    leaves_of,
)
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

INDUCED = Case("linear_read", ATTENTION[:3], {"causal": False})  # a few operators for inductor to fuse
BFLOAT16 = 4 * 2.0**-8  # inputs and outputs rounded to eight bits, and once between


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@all_cases
def test_one_compiled_graph_serves_all_lengths(case: Case, fresh_compiler: None) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    eager = function_of(case)
    compiled = torch.compile(eager, fullgraph=True, dynamic=True, backend=counter)
    compilations = []
    for length in (TOKENS, 11):
        arguments = leaves_of(case, length)
        actual, expected = compiled(arguments), eager(arguments)
        assert_equal(actual, expected)
        assert_equal(gradients(actual, arguments), gradients(expected, arguments))
        compilations.append(counter.frame_count)
    assert compilations[0] == compilations[1]


@pytest.mark.parametrize("case", [CAUSAL[0], INDUCED], ids=lambda case: case.id)
def test_inductor_gives_eager_numbers(case: Case, fresh_compiler: None) -> None:
    eager = function_of(case)
    compiled = torch.compile(eager, fullgraph=True, dynamic=True)
    for length in (TOKENS, 11):
        arguments = leaves_of(case, length)
        actual, expected = compiled(arguments), eager(arguments)
        assert_near(actual, expected, FLOAT32)
        assert_near(gradients(actual, arguments), gradients(expected, arguments), FLOAT32)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "non_strict"])
@all_cases
def test_export_keeps_the_length_free(case: Case, strict: bool, fresh_compiler: None) -> None:
    class Module(torch.nn.Module):
        def forward(self, arguments: Arguments) -> tuple[Tensor, ...]:
            return function_of(case)(arguments)

    def detached(length: int) -> Arguments:
        return {name: x.detach() for name, x in leaves_of(case, length).items()}

    length = torch.export.Dim("length", min=2, max=1 << 20)
    free = {name: [i for i, n in enumerate(x.shape) if n == TOKENS] for name, x in detached(TOKENS).items()}
    shapes = {name: dict.fromkeys(dimensions, length) or None for name, dimensions in free.items()}
    program = torch.export.export(Module(), (detached(TOKENS),), dynamic_shapes=(shapes,), strict=strict)
    assert_equal(program.module()(detached(11)), function_of(case)(detached(11)))


@all_cases
def test_autocast_computes_in_bfloat16(case: Case) -> None:
    arguments = leaves_of(case)
    expected = function_of(case)(arguments)
    with torch.autocast("cpu", torch.bfloat16):
        actual = function_of(case)(arguments)
    kept = {"decay_scan": 1, "softmax_read": 1}
    kept |= dict.fromkeys(("gated_read", "free_energy_attention", "free_energy_read", "newton_read"), 0)
    in_float32 = kept.get(case.op, 2 if case.options.get("causal", True) else 1)  # log_normalizer and state
    lowered = len(actual) - in_float32
    assert [x.dtype for x in actual] == [torch.bfloat16] * lowered + [torch.float32] * in_float32
    assert_near(actual, expected, BFLOAT16)
    actual_gradients = gradients(actual, arguments)
    assert all(x.dtype == torch.float32 for x in actual_gradients)
    assert_near(actual_gradients, gradients(expected, arguments), 4 * BFLOAT16)  # of squares, and back


@all_cases
def test_checkpoint_recomputes_the_same_gradients(case: Case) -> None:
    arguments = leaves_of(case)
    again = checkpoint(function_of(case), arguments, use_reentrant=False)
    assert_equal(gradients(again, arguments), gradients(function_of(case)(arguments), arguments))


@pytest.mark.parametrize("case", [x for x in KERNEL_CASES if x.op != "free_energy_attention"], ids=lambda case: case.id)
def test_other_devices_give_what_the_kernels_give(case: Case) -> None:
    table = torch._C._dispatch_dump_table("fem::" + case.op).splitlines()
    for device in ("CUDA", "MPS", "XPU"):
        assert any(line.startswith(device + ":") and "[default backend kernel]" in line for line in table)
    gradient, gradient_arguments = gradient_operator(case, torch.float32, TOKENS)
    for operator, arguments in ((case.run, case.arguments(torch.float32, TOKENS)), (gradient, gradient_arguments)):
        definition = tensors_in(operator._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, **arguments))
        kernel = tensors_in(operator(**arguments))
        if len(case.run._schema.returns) == 5 and operator is case.run:
            definition, kernel = definition[:4], kernel[:4]  # only kernels keep checkpoints
        for d, k in zip(definition, kernel, strict=True):
            torch.testing.assert_close(d, k, rtol=FLOAT32, atol=FLOAT32)


def test_other_devices_are_announced_once() -> None:
    script = """
import torch, fem
definition = torch._C.DispatchKey.CompositeExplicitAutograd
x = torch.rand(1, 3, 2, 2)
for _ in range(2):
    torch.ops.fem.softmax_read.default._op_dk(definition, x, x, x, None)
    torch.ops.fem.gated_read.default._op_dk(definition, x, None, None, x)
    torch.ops.fem.decay_scan.default._op_dk(definition, x[0], -x[0])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stderr.count("fem has kernels for the CPU only") == 1


def test_fake_tensors_of_other_devices_have_shapes() -> None:
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=False):
        arguments = {name: torch.empty(x.shape, device="cuda") for name, x in leaves_of(CAUSAL[3]).items()}
        read = ops.ssm_read(**arguments)
        assert read.state is not None
        assert (read.mean.shape, read.mean.device.type) == (arguments["value"].shape, "cuda")
        assert read.state.shape == (2, 3, 2, 3, 2)
