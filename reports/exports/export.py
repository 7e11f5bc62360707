"""Export runs to other programs, one file for each, under the names that live trackers use (trainers/trackers).

Each module has `export(runs, into)`, which yields each run and whether it was written, or was there already.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsweep import errors

if TYPE_CHECKING:
    from reports.exports.runs import EndedRun  # loads pandas, which --help does without

PACKAGES: Mapping[str, str] = {"tensorboard": "tensorboardX", "mlflow": "mlflow"}
"""The package that each module needs; the extra that installs it has the name of the module."""


def export(name: str, runs: Iterable[EndedRun], into: Path | str) -> Iterator[tuple[EndedRun, bool]]:
    """Write runs for the program `name`, each as it is asked for.

    Args:
        into: a directory, which is made; MLflow also takes the address of a tracking server.

    Yields:
        The run, and whether it was written: a store that has it already, as it is, is left as it is.

    Raises:
        gradsweep.errors.UsageError: the package is not installed, or the other program refuses.
        OSError: something cannot be written.
    """
    check_installed(name)
    module: Any = importlib.import_module(f"reports.exports.{name}")
    yield from module.export(runs, into)


def check_installed(name: str) -> None:
    """Raise a UsageError that says what to install if the package of an export is missing."""
    if importlib.util.find_spec(PACKAGES[name]) is None:
        raise errors.UsageError(
            f"export {name}: the package {PACKAGES[name]} is not installed; "
            f"valid after `pip install 'gradsweep[{name}]'`"
        )
