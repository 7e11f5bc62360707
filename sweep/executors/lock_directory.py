"""A directory of lock files that all sweeps of a user on this machine share.

A lock (file_lock.py) belongs to an open file and to all copies of its descriptor. The kernel releases it when the last
process with a copy has ended, so a killed process leaves no lock behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gradsweep import files
from gradsweep.disk import file_lock
from gradsweep.disk.file_lock import FileLock
from gradsweep.errors import UsageError

VARIABLE = "GRADSWEEP_SLOTS"
"""The environment variable that names a directory to use instead of the one in /tmp."""

_MASTER = "master"


def find_default_path() -> Path:
    """Return the directory that all sweeps of this user share, independent of their TMPDIR.

    It is not in /dev/shm nor /run/user: systemd empties these when the user logs out, also while a sweep goes on.
    """
    base = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else tempfile.gettempdir()
    return Path(os.environ.get(VARIABLE) or Path(base, f"gradsweep-slots-{os.geteuid()}"))


class LockDirectory:
    """A directory of lock files; each file has a note on the lock's holder.

    Args:
        path: the directory, which is created if it is missing; default: `find_default_path()`.

    Raises:
        UsageError: the path is not a directory that only this user can change.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = find_default_path() if path is None else path
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            weakref.finalize(self, os.close, self._descriptor)
        except OSError as error:
            raise self._build_refusal(error.strerror or type(error).__name__) from error
        status = os.fstat(self._descriptor)
        if status.st_uid != os.geteuid():
            raise self._build_refusal("belongs to another user")
        if (mode := stat.S_IMODE(status.st_mode)) & 0o077:
            raise self._build_refusal(f"has the mode {mode:04o}")
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # so that systemd-tmpfiles leaves it alone
            os.close(os.open(_MASTER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=self._descriptor))
        except OSError as error:
            raise self._build_refusal(error.strerror or type(error).__name__) from error

    def _build_refusal(self, why: str) -> UsageError:
        return UsageError(f"{VARIABLE}={self.path}: {why}; valid is a directory of your own with mode 0700")

    def _build_path(self, name: str) -> Path:
        """Return the path of a file in the open directory, which may have been renamed."""
        return Path(f"/proc/self/fd/{self._descriptor}/{name}")

    @property
    def is_gone(self) -> bool:
        """Whether the directory was removed after it was opened."""
        return os.fstat(self._descriptor).st_nlink == 0

    @contextlib.contextmanager
    def hold_master(self, patience_s: float = 0.0) -> Iterator[bool]:
        """Hold the master lock within this block, so that no other process takes locks.

        Yield False if another process has it, or if the directory has just been removed.
        """
        try:
            lock = file_lock.take(self._build_path(_MASTER), wait_s=patience_s)
        except (BlockingIOError, FileNotFoundError):
            yield False
            return
        with lock:
            yield True

    def take(self, name: str, *, shared: bool = False, new: bool = False) -> FileLock:
        """Take a lock and return it; once closed, it is free when all processes with its descriptor have ended.

        Args:
            shared: other processes may hold the lock at the same time if they take it as shared, too.
            new: the file must not exist yet.

        Raises:
            BlockingIOError: another process holds the lock.
            OSError: the file cannot be created or opened.
        """
        return file_lock.take(self._build_path(name), shared=shared, new=new)

    def is_held(self, name: str, *, shared: bool = False) -> bool:
        """Tell whether any process holds a lock; only valid in a block of `hold_master`.

        Args:
            shared: the lock is one that several processes may hold.
        """
        return file_lock.is_held(self._build_path(name), shared=shared)

    @staticmethod
    def write_note(lock: FileLock, about: Mapping[str, Any]) -> None:
        """Write a note on the holder into a lock's file, for others to read."""
        os.ftruncate(lock.descriptor, 0)
        os.pwrite(lock.descriptor, json.dumps(about).encode(), 0)

    def read_note(self, name: str) -> dict[str, Any]:
        """Return the note in a lock's file; empty if it cannot be read."""
        with contextlib.suppress(OSError):
            return files.read_json(self._build_path(name)) or {}
        return {}

    def list_names(self, prefix: str) -> list[str]:
        """Return the names of files with a prefix, sorted."""
        return sorted(name for name in os.listdir(self._descriptor) if name.startswith(prefix))

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._descriptor)
            file_lock.forget(self._build_path(name))
