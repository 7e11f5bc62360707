"""The directory of a sweep, which one process at a time locks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep import files, run_directory
from gradsweep.disk import disk_errors, file_lock, regular_files
from gradsweep.disk.file_lock import FileLock
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from gradsweep.sweeps import planned_runs
from gradsweep.sweeps.sweep_lock import LOCK, read_lock_owner
from gradsweep.text import describe_lock_owner
from sweep.directory import requests, restore_runs, run_layout
from sweep.directory.description import describe_command
from sweep.directory.run_layout import RunLocation
from sweep.provenance import code_snapshot

_FOLDERS = (
    run_directory.RUNS,
    run_directory.PROBES,
    run_directory.RACES,
    "slurm",
    "worlds",
    code_snapshot.STORE,
    requests.FOLDER,
)
OURS = (*_FOLDERS, run_directory.EVENTS, planned_runs.FILE, run_directory.SWEEP)
"""What a sweep may make in its directory before anything of it is started."""
LOOKS_S = 0.2  # longer than a process that only looks holds the lock


class Sweep:
    """An open sweep directory, locked so that no other process starts runs in it."""

    def __init__(self, directory: Path, *, fresh: bool) -> None:
        """Open and lock `directory`; append a number if it is `fresh` and another sweep has taken its name.

        Raises:
            UsageError: the directory cannot be written or another process holds it.
        """
        self.directory = directory
        self._made = False
        number = 1
        while not self._lock() or (fresh and (self.directory / run_directory.SWEEP).exists()):
            if not fresh:
                by = read_lock_owner(directory) or {}
                raise UsageError(
                    f"hydra.sweep.dir={self.directory}: another process is running this sweep "
                    f"({describe_lock_owner(by)}); valid is to wait for it, or another directory"
                )
            number += 1
            self.directory = directory.with_name(f"{directory.name}-{number}")
        self._before = {name for name in OURS if (self.directory / name).exists()}

    def _lock(self) -> bool:
        try:
            self._made = not self.directory.exists()
            self.directory.mkdir(parents=True, exist_ok=True)
            self._locked: FileLock = file_lock.take(self.directory / LOCK, wait_s=LOOKS_S)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._explain_refusal(error) from error
        if not os.fstat(self.descriptor).st_nlink:  # its holder has removed everything meanwhile
            self._locked.close()
            return self._lock()
        try:
            with disk_errors.add_file_name(self.directory / LOCK):
                self._sign()
        except OSError as error:
            self.close()
            raise self._explain_refusal(error) from error
        requests.clear_requests(self.directory)
        return True

    def _explain_refusal(self, error: OSError) -> UsageError:
        if isinstance(error, (regular_files.NotRegular, IsADirectoryError)):
            return UsageError(f"{self.directory / LOCK}: {error.strerror}; valid is to remove it")
        line = f"hydra.sweep.dir={self.directory}: {error.strerror}; valid is a directory that can be written"
        return UsageError(disk_errors.describe(error) or line)

    def _sign(self) -> None:
        """Write into the lock's file that this process holds the lock."""
        by = {"host": socket.gethostname(), "pid": os.getpid(), "since": files.now()}
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, json.dumps(by).encode() + b"\n", 0)

    def close(self) -> None:
        """Release the lock; remove its file and the new directory if the sweep has no sweep.yaml and no runs."""
        is_nothing = not any((self.directory / name).exists() for name in (run_directory.SWEEP, run_directory.RUNS))
        if is_nothing:
            with contextlib.suppress(OSError):
                (self.directory / LOCK).unlink()
        self._locked.close()
        if is_nothing and self._made:
            with contextlib.suppress(OSError):  # it has files of others
                self.directory.rmdir()

    def forget(self) -> None:
        """Close and remove a new sweep that was refused before its start; keep a sweep that existed before."""
        if not self._before.isdisjoint((run_directory.SWEEP, run_directory.RUNS)):
            return
        for name in {*OURS, LOCK} - self._before:
            shutil.rmtree(self.directory / name, ignore_errors=True)
            with contextlib.suppress(OSError):
                (self.directory / name).unlink()
        self.close()
        with contextlib.suppress(OSError):  # it has files of others
            self.directory.rmdir()

    @property
    def descriptor(self) -> int:
        """The descriptor of the locked file. A process that inherits it shares the lock until all have closed it."""
        return self._locked.descriptor

    @classmethod
    def adopt(cls, directory: Path, descriptor: int) -> Sweep:
        """Return a sweep that another process has opened and handed over with its `descriptor`.

        Raises:
            OSError: `descriptor` is not the open lock file of `directory`, or the other process has ended.
        """
        sweep = cls.__new__(cls)
        sweep.directory, sweep._made, sweep._before = directory, False, set(OURS)
        sweep._locked = file_lock.adopt(directory / LOCK, descriptor)
        sweep._sign()
        return sweep

    def lay_out(
        self,
        locations: Sequence[RunLocation],
        swept: Sequence[str],
        mpi_program: Sequence[str],
        *,
        race: Mapping[str, Any] | None = None,
        again: bool = False,
        silent: bool = False,
    ) -> list[Run]:
        """Write sweep.yaml and create a directory for every point; return the runs in order.

        The runs are recorded first, so that a sweep that is ended before all have directories can be resumed.

        Args:
            swept: keys whose values differ between the points of the command so far.
            race: the section `race` of the command's configs.
            again: these are further points of the last command in sweep.yaml.
        """
        typed = dict.fromkeys(override for each in locations for override in each.point.overrides)
        planned_runs.note(self.directory, restore_runs.list_records(locations))
        describe_command(self.directory, mpi_program, list(typed), swept, race=race, is_same=again)
        return run_layout.create_runs(locations, silent=silent)
