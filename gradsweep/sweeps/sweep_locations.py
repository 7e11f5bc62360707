"""Find the directories of sweeps; only this module knows how they are arranged.

By default a sweep is ROOT/<date>/<time>, with ROOT output/; hydra.sweep.dir (hydra.run.dir) may put it anywhere.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gradsweep import run_directory

OUTPUT = Path("output")
"""The root of sweeps whose directory nobody has named."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def is_dated(sweep: Path) -> bool:
    """Tell whether a sweep's directory is ROOT/<date>/<anything>."""
    return _DATE.fullmatch(Path(os.path.abspath(sweep)).parent.name) is not None


def is_sweep(directory: Path) -> bool:
    """Tell whether a directory is a sweep's: it has the record or the runs of a sweep."""
    return (directory / run_directory.SWEEP).is_file() or (directory / run_directory.RUNS).is_dir()


def root_of(sweep: Path) -> Path:
    """Return the output root of a sweep: two levels up if the sweep is dated, else one level up."""
    absolute = Path(os.path.abspath(sweep))
    root = absolute.parent.parent if is_dated(sweep) else absolute.parent
    return root if sweep.is_absolute() else Path(os.path.relpath(root))


def roots_of(sweep: Path) -> list[Path]:
    """Return the directories to search for earlier sweeps: the sweep's root, and output/ if that is another
    directory."""
    root = root_of(sweep)
    return [root] if os.path.abspath(root) == os.path.abspath(OUTPUT) else [root, OUTPUT]


def sweeps_below(*roots: Path) -> Iterator[Path]:
    """Yield the sweeps one and two levels below (ROOT/<date>/<time>), each once, in no order, without hidden
    directories."""
    seen = set()
    for root in roots:
        for pattern in (f"*/{run_directory.RUNS}", f"*/*/{run_directory.RUNS}"):
            for path in files(root, pattern):
                if (absolute := os.path.abspath(path)) not in seen:
                    seen.add(absolute)
                    yield path.parent


def last_sweep(root: Path) -> Path | None:
    """Return the sweep that was started or resumed last below `root`; None without any."""
    return next(iter(latest_first(sweeps_below(root))), None)


def latest_first(sweeps: Iterable[Path]) -> list[Path]:
    """Return sweeps sorted by their last start or resume, the latest first, without directories that have no
    sweep.yaml."""
    found = []
    for sweep in sweeps:
        with contextlib.suppress(OSError):
            found.append(((sweep / run_directory.SWEEP).stat().st_mtime_ns, sweep))
    return [sweep for _, sweep in sorted(found, reverse=True)]


def files(directory: Path, pattern: str) -> Iterator[Path]:
    """Yield the files that match; unlike Path.glob, ignore directories that are removed meanwhile."""
    return (directory / name for name in glob.iglob(pattern, root_dir=directory))
