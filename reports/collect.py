"""Run directories as DataFrames.

Nothing that a run left behind makes this fail: what cannot be read is listed in `Report.left_out`
with the reason, and the rest is used.

Dtypes: counts are `Int64`, flags `boolean`, texts `string`, instants `datetime64[us, UTC]`, all
other numbers `float64`; what was not measured is NA.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from reports import machines, profiles, rows
from reports.text import clean
from sweep import run as rundir

RUN_COLUMNS = {
    "sweep": "string",  # date and time: the last two parts of the sweep's path
    "run": "string",  # name of the run's directory
    "directory": "string",  # its path
    "signature": "string",
    "status": "string",  # as in state.json; what result.json says where that has not caught up
    "reason": "string",  # why it is not done
    "attempts": "Int64",
    "oversubscribed": "boolean",  # more workers than cores
    "shared_cores": "boolean",  # other runs may have had its cores as well: sweep.share_cores of any sweep, or SLURM
    "hosts": "string",  # separated by commas
    "cpu": "string",  # models of the machines that started its attempts (of several nodes the first), by semicolons
    "gpu": "string",  # likewise what nvidia-smi lists there, used or not: model, memory, driver
    **dict.fromkeys(machines.RATES, "float64"),  # of one core there, before the run or its sweep (docs/provenance.md)
    "started": "datetime64[us, UTC]",  # first attempt
    "ended": "datetime64[us, UTC]",  # last attempt
    "steps_done": "Int64",
    "epochs_done": "Int64",
    "parameters": "Int64",
    "accuracy": "float64",  # share of the test set classified correctly, after the last epoch
    "best_accuracy": "float64",  # after the best epoch
    "loss": "float64",  # on the test set, after the last epoch
    "train_loss": "float64",
    "iterations_per_second": "float64",  # after warm-up
    "samples_per_second": "float64",  # after warm-up, all workers together
    "time_s": "float64",  # training, evaluation is not in it
    "evaluate_s": "float64",
    "total_s": "float64",
    "payload_bytes": "float64",  # per step and worker: its message
    "sent_bytes": "float64",  # per step and worker: what it put on the wire
    "compression_ratio": "float64",  # bytes of the fp32 gradient / payload_bytes
    "compression_error": "float64",  # ||x - Q(x)|| / ||x||, mean
    "step_s": "float64",  # mean after warm-up
    **{f"{phase}_s": "float64" for phase in rundir.PHASES},  # the same, of the step's phases
}
"""The columns of `Report.runs` and their dtypes; one column for each key of the configs follows."""

_COUNTS = ("step", "epoch", "samples")
_AT_ONCE = 64  # runs whose steps are in memory together

_WARMUP_STEPS = 10  # where the config does not say
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where libyaml is there


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Something that a report does not contain, and why."""

    path: Path
    reason: str


class Report:
    """What the runs of some sweeps left behind.

    Attributes:
        sweeps: the sweep directories.
        runs: one row per run: `RUN_COLUMNS`, then every key of the configs in dotted form, named as
            it is typed (`workers`, `optimizer.lr`, `compressor` for `compressor.name`); a key that
            is called like one of `RUN_COLUMNS` is prefixed with `config.`.
        left_out: what could not be read so far.
    """

    def __init__(self, sweeps: Sequence[Path]) -> None:
        self.sweeps = tuple(sweeps)
        self.left_out: list[LeftOut] = []
        self.runs = _frame([row for sweep in self.sweeps for row in self._rows(sweep)])

    @functools.cached_property
    def epochs(self) -> pd.DataFrame:
        """One row per epoch: `sweep`, `run` (categories) and `sweep.run.EPOCH_COLUMNS`."""
        return self._series(rundir.EPOCHS, rundir.EPOCH_COLUMNS, "epoch")

    @functools.cached_property
    def steps(self) -> pd.DataFrame:
        """One row per optimizer step: `sweep`, `run` (categories) and `sweep.run.STEP_COLUMNS`."""
        return self._series(rundir.STEPS, rundir.STEP_COLUMNS, "step")

    @functools.cached_property
    def profile(self) -> pd.DataFrame:
        """`steps` in few rows, for plots: each run's in at most `profiles.BINS` (100) bins of consecutive steps.

        Columns as in `steps`, but all numbers `float64` except `step` and `epoch` (`Int64`): `step`, `epoch` and
        `time_s` are those at the end of a bin, all else is the mean over its steps, of those that have a value.
        """
        parts = []
        columns = [rows.PLACE, *rundir.STEP_COLUMNS]
        for start in range(0, len(self.runs), _AT_ONCE):
            paths = [Path(each) / rundir.STEPS for each in self.runs["directory"][start : start + _AT_ONCE]]
            read = rows.read(paths, rundir.STEP_COLUMNS, "step", self._leave_out)[columns].astype("float64")
            parts.append(
                profiles.profile(read, rows.PLACE).assign(
                    **{rows.PLACE: lambda part, start=start: part[rows.PLACE] + start}
                )
            )
        frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns, dtype="float64")
        return self._named(frame, ("step", "epoch"))

    def merged(self) -> Report:
        """This report with one run of each signature: `Report([A, B]).merged()` puts sweeps together.

        Of runs with one signature, of one sweep or of several, the one counts that is done, of several that are done
        the one that ended last; where none is done, the one that ended last. The others are in `left_out`, with the
        directory of the one that counts. `runs`, `epochs`, `steps` and `profile` are of the runs that count, in the
        order of the sweeps.
        """
        runs = self.runs
        rank = pd.DataFrame({"done": runs["status"] == rundir.DONE, "ended": runs["ended"]}).fillna({"done": False})
        best = rank.sort_values(["done", "ended"], na_position="first", kind="stable").index
        chosen = runs.loc[best].drop_duplicates("signature", keep="last")
        counts = chosen.set_index("signature")["directory"]
        merged = Report(())
        merged.sweeps, merged.left_out = self.sweeps, list(self.left_out)
        merged.runs = runs.loc[sorted(chosen.index)].reset_index(drop=True)
        for directory, signature in runs.drop(chosen.index)[["directory", "signature"]].itertuples(index=False):
            merged._leave_out(Path(directory), f"the same config as {counts[signature]}, which counts")
        return merged

    def info(self, sweep: Path) -> dict[str, Any]:
        """The content of a sweep's sweep.yaml; empty where there is none."""
        path = sweep / rundir.SWEEP
        return (self._yaml(path) or {}) if path.exists() else {}

    def _rows(self, sweep: Path) -> Iterator[dict[str, Any]]:
        for directory in _run_directories(sweep):
            try:
                os.fspath(directory).encode()
                keys = _keys(self._yaml(directory / rundir.CONFIG) or {})
            except UnicodeError:
                self._leave_out(directory, "its name is not UTF-8")
            except RecursionError:
                self._leave_out(directory / rundir.CONFIG, "contains itself")
            else:
                if keys:
                    yield {**self._results(sweep, rundir.Run(directory), keys.get("warmup_steps")), **keys}

    def _results(self, sweep: Path, run: rundir.Run, warmup: Any) -> dict[str, Any]:
        state = self._json(run.path(rundir.STATE)) or {}
        attempts = [attempt for attempt in _sequence(state.get("attempts")) if isinstance(attempt, Mapping)]
        result = self._json(run.path(rundir.RESULT))
        status = _word(state.get("status")) or rundir.PENDING
        if result and status in (rundir.PENDING, rundir.RUNNING):
            # The ranks finished, but who watches them was ended before noting it.
            status = _word(result.get("status")) or rundir.DONE
        if status in rundir.RESULTS and not run.path(rundir.RESULT).exists():
            self._leave_out(run.path(rundir.RESULT), f"missing, though the run is {status}")
        measured = _from_result(result) if result else self._from_rows(run, warmup)
        hosts = _sequence((result or {}).get("hosts")) or [attempt.get("host") for attempt in attempts[-1:]]
        return {
            "sweep": sweep_name(sweep),
            "run": clean(run.name),
            "directory": str(run.directory),
            "signature": clean(run.signature),
            "status": status,
            "reason": _word(state.get("reason")) or _word((result or {}).get("reason")),
            "attempts": len(attempts),
            "oversubscribed": state.get("oversubscribed") is True,
            "shared_cores": state.get("shared_cores") is True,
            "hosts": ",".join(filter(None, map(_word, hosts))) or None,
            **measured,
            **machines.columns_of(self._records(run, attempts, result)),
            "started": _word(attempts[0].get("started")) if attempts else None,
            "ended": _word(attempts[-1].get("ended")) if attempts else None,
        }

    def _records(
        self, run: rundir.Run, attempts: Sequence[Mapping[str, Any]], result: Mapping[str, Any] | None
    ) -> list[Mapping[str, Any]]:
        """Where a run was made, by the attempts that its figures come from."""
        numbers = rundir.contributors(run, attempts, result)
        found = [self._json(run.attempt(number) / rundir.PROVENANCE) for number in numbers]
        return [record for record in found if record is not None]

    def _from_rows(self, run: rundir.Run, warmup: Any) -> dict[str, Any]:
        """What is known of a run that was ended before it could write its result."""
        measured: dict[str, Any] = {}
        epochs = rows.read([run.path(rundir.EPOCHS)], rundir.EPOCH_COLUMNS, "epoch", self._leave_out)
        if len(epochs):
            last = epochs.iloc[-1]
            measured |= {
                "epochs_done": last["epoch"],
                "accuracy": last["test_accuracy"],
                "best_accuracy": epochs["test_accuracy"].max(),
                "loss": last["test_loss"],
                "train_loss": last["train_loss"],
                "evaluate_s": epochs["evaluate_s"].sum(),
            }
        steps = rows.read([run.path(rundir.STEPS)], rundir.STEP_COLUMNS, "step", self._leave_out)
        if len(steps):
            warmup = warmup if isinstance(warmup, int) else _WARMUP_STEPS
            means = steps.iloc[warmup if len(steps) > warmup else 0 :].mean()
            timed = [f"{phase}_s" for phase in rundir.PHASES]
            sizes = ["payload_bytes", "sent_bytes", "compression_ratio", "compression_error"]
            measured |= {
                "steps_done": steps["step"].iloc[-1],
                "time_s": steps["time_s"].iloc[-1],
                "iterations_per_second": 1 / means["step_s"],
                "samples_per_second": means["samples"] / means["step_s"],
                **means[["step_s", *timed]],
                **steps[sizes].mean(),
            }
        return measured

    def _series(self, name: str, columns: Sequence[str], key: str) -> pd.DataFrame:
        paths = [Path(directory) / name for directory in self.runs["directory"]]
        frame = rows.read(paths, columns, key, self._leave_out)
        return self._named(frame, [column for column in _COUNTS if column in columns])

    def _named(self, frame: pd.DataFrame, counts: Sequence[str]) -> pd.DataFrame:
        """With the names of sweep and run in place of the run's position, and counts as such."""
        places = frame.pop(rows.PLACE).astype("int64")
        for position, column in enumerate(("sweep", "run")):
            names = self.runs[column].astype("category")
            frame.insert(position, column, names.take(places.to_numpy()).reset_index(drop=True))
        return frame.assign(**{column: _whole(frame[column]) for column in counts})

    def _json(self, path: Path) -> dict[str, Any] | None:
        try:
            value = rundir.read_json(path)
            if value is None and path.exists():
                self._leave_out(path, "not a JSON object")
        except OSError as error:
            self._leave_out(path, error)
            return None
        return self._known(path, value)

    def _yaml(self, path: Path) -> dict[str, Any] | None:
        try:
            value = yaml.load(path.read_bytes(), Loader=_LOADER)
        except FileNotFoundError:
            self._leave_out(path.parent, f"no {path.name}")
        except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
            self._leave_out(path, error)
        else:
            if isinstance(value, dict) and value:
                return self._known(path, value)
            self._leave_out(path, "not a YAML mapping, or an empty one")
        return None

    def _known(self, path: Path, value: dict[str, Any] | None) -> dict[str, Any] | None:
        version = (value or {}).get("format")
        if isinstance(version, int) and version > rundir.FORMAT:
            self._leave_out(path, f"format {version} is newer than this program, which knows {rundir.FORMAT}")
            return None
        return value

    def _leave_out(self, path: Path, reason: Exception | str) -> None:
        entry = LeftOut(path, reason if isinstance(reason, str) else _reason(reason))
        if entry not in self.left_out:
            self.left_out.append(entry)


def load(*paths: str | os.PathLike[str]) -> Report:
    """See `reports.load`."""
    return Report(sweeps(*map(Path, paths)))


def sweeps(*paths: Path) -> list[Path]:
    """The sweep directories at these paths or up to two levels below, each once, sorted by name.

    Raises:
        sweep.run.UsageError: there is none at or below one of the paths.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        below = (directory for pattern in ("*", "*/*") for directory in sorted(path.glob(pattern)))
        here = [path] if is_sweep(path) else [directory for directory in below if is_sweep(directory)]
        if not here:
            raise rundir.UsageError(
                f"{path}: no runs here; expected a sweep's directory (with {rundir.RUNS}/*/{rundir.CONFIG}), "
                "a date's (output/<date>) or the root of both (output)"
            )
        found |= {directory.resolve(): directory for directory in here}
    return list(found.values())


def is_sweep(directory: Path) -> bool:
    """Whether there is at least one run, readable or not, in this directory."""
    return bool(_run_directories(directory))


def sweep_name(directory: Path) -> str:
    """How a sweep is called: by its date and time (and name), `2026-11-20/14-03-22`."""
    return clean("/".join(directory.resolve().parts[-2:]).lstrip("/"))


def _run_directories(sweep: Path) -> list[Path]:
    try:
        entries = sorted((sweep / rundir.RUNS).iterdir())
        return [path for path in entries if path.is_dir() and not path.name.startswith(".")]
    except OSError:
        return []


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows)
    keys = frame.columns.difference(list(RUN_COLUMNS), sort=False)
    frame = frame.reindex(columns=[*RUN_COLUMNS, *keys])
    for column, dtype in RUN_COLUMNS.items():
        values = frame[column]
        if dtype.startswith("datetime"):
            values = pd.to_datetime(values, utc=True, errors="coerce", format="ISO8601")
        elif dtype == "Int64":
            values = _whole(values.astype("float64"))
        frame[column] = values.astype(dtype)
    # Whole numbers stay whole where other runs lack the key.
    frame[keys] = frame[keys].convert_dtypes()
    return frame


def _whole(values: pd.Series) -> pd.Series:
    """Numbers as counts; NA where a number is none."""
    return values.where((values % 1 == 0) & (values.abs() < 2**53)).astype("Int64")


def _keys(config: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """A nested config as dotted keys; a group goes by its name: `{model: {name: m, depth: 3}}`: model, model.depth."""
    keys: dict[str, Any] = {}
    for name, value in config.items():
        key = prefix[:-1] if prefix and name == "name" else f"{prefix}{clean(str(name))}"
        if key in rundir.PLACES:
            continue
        if isinstance(value, Mapping) and value:
            keys |= _keys(value, f"{key}.")
        else:
            key = f"config.{key}" if key in RUN_COLUMNS else key
            is_plain = isinstance(value, (bool, float, type(None))) or (isinstance(value, int) and abs(value) < 2**63)
            keys[key] = value if is_plain else clean(str(value))
    return keys


def _from_result(result: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {"steps_done": "steps", "epochs_done": "epochs"}
    numeric = [
        column for column, dtype in RUN_COLUMNS.items() if dtype in ("Int64", "float64") and column != "attempts"
    ]
    phases = result.get("phases_s")
    phases = phases if isinstance(phases, Mapping) else {}
    values = {column: _number(result.get(renamed.get(column, column))) for column in numeric}
    values |= {f"{phase}_s": _number(phases.get(phase)) for phase in rundir.PHASES}
    return values | {"step_s": 1 / values["iterations_per_second"] if values["iterations_per_second"] else math.nan}


def _number(value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if is_number else math.nan


def _word(value: Any) -> str | None:
    return None if value is None else clean(str(value)) or None


def _sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _reason(error: Exception) -> str:
    """One line, without the path, which is told beside it."""
    text = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    return clean(" ".join(text.split()))
