"""Messages of several workers into the gradients of units."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from compressors import Compressor, CorruptPayload, Key, build
from compressors.message import Message
from trainers.gradients.flat import Unit
from trainers.lanes.decoding import Decoders
from trainers.lanes.parcel import Parcel
from trainers.mpi.message_sizes import align

SHAPES = [(7, 5), (3,), (24, 31)]
WORKERS = 3


def units() -> list[Unit]:
    """With gradients that nobody wants."""
    tensors = [torch.full(shape, float("nan")) for shape in SHAPES]
    return [Unit(index, f"u{index}", tensor, tensor) for index, tensor in enumerate(tensors)]


def parcels(of: Sequence[Unit], compressor: Compressor, worker: int = 0) -> list[Parcel]:
    x = [torch.randn(unit.gradient.shape, generator=torch.Generator().manual_seed(worker)) for unit in of]
    return [Parcel(unit, compressor, Key(0, worker, 1, unit.index), x[unit.index]) for unit in of]


def sent(of: Sequence[Parcel]) -> tuple[torch.Tensor, list[int]]:
    """The message of a worker, and the sizes of its payloads."""
    payloads = [parcel.compressor.compress(parcel.x, parcel.key) for parcel in of]
    message = torch.zeros(sum(align(len(payload)) for payload in payloads), dtype=torch.uint8)
    start = 0
    for payload in payloads:
        message[start : start + len(payload)] = payload
        start += align(len(payload))
    return message, [len(payload) for payload in payloads]


def expected(compressor: Compressor) -> list[torch.Tensor]:
    """The mean of the workers, payload by payload."""
    of = units()
    for worker in range(WORKERS):
        for parcel in parcels(of, compressor, worker):
            payload = compressor.compress(parcel.x, parcel.key)
            decode = compressor.decompress_add if worker else compressor.decompress_to
            decode(payload, parcel.unit.gradient, parcel.key, 1 / WORKERS)
    return [unit.gradient for unit in of]


@pytest.mark.parametrize("names", [["qsgd", "qsgd"], ["svd", "topk", "qsgd", "none", "svd"]])
def test_the_mean_of_all_workers_is_decoded_step_after_step(names: list[str]) -> None:
    """Also where another compressor comes into force, and a second one of the same kind."""
    of, decoders = units(), Decoders()
    for name in names:
        compressor = build(name)
        messages = [sent(parcels(of, compressor, worker)) for worker in range(WORKERS)]
        whole = Message(torch.cat([message for message, _ in messages]))
        start = 0
        for worker, (message, sizes) in enumerate(messages):
            end = start + len(message)
            decoders(parcels(of, compressor), whole, start, end, sizes, 1 / WORKERS, first=worker == 0)
            start = end
        for unit, mean in zip(of, expected(compressor), strict=True):
            assert torch.equal(unit.gradient, mean)


@pytest.mark.parametrize("size", [-1, 10_000, 2**32 - 1])
def test_sizes_that_do_not_fit_the_message_are_refused(size: int) -> None:
    of, decoders = parcels(units(), build("topk")), Decoders()
    message, sizes = sent(of)
    other = torch.cat([message, torch.zeros(20_000, dtype=torch.uint8)])  # that of the next worker is out of reach
    for wrong in range(len(sizes)):
        told = [*sizes[:wrong], size, *sizes[wrong + 1 :]]
        with pytest.raises(
            CorruptPayload, match=rf"^u{wrong}: a payload of {size} bytes in a message of {len(message)}$"
        ):
            decoders(of, Message(other), 0, len(message), told, 1.0)
