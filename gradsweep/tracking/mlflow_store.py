"""Write runs into a store of MLflow, a directory or a tracking server, by MLflow's client alone."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

EXPERIMENT = "gradsweep"
_METRICS, _PARAMS = 1000, 100  # of one request
_NAME, _VALUE = 250, 500  # characters of a parameter


def import_mlflow() -> Any:
    """Return the package, imported without its telemetry."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # later versions ask for a data base otherwise
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    import mlflow.exceptions
    import mlflow.tracking

    return mlflow


class Store:
    """The experiment `gradsweep` of a store, created if missing; times are Unix times in ms.

    Args:
        place: a directory, or the address of a tracking server.
    """

    def __init__(self, place: Path | str) -> None:
        client = import_mlflow().tracking.MlflowClient
        self.client = client(tracking_uri=place.resolve().as_uri() if isinstance(place, Path) else place)
        known = self.client.get_experiment_by_name(EXPERIMENT)
        self.experiment = known.experiment_id if known else self.client.create_experiment(EXPERIMENT)

    def begin_run(
        self, name: str, options: Mapping[str, Any], began_ms: int | None = None, tags: Mapping[str, str] | None = None
    ) -> str:
        """Create a run with these options as its parameters, and return its id."""
        from mlflow.entities import Param

        made = self.client.create_run(self.experiment, start_time=began_ms, run_name=name, tags=tags)
        run = str(made.info.run_id)
        params = {_clean_name(name): str(value)[:_VALUE] for name, value in options.items()}
        for batch in _batches(itertools.starmap(Param, params.items()), _PARAMS):
            self.client.log_batch(run, params=batch)
        return run

    def log_metrics(self, run: str, metrics: Iterable[tuple[str, float, int, int]]) -> None:
        """Write metrics of a run, each with name, value, time and step."""
        from mlflow.entities import Metric

        for batch in _batches(itertools.starmap(Metric, metrics), _METRICS):
            self.client.log_batch(run, batch)

    def end_run(self, run: str, is_done: bool, ended_ms: int | None = None) -> None:
        self.client.set_terminated(run, "FINISHED" if is_done else "FAILED", end_time=ended_ms)


def _batches(values: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(values)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


def _clean_name(name: str) -> str:
    """Return the name of an option with only those characters that MLflow accepts in names (it makes files of them)."""
    return re.sub(r"[^\w. -]|^\.+$", "_", name, flags=re.ASCII)[:_NAME]
