"""The code that runs is the code that was submitted: a copy that all runs of a sweep start from.

A run may wait for hours. What is edited meanwhile must not change it, so ranks import a copy of our packages as they
were when the sweep was started: tracked files with their uncommitted changes, and new files that git does not ignore.

Copies are named by the hash of their content and kept beside the sweeps, so that sweeps of the same code share one. It
has the compiled kernels with it (numba keeps them beside their source): a copy of its own for each sweep would have
to compile all of them again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from sweep import file_lock, places
from sweep.run import UsageError

PROJECT = Path(__file__).resolve().parent.parent
ROOMS = ("compressors", "trainers", "sweep", "reports")
"""What a run loads, and the program that reports on it."""
COMPUTING = ("compressors/", "trainers/", "sweep/run.py", "sweep/emulation/")
"""What a result depends on, by the beginnings of paths."""
STORE = ".code"  # beside the dates of sweeps
CACHE = "__pycache__"
DIGITS = 16  # of 64 of the hash, in a copy's name


@dataclasses.dataclass(frozen=True)
class Code:
    """The files of our packages at a moment."""

    root: Path
    files: tuple[str, ...]
    digest: str
    """SHA-256 over names and content of all files, in hex."""
    version: str
    """Likewise of those that a result depends on: a run of the same version and signature gives the same numbers."""


def read(root: Path = PROJECT) -> Code:
    """The code in `root` as it is now."""
    files = sorted(set(_listed(root)))  # in the midst of a merge git lists some twice
    whole, computing = hashlib.sha256(), hashlib.sha256()
    for name in files:
        content = hashlib.sha256((root / name).read_bytes()).hexdigest()
        for digest in (whole, computing) if name.startswith(COMPUTING) else (whole,):
            digest.update(f"{name}\0{content}\n".encode("utf-8", "surrogateescape"))
    return Code(root, tuple(files), whole.hexdigest(), computing.hexdigest())


@functools.cache
def current() -> Code:
    """The code that this process is made of, as it was when this was asked first."""
    return read()


def _listed(root: Path) -> Iterable[str]:
    """Names of the files in ROOMS, without what git ignores where this is a checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *ROOMS]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if (root / ".git").exists():
            done = subprocess.run(command, cwd=root, capture_output=True, check=True, stdin=subprocess.DEVNULL)
            listed = (os.fsdecode(name) for name in done.stdout.split(b"\0") if name)
            return [name for name in listed if (root / name).is_file()]
    return [
        path.relative_to(root).as_posix()
        for room in ROOMS
        for path in (root / room).rglob("*")
        if path.is_file() and CACHE not in path.parts
    ]


def store_for(sweep: Path) -> Path:
    """Where copies for a sweep are kept: beside all dates where it is output/<date>/<time>, else within it."""
    return (places.root_of(sweep) if places.is_dated(sweep) else sweep) / STORE


def take(code: Code, store: Path) -> Path:
    """The directory in `store` with a copy of `code`; made where it is not there yet.

    Raises:
        UsageError: it cannot be written, or the code changes while it is copied.
    """
    copy = store / code.digest[:DIGITS]
    try:
        store.mkdir(parents=True, exist_ok=True)
        with file_lock.take(store / ".lock", wait_s=math.inf):  # of two sweeps that begin at once, one copies
            if not copy.exists():
                _copy(code, copy, _earlier(store))
    except OSError as error:
        raise UsageError(
            f"sweep.snapshot=true: {error.filename2 or error.filename or store}: {error.strerror}; valid is a "
            f"directory that can be written, or sweep.snapshot=false, which runs the code as it is when a run begins"
        ) from error
    return copy


def _earlier(store: Path) -> Sequence[Path]:
    """Copies of other code, the latest first."""
    copies = [path for path in store.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(copies, key=lambda path: path.stat().st_mtime, reverse=True)


def _copy(code: Code, copy: Path, earlier: Sequence[Path]) -> None:
    partial = Path(tempfile.mkdtemp(dir=copy.parent, prefix=f".{copy.name}."))
    try:
        os.chmod(partial, 0o755)
        for name in code.files:
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(code.root / name, partial / name)  # with its time: compiled files know their source by it
        if read(partial).digest != code.digest:
            raise UsageError("sweep.snapshot=true: the code was changed while it was copied; start the sweep again")
        for folder in {Path(name).parent for name in code.files}:
            for source in (code.root, *earlier[:1]):
                _bring_compiled(source / folder / CACHE, partial / folder / CACHE)
        partial.rename(copy)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _bring_compiled(source: Path, target: Path) -> None:
    """Link what Python and numba have compiled: both check time and size of the source, and replace whole files."""
    with contextlib.suppress(OSError):  # it is compiled again where this fails
        for path in source.iterdir():
            target.mkdir(exist_ok=True)
            if not (target / path.name).exists():
                _link(path, target / path.name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
