"""Locks on files: those of the kernel (`flock`), and soft ones (soft_lock.py) where a file system has none.

The kernel's lock belongs to an open file and all copies of its descriptor; it ends when the last copy is closed.
A soft lock belongs to a process. Standard library only, so that every package may import it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import time
from pathlib import Path

from gradsweep.disk import regular_files, soft_lock
from gradsweep.disk.soft_lock import Owner

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What `flock` answers on a file system without locks."""

_PATIENCE_S = 5.0  # until somebody who waits is told for whom
_WAITS_S = (0.001, 0.1)  # between two tries

_told: list[str] = []  # that there are no locks: once is enough


class FileLock:
    """A lock on a file that this process holds until `close`; `descriptor` belongs to the open file.

    A child process that inherits the descriptor holds the kernel's lock, too. A soft lock it holds only after `adopt`.
    """

    def __init__(self, descriptor: int, soft: tuple[Path, Owner] | None = None) -> None:
        self.descriptor, self._soft = descriptor, soft

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock; does nothing if it was released before."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor < 0:
            return
        if self._soft is not None:
            path, owner = self._soft
            if owner["pid"] == os.getpid() and soft_lock.owner_of(path) == owner:  # a child may have adopted it
                soft_lock.remove(path)
        os.close(descriptor)


def take(path: Path, *, shared: bool = False, new: bool = False, make: bool = True, wait_s: float = 0.0) -> FileLock:
    """Lock the file at `path`, and return the lock.

    Args:
        shared: take a shared lock, which several processes can hold at the same time.
        new: the file must not exist yet.
        make: create the file if it is missing; with False, open it read-only.
        wait_s: how many seconds to wait for other processes to release the lock.

    Raises:
        BlockingIOError: another process still holds the lock.
        OSError: the file cannot be opened, or is not a regular file.
    """
    flags = (os.O_RDWR | os.O_CREAT if make else os.O_RDONLY) | (os.O_EXCL if new else 0)
    descriptor = regular_files.open_descriptor(path, flags=flags)
    try:
        return FileLock(descriptor, _wait(path, descriptor, shared, wait_s))
    except BaseException:
        os.close(descriptor)
        raise


def adopt(path: Path, descriptor: int) -> FileLock:
    """Take over the lock on `path` from the parent process, whose `descriptor` this process has inherited.

    Raises:
        OSError: the descriptor belongs to another file, or the parent has ended, so that others may hold the lock.
    """
    if not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise OSError(f"{path}: not what descriptor {descriptor} has opened")
    os.set_inheritable(descriptor, False)
    if _flock(descriptor, fcntl.LOCK_EX):
        return FileLock(descriptor)
    soft, mine = soft_lock.path_of(path), soft_lock.this_process()
    found = soft_lock.owner_of(soft) or {}
    is_parent = found.get("host") == mine["host"] and found.get("pid") == os.getppid()
    if not is_parent or not soft_lock.replace(soft, found, mine):
        raise OSError(f"{path}: the process that has handed it over has ended")
    return FileLock(descriptor, (soft, mine))


def is_held(path: Path, *, shared: bool = False) -> bool:
    """Tell whether a process, this one or another, holds the lock of `path`.

    Args:
        shared: ask about shared locks, which several processes can hold, instead of an exclusive one.

    Raises:
        OSError: the file exists but cannot be opened.
    """
    try:
        descriptor = regular_files.open_descriptor(path, flags=os.O_RDWR if shared else os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        _flock(descriptor, fcntl.LOCK_EX if shared else fcntl.LOCK_SH)
        return any(map(soft_lock.stands, soft_lock.list_shared(path) if shared else [soft_lock.path_of(path)]))
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def to_remove(path: Path) -> Path | None:
    """Return the file of the soft lock on `path` if only a user can tell whether its owner has ended, else None.

    The user removes this file if the owner has ended.
    """
    owner = soft_lock.owner_of(soft_lock.path_of(path))
    return None if owner is None or soft_lock.can_be_seen(owner) else soft_lock.path_of(path)


def forget(path: Path) -> None:
    """Remove the soft lock of a file that is about to be removed."""
    soft_lock.remove(soft_lock.path_of(path))


def _wait(path: Path, descriptor: int, shared: bool, wait_s: float) -> tuple[Path, Owner] | None:
    """Lock an open file, and wait for it; return a soft lock's path and owner, or None for a lock of the kernel."""
    began, wait, is_told = time.monotonic(), _WAITS_S[0], False
    while True:
        try:
            return _lock(path, descriptor, shared)
        except BlockingIOError:
            waited = time.monotonic() - began
            if waited >= wait_s:
                raise
            if waited >= _PATIENCE_S and not is_told and (file := to_remove(path)) is not None:
                is_told = True
                by = soft_lock.owner_of(file) or {}
                who = f"pid {by.get('pid')} on {by.get('host')}"
                print(f"{path}: waiting for {who}; where that has ended, remove {file}", file=sys.stderr)
            time.sleep(min(wait, max(0.0, wait_s - waited)))
            wait = min(2 * wait, _WAITS_S[1])


def _lock(path: Path, descriptor: int, shared: bool) -> tuple[Path, Owner] | None:
    if _flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
        if soft_lock.stands(soft_lock.path_of(path)):  # of a host on which this file system has no locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            raise _make_error(path)
        return None
    mine = soft_lock.this_process()
    soft = soft_lock.path_of(path, mine["token"] if shared else None)
    if not soft_lock.claim(soft, mine):
        raise _make_error(path)
    if any(map(soft_lock.stands, [soft_lock.path_of(path)] if shared else soft_lock.list_shared(path))):
        soft_lock.remove(soft)
        raise _make_error(path)
    if not _told:
        where = os.path.realpath(path.parent)
        _told.append(f"{where}: this file system has no locks; files {soft_lock.PREFIX}* say which process has one")
        with contextlib.suppress(OSError):
            print(_told[0], file=sys.stderr)
    return soft, mine


def _flock(descriptor: int, operation: int) -> bool:
    """Take the kernel's lock without waiting; return False if the file system has no locks.

    Raises:
        BlockingIOError: another process holds the lock.
    """
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise
    return True


def _make_error(path: Path) -> BlockingIOError:
    return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))
