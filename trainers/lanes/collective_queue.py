"""Queues that carry out the collectives which lanes post: after backward, or on a thread during backward.

Both queues carry out the same blocking collectives in the order in which they were posted, so that sums are rounded
equally and the same bytes are sent. Non-blocking collectives are not used: Open MPI's algorithms for them add in
another order, take two to four times as long, and advance only inside MPI calls (measurements:
docs/design/benchmarks.md).
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from trainers.devices.stopwatch import Stopwatch
from trainers.mpi.group import Group

Work = Callable[[Any], None]
"""Carries out collectives on its argument, a Group (trainers/mpi/group.py).

It may run on any thread, and must not touch the stopwatch."""


class CollectiveQueue:
    """A queue that executes its collectives when `complete` is called.

    Attributes:
        calls: calls of MPI, or of another transport, since the beginning, by kind: `allreduce` and `allgather` of parts
            of messages, `sizes` that travel before payloads, `agreement` before payloads are encoded, `rounds` (sums
            one after another) and `swaps` with another worker, `alltoall`, `reduce`, `bcast`; all messages with the
            `neighbours` or the `server` count as one.
        early: how many of these calls were posted during backward.
    """

    in_background = False
    """Whether collectives are executed while the worker does something else."""

    def __init__(self, comm: Group, watch: Stopwatch) -> None:
        self.comm, self.watch = comm, watch
        self._posted: list[Work] = []
        self.calls, self.early = Counter[str](), Counter[str]()
        self._is_early = False

    def mark_backward(self, running: bool) -> None:
        """Count calls as early from now on, or no longer: backward has begun, or has ended."""
        self._is_early = running

    def count(self, kind: str, calls: int = 1) -> None:
        """Count `calls` more calls; lanes count the collectives that they post or execute."""
        self.calls[kind] += calls
        if self._is_early:
            self.early[kind] += calls

    def post(self, work: Work) -> None:
        """Add `work` to the queue; every worker posts the same collectives in the same order."""
        self._posted.append(work)

    def complete(self) -> None:
        """Execute all posted collectives, and raise the first error."""
        if not self._posted:
            return
        posted, self._posted = self._posted, []
        with self.watch("communicate"):
            for work in posted:
                work(self.comm)

    def close(self) -> None:
        """Close the queue: nothing may be posted afterwards. All workers call this; a second call does nothing."""


class ThreadCollectiveQueue(CollectiveQueue):
    """A queue that executes its collectives at once, on a thread with a duplicate of the group.

    MPI calls and backward release Python's lock, so that both run at the same time.

    Raises:
        UsageError: the MPI library does not allow calls from several threads.
    """

    in_background = True

    def __init__(self, comm: Group, watch: Stopwatch) -> None:
        super().__init__(comm.duplicate(), watch)
        self._gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else None
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._open = 0
        self._thread = threading.Thread(target=self._run, name="collectives", daemon=True)
        self._thread.start()

    def post(self, work: Work) -> None:
        self._open += 1
        self._queue.put(work)

    def _run(self) -> None:
        if self._gpu is not None:  # a new thread has GPU 0
            torch.cuda.set_device(self._gpu)
        failed = False  # skip work posted after a failure: other workers may not take part in it
        while (work := self._queue.get()) is not None:
            try:
                if not failed:
                    work(self.comm)
                self._done.put(None)
            except BaseException as error:
                failed = True
                self._done.put(error)

    def complete(self) -> None:
        errors: list[BaseException] = []
        with self.watch("communicate"):
            while self._open:
                error = self._done.get()
                self._open -= 1
                if error is not None:
                    errors.append(error)
        if errors:
            raise errors[0]

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self.complete()
        self._queue.put(None)
        self._thread.join()
        self.comm.free()
