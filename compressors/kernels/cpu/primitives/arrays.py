"""Types of the arrays that compiled kernels take, and tensors as such arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

Float32s: TypeAlias = npt.NDArray[np.float32]
Float64s: TypeAlias = npt.NDArray[np.float64]
Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]
Uint8s: TypeAlias = npt.NDArray[np.uint8]
Uint16s: TypeAlias = npt.NDArray[np.uint16]
Uint32s: TypeAlias = npt.NDArray[np.uint32]
Uint64s: TypeAlias = npt.NDArray[np.uint64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Array: TypeAlias = npt.NDArray[Any]


def array(x: torch.Tensor | Array) -> Array:
    """Return the memory of a tensor as a numpy array, and an array unchanged."""
    return x if isinstance(x, np.ndarray) else x.numpy()
