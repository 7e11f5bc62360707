"""Flags by which decoders on a GPU refuse payloads, and one wait for all flags of a step.

Reading a flag waits for the GPU. Within `read_together` nothing waits until the end of the block, which raises the
error for all payloads that were decoded in it; within `unread` no flag is read. Some decoders must know at once, since
bytes that no encoder writes would lead them to other memory. These read their flag with `is_raised`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from compressors.base import CorruptPayload
from compressors.lazy import torch

_CHUNK = 4096


class _Flags:
    """Flags on one device: zero int32, allocated together."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._chunks: list[torch.Tensor] = []
        self._free: list[torch.Tensor] = []
        self.taken = 0

    def take(self) -> torch.Tensor:
        if self.taken == len(self._free):
            self._chunks.append(torch.zeros(_CHUNK, dtype=torch.int32, device=self._device))
            self._free += self._chunks[-1].split(1)
        self.taken += 1
        return self._free[self.taken - 1]

    def count_raised(self) -> int:
        """Wait for the device, and return how many of the taken flags are raised."""
        return sum(int(chunk.sum()) for chunk in self._chunks[: -(-self.taken // _CHUNK)])

    def give_back(self, *, lowered: bool) -> None:
        """Make all flags free again; `lowered` says that they are known to be zero."""
        if not lowered:
            for chunk in self._chunks:
                chunk.zero_()
        self.taken = 0


_together: dict[torch.device, _Flags] = {}
_unread: dict[torch.device, torch.Tensor] = {}
_is_together = _is_unread = False


@contextlib.contextmanager
def read_together() -> Iterator[None]:
    """Read the flags that decoders raise within the block at its end, with one wait for each GPU.

    Raises:
        CorruptPayload: payloads that no encoder can have written; the tensors they were added to are spoilt.
    """
    global _is_together
    if _is_together:
        yield
        return
    _is_together, is_complete = True, False
    try:
        yield
        taken = sum(flags.taken for flags in _together.values())
        raised = sum(flags.count_raised() for flags in _together.values())
        is_complete = not raised
        if raised:
            raise CorruptPayload(f"{raised} of {taken} payloads of this step cannot come from their encoders")
    finally:
        _is_together = False
        for flags in _together.values():
            flags.give_back(lowered=is_complete)


@contextlib.contextmanager
def unread() -> Iterator[None]:
    """Read no flags within the block: it decodes only what this process has just encoded."""
    global _is_unread
    before, _is_unread = _is_unread, True
    try:
        yield
    finally:
        _is_unread = before


def make(device: torch.device) -> torch.Tensor:
    """Return a zero int32 on `device`; a kernel sets it to 1 to report an error."""
    if _is_unread:
        flag = _unread.get(device)
        if flag is None:
            flag = _unread[device] = torch.zeros(1, dtype=torch.int32, device=device)
        return flag
    if not _is_together:
        return torch.zeros(1, dtype=torch.int32, device=device)
    flags = _together.get(device)
    if flags is None:
        flags = _together[device] = _Flags(device)
    return flags.take()


def is_raised(flag: torch.Tensor) -> bool:
    """Wait for the kernel, and tell whether it has raised the flag."""
    return bool(flag.item())


def is_refused(flag: torch.Tensor) -> bool:
    """Tell whether the flag is raised; within `read_together` or `unread` return False without a wait."""
    return not (_is_together or _is_unread) and is_raised(flag)
