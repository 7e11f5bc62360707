"""Decode many payloads for one tensor, with common work done once.

Models have many small tensors, and each worker sends a payload for each of them in each step. Computing the layout of a
small payload takes longer than decoding it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from compressors.lazy import np, npt, torch
from compressors.random_key import Key

_FLOAT32_BYTES = 4


class Message:
    """The payloads of a message in one contiguous buffer, and views of this buffer for decoders.

    Args:
        tensor: 1-D uint8, contiguous.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def payload(self, start: int, size: int) -> torch.Tensor:
        """Return the payload of `size` bytes that begins at byte `start`."""
        return self.tensor[start : start + size]

    @functools.cached_property
    def array(self) -> npt.NDArray[np.uint8]:
        """The message's bytes as a numpy array, if they are in main memory."""
        return self.tensor.numpy()

    @functools.cached_property
    def floats(self) -> torch.Tensor | None:
        """The message viewed as float32 from its beginning, without a rest; None if its beginning is not aligned for
        float32.
        """
        aligned = self.tensor.data_ptr() % _FLOAT32_BYTES == 0 and self.tensor.storage_offset() % _FLOAT32_BYTES == 0
        whole = self.tensor.numel() // _FLOAT32_BYTES * _FLOAT32_BYTES
        return self.tensor[:whole].view(torch.float32) if aligned else None

    def place(self, start: int) -> int | None:
        """Return the index of the float at byte `start` in the storage of `floats`, for `as_strided`; None if it is not
        aligned.
        """
        if start % _FLOAT32_BYTES or self.floats is None:
            return None
        return self._first + start // _FLOAT32_BYTES

    @functools.cached_property
    def _first(self) -> int:
        assert self.floats is not None
        return int(self.floats.storage_offset())


Decode = Callable[[Message, int, int, Key, float], None]
"""Decodes for a certain tensor what stands in a message: where it starts, bytes, key, and weight; as
`Compressor.decompress_add` or `decompress_to`."""
