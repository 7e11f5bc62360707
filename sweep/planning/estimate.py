"""Estimate the duration of a run from finished runs, without any new measurement."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep import run_directory, yaml_files
from gradsweep.disk import regular_files
from gradsweep.options.config_keys import look_up
from gradsweep.run_directory import Run, is_script
from gradsweep.signature import fill_added, signature
from gradsweep.sweeps import sweep_locations
from sweep.system import cores

MOST = 1000  # finished runs that are looked at, the latest
FAR = 2.0
"""Times as many workers to a core as in any finished run: from there on what they cost each other is not known."""

_PROGRAM = ("trainer.name", "trainer.command")
_LENGTHS = ("seed", "epochs", "max_steps", "warmup_steps")
# What decides the time of a step, from the closest likeness to the loosest. Group names stand for a whole section,
# names with a dot for one key of it.
LIKENESS = {
    "the same": (
        *("model", "dataset", "workers", "threads_per_worker", "compressor", "memory", "exchange", "algorithm"),
        *("optimizer.name", "batch", "phases", "precision", "device", "channels_last", "compile", "batch_norm"),
        *("kernels", "policy", "launcher.cluster", *_PROGRAM),
        "sweep.pack",  # a packed run has no start of its own
    ),
    "alike": (
        *("model", "dataset", "workers", "batch", "phases", "precision", "device", "compressor.name", "exchange.name"),
        *("sweep.pack", *_PROGRAM),
    ),
    "similar": ("model", "dataset", "device", *_PROGRAM),
}


@dataclasses.dataclass(frozen=True)
class Parallelism:
    """The number of a run's ranks, and how many of them can compute at the same time."""

    ranks: int
    at_once: float
    """Ranks that compute at the same time: all on GPUs; else as many as have cores."""

    @property
    def ranks_per_core(self) -> float:
        """The number of ranks that share the cores requested for one rank; 1 if all ranks compute at once."""
        return self.ranks / self.at_once

    @classmethod
    def from_config(cls, config: Mapping[str, Any], cores: int | None, device: str = "cpu") -> Parallelism:
        """Return the parallelism of a run on `cores` cores (None: enough); device=auto means `device`."""
        ranks, threads = int(config["workers"]), int(config["threads_per_worker"])
        asked = config.get("device", "auto")
        if cores is None or (device if asked == "auto" else asked) != "cpu":
            return cls(ranks, ranks)
        return cls(ranks, min(ranks, max(1, cores) / threads))


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """The times in seconds of a finished run, from which those of other runs are estimated."""

    keys: tuple[str, ...]  # what it has in common with others, by LIKENESS
    workers: int
    parallelism: Parallelism | None  # None: nothing tells on how many cores it was
    whole: bool  # not cut short by max_steps: its epochs are full
    step_s: float
    epoch_s: float  # training and evaluation
    overhead_s: float  # start, data, end
    device: str = "cpu"

    def scale_to(self, crew: Parallelism, shared: bool, own: Parallelism | None = None) -> FinishedRun:
        """Return the estimated times of the same training on another number of ranks or cores, given by `crew`.

        Args:
            shared: the batch size is that of all ranks together (batch.per=global), else that of each rank.
            own: the parallelism of this run if its files lack it.
        """
        own = self.parallelism or own or crew
        work, crowd = own.at_once / crew.at_once, crew.ranks_per_core / own.ranks_per_core
        return dataclasses.replace(
            self,
            step_s=self.step_s * (work if shared else crowd),
            epoch_s=self.epoch_s * work,
            overhead_s=self.overhead_s * crowd,
        )


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The estimated duration of a run."""

    seconds: float
    runs: int
    """On so many finished runs it rests."""

    likeness: str
    """How like the runs are: one of LIKENESS."""

    scaled: bool = False
    """They have another number of workers, or of cores; their times are scaled by how many work at the same time."""

    least: bool = False
    """Far more of its workers share a core than of theirs, which costs more than scaling knows of."""


class Estimator:
    """Estimates durations from the finished runs of a sweep, of sweeps in the same folder, and of sweeps below output/.

    It reads these runs at the first estimate.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._chosen: dict[str, int] = {}  # by hydra.launcher.cores

    @functools.cached_property
    def finished(self) -> list[FinishedRun]:
        """The most recent finished runs."""
        sweeps = [*sweep_locations.sweeps_below(*sweep_locations.roots_of(self.directory)), self.directory]
        found = (
            path
            for sweep in sweeps
            for path in sweep_locations.files(sweep, f"{run_directory.RUNS}/*/{run_directory.RESULT}")
        )
        unique = {Path(os.path.realpath(path)) for path in found if regular_files.is_regular(path)}
        latest = sorted(unique, key=_read_mtime, reverse=True)[:MOST]
        return [run for path in latest if (run := _read_finished(Run(path.parent))) is not None]

    @functools.cached_property
    def _like(self) -> dict[tuple[int, str], list[FinishedRun]]:
        found: dict[tuple[int, str], list[FinishedRun]] = {}
        for run in self.finished:
            for level, key in enumerate(run.keys):
                found.setdefault((level, key), []).append(run)
        return found

    def estimate(self, config: Mapping[str, Any]) -> Estimate | None:
        """Estimate the duration of a run with this config from the most similar finished runs; None without any.

        Similar runs have at least the same model and data; among them, those with the nearest number of workers are
        used. The times of runs on another number of workers or cores are scaled. Runs that max_steps has ended early
        are not used for the times of whole epochs.
        """
        if not self.finished:
            return None
        workers = int(config["workers"])
        for level, (likeness, key) in enumerate(zip(LIKENESS, _build_keys(config), strict=True)):
            like = self._like.get((level, key), [])
            whole = [run for run in like if run.whole]
            nearest = _select_nearest(like, workers)
            for found in ([run for run in nearest if run.whole], nearest, _select_nearest(whole, workers)):
                scaled_runs = [self._scale(config, run) for run in found]
                seconds = _estimate_duration(config, [run for run, _ in scaled_runs])
                if seconds is not None:
                    scaled = any(run.workers != workers or change != 1 for run, change in scaled_runs)
                    return Estimate(
                        seconds, len(found), likeness, scaled, min(change for _, change in scaled_runs) > FAR
                    )
        return None

    def _scale(self, config: Mapping[str, Any], run: FinishedRun) -> tuple[FinishedRun, float]:
        """Return a finished run's times, scaled to a run with this config, and the ratio of their ranks per core."""
        cores = self._count_cores(config["launcher"])
        crew = Parallelism.from_config(config, cores, run.device)
        own = run.parallelism or Parallelism.from_config({**config, "workers": run.workers}, cores, run.device)
        return run.scale_to(
            crew, look_up(config, "batch.per") == "global", own
        ), crew.ranks_per_core / own.ranks_per_core

    def _count_cores(self, launcher: Mapping[str, Any]) -> int | None:
        """Return how many of this machine's cores a run can have; None if a scheduler gives it what it requests."""
        if launcher.get("cluster") != "local":
            return None
        given = json.dumps(launcher.get("cores"))
        if given not in self._chosen:
            self._chosen[given] = cores.choose_cores(launcher.get("cores"))[1]
        return self._chosen[given]

    def estimate_seconds(self, config: Mapping[str, Any]) -> float | None:
        """Return the estimated duration of a run with this config; None if no similar run has finished."""
        estimate = self.estimate(config)
        return None if estimate is None else estimate.seconds


def _estimate_duration(config: Mapping[str, Any], found: Sequence[FinishedRun]) -> float | None:
    if not found:
        return None
    overhead = statistics.median(run.overhead_s for run in found)
    whole = [run.epoch_s for run in found if run.whole]
    full = config["epochs"] * statistics.median(whole) if whole else math.inf
    cut = math.inf
    if config["max_steps"] is not None:
        cut = config["max_steps"] * statistics.median(run.step_s for run in found)
    shorter = min(full, cut)
    return overhead + shorter if math.isfinite(shorter) else None


def _select_nearest(found: Sequence[FinishedRun], workers: int) -> list[FinishedRun]:
    """Return the runs with the nearest number of workers, by ratio."""
    distances = [abs(math.log(run.workers / workers)) for run in found]
    return [run for run, distance in zip(found, distances, strict=True) if distance == min(distances)]


def _build_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    config = fill_added(config)
    same, *looser = (json.dumps([look_up(config, key) for key in keys], sort_keys=True) for keys in LIKENESS.values())
    if is_script(config):  # any key of its own may decide
        same = signature({key: value for key, value in config.items() if key not in _LENGTHS})
    return (same, *looser)


def _read_finished(run: Run) -> FinishedRun | None:
    """Return the times of a finished run; None if its files lack them or are damaged."""
    try:
        result = run.result() or {}
        config = yaml_files.read_sections(run.path(run_directory.CONFIG))
        steps, epochs, train_s = int(result["steps"]), int(result["epochs"]), float(result["time_s"])
        busy_s = train_s + float(result.get("evaluate_s") or 0.0)
        if result.get("status") != run_directory.DONE or steps < 1 or not math.isfinite(busy_s):
            return None
        device, used = "cpu" if result.get("device", "cpu") == "cpu" else "cuda", _count_used_cores(run)
        here = config["launcher"]["cluster"] == "local"
        return FinishedRun(
            _build_keys(config),
            int(config["workers"]),
            None if here and used is None else Parallelism.from_config(config, used if here else None, device),
            config["max_steps"] is None and epochs > 0,
            train_s / steps,
            busy_s / max(1, epochs),
            max(0.0, _measure_wall_s(run) - busy_s),
            device,
        )
    except Exception:  # an estimate must not end a sweep, and a stranger's files may hold anything
        return None


def _count_used_cores(run: Run) -> int | None:
    """Return on how many cores a run was trained; None if its state does not say."""
    attempts = run.state()["attempts"]
    held = attempts[-1].get("cores") if attempts else None
    return len(held) if isinstance(held, list) and held else None


def _measure_wall_s(run: Run) -> float:
    """Return the seconds from start to end of a run with a single attempt; 0 if it had several attempts."""
    attempts = run.state()["attempts"]
    if len(attempts) != 1 or not attempts[0].get("started") or not attempts[0].get("ended"):
        return 0.0
    begun, ended = (datetime.datetime.fromisoformat(attempts[0][key]) for key in ("started", "ended"))
    return (ended - begun).total_seconds()


def _read_mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
