"""Snapshots: copies of the code at the start of a sweep, from which all its runs start.

A run may wait for hours, and edits of the code must not change it meanwhile. So ranks import a copy of our packages as
they were when the sweep was started: tracked files with uncommitted changes, and new files that git does not ignore.

Copies are named by the hash of their content and are kept next to the sweeps, so that sweeps with the same code share a
copy. A copy also has the compiled kernels, which numba keeps next to their source: so they are compiled only once.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import math
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gradsweep.disk import file_lock
from gradsweep.errors import UsageError
from gradsweep.source_tree import ROOT
from gradsweep.sweeps import sweep_locations
from sweep.provenance import file_owners, snapshot_integrity
from sweep.provenance.snapshot_integrity import CACHE

ROOMS = ("gradsweep", "compressors", "trainers", "sweep", "reports")
"""Packages that runs load, and that of the reports."""
COMPUTING = (
    "compressors/",
    "trainers/",
    "gradsweep/csv_columns.py",
    "gradsweep/files.py",
    "gradsweep/run_directory.py",
    "gradsweep/script/",
    "gradsweep/disk/regular_files.py",
    "gradsweep/options/parameters.py",
    "gradsweep/timed_steps.py",
    "gradsweep/yaml_files.py",
    "sweep/emulation/",
)
"""Beginnings of the paths of files that a result depends on."""
TESTS = "compressors/conformance/"
"""Beginning of the paths of tests among them."""
STORE = ".code"  # beside the dates of sweeps
DIGITS = 16  # of 64 of the hash, in a copy's name
_HERE, _RENAME_EXCHANGE = -100, 2  # AT_FDCWD, and a flag of renameat2


@dataclasses.dataclass(frozen=True)
class Code:
    """The state of our packages' code: the list of files, and hashes of their contents."""

    root: Path
    files: tuple[str, ...]
    digest: str
    """SHA-256 over names and content of all files, in hex."""
    version: str
    """Likewise of those that a result depends on: a run of the same version and signature gives the same numbers."""


def read(root: Path = ROOT) -> Code:
    """List and hash the present files of our packages in `root`."""
    files = sorted(set(list_files(root, ROOMS)))  # during a merge git lists some files twice
    hashes = snapshot_integrity.hash_files(root, files)
    computing = [each for each in hashes.items() if each[0].startswith(COMPUTING) and not each[0].startswith(TESTS)]
    return Code(
        root,
        tuple(files),
        snapshot_integrity.compute_digest(hashes.items()),
        snapshot_integrity.compute_digest(computing),
    )


@functools.cache
def read_current() -> Code:
    """Return the code that this process runs, as read at the first call."""
    return read()


def list_files(root: Path, folders: Sequence[str]) -> list[str]:
    """List the files in folders of `root`; in a checkout, without files that git ignores."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if (root / ".git").exists():
            done = subprocess.run(command, cwd=root, capture_output=True, check=True, stdin=subprocess.DEVNULL)
            listed = (os.fsdecode(name) for name in done.stdout.split(b"\0") if name)
            return [name for name in listed if (root / name).is_file()]
    return [
        path.relative_to(root).as_posix()
        for folder in folders
        for path in (root / folder).rglob("*")
        if path.is_file() and CACHE not in path.parts
    ]


def find_store(sweep: Path) -> Path:
    """Return the directory for a sweep's snapshots: in output/ for output/<date>/<time>, else in the sweep.

    Raises:
        UsageError: its path cannot be an entry of PYTHONPATH.
    """
    store = (sweep_locations.root_of(sweep) if sweep_locations.is_dated(sweep) else sweep) / STORE
    if os.pathsep in str(store.absolute()):
        raise UsageError(
            f"hydra.sweep.dir={sweep}: with {os.pathsep!r}, which separates the directories of PYTHONPATH; valid is a "
            f"path without it, or sweep.snapshot=false"
        )
    return store


def take(code: Code, store: Path) -> Path:
    """Return the directory in `store` with a copy of `code`, which is created if it is missing or damaged.

    Raises:
        UsageError: the store cannot be written or belongs to another user, or the code has changed while it was copied.
    """
    copy = store / code.digest[:DIGITS]
    try:
        if store.is_symlink():  # others may be able to write where it leads
            raise UsageError(f"{store}: a symbolic link, which is not followed; valid is to remove it")
        store.mkdir(parents=True, exist_ok=True)
        guarded = _close_to_others(store)
        with file_lock.take(store / ".lock", wait_s=math.inf):  # one of two sweeps that begin at once makes the copy
            if not os.path.lexists(copy):
                _copy(code, copy, guarded)
            elif (wrong := snapshot_integrity.find_flaw(copy, copy.name, guarded=guarded)) is not None:
                aside = _copy(code, copy, guarded)
                print(f"{os.path.relpath(copy)}: {wrong}; laid out anew, and kept as {aside}", file=sys.stderr)
    except OSError as error:
        raise UsageError(
            f"sweep.snapshot=true: {error.filename2 or error.filename or store}: {error.strerror}; valid is a "
            f"directory that can be written, or sweep.snapshot=false, which runs the code as it is when a run begins"
        ) from error
    return copy


def explain_unfit(code: str | None) -> str | None:
    """Return why an attempt cannot start from the snapshot `code`: it was changed beyond repair; None if it can."""
    if code is None or (copy := Path(code)).parent.name != STORE:
        return None
    if (wrong := snapshot_integrity.find_flaw(copy, copy.name, guarded=False)) is None:  # `take` has checked its owner
        return None
    if copy.name == read_current().digest[:DIGITS]:
        with contextlib.suppress(UsageError):  # raised where the checkout has changed, too
            take(read_current(), copy.parent)
            return None
    return f"{copy}: {wrong}; a resume starts from the checkout as it is then"


def _close_to_others(store: Path) -> bool:
    """Remove other users' right to write to `store`; return whether that is effective on its file system.

    Raises:
        UsageError: the store belongs to a user who is not trusted.
    """
    if (stranger := file_owners.find_stranger([store])) is not None:
        raise UsageError(
            f"sweep.snapshot=true: {os.path.relpath(store)} belongs to {file_owners.name_user(stranger[1])}, who could "
            f"change what runs; valid is hydra.sweep.dir= a directory of your own, sweep.snapshot=false, or --trust "
            f"where you trust that user"
        )
    if store.stat().st_uid != os.geteuid():
        return True
    _withdraw_writing(store)
    return not store.stat().st_mode & snapshot_integrity.OTHERS_WRITE


def _withdraw_writing(path: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & snapshot_integrity.OTHERS_WRITE:
        path.chmod(mode & ~snapshot_integrity.OTHERS_WRITE)


def _find_earlier(store: Path, guarded: bool) -> Path | None:
    """Return the latest undamaged copy of other code of ours, for its compiled files; None without one."""
    copies = [path for path in store.iterdir() if (path / "compressors").is_dir() and not path.name.startswith(".")]
    for path in sorted(copies, key=lambda path: path.stat().st_mtime, reverse=True):
        with contextlib.suppress(UsageError):
            if snapshot_integrity.find_flaw(path, path.name, guarded=guarded) is None:
                return path
    return None


def _copy(code: Code, copy: Path, guarded: bool) -> str | None:
    """Create the directory `copy`; return the new path of a directory that had this name before, or None."""
    earlier = _find_earlier(copy.parent, guarded)
    with tempfile.TemporaryDirectory(dir=copy.parent, prefix=f".{copy.name}.", ignore_cleanup_errors=True) as place:
        partial = Path(place)
        os.chmod(partial, 0o755)
        for name in code.files:
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(code.root / name, partial / name)  # with its times, by which compiled files know their source
            _withdraw_writing(partial / name)
        copied = snapshot_integrity.hash_files(partial, code.files)
        if snapshot_integrity.compute_digest(copied.items()) != code.digest:
            raise UsageError("sweep.snapshot=true: the code was changed while it was copied; start the sweep again")
        for path in [path for path in partial.rglob("*") if path.is_dir()]:
            _withdraw_writing(path)
        for folder in {Path(name).parent for name in code.files}:
            (partial / folder / CACHE).mkdir(mode=0o700)  # what is compiled into it later is in no hash
            for source in filter(None, (code.root, earlier)):
                _bring_compiled(source / folder / CACHE, partial / folder / CACHE)
        return _put(partial, copy)  # under its new name it is not removed


def _put(partial: Path, copy: Path) -> str | None:
    """Rename a new copy to its final name; return the new path of an older directory with this name, or None.

    The older directory is not deleted, because runs may be importing from it.
    """
    if not os.path.lexists(copy):
        partial.rename(copy)
        return None
    aside = partial.with_name(f"{partial.name}.damaged")
    if _exchange(partial, copy):
        partial.rename(aside)
    else:
        copy.rename(aside)
        partial.rename(copy)
    return os.path.relpath(aside)


def _exchange(first: Path, second: Path) -> bool:
    """Swap the names of two paths atomically; return whether the system and the file system can do that."""
    try:
        done = ctypes.CDLL(None).renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _RENAME_EXCHANGE)
    except (OSError, AttributeError):
        return False
    return bool(done == 0)


def _bring_compiled(source: Path, target: Path) -> None:
    """Hard-link files that Python and numba have compiled.

    This is safe: both check time and size of the source, and replace files instead of changing them.
    """
    with contextlib.suppress(OSError):  # it is compiled again where this fails
        for path in source.iterdir():
            if not (target / path.name).exists():
                _link(path, target / path.name)


def _link(source: Path, target: Path) -> None:
    state = source.lstat()
    if (
        stat.S_ISREG(state.st_mode)
        and state.st_uid == os.geteuid()
        and not state.st_mode & snapshot_integrity.OTHERS_WRITE
    ):
        with contextlib.suppress(OSError):  # it is on another file system
            os.link(source, target)
            return
    shutil.copy2(source, target)
    _withdraw_writing(target)
