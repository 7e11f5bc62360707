"""A lease: the cores and GPUs that a run may use."""

from __future__ import annotations

import dataclasses

from gradsweep.disk.file_lock import FileLock


@dataclasses.dataclass(eq=False)
class Lease:
    """The cores, GPUs and locks that a run has until `Slots.release`."""

    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    locks: list[FileLock] = dataclasses.field(default_factory=list)
    is_shared: bool = False
    """Others may use the cores, too: sweep.share_cores=true, or jobs of SLURM that are not confined to theirs."""

    @property
    def descriptors(self) -> list[int]:
        """The locks' open files, for child processes: a lock is held until all processes with its file end."""
        return [lock.descriptor for lock in self.locks]
