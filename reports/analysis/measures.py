"""Define the measures of a run that tables show, with their names and units."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pandas as pd

from gradsweep import csv_columns, run_directory
from gradsweep.text import plural
from reports.analysis.grid import SEED, Grid, is_method_key
from reports.analysis.table import (
    MARKS,
    NO_BASELINE,
    NOT_EVALUATED,
    NOT_MEASURED,
    NOT_REACHED,
    ONE_MODEL,
    flag_quotients,
)
from reports.analysis.targets import (
    RUN,
    compare_at_equal,
    find_cost_of_target,
    get_last_values,
    make_run_index,
    select_runs,
)
from reports.reading.columns import METRIC, RUN_COLUMNS, list_metrics
from reports.reading.machines import RATES
from reports.reading.text import choose_byte_unit, format_number, format_setting, format_settings, join_words

THROUGHPUT_TOPIC, ACCURACY_TOPIC, TARGET_TOPIC = "Throughput", "Accuracy", "Cost of an accuracy"
COMMUNICATION_TOPIC, STEP_TOPIC, MEMORY_TOPIC, RUNS_TOPIC = "Communication", "Time of a step", "Memory", "Runs"
EQUAL_TIME = "accuracy_equal_time"
"""The measure of accuracy that depends on times."""
TOPICS = (THROUGHPUT_TOPIC, ACCURACY_TOPIC, TARGET_TOPIC, COMMUNICATION_TOPIC, STEP_TOPIC, MEMORY_TOPIC, RUNS_TOPIC)


@dataclasses.dataclass(frozen=True)
class Measure:
    """A quantity that every run may have, with its format in tables.

    `column` names the column of `Report.runs` or `derive_measures` with the values, and `unit` their unit. Tables for
    people show the values times `scale`, in the unit `shown`. `absent` is the word shown for a finished run without a
    value.
    """

    name: str
    title: str
    column: str
    unit: str
    scale: float = 1.0
    shown: str = ""
    digits: int = 3
    topic: str = ""
    lower_is_better: bool = False
    is_tested: bool = True
    absent: str = NOT_MEASURED

    @property
    def is_time(self) -> bool:
        """Whether the measure depends on how busy the machine was: it is a time, a throughput or a share of a time."""
        return self.topic in (THROUGHPUT_TOPIC, STEP_TOPIC) or self.unit in ("s", "it/s", "samples/s", "tokens/s")

    @property
    def marks(self) -> Sequence[str]:
        """The columns in `MARKS` that concern the measure."""
        if not self.is_time and self.name != EQUAL_TIME:
            return ()
        return [mark for mark in MARKS if mark != "few_steps" or self.topic in (THROUGHPUT_TOPIC, STEP_TOPIC)]

    @property
    def is_of_training(self) -> bool:
        """Whether it is the training's also for runs that raced."""
        return self.column not in RACED

    def choose_unit(self, values: pd.Series) -> Measure:
        """Return the measure with the unit in which a table shows these values: bytes in the unit that suits the
        largest.
        """
        if self.unit != "B":
            return self
        size, unit = choose_byte_unit(values.max())
        return dataclasses.replace(self, scale=1 / size, shown=unit)

    def name_samples(self, runs: pd.DataFrame) -> Measure:
        """Return the measure with the unit tokens/s if it counts samples and the samples of these runs are tokens."""
        return dataclasses.replace(self, unit=f"{name_samples(runs)}/s") if self.unit == "samples/s" else self

    def format(self, value: float) -> str:
        return format_number(value * self.scale, self.digits)


def name_samples(runs: pd.DataFrame) -> str:
    """Return `tokens` if all runs are trained on texts, whose samples are tokens, else `samples`."""
    is_of_texts = len(runs) and _TEXT_KEY in runs and runs[_TEXT_KEY].notna().all()
    return "tokens" if is_of_texts else "samples"


def add_tokens(epochs: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return evaluations with the `tokens` of all workers until then, if all runs are trained on texts.

    All steps of a run on texts have the same number of tokens.
    """
    if name_samples(runs) != "tokens":
        return epochs
    per_step = (runs["samples_per_second"] / runs["iterations_per_second"]).set_axis(runs.set_index(RUN).index)
    names = pd.MultiIndex.from_frame(epochs[RUN])
    return epochs.assign(
        tokens=epochs["step"].to_numpy("float64", na_value=np.nan) * per_step.reindex(names).to_numpy()
    )


def find_least_loss(runs: pd.DataFrame) -> float | None:
    """Return the least loss that a model can have on the test set, if it is known and the same for all runs."""
    least = runs["least_loss"]
    return float(least.iloc[0]) if least.notna().all() and least.nunique() == 1 else None


def _define_accuracy(name: str, title: str, column: str, absent: str = NOT_MEASURED) -> Measure:
    return Measure(name, title, column, "fraction", 100, "%", 4, ACCURACY_TOPIC, absent=absent)


def _define_cost(name: str, title: str, column: str, unit: str, topic: str, absent: str = NOT_MEASURED) -> Measure:
    return Measure(name, title, column, unit, topic=topic, lower_is_better=True, absent=absent)


THROUGHPUT = Measure("throughput", "Throughput", "iterations_per_second", "it/s", topic=THROUGHPUT_TOPIC)
ACCURACY = _define_accuracy("accuracy", "Test accuracy after the last epoch", "accuracy")
SPEEDUP = Measure(
    "speedup", "Speed-up", "speedup", "x", topic=THROUGHPUT_TOPIC, absent=NO_BASELINE
)  # title and unit name the baseline
EFFICIENCY = Measure(
    "efficiency", "Scaling efficiency", "efficiency", "fraction", 100, "%", topic=THROUGHPUT_TOPIC, absent=NO_BASELINE
)
_HIGH = 0.9  # median accuracy
_TEXT_KEY = "dataset.bptt"  # an option that all data sets of text have
RACED = frozenset(
    (
        *("iterations_per_second", "samples_per_second", "throughput_low", "throughput_high", "timed_steps", "step_s"),
        *("throughput_ratio", "throughput_ratio_low", "throughput_ratio_high", "race_blocks"),
        *(f"{phase}_s" for phase in csv_columns.PHASES),
        *(SPEEDUP.column, EFFICIENCY.column, *(f"share_{phase}" for phase in (*csv_columns.PHASES, "other"))),
    )
)
"""The columns of figures that a race measures: of a run that raced they are the race's, also if it was not trained."""
EQUAL = {
    by: _define_accuracy(f"accuracy_equal_{name}", f"Test accuracy at equal {title}", f"accuracy_equal_{name}", absent)
    for by, name, title, absent in (
        ("epoch", "epochs", "epochs", NOT_MEASURED),
        ("time_s", "time", "training time", NOT_EVALUATED),
        ("sent_bytes", "bytes", "bytes sent", NOT_EVALUATED),
    )
}
"""The measures at equal progress, by the column of `Report.epochs` that is equal."""
SHARES = tuple(
    Measure(f"share_{phase}", phase, f"share_{phase}", "fraction", 100, "%", topic=STEP_TOPIC, is_tested=False)
    for phase in (*csv_columns.PHASES, "other")
)
STEP = Measure("step", "step", "step_s", "s", 1e3, "ms", topic=STEP_TOPIC, lower_is_better=True, is_tested=False)
PEAK_MEMORY = _define_cost("peak_memory", "Peak memory of a worker", "peak_memory", "B", MEMORY_TOPIC)
MEMORY = (
    *(
        Measure(
            f"{part}_memory", part, f"{part}_memory", "B", topic=MEMORY_TOPIC, lower_is_better=True, is_tested=False
        )
        for part in run_directory.MEMORY_PARTS
    ),
    Measure("end_memory", "at the end", "end_memory", "B", topic=MEMORY_TOPIC, lower_is_better=True, is_tested=False),
    dataclasses.replace(PEAK_MEMORY, title="peak", is_tested=False),
)
"""The columns of the table of memory by part."""
MEASURES = (
    THROUGHPUT,
    Measure(
        "throughput_samples",
        "Throughput, all workers together",
        "samples_per_second",
        "samples/s",
        topic=THROUGHPUT_TOPIC,
    ),
    SPEEDUP,
    EFFICIENCY,
    ACCURACY,
    _define_accuracy("accuracy_best", "Test accuracy after the best epoch", "best_accuracy"),
    *EQUAL.values(),
    _define_accuracy("accuracy_local", "Test accuracy of the workers' own models, mean", "local_accuracy", ONE_MODEL),
    _define_accuracy(
        "accuracy_least", "Test accuracy of the worst worker's own model", "local_accuracy_least", ONE_MODEL
    ),
    _define_cost(
        "consensus", "Consensus distance after the last epoch", "consensus_distance", "l2", ACCURACY_TOPIC, ONE_MODEL
    ),
    _define_cost("time", "Training time", "time_s", "s", TARGET_TOPIC),
    _define_cost("sent_total", "Sent by one worker in all", "sent_total", "B", TARGET_TOPIC),
    _define_cost("payload", "Message of one worker per step", "payload_bytes", "B", COMMUNICATION_TOPIC),
    _define_cost("sent", "Put on the wire by one worker per step", "sent_bytes", "B", COMMUNICATION_TOPIC),
    Measure(
        "compression_ratio", "Compression ratio of a message", "compression_ratio", "x fp32", topic=COMMUNICATION_TOPIC
    ),
    _define_cost("compression_error", "Compression error", "compression_error", "relative", COMMUNICATION_TOPIC),
    Measure(
        "spectral_gap",
        "Spectral gap of the topology",
        "spectral_gap",
        "1 - rho",
        topic=COMMUNICATION_TOPIC,
        is_tested=False,
        absent=ONE_MODEL,
    ),
    PEAK_MEMORY,
)


SPENT = "spent"
"""The suffix of the column with the time or bytes of a whole run, for each column of the cost of a target."""


def define_target_measures(target: float) -> tuple[Measure, Measure]:
    """Return the measures of the time and the bytes until a test accuracy is reached, 0.9 for 90 %."""
    percent = f"{100 * target:.6g}"

    def define(kind: str, title: str, unit: str) -> Measure:
        name = f"{kind}_to_{percent}"
        return _define_cost(name, f"{title} to {percent} % test accuracy", name, unit, TARGET_TOPIC, NOT_REACHED)

    return define("time", "Training time", "s"), define("bytes", "Sent by one worker", "B")


def shows_error(accuracies: pd.Series) -> bool:
    """Tell whether curves show the error, on a logarithmic axis, in place of accuracies as high as these."""
    return bool(accuracies.median() >= _HIGH)


def select_measured(runs: pd.DataFrame, column: str) -> pd.Series:
    """Tell which runs can have values in a column: finished runs, and in the columns `RACED` also runs that raced."""
    done = (runs["status"] == run_directory.DONE).fillna(False).astype(bool)
    return done | runs["raced_by"].notna() if column in RACED else done


def find_known(runs: pd.DataFrame, column: str) -> pd.Series:
    """Tell which runs have a value in a column that counts (`select_measured`)."""
    return select_measured(runs, column) & runs[column].notna()


def select_once(runs: pd.DataFrame, column: str) -> pd.Series:
    """Tell which runs have a value of their own in a column: of runs that share a raced run's figure, only the first.

    Args:
        runs: if they have the column `cell`, it is the first of each cell.
        column: of `runs`.
    """
    chosen = find_known(runs, column).to_numpy(bool, copy=True)
    if column in RACED:
        raced = np.flatnonzero(chosen & runs["raced_by"].notna().to_numpy(bool))
        by = ["cell"] if "cell" in runs else []
        chosen[raced[runs.iloc[raced].duplicated([*by, "sweep", "race", "raced_by"]).to_numpy(bool)]] = False
    return pd.Series(chosen, runs.index)


def find_own_intervals(runs: pd.DataFrame) -> np.ndarray:
    """Return for each run the 95 % interval of its cell's throughput, (runs, 2), if one run has measured it.

    That is the only run of the cell, or the run that a race measured for the whole cell. In other cells it is NaN.

    Args:
        runs: rows of `Grid.runs` that have a throughput.
    """
    by_cell = runs.groupby("cell", sort=False)
    count, raced = by_cell["run"].transform("size"), by_cell["raced_by"]
    is_one = (count == 1) | ((raced.transform("count") == count) & (raced.transform("nunique") == 1))
    ends = runs[["throughput_low", "throughput_high"]].to_numpy("float64", na_value=np.nan)
    known = is_one.to_numpy(bool) & np.isfinite(ends).all(axis=1)
    return np.where(known[:, None], ends, np.nan)


def find_partners(runs: pd.DataFrame, match: Sequence[str], is_baseline: pd.Series) -> np.ndarray:
    """Return the position of each run's baseline: the run with the same values of the `match` keys; -1 for none.

    If several runs match, there is no baseline either, because the choice would be a guess.
    """
    keys = list(zip(*(format_settings(runs[key]) for key in match), strict=True)) or [()] * len(runs)
    found: dict[tuple[str, ...], int] = {}
    for position in np.flatnonzero(is_baseline.to_numpy(bool)):
        found[keys[position]] = -1 if keys[position] in found else int(position)
    return np.array([found.get(key, -1) for key in keys], dtype=int)


def divide_by_partner(values: pd.Series, partner: np.ndarray) -> np.ndarray:
    """Return each value divided by the value of its baseline; NaN without a baseline."""
    numbers = values.to_numpy("float64", na_value=np.nan)
    divisors = np.where(partner >= 0, numbers[partner], np.nan) if len(numbers) else numbers
    return np.divide(numbers, divisors, out=np.full(len(numbers), np.nan), where=divisors > 0)


def compute_efficiency(grid: Grid) -> np.ndarray:
    """Return each run's samples per second and worker, divided by those of the same run with the fewest workers."""
    runs = grid.runs
    workers = pd.to_numeric(runs["workers"], errors="coerce").astype("float64")
    each = runs["samples_per_second"].where(select_measured(runs, EFFICIENCY.column)) / workers
    return divide_by_partner(each, find_fewest_workers(grid, runs))


def find_fewest_workers(grid: Grid, runs: pd.DataFrame) -> np.ndarray:
    """Return for each of these runs the position of the same run with the fewest workers of the sweep; -1 for none."""
    fewest = pd.Series(format_settings(runs["workers"])) == (format_setting(grid.workers[0]) if len(runs) else "")
    seeds = [SEED] if SEED in runs else []
    return find_partners(runs, ["label", *grid.keys, *seeds], fewest)


def derive_measures(
    grid: Grid, partner: np.ndarray, epochs: pd.DataFrame | None, targets: Sequence[float]
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the runs of a grid with the columns of all measures; a measure is NaN if the run is not done.

    Args:
        partner: for each run, the position of its baseline (`find_partners`).
        epochs: `Report.epochs`; without them, measures of progress are left out.
        targets: test accuracies, 0.9 for 90 %.

    Returns:
        The runs, and for each measure that needs one a note for the reader of its table, by the measure's name.
    """
    runs = grid.runs
    timed = select_measured(runs, SPEEDUP.column)
    columns: dict[str, object] = {"speedup": divide_by_partner(runs["iterations_per_second"].where(timed), partner)}
    columns |= flag_quotients(runs, SPEEDUP.column, partner)
    notes: dict[str, str] = {}
    if len(grid.workers) > 1:
        columns["efficiency"] = compute_efficiency(grid)
        columns |= flag_quotients(runs, EFFICIENCY.column, find_fewest_workers(grid, runs))
        of = plural(format_setting(grid.workers[0]) or "?", "worker")
        notes["efficiency"] = f"samples per second and worker, as a share of those with {of}"
    parts = runs[[f"{phase}_s" for phase in csv_columns.PHASES]].div(runs["step_s"], axis=0)
    columns |= {f"share_{phase}": parts[f"{phase}_s"] for phase in csv_columns.PHASES}
    columns["share_other"] = 1 - parts.sum(axis=1, skipna=False)
    if epochs is not None:
        found, said = _derive_progress(grid, epochs, targets)
        columns, notes = {**columns, **found}, {**notes, **said}
    return runs.assign(**columns), notes


def _derive_progress(
    grid: Grid, epochs: pd.DataFrame, targets: Sequence[float]
) -> tuple[dict[str, object], dict[str, str]]:
    runs = grid.runs
    done = runs[runs["status"] == run_directory.DONE]
    everyone, finished = make_run_index(runs), make_run_index(done)
    epochs = select_runs(epochs, finished)
    comparisons = [*(key for key in grid.keys if not is_method_key(key)), "workers"]
    groups = done.groupby(comparisons, dropna=False, sort=False)
    which = pd.Series(groups.ngroup().to_numpy(), finished)
    which = which[~which.index.duplicated()]
    columns: dict[str, object] = {}
    notes: dict[str, str] = {}

    def align(values: pd.Series) -> np.ndarray:
        return values.reindex(everyone).to_numpy("float64", na_value=np.nan)

    for by, measure in EQUAL.items():
        found = compare_at_equal(epochs, by, which)
        columns[measure.column] = align(found["accuracy"])
        columns[f"{measure.column}_at"] = at = align(found["at"])
        notes[measure.name] = _describe_limits(runs[comparisons].assign(at=at).dropna(subset="at"), comparisons, by)
    columns["sent_total"] = align(get_last_values(epochs, "sent_bytes"))
    for target in targets:
        for measure, column in zip(define_target_measures(target), ("time_s", "sent_bytes"), strict=True):
            columns[measure.column] = align(find_cost_of_target(epochs, column, target))
            columns[f"{measure.column}_{SPENT}"] = align(get_last_values(epochs, column))
            notes[measure.name] = "at the first evaluation that reached it"
    return columns, notes


_MOST_SAID = 6  # comparisons that a note lists one by one


def _describe_limits(runs: pd.DataFrame, comparisons: Sequence[str], by: str) -> str:
    """Describe the epoch, time or bytes at which the runs are compared."""
    groups = runs.groupby(list(comparisons), dropna=False, sort=False)["at"].first()
    values = list(dict.fromkeys(groups.to_list()))
    if not values:
        return "no run has been evaluated"
    texts = {value: _format_amount(value, by) for value in values}
    if len(values) == 1:
        said = texts[values[0]]
    elif len(values) > _MOST_SAID:
        said = f"from {texts[min(values)]} to {texts[max(values)]}, as the CSV says in column at"
    else:
        places = [place if isinstance(place, tuple) else (place,) for place in groups.index]
        names = [
            ", ".join(f"{key}={format_setting(value) or 'null'}" for key, value in zip(comparisons, place, strict=True))
            for place in places
        ]
        said = join_words([f"{texts[value]} ({name})" for value, name in zip(groups, names, strict=True)])
    return f"the largest that all compared runs have reached, by the last evaluation not after it: {said}"


def _format_amount(value: float, by: str) -> str:
    if by == "epoch":
        return f"epoch {value:g}"
    if by == "time_s":
        return f"{format_number(value)} s"
    size, unit = choose_byte_unit(value)
    return f"{format_number(value / size)} {unit}"


_RATES = (*RATES, "network_bandwidth", "throughput_low", "throughput_high")
"""Columns in which more is better."""

_UNITS = {
    **{column: "s" for column in RUN_COLUMNS if column.endswith("_s")},
    **dict(zip(RATES, ("GFLOP/s", "GB/s", "million/s"), strict=True)),
    "network_bandwidth": "bit/s",
    **dict.fromkeys(("throughput_low", "throughput_high", "trained_iterations_per_second"), "it/s"),
    **{column: "B" for column in RUN_COLUMNS if "memory" in column},
}
"""The units of columns of `Report.runs` that belong to no other measure."""


_NAMES_OF_METRICS = {
    "mae": "Mean absolute error",
    "r2": "R²",
    "perplexity": "Perplexity",
    "bits_per_character": "Bits per character",
}


def name_metric(name: str) -> str:
    """Return a metric of a task in words."""
    return _NAMES_OF_METRICS.get(name, name)


def list_metric_measures(runs: pd.DataFrame) -> list[Measure]:
    """Return a measure for each metric of the runs' tasks besides the accuracy."""
    names = [column.removeprefix(METRIC) for column in list_metrics(runs)]
    return [
        Measure(
            name,
            f"{name_metric(name)} on the test set after the last epoch",
            f"{METRIC}{name}",
            "number",
            shown="",
            digits=4,
            topic=ACCURACY_TOPIC,
            lower_is_better=name in ("mae", "perplexity", "bits_per_character"),
        )
        for name in names
    ]


def list_measures(targets: Sequence[float], runs: pd.DataFrame) -> dict[str, Measure]:
    """Return all measures for tables, and one for every numeric column of `Report.runs`, by name."""
    shares = [dataclasses.replace(share, title=f"Share of a step: {share.title}") for share in SHARES]
    step = dataclasses.replace(STEP, title="Time of a step")
    memory = [dataclasses.replace(part, title=f"Memory of a worker: {part.title}") for part in MEMORY[:-1]]
    to_targets = [measure for target in targets for measure in define_target_measures(target)]
    known = [*MEASURES, *to_targets, *shares, step, *memory]
    own = [measure for measure in list_metric_measures(runs) if measure.name not in {each.name for each in known}]
    known = [measure.name_samples(runs) for measure in (*known, *own)]
    others = {
        column: Measure(column, column, column, _UNITS.get(column, "number"), lower_is_better=column not in _RATES)
        for column, dtype in RUN_COLUMNS.items()
        if dtype in ("float64", "Int64")
    }
    named = {measure.name: measure for measure in known}
    by_column = {measure.column: measure for measure in known}
    return {**named, **{name: measure for name, measure in {**others, **by_column}.items() if name not in named}}
