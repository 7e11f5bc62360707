"""Write the remarks below tables about runs whose times cannot be compared."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from gradsweep import run_directory, timed_steps
from gradsweep.options.exchange_setting import describe_setting
from gradsweep.text import plural
from reports.analysis.grid import SCRIPT
from reports.analysis.measures import find_known
from reports.analysis.table import is_marked, is_true
from reports.reading import machines, networks
from reports.reading.columns import is_config_key
from reports.reading.text import format_setting, format_settings, join_words, shorten_list

if TYPE_CHECKING:
    from reports.analysis.cells import Cells

EQUAL_WORK = (
    *("workers", "threads_per_worker", "device", "gpus", "model", "dataset", "batch", "phases", "batch_norm"),
    *("precision", "channels_last", "compile"),
)
"""Sections of a config in which runs with equal forward and backward agree."""
MARGIN = 0.05
"""By how much the logarithm of equal work's times may differ. On a quiet machine repeated runs are within 0.03 of each
other; from 0.095, which is 10 %, a run would count as disturbed."""
_OVERLAP = "exchange.overlap"


def write_remarks(runs: pd.DataFrame) -> list[str]:
    """Return the remarks on machines, on networks and on throughputs that are measured over few steps."""
    return [
        *machines.write_remarks(runs),
        *networks.write_remarks(runs),
        *explain_few_steps(runs),
        *explain_scripts(runs),
    ]


def explain_scripts(runs: pd.DataFrame) -> list[str]:
    """Return a remark if programs of the user have trained some of the runs, which then do not race."""
    if "trainer" not in runs or SCRIPT not in format_settings(runs["trainer"]):
        return []
    return ["scripts (trainer=script) do not race: their times are those of their own trainings, one after the other"]


def compare_equal_work(cells: Cells) -> list[str]:
    """Return a remark that names the cells whose forward and backward took longer or shorter than those of their
    baselines.

    Runs that are equal in `EQUAL_WORK` compute the same forward and backward, so a difference comes from the machine.
    Each run is paired with the baseline run closest in time. The pairs' mean log ratio has to exceed the ratio that the
    runs' drifts explain, as far as both have the same sign, by more than `MARGIN`. Three kinds of runs are not
    compared: marked runs, raced runs (which took turns), and runs with `exchange.overlap`, whose backward passes
    exchange messages.
    """
    runs = cells.runs
    work_s = (runs["forward_s"] + runs["backward_s"]).to_numpy("float64", na_value=np.nan)
    is_compared = (work_s > 0) & (runs["status"] == run_directory.DONE).fillna(False).to_numpy(bool)
    is_compared &= ~is_marked(runs) & runs["raced_by"].isna().to_numpy(bool)
    if _OVERLAP in runs:
        is_compared &= np.array(format_settings(runs[_OVERLAP])) != "true"
    shared = [key for key in runs if str(key).partition(".")[0] in EQUAL_WORK]
    work = runs.groupby(shared, dropna=False, sort=False).ngroup().to_numpy() if shared else np.zeros(len(runs))
    drift = runs["drift"].fillna(1.0).to_numpy("float64")
    said = []
    for number, pairs in enumerate(cells.find_pairs(is_compared)):
        own, base = pairs[work[pairs[:, 0]] == work[pairs[:, 1]]].T
        if not len(own):
            continue
        gap = float(np.log(work_s[own] / work_s[base]).mean())
        explained = float(np.log(drift[own] / drift[base]).mean()) * math.copysign(1, gap)
        if abs(gap) - max(explained, 0.0) > MARGIN:
            said.append(f"{100 * math.expm1(abs(gap)):.0f} % ({cells.name_cell(number)})")
    if not said:
        return []
    against = ", ".join(text if key == "compressor" else f"{key}={text}" for key, text in cells.against.items())
    told = f"differ from those of {against} by {join_words(shorten_list(said))}"
    return [f"forward and backward, equal work, {told}: differences of throughput below that are the machine's"]


def explain_settings(runs: pd.DataFrame) -> list[str]:
    """Return remarks on what a race allowed its baseline to tune, and on other runs with a tuned exchange.

    Where the setting differs although method and workers are equal, a remark names the keys that decide.
    """
    found: dict[tuple[str, str], dict[int, str]] = {}  # by method and workers: the setting of the run at a position
    runs = runs.reset_index(drop=True)
    workers = format_settings(runs["workers"])
    for _, race in runs[runs["baseline_setting"].notna()].groupby(["sweep", "race"], sort=False, observed=True):
        name, setting = race.iloc[0][["race_baseline", "baseline_setting"]]
        baseline = race.loc[race["run"] == name, "compressor"]
        method = f"baseline {name if baseline.empty else format_setting(baseline.iloc[0])}"
        found.setdefault((method, workers[race.index[0]] or "?"), {})[race.index[0]] = setting
    is_baseline = (runs["raced_by"] == runs["race_baseline"]).fillna(False) & runs["baseline_setting"].notna()
    tuned = runs[runs["tuned_overlap"].notna() & ~is_baseline]
    columns = (tuned[key] for key in ("compressor", "tuned_overlap", "tuned_part_mib", "tuned_allreduce"))
    for index, name, overlap, part_mib, allreduce in zip(tuned.index, *columns, strict=True):
        setting = describe_setting({"overlap": bool(overlap), "part_mib": part_mib, "allreduce": allreduce})
        found.setdefault((f"tuned {format_setting(name)}", workers[index] or "?"), {})[index] = setting
    several = runs["workers"].nunique() > 1
    said: dict[tuple[str, str, str], dict[str, None]] = {}
    for (method, count), settings in found.items():
        keys = _find_distinguishing_keys(runs.loc[list(settings)], list(settings.values()))
        for index, setting in settings.items():
            where = "".join(f", {key}={format_setting(runs.loc[index, key])}" for key in keys)
            said.setdefault((method, where, setting), {})[count] = None
    return [
        f"{method}{f' with {join_words(list(counts))} workers' if several else ''}{where}: {setting}"
        for (method, where, setting), counts in said.items()
    ]


def _find_distinguishing_keys(runs: pd.DataFrame, settings: Sequence[str]) -> Sequence[str]:
    """Return the fewest keys whose values decide a run's setting; none if all settings are equal or no keys do."""
    if len(set(settings)) == 1:
        return ()
    told = ("label", "cell", "seed", "workers", "compressor")
    keys = [str(key) for key in runs if is_config_key(key) and key not in told]
    values = {key: format_settings(runs[key]) for key in [*keys, "sweep"]}
    swept = [key for key, texts in values.items() if len(set(texts)) > 1]
    for chosen in itertools.chain(itertools.combinations(swept, 1), itertools.combinations(swept, 2)):
        places = list(zip(*(values[key] for key in chosen), strict=True))
        if len(set(places)) == len(set(zip(places, settings, strict=True))):
            return chosen
    return ()


def explain_few_steps(runs: pd.DataFrame) -> list[str]:
    """Return a remark that lists the throughputs measured over few steps, and the numbers of these steps."""
    few = runs[find_known(runs, "timed_steps") & is_true(runs["few_steps"])]
    totals = (None if pd.isna(steps) else int(steps) for steps in few["steps_done"])
    counts = collections.Counter(
        (steps, None if steps else every) for steps, every in zip(map(int, few["timed_steps"]), totals, strict=True)
    )
    ordered = sorted(counts, key=lambda pair: (not pair[0], pair[0], pair[1] or 0))
    said = [f"{timed_steps.remark(*pair)} ({plural(counts[pair], 'run')})" for pair in ordered]
    return [f"throughputs that say little: {join_words(shorten_list(said))}"] if said else []
