"""MLflow's file store, by the client alone: no server, no network."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainers.trackers.base import Tracker, prefixed


class MLflow(Tracker):
    """A run of the experiment `gradsweep`. To see it: `mlflow ui --backend-store-uri RUN/trackers/mlflow`."""

    def start(self, config: Mapping[str, Any], directory: Path, after: int) -> None:
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # later versions ask for a data base otherwise
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        from mlflow.entities import Metric, Param
        from mlflow.tracking import MlflowClient

        self._metric = Metric
        self._client = MlflowClient(tracking_uri=directory.resolve().as_uri())
        known = self._client.get_experiment_by_name("gradsweep")
        experiment = known.experiment_id if known is not None else self._client.create_experiment("gradsweep")
        self._run = self._client.create_run(experiment, run_name=directory.parent.parent.name).info.run_id
        params = [Param(name, str(value)[:500]) for name, value in config.items()]
        for first in range(0, len(params), 100):  # of one request
            self._client.log_batch(self._run, params=params[first : first + 100])

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        self._client.log_batch(self._run, [self._metric(name, value, now, step) for name, value in values.items()])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._log(step, prefixed("step", values))

    def epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        self._log(int(values["step"]), prefixed("epoch", values))

    def finish(self, status: str) -> None:
        self._client.set_tag(self._run, "status", status)
        self._client.set_terminated(self._run, "FINISHED" if status == "done" else "FAILED")
