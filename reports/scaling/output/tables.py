"""Build the tables of `python -m reports scaling`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from gradsweep.options.units import format_bandwidth
from reports.analysis.table import ReportTable, TableCell, TableColumn, make_text_cell
from reports.reading.text import format_number
from reports.scaling.measured.links import Links
from reports.scaling.model import agarwal
from reports.scaling.model.break_even import BASELINE, BreakEven, Needed, find_baselines, find_winners
from reports.scaling.model.predict import LEVEL, Prediction, Predictor

EXTRAPOLATED = "~"
"""The mark before a value that was not measured under just these circumstances."""
TOPIC = "Scaling"

SAID = (
    f"{EXTRAPOLATED}: predicted: another network, or other workers or samples than were measured, or workers that "
    "shared cores or a host in the runs (what these took is in scaling_check)"
)
_OWN = "every worker has cores and a host of its own, and as many samples a step whatever their number (weak scaling)"
NO_ACCURACY = "about the time of a step; what a method does to the accuracy is not in it"
INTERVALS = f"in brackets {LEVEL:.0%} intervals of predictions (jackknife+ over the cells left out)"


class _HasWorkers(Protocol):
    """An object that belongs into the column of a number of workers."""

    @property
    def workers(self) -> int: ...


T = TypeVar("T", bound=_HasWorkers)


def build_table_by_workers(
    name: str,
    title: str,
    unit: str,
    headers: Sequence[str],
    found: Sequence[T],
    of: Callable[[T], Sequence[str]],
    cell: Callable[[T], tuple[float, str]],
    record: Callable[[T], Mapping[str, Any]],
    remarks: Sequence[str],
) -> ReportTable:
    """Return a table with a row for each tuple of `of`, and a column for each number of workers.

    A tuple has as many words as `headers`. `cell` returns the value and the text of each; `record` what programs read
    besides.
    """
    counts = sorted({one.workers for one in found})
    rows: dict[tuple[str, ...], dict[int, TableCell]] = {}
    records = []
    for one in found:
        names = tuple(of(one))
        value, text = cell(one)
        rows.setdefault(names, {})[one.workers] = TableCell(value, text)
        records.append({**dict(zip(headers, names, strict=True)), "workers": one.workers, **record(one)})
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
            (*(make_text_cell(names[place]) for place in keep), *(row.get(count, empty) for count in counts))
            for names, row in rows.items()
        ),
        remarks=tuple(remarks),
        records=tuple(records),
        topic=TOPIC,
    )


HEADERS = ("workload", "network", "compressor")


def _get_names(one: Prediction) -> tuple[str, str, str]:
    return one.workload, one.network, one.method


def _mark_prediction(one: Prediction) -> str:
    return "" if one.is_measured else EXTRAPOLATED


def _make_record(one: Prediction) -> dict[str, Any]:
    """Return a prediction for programs."""
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
        said = f"{_mark_prediction(one)}{format_number(one.iterations_per_second)}"
        return (
            said if math.isnan(one.low) else f"{said} ({format_number(1 / one.high)} to {format_number(1 / one.low)})"
        )

    return build_table_by_workers(
        "scaling_throughput",
        "Predicted throughput [it/s] by workers",
        "it/s",
        HEADERS,
        found,
        _get_names,
        lambda one: (one.iterations_per_second, text(one)),
        _make_record,
        [SAID, INTERVALS, _OWN, *remarks],
    )


def build_efficiency_table(found: Sequence[Prediction], remarks: Sequence[str]) -> ReportTable:
    return build_table_by_workers(
        "scaling_efficiency",
        "Predicted efficiency [%] by workers",
        "fraction",
        HEADERS,
        found,
        _get_names,
        lambda one: (one.efficiency, f"{_mark_prediction(one)}{format_number(100 * one.efficiency)}"),
        _make_record,
        [SAID, "samples/s over W times those of one worker alone, who sends nothing, as fitted", _OWN, *remarks],
    )


def build_fastest_table(
    found: Sequence[Prediction], compressors: Mapping[str, str], remarks: Sequence[str]
) -> ReportTable:
    """Return a table of the fastest methods with their speed-ups; measured only where all methods were."""
    bases = find_baselines(found, compressors)
    guessed = {(one.workload, one.network, one.workers) for one in found if not one.is_measured}

    def gain(one: Prediction) -> float | None:
        base = bases.get((one.workload, one.network, one.workers))
        return float(base.step.total / one.step.total) if base else None

    def is_guess(one: Prediction) -> bool:
        return (one.workload, one.network, one.workers) in guessed

    def text(one: Prediction) -> str:
        times = gain(one)
        is_told = compressors[one.method] != BASELINE and times is not None
        return f"{EXTRAPOLATED if is_guess(one) else ''}{one.method}" + (
            f" ({format_times(times)})" if is_told and times else ""
        )

    return build_table_by_workers(
        "scaling_fastest",
        "Which compressor is predicted to be fastest, by workers",
        "it/s",
        ("workload", "network"),
        list(find_winners(found).values()),
        lambda one: (one.workload, one.network),
        lambda one: (one.iterations_per_second, text(one)),
        lambda one: {
            "compressor": one.method,
            "over_none": gain(one),
            **_make_record(one),
            "extrapolated": is_guess(one),
        },
        [SAID, f"in brackets: times as fast as compressor={BASELINE}", NO_ACCURACY, *remarks],
    )


def build_break_even_table(found: Sequence[BreakEven], latency: str, remarks: Sequence[str]) -> ReportTable:
    """Return a table of the break-even bandwidths of all workloads."""
    return build_table_by_workers(
        "scaling_break_even",
        f"Bandwidths at which a compressor is predicted to beat compressor={BASELINE}, by workers",
        "bit/s",
        ("workload", "compressor"),
        found,
        lambda one: (one.workload, one.method),
        lambda one: (one.wins[-1][1] if one.wins else 0.0, format_ranges(one)),
        lambda one: {"wins_bit_s": " ".join(f"{low:.4g}..{high:.4g}" for low, high in one.wins)},
        [
            f"all of it is predicted; nominal bit/s of Ethernet, and {latency} one way",
            "never, always: from 1 Mbit/s to 1 Tbit/s",
            NO_ACCURACY,
            *remarks,
        ],
    )


def format_ranges(one: BreakEven) -> str:
    """Describe the bandwidths at which a method wins."""

    def format_range(low: float, high: float) -> str:
        ends = [format_bandwidth(float(f"{end:.2g}")) if 0 < end < math.inf else "" for end in (low, high)]
        if all(ends):
            return " to ".join(ends)
        return f"below {ends[1]}" if ends[1] else f"above {ends[0]}" if ends[0] else "always"

    return ", ".join(format_range(*pair) for pair in one.wins) or "never"


def format_times(value: float) -> str:
    return f"{format_number(value)} x"


def build_needed_table(found: Sequence[Needed], remarks: Sequence[str]) -> ReportTable:
    """Return a table of what would have to be faster for a method to win where it does not."""

    def text(one: Needed) -> str:
        choices = [("codec", one.codec), ("payload", one.payload), ("both", one.both)]
        possible = [(value, what) for what, value in choices if math.isfinite(value)]
        alone = [pair for pair in possible if pair[1] != "both"] or possible
        return f"{min(alone)[1]} {format_times(min(alone)[0])}" if alone else "neither"

    return build_table_by_workers(
        "scaling_needed",
        "What would have to be faster for a compressor to win, by workers",
        "x",
        HEADERS,
        found,
        lambda one: _get_names(one.prediction),
        lambda one: (min(one.codec, one.payload, one.both), text(one)),
        lambda one: {
            "winner": one.winner.method,
            "codec": keep_finite(one.codec),
            "payload": keep_finite(one.payload),
            "both": keep_finite(one.both),
        },
        [
            "codec: encoding and decoding together, so many times as fast as now; payload: messages so many times as "
            "short; both: each so many times; neither: not even both",
            "–: it wins",
            *remarks,
        ],
    )


def describe_closest(found: Sequence[Needed]) -> list[str]:
    """Return for each network a sentence on what is nearest to changing the answer."""
    nearest: dict[tuple[str, str], tuple[float, str, Needed]] = {}
    for one in found:
        ways = ((one.codec, "encoded and decoded {} times as fast"), (one.payload, "sent messages {} times as short"))
        for factor, way in ways:
            key = one.prediction.workload, one.prediction.network
            if math.isfinite(factor) and (key not in nearest or factor < nearest[key][0]):
                nearest[key] = factor, way, one
    said = []
    for (workload, network), (factor, way, one) in nearest.items():
        where = f"{f'{workload}, ' if workload else ''}{network}, {one.prediction.workers} workers"
        times = format_number(math.ceil(factor * 100) / 100)
        said.append(f"{where}: {one.prediction.method} would beat {one.winner.method} if it {way.format(times)}")
    return said


def keep_finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def build_published_table(predictor: Predictor, found: Sequence[Prediction], links: Mapping[str, Links]) -> ReportTable:
    """Return a table of what the model of Agarwal et al. predicts from the same measurements."""
    model = predictor.model
    compressors = predictor.measurements.compressors
    shown = [one for one in found if model.methods[one.workload, one.method].traffic.pattern == "lanes"]

    def theirs(one: Prediction) -> float:
        work, traffic = model.works[one.workload], model.methods[one.workload, one.method].traffic
        compute = one.alone
        if compressors[one.method] == BASELINE:
            size = traffic.summed + traffic.gathered
            return agarwal.predict_uncompressed(compute, compute * work.backward, size, one.workers, links[one.network])
        return agarwal.predict_compressed(
            compute, one.step.encode + one.step.decode, traffic, one.workers, links[one.network]
        )

    return build_table_by_workers(
        "scaling_published",
        "Throughput [it/s] by the model of Agarwal et al. (2022), by workers",
        "it/s",
        HEADERS,
        shown,
        _get_names,
        lambda one: (
            1 / theirs(one),
            f"{EXTRAPOLATED}{format_number(1 / theirs(one))} ({theirs(one) / one.step.total:.2f})",
        ),
        lambda one: {"iterations_per_second": 1 / theirs(one), "step_s": theirs(one), "ours_s": float(one.step.total)},
        [
            "in brackets: their time of a step over ours; they let uncompressed gradients overlap with backward, and "
            "compressed ones never, and count no work of MPI itself"
        ],
    )
