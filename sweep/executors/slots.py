"""The cores and GPUs of this machine, leased to one run at a time, whichever sweep it belongs to.

Each core and each GPU has a lock file in a directory that all sweeps of a user share (`lockdir.py`). A lease is all
of what a run wants or nothing, taken under a master lock, so that two sweeps never wait for each other's halves. Its
descriptors go on to mpirun: cores are free when the last process that was given them is gone.

A run that waits at the head of its sweep's queue leaves a ticket. Whoever comes later, from whichever sweep, leaves
free cores alone that older tickets want: a large run gets its cores though another sweep starts small ones all the
time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sweep.executors.lock_directory import LockDirectory
from sweep.system.lease import Lease

RETRY_S = (0.03, 0.5)  # between two looks at what other sweeps have given back, at least and at most
_SHARE = 20  # in between, this part of the time waited so far: who waits for hours need not look often
PATIENCE_S = 0.02  # for another sweep's look to be over

_TICKET = "ticket-"
_SHARING = "sharing-"


class Slots:
    """Cores and GPUs that this process may use, and the leases it has on them.

    Args:
        cores: their numbers; default: those that this process may run on.
        gpus: as CUDA_VISIBLE_DEVICES names them.
        most: cores at the same time at most, whichever are free; None: all.
        share_cores: every lease has all cores, which others may have as well; GPUs are leased as ever.
        place: directory of the locks; default: that of all sweeps of this user.
        sweep: name of the sweep, for people who wait for it.

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
        self.cores = sorted(os.sched_getaffinity(0) if cores is None else set(cores))
        self.gpus = list(gpus)
        self.total = len(self.cores) if most is None else min(most, len(self.cores))
        self.share_cores, self.sweep = share_cores, sweep
        self.available = (self.total, len(self.gpus))
        """Cores and GPUs that could have been leased when a lease was refused last."""
        self._place = place
        self._locks = LockDirectory(place)
        self._leases: list[Lease] = []
        self._ticket: tuple[str, int, tuple[int, int]] | None = None  # its file, its descriptor, what it asks for
        self._waits_since: float | None = None
        self._looks_at = 0.0  # not before this time, on the clock of time.monotonic()

    @property
    def leased(self) -> list[int]:
        """The cores that this sweep's runs have to themselves."""
        return sorted(core for lease in self._leases if not lease.is_shared for core in lease.cores)

    def lease(self, cores: int, gpus: int = 0, *, first: bool = True, run: str = "") -> Lease | None:
        """So many cores and GPUs, or None while too few are free. More cores than there are means all of them.

        Args:
            first: of its sweep's queue: where it has to wait, it leaves a ticket. Others don't, and leave alone what
                any ticket of another sweep wants.
            run: its name, for people who wait for what it has.
        """
        cores = 0 if self.share_cores else min(cores, self.total)
        if cores > self.total - len(self.leased) and self.total < len(self.cores):
            self.available = (self.total - len(self.leased), self.available[1])
            return None  # the sweep's own limit: a ticket would keep idle what it may not take
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
                    self._locks.give_back(free.pop(slot))
        self.available = (min(len(taken["core"]), self.total - len(self.leased)), len(taken["gpu"]))
        lease = None
        if cores <= self.available[0] and gpus <= self.available[1]:
            chosen = {"core": list(taken["core"])[:cores], "gpu": list(taken["gpu"])[:gpus]}
            descriptors = [taken[kind].pop(slot) for kind, slots in chosen.items() for slot in slots]
            lease = Lease(tuple(chosen["core"]), tuple(chosen["gpu"]), descriptors, self.share_cores)
            if self.share_cores:
                lease.cores = tuple(self.cores[: self.total])
                lease.descriptors += self._take_all(f"{_SHARING}{core}" for core in lease.cores)
            self._leases.append(lease)
            with contextlib.suppress(OSError):  # a full disk: nobody is told whom they wait for
                for descriptor in lease.descriptors:
                    self._locks.write_note(descriptor, {"pid": os.getpid(), "sweep": self.sweep, "run": run})
        for free in taken.values():
            for descriptor in free.values():
                self._locks.give_back(descriptor)
        if lease is None and first and self._ticket is None:
            self._leave_ticket(cores, gpus)
        return lease

    def _take_free(self, kind: str, slots: Sequence[Any], enough: int | None) -> dict[Any, int]:
        """The slots whose locks could be taken, with their descriptors; after `enough` no more are tried."""
        own = {slot for lease in self._leases for slot in (lease.cores if kind == "core" else lease.gpus)}
        free: dict[Any, int] = {}
        for slot in slots:
            if len(free) == enough:
                break
            if slot not in own and (descriptor := self._take(f"{kind}-{slot}")) is not None:
                free[slot] = descriptor
        return free

    def _take(self, name: str) -> int | None:
        try:
            return self._locks.take(name, shared=name.startswith(_SHARING))
        except OSError:  # no inode or descriptor is left: it cannot be had now
            return None

    def _take_all(self, names: Iterable[str]) -> list[int]:
        """The descriptors of those locks that could be taken."""
        return [descriptor for name in names if (descriptor := self._take(name)) is not None]

    def _read_tickets(self, before: str | None = None) -> Iterator[dict[str, Any]]:
        """What runs of other sweeps wait for, the oldest first; tickets of dead processes are thrown away."""
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
            descriptor = self._locks.take(name, new=True)
            assert descriptor is not None
            self._ticket = (name, descriptor, (cores, gpus))
            self._locks.write_note(descriptor, {**about, "pid": os.getpid(), "sweep": self.sweep})
        except OSError:  # a full disk: it waits without one
            self.withdraw_ticket()

    def withdraw_ticket(self) -> None:
        """The run at the head of the queue waits no longer."""
        self._waits_since, self._looks_at = None, 0.0
        if self._ticket is not None:
            self._locks.remove(self._ticket[0])
            self._locks.give_back(self._ticket[1])
            self._ticket = None

    def is_disturbed(self, lease: Lease) -> bool:
        """Whether a sweep that shares cores is running on those of `lease` at this moment."""
        with self._locks.hold_master(PATIENCE_S) as alone:
            return alone and any(self._locks.is_held(f"{_SHARING}{core}", shared=True) for core in lease.cores)

    def release(self, lease: Lease) -> None:
        """Give back: free as soon as no process that has inherited the locks is left."""
        self._leases.remove(lease)
        for descriptor in lease.descriptors:
            self._locks.give_back(descriptor)
        lease.descriptors = []
        self._looks_at = 0.0

    def list_others(self) -> list[str]:
        """Whom of other processes this sweep waits for: `pid 4711 (output/...)`; those that have what it may use."""
        names = [f"core-{core}" for core in self.cores] + [f"gpu-{gpu}" for gpu in self.gpus]
        with self._locks.hold_master(PATIENCE_S) as alone:
            if not alone:
                return []
            holders = [self._locks.read_note(name) for name in names if self._locks.is_held(name)]
            holders += self._read_tickets(before=self._ticket[0]) if self._ticket else []
        found = {(str(each.get("pid", "?")), str(each.get("sweep", ""))) for each in holders}
        mine = (str(os.getpid()), self.sweep)
        return [f"pid {pid} ({sweep})" for pid, sweep in sorted(found - {mine})]

    def _renew_locks(self) -> None:
        """Where somebody has removed the directory of the locks, take what is leased in a new one."""
        if not self._locks.is_gone:
            return
        self.withdraw_ticket()
        self._locks = LockDirectory(self._place)
        for lease in self._leases:
            cores = [f"{_SHARING if lease.is_shared else 'core-'}{core}" for core in lease.cores]
            lease.descriptors += self._take_all([*cores, *(f"gpu-{gpu}" for gpu in lease.gpus)])

    def close(self) -> None:
        """Give everything back."""
        self.withdraw_ticket()
        for lease in list(self._leases):
            self.release(lease)
