"""Write the remarks below tables on runs whose times cannot be compared."""

from __future__ import annotations

import collections

import pandas as pd

from gradsweep import run_directory, timed_steps
from gradsweep.text import plural
from reports.analysis.table import is_true
from reports.reading import machines, networks
from reports.reading.text import join_words, shorten_list


def write_remarks(runs: pd.DataFrame) -> list[str]:
    """Return the remarks on the machines and networks of `Report.runs`, and on throughputs over few steps."""
    return [*machines.write_remarks(runs), *networks.write_remarks(runs), *explain_few_steps(runs)]


def explain_few_steps(runs: pd.DataFrame) -> list[str]:
    """Return a remark with the throughputs that are measured over few steps, and their numbers of steps."""
    few = runs[(runs["status"] == run_directory.DONE) & is_true(runs["few_steps"])]
    totals = (None if pd.isna(steps) else int(steps) for steps in few["steps_done"])
    counts = collections.Counter(
        (steps, None if steps else every) for steps, every in zip(map(int, few["timed_steps"]), totals, strict=True)
    )
    ordered = sorted(counts, key=lambda pair: (not pair[0], pair[0], pair[1] or 0))
    said = [f"{timed_steps.remark(*pair)} ({plural(counts[pair], 'run')})" for pair in ordered]
    return [f"throughputs that say little: {join_words(shorten_list(said))}"] if said else []
