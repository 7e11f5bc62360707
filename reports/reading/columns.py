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

RUN_COLUMNS = {
    "sweep": "string",  # date and time: the last two parts of the sweep's path
    "run": "string",  # name of the run's directory
    "directory": "string",  # its path
    "signature": "string",
    "status": "string",  # as in state.json, or in result.json if that is newer
    "reason": "string",  # why it is not done
    "attempts": "Int64",
    "oversubscribed": "boolean",  # more workers than cores
    "shared_cores": "boolean",  # other runs may have had its cores as well: sweep.share_cores of any sweep, or SLURM
    "hosts": "string",  # separated by commas
    "cpu": "string",  # models of the machines that started its attempts (the first of several nodes), with semicolons
    "gpu": "string",  # likewise what nvidia-smi lists there, used or not: model, memory, driver
    **dict.fromkeys(
        machines.RATES, "float64"
    ),  # of one core there, before the run or its sweep (docs/guide/provenance.md)
    "network_latency_s": "float64",  # one way, of 8 bytes between its first two hosts, measured before the first step
    "network_bandwidth": "float64",  # at the same time: bit/s of the slowest host when all send to the next at once
    "network_off": "boolean",  # by more than 10 % off the network's options; NA where nothing was measured
    "network_cpu_limited": "boolean",  # the CPUs, not the network, were the limit; likewise
    "network_problems": "string",  # options that could not be emulated
    "transport": "string",  # what carried the messages of MPI: `ob1 over shm`; NA where MPI did not, or it is not known
    "slow_transport": "boolean",  # it was TCP, and a node has a faster network device; likewise
    "few_steps": "boolean",  # fewer than 30 timed steps, or the warm-up among them; NA where none was timed
    # of its throughput, which is that of its race if it raced; NA without a yardstick (earlier versions):
    "disturbed": "boolean",  # by other programs, as the yardstick says
    "disturbance": "string",  # in words
    "drift": "float64",  # yardstick in all but the slowest tenth of its steps / best of the sweep on its hosts
    "cores_of_others": "float64",  # share of its cores' time that other processes took
    "training_disturbed": "boolean",  # likewise of its training, to whose yardstick its other times belong
    "training_disturbance": "string",
    "started": "datetime64[us, UTC]",  # first attempt
    "ended": "datetime64[us, UTC]",  # last attempt
    "steps_done": "Int64",
    "timed_steps": "Int64",  # those after the warm-up; 0: the warm-up is in its times, or there was none
    "epochs_done": "Int64",
    "parameters": "Int64",
    "accuracy": "float64",  # share of the test set classified correctly, after the last epoch
    "best_accuracy": "float64",  # after the best epoch
    "loss": "float64",  # on the test set, after the last epoch
    "train_loss": "float64",
    "iterations_per_second": "float64",  # after warm-up
    "throughput_low": "float64",  # 95 % interval of iterations_per_second, over blocks of the run's own steps
    "throughput_high": "float64",
    "samples_per_second": "float64",  # after warm-up, all workers together
    "trained_iterations_per_second": "float64",  # of its training, where the throughput is that of a race
    "throughput_ratio": "float64",  # of a race: times as fast as its baseline
    "throughput_ratio_low": "float64",  # 95 % interval of the ratio
    "throughput_ratio_high": "float64",
    "race_blocks": "Int64",  # blocks of steps that were timed in the race
    "race": "string",  # name of its directory
    "race_baseline": "string",  # name of the run that the ratio is to
    "raced_by": "string",  # name of the run that was raced for this one, which costs the same
    "baseline_setting": "string",  # what that baseline was allowed: `tuned (overlap, parts of 4 MiB, ring; ...)`
    "tuned_overlap": "boolean",  # setting of its exchange that a trial found, with which its times were measured; or NA
    "tuned_part_mib": "float64",
    "tuned_allreduce": "string",
    "time_s": "float64",  # training, without evaluation
    "evaluate_s": "float64",
    "total_s": "float64",
    "payload_bytes": "float64",  # per step and worker: its message
    "sent_bytes": "float64",  # per step and worker: bytes put on the wire
    "compression_ratio": "float64",  # bytes of the fp32 gradient / payload_bytes
    "compression_error": "float64",  # ||x - Q(x)|| / ||x||, mean
    "peak_memory": "float64",  # bytes of a worker on the device it computes on; the maximum over the workers
    "peak_memory_mean": "float64",  # mean over the workers
    "end_memory": "float64",  # as peak_memory, at the end of the run
    "peak_host_memory": "float64",  # the same on the host
    "peak_gpu_memory": "float64",  # and on the GPU
    "memory_before": "float64",  # of the process on the host before the run; not in the figures above
    **{f"{part}_memory": "float64" for part in run_directory.MEMORY_PARTS},  # tensors by part, the maximum likewise
    "local_accuracy": "float64",  # of decentralised runs after the last epoch: mean over the workers' own models
    "local_accuracy_least": "float64",  # of the worst of them
    "consensus_distance": "float64",  # after the last epoch: sqrt(mean_i ||x_i - mean x||^2)
    "spectral_gap": "float64",  # of the mixing matrix
    "messages_per_step": "float64",  # that one worker sends, mean
    "step_s": "float64",  # mean after warm-up
    **{f"{phase}_s": "float64" for phase in csv_columns.PHASES},  # the same for the step's phases
}
"""The columns of `Report.runs` and their dtypes; one column for each metric of the runs' tasks, and then one for each
key of the configs follow.
"""

METRIC = "metric."
"""Prefix of the columns of metrics besides the accuracy, such as metric.mae, which are `float64`."""

ADDED: dict[str, Any] = {key: section["name"] for key, section in signature.ADDED.items()} | {
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
"""The columns of `Report.epochs`; units are in `gradsweep.csv_columns.EPOCH_COLUMNS`, and of the last in
`LOCAL_EPOCH_COLUMNS`."""

STEP_COLUMNS = {**_NAMES, **{name: "Int64" if name in _COUNTS else "float64" for name in csv_columns.STEP_COLUMNS}}
"""The columns of `Report.steps`; units are in `gradsweep.csv_columns.STEP_COLUMNS`."""

PROFILE_COLUMNS = {**STEP_COLUMNS, "samples": "float64"}
"""The columns of `Report.profile`: `step`, `epoch` and `time_s` at the end of a bin, all others are means over it."""


def is_config_key(column: str) -> bool:
    """Tell whether a column of `Report.runs` is a key of the configs."""
    return column not in RUN_COLUMNS and not column.startswith(METRIC)


def list_metrics(runs: pd.DataFrame) -> list[str]:
    """Return the columns of metrics in `Report.runs`."""
    return [str(column) for column in runs if str(column).startswith(METRIC)]


def make_run_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows of RUN_COLUMNS, metrics and config keys as a DataFrame with the dtypes of RUN_COLUMNS."""
    frame = pd.DataFrame(rows)
    frame = frame.fillna({key: value for key, value in ADDED.items() if key in frame and value is not None})
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
