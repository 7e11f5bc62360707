"""The point of a run that was laid out earlier, read from its config.yaml and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.directory.completion import load_config
from sweep.launchers.launchers import check_run
from sweep.settings.resolved_point import ResolvedPoint, parse_point


def load_point(run: Run) -> ResolvedPoint:
    """Return the point of a run, built from its config.yaml.

    Raises:
        UsageError: the file cannot be read, was changed in what the signature stands for, or cannot be started.
    """
    return check_point(run, load_config(run))


def check_point(run: Run, config: Mapping[str, Any]) -> ResolvedPoint:
    """Parse the config of a run and check that its launcher can start it.

    How a run is started is not part of its signature, so the file may have been edited.

    Raises:
        UsageError: it cannot be started; the line names the file.
    """
    try:
        point = parse_point(config)
        check_run(point.options, config, point.settings)
        return point
    except UsageError as error:
        raise UsageError(f"{run.path(run_directory.CONFIG)}: {error}") from error
