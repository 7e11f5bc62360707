"""Build the tables of `python -m reports scaling`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gradsweep.options.units import format_bandwidth, spell_quantities
from reports.analysis.table import ReportTable, TableCell, TableColumn, make_text_cell
from reports.reading.text import format_number, format_percent
from reports.scaling.measured.cell import RACED_LEVEL
from reports.scaling.measured.links import Links
from reports.scaling.model import agarwal
from reports.scaling.model.break_even import BASELINE, BreakEven, Key, Needed, find_baselines, find_winners
from reports.scaling.model.predict import LEVEL, Prediction, Predictor

CLOSE = "too close to tell"
"""The text where the interval of a speed-up contains 1, so that nothing is said of who is faster."""
NO_INTERVAL = "no interval"
"""The text where a speed-up has no interval, so that nothing is known of who is faster."""
EXTRAPOLATED = "~"
"""The mark before a value that was not measured under just these circumstances."""
TOPIC = "Scaling"

SAID = (
    f"{EXTRAPOLATED}: predicted: another network, or other workers or samples than were measured, or workers that "
    "shared cores or a host in the runs (what these took is in scaling_check)"
)
_OWN = "every worker has cores and a host of its own, and as many samples a step whatever their number (weak scaling)"
NO_ACCURACY = "about the time of a step; what a method does to the accuracy is not in it"
INTERVALS = f"in brackets {format_percent(LEVEL)} intervals of predictions (jackknife+ over the cells left out)"
RACED_INTERVALS = f"of measured times, {format_percent(RACED_LEVEL)} intervals of their race"
_ABOUT_CLOSE = (
    f"{CLOSE}: the interval of these times contains 1 (predicted: {format_percent(LEVEL)}; of a race: "
    f"{format_percent(RACED_LEVEL)})"
)
_ABOUT_NONE = f"{NO_INTERVAL}: these times have none (a race measures one), so they are not called a lead"


class Rival(NamedTuple):
    """A method of which it is uncertain whether it is faster than compressor=none.

    Attributes:
        times: its speed-up.
        is_close: the interval of the speed-up contains 1; if not, it has no interval.
    """

    method: str
    times: float
    is_close: bool


Figures = tuple[Sequence[str], int, float, str, Mapping[str, Any]]
"""The names of a row, workers, the value and the text of a cell, and what programs read besides."""


def build_table_by_workers(
    name: str,
    title: str,
    unit: str,
    headers: Sequence[str],
    figures: Iterable[Figures],
    remarks: Sequence[str],
) -> ReportTable:
    """Return a table with a row for each tuple of names (one name for each of `headers`) and a column for each number
    of workers.

    Bandwidths and times are spelled as people write them, but in the records as they are typed.
    """
    rows: dict[tuple[str, ...], dict[int, TableCell]] = {}
    records = []
    for names, workers, value, text, record in figures:
        rows.setdefault(tuple(names), {})[workers] = TableCell(value, spell_quantities(text))
        records.append({**dict(zip(headers, names, strict=True)), "workers": workers, **record})
    counts = sorted({workers for row in rows.values() for workers in row})
    keep = [
        place for place, header in enumerate(headers) if header != "workload" or any(names[place] for names in rows)
    ]
    empty = TableCell("", "–")
    return ReportTable(
        name,
        title,
        (*(TableColumn(headers[place]) for place in keep), *(TableColumn(str(count), unit) for count in counts)),
        len(keep),
        tuple(
            (*(make_text_cell(spelled[place]) for place in keep), *(row.get(count, empty) for count in counts))
            for spelled, row in ((list(map(spell_quantities, names)), row) for names, row in rows.items())
        ),
        remarks=tuple(map(spell_quantities, remarks)),
        records=tuple(records),
        topic=TOPIC,
    )


HEADERS = ("workload", "network", "compressor")


def _get_names(one: Prediction) -> tuple[str, str, str]:
    return one.workload, one.network, one.method


def format_predicted(is_measured: bool, value: str, low: float = math.nan, high: float = math.nan) -> str:
    """Return a value as text: a sign marks predicted values, and the interval follows if there is one."""
    text = value if is_measured else f"{EXTRAPOLATED}{value}"
    return text if math.isnan(low) else f"{text} ({format_number(low)} to {format_number(high)})"


def _make_record(one: Prediction) -> dict[str, Any]:
    """Return the figures of a prediction as a record for programs: values by column."""
    step = one.step
    return {
        "iterations_per_second": one.iterations_per_second,
        "iterations_per_second_low": keep_finite(1 / one.high),
        "iterations_per_second_high": keep_finite(1 / one.low),
        "efficiency": one.efficiency,
        "step_s": float(step.total),
        "compute_s": step.compute,
        "encode_s": step.encode,
        "communicate_s": float(step.communicate),
        "decode_s": step.decode,
        "extrapolated": not one.is_measured,
    }


def build_throughput_table(found: Sequence[Prediction], remarks: Sequence[str]) -> ReportTable:
    def text(one: Prediction) -> str:
        return format_predicted(one.is_measured, format_number(one.iterations_per_second), 1 / one.high, 1 / one.low)

    return build_table_by_workers(
        "scaling_throughput",
        "Predicted throughput [it/s] by workers",
        "it/s",
        HEADERS,
        ((_get_names(one), one.workers, one.iterations_per_second, text(one), _make_record(one)) for one in found),
        [SAID, INTERVALS, _OWN, *remarks],
    )


def build_efficiency_table(found: Sequence[Prediction], remarks: Sequence[str]) -> ReportTable:
    def text(one: Prediction) -> str:
        return format_predicted(one.is_measured, format_number(100 * one.efficiency))

    return build_table_by_workers(
        "scaling_efficiency",
        "Predicted efficiency [%] by workers",
        "fraction",
        HEADERS,
        ((_get_names(one), one.workers, one.efficiency, text(one), _make_record(one)) for one in found),
        [SAID, "samples/s over W times those of one worker alone, who sends nothing, as fitted", _OWN, *remarks],
    )


def build_fastest_table(
    found: Sequence[Prediction],
    compressors: Mapping[str, str],
    rivals: Mapping[Key, Rival],
    remarks: Sequence[str],
) -> ReportTable:
    """Return a table of the fastest methods with their speed-ups; a cell counts as measured if all its methods were.

    Args:
        rivals: where it is uncertain which method is fastest, the rival.
    """
    bases = find_baselines(found, compressors)
    guessed = {(one.workload, one.network, one.workers) for one in found if not one.is_measured}

    def make_figures(key: Key, one: Prediction) -> Figures:
        base, is_measured = bases.get(key), key not in guessed
        times = float(base.step.total / one.step.total) if base else None
        text = format_predicted(is_measured, one.method)
        if rival := rivals.get(key):
            why = CLOSE if rival.is_close else NO_INTERVAL
            text = f"{why} ({format_predicted(is_measured, rival.method)} {format_times(rival.times)})"
        elif times and compressors[one.method] != BASELINE:
            text += f" ({format_times(times)})"
        record = {"compressor": one.method, "over_none": times, **_make_record(one), "extrapolated": not is_measured}
        record |= {"too_close": bool(rival and rival.is_close), "no_interval": bool(rival and not rival.is_close)}
        return key[:2], one.workers, one.iterations_per_second, text, record

    return build_table_by_workers(
        "scaling_fastest",
        "Which compressor is predicted to be fastest, by workers",
        "it/s",
        ("workload", "network"),
        itertools.starmap(make_figures, find_winners(found).items()),
        [
            SAID,
            f"in brackets: times as fast as compressor={BASELINE}",
            _ABOUT_CLOSE,
            _ABOUT_NONE,
            NO_ACCURACY,
            *remarks,
        ],
    )


def build_break_even_table(found: Sequence[BreakEven], latency: str, remarks: Sequence[str]) -> ReportTable:
    """Return a table of the break-even bandwidths of all workloads."""
    return build_table_by_workers(
        "scaling_break_even",
        f"Bandwidths at which a compressor is predicted to beat compressor={BASELINE}, by workers",
        "bit/s",
        ("workload", "compressor"),
        (
            (
                (one.workload, one.method),
                one.workers,
                one.wins[-1][1] if one.wins else 0.0,
                format_ranges(one),
                {
                    "wins_bit_s": _join_ranges(one.wins),
                    "close_bit_s": _join_ranges(one.close),
                    "unknown_bit_s": _join_ranges(one.unknown),
                },
            )
            for one in found
        ),
        [
            f"all of it is predicted; nominal bit/s of Ethernet, and {latency} one way",
            "never, always: from 1 Mbit/s to 1 Tbit/s",
            f"{CLOSE}: the {format_percent(LEVEL)} interval of the speed-up contains 1",
            f"{NO_INTERVAL}: predicted to be faster, but the prediction has no interval, so it is not called a lead",
            NO_ACCURACY,
            *remarks,
        ],
    )


def _join_ranges(ranges: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{low:.4g}..{high:.4g}" for low, high in ranges)


def format_ranges(one: BreakEven) -> str:
    """Describe the bandwidths at which a method wins, and those at which it is uncertain whether it does."""

    def format_range(low: float, high: float) -> str:
        ends = [format_bandwidth(float(f"{end:.2g}")) if 0 < end < math.inf else "" for end in (low, high)]
        if all(ends):
            return " to ".join(ends)
        return f"below {ends[1]}" if ends[1] else f"above {ends[0]}" if ends[0] else "always"

    def join(ranges: Sequence[tuple[float, float]], word: str = "") -> str:
        told = ", ".join(format_range(*pair) for pair in ranges)
        return word if word and told == "always" else f"{word} {told}".strip() if told else ""

    said = (join(one.wins), join(one.close, CLOSE), join(one.unknown, NO_INTERVAL))
    return "; ".join(filter(None, said)) or "never"


def format_times(value: float) -> str:
    return f"{format_number(value)} x"


def build_needed_table(found: Sequence[Needed], remarks: Sequence[str]) -> ReportTable:
    """Return a table of the factors by which parts of losing methods would have to be faster to win."""

    def make_figures(one: Needed) -> Figures:
        factors = {"codec": one.codec, "payload": one.payload, "both": one.both}
        possible = [(value, what) for what, value in factors.items() if math.isfinite(value)]
        alone = [pair for pair in possible if pair[1] != "both"] or possible
        text = f"{min(alone)[1]} {format_times(min(alone)[0])}" if alone else "neither"
        record = {"winner": one.winner.method, **{what: keep_finite(value) for what, value in factors.items()}}
        return _get_names(one.prediction), one.prediction.workers, min(factors.values()), text, record

    return build_table_by_workers(
        "scaling_needed",
        "What would have to be faster for a compressor to win, by workers",
        "x",
        HEADERS,
        map(make_figures, found),
        [
            "codec: encoding and decoding together, so many times as fast as now; payload: messages so many times as "
            "short; both: each so many times; neither: not even both",
            "–: it wins",
            *remarks,
        ],
    )


def describe_closest(found: Sequence[Needed], rivals: Mapping[Key, Any]) -> list[str]:
    """Return for each network a sentence on the smallest change that would make another method the fastest.

    Numbers of workers for which it is uncertain which method is fastest are left out.
    """
    nearest: dict[tuple[str, str], tuple[float, str, Needed]] = {}
    for one in found:
        if (one.prediction.workload, one.prediction.network, one.prediction.workers) in rivals:
            continue
        ways = ((one.codec, "encoded and decoded {} times as fast"), (one.payload, "sent messages {} times as short"))
        for factor, way in ways:
            key = one.prediction.workload, one.prediction.network
            if math.isfinite(factor) and (key not in nearest or factor < nearest[key][0]):
                nearest[key] = factor, way, one
    said = []
    for (workload, network), (factor, way, one) in nearest.items():
        where = f"{f'{workload}, ' if workload else ''}{network}, {one.prediction.workers} workers"
        how = way.format(format_number(math.ceil(factor * 100) / 100))
        said.append(f"{spell_quantities(where)}: {one.prediction.method} would beat {one.winner.method} if it {how}")
    return said


def keep_finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def build_published_table(predictor: Predictor, found: Sequence[Prediction], links: Mapping[str, Links]) -> ReportTable:
    """Return a table of the predictions by the model of Agarwal et al. from the same measurements."""
    model = predictor.model
    compressors = predictor.measurements.compressors
    shown = [one for one in found if model.methods[one.workload, one.method].traffic.pattern == "lanes"]

    def make_figures(one: Prediction) -> Figures:
        traffic, where = model.methods[one.workload, one.method].traffic, (one.workers, links[one.network])
        if compressors[one.method] == BASELINE:
            size, backward = traffic.summed + traffic.gathered, one.alone * model.works[one.workload].backward
            theirs = agarwal.predict_uncompressed(one.alone, backward, size, *where)
        else:
            theirs = agarwal.predict_compressed(one.alone, one.step.encode + one.step.decode, traffic, *where)
        text = f"{EXTRAPOLATED}{format_number(1 / theirs)} ({theirs / one.step.total:.2f})"
        record = {"iterations_per_second": 1 / theirs, "step_s": theirs, "ours_s": float(one.step.total)}
        return _get_names(one), one.workers, 1 / theirs, text, record

    return build_table_by_workers(
        "scaling_published",
        "Throughput [it/s] by the model of Agarwal et al. (2022), by workers",
        "it/s",
        HEADERS,
        map(make_figures, shown),
        [
            "in brackets: their time of a step over ours; they let uncompressed gradients overlap with backward, and "
            "compressed ones never, and count no work of MPI itself"
        ],
    )
