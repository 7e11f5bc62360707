"""Who carries out the collectives that lanes post: the rank itself when backward is over, or a thread meanwhile.

Both carry out the same blocking collectives in the order in which they were posted, so that sums are rounded alike
and the bytes sent are the same. Non-blocking collectives are not used: Open MPI does them by algorithms of their own,
which add in another order and take two to four times as long, and they advance only inside of MPI calls
(docs/design/benchmarks.md has what was measured).
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from gradsweep.errors import bad_value
from trainers.devices.stopwatch import Stopwatch

Work = Callable[[Any], None]
"""Collectives on what it is given: a communicator, or what another transport has in place of it. It runs on whatever
thread and must not touch the stopwatch."""


class CollectiveQueue:
    """Carries out what was posted when `complete` is called.

    Attributes:
        calls: how many calls of MPI, or of another transport, have been counted since the beginning, by kind:
            `allreduce` and `allgather` of parts of messages, `sizes` that travel before payloads, `agreement` before
            they are encoded, `rounds` (sums one after another) and `swaps` with another worker, `alltoall`, `reduce`,
            `bcast`, and all messages with the `neighbours` or the `server` as one.
        early: those of them that were posted while backward went on.
        is_early: it goes on.
    """

    def __init__(self, comm: Any, watch: Stopwatch) -> None:
        self.comm, self.watch = comm, watch
        self._posted: list[Work] = []
        self.calls, self.early = Counter[str](), Counter[str]()
        self.is_early = False

    def count(self, kind: str, calls: int = 1) -> None:
        """So many more calls; lanes count what they post, and what they carry out themselves."""
        self.calls[kind] += calls
        if self.is_early:
            self.early[kind] += calls

    def post(self, work: Work) -> None:
        """`work` may be done from now on; every worker posts the same in the same order."""
        self._posted.append(work)

    def complete(self) -> None:
        """All that was posted is done when this returns; an error in it is raised here."""
        if not self._posted:
            return
        posted, self._posted = self._posted, []
        with self.watch("communicate"):
            for work in posted:
                work(self.comm)

    def close(self) -> None:
        """Nothing may be posted afterwards. All workers call it; a second time does nothing."""


class ThreadCollectiveQueue(CollectiveQueue):
    """Carries out what was posted at once, on a thread and a communicator of its own, while the rank goes on.

    MPI calls release Python's lock, and so does backward, so that both really go on at the same time.

    Raises:
        UsageError: the MPI library does not allow calls from several threads.
    """

    def __init__(self, comm: Any, watch: Stopwatch) -> None:
        super().__init__(self._own(comm), watch)
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._open = 0
        self._thread = threading.Thread(target=self._run, name="collectives", daemon=True)
        self._thread.start()

    def _own(self, comm: Any) -> Any:
        """What the thread uses beside what the rank uses."""
        from mpi4py import MPI

        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            library = MPI.Get_library_version().splitlines()[0]
            raise bad_value("exchange.overlap", True, f"false where MPI has no MPI_THREAD_MULTIPLE ({library})")
        return comm.Dup()

    def _free(self) -> None:
        """Give that back."""
        self.comm.Free()

    def post(self, work: Work) -> None:
        self._open += 1
        self._queue.put(work)

    def _run(self) -> None:
        failed = False  # what was posted behind a failure is not done: the other workers may not be there
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
        self._free()
