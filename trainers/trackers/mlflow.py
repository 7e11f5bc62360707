"""MLflow's file store, by the client alone: no server, no network."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep.tracking.mlflow_store import Store
from trainers.trackers.base import Tracker


class MLflow(Tracker):
    """Writes a run of the experiment `gradsweep`. See it by `mlflow ui --backend-store-uri RUN/trackers/mlflow`."""

    def start(self, config: Mapping[str, Any], directory: Path, after: int) -> None:
        self._store = Store(directory)
        self._run = self._store.begin_run(directory.parent.parent.name, config)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        self._store.log_metrics(self._run, [(name, value, now, step) for name, value in values.items()])

    def finish(self, status: str) -> None:
        self._store.client.set_tag(self._run, "status", status)
        self._store.end_run(self._run, status == "done")
