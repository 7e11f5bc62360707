"""Loads the point of an existing run from its config.yaml, and checks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.directory.completion import load_config
from sweep.launchers.launchers import check_network, check_run
from sweep.settings.resolved_point import ResolvedPoint, parse_point


def load_point(run: Run) -> ResolvedPoint:
    """Return the point of a run, built from its config.yaml.

    Raises:
        UsageError: the file cannot be read, no longer has the run's signature, or its launcher cannot start the run.
    """
    return check_point(run, load_config(run))


def check_point(run: Run, config: Mapping[str, Any]) -> ResolvedPoint:
    """Parse the config of a run and check that its launcher can start it.

    The check is needed because the launcher's options are not part of the signature, so a user may have edited them.

    Raises:
        UsageError: the run cannot be started; the message names the file.
    """
    try:
        point = parse_point(config)
        check_network(config)
        check_run(point.options, config, point.settings)
        return point
    except UsageError as error:
        raise UsageError(f"{run.path(run_directory.CONFIG)}: {error}") from error
