"""Read run directories into DataFrames.

No damaged file of a run makes this fail: what cannot be read is listed in `Report.left_out` with the reason, and the
rest is used.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsweep import disturbance, run_directory
from gradsweep.sweeps import planned_runs
from reports.reading import incremental
from reports.reading.columns import (
    EPOCH_COLUMNS,
    PROFILE_COLUMNS,
    STEP_COLUMNS,
    convert_to_counts,
    is_config_key,
    list_metrics,
    make_run_frame,
    name_in_csv,
)
from reports.reading.find_runs import get_sweep_name, list_run_names
from reports.reading.machines import YARDSTICK, judge_row
from reports.reading.races import apply_race, read_races
from reports.reading.run_files import DirectoryFiles, LeftOut
from reports.reading.text import clean


class Report:
    """The runs of some sweeps as DataFrames.

    Rows that were read are kept in the sweep's directory for the next time (`reports.reading.cache`).

    Attributes:
        sweeps: the sweep directories.
        runs: one row per run: `RUN_COLUMNS`, then every metric of a task besides the accuracy (`metric.mae`), then
            every key of the configs in dotted form, named as it is typed (`workers`, `optimizer.lr`, `compressor` for
            `compressor.name`); a key that is called like one of `RUN_COLUMNS` is prefixed with `config.`.
        left_out: the files that could not be read so far.
    """

    def __init__(
        self, sweeps: Sequence[Path], runs: pd.DataFrame | None = None, left_out: Sequence[LeftOut] = ()
    ) -> None:
        self.sweeps = tuple(dict.fromkeys(sweeps))
        self.left_out = list(left_out)
        self._noted = set(left_out)
        if runs is None:
            runs = make_run_frame([row for sweep in self.sweeps for row in self._read_rows(sweep)])
        self.runs = runs

    @functools.cached_property
    def epochs(self) -> pd.DataFrame:
        """One row per evaluation: `columns.EPOCH_COLUMNS`: `sweep`, `run`, and those of `gradsweep.csv_columns`
        for epochs.csv; then every metric of a task besides the accuracy, named as in `runs` (`metric.mae`)."""
        metrics = {column: name_in_csv(column) for column in list_metrics(self.runs)}
        frame = self._read_series(incremental.EPOCHS.add_columns(chain(*metrics.values())), EPOCH_COLUMNS)
        values = {column: frame[name].fillna(frame[other]) for column, (name, other) in metrics.items()}
        return frame[list(EPOCH_COLUMNS)].assign(**values)

    @functools.cached_property
    def steps(self) -> pd.DataFrame:
        """One row per optimizer step: `columns.STEP_COLUMNS`, which are `sweep`, `run` and
        `gradsweep.csv_columns.STEP_COLUMNS`.

        As large as the files of all runs: 10,000 runs of 1,000 steps are 2 GB. See `profile`.
        """
        return self._read_series(incremental.STEPS, STEP_COLUMNS)

    @functools.cached_property
    def profile(self) -> pd.DataFrame:
        """`steps` summarized for plots: at most `step_profile.BINS` (100) bins of consecutive steps for each run.

        It has `columns.PROFILE_COLUMNS`: those of `steps`, but `samples` is `float64`. `step`, `epoch` and `time_s` are
        taken from the last step of a bin; all others are means over those of its steps that have a value.
        """
        return self._read_series(incremental.PROFILE, PROFILE_COLUMNS)

    def merge(self) -> Report:
        """Return this report with one run for each signature: `Report([A, B]).merge()` combines sweeps.

        Of several runs with the same signature, the one that ended last is taken, but a finished run before an
        unfinished one. The other runs are in `left_out`, with the directory of the run that is taken. `runs`, `epochs`,
        `steps` and `profile` are of the runs that are taken, in the order of the sweeps.
        """
        runs = self.runs
        if not runs["signature"].duplicated().any():
            return self
        # A run is named by the beginning of its signature, which two configs of different sweeps may share.
        same = ["signature", *filter(is_config_key, runs)]
        rank = pd.DataFrame({"done": (runs["status"] == run_directory.DONE).fillna(False), "ended": runs["ended"]})
        best = rank.sort_values(["done", "ended"], na_position="first", kind="stable").index
        group = runs.groupby(same, dropna=False, sort=False).ngroup()
        chosen = group.loc[best].drop_duplicates(keep="last")
        counting = dict(zip(chosen, runs["directory"][chosen.index], strict=True))
        merged = Report(self.sweeps, runs.loc[sorted(chosen.index)].reset_index(drop=True), self.left_out)
        for place in runs.index.difference(chosen.index):
            reason = f"the same config as {counting[group[place]]}, which counts"
            merged._leave_out(LeftOut(Path(runs["directory"][place]), reason))
        return merged

    merged = merge  # the name in earlier versions

    def read_info(self, sweep: Path) -> dict[str, Any]:
        """Return the content of a sweep's sweep.yaml; empty without the file."""
        files = DirectoryFiles(sweep)
        info = files.read_yaml(run_directory.SWEEP)
        for entry in files.left_out:
            self._leave_out(entry)
        return info

    def _read_rows(self, sweep: Path) -> list[Mapping[str, Any]]:
        names, left_out = list_run_names(sweep)
        for entry in left_out:
            self._leave_out(entry)
        found = incremental.read_run_rows(sweep, names, self._leave_out)
        there = {*names, *(row["signature"] for row in found if row is not None)}
        if flaw := planned_runs.flaw(sweep):
            self._leave_out(LeftOut(sweep / planned_runs.FILE, flaw))
        for missing in planned_runs.missing(sweep, there):
            self._leave_out(LeftOut(sweep / run_directory.RUNS / missing.name, f"missing: {planned_runs.GONE}"))
        place, name = os.fspath(sweep / run_directory.RUNS), get_sweep_name(sweep)
        raced = read_races(sweep, self._leave_out)
        own = [row.get(YARDSTICK) for row in found if row is not None]
        best = disturbance.find_best([*own, *raced.yardsticks])
        judged = {run: judge_row(figures, best) for run, figures in raced.by_run.items()}
        return [
            {
                **{"sweep": name, "run": clean(run), "directory": os.path.join(place, run)},
                **apply_race(judge_row(row, best), judged.get(run)),
            }
            for run, row in zip(names, found, strict=True)
            if row is not None
        ]

    def _read_series(self, series: incremental.CsvSeries, columns: Mapping[str, str]) -> pd.DataFrame:
        by_sweep: dict[str, list[int]] = {}
        for place, directory in enumerate(self.runs["directory"]):
            by_sweep.setdefault(os.path.dirname(os.path.dirname(directory)), []).append(place)
        parts = []
        for sweep, of_sweep in by_sweep.items():
            runs = self.runs.iloc[of_sweep]
            names = [os.path.basename(directory) for directory in runs["directory"]]
            settled = {
                name for name, status in zip(names, runs["status"], strict=True) if status != run_directory.RUNNING
            }
            found, values = incremental.read_series(series, Path(sweep), names, settled, self._leave_out)
            parts.append([np.array(of_sweep)[found], *values])
            last = np.zeros(len(runs))
            np.maximum.at(last, found, values[series.table.columns.index(series.table.key)])
            self._note_lost_rows(series, runs, last)
        nothing = [np.empty(0, int), *([np.empty(0)] * len(series.table.columns))]
        places, *values = (np.concatenate(each) for each in zip(*(parts or [nothing]), strict=True))
        frame = pd.DataFrame(dict(zip(series.table.columns, values, strict=True)))
        for position, column in enumerate(("sweep", "run")):
            frame.insert(position, column, self.runs[column].astype("category").array.take(places))
        return frame.assign(
            **{name: convert_to_counts(frame[name]) for name, dtype in columns.items() if dtype == "Int64"}
        )

    def _note_lost_rows(self, series: incremental.CsvSeries, runs: pd.DataFrame, last: np.ndarray) -> None:
        """Record which CSV files end before the last step or epoch of their run's result, unless already recorded.

        Args:
            series: the CSV of a run.
            runs: rows of `self.runs`.
            last: the last step or epoch in each run's file; 0 if it has none.
        """
        noted = {entry.path for entry in self.left_out}
        key = series.table.key
        counts = runs[f"{key}s_done"].fillna(0)
        for directory, status, count, reached in zip(runs["directory"], runs["status"], counts, last, strict=True):
            path = Path(directory) / series.table.name
            if reached < count and path not in noted and (not reached or status == run_directory.DONE):
                rows = f"no rows after {key} {reached:.0f}" if reached else "no rows"
                self._leave_out(LeftOut(path, f"{rows}, though {key} {count} was reached"))

    def _leave_out(self, entry: LeftOut) -> None:
        if entry not in self._noted:
            self._noted.add(entry)
            self.left_out.append(entry)
