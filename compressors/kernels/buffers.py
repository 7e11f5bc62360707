"""Convert tensors to the flat buffers that kernels and messages need, and back.

Payloads are little-endian; a view of the same memory is used if the layout allows it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from compressors.base import CorruptPayload
from compressors.lazy import np, torch

if sys.byteorder != "little":
    raise ImportError("payloads are little-endian and written as views of memory; this machine is big-endian")

_FLOAT32_BYTES = 4
_PIECE = 1 << 14


def is_plain(tensor: torch.Tensor) -> bool:
    """Tell whether a kernel can work on the tensor's own memory: aligned contiguous float32."""
    return tensor.dtype is torch.float32 and tensor.is_contiguous() and tensor.data_ptr() % _FLOAT32_BYTES == 0


def is_aligned(payload: torch.Tensor, width: int = _FLOAT32_BYTES) -> bool:
    """Tell whether a payload can be viewed as numbers of `width` bytes, float32 by default."""
    return payload.data_ptr() % width == 0 and payload.storage_offset() % width == 0


def as_float32(x: torch.Tensor) -> torch.Tensor:
    """Return `x` as a 1-D float32 tensor: a view if `x` is plain, else a rounded or gathered copy.

    Raises:
        TypeError: `x` is not of a floating dtype.
    """
    check_floating(x)
    x = x.detach()
    return x.view(-1) if is_plain(x) else x.to(torch.float32, copy=True, memory_format=torch.contiguous_format).view(-1)


def check_floating(x: torch.Tensor) -> None:
    """Raise TypeError if `x` is not of a floating dtype."""
    if not x.is_floating_point():
        raise TypeError(f"compressors take floating tensors, not {x.dtype}")


def split(x: torch.Tensor, width: int = 1) -> tuple[torch.Tensor, ...]:
    """Return 1-D `x` cut into parts of `width` * _PIECE elements, the last one shorter; at least one part.

    Work that is done part by part needs little memory. On other devices than the CPU, where each operation has a fixed
    cost, there is only one part.
    """
    return x.split(width * _PIECE) if x.device.type == "cpu" else (x,)


def is_on(tensor: torch.Tensor, device: torch.device) -> bool:
    """Tell whether kernels of `device` can work on the tensor's own memory."""
    return tensor.device == device


def prepare(out: torch.Tensor | None, size: int, device: torch.device) -> torch.Tensor:
    """Return a buffer of `size` bytes on `device` for a payload, to be passed to `deliver` when it is filled.

    It is the beginning of `out`, or new memory if `out` is None or on another device.

    Raises:
        ValueError: `out` is not a contiguous 1-D uint8 tensor, or is too short.
    """
    if out is None:
        return torch.empty(size, dtype=torch.uint8, device=device)
    if out.dtype is not torch.uint8 or out.dim() != 1 or not out.is_contiguous():
        raise ValueError(f"out must be a contiguous 1-D uint8 tensor, not {out.dim()}-D {out.dtype}")
    if out.numel() < size:
        raise ValueError(f"out has {out.numel()} bytes, the payload needs {size}")
    return out[:size] if is_on(out, device) else torch.empty(size, dtype=torch.uint8, device=device)


def deliver(payload: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Return `payload`, which fills the buffer from `prepare`, at the beginning of `out` if there is an `out`.

    If `out` is on another device (a message in main memory, and a gradient on a GPU), the payload is copied there.
    """
    if out is None or is_on(out, payload.device):
        return payload
    return out[: len(payload)].copy_(payload)


def receive(payload: torch.Tensor, device: torch.device, size: int | None = None) -> torch.Tensor:
    """Return `payload` contiguous and on `device`, copied if necessary; check that it has `size` bytes.

    Raises:
        CorruptPayload: it is not a 1-D uint8 tensor, or has another length.
    """
    if payload.dtype is not torch.uint8 or payload.dim() != 1:
        raise CorruptPayload(f"a payload is a 1-D uint8 tensor, not a {payload.dim()}-D {payload.dtype}")
    if size is not None:
        check_size(payload.numel(), size)
    return payload.contiguous() if is_on(payload, device) else payload.to(device, copy=True).contiguous()


def check_size(size: int, wanted: int) -> None:
    """Raise CorruptPayload if a payload has `size` bytes instead of `wanted`."""
    if size != wanted:
        raise CorruptPayload(f"the payload has {size} bytes, a tensor of this shape has {wanted}")


@contextlib.contextmanager
def accumulator(out: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a 1-D plain float32 tensor to accumulate in: a view of `out`, or zeros added to `out` at the end."""
    out = out.detach()
    if is_plain(out):
        yield out.view(-1)
        return
    total = torch.zeros(out.shape, device=out.device)
    yield total.view(-1)
    out.add_(total)


def write_floats(x: torch.Tensor, payload: torch.Tensor) -> None:
    """Write the elements of `x`, in order, as float32 into `payload` of exactly that many bytes."""
    if is_plain(x) and x.device.type == payload.device.type == "cpu":
        # memcpy aligns its stores, copy_ does not: behind a payload of odd length, that takes 2.5 times as long.
        payload.numpy()[:] = x.detach().numpy().reshape(-1).view(np.uint8)
    elif is_aligned(payload):
        payload.view(torch.float32).view(x.shape).copy_(x.detach())
    else:
        payload.copy_(as_float32(x).view(torch.uint8))


@contextlib.contextmanager
def floats_of(payload: torch.Tensor, count: int, dtype: str) -> Iterator[torch.Tensor]:
    """Yield a float32 buffer of `count` numbers; the block's end writes them to `payload` as `dtype`.

    If possible the buffer is `payload` itself, and nothing is copied.
    """
    if dtype == "float32" and is_aligned(payload):
        yield payload.view(torch.float32)
        return
    values = torch.empty(count, dtype=torch.float32, device=payload.device)
    yield values
    payload.copy_(values.to(getattr(torch, dtype)).view(torch.uint8))


def read_floats(payload: torch.Tensor) -> torch.Tensor:
    """Return the 1-D floats that `write_floats` has written: a view of `payload` if it is aligned."""
    if not is_aligned(payload):
        payload = payload.clone()
    return payload.view(torch.float32)
