"""Decoding of messages into the gradients of units."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from compressors import Compressor, CorruptPayload
from compressors.message import Decode, Message
from trainers.gradients.flat import Unit
from trainers.lanes.parcel import Parcel
from trainers.mpi.message_sizes import align


class Decoders:
    """The decoders of each unit, built when a unit first has a compressor."""

    def __init__(self) -> None:
        self._adding: dict[int, tuple[Unit, Compressor, Decode]] = {}  # by the index of the unit
        self._replacing: dict[int, tuple[Unit, Compressor, Decode]] = {}

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
        apart: dict[int, list[torch.Tensor]] | None = None,
    ) -> None:
        """Add payloads, times `weight`, to the gradients of these units; with `first`, replace the gradients.

        Args:
            apart: gets, by the index of the unit, the payloads of compressors that average them (`averages`), which are
                not decoded; None: there are none.
            start: byte of the message where the payloads begin; each is at a multiple of ALIGNMENT from there.
            end: byte where their worker's message ends.
            sizes: of the payloads.

        Raises:
            CorruptPayload: the sizes do not fit the message, or a payload cannot be one of its unit.
        """
        prepared = self._replacing if first else self._adding
        offset = start
        for parcel, size in zip(parcels, sizes, strict=True):
            unit, compressor = parcel.unit, parcel.compressor
            if not 0 <= size <= end - offset:
                raise CorruptPayload(f"{unit.name}: a payload of {size} bytes in a message of {end - start}")
            if apart is not None and compressor.averages:
                apart.setdefault(unit.index, []).append(message.payload(offset, size))
            else:
                decoder = prepared.get(unit.index)
                if decoder is None or decoder[0] is not unit or decoder[1] is not compressor:
                    decode = compressor.build_decoder(unit.gradient, replace=first)
                    decoder = prepared[unit.index] = unit, compressor, decode
                decoder[2](message, offset, size, parcel.key, weight)
            offset += align(size)
