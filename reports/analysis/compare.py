"""Compare sweeps with earlier ones: tell which cells became faster, slower, better or worse beyond the noise of seeds.

Two cells are compared if their configs are equal but for the seed. The values are compared, not the signatures: after a
change of the code the same experiment has another signature, and may have more keys.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from gradsweep.errors import UsageError
from gradsweep.run_directory import DONE
from gradsweep.text import plural
from reports.analysis.grid import SEED, lay_out_runs
from reports.analysis.measures import ACCURACY, THROUGHPUT, Measure, select_measured, select_once
from reports.analysis.remarks import explain_settings, write_remarks
from reports.analysis.statistics import (
    Difference,
    Summary,
    compare_paired,
    compare_ratios,
    compare_unpaired,
    correct_differences,
    summarize_cells,
)
from reports.analysis.table import (
    LEVEL,
    MARKS,
    SPOILT,
    ReportTable,
    TableCell,
    TableColumn,
    count_marked,
    is_marked,
)
from reports.analysis.time_pairs import find_middles, pair_in_time
from reports.reading.columns import ADDED, RUN_COLUMNS, is_config_key
from reports.reading.text import format_number, format_setting, format_settings, format_spread, join_words

WORDS = {THROUGHPUT: ("faster", "slower"), ACCURACY: ("better", "worse")}
"""The verdicts for more and for less of a measure."""
FAILED = "failed"
VERDICTS = (*(word for words in WORDS.values() for word in words), FAILED)
"""The words that `--fail-on` takes."""
SAME = "no difference beyond noise"
UNKNOWN = "one seed: no noise known"
FEW = "too few timed steps"
DISTURBED = "times are not comparable"  # disturbed, or on shared cores
NEITHER = "not done in either"
UNMEASURED = "not measured"
NEW = "not done before"
_EQUAL = 1e-9  # a relative difference below this is rounding

CellKey = tuple[str, ...]
"""The values that name a cell."""


@dataclasses.dataclass(frozen=True)
class Change:
    """The values of one measure of one cell before and after.

    Attributes:
        marks: the `MARKS` that hold for any run before, and for any after.
        is_done: whether a run before or after is done.
        is_apart: for a single raced throughput on either side, whether their 95 % intervals do not overlap; None:
            not known.
    """

    key: CellKey
    before: Summary
    after: Summary
    difference: Difference | None
    is_paired: bool
    marks: tuple[tuple[str, ...], tuple[str, ...]]
    is_done: bool
    verdict: str
    is_apart: bool | None = None

    @property
    def ratio(self) -> float:
        """The value after, divided by the value before."""
        return self.after.mean / self.before.mean if self.before.mean else math.nan


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The changes of all cells that exist both before and after.

    Attributes:
        names: the keys that name a cell.
        changes: by measure, the change of each cell.
        remarks: notes on all changes.
    """

    names: CellKey
    changes: Mapping[Measure, Sequence[Change]]
    remarks: tuple[str, ...]

    @property
    def verdicts(self) -> collections.Counter[str]:
        return collections.Counter(change.verdict for changes in self.changes.values() for change in changes)

    @property
    def sentences(self) -> list[str]:
        """A line for each measure with the number of cells of each verdict."""
        lines = []
        for measure, changes in self.changes.items():
            found = collections.Counter(change.verdict for change in changes)
            order = [*WORDS[measure], SAME, FAILED, UNKNOWN, FEW, DISTURBED, NEW, UNMEASURED, NEITHER]
            said = [f"{found[word]} {word}" for word in order if found[word] or word in WORDS[measure]]
            lines.append(f"{measure.title}, {plural(len(changes), 'cell')}: {join_words(said)}.")
        return lines

    @property
    def tables(self) -> list[ReportTable]:
        return [self._build_table(measure, changes) for measure, changes in self.changes.items()]

    def _build_table(self, measure: Measure, changes: Sequence[Change]) -> ReportTable:
        unit = measure.shown or measure.unit
        headings = [
            *map(TableColumn, self.names),
            TableColumn("baseline", measure.unit, unit),
            TableColumn("now", measure.unit, unit),
        ]
        headings += [TableColumn("ratio", "now / baseline"), TableColumn("difference", measure.unit, unit)]
        headings += [TableColumn("95 % interval"), TableColumn("p", "Holm-corrected"), TableColumn("verdict")]
        return ReportTable(
            f"compared_{measure.name}",
            f"{measure.title} against the baseline",
            tuple(headings),
            len(self.names),
            tuple(_build_row(change, measure) for change in changes),
            remarks=self.remarks,
            records=tuple(self._build_record(change, measure) for change in changes),
            topic=measure.topic,
            spread=_describe_spread(changes),
        )

    def _build_record(self, change: Change, measure: Measure) -> dict[str, Any]:
        gap = change.difference
        found: dict[str, Any] = {"ratio": change.ratio}
        for side, summary in (("baseline", change.before), ("now", change.after)):
            found |= {f"{side}_{name}": getattr(summary, name) for name in ("n", "mean", "std")}
        found |= {name: getattr(gap, name) if gap else None for name in ("mean", "low", "high", "p", "p_holm")}
        found["difference"] = found.pop("mean")
        known = {key: None if value != value else value for key, value in found.items()}
        names = dict(zip(self.names, change.key, strict=True))
        return {**names, "measure": measure.name, "unit": measure.unit, **known, "verdict": change.verdict}


def compare(before: pd.DataFrame, after: pd.DataFrame, ignored: Sequence[str] = ()) -> Comparison:
    """Compare runs with the runs of a baseline.

    Args:
        before, after: `Report.runs` of the baseline, and of the runs to compare.
        ignored: config keys that may differ.

    Raises:
        UsageError: an ignored key is in no config, or before and after have no cell in common.
    """
    for key, value in ADDED.items():
        if key in before or key in after:
            before, after = (
                runs if key in runs else runs.assign(**{key: [value] * len(runs)}) for runs in (before, after)
            )
    keys = [[key for key in runs.columns if is_config_key(key) and key != SEED] for runs in (before, after)]
    if unknown := [key for key in ignored if key not in {*keys[0], *keys[1]}]:
        raise UsageError(f"--ignore {unknown[0]}: no config has this key")
    common = [key for key in keys[0] if key in keys[1] and key not in ignored]
    lacking = [key for key in dict.fromkeys([*keys[0], *keys[1]]) if key not in common and key not in ignored]
    cells = [_group_cells(runs, common) for runs in (before, after)]
    both = [key for key in cells[1] if key in cells[0]]
    mixed = {key for key in both if any(_is_mixed(found[key]) for found in cells)}
    both = [key for key in both if key not in mixed]
    if not both:
        raise UsageError(
            f"--baseline: no cell of the others has an equal one in it{_explain_no_match(before, after, common)}"
        )
    names, places = _name_cells(after, common, [cells[1][key] for key in both])
    sides = [[found[key] for key in both] for found in cells]
    changes = {measure: _compute_changes(places, sides, measure) for measure in WORDS}
    tested = iter(correct_differences([change.difference for found in changes.values() for change in found]))
    changes = {
        measure: [_judge(change, next(tested), measure) for change in found] for measure, found in changes.items()
    }
    both_sides = pd.concat([before, after], ignore_index=True)
    said = [*write_remarks(both_sides), *explain_settings(both_sides), *_describe_tests(changes)]
    spoilt = both_sides[is_marked(both_sides, SPOILT) & select_measured(both_sides, THROUGHPUT.column)]
    said += [f"throughput is not tested of {count_marked(spoilt, SPOILT)}"] if len(spoilt) else []
    said += [f"not compared, as only one side has them: {', '.join(lacking)}"] if lacking else []
    alone = [len([key for key in mine if key not in other]) for mine, other in (cells, cells[::-1])]
    for count, side in zip(alone, ("the baseline", "the others"), strict=True):
        said += [f"{plural(count, 'cell')} of {side} alone"] if count else []
    if mixed:
        said.append(f"{plural(len(mixed), 'cell')} of several configs that differ in a key which is not compared")
    return Comparison(names, changes, tuple(said))


def _group_cells(runs: pd.DataFrame, keys: Sequence[str]) -> dict[CellKey, pd.DataFrame]:
    """Return the runs grouped by their values of these keys, in the order of the runs."""
    places = list(zip(*(format_settings(runs[key]) for key in keys), strict=True)) or [()] * len(runs)
    rows: dict[CellKey, list[int]] = {}
    for position, place in enumerate(places):
        rows.setdefault(place, []).append(position)
    return {place: runs.iloc[positions] for place, positions in rows.items()}


def _is_mixed(runs: pd.DataFrame) -> bool:
    """Tell whether several runs have the same seed, which means that they differ in a key that is not compared."""
    return bool(runs[SEED].duplicated().any()) if SEED in runs else len(runs) > 1


def _explain_no_match(before: pd.DataFrame, after: pd.DataFrame, keys: Sequence[str]) -> str:
    """Explain why before and after have no cell in common: name the first key without a common value."""
    for key in keys:
        values = [
            list(dict.fromkeys(format_setting(value) or "null" for value in runs[key])) for runs in (before, after)
        ]
        if not set(values[0]) & set(values[1]):
            shown = [", ".join(found[:3]) + (", ..." if len(found) > 3 else "") for found in values]
            return f": {key} is {shown[0]} there and {shown[1]} in the others; --ignore {key} compares them"
    return ""


def _name_cells(
    runs: pd.DataFrame, keys: Sequence[str], cells: Sequence[pd.DataFrame]
) -> tuple[CellKey, list[CellKey]]:
    """Return the keys that distinguish these cells, and the values of each cell."""
    seeds = [SEED] if SEED in runs else []
    first = pd.concat([cell.iloc[:1] for cell in cells])
    grid = lay_out_runs(first[[*RUN_COLUMNS, *keys, *seeds]].assign(**{key: 0 for key in seeds}))
    columns = ("label", *(key for key in grid.keys if key not in ("run", "sweep")), "workers")
    by_directory = {
        directory: tuple(map(format_setting, values))
        for directory, *values in zip(grid.runs["directory"], *(grid.runs[key] for key in columns), strict=True)
    }
    return ("compressor", *columns[1:]), [by_directory[directory] for directory in first["directory"]]


def _compute_changes(
    places: Sequence[CellKey], sides: Sequence[Sequence[pd.DataFrame]], measure: Measure
) -> list[Change]:
    values = [[_group_by_seed(cell, measure) for cell in side] for side in sides]
    before, after = (summarize_cells([list(cell.values()) for cell in side]) for side in values)
    changes = []
    for position, place in enumerate(places):
        runs = [side[position] for side in sides]
        tested = [cell[~is_marked(cell, SPOILT)] for cell in runs] if measure is THROUGHPUT else runs
        was, now = (_group_by_seed(cell, measure) for cell in tested)
        is_paired = len(was.keys() & now.keys()) > 1
        if not is_paired:
            gap = compare_unpaired(now.values(), was.values())
        else:
            gap = _compare_in_time(*tested) if measure is THROUGHPUT else compare_paired(now, was)
        marks = [tuple(mark for column, mark in MARKS.items() if cell[column].any()) for cell in runs]
        shown = (marks[0], marks[1]) if measure is THROUGHPUT else ((), ())
        is_apart = _is_apart(*tested) if measure is THROUGHPUT else None
        is_done = any((cell["status"] == DONE).any() for cell in runs)
        changes.append(Change(place, before[position], after[position], gap, is_paired, shown, is_done, "", is_apart))
    return changes


def _compare_in_time(before: pd.DataFrame, after: pd.DataFrame) -> Difference | None:
    """Return the difference of throughput by the log ratios of runs, each paired with the run closest in time."""
    rate = THROUGHPUT.column
    sides = [cell[select_once(cell, rate)] for cell in (after, before)]
    seeds = [list(map(format_setting, cell[SEED])) if SEED in cell else [""] * len(cell) for cell in sides]
    numbers = {seed: number for number, seed in enumerate(dict.fromkeys([*seeds[0], *seeds[1]]))}
    codes = [np.array([numbers[seed] for seed in own], dtype=int) for own in seeds]
    now, was = (cell[rate].to_numpy("float64") for cell in sides)
    times = [find_middles(cell) for cell in sides]
    pairs = pair_in_time(times[0], codes[0], times[1], codes[1])
    return compare_ratios([np.column_stack([now[pairs[:, 0]], was[pairs[:, 1]]])])[0]


def _group_by_seed(cell: pd.DataFrame, measure: Measure) -> dict[str, float]:
    done = cell[select_once(cell, measure.column)]
    seeds = map(format_setting, done[SEED]) if SEED in done else [""] * len(done)
    return dict(zip(seeds, map(float, done[measure.column]), strict=True))


def _is_apart(before: pd.DataFrame, after: pd.DataFrame) -> bool | None:
    """Tell whether the intervals of one raced throughput before and one after do not overlap; None: not known."""
    sides = [cell[select_once(cell, THROUGHPUT.column)] for cell in (before, after)]
    if any(len(cell) != 1 or cell["raced_by"].isna().any() for cell in sides):
        return None
    ends = [cell[["throughput_low", "throughput_high"]].to_numpy("float64", na_value=np.nan)[0] for cell in sides]
    if not np.isfinite(ends).all():
        return None
    return bool(ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0])


def _judge(change: Change, gap: Difference | None, measure: Measure) -> Change:
    """Return the change with its difference `gap` and the verdict on it."""
    return dataclasses.replace(change, difference=gap, verdict=_decide_verdict(change, gap, measure))


def _decide_verdict(change: Change, gap: Difference | None, measure: Measure) -> str:
    before, after = change.before, change.after
    if not before.n or not after.n:
        if before.n == after.n:
            return UNMEASURED if change.is_done else NEITHER
        return NEW if after.n else FAILED
    if gap is None or gap.n < 2:
        if change.is_apart is not None:
            return WORDS[measure][after.mean < before.mean] if change.is_apart else SAME
        spoilt = [column for column in SPOILT if any(MARKS[column] in marks for marks in change.marks)]
        return FEW if "few_steps" in spoilt else DISTURBED if spoilt else UNKNOWN
    is_constant = math.isnan(gap.p)  # without any spread there is no test, and none is needed
    is_known = abs(gap.mean) > _EQUAL * abs(before.mean) if is_constant else gap.p_holm < LEVEL
    return WORDS[measure][gap.mean < 0] if is_known else SAME


def _describe_tests(changes: Mapping[Measure, Sequence[Change]]) -> list[str]:
    every = [change for found in changes.values() for change in found]
    tested = [change for change in every if change.difference and not math.isnan(change.difference.p)]
    if not tested:
        return []
    kinds = [
        ("paired t test over the same seeds (throughput: of log ratios of runs closest in time)", True),
        ("Welch's t test where seeds differ", False),
    ]
    used = [text for text, is_paired in kinds if any(change.is_paired == is_paired for change in tested)]
    return [f"{join_words(used)}, Holm-corrected for {plural(len(tested), 'test')}; beyond noise: p < {LEVEL}"]


def _build_row(change: Change, measure: Measure) -> tuple[TableCell, ...]:
    texts = [*change.key, _format_spread(change.before, measure), _format_spread(change.after, measure)]
    texts[-2:] = [text + "".join(own) if text else "" for text, own in zip(texts[-2:], change.marks, strict=True)]
    texts.append(f"{change.ratio:.3f}" if change.ratio == change.ratio else "")
    gap = change.difference
    if gap is None or change.verdict in (UNKNOWN, FEW, DISTURBED, FAILED, NEW, UNMEASURED, NEITHER):
        texts += ["", "", ""]
    else:
        low, high, mean = (f"{value * measure.scale:+.3g}" for value in (gap.low, gap.high, gap.mean))
        interval = f"{low} to {high}" if gap.low == gap.low else ""
        texts += [mean, interval, f"{gap.p_holm:.2g}" if gap.p_holm == gap.p_holm else ""]
    said = tuple(dict.fromkeys(mark for marks in change.marks for mark in marks))
    cells = [TableCell(text, text, said=said) for text in texts]
    return (*cells, TableCell(change.verdict, change.verdict, is_word=change.verdict in (FAILED, WORDS[measure][1])))


def _describe_spread(changes: Sequence[Change]) -> str:
    """Return what ± and the intervals of these changes are."""
    has_seeds = any(summary.n > 1 for change in changes for summary in (change.before, change.after))
    said = "mean ± standard deviation of n seeds" if has_seeds else "single runs"
    return f"{said}; 95 % interval of the difference" if any(change.difference for change in changes) else said


def _format_spread(summary: Summary, measure: Measure) -> str:
    if summary.n > 1:
        text = format_spread(summary.mean * measure.scale, summary.std * measure.scale, measure.digits)
        return f"{text} (n={summary.n})"
    return f"{format_number(summary.mean * measure.scale, measure.digits)} (n=1)" if summary.n else ""
