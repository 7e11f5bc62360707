"""Refuse code and configs of other users, because their content would run with our rights."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run

ROOT = 0  # root may change what we run anyway

_trusts_everybody = False


def trust_everybody() -> None:
    """From now on accept code and configs of all users (--trust)."""
    global _trusts_everybody
    _trusts_everybody = True


def is_trusted(owner: int) -> bool:
    """Tell whether this process may use a user's code and configs: our own, root's, and with --trust everybody's."""
    return _trusts_everybody or owner in (ROOT, os.geteuid())


def find_stranger(paths: Iterable[Path]) -> tuple[Path, int] | None:
    """Return the first path with an untrusted owner, and the owner; check a link as well as its target."""
    for path in paths:
        for look in (os.lstat, os.stat):
            try:
                owner = look(path).st_uid
            except OSError:
                continue  # a missing file is reported where it is read
            if not is_trusted(owner):
                return path, owner
    return None


def name_user(number: int) -> str:
    """Return a text with a user's name and number."""
    try:
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    except KeyError:
        return f"uid {number}"


def refuse_strangers(sweep: Path, runs: Iterable[Run] = ()) -> None:
    """Refuse to continue a sweep with files of an untrusted user.

    Args:
        runs: the sweep's runs that would be started by their files.

    Raises:
        UsageError: a file belongs to a user who is not trusted.
    """
    paths = [sweep, *(sweep / name for name in (run_directory.SWEEP, run_directory.RUNS, run_directory.PROBES))]
    for run in runs:
        paths += [
            run.directory,
            *(run.path(name) for name in (run_directory.CONFIG, run_directory.STATE, run_directory.CHECKPOINT)),
        ]
    if (stranger := find_stranger(paths)) is not None:
        path, owner = stranger
        raise UsageError(
            f"{os.path.relpath(path)}: belongs to {name_user(owner)}, and to go on with this sweep runs, as you, what "
            f"its files say; valid is a sweep of your own, or --trust where you trust whoever has written it"
        )
