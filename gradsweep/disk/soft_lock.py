"""Soft locks: files that say which process has a lock, for file systems on which the kernel has none.

The soft lock of the file NAME is the file `.soft-NAME` beside it. It identifies its owner by host, boot id, pid and
start time. Another process on the same host can see whether the owner still runs, and replaces it if it has ended. An
owner on another host or in another container cannot be seen: then a user has to remove the file.

A lock file is created together with its content, and only `replace` changes its owner.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
from pathlib import Path
from typing import Any

PREFIX = ".soft-"
Owner = dict[str, Any]

_LONGEST = 4096  # bytes of a soft lock
_LONGEST_NAME = 150  # bytes of a name that others are made of


def path_of(path: Path, token: str | None = None) -> Path:
    """Return the path of a file's soft lock; with `token`, of the shared soft lock whose owner has this token."""
    name = path.name
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return path.with_name(f"{PREFIX}{name}" + ("" if token is None else f".{token}"))


def list_shared(path: Path) -> list[Path]:
    start = f"{path_of(path).name}."
    return [path.with_name(name) for name in os.listdir(path.parent) if name.startswith(start)]


def claim(soft: Path, mine: Owner) -> bool:
    """Create a soft lock, or replace its owner if that has ended; return whether `mine` now owns the lock."""
    if _make(soft, mine):
        return True
    found = owner_of(soft)
    return found is not None and _is_gone(found) and replace(soft, found, mine)


def _make(soft: Path, mine: Owner) -> bool:
    written = _write(soft, mine)
    try:
        os.link(written, soft)  # with its content, or not at all
    except FileExistsError:
        return owner_of(soft) == mine  # a network file system may say so of what it has just done
    finally:
        remove(written)
    return True


def replace(soft: Path, found: Owner, mine: Owner) -> bool:
    """Replace the owner `found` by `mine`; if several processes try, only one succeeds.

    They exclude each other by a second soft lock, named after `found`: a token never owns the lock again later.
    """
    guard = soft.with_name(f"{soft.name}-{found.get('token')}")
    if not claim(guard, mine):
        return False
    try:
        if owner_of(soft) != found:
            return False
        os.replace(_write(soft, mine), soft)
        return True
    finally:
        remove(guard)


def _write(soft: Path, mine: Owner) -> Path:
    """Return a new file, under a name that no other process knows, with the content `mine`."""
    path = soft.with_name(f"{PREFIX}{mine['token']}.{secrets.token_hex(4)}")
    try:
        with open(path, "x", encoding="utf-8") as file:
            json.dump(mine, file)
    except OSError as error:
        remove(path)
        error.filename = error.filename or str(soft)  # that of a write has none
        raise
    return path


def remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def owner_of(soft: Path) -> Owner | None:
    """Return the owner of a soft lock; empty if it cannot be read, None if there is no lock file."""
    try:
        descriptor = os.open(soft, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        return {}
    try:
        found = json.loads(os.read(descriptor, _LONGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    finally:
        os.close(descriptor)
    return found if isinstance(found, dict) else {}


def stands(soft: Path) -> bool:
    """Tell whether a soft lock exists and its owner is alive, as far as this process can see."""
    owner = owner_of(soft)
    return owner is not None and not _is_gone(owner)


def this_process() -> Owner:
    me = os.getpid()
    where = {"host": socket.gethostname(), "boot": _boot(), "space": _space()}
    return {**where, "pid": me, "started": _find_start(me), "token": secrets.token_hex(8)}


def can_be_seen(owner: Owner) -> bool:
    """Tell whether this process can see if the owner still runs: an owner on another host or outside our container
    is invisible."""
    pid = owner.get("pid")
    is_here = owner.get("boot") != _boot() or owner.get("space") == _space()
    return owner.get("host") == socket.gethostname() and isinstance(pid, int) and pid > 0 and is_here


def _is_gone(owner: Owner) -> bool:
    """Tell whether the process has certainly ended."""
    if not can_be_seen(owner):
        return False
    if owner.get("boot") != _boot():
        return True
    pid = owner["pid"]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's
        pass
    started = _find_start(pid)
    return started is not None and started != owner.get("started")


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _space() -> str:
    """Return the name of this process's PID namespace; empty if the system does not show it."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _find_start(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot; 0 for a zombie.

    None: the start time cannot be read.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return 0 if fields[0] in "ZX" else int(fields[19])
