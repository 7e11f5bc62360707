"""TensorBoard's event files, by tensorboardX, which needs a tenth of what TensorBoard itself installs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainers.trackers.base import Tracker, prefixed


class TensorBoard(Tracker):
    """Scalars over the steps; the options as text. To see them: `tensorboard --logdir OUTPUT`."""

    def start(self, config: Mapping[str, Any], directory: Path, after: int) -> None:
        from tensorboardX import SummaryWriter

        # where an earlier attempt has come further, TensorBoard leaves out what it has written of these steps
        again = after + 1 if any(directory.iterdir()) else None
        self._writer = SummaryWriter(logdir=str(directory), flush_secs=10, purge_step=again)
        lines = ["| option | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in config.items())]
        self._writer.add_text("config", "\n".join(lines))

    def _scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._scalars(step, prefixed("step", values))

    def epoch(self, epoch: int, values: Mapping[str, float]) -> None:
        self._scalars(int(values["step"]), prefixed("epoch", values))

    def finish(self, status: str) -> None:
        self._writer.add_text("status", status)
        self._writer.close()
