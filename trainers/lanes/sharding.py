"""The lane of sharded units: each worker forms the mean of its shard, and all workers get all shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
import torch

from compressors.policy.policy import Selector
from trainers.devices.stopwatch import Stopwatch
from trainers.lanes.bundles import Room, find_fixed_sizes, sum_bounds
from trainers.lanes.gathering import encode_sizes
from trainers.lanes.parcel import Parcel
from trainers.lanes.second_phase import SecondPhase
from trainers.lanes.two_phase import TwoPhaseLane
from trainers.mpi.group import Group
from trainers.mpi.message_sizes import align, count_words


def assign_owners(elements: Sequence[int], workers: int) -> list[int]:
    """Return the owner of every unit: the largest unit first, each to the worker with the fewest elements so far.

    Longest processing time first (Graham, 1969): no worker has more than 4/3 of the least possible load. Ties go by
    the unit's index and the worker's rank, so that all workers compute the same owners.
    """
    owners, loads = [0] * len(elements), [0] * workers
    for unit in sorted(range(len(elements)), key=lambda unit: (-elements[unit], unit)):
        owners[unit] = loads.index(min(loads))
        loads[owners[unit]] += elements[unit]
    return owners


class ShardLane(TwoPhaseLane):
    """A lane that sends every payload to its unit's owner (all-to-all), and every shard's mean to all workers
    (allgather).

    The bytes that a worker sends hardly depend on the number of workers W: with equal shards it sends (W - 1) / W of
    its message, and W - 1 times the mean of its shard, which is 1 / W of the model. If the sizes of payloads depend on
    the data, the sizes (uint32 a unit) are sent first in both phases. `payload_bytes` is the size of the message in the
    first phase, with these sizes.
    """

    def __init__(
        self, comm: Group, watch: Stopwatch, selector: Selector, second: SecondPhase, owners: Sequence[int]
    ) -> None:
        super().__init__(comm, watch, selector, second, owners)
        self._incoming, self._outgoing, self._gathered = (Room(comm.allocate) for _ in range(3))

    def communicate(self) -> Iterator[tuple[Parcel, torch.Tensor]]:
        self.form_mean(self._scatter())
        self.prepare_answers()
        self.encode_answer(self._outgoing.get(sum_bounds(self.answered[self.comm.rank])))
        self._gather()
        yield from ()

    def _scatter(self) -> list[tuple[torch.Tensor, list[int]]]:
        """Execute the first phase; return each worker's message for this worker's shard, with the sizes of its
        payloads."""
        workers, rank = self.comm.size, self.comm.rank
        bundles = [self.bundles[owner] for owner in range(workers)]
        fixed_sizes = find_fixed_sizes(self.parcels)
        others = [int(worker != rank) for worker in range(workers)]  # a worker's own payloads are not sent
        lengths = [list(bundles[rank].sizes)] * workers
        with self.watch("communicate"):
            if fixed_sizes is None:
                own = encode_sizes([size for bundle in bundles for size in bundle.sizes])
                self.collectives.count("sizes")
                lengths = self.comm.scatter_numbers(own, [len(bundle.parcels) for bundle in bundles]).tolist()
                lengths.insert(rank, list(bundles[rank].sizes))
            received = _multiply([sum(map(align, of_message)) for of_message in lengths], others)
            starts = list(accumulate(received, initial=0))
            count_words(starts[-1], "a shard's messages")
            count_words(self.starts[-1])
            incoming = self._incoming.get(starts[-1])
            self.collectives.count("alltoall")
            sent = _multiply([bundle.used for bundle in bundles], others)
            self.comm.scatter(incoming, received, self._message, sent, self.starts[:-1])
        for owner, bundle in enumerate(bundles):
            size = bundle.used + (0 if fixed_sizes is not None else 4 * len(bundle.parcels))
            self.payload_bytes += size
            self.sent_bytes += size if owner != rank else 0
        messages = [incoming[low:high] for low, high in zip(starts, starts[1:], strict=False)]
        messages[rank] = bundles[rank].message()
        return list(zip(messages, lengths, strict=True))

    def _gather(self) -> None:
        """Execute the second phase: send the mean of this worker's shard to all workers, and receive theirs."""
        workers = self.comm.size
        fixed_sizes = [find_fixed_sizes(parcels) for parcels in self.answered]
        counts = [len(parcels) for parcels in self.answered]
        own = self.answer.used
        with self.watch("communicate"):
            if None in fixed_sizes:
                self.collectives.count("sizes")
                everyone = self.comm.gather_numbers(encode_sizes(self.answer.sizes), counts)
                edges = np.cumsum([0, *counts])
                self._lengths = [everyone[low:high].tolist() for low, high in zip(edges, edges[1:], strict=False)]
                own += 4 * len(self.answer.sizes)
            else:
                self._lengths = [lengths for lengths in fixed_sizes if lengths is not None]
            received = [sum(map(align, of_message)) for of_message in self._lengths]
            self._starts = list(accumulate(received, initial=0))
            count_words(self._starts[-1])
            self._means = self._gathered.get(self._starts[-1])
            self.collectives.count("allgather")
            self.comm.gather_unequal(self._means, self.answer.message(), received)
        self.sent_bytes += (workers - 1) * own

    def decode(self) -> None:
        edges = zip(self._starts, self._starts[1:], strict=False)
        messages = (self._means[low:high] for low, high in edges)
        self.decode_answers(zip(self.answered, messages, self._lengths, strict=True))


def _multiply(counts: Sequence[int], factors: Sequence[int]) -> list[int]:
    return [count * factor for count, factor in zip(counts, factors, strict=True)]
