"""Meta, which compilers ask, and the real operators agree about shapes and dtypes, of sizes 0 and 1, too."""

from typing import Any

import torch
from ops_hostile import Arguments, resized_calls
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only


def described(run: Any, arguments: Arguments) -> list[tuple[torch.Size, torch.dtype]] | str:
    """What comes back, or that it was refused."""
    try:
        with torch.no_grad():
            return [(x.shape, x.dtype) for x in tree_leaves(run(**arguments)) if isinstance(x, Tensor)]
    except (ValueError, RuntimeError, IndexError):
        return "refused"


def test_meta_equals_real_of_every_operator_and_its_gradient() -> None:
    calls = refused = 0
    wrong = []
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for label, run, arguments in resized_calls(dtype):
            real = described(run, arguments)
            meta = described(run, tree_map_only(Tensor, lambda x: x.to("meta"), arguments))
            calls, refused = calls + 1, refused + (real == "refused")
            if real != meta:
                wrong.append(f"{label} {dtype}: {real}, but meta {meta}")
    assert not wrong, "\n".join(wrong)
    assert calls > 1500 and refused < calls / 20
