"""Payloads of messages into the gradients of their units."""

from __future__ import annotations

from collections.abc import Sequence

from compressors import Compressor, CorruptPayload
from compressors.message import Decode, Message
from trainers.lanes.parcel import Parcel
from trainers.mpi.message_sizes import align


class Decoders:
    """What decodes for each unit; it is prepared when a unit first meets a compressor."""

    def __init__(self) -> None:
        self._adding: dict[int, tuple[Compressor, Decode]] = {}  # by unit: for which compressor
        self._replacing: dict[int, tuple[Compressor, Decode]] = {}

    def __call__(
        self,
        parcels: Sequence[Parcel],
        message: Message,
        start: int,
        end: int,
        sizes: Sequence[int],
        weight: float,
        *,
        first: bool = False,
    ) -> None:
        """Accumulate payloads, times `weight`, into the gradients of these units; with `first`, whatever these hold is
        replaced.

        Args:
            start: where in the message the payloads begin; each is at a multiple of ALIGNMENT bytes from there.
            end: where what their worker has sent ends.
            sizes: of the payloads.

        Raises:
            CorruptPayload: the sizes do not fit the message, or a payload cannot be one of its unit.
        """
        known = self._replacing if first else self._adding
        offset = start
        for parcel, size in zip(parcels, sizes, strict=True):
            unit, compressor = parcel.unit, parcel.compressor
            if not 0 <= size <= end - offset:
                raise CorruptPayload(f"{unit.name}: a payload of {size} bytes in a message of {end - start}")
            found = known.get(unit.index)
            if found is None or found[0] is not compressor:
                found = known[unit.index] = compressor, compressor.decoder(unit.gradient, replace=first)
            found[1](message, offset, size, parcel.key, weight)
            offset += align(size)
