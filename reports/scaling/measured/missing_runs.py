"""Describe the runs that a prediction needs and that are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from reports.reading.text import format_setting
from reports.scaling.measured.run_labels import RunRow, group_rows
from reports.scaling.measured.traffic import Traffic

if TYPE_CHECKING:
    from reports.scaling.measured.cell import MeasuredCell

GROWING = frozenset({"exponential", "hypercube"})
"""Topologies in which a worker has lg W neighbours."""
_ALIKE = frozenset({"complete", "ring", "one_peer_exponential", "random_regular", "random_pairs"})
"""Topologies in which a worker has as many neighbours with any number of workers, or all others."""


def join_counts(counts: Sequence[int]) -> str:
    return ",".join(map(str, counts))


def explain_too_few(cells: Sequence[MeasuredCell]) -> str:
    """Explain why these cells do not suffice to predict other numbers of workers, and which runs would; empty if they
    do.
    """
    if not cells:
        return "the phases of its runs were not measured"
    fair = sorted({cell.workers for cell in cells if cell.is_fair and cell.workers > 1})
    if len(fair) > 1:
        return ""
    limited = sorted({cell.workers for cell in cells if not cell.is_fair})
    said = f"measured with workers={join_counts(fair)} only" if fair else "measured with one worker only"
    if limited:
        said = f"with workers={join_counts(limited)} the CPUs were the limit, not the network" + (
            f"; {said}" if fair else ""
        )
    where = " on a slower network or more cores" if limited else ""
    return f"{said}; run it with workers={join_counts(_list_others(fair))} too{where}"


def _list_others(there: Sequence[int]) -> list[int]:
    return [count for count in (2, 4, 8) if count not in there]


def suggest_command(command: str, there: Sequence[int]) -> str:
    """Return the command that runs the sweep with other numbers of workers."""
    others = f"workers={join_counts(_list_others(there))}"
    if not any(word.endswith("multirun.py") or word == "gradsweep" for word in command.split()):
        return f"the sweep once more with {others}"
    words = [word for word in command.split() if not word.lstrip("+").startswith("workers=")]
    if not {"-m", "--multirun"}.intersection(words):
        program = next(place for place, word in enumerate(words) if word.endswith("multirun.py") or word == "gradsweep")
        words.insert(program + 1, "-m")
    return f"`{' '.join([*words, others])}`"


def describe_graphs(rows: Sequence[RunRow], traffic: Mapping[tuple[str, str], Traffic]) -> list[str]:
    """Return a note for each graph whose number of neighbours may depend on the number of workers."""
    found = []
    for (workload, method, topology), _ in group_rows(
        [{**row, "topology": format_setting(row.get("topology"))} for row in rows], "workload", "method", "topology"
    ).items():
        one = traffic.get((workload, method))
        if one is not None and one.pattern == "gossip" and topology not in _ALIKE | GROWING:
            found.append(
                f"{method}: {topology} counts with {max(1, round(one.degree))} neighbours whatever the workers, as in "
                "the runs with most of them"
            )
    return list(dict.fromkeys(found))
