"""Predictions, their intervals, and what follows from them."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from reports.scaling import agarwal, answers
from reports.scaling.answers import Map, break_even, needed, win_map, winners
from reports.scaling.networks import PAYLOAD_SHARE, Links, nominal
from reports.scaling.predict import Predictor
from reports.scaling.traffic import Traffic
from tests.reports.scaling import truth
from tests.reports.scaling.conftest import predictor_of

WORKERS = (2, 8, 64, 1024)


def test_efficiency_is_over_one_worker_alone(predictor: Predictor) -> None:
    (one,) = [
        one for one in predictor.predict([nominal("1gbit")], [8]) if one.method == "none"
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


def test_only_measured_networks_and_workers_are_no_extrapolation(predictor: Predictor) -> None:
    (links,) = [one for one in predictor.parts.networks if one.name == "ethernet_1g"]
    found = predictor.predict([links, nominal("1gbit")], [1, 2, 4, 8, 16])
    assert {(one.network, one.workers) for one in found if one.is_measured} == {("ethernet_1g", w) for w in (2, 4, 8)}
    assert [one.name for one in predictor.parts.networks] == ["ethernet_1g", "wan_100m"], "memory is no network"


def test_samples_of_a_worker_are_those_of_the_runs_or_as_asked(predictor: Predictor) -> None:
    more = dataclasses.replace(predictor, samples=64.0)
    assert predictor.samples_of("") == pytest.approx(32) and more.alone("") == pytest.approx(2 * predictor.alone(""))


def test_the_fastest_wins(predictor: Predictor) -> None:
    found = predictor.predict([nominal("1gbit"), nominal("100gbit")], WORKERS)
    for (_, network, workers), best in winners(found).items():
        rivals = [one.step.total for one in found if (one.network, one.workers) == (network, workers)]
        assert best.step.total == min(rivals)
    assert winners(found)["", "100gbit", 2].method == "none" != winners(found)["", "1gbit", 2].method


def test_below_its_break_even_bandwidth_a_method_wins_and_above_not(predictor: Predictor) -> None:
    shown = win_map(predictor, "", WORKERS, 50e-6)
    found = {(one.method, one.workers): one.bandwidth for one in break_even(shown, predictor.parts.compressors)}
    assert set(found) == {(method, workers) for method in truth.METHODS if method != "none" for workers in WORKERS}
    rate = found["qsgd", 2]
    for factor, wins in ((0.98, True), (1.02, False)):
        links = Links("", 50e-6, 8 / (rate * factor * PAYLOAD_SHARE))
        ours, dense = (predictor.step("", method, 2, links).total for method in ("qsgd", "none"))
        assert (ours < dense) == wins
    assert found["qsgd", 1024] == 0.0, "all get 1,024 messages of an eighth"
    assert math.isinf(found["powersgd", 64])


def test_break_even_by_hand() -> None:
    """b none: 1 + 8e9 / rate; m: 2 + 4e9 / rate: equal at 4 Gbit/s."""
    rates = np.geomspace(1e6, 1e12, 241)
    steps = np.stack([1 + 8e9 / rates, 2 + 4e9 / rates, 0.5 + 0 * rates, 3 + 9e9 / rates])[:, :, None]
    found = break_even(
        Map(rates, [2], ["none", "m", "free", "slow"], steps),
        dict.fromkeys(("m", "free", "slow"), "") | {"none": "none"},
    )
    assert [one.bandwidth for one in found] == [pytest.approx(4e9, rel=0.01), math.inf, 0.0]
    assert break_even(Map(rates, [2], ["m"], steps[1:2]), {"m": "m"}) == []


def test_what_is_needed_is_just_enough(predictor: Predictor) -> None:
    links = {one.name: one for one in (nominal("10gbit"), nominal("infiniband"))}
    predictions = predictor.predict(list(links.values()), [8, 64])
    found = needed(predictor, predictions, links)
    best = {(network, workers): one.method for (_, network, workers), one in winners(predictions).items()}
    losers = [one for one in predictions if one.method not in ("none", best[one.network, one.workers])]
    assert [one.prediction for one in found] == losers and "none" in best.values()
    finite = 0
    for one in found:
        ours, goal = one.prediction, one.winner.step.total
        for name, factor in (("codec", one.codec), ("payload", one.payload)):
            if math.isinf(factor):
                step = predictor.step("", ours.method, ours.workers, links[ours.network], **{name: 1e-4})
                assert step.total > goal
                continue
            finite += 1
            for times, wins in ((1.01, True), (0.99, False)):
                changed = {name: 1 / (factor * times)}
                step = predictor.step("", ours.method, ours.workers, links[ours.network], **changed)
                assert (step.total <= goal) == wins
        assert one.both <= min(one.codec, one.payload) * 1.001
    assert finite >= 2


def test_best_algorithms_are_never_slower(measured: Path, predictor: Predictor) -> None:
    best = predictor_of(measured, best=True)
    links = nominal("10gbit")
    for method in truth.METHODS:
        assert best.step("", method, 1024, links).total <= predictor.step("", method, 1024, links).total
    assert best.step("", "powersgd", 1024, links).total < 0.9 * predictor.step("", "powersgd", 1024, links).total
    shown = win_map(best, "", [64], 50e-6, points=7)
    assert shown.steps.shape == (5, 7, 1) and (shown.steps[:, -1] <= shown.steps[:, 0]).all()


def test_the_model_of_agarwal_et_al_by_hand() -> None:
    """8 workers, 10 us, 1 ns a byte; 60 MiB: two buckets of 25 MiB, and a last one of 10."""
    links, mib = Links("", 1e-5, 1e-9), 2**20
    ring = 7 * 1e-5 + 2 * 25 * mib * 7 / 8 * 1e-9
    last = 7 * 1e-5 + 2 * 10 * mib * 7 / 8 * 1e-9
    assert agarwal.uncompressed(0.1, 0.01, 60 * mib, 8, links) == pytest.approx(0.09 + 2 * ring + last)
    assert agarwal.uncompressed(0.5, 0.4, 60 * mib, 8, links) == pytest.approx(0.1 + 1.05 * 0.4 + last)
    assert agarwal.uncompressed(0.1, 0.01, 50 * mib, 8, links) == pytest.approx(0.09 + ring + ring)
    gathered = Traffic("lanes", gathered=1e6)
    assert agarwal.compressed(0.1, 0.02, gathered, 8, links) == pytest.approx(0.12 + 7 * 1e-5 + 7e-3)
    factors = Traffic("lanes", summed=1e6, rounds=2)
    assert agarwal.compressed(0.1, 0.02, factors, 8, links) == pytest.approx(0.12 + 14 * 1e-5 + 2 * 7 / 8 * 1e-3)


def test_map_covers_all_bandwidths_that_are_told() -> None:
    assert answers.SLOWEST_BIT_S <= 1e8 and answers.FASTEST_BIT_S >= 4e11
