"""Export runs to MLflow: each run of a sweep becomes a run in a file store or on a tracking server."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from gradsweep import errors, run_directory
from gradsweep.tracking.mlflow_store import Store, import_mlflow
from reports.exports.runs import EndedRun

SIGNATURE, VERSION = "gradsweep.signature", "gradsweep.cli.version"  # the second is set last, when the run is complete
_TAG = 5000  # characters


def export(runs: Iterable[EndedRun], into: Path | str) -> Iterator[tuple[EndedRun, bool]]:
    """Write runs into the experiment `gradsweep` of a store, with one MLflow run for each signature.

    An MLflow run of an earlier export stays if it has the same version; else it is deleted as a user would, and written
    anew.
    """
    mlflow = import_mlflow()
    if isinstance(into, Path):
        into.mkdir(parents=True, exist_ok=True)
    try:
        store = Store(into)
        versions = _find_runs(store)
        for run in runs:
            earlier = versions.get(run.signature, {})
            is_new = run.version not in earlier.values()
            if is_new:
                for old in earlier:
                    store.client.delete_run(old)
                _write(run, store)
            yield run, is_new
    except mlflow.exceptions.MlflowException as error:
        raise errors.UsageError(f"export mlflow: {' '.join(str(error).split())}") from error


def _find_runs(store: Store) -> dict[str, dict[str, str]]:
    """Return the ids and versions of the MLflow runs from earlier exports, by signature."""
    found: dict[str, dict[str, str]] = {}
    token = None
    while token != "":
        page = store.client.search_runs([store.experiment], page_token=token)
        for run in page:
            if SIGNATURE in run.data.tags:
                version = run.data.tags.get(VERSION, "")
                found.setdefault(run.data.tags[SIGNATURE], {})[run.info.run_id] = version
        token = page.token or ""
    return found


def _write(run: EndedRun, store: Store) -> None:
    tags = {SIGNATURE: run.signature, "sweep": run.sweep, "status": run.status, "reason": run.reason[:_TAG]}
    began, ended = int(run.began_s * 1000), int(run.ended_s * 1000)
    made = store.begin_run(run.name, run.options, began, tags)
    measured = (
        (name, value, int(sample.wall_s * 1000), sample.step)
        for sample in run.read()
        for name, value in sample.values.items()
    )
    results = ((name, value, ended, run.steps) for name, value in run.results.items())
    store.log_metrics(made, itertools.chain(measured, results))
    store.end_run(made, run.status == run_directory.DONE, ended)
    store.client.set_tag(made, VERSION, run.version)
