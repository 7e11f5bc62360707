"""A directory of lock files that all sweeps of a user on this machine share.

A lock (`flock`) belongs to an open file and all copies of its descriptor: the kernel takes it back when the last
process that has one is gone, however that ended. Nothing here has to be tidied up after a kill.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweep.run import UsageError

VARIABLE = "GRADSWEEP_SLOTS"
"""Environment variable: the directory to use in place of the one in /tmp."""

_MASTER = "master"
_LONGEST = 65536  # bytes of a note


def usual_place() -> Path:
    """Where all sweeps of this user look, whatever their TMPDIR is.

    Not in /dev/shm nor /run/user: systemd empties these when the user logs out, also while a sweep goes on.
    """
    base = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else tempfile.gettempdir()
    return Path(os.environ.get(VARIABLE) or Path(base, f"gradsweep-slots-{os.geteuid()}"))


class LockDirectory:
    """Lock files by name, with a note each of who holds it.

    Args:
        path: of the directory, which is made where it is missing; default: `usual_place()`.

    Raises:
        UsageError: it is not a directory that this user alone can change, or its file system has no locks.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = usual_place() if path is None else path
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            weakref.finalize(self, os.close, self._descriptor)
        except OSError as error:
            raise self._refused(error.strerror or type(error).__name__) from error
        found = os.fstat(self._descriptor)
        if found.st_uid != os.geteuid():
            raise self._refused("belongs to another user")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise self._refused(f"has the mode {stat.S_IMODE(found.st_mode):04o}")
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # so that systemd-tmpfiles leaves it alone
            self._master = self._open(_MASTER, os.O_CREAT)
            weakref.finalize(self, os.close, self._master)
        except OSError as error:
            raise self._refused(error.strerror or type(error).__name__) from error

    def _refused(self, why: str) -> UsageError:
        return UsageError(f"{VARIABLE}={self.path}: {why}; valid is a directory of your own with mode 0700")

    def _open(self, name: str, flags: int = 0) -> int:
        return os.open(name, os.O_RDWR | os.O_NOFOLLOW | flags, 0o600, dir_fd=self._descriptor)

    @property
    def is_gone(self) -> bool:
        """Whether somebody has removed the directory since it was opened."""
        return os.fstat(self._descriptor).st_nlink == 0

    @contextlib.contextmanager
    def master(self, patience_s: float = 0.0) -> Iterator[bool]:
        """Whether this process is, in this block, the only one that takes locks; False: another one is at it."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(self._master, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    yield False
                    return
                time.sleep(0.001)
        try:
            yield True
        finally:
            fcntl.flock(self._master, fcntl.LOCK_UN)

    def take(self, name: str, *, shared: bool = False, new: bool = False) -> int | None:
        """The descriptor of a lock that is now held; None where somebody else holds it. To be closed to give it back.

        Args:
            shared: others may hold it as well, shared as this one.
            new: the file must not be there yet.
        """
        descriptor = self._open(name, os.O_CREAT | (os.O_EXCL if new else 0))
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def is_held(self, name: str, *, shared: bool = False) -> bool:
        """Whether anybody holds a lock: this process or another. To be asked in a block of `master`.

        Args:
            shared: the lock is one of those that several may hold.
        """
        try:
            descriptor = self._open(name)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if shared else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def note(self, descriptor: int, about: Mapping[str, Any]) -> None:
        """Write into a lock's file what others are told of its holder."""
        data = json.dumps(about).encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)

    def read(self, name: str) -> dict[str, Any]:
        """What is written in a lock's file; empty where that is nothing one can read."""
        try:
            descriptor = self._open(name)
        except OSError:
            return {}
        try:
            value = json.loads(os.pread(descriptor, _LONGEST, 0))
        except (OSError, ValueError):
            return {}
        finally:
            os.close(descriptor)
        return value if isinstance(value, dict) else {}

    def names(self, prefix: str) -> list[str]:
        """The files whose names begin so, sorted."""
        return sorted(name for name in os.listdir(self._descriptor) if name.startswith(prefix))

    def remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._descriptor)
