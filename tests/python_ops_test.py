"""The operators from Python, as torch sees them: registration, gradients, compiled graphs.

usage: python_ops_test.py LIBFEM
"""

import sys
import unittest
import warnings

import torch
from torch.library import opcheck

OPS = torch.ops.fem


def softmax_inputs(dtype=torch.float64, requires_grad=True):
    torch.manual_seed(0)
    shapes = [(2, 7, 2, 4), (2, 7, 2, 4), (2, 7, 2, 3)]
    tensors = [torch.randn(s, dtype=dtype, requires_grad=requires_grad) for s in shapes]
    beta = (torch.rand(2, 3, dtype=dtype) + 0.5).requires_grad_(requires_grad)
    return (*tensors, beta)


def linear_time_inputs(dtype, tokens, batch=2):
    """(operator, arguments) of every linear-time read; arguments are leaves with gradients."""
    torch.manual_seed(1)
    heads, width, rank = 2, 3, 2

    def leaf(*shape, low=0.1, high=1.0):
        return (torch.rand(shape, dtype=dtype) * (high - low) + low).requires_grad_()

    def channel(**limits):
        return leaf(batch, tokens, heads, width, **limits)

    value, beta = channel(low=-1.0), leaf(heads, width, low=0.5, high=2.0)
    query, key = (leaf(batch, tokens, heads, 4) for _ in range(2))
    decay = leaf(batch, tokens, heads, low=-1.0, high=-0.1)
    ssm = (channel(), leaf(heads, width, rank, low=-1.0, high=-0.1), leaf(batch, tokens, rank),
           leaf(batch, tokens, rank), leaf(heads, width))
    return [("linear_scan", (query, key, value, beta)), ("linear_scan", (query, key, value, beta, decay)),
            ("channel_scan", (value, beta, channel(low=-1.0), None)),
            ("channel_scan", (value, beta, None, channel(low=-1.0, high=-0.1))),
            ("ssm_scan", (value, beta, *ssm))]


class Operators(unittest.TestCase):
    def setUp(self):
        warnings.filterwarnings("error", message=".*autograd kernel was not registered.*")

    def test_softmax_read_passes_opcheck(self):
        for dtype in (torch.float32, torch.float64):
            q, k, v, beta = softmax_inputs(dtype)
            opcheck(OPS.softmax_read.default, (q, k, v, beta))
            opcheck(OPS.softmax_read.default, (q, k, v, None), {"causal": False})
            mask = torch.rand(2, 7) > 0.3
            opcheck(OPS.softmax_read.default, (q, k, v, beta), {"key_mask": mask, "window": 3})

    def test_decay_scan_and_gated_read_pass_opcheck(self):
        for dtype in (torch.float32, torch.float64):
            u, d = (torch.randn(2, 5, 3, dtype=dtype, requires_grad=True) for _ in range(2))
            opcheck(OPS.decay_scan.default, (u, d, torch.randn(2, 3, dtype=dtype, requires_grad=True)))
            opcheck(OPS.decay_scan.default, (u, d))
            x = [torch.randn(2, 5, 2, 3, dtype=dtype, requires_grad=True) for _ in range(4)]
            opcheck(OPS.gated_read.default, tuple(x))
            opcheck(OPS.gated_read.default, (x[0], None, None, x[3]))

    def test_linear_time_reads_pass_opcheck(self):
        for name, inputs in linear_time_inputs(torch.float32, 9):
            opcheck(getattr(OPS, name).default, inputs)
            mask = torch.arange(9) >= torch.tensor([[0], [3]])
            opcheck(getattr(OPS, name).default, inputs, {"key_mask": mask, "strict": True})

    def test_linear_time_reads_repeat_bit_by_bit(self):
        for tokens in (64, 256, 300):
            for name, inputs in linear_time_inputs(torch.float32, tokens, batch=1):
                borders = torch.tensor([0, 0, tokens // 2, tokens])
                for options in ({}, {"cu_seqlens": borders}):
                    torch.full((1 << 20,), float("nan"))  # what freed memory may hold
                    first, again = (getattr(OPS, name)(*inputs, **options) for _ in range(2))
                    self.assertTrue(all(torch.equal(a, b) for a, b in zip(first, again)), (name, tokens, options))

    def test_linear_time_reads_have_gradients_of_both_orders(self):
        for name, inputs in linear_time_inputs(torch.float64, 3):
            read = lambda *a, op=getattr(OPS, name): op(*a)[:3]  # noqa: E731
            self.assertTrue(torch.autograd.gradcheck(read, inputs), name)
            self.assertTrue(torch.autograd.gradgradcheck(read, inputs), name)

    def test_modulate_passes_opcheck(self):
        x, hidden = (torch.randn(2, 5, n, requires_grad=True) for n in (12, 4))
        weight = torch.randn(4, 12, requires_grad=True)
        opcheck(OPS.modulate.default, (x.view(2, 5, 3, 4), hidden, weight))
        table = [torch.randn(5, 4) for _ in range(2)]
        opcheck(OPS.modulate.default, (x.view(2, 5, 3, 4), hidden, weight, *table, 0.1))

    def test_gradients_of_both_orders(self):
        q, k, v, beta = (x[:1, :4].detach().requires_grad_() if x.dim() == 4 else x for x in softmax_inputs())
        read = lambda *a: OPS.softmax_read(*a)[:2]  # noqa: E731
        self.assertTrue(torch.autograd.gradcheck(read, (q, k, v, beta)))
        self.assertTrue(torch.autograd.gradgradcheck(read, (q, k, v, beta)))

    def test_other_devices_run_the_definition_and_shapes_agree(self):
        meta = [x.to("meta") for x in softmax_inputs(torch.float32, False)]
        for fake, real in zip(OPS.softmax_read(*meta), OPS.softmax_read(*softmax_inputs(torch.float32, False))):
            self.assertEqual((fake.shape, fake.stride(), fake.dtype), (real.shape, real.stride(), real.dtype))

    def test_errors_are_value_errors(self):
        q, k, v, beta = softmax_inputs(torch.float32)
        with self.assertRaisesRegex(ValueError, "softmax_read: expected beta of shape"):
            OPS.softmax_read(q, k, v, beta[0])


if __name__ == "__main__":
    torch.ops.load_library(sys.argv.pop(1))
    unittest.main()
