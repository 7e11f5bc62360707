"""Compile our C programs once per user; the cache names them by a hash of the source and the machine."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
FLAGS = {"switch": ["-O2"], "idle": ["-O2", "-shared", "-fPIC"]}
LIBRARIES = {"switch": [], "idle": ["-ldl"]}
COMPILERS = ("cc", "gcc", "clang")


class NotCompiled(Exception):
    """A program cannot be compiled; `str()` gives the reason and the package to install."""


def find_compiler() -> str | None:
    """Return the path of a C compiler; None without a compiler."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def compile_program(name: str, scratch: Path) -> Path:
    """Compile `name`.c to a program or a library, unless the cache has it; return its path.

    Args:
        scratch: a directory for the result if the user's cache cannot be written.

    Raises:
        NotCompiled: there is no compiler, or it fails.
    """
    source = SOURCES / f"{name}.c"
    key = hashlib.sha256(source.read_bytes() + repr((FLAGS[name], platform.machine(), platform.libc_ver())).encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = cache / "gradsweep" / f"{name}-{key.hexdigest()[:16]}"
    if kept.exists():
        return kept
    compiler = find_compiler()
    if compiler is None:
        raise NotCompiled("no C compiler (package gcc)")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=kept.parent, prefix=f".{kept.name}.")
    except OSError:
        kept = scratch / kept.name
        folder = tempfile.TemporaryDirectory(dir=scratch, prefix=f".{kept.name}.")
    with folder:
        partial = f"{folder.name}/{name}"
        command = [compiler, *FLAGS[name], "-o", partial, str(source), *LIBRARIES[name]]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            lines = [line.strip() for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
            reason = lines[0] if lines else f"it exited with {done.returncode}"
            raise NotCompiled(f"{compiler} cannot compile {name}.c: {reason} (packages gcc and libc6-dev)")
        os.replace(partial, kept)  # atomically: another process may compile it at the same time
    return kept
