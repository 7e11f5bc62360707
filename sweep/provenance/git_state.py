"""Describe the state of a git checkout: the commit, uncommitted changes, and untracked files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from sweep.system.processes import read_output

PATIENCE_S = 20.0
LONGEST_DIFF = 200_000  # characters that are kept
MOST_FILES = 100  # files unknown to git that are named
MOST_BYTES = 100_000_000  # bytes of these files that are read


def describe(project: Path) -> dict[str, Any] | None:
    """Return a description of a checkout's state; None if `project` is no checkout.

    Returns:
        `commit`, `branch`; `dirty`: lines of `git status --porcelain`; `diff`: the first LONGEST_DIFF characters of the
        difference from the commit to the tracked files; `diff_cut`: whether it is longer; `diff_sha256`: of the whole
        difference, None without one; `untracked`: SHA-256 of each file that git neither tracks nor ignores, None beyond
        the first MOST_BYTES; `untracked_cut`: the number of files beyond the first MOST_FILES.
    """
    commit = _run_git(project, "rev-parse", "HEAD")
    if commit is None:
        return None
    diff = _run_git(project, "diff", "--no-ext-diff", "--no-color", "HEAD") or b""
    text = _decode(diff)
    listed = _run_git(project, "ls-files", "-z", "--others", "--exclude-standard") or b""
    unknown = sorted(name for name in listed.split(b"\0") if name)
    return {
        "commit": _decode(commit).strip(),
        "branch": _decode(_run_git(project, "rev-parse", "--abbrev-ref", "HEAD") or b"").strip(),
        "dirty": _decode(_run_git(project, "status", "--porcelain") or b"").splitlines(),
        "diff": text[:LONGEST_DIFF],
        "diff_cut": len(text) > LONGEST_DIFF,
        "diff_sha256": hashlib.sha256(diff).hexdigest() if diff else None,
        "untracked": _hash_files(project, unknown[:MOST_FILES]),
        "untracked_cut": max(0, len(unknown) - MOST_FILES),
    }


def _run_git(project: Path, *words: str) -> bytes | None:
    return read_output("git", *words, timeout=PATIENCE_S, cwd=project)


def _decode(output: bytes) -> str:
    return output.decode("utf-8", errors="replace")


def _hash_files(project: Path, files: list[bytes]) -> dict[str, str | None]:
    """Return the SHA-256 of files by name, for the first MOST_BYTES; None for further and for unreadable files."""
    hashes: dict[str, str | None] = {}
    left = MOST_BYTES
    for name in files:
        path = os.path.join(os.fsencode(project), name)
        digest = None
        try:
            if os.path.isfile(path) and (size := os.stat(path).st_size) <= left:
                left -= size
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
        except OSError:
            pass
        hashes[name.decode("utf-8", errors="backslashreplace")] = digest
    return hashes
