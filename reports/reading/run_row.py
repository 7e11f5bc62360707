"""Build the row of one run in `Report.runs` from its files."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradsweep import csv_columns, run_directory, timed_steps
from reports.reading import csv_rows, machines, networks
from reports.reading.columns import METRIC, RUN_COLUMNS
from reports.reading.configs import Configs
from reports.reading.json_values import as_list, as_mapping, as_number
from reports.reading.run_files import NO_FILE, DirectoryFiles
from reports.reading.text import clean

_METRIC_NAME = re.compile(r"[A-Za-z]\w{0,39}", re.ASCII)
_WARMUP_STEPS = 10  # where the config does not say


def read_row(files: DirectoryFiles, configs: Configs) -> dict[str, Any] | None:
    """Return a row of `Report.runs` without `sweep`, `run` and `directory`; None if no config can be read.

    Its values are numbers, booleans, texts and None, except for `machines.YARDSTICK`, which is judged when all runs of
    the sweep have been read.
    """
    config = files.read_config(configs)
    if config is None:
        return None
    keys = config.keys
    state = files.read_json(run_directory.STATE) or {}
    known = state.get("signature")
    if isinstance(known, str) and not config.signature.startswith(known):
        digits = run_directory.SIGNATURE_DIGITS
        files.leave_out(
            run_directory.CONFIG, f"cut or changed: of {config.signature[:digits]}, the run is {known[:digits]}"
        )
        return None
    results = _read_results(files, state, keys.get("warmup_steps"))
    if files.stamps[run_directory.STATE] == NO_FILE and not files.exists(run_directory.CONFIG):
        files.leave_out("", "was removed while it was read")
        return None
    return {**results, **keys}


def _read_results(files: DirectoryFiles, state: Mapping[str, Any], warmup: Any) -> dict[str, Any]:
    run = run_directory.Run(files.directory)
    attempts = [attempt for attempt in as_list(state.get("attempts")) if isinstance(attempt, Mapping)]
    result = files.read_json(run_directory.RESULT)
    status = _clean_word(state.get("status")) or run_directory.PENDING
    if result and status in (run_directory.PENDING, run_directory.RUNNING):
        # The ranks finished, but their launcher was ended before it noted that.
        status = _clean_word(result.get("status")) or run_directory.DONE
    if status in run_directory.RESULTS and not files.exists(run_directory.RESULT):
        files.leave_out(run_directory.RESULT, f"missing, though the run is {status}")
    warmup = warmup if isinstance(warmup, int) and warmup >= 0 else _WARMUP_STEPS
    measured = _from_result(result, warmup) if result else _from_rows(files, warmup)
    steps, rate = (measured.get(name, math.nan) for name in ("timed_steps", "iterations_per_second"))
    if math.isfinite(steps) and math.isfinite(rate):
        measured["few_steps"] = steps < timed_steps.FEW
    hosts = as_list((result or {}).get("hosts")) or [attempt.get("host") for attempt in attempts[-1:]]
    return {
        "signature": clean(_choose_signature(run, state)),
        "status": status,
        "reason": _clean_word(state.get("reason")) or _clean_word((result or {}).get("reason")),
        "attempts": len(attempts),
        "oversubscribed": state.get("oversubscribed") is True,
        "shared_cores": state.get("shared_cores") is True,
        "hosts": ",".join(filter(None, map(_clean_word, hosts))) or None,
        **measured,
        **machines.collect_columns(_read_provenance(files, run, attempts, result)),
        **networks.collect_columns((result or {}).get("network")),
        **networks.collect_transport((result or {}).get("transport")),
        machines.YARDSTICK: (result or {}).get("yardstick"),
        **networks.collect_tuned((result or {}).get("tuned")),
        "started": _clean_word(attempts[0].get("started")) if attempts else None,
        "ended": _clean_word(attempts[-1].get("ended")) if attempts else None,
    }


def _choose_signature(run: run_directory.Run, state: Mapping[str, Any]) -> str:
    """Return the signature at the end of the run's name; if a copy has another name, the recorded signature."""
    known = state.get("signature")
    is_another = isinstance(known, str) and not known.startswith(run.signature)
    return str(known)[: run_directory.SIGNATURE_DIGITS] if is_another else run.signature


def _read_provenance(
    files: DirectoryFiles,
    run: run_directory.Run,
    attempts: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any] | None,
) -> list[Mapping[str, Any]]:
    """Return the provenance of the attempts that contribute to a run's figures."""
    numbers = run_directory.contributors(run, attempts, result)
    for attempt in attempts:
        files.exists(
            f"attempt-{attempt.get('number')}/{run_directory.PROVENANCE}"
        )  # notes the missing ones, which may appear later
    found = [files.read_json(f"attempt-{number}/{run_directory.PROVENANCE}") for number in numbers]
    return [record for record in found if record is not None]


def _from_result(result: Mapping[str, Any], warmup: int) -> dict[str, Any]:
    renamed = {"steps_done": "steps", "epochs_done": "epochs"}
    values = {column: as_number(result.get(renamed.get(column, column))) for column in _NUMERIC}
    phases = as_mapping(result.get("phases_s"))
    values |= {f"{phase}_s": as_number(phases.get(phase)) for phase in csv_columns.PHASES}
    metrics = as_mapping(result.get("metrics"))
    values |= {f"{METRIC}{name}": as_number(metrics[name]) for name in metrics if _METRIC_NAME.fullmatch(str(name))}
    parts = as_mapping(result.get("memory_parts"))
    values |= {f"{part}_memory": as_number(parts.get(part)) for part in run_directory.MEMORY_PARTS}
    values["timed_steps"] = as_number(timed_steps.steps(result, warmup))
    return values | {"step_s": 1 / values["iterations_per_second"] if values["iterations_per_second"] else math.nan}


def _from_rows(files: DirectoryFiles, warmup: int) -> dict[str, Any]:
    """Return the figures of a run that ended before it wrote its result, computed from its CSVs."""
    measured: dict[str, Any] = {}
    epochs = _read_columns(files, csv_rows.EPOCHS)
    if len(epochs["epoch"]):
        measured |= {
            "epochs_done": epochs["epoch"][-1],
            "accuracy": epochs["test_accuracy"][-1],
            "best_accuracy": np.fmax.reduce(epochs["test_accuracy"]),
            "loss": epochs["test_loss"][-1],
            "train_loss": epochs["train_loss"][-1],
            "evaluate_s": np.nansum(epochs["evaluate_s"]),
            "local_accuracy": epochs["local_test_accuracy"][-1],
            "local_accuracy_least": epochs["local_test_accuracy_least"][-1],
            "consensus_distance": epochs["consensus_distance"][-1],
        }
    steps = _read_columns(files, csv_rows.STEPS)
    if count := len(steps["step"]):
        first = warmup if count > warmup else 0
        means = {name: csv_rows.average(steps[name][first:]) for name in ("samples", "step_s", *_PHASES)}
        rate = 1 / means["step_s"] if means["step_s"] else math.nan
        measured |= {
            "steps_done": steps["step"][-1],
            "timed_steps": timed_steps.after_warmup(count, warmup),
            "time_s": steps["time_s"][-1],
            "iterations_per_second": rate,
            "samples_per_second": means["samples"] * rate,
            **{name: means[name] for name in ("step_s", *_PHASES)},
            **{name: csv_rows.average(steps[name]) for name in _SIZES},
        }
    return {name: float(value) for name, value in measured.items()}


_PHASES = tuple(f"{phase}_s" for phase in csv_columns.PHASES)
_SIZES = ("payload_bytes", "sent_bytes", "compression_ratio", "compression_error")
_NUMERIC = [column for column, dtype in RUN_COLUMNS.items() if dtype in ("Int64", "float64") and column != "attempts"]


def _read_columns(files: DirectoryFiles, table: csv_rows.CsvColumns) -> dict[str, np.ndarray]:
    files.exists(table.name)  # notes the file's stamp
    values, problem = csv_rows.read(files.directory / table.name, table)
    if problem is not None:
        files.leave_out(table.name, problem)
    return dict(zip(table.columns, values, strict=True))


def _clean_word(value: Any) -> str | None:
    return None if value is None else clean(str(value)) or None
