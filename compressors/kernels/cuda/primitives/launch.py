"""Start Triton kernels so that they round as the other implementations do.

Triton would contract a * b + c to one rounding; `launch` forbids it. Kernels divide by `tl.div_rn`, as a
plain division of float32 is off by a bit on a GPU. Denormals are kept.

What a kernel gets as `tl.constexpr` is compiled into it; kernels name their other numbers in
`do_not_specialize`, so that a new value compiles nothing. They start with 64-bit indices
(`.to(tl.int64)`), since a tensor may have more than 2^31 elements.

A decoder that finds bytes that no encoder can have written raises a flag in the memory of the GPU
(`compressors.flags`).
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import torch
import triton

_compiled: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}
"""By what a launch compiles for: the compiled kernel, and the values of its constants in order."""


def launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    """Run `programs` programs of `kernel` on the device of the first argument, a tensor; do nothing if that is 0.

    Triton takes up to 100 us to find what it has compiled for these arguments. It is kept here by the same features:
    the types of tensors, whether 16 divides their addresses, and the sizes of integers.
    """
    if not programs:
        return
    device = arguments[0].device
    if not isinstance(kernel, triton.JITFunction):  # but an interpreted function
        kernel[(programs,)](*arguments, enable_fp_fusion=False, **constants)
        return
    is_current = device.index == torch.cuda.current_device()
    with contextlib.nullcontext() if is_current else torch.cuda.device(device):
        key = id(kernel), device.index, *map(_find_feature, arguments), *constants.items()
        found = _compiled.get(key)
        if found is None:
            compiled = kernel[(programs,)](*arguments, enable_fp_fusion=False, **constants)
            values = tuple(constants[name] for name in kernel.arg_names[len(arguments) :])
            _compiled[key] = compiled, values
        else:
            compiled, values = found
            compiled[(programs, 1, 1)](*arguments, *values)


def _find_feature(argument: Any) -> Any:
    """Return what Triton compiles for in an argument; integers are not specialised (`do_not_specialize`)."""
    if isinstance(argument, torch.Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    return -(2**31) <= argument < 2**31


def wrap_to_int64(bits: int) -> int:
    """Return the int64 with the same 64 bits, as Triton passes integers."""
    return (bits & (2**64 - 1)) - (2**64 if bits >> 63 & 1 else 0)


def float64_bits(value: float) -> int:
    """Return the bits of a Python float as an integer: Triton would round the float itself to float32."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def power_of_two(count: int) -> int:
    """Return the smallest power of two that is at least `count`, which is positive: blocks have such lengths."""
    return 1 << (count - 1).bit_length()
