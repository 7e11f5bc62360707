"""Advice on which methods are worth it: for a model that was measured, or for that of a sweep."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from gradsweep.options.units import spell_quantities
from gradsweep.text import plural
from reports.advise.predict import Estimate, Forecast
from reports.reading.text import format_number, format_percent, join_words, shorten_list
from reports.scaling.measured.links import LARGEST, Links
from reports.scaling.measured.traffic import compute_demand
from reports.scaling.model import break_even
from reports.scaling.model.break_even import BASELINE, BreakEven
from reports.scaling.model.predict import LEVEL, Prediction, Predictor
from reports.scaling.output.speedup import compute_speedups
from reports.scaling.output.tables import CLOSE, INTERVALS, NO_INTERVAL

WORTH, NOT_WORTH = "worth it", "not worth it"
LEAST = 1.03
"""Times as fast below which a method is not called worth it, however sure it is."""
_MOST_WORKERS = 1024
_INTERVALS = (
    f"in brackets {format_percent(LEVEL)} intervals: the measured rounds drawn again (bootstrap), and figures of "
    "network and model as uncertain as docs/guide/advise.md says"
)
_SETTING = "the baseline has its fastest setting (overlap, parts, algorithm of sums), the others have their defaults"


@dataclasses.dataclass(frozen=True)
class Advice:
    """The prediction for one method. Unknown values are NaN or empty.

    Attributes:
        step: seconds of a step.
        times: as fast as the fastest baseline; of the baseline itself 1.
        sent_bytes: of a worker in a step; `memory_bytes`: of the method on a worker.
        state: what a worker keeps from step to step.
        needs: what its accuracy needs; `reported`: what others report of it.
        pays: the bandwidths at which it is faster than the baseline, with the same latency; None for the baseline.
        workers: the numbers of workers, of `counts`, with which it is certainly faster on this network.
    """

    method: str
    memory: str
    step: Estimate
    times: Estimate
    sent_bytes: float
    memory_bytes: float
    state: str
    needs: str
    reported: str
    paper: str
    pays: BreakEven | None
    workers: Sequence[int]

    @property
    def is_baseline(self) -> bool:
        return self.pays is None

    @property
    def verdict(self) -> str:
        """Whether the method is worth it; empty for the baseline."""
        if self.is_baseline:
            return ""
        if math.isnan(self.times.low):
            return NO_INTERVAL
        if self.times.low > 1 and self.times.value >= LEAST:
            return WORTH
        return NOT_WORTH if self.times.high < 1 else CLOSE


@dataclasses.dataclass(frozen=True)
class AdviceList:
    """The advice on all methods, the fastest first, for so many workers on one network.

    Attributes:
        counts: the numbers of workers that were tried for `Advice.workers`.
        subject: what was measured, in words.
        warning: a line if other programs have disturbed the measurement, else empty.
        notes: for the reader, a line each.
    """

    rows: Sequence[Advice]
    workers: int
    links: Links
    counts: Sequence[int]
    subject: str
    warning: str
    notes: Sequence[str]

    @property
    def others(self) -> list[Advice]:
        """The methods that compress, the fastest first."""
        return [one for one in self.rows if not one.is_baseline]

    @property
    def worthy(self) -> list[Advice]:
        """The methods that are worth it, the fastest first."""
        return [one for one in self.others if one.verdict == WORTH]

    @property
    def headline(self) -> str:
        """A sentence on the fastest method that is worth it, or on the fastest of all if none is."""
        where = f"on {spell_quantities(self.links.name)} with {plural(self.workers, 'worker')}"
        first = next(iter(self.worthy or self.others), None)
        if first is None:
            return f"nothing is compared {where}: valid is runs of more compressors than {BASELINE}"
        if math.isnan(first.times.value):
            return f"nothing is known of who is worth it {where}: no run has compressor={BASELINE}"
        times = f"{format_estimate(first.times)} times as fast as the best uncompressed exchange"
        if not self.worthy:
            verdict = "" if first.verdict == NOT_WORTH else f": {first.verdict}"
            return f"no compressor is worth it {where}; the fastest, {first.method}, is {times}{verdict}"
        is_fastest = "the fastest" if first is self.others[0] else "the fastest that is certainly worth it"
        rest = shorten_list([f"{one.method} ({format_number(one.times.value)})" for one in self.worthy[1:]], 3)
        return f"{first.method} is {is_fastest} {where}: {times}" + (f"; then {join_words(rest)}" if rest else "")

    @property
    def about_accuracy(self) -> str:
        """A sentence on the accuracy of the method of the headline; empty if no method is worth it."""
        first = next(iter(self.worthy), None)
        if first is None or not first.needs:
            return ""
        reported = f"; reported (without compression): {first.reported}" if first.reported else ""
        return f"its accuracy is not predicted: {first.needs}{reported}"


def list_counts(workers: int) -> list[int]:
    """Return the numbers of workers to try: powers of two from 2, and `workers`."""
    powers = [2**power for power in range(1, int(math.log2(LARGEST)) + 1)]
    return sorted({workers, *(count for count in powers if count <= max(_MOST_WORKERS, workers))})


def format_estimate(one: Estimate) -> str:
    """Return a value with its interval in brackets, if it has one."""
    text = format_number(one.value)
    return text if math.isnan(one.low) else f"{text} ({format_number(one.low)} to {format_number(one.high)})"


def advise(forecast: Forecast, workers: int, links: Links, notes: Sequence[str], subject: str) -> AdviceList:
    """Return the advice by a forecast."""
    counts = list_counts(workers)
    evens = forecast.find_break_even(workers, links)
    rows = []
    for one in forecast.measured.methods:
        is_base = one.name == BASELINE
        rows.append(
            Advice(
                method=one.name,
                memory=one.memory,
                step=forecast.predict_step(one.name, workers, links),
                times=Estimate(1.0, 1.0, 1.0) if is_base else forecast.predict_times(one.name, workers, links),
                sent_bytes=forecast.count_sent_bytes(one.name, workers),
                memory_bytes=one.compute_memory(workers),
                state=one.state,
                needs=one.needs,
                reported=one.reported,
                paper=one.paper.removeprefix("-"),
                pays=None if is_base else evens[one.name],
                workers=[] if is_base else forecast.find_winning_workers(one.name, counts, links),
            )
        )
    told = [*notes, _INTERVALS, _SETTING]
    return AdviceList(_sort(rows), workers, links, counts, subject, forecast.measured.disturbed, told)


def advise_by_runs(predictor: Predictor, workload: str, workers: int, links: Links) -> AdviceList:
    """Return the advice by the finished runs of a sweep, of which a cost model was fitted."""
    parts, counts = predictor.measurements, list_counts(workers)
    compressors, by_name = parts.compressors, {links.name: links}
    predictions = [one for one in predictor.predict([links], counts) if one.workload == workload]
    times = {
        (one.method, one.workers): Estimate(one.times, one.low, one.high)
        for one in compute_speedups(predictor, predictions, by_name)
    }
    win_map = break_even.compute_win_map(predictor, workload, [workers], links)
    evens = {one.method: one for one in break_even.find_break_even(win_map, workload)}
    rows = []
    for one in predictions:
        if one.workers != workers:
            continue
        is_base = compressors[one.method] == BASELINE
        traffic = predictor.model.methods[workload, one.method].traffic
        rows.append(
            Advice(
                method=one.method,
                memory="",
                step=Estimate(float(one.step.total), one.low, one.high),
                times=Estimate(1.0, 1.0, 1.0) if is_base else times.get((one.method, workers), _UNKNOWN),
                sent_bytes=compute_demand(traffic.count_calls(workers), workers).bytes,
                memory_bytes=math.nan,
                state="",
                needs="",
                reported="",
                paper="",
                pays=None if is_base else evens.get(one.method, BreakEven(workload, one.method, workers, ())),
                workers=[count for count in counts if times.get((one.method, count), _UNKNOWN).low > 1],
            )
        )
    return AdviceList(_sort(rows), workers, links, counts, _describe_runs(predictions, workload), "", [INTERVALS])


_UNKNOWN = Estimate(math.nan, math.nan, math.nan)


def _describe_runs(predictions: Sequence[Prediction], workload: str) -> str:
    measured = sum(one.is_measured for one in predictions)
    said = f", of {workload}" if workload else ""
    return f"by the finished runs{said}" + (f"; {measured} of these steps were measured" if measured else "")


def _sort(rows: Sequence[Advice]) -> list[Advice]:
    return sorted(rows, key=lambda one: one.step.value)


def format_counts(one: Advice, counts: Sequence[int]) -> str:
    """Return the numbers of workers with which a method is certainly faster, as ranges: `2 to 64`, `from 256 up`."""
    if not one.workers:
        return "none"
    texts = []
    for wins, group in itertools.groupby(counts, key=lambda count: count in one.workers):
        there = list(group)
        first, last = there[0], there[-1]
        if wins and last == counts[-1]:
            texts.append("all" if first == counts[0] else f"from {first} up")
        elif wins:
            texts.append(f"{first}" if first == last else f"{first} to {last}")
    return ", ".join(texts)
