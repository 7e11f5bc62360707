"""Leases the cores and GPUs of this machine to one run at a time, among all sweeps of a user.

Each core and each GPU has a lock file in a directory that these sweeps share (lock_directory.py). A lease takes all
slots that a run needs, or none, under a master lock: so no two sweeps can deadlock, each with half of what it needs.
mpirun inherits the locks' descriptors: a core is free when the last process with its lock has ended.

A run that waits at the head of its sweep's queue writes a ticket. Later runs of any sweep do not take cores that older
tickets need. So a large run gets its cores even if another sweep starts one small run after the other.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gradsweep.disk.file_lock import FileLock
from sweep.executors.lock_directory import LockDirectory
from sweep.system.lease import Lease

RETRY_S = (0.03, 0.5)  # between two attempts at a lease, at least and at most
_SHARE = 20  # in between, a twentieth of the time waited so far
PATIENCE_S = 0.02  # for another sweep to release the master lock

_TICKET = "ticket-"
_SHARING = "sharing-"


class Slots:
    """Cores that only this process leases to runs, such as those of a SLURM allocation, and the current leases.

    Args:
        cores: the numbers of the cores.
        others_may_run: programs other than this process's runs may use these cores.
    """

    share_cores = False
    """Whether every lease has all cores, which others may have as well."""

    def __init__(self, cores: Iterable[int], *, others_may_run: bool = False) -> None:
        self.cores = sorted(set(cores))
        self.gpus: list[str] = []
        self.total = len(self.cores)
        self.available = (self.total, 0)
        """The cores and GPUs that could have been leased when a lease was refused last."""
        self._others_may_run = others_may_run
        self._leases: list[Lease] = []

    @property
    def leased_cores(self) -> list[int]:
        """The cores that are leased to this sweep's runs."""
        return [] if self.share_cores else sorted(core for lease in self._leases for core in lease.cores)

    def lease(self, cores: int, gpus: int = 0, *, first: bool = True, run: str = "") -> Lease | None:
        """Lease cores and GPUs; return None if too few are free.

        Args:
            first: the run is the first of its sweep's queue.
            run: its name, shown to people whose sweep waits.
        """
        taken = set(self.leased_cores)
        free = [core for core in self.cores if core not in taken]
        if cores > len(free):
            return None
        self._leases.append(Lease(tuple(free[:cores]), is_shared=self._others_may_run))
        self.available = (len(free) - cores, 0)
        return self._leases[-1]

    def release(self, lease: Lease) -> None:
        """End a lease."""
        self._leases.remove(lease)
        self.available = (self.total - len(self.leased_cores), 0)

    def withdraw_ticket(self) -> None:
        """Remove this sweep's ticket, if any, which tells other sweeps that a run waits."""

    def list_others(self) -> list[str]:
        """Return the other processes that hold slots of this sweep, or that wait for slots with an older ticket.

        Each is a text for people: `pid 4711 (output/...)`.
        """
        return []

    def is_disturbed(self, lease: Lease) -> bool:
        """Tell whether a sweep with shared cores (sweep.share_cores) now uses the cores of `lease`."""
        return False


class LockedSlots(Slots):
    """The cores and GPUs that this process may use on this machine, shared with other sweeps by locks.

    Args:
        cores: the numbers of the cores; default: those that this process may run on.
        gpus: the GPUs, as CUDA_VISIBLE_DEVICES names them.
        most: the largest number of cores leased at the same time; None: all.
        share_cores: every lease has all cores, and so may other leases; GPUs are not shared.
        place: the directory of the locks; default: the one that all sweeps of this user share.
        sweep: the name of the sweep, shown to people whose own sweep waits for it.

    Raises:
        UsageError: the directory of the locks cannot be used.
    """

    def __init__(
        self,
        cores: Sequence[int] | None = None,
        gpus: Sequence[str] = (),
        most: int | None = None,
        share_cores: bool = False,
        place: Path | None = None,
        sweep: str = "",
    ) -> None:
        super().__init__(os.sched_getaffinity(0) if cores is None else cores)
        self.gpus = list(gpus)
        self.total = self.total if most is None else min(most, self.total)
        self.share_cores, self.sweep = share_cores, sweep
        self.available = (self.total, len(self.gpus))
        self._place = place
        self._locks = LockDirectory(place)
        self._ticket: tuple[str, FileLock, tuple[int, int]] | None = None  # its file, its lock, cores and GPUs
        self._waits_since: float | None = None
        self._looks_at = 0.0  # not before this time, on the clock of time.monotonic()

    def lease(self, cores: int, gpus: int = 0, *, first: bool = True, run: str = "") -> Lease | None:
        """Lease cores (at most all that exist) and GPUs; return None if too few are free.

        Args:
            first: the run is the first of its sweep's queue, and writes a ticket if it has to wait. Other runs write no
                ticket, and do not take slots that other sweeps' tickets need.
            run: its name, shown to people whose sweep waits.
        """
        cores = 0 if self.share_cores else min(cores, self.total)
        if cores > self.total - len(self.leased_cores) and self.total < len(self.cores):
            self.available = (self.total - len(self.leased_cores), self.available[1])
            return None  # the sweep's own limit: a ticket would keep cores idle that it may not take
        now = time.monotonic()
        if first and now < self._looks_at:
            return None
        self._renew_locks()
        with self._locks.hold_master() as alone:
            lease = self._lease(cores, gpus, first, run) if alone else None
        if lease is None and first:
            self._waits_since = now if self._waits_since is None else self._waits_since
            self._looks_at = now + min(max((now - self._waits_since) / _SHARE, RETRY_S[0]), RETRY_S[1])
        elif first:
            self.withdraw_ticket()
        return lease

    def _lease(self, cores: int, gpus: int, first: bool, run: str) -> Lease | None:
        if first and self._ticket is not None and self._ticket[2] != (cores, gpus):
            self.withdraw_ticket()
        older = list(self._read_tickets(before=self._ticket[0] if first and self._ticket else None))
        enough = None if older or gpus else cores  # else all are counted, for `available`
        taken = {"core": self._take_free("core", self.cores, enough), "gpu": self._take_free("gpu", self.gpus, None)}
        for ticket in older:
            for kind, free in taken.items():
                wanted = [slot for slot in free if slot in ticket[kind]["of"]]
                for slot in wanted[: ticket[kind]["count"]]:
                    free.pop(slot).close()
        self.available = (min(len(taken["core"]), self.total - len(self.leased_cores)), len(taken["gpu"]))
        lease = None
        if cores <= self.available[0] and gpus <= self.available[1]:
            chosen = {"core": list(taken["core"])[:cores], "gpu": list(taken["gpu"])[:gpus]}
            locks = [taken[kind].pop(slot) for kind, slots in chosen.items() for slot in slots]
            lease = Lease(tuple(chosen["core"]), tuple(chosen["gpu"]), locks, self.share_cores)
            if self.share_cores:
                lease.cores = tuple(self.cores[: self.total])
                lease.locks += self._take_all(f"{_SHARING}{core}" for core in lease.cores)
            self._leases.append(lease)
            self._note_holder(lease.locks, run=run)
        for free in taken.values():
            for lock in free.values():
                lock.close()
        if lease is None and first and self._ticket is None:
            self._leave_ticket(cores, gpus)
        return lease

    def _take_free(self, kind: str, slots: Sequence[Any], enough: int | None) -> dict[Any, FileLock]:
        """Take and return the locks of at most `enough` free slots, by slot."""
        own = {slot for lease in self._leases for slot in (lease.cores if kind == "core" else lease.gpus)}
        free: dict[Any, FileLock] = {}
        for slot in slots:
            if len(free) == enough:
                break
            if slot not in own and (lock := self._take(f"{kind}-{slot}")) is not None:
                free[slot] = lock
        return free

    def _take(self, name: str) -> FileLock | None:
        try:
            return self._locks.take(name, shared=name.startswith(_SHARING))
        except OSError:  # another process holds it, or no inode or descriptor is left
            return None

    def _note_holder(self, locks: Iterable[FileLock], **about: str) -> None:
        """Write into the locks' files who holds them."""
        with contextlib.suppress(OSError):  # a full disk: others do not learn for whom they wait
            for lock in locks:
                self._locks.write_note(lock, {"pid": os.getpid(), "sweep": self.sweep, **about})

    def _take_all(self, names: Iterable[str]) -> list[FileLock]:
        """Take those of the locks that are free, and return them."""
        return [lock for name in names if (lock := self._take(name)) is not None]

    def _read_tickets(self, before: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield the tickets of other sweeps, oldest first; remove the tickets of dead processes."""
        for name in self._locks.list_names(_TICKET):
            if self._ticket is not None and name == self._ticket[0]:
                if before is not None:
                    return
                continue
            if not self._locks.is_held(name):
                self._locks.remove(name)
                continue
            ticket = self._locks.read_note(name)
            if all(
                isinstance(ticket.get(kind), dict)
                and isinstance(ticket[kind].get("of"), list)
                and isinstance(ticket[kind].get("count"), int)
                for kind in ("core", "gpu")
            ):
                yield ticket

    def _leave_ticket(self, cores: int, gpus: int) -> None:
        names = self._locks.list_names(_TICKET)
        name = f"{_TICKET}{int(names[-1].removeprefix(_TICKET)) + 1 if names else 1:012}"
        about = {"core": {"count": cores, "of": self.cores}, "gpu": {"count": gpus, "of": self.gpus}}
        try:
            lock = self._locks.take(name, new=True)
            self._ticket = (name, lock, (cores, gpus))
            self._locks.write_note(lock, {**about, "pid": os.getpid(), "sweep": self.sweep})
        except OSError:  # a full disk: it waits without a ticket
            self.withdraw_ticket()

    def withdraw_ticket(self) -> None:
        self._waits_since, self._looks_at = None, 0.0
        if self._ticket is not None:
            self._locks.remove(self._ticket[0])
            self._ticket[1].close()
            self._ticket = None

    def is_disturbed(self, lease: Lease) -> bool:
        self._renew_locks()
        with self._locks.hold_master(PATIENCE_S) as alone:
            return alone and any(self._locks.is_held(f"{_SHARING}{core}", shared=True) for core in lease.cores)

    def release(self, lease: Lease) -> None:
        """End a lease; its slots are free when all processes that inherited the locks have ended."""
        self._leases.remove(lease)
        for lock in lease.locks:
            lock.close()
        lease.locks = []
        self._looks_at = 0.0

    def list_others(self) -> list[str]:
        self._renew_locks()
        names = [f"core-{core}" for core in self.cores] + [f"gpu-{gpu}" for gpu in self.gpus]
        with self._locks.hold_master(PATIENCE_S) as alone:
            if not alone:
                return []
            holders = [self._locks.read_note(name) for name in names if self._locks.is_held(name)]
            holders += self._read_tickets(before=self._ticket[0]) if self._ticket else []
        sweeps = {(str(note.get("pid", "?")), str(note.get("sweep", ""))) for note in holders}
        return [f"pid {pid} ({sweep})" for pid, sweep in sorted(sweeps - {(str(os.getpid()), self.sweep)})]

    def _renew_locks(self) -> None:
        """If somebody has removed the locks' directory, create it again and take the locks of all leases in it."""
        if not self._locks.is_gone:
            return
        self.withdraw_ticket()
        self._locks = LockDirectory(self._place)
        for lease in self._leases:
            cores = [f"{_SHARING if lease.is_shared else 'core-'}{core}" for core in lease.cores]
            locks = self._take_all([*cores, *(f"gpu-{gpu}" for gpu in lease.gpus)])
            self._note_holder(locks)
            lease.locks += locks

    def close(self) -> None:
        """End all leases."""
        self.withdraw_ticket()
        for lease in list(self._leases):
            self.release(lease)
