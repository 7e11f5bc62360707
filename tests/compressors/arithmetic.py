"""What torch computes otherwise on a GPU than on a CPU, noticed on a CPU."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SUMS = {"sum", "mean", "cumsum", "prod", "cumprod", "norm", "linalg_vector_norm", "std", "var", "dot", "mm", "bmm"}
FUNCTIONS = {"exp", "exp2", "expm1", "log", "log2", "log1p", "rsqrt", "reciprocal", "addcmul", "addcdiv", "lerp"}
LINEAR_ALGEBRA = {"demo", "svd", "truncated_svd", "qsvd", "powersgd", "batched_powersgd", "acp_sgd", "dion"}
"""Methods with products of matrices, whose sums are those of a library."""
LIBRARY = {"powersgd", "batched_powersgd", "acp_sgd", "dion"}
"""Those with other sums than the reference in Triton's interpreter, too."""


class Arithmetic(TorchDispatchMode):
    """Notes what torch rounds in another way, or adds up in another order, on a GPU than on a CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.rstrip("_")
        if name in ("div", "true_divide", "divide") and not isinstance(args[1], torch.Tensor):
            if math.frexp(args[1])[0] != 0.5:  # exact by its reciprocal too
                self.found.add(f"{name} by {args[1]}")
        elif (name in SUMS | FUNCTIONS or (name == "pow" and args[1] != 2)) and args[0].is_floating_point():
            self.found.add(name)
        return func(*args, **(kwargs or {}))
