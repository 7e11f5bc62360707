"""Explain the throughputs that are of few steps."""

from __future__ import annotations

import collections

import pandas as pd

from reports.table import is_true
from reports.text import counted, listed, some
from sweep import run as rundir
from sweep import timed


def remarks(runs: pd.DataFrame) -> list[str]:
    """Of how many steps the throughputs are that are of few.

    Args:
        runs: `Report.runs`; those that are not done have no figures in a table.
    """
    few = runs.loc[(runs["status"] == rundir.DONE) & is_true(runs["few_steps"]), "timed_steps"]
    counts = collections.Counter(map(int, few))
    ordered = sorted(counts, key=lambda steps: (not steps, steps))
    said = [f"{timed.remark(steps)} ({counted(counts[steps], 'run')})" for steps in ordered]
    return [f"throughputs that say little: {listed(some(said))}"] if said else []
