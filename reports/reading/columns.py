"""The columns of the DataFrames of a `Report`, and their dtypes.

Counts are `Int64`, flags `boolean`, texts `string`, instants `datetime64[us, UTC]`, all other numbers `float64`; what
was not measured is NA. `sweep` and `run` say which run a row belongs to; in `epochs`, `steps` and `profile` they are
categories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from gradsweep import csv_columns, run_directory, signature
from reports.reading import machines

_RUNS: dict[str, tuple[str, str]] = {
    "sweep": ("string", "date and time of the sweep: the last two parts of its path"),
    "run": ("string", "name of the run's directory"),
    "directory": ("string", "path of this directory"),
    "signature": (
        "string",
        "hash of the config without the keys that change no number; it ends the name of the directory",
    ),
    "status": (
        "string",
        "[status](exit-statuses.md#statuses-of-a-run), of state.json or, if newer, of result.json",
    ),
    "reason": ("string", "why the run is not done"),
    "attempts": ("Int64", "number of attempts"),
    "oversubscribed": ("boolean", "the run had more workers than cores"),
    "shared_cores": ("boolean", "other runs may have used the same cores (`sweep.share_cores`, or SLURM)"),
    "hosts": ("string", "hosts of the run, separated by commas"),
    "cpu": ("string", "CPU models of the machines that started its attempts, separated by semicolons"),
    "gpu": ("string", "GPUs of these machines, used or not: model, memory, driver"),
    **{
        rate: ("float64", f"{meaning} of one core of the machine, measured before the run")
        for rate, meaning in machines.RATES.items()
    },
    "network_latency_s": (
        "float64",
        "time of a message of 8 bytes one way, measured before the first step ([network](network-measurements.md))",
    ),
    "network_bandwidth": (
        "float64",
        "bit/s of the slowest host when all hosts send to the next one at once, measured likewise",
    ),
    "network_off": ("boolean", "a measured figure differs by more than 10 % from the options of the emulated network"),
    "network_cpu_limited": ("boolean", "the CPUs limited the emulated network"),
    "network_problems": ("string", "properties of the network that could not be emulated"),
    "transport": ("string", "[transport](transports.md) of MPI's messages, such as `ob1 over shm`"),
    "slow_transport": ("boolean", "the transport was TCP, but a node has a faster network device"),
    "few_steps": ("boolean", "the run has fewer than 30 timed steps, or its throughput includes the warm-up"),
    "disturbed": (
        "boolean",
        "other programs disturbed the throughput and phases, by the yardstick of the run's race, or of its training",
    ),
    "disturbance": ("string", "how they were disturbed, in words"),
    "drift": (
        "float64",
        "yardstick time that nine tenths of the steps did not exceed, divided by the sweep's best on the hosts",
    ),
    "cores_of_others": ("float64", "fraction of the time of the run's cores that other processes took"),
    "training_disturbed": (
        "boolean",
        "other programs disturbed the training, and so its times; also for a run that raced",
    ),
    "training_disturbance": ("string", "how it was disturbed, in words"),
    "ratio_disturbed": (
        "boolean",
        "other programs disturbed the heat of the race in which `throughput_ratio` was measured",
    ),
    "ratio_cores_of_others": ("float64", "the same fraction as `cores_of_others`, in this heat"),
    "started": ("datetime64[us, UTC]", "start of the first attempt"),
    "ended": ("datetime64[us, UTC]", "end of the last attempt"),
    "steps_done": ("Int64", "number of finished steps"),
    "timed_steps": (
        "Int64",
        "number of steps after the warm-up; 0 if the throughput includes the warm-up, or there was no step",
    ),
    "epochs_done": ("Int64", "number of finished epochs"),
    "parameters": ("Int64", "number of parameters of the model"),
    "accuracy": ("float64", "fraction of the test set that is classified correctly after the last epoch, 0 to 1"),
    "best_accuracy": ("float64", "the same after the best epoch"),
    "loss": ("float64", "loss on the test set after the last epoch"),
    "least_loss": (
        "float64",
        "loss on the test set of a model that knows how this text was generated; unknown for other data",
    ),
    "train_loss": ("float64", "training loss of the last epoch"),
    "iterations_per_second": ("float64", "after the warm-up, or in the run's [race](../guide/races.md)"),
    "throughput_low": (
        "float64",
        "lower end of the 95 % interval of `iterations_per_second`, over blocks of steps or the rounds of the race",
    ),
    "throughput_high": ("float64", "upper end of this interval"),
    "samples_per_second": ("float64", "after the warm-up or in the race, of all workers together; for a text, tokens"),
    "trained_iterations_per_second": ("float64", "throughput of the training of a run that raced"),
    "throughput_ratio": ("float64", "how many times as fast as the baseline of the race"),
    "throughput_ratio_low": ("float64", "lower end of the 95 % interval of this ratio"),
    "throughput_ratio_high": ("float64", "upper end of this interval"),
    "race_blocks": ("Int64", "number of blocks of steps that the race timed"),
    "race": ("string", "name of the race's directory"),
    "race_baseline": ("string", "name of the run that is the baseline of the race"),
    "raced_by": ("string", "name of the run that raced in place of this one, because it costs the same"),
    "baseline_setting": (
        "string",
        "[setting](../guide/races.md#the-strongest-baseline) of the race's baseline: tuned, or as configured",
    ),
    "tuned_overlap": (
        "boolean",
        "overlap of the [exchange](../guide/exchanges.md#tuned) that a trial found, with which the times were measured",
    ),
    "tuned_part_mib": ("float64", "likewise the size of the parts in MiB"),
    "tuned_allreduce": ("string", "likewise the algorithm of sums"),
    "time_s": ("float64", "time of the training, without evaluation"),
    "evaluate_s": ("float64", "time of the evaluations"),
    "total_s": ("float64", "time of training, evaluations and start"),
    "payload_bytes": ("float64", "bytes of a worker's message in a step"),
    "sent_bytes": ("float64", "bytes that a worker sent in a step"),
    "compression_ratio": ("float64", "bytes of the fp32 gradient / `payload_bytes`"),
    "compression_error": (
        "float64",
        "norm of x - Q(x) / norm of x, where Q(x) is the decoded x; mean of the measured steps",
    ),
    "peak_memory": (
        "float64",
        "peak [memory](../guide/memory.md) of a worker in bytes, on the device that trains; maximum over the workers",
    ),
    "peak_memory_mean": ("float64", "mean of this peak over the workers"),
    "end_memory": ("float64", "memory of a worker at the end of the run; maximum over the workers"),
    "peak_host_memory": ("float64", "the peak on the host"),
    "peak_gpu_memory": ("float64", "the peak on the GPU"),
    "memory_before": (
        "float64",
        "memory of the process on the host before the run; the other figures do not contain it",
    ),
    **{
        f"{part}_memory": ("float64", f"bytes of the tensors of the part `{part}`; maximum over the workers")
        for part in run_directory.MEMORY_PARTS
    },
    "local_accuracy": ("float64", "for a decentralised run: mean over the workers' own models, after the last epoch"),
    "local_accuracy_least": ("float64", "accuracy of the worst of these models"),
    "consensus_distance": (
        "float64",
        "distance between the models after the last epoch: sqrt(mean_i norm(x_i - mean x)^2)",
    ),
    "spectral_gap": ("float64", "spectral gap of the [topology](../guide/topologies.md)"),
    "messages_per_step": ("float64", "messages that one worker sends in a step, mean"),
    "step_s": ("float64", "mean time of a step after the warm-up, or in the race"),
    **{f"{phase}_s": ("float64", f"the same of its phase `{phase}`") for phase in csv_columns.PHASES},
}
RUN_COLUMNS = {name: dtype for name, (dtype, _) in _RUNS.items()}
"""The columns of `Report.runs` and their dtypes; one column for each metric of the runs' tasks, and then one for each
key of the configs follow.
"""
RUN_MEANINGS = {name: meaning for name, (_, meaning) in _RUNS.items()}
"""The meanings of these columns; docs/reference/columns.md is generated from here."""

METRIC = "metric."
"""Prefix of the columns of metrics besides the accuracy, such as metric.mae, which are `float64`."""

DERIVED = ("label", "cell", "repeat", "central", "value", "speedup", "efficiency", "sent_total", "at", "unfair")
"""Columns that tables and plots add to `Report.runs`."""

ADDED: dict[str, Any] = {key: section["name"] if section else None for key, section in signature.ADDED.items()} | {
    f"{section}.{key}": value
    for options in (signature.DECIDING, signature.ADDED_OPTIONS)
    for section, keys in options.items()
    for key, value in keys.items()
}
"""Keys that the runs of earlier versions lack, and their values for these runs, beside runs that have such a key."""

_NAMES = {"sweep": "category", "run": "category"}
_COUNTS = ("step", "epoch", "samples")

EPOCH_COLUMNS = {
    **_NAMES,
    **{name: "Int64" if name in _COUNTS else "float64" for name in csv_columns.EPOCH_COLUMNS},
    **dict.fromkeys(csv_columns.LOCAL_EPOCH_COLUMNS, "float64"),  # NaN where a run is not decentralised
}
"""The columns of `Report.epochs`, whose meanings are in `gradsweep.csv_columns`."""

STEP_COLUMNS = {**_NAMES, **{name: "Int64" if name in _COUNTS else "float64" for name in csv_columns.STEP_COLUMNS}}
"""The columns of `Report.steps`, likewise."""

PROFILE_COLUMNS = {**STEP_COLUMNS, "samples": "float64"}
"""The columns of `Report.profile`: `step`, `epoch` and `time_s` at the end of a bin, all others are means over it."""


def is_config_key(column: str) -> bool:
    """Tell whether a column of `Report.runs` is a key of the configs."""
    return column not in RUN_COLUMNS and not column.startswith(METRIC)


def name_config_key(key: str) -> str:
    """Return the column of a key of the configs: the key, behind `config.` if it is the name of another column."""
    return f"config.{key}" if key in (*RUN_COLUMNS, *DERIVED) or key.startswith(METRIC) else key


def list_metrics(runs: pd.DataFrame) -> list[str]:
    """Return the columns of metrics in `Report.runs`."""
    return [str(column) for column in runs if str(column).startswith(METRIC)]


def name_in_csv(column: str) -> tuple[str, str]:
    """Return the two names that a metric, such as metric.mae, may have in epochs.csv: the second if a script wrote it.

    A metric that is called like another column of epochs.csv has the first name only.
    """
    name = column.removeprefix(METRIC)
    ours = f"{csv_columns.TEST}{name}"
    return ours, ours if name in EPOCH_COLUMNS else name


def make_run_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows of RUN_COLUMNS, metrics and config keys as a DataFrame with the dtypes of RUN_COLUMNS."""
    frame = pd.DataFrame(rows)
    frame = frame.fillna({key: value for key, value in ADDED.items() if key in frame and value not in (None, [])})
    metrics = list_metrics(frame)
    keys = frame.columns.difference([*RUN_COLUMNS, *metrics], sort=False)
    frame = frame.reindex(columns=[*RUN_COLUMNS, *metrics, *keys])
    columns = {}
    for column, dtype in RUN_COLUMNS.items():
        values = frame[column]
        if dtype.startswith("datetime"):
            values = pd.to_datetime(values, utc=True, errors="coerce", format="ISO8601")
        elif dtype == "Int64":
            values = convert_to_counts(values.astype("float64"))
        columns[column] = values.astype(dtype)
    columns |= {metric: frame[metric].astype("float64") for metric in metrics}
    # Integers stay integers where other runs lack the key.
    return pd.concat([pd.DataFrame(columns, index=frame.index), frame[keys].convert_dtypes()], axis=1)


def convert_to_counts(values: pd.Series) -> pd.Series:
    """Return numbers as integers; NA for values that are not whole numbers."""
    return values.where((values % 1 == 0) & (values.abs() < 2**53)).astype("Int64")
