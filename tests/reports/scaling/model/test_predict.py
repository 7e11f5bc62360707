"""Predictions, their intervals, and what follows from them."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reports.scaling.measured.links import PAYLOAD_SHARE, Links, parse_network
from reports.scaling.measured.traffic import Traffic
from reports.scaling.model import agarwal
from reports.scaling.model import break_even as answers
from reports.scaling.model.break_even import (
    BreakEven,
    WinMap,
    compute_win_map,
    find_break_even,
    find_needed,
    find_winners,
)
from reports.scaling.model.predict import Predictor
from reports.scaling.output import pictures, speedup, speedup_picture, tables
from reports.scaling.output.remarks import explain_other_latencies, write_notes
from reports.scaling.output.speedup import Speedup, compute_speedups, find_rivals
from tests.reports.scaling import truth
from tests.reports.scaling.conftest import predictor_of

WORKERS = (2, 8, 64, 1024)


def test_efficiency_is_over_one_worker_alone(predictor: Predictor) -> None:
    (one,) = [
        one for one in predictor.predict([parse_network("1gbit")], [8]) if one.method == "none"
    ]  # weak scaling: global samples/s over 8 times those of one
    alone = sum(truth.phases("none", 1, None, 32.0)[phase] for phase in ("data", "forward", "backward", "update"))
    assert one.alone == pytest.approx(alone, rel=0.05)
    assert one.efficiency == pytest.approx(one.alone / one.step.total) and one.efficiency < 0.5


def test_intervals_hold_the_truth(predictor: Predictor) -> None:
    networks = [Links("a", 1e-4, 8e-9), Links("b", 1e-3, 8e-8)]
    inside: list[bool] = []
    widths: dict[int, list[float]] = {}
    for one in predictor.predict(networks, WORKERS):
        links = {link.name: link for link in networks}[one.network]
        rate = links.bandwidth * 1514 / 1448
        real = truth.step_s(one.method, one.workers, (rate, links.alpha), 32.0, cores=None)
        inside.append(one.low <= real <= one.high)
        assert one.low <= one.step.total <= one.high
        widths.setdefault(one.workers, []).append(math.log(one.high / one.low))
    assert np.mean(inside) > 0.85 and min(widths[2]) > 0.0
    assert len(inside) == 2 * 5 * len(WORKERS)


def measured_of(predictor: Predictor) -> set[tuple[str, str, int]]:
    found = predictor.predict([*predictor.measurements.networks, parse_network("1gbit")], [1, 2, 3, 4, 8, 16])
    return {(one.method, one.network, one.workers) for one in found if one.is_measured}


def test_only_what_was_run_just_so_is_told_as_measured(predictor: Predictor) -> None:
    """4 and 8 workers had shared the two cores."""
    assert measured_of(predictor) == {
        (name, links, 2) for name in truth.METHODS for links in ("ethernet_1g", "wan_100m")
    }
    assert [one.name for one in predictor.measurements.networks] == ["ethernet_1g", "wan_100m"], "memory is no network"
    found = predictor.predict(predictor.measurements.networks, [2])
    by_key = {(cell.method, cell.network, cell.workers): cell for cell in predictor.measurements.cells}
    for one in found:
        cell = by_key[one.method, one.network, 2]
        assert one.step.total == pytest.approx(cell.step_s) and one.step.communicate == cell.communicate_s
        assert math.isnan(one.low) and one.step.total != predictor.predict_step("", one.method, 2, cell.links).total


def with_cells(predictor: Predictor, *methods: str, **changed: Any) -> Predictor:
    """With something changed in the cells of these methods, or of all."""
    cells = [
        cell if methods and cell.method not in methods else dataclasses.replace(cell, **changed)
        for cell in predictor.measurements.cells
    ]
    return dataclasses.replace(predictor, measurements=dataclasses.replace(predictor.measurements, cells=cells))


def test_other_circumstances_are_a_prediction(predictor: Predictor) -> None:
    own_cores = with_cells(predictor, load=1.0)
    assert {workers for *_, workers in measured_of(own_cores)} == {2, 4, 8}, "not 3, though it is between them"
    assert measured_of(dataclasses.replace(own_cores, samples=33.0)) == measured_of(own_cores)
    assert not measured_of(dataclasses.replace(own_cores, samples=6400.0))
    assert not measured_of(dataclasses.replace(own_cores, best=True))
    limited = measured_of(with_cells(own_cores, "none", "qsgd", is_fair=False))
    assert {method for method, *_ in limited} == {"topk", "powersgd", "sign"}
    assert not measured_of(with_cells(own_cores, hosts=1)), "several workers of a host share its link"
    named_alike = dataclasses.replace(own_cores.measurements.networks[0], beta=1e-9)
    assert not any(one.is_measured for one in own_cores.predict([named_alike], [2]))


def test_with_a_global_batch_only_the_fewest_workers_have_the_samples_that_are_predicted(tmp_path: Path) -> None:
    sweep = truth.sweep(tmp_path / "a" / "b", methods=["none"], networks=["ethernet_1g"], global_batch=128, noise=0.01)
    assert {workers for *_, workers in measured_of(with_cells(predictor_of(sweep), load=1.0))} == {2}


def test_without_a_measured_network_there_are_no_intervals(tmp_path: Path) -> None:
    sweep = truth.sweep(tmp_path / "a" / "b", networks=["none"])
    found = predictor_of(sweep)
    assert all(
        math.isnan(one.low) and math.isnan(one.high) for one in found.predict([parse_network("wan_100m")], [1024])
    )
    assert any("run some of it with network=ethernet_1g" in line for line in write_notes(found, []))


def test_networks_that_were_measured_with_one_number_of_workers_only_are_told(predictor: Predictor) -> None:
    def said(of: Predictor) -> bool:
        return any(line.startswith("only runs with 2 workers have measured a network") for line in write_notes(of, []))

    cells = [
        cell if cell.workers == 2 or not cell.links.beta else dataclasses.replace(cell, is_fair=False)
        for cell in predictor.measurements.cells
    ]
    one_count = dataclasses.replace(predictor, measurements=dataclasses.replace(predictor.measurements, cells=cells))
    assert said(one_count) and not said(predictor)


def test_samples_of_a_worker_are_those_of_the_runs_or_as_asked(predictor: Predictor) -> None:
    more = dataclasses.replace(predictor, samples=64.0)
    assert predictor.get_samples("") == pytest.approx(32) and more.predict_alone("") == pytest.approx(
        2 * predictor.predict_alone("")
    )


def speedups_of(predictor: Predictor, networks: list[Links], workers: tuple[int, ...]) -> list[Speedup]:
    found = predictor.predict(networks, workers)
    return compute_speedups(predictor, found, {links.name: links for links in networks})


def test_times_as_fast_as_none_hold_the_truth(predictor: Predictor) -> None:
    networks = [Links("a", 1e-4, 8e-9), Links("b", 1e-3, 8e-8)]
    found = speedups_of(predictor, networks, WORKERS)
    assert len(found) == 2 * 4 * len(WORKERS) and not any(one.is_measured or one.method == "none" for one in found)
    inside = []
    for one in found:
        links = {link.name: link for link in networks}[one.network]
        there = links.bandwidth * 1514 / 1448, links.alpha
        none, own = (truth.step_s(name, one.workers, there, 32.0, cores=None) for name in ("none", one.method))
        assert one.times == pytest.approx(none / own, rel=0.12) and one.low <= one.times <= one.high
        inside.append(one.low <= none / own <= one.high)
    assert np.mean(inside) > 0.85


def test_times_as_fast_are_measured_where_both_were(predictor: Predictor) -> None:
    own_cores = with_cells(predictor, load=1.0)
    found = speedups_of(own_cores, list(own_cores.measurements.networks), (2, 3))
    assert all(one.is_measured == (one.workers == 2) == math.isnan(one.low) for one in found)
    by_key = {(cell.method, cell.network, cell.workers): cell.step_s for cell in own_cores.measurements.cells}
    for one in found:
        if one.workers == 2:
            pair = [by_key[name, one.network, 2] for name in ("none", one.method)]
            assert one.times == pytest.approx(pair[0] / pair[1])
    without = with_cells(own_cores, "none", is_fair=False)
    assert not any(one.is_measured for one in speedups_of(without, list(own_cores.measurements.networks), (2,)))


def test_without_anything_to_compare_with_there_are_no_times(tmp_path: Path) -> None:
    methods = ["qsgd", "topk"]
    found = predictor_of(truth.sweep(tmp_path / "a" / "b", methods=methods, networks=["ethernet_1g"]))
    assert speedups_of(found, [parse_network("1gbit")], (2, 8)) == []
    assert speedup_picture.plot_speedups([], found.check) is None
    found = predictor_of(truth.sweep(tmp_path / "a" / "c", methods=["none", *methods], networks=["none"]))
    assert all(math.isnan(one.low) for one in speedups_of(found, [parse_network("1gbit")], (2, 8)))


@pytest.mark.parametrize(("networks", "workloads", "panels"), [(1, 1, 1), (4, 2, 8), (5, 2, 10)])
def test_a_panel_for_each_network_and_workload(
    predictor: Predictor, networks: int, workloads: int, panels: int
) -> None:
    found = [
        dataclasses.replace(one, workload=f"model {row}", network=f"network {column}")
        for one in speedups_of(predictor, [parse_network("1gbit")], (2, 8))
        for row in range(workloads)
        for column in range(networks)
        if (row, one.method) != (1, "qsgd")  # not all workloads have all methods
    ]
    plot = speedup_picture.plot_speedups(found, predictor.check)
    assert plot is not None and len(plot.figure.axes) == panels
    assert sum(axis.get_xlabel() == "workers" for axis in plot.figure.axes) == min(networks, 4)
    assert "cells left out one by one" in plot.figure.legends[0].get_title().get_text()
    assert "model 0 network 0 qsgd" in plot.alt


def test_the_fastest_wins(predictor: Predictor) -> None:
    found = predictor.predict([parse_network("1gbit"), parse_network("100gbit")], WORKERS)
    for (_, network, workers), best in find_winners(found).items():
        rivals = [one.step.total for one in found if (one.network, one.workers) == (network, workers)]
        assert best.step.total == min(rivals)
    assert find_winners(found)["", "100gbit", 2].method == "none" != find_winners(found)["", "1gbit", 2].method


def test_below_its_break_even_bandwidth_a_method_wins_and_above_not(predictor: Predictor) -> None:
    shown = compute_win_map(predictor, "", WORKERS, parse_network("1gbit", 50e-6))
    shown = dataclasses.replace(shown, low=np.full_like(shown.low, math.nan))  # the predictions without their intervals
    found = {(one.method, one.workers): one.unknown for one in find_break_even(shown)}
    assert set(found) == {(method, workers) for method in truth.METHODS if method != "none" for workers in WORKERS}
    ((low, rate),) = found["qsgd", 2]
    assert low == 0.0
    for factor, wins in ((0.98, True), (1.02, False)):
        links = Links("", 50e-6, 8 / (rate * factor * PAYLOAD_SHARE))
        ours, dense = (predictor.predict_step("", method, 2, links).total for method in ("qsgd", "none"))
        assert (ours < dense) == wins
    assert not found["qsgd", 1024], "all get 1,024 messages of an eighth"
    assert found["powersgd", 64] == ((0.0, math.inf),)


def make_map(rates: Any, workers: int, methods: list[str], steps: Any) -> WinMap:
    """A map whose predictions are exact: the intervals of speed-ups over `none` have no width."""
    bases = [place for place, method in enumerate(methods) if method == "none"]
    base = steps[bases].min(axis=0) if bases else np.full(steps.shape[1:], np.nan)
    times = base / steps
    times[bases] = np.nan
    return WinMap(rates, [workers], methods, steps, times, times, bases)


def test_break_even_by_hand() -> None:
    """b none: 1 + 8e9 / rate; m: 2 + 4e9 / rate: equal at 4 Gbit/s."""
    rates = np.geomspace(1e6, 1e12, 241)
    steps = np.stack([1 + 8e9 / rates, 2 + 4e9 / rates, 0.5 + 0 * rates, 3 + 9e9 / rates])[:, :, None]
    found = find_break_even(make_map(rates, 2, ["none", "m", "free", "slow"], steps))
    assert [one.wins for one in found] == [((0.0, pytest.approx(4e9, rel=0.01)),), ((0.0, math.inf),), ()]
    assert [tables.format_ranges(one) for one in found] == ["below 4gbit", "always", "never"]
    assert find_break_even(make_map(rates, 2, ["m"], steps[1:2])) == []


def test_a_lead_without_an_interval_is_not_called_one() -> None:
    """m wins below 4 Gbit/s, but its interval is known below 100 Mbit/s only; `free` always wins, without one."""
    rates = np.geomspace(1e6, 1e12, 241)
    steps = np.stack([1 + 8e9 / rates, 2 + 4e9 / rates, 0.5 + 0 * rates])[:, :, None]
    shown = make_map(rates, 2, ["none", "m", "free"], steps)
    low = shown.low.copy()
    low[1, rates > 1.01e8] = low[2] = np.nan
    found = find_break_even(dataclasses.replace(shown, low=low))
    assert [tables.format_ranges(one) for one in found] == [
        "below 100mbit; no interval 110mbit to 4gbit",
        "no interval",
    ]
    _, record = tables.build_break_even_table(found, "50us", ()).records
    assert (record["compressor"], record["wins_bit_s"], record["unknown_bit_s"]) == ("free", "", "0..inf")
    shown = dataclasses.replace(make_map(rates, 2, ["none", "m"], steps[:2]), low=low[:2])
    is_pale = shown.has_no_interval | shown.is_close
    assert (is_pale[:, 0] == (rates > 1.01e8)).all(), "also from 4 Gbit/s on, where `none` leads"
    bars = pictures.plot_break_even("", found, "50us")
    assert bars is not None and "free: no interval with 2" in bars.alt
    assert "pale: no interval" in [text.get_text() for text in bars.figure.legends[0].get_texts()]


def test_a_method_may_pay_on_fast_networks_only_or_between_two_bandwidths() -> None:
    """none: 3 s and 88 MB; fewer waits and more bytes are equal at 2.95 Gbit/s: 2.2 s for 812 MB."""
    rates = np.geomspace(1e6, 1e12, 241)
    dense, gathered = 3 + 8 * 88e6 / rates, 0.8 + 8 * 900e6 / rates
    between = np.where((rates > 1e8) & (rates < 1e10), 0.5 * dense, 2 * dense)
    steps = np.stack([dense, gathered, between])[:, :, None]
    found = find_break_even(make_map(rates, 64, ["none", "topk", "b"], steps), "w")
    ((above, last),), ((first, below),) = (one.wins for one in found)
    assert above == pytest.approx(8 * 812e6 / 2.2, rel=0.01) and last == math.inf
    assert first == pytest.approx(1e8, rel=0.06) and below == pytest.approx(1e10, rel=0.06)
    assert tables.format_ranges(found[0]).startswith("above ") and " to " in tables.format_ranges(found[1])
    table = tables.build_break_even_table(found, "50us", ())
    assert str(table.records[0]["wins_bit_s"]).endswith("..inf")
    bars = pictures.plot_break_even("w", found, "50us")
    assert bars is not None and "topk: above 3 Gbit/s with 64" in bars.alt
    assert pictures.plot_break_even("", found, "") is None


def test_the_map_is_all_predicted_with_dots_where_something_was_measured_at_its_latency(predictor: Predictor) -> None:
    links = predictor.measurements.networks
    predictions = predictor.predict(links, WORKERS)
    assert pictures.find_measured_points(predictions, links, 50e-6) == {}, "ethernet_1g has 220 us, wan_100m 10 ms"
    dots = pictures.find_measured_points(predictions, links, 10e-3)
    ((workers, rate),) = dots[""]
    assert workers == 2 and rate == pytest.approx(1e8)
    drawn = pictures.plot_win_map(
        "", compute_win_map(predictor, "", WORKERS, parse_network("1gbit", 10e-3)), dots[""], links, "10ms"
    )
    (axis,) = drawn.figure.axes
    (box,) = [patch.get_path().transformed(patch.get_patch_transform()) for patch in axis.patches if patch.get_hatch()]
    assert tuple(box.get_extents().intervalx) == axis.get_xlim()
    assert any(line.get_marker() == "o" and np.array_equal(line.get_xdata(), [0]) for line in axis.lines)
    (said,) = explain_other_latencies([*links, parse_network("infiniband", 10e-3)], 10e-3)
    assert said.endswith(": ethernet_1g 220us")


def test_the_fastest_is_measured_only_where_its_rivals_were_too(predictor: Predictor) -> None:
    found = predictor.predict(predictor.measurements.networks, [2])
    (row, _) = tables.build_fastest_table(found, predictor.measurements.compressors, {}, ()).rows
    assert not row[1].text.startswith("~")
    best = find_winners(found)["", "ethernet_1g", 2]
    doubtful = [one if one.method == best.method else dataclasses.replace(one, is_measured=False) for one in found]
    (row, _) = tables.build_fastest_table(doubtful, predictor.measurements.compressors, {}, ()).rows
    assert row[1].text == f"~{best.method}" or row[1].text.startswith(f"~{best.method} (")


def test_a_lead_whose_interval_contains_1_is_not_called_one(predictor: Predictor) -> None:
    names = (f"{rate}mbit" for rate in (1000, 2000, 3000, 5000, 7000, 10_000, 14_000, 20_000, 30_000, 100_000))
    links = {name: parse_network(name) for name in names}
    compressors = predictor.measurements.compressors
    predictions = predictor.predict(list(links.values()), WORKERS)
    times = compute_speedups(predictor, predictions, links)
    close = find_rivals(times, predictions, compressors)
    winners = find_winners(predictions)
    by_key = {(one.workload, one.network, one.workers, one.method): one for one in times}
    assert 0 < len(close) < len(winners)
    for key, best in winners.items():
        rivals = [one for (*where, method), one in by_key.items() if tuple(where) == key and one.low <= 1 <= one.high]
        if compressors[best.method] == "none":
            assert (key in close) == bool(rivals)
        else:
            assert (key in close) == (best.method in {one.method for one in rivals})
    told = {key: tables.Rival(one.method, one.times, one.is_close) for key, one in close.items()}
    table = tables.build_fastest_table(predictions, compressors, told, ())
    for record in table.records:
        assert record["too_close"] == (("", record["network"], record["workers"]) in close)
    texts = [cell.text for row in table.rows for cell in row[1:]]
    assert sum(text.startswith("too close to tell (~") for text in texts) == len(close)
    missing = find_needed(predictor, predictions, links)
    assert all(
        f", {key[2]} workers: " not in said
        for key in close
        for said in tables.describe_closest(missing, close)
        if f"{key[1]}, " in said
    )


def test_the_fastest_without_an_interval_is_not_called_so(predictor: Predictor) -> None:
    """Of measured steps that did not race, and of predictions without a measured network."""
    compressors = predictor.measurements.compressors
    links = {name: parse_network(name) for name in ("100mbit", "100gbit")}
    predictions = predictor.predict(list(links.values()), [2])
    times = [
        dataclasses.replace(one, low=math.nan, high=math.nan) for one in compute_speedups(predictor, predictions, links)
    ]
    rivals = find_rivals(times, predictions, compressors)
    winners = find_winners(predictions)
    assert compressors[winners["", "100gbit", 2].method] == "none" != compressors[winners["", "100mbit", 2].method]
    assert rivals["", "100mbit", 2].method == winners["", "100mbit", 2].method and len(rivals) == 2
    told = {key: tables.Rival(one.method, one.times, one.is_close) for key, one in rivals.items()}
    table = tables.build_fastest_table(predictions, compressors, told, ())
    assert all(row[1].text.startswith("no interval (~") for row in table.rows)
    assert [(row["too_close"], row["no_interval"]) for row in table.records] == [(False, True)] * 2
    known = [one if one.network == "100mbit" else dataclasses.replace(one, low=0.1, high=0.2) for one in times]
    assert list(find_rivals(known, predictions, compressors)) == [("", "100mbit", 2)]


def test_each_interval_has_its_level(predictor: Predictor) -> None:
    """Those of predictions are of 90 %, those of races of 95 %."""
    one = Speedup("", "qsgd", 2, "1gbit", 1.2, 1.1, 1.3, False)
    every = [one, dataclasses.replace(one, workers=4, is_measured=True)]
    every.append(dataclasses.replace(every[1], workers=8, low=math.nan, high=math.nan))
    table = speedup.build_table(every, ())
    assert [row["interval_level"] for row in table.records] == [0.9, 0.95, None]
    assert any(
        "90 % intervals of predictions" in note and "95 % intervals of their race" in note for note in table.notes
    )
    found = predictor.predict(predictor.measurements.networks, [2])
    (note,) = [
        note
        for note in tables.build_fastest_table(found, predictor.measurements.compressors, {}, ()).notes
        if note.startswith("too close to tell: ")
    ]
    assert "predicted: 90 %" in note and "of a race: 95 %" in note


def test_intervals_decide_where_a_method_wins(predictor: Predictor) -> None:
    shown = compute_win_map(predictor, "", WORKERS, parse_network("1gbit", 50e-6), points=31)
    methods = list(shown.methods)
    none = methods.index("none")
    assert np.isnan(shown.low[none]).all() and np.isfinite(np.delete(shown.low, none, axis=0)).all()
    gain = shown.steps[none] / shown.steps
    rest = [place for place in range(len(methods)) if place != none]
    assert (shown.low[rest] <= gain[rest]).all() and (gain[rest] <= shown.high[rest]).all()
    links = Links("", 50e-6, 8 / (float(shown.bandwidths[12]) * PAYLOAD_SHARE))
    by_name = {"": links}
    for one in compute_speedups(predictor, predictor.predict([links], WORKERS), by_name):
        place = methods.index(one.method), 12, list(WORKERS).index(one.workers)
        assert (one.low, one.high) == pytest.approx((shown.low[place], shown.high[place]))
    assert shown.is_close.any() and not shown.is_close.all()
    for one in find_break_even(shown):
        column, place = list(WORKERS).index(one.workers), methods.index(one.method)
        for rate, low, high in zip(
            shown.bandwidths, shown.low[place, :, column], shown.high[place, :, column], strict=True
        ):
            assert any(start <= rate <= end for start, end in one.wins) == (low > 1)
            assert any(start <= rate <= end for start, end in one.close) == (low < 1 < high)
    plot = pictures.plot_win_map("", shown, set(), [], "50us")
    assert "too close to tell" in " ".join(text.get_text() for text in plot.figure.legends[0].get_texts())
    opacity = plot.figure.axes[0].collections[0].get_alpha()
    assert ((opacity < 0.5) == shown.is_close).all()
    one = BreakEven("", "m", 2, ((0.0, 1e8),), ((1e8, 1e9),))
    assert tables.format_ranges(one) == "below 100mbit; too close to tell 100mbit to 1gbit"
    never = dataclasses.replace(one, wins=(), close=((0.0, math.inf),))
    assert tables.format_ranges(never) == "too close to tell"


def test_what_is_needed_of_a_measured_step_counts_from_what_was_measured(predictor: Predictor) -> None:
    links = {one.name: one for one in predictor.measurements.networks}
    predictions = predictor.predict(list(links.values()), [2])
    for one in find_needed(predictor, predictions, links):
        assert one.both > 1.0 and one.prediction.is_measured, "though the model may say that it is as fast already"
        if math.isfinite(one.both):
            changed = {"codec": 1 / one.both, "payload": 1 / one.both}
            place = "", one.prediction.method, 2, links[one.prediction.network]
            gain = predictor.predict_step(*place).total / predictor.predict_step(*place, **changed).total  # type: ignore[arg-type]
            assert gain == pytest.approx(one.prediction.step.total / one.winner.step.total, rel=0.01)


def test_what_is_needed_is_just_enough(predictor: Predictor) -> None:
    links = {one.name: one for one in (parse_network("10gbit"), parse_network("infiniband"))}
    predictions = predictor.predict(list(links.values()), [8, 64])
    found = find_needed(predictor, predictions, links)
    best = {(network, workers): one.method for (_, network, workers), one in find_winners(predictions).items()}
    losers = [one for one in predictions if one.method not in ("none", best[one.network, one.workers])]
    assert [one.prediction for one in found] == losers and "none" in best.values()
    finite = 0
    for one in found:
        ours, goal = one.prediction, one.winner.step.total
        for name, factor in (("codec", one.codec), ("payload", one.payload)):
            if math.isinf(factor):
                step = predictor.predict_step("", ours.method, ours.workers, links[ours.network], **{name: 1e-4})
                assert step.total > goal
                continue
            finite += 1
            for times, wins in ((1.01, True), (0.99, False)):
                changed = {name: 1 / (factor * times)}
                step = predictor.predict_step("", ours.method, ours.workers, links[ours.network], **changed)
                assert (step.total <= goal) == wins
        assert one.both <= min(one.codec, one.payload) * 1.001
    assert finite >= 2


def test_best_algorithms_are_never_slower(measured: Path, predictor: Predictor) -> None:
    best = predictor_of(measured, best=True)
    links = parse_network("10gbit")
    for method in truth.METHODS:
        assert best.predict_step("", method, 1024, links).total <= predictor.predict_step("", method, 1024, links).total
    assert (
        best.predict_step("", "powersgd", 1024, links).total
        < 0.9 * predictor.predict_step("", "powersgd", 1024, links).total
    )
    shown = compute_win_map(best, "", [64], parse_network("1gbit", 50e-6), points=7)
    assert shown.steps.shape == (5, 7, 1) and (shown.steps[:, -1] <= shown.steps[:, 0]).all()


def test_the_model_of_agarwal_et_al_by_hand() -> None:
    """8 workers, 10 us, 1 ns a byte; 60 MiB: two buckets of 25 MiB, and a last one of 10."""
    links, mib = Links("", 1e-5, 1e-9), 2**20
    ring = 7 * 1e-5 + 2 * 25 * mib * 7 / 8 * 1e-9
    last = 7 * 1e-5 + 2 * 10 * mib * 7 / 8 * 1e-9
    assert agarwal.predict_uncompressed(0.1, 0.01, 60 * mib, 8, links) == pytest.approx(0.09 + 2 * ring + last)
    assert agarwal.predict_uncompressed(0.5, 0.4, 60 * mib, 8, links) == pytest.approx(0.1 + 1.05 * 0.4 + last)
    assert agarwal.predict_uncompressed(0.1, 0.01, 50 * mib, 8, links) == pytest.approx(0.09 + ring + ring)
    gathered = Traffic("lanes", gathered=1e6)
    assert agarwal.predict_compressed(0.1, 0.02, gathered, 8, links) == pytest.approx(0.12 + 7 * 1e-5 + 7e-3)
    factors = Traffic("lanes", summed=1e6, rounds=2)
    assert agarwal.predict_compressed(0.1, 0.02, factors, 8, links) == pytest.approx(
        0.12 + 14 * 1e-5 + 2 * 7 / 8 * 1e-3
    )


def test_map_covers_all_bandwidths_that_are_told() -> None:
    assert answers.SLOWEST_BIT_S <= 1e8 and answers.FASTEST_BIT_S >= 4e11
