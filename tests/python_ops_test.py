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
