"""Weights & Biases, offline only: what it writes can be sent later by hand, with `wandb sync`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainers.trackers.base import Tracker


class WandB(Tracker):
    """Writes a run of the project `gradsweep` of Weights & Biases into RUN/trackers/wandb."""

    def start(self, config: Mapping[str, Any], directory: Path, after: int) -> None:
        os.environ["WANDB_MODE"] = "offline"
        os.environ["WANDB_ERROR_REPORTING"] = "false"
        for place in ("CACHE", "CONFIG", "DATA", "ARTIFACT"):  # else in the user's home
            os.environ[f"WANDB_{place}_DIR"] = str(directory)
        import wandb

        self._run = wandb.init(
            mode="offline",
            project="gradsweep",
            name=directory.parent.parent.name,
            dir=str(directory),
            config=dict(config),
            settings=wandb.Settings(
                console="off", silent=True, x_disable_stats=True, disable_git=True, disable_code=True
            ),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def finish(self, status: str) -> None:
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status == "done" else 1)
