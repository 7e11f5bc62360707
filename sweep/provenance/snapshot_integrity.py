"""Check that no file of a snapshot has been changed, and that no other user can change it."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from gradsweep.errors import UsageError
from sweep.provenance import file_owners

CACHE = "__pycache__"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH

File = tuple[str, int, int, int, int]
"""Name, size, mtime, ctime (which no user can set) and inode number."""


def hash_files(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each file, in hex."""
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in names}


def compute_digest(hashes: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256 over the names and hashes of files, in hex."""
    whole = hashlib.sha256()
    for name, content in hashes:
        whole.update(f"{name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def find_flaw(copy: Path, beginning: str, *, guarded: bool) -> str | None:
    """Return a text on the damage of a snapshot; None if it is undamaged.

    Files that Python and numba have compiled have no known hash; they are trusted if no other user could write them.

    Args:
        beginning: the first digits of the digest of the snapshot's code.
        guarded: also check the owners of the files, and who may write to them.

    Raises:
        UsageError: a file in it belongs to an untrusted user.
    """
    files: list[File] = []
    try:
        for path, state, closed in _walk(copy):
            name = os.path.relpath(path, copy)
            if guarded and not file_owners.is_trusted(state.st_uid):
                raise UsageError(
                    f"sweep.snapshot=true: {os.path.relpath(path)} belongs to {file_owners.name_user(state.st_uid)}, "
                    f"who could change what runs; valid is to move {os.path.relpath(copy)} away, as it is laid out "
                    f"again, or --trust where you trust that user"
                )
            if not (stat.S_ISDIR(state.st_mode) or stat.S_ISREG(state.st_mode)):
                return f"{name} is neither a file nor a directory"
            if guarded and state.st_mode & OTHERS_WRITE and not closed:
                return f"other users could write to {name}"
            if stat.S_ISREG(state.st_mode) and path.parent.name != CACHE:
                files.append((name, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino))
        if not _digest_once(copy, tuple(sorted(files))).startswith(beginning):
            return "its files are not the ones that it was made of"
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


@functools.lru_cache(maxsize=4)
def _digest_once(copy: Path, files: tuple[File, ...]) -> str:
    """Return the digest of a snapshot's files; they are read again only if their times or sizes have changed."""
    return compute_digest(hash_files(copy, [file[0] for file in files]).items())


def _walk(root: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Yield `root` and all paths below it, with their `lstat` and whether only the owner can reach them."""
    left = [(root, os.lstat(root), False)]
    while left:
        path, state, closed = left.pop()
        yield path, state, closed
        if stat.S_ISDIR(state.st_mode):
            closed = closed or not state.st_mode & OTHERS_ENTER
            with os.scandir(path) as entries:
                left += [(Path(entry.path), entry.stat(follow_symlinks=False), closed) for entry in entries]
