"""Ends runs early if other runs of the sweep are better (sweep.prune).

Optuna decides, by the values in epochs.csv of finished and running runs. So pruning works with any launcher and any
sweeper.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gradsweep import run_directory
from gradsweep.run_directory import Run
from sweep.directory.run_state import finish_attempt, write_state
from sweep.executors.base import Job, RunExecutor
from sweep.settings.metrics import find_metric, read_epochs, read_value
from sweep.settings.resolved_point import ResolvedPoint
from sweep.settings.sweep import SweepSettings


class Pruner:
    """Ends runs that Optuna's MedianPruner would prune; `poll` may be called often.

    `others` are further runs of the sweep, besides those of `points`: the finished ones are compared with, too.
    """

    def __init__(
        self,
        executor: RunExecutor,
        settings: SweepSettings,
        points: Mapping[Run, ResolvedPoint],
        others: Iterable[Run],
    ) -> None:
        self.executor, self.points, self.metric = executor, points, settings.metric
        self._sizes: dict[Path, int] = {}
        self._trials: dict[Path, Any] = {}
        self._reported: dict[Path, int] = {}  # the last epoch that a run's trial knows
        self._over: set[Path] = set()
        self._asked: dict[Path, str] = {}  # hopeless, and asked to end for that reason
        self._study: Any = None
        if settings.prune is None:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Optuna imports
            import optuna
        logging.getLogger("optuna").setLevel(logging.WARNING)
        pruner = optuna.pruners.MedianPruner(settings.prune_startup, settings.prune_warmup + 1)
        self._study = optuna.create_study(direction=find_metric(self.metric, settings.goal).goal, pruner=pruner)
        for run in others:
            if run.status() == run_directory.DONE:
                self._report_epochs(run)
                self._report_value(run)

    def poll(self, jobs: Iterable[Job]) -> list[Job]:
        """Read new epochs, ask runs that are to be pruned to end, and return the jobs that have ended so."""
        if self._study is None:
            return []
        ended = []
        for job in jobs:
            run = job.task.run
            if run.directory in self._over:
                continue
            if job.status == run_directory.RUNNING and (reason := self._report_epochs(run)) is not None:
                self.executor.ask_to_end([job], self._asked.setdefault(run.directory, reason))
            if job.status == run_directory.DONE:  # also one that was hopeless, and faster than its end
                self._report_epochs(run)
                self._report_value(run)
            elif job.status == run_directory.CANCELLED and job.reason == self._asked.get(run.directory):
                job.mark_pruned()
                attempts = run.state()["attempts"]
                exit_code = attempts[-1].get("exit_code") if attempts else None
                finish_attempt(run, run_directory.PRUNED, str(job.reason), exit_code)
                self._over.add(run.directory)
                ended.append(job)
        return ended

    def _report_epochs(self, run: Run) -> str | None:
        """Report all new epochs of a run to Optuna's study; return why the run is to be pruned, or None."""
        size = _read_size(run.path(run_directory.EPOCHS))
        if size == self._sizes.get(run.directory):
            return None
        self._sizes[run.directory] = size
        trial = self._trials.get(run.directory)
        if trial is None:
            trial = self._trials[run.directory] = self._study.ask()
        reported = self._reported.get(run.directory, 0)
        reason = None
        for epoch, value in sorted(read_epochs(run, self.metric).items()):
            if epoch <= reported:
                continue
            trial.report(value, epoch)
            self._reported[run.directory] = epoch
            goes_on = run in self.points and epoch < self.points[run].config["epochs"]
            if reason is None and goes_on and trial.should_prune():
                reason = f"{self.metric} {value:.4g} after epoch {epoch}: worse than the median of the finished runs"
        return reason

    def _report_value(self, run: Run) -> None:
        """Report the final value of a done run to Optuna's study."""
        value = read_value(run, self.metric)
        self._over.add(run.directory)
        if not math.isnan(value) and run.directory in self._trials:
            self._study.tell(self._trials[run.directory], value)


def revive_pruned(runs: Iterable[Run]) -> None:
    """Mark pruned runs as pending, so that they are computed after all because sweep.prune is now off."""
    for run in runs:
        if run.status() == run_directory.PRUNED:
            write_state(run, status=run_directory.PENDING, reason=None)


def _read_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
