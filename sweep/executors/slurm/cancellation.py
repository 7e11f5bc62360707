"""Cancels SLURM jobs in the background, because scancel hangs if slurmctld does not answer."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Sequence
from queue import SimpleQueue

from sweep.executors.slurm.queue import SlurmSilent, scancel


class Cancellations:
    """Runs scancel again and again until SLURM has accepted the cancellation of all requested jobs.

    Args:
        again_s: the seconds between two attempts if SLURM does not answer.
    """

    def __init__(self, again_s: float) -> None:
        self.again_s = again_s
        self._reported = False  # that SLURM does not end jobs
        self._due: dict[str, float] = {}  # when to ask SLURM, by time.monotonic(), for each job
        self._asked: list[str] = []  # the jobs of the scancel that runs
        self._answers: SimpleQueue[SlurmSilent | None] = SimpleQueue()  # of a scancel that has ended; None: accepted

    def request(self, ids: Iterable[str]) -> None:
        """Add jobs to cancel; the id of an array stands for all of its tasks."""
        for id in ids:
            self._due.setdefault(id, 0.0)
        self.poll()

    def poll(self) -> bool:
        """Run scancel if it is due, and return whether SLURM has just accepted a cancellation; may be called often."""
        accepted = not self._answers.empty() and self._note_answer(self._answers.get())
        now = time.monotonic()
        if not self._asked and (due := [id for id, at in self._due.items() if at <= now]):
            self._asked = due
            threading.Thread(target=self._scancel, args=(due,), daemon=True).start()
        return accepted

    def _scancel(self, ids: Sequence[str]) -> None:
        try:
            scancel(ids)
        except SlurmSilent as silent:
            self._answers.put(silent)
        else:
            self._answers.put(None)

    def _note_answer(self, refusal: SlurmSilent | None) -> bool:
        """Forget the jobs that SLURM now cancels, or retry later after a `refusal`; return whether SLURM accepted."""
        asked, self._asked = self._asked, []
        if refusal is None:
            self._due = {id: at for id, at in self._due.items() if id not in asked}
        else:
            self._due |= dict.fromkeys(asked, time.monotonic() + self.again_s)
            if not self._reported:
                again = f"it is asked again every {self.again_s:g} s"
                print(f"SLURM does not end jobs ({refusal}); {again}", file=sys.stderr)
        self._reported = refusal is not None
        return refusal is None
