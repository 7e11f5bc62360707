"""Explain the throughputs that are of few steps."""

from __future__ import annotations

import collections

import pandas as pd

from gradsweep import run_directory, timed_steps
from gradsweep.text import plural
from reports.analysis.table import is_true
from reports.reading.text import join_words, shorten_list


def write_remarks(runs: pd.DataFrame) -> list[str]:
    """Return a remark on the throughputs that are measured over few steps, with their numbers of steps.

    Args:
        runs: `Report.runs`; those that are not done have no figures in a table.
    """
    few = runs.loc[(runs["status"] == run_directory.DONE) & is_true(runs["few_steps"]), "timed_steps"]
    counts = collections.Counter(map(int, few))
    ordered = sorted(counts, key=lambda steps: (not steps, steps))
    said = [f"{timed_steps.remark(steps)} ({plural(counts[steps], 'run')})" for steps in ordered]
    return [f"throughputs that say little: {join_words(shorten_list(said))}"] if said else []
