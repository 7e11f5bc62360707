"""MLflow: a run for each of ours, in its file store or on a tracking server, by the client alone."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gradsweep import run_directory as rundir
from reports.exports.runs import Ended

EXPERIMENT = "gradsweep"
SIGNATURE, VERSION = "gradsweep.signature", "gradsweep.version"  # the second is set when all the rest is there

_METRICS, _PARAMS = 1000, 100  # of one request
_PARAM, _TAG = 500, 5000  # characters


def export(runs: Iterable[Ended], into: Path | str) -> Iterator[tuple[Ended, bool]]:
    """Into the experiment `gradsweep` there; a signature has one run.

    One that is there already stays as it is where it says the same; else it is deleted, as by hand, and made anew.
    """
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # later versions ask for a data base otherwise
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    if isinstance(into, Path):
        into.mkdir(parents=True, exist_ok=True)
    try:
        client = MlflowClient(tracking_uri=into.resolve().as_uri() if isinstance(into, Path) else into)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        place = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
        known = _known(client, place)
        for run in runs:
            there = known.get(run.signature, {})
            is_new = run.version not in there.values()
            if is_new:
                for old in there:
                    client.delete_run(old)
                _write(run, client, place)
            yield run, is_new
    except MlflowException as error:
        raise rundir.UsageError(f"export mlflow: {' '.join(str(error).split())}") from error


def _known(client: Any, experiment: str) -> dict[str, dict[str, str]]:
    """By signature: the runs that earlier exports have left, and their versions."""
    found: dict[str, dict[str, str]] = {}
    token = None
    while token != "":
        page = client.search_runs([experiment], page_token=token)
        for run in page:
            if SIGNATURE in run.data.tags:
                version = run.data.tags.get(VERSION, "")
                found.setdefault(run.data.tags[SIGNATURE], {})[run.info.run_id] = version
        token = page.token or ""
    return found


def _write(run: Ended, client: Any, experiment: str) -> None:
    from mlflow.entities import Metric, Param

    tags = {SIGNATURE: run.signature, "sweep": run.sweep, "status": run.status, "reason": run.reason[:_TAG]}
    began, ended = int(run.began_s * 1000), int(run.ended_s * 1000)
    made = client.create_run(experiment, start_time=began, run_name=run.name, tags=tags).info.run_id
    options = {_key(name): str(value)[:_PARAM] for name, value in run.options.items()}
    for batch in _batches(itertools.starmap(Param, options.items()), _PARAMS):
        client.log_batch(made, params=batch)
    measured = (
        Metric(name, value, int(point.wall_s * 1000), point.step)
        for point in run.read()
        for name, value in point.values.items()
    )
    results = (Metric(name, value, ended, run.steps) for name, value in run.results.items())
    for batch in _batches(itertools.chain(measured, results), _METRICS):
        client.log_batch(made, batch)
    client.set_terminated(made, "FINISHED" if run.status == rundir.DONE else "FAILED", end_time=ended)
    client.set_tag(made, VERSION, run.version)


def _batches(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(values)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def _key(name: str) -> str:
    """The name of an option with the characters that MLflow takes, which may make a file of it."""
    return re.sub(r"[^\w. -]|^\.+$", "_", name, flags=re.ASCII)[:250]
