"""What a run's network is measured to be before the first step, and when that is marked."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradsweep.options import units
from tests.trainers.start_ranks import run_ranks
from trainers.network import links
from trainers.network.links import PAYLOAD, Expected, Links
from trainers.options.networks import NETWORKS, Emulated

AS_IT_SHOULD = Links(200e-6, 0.95e9, 0.95e9, 0.4, 0.3, 2)
LATENCY = units.seconds("200us")
GIGABIT = Expected(LATENCY, PAYLOAD * 1e9, PAYLOAD * 1e9)


@pytest.mark.mpi
@pytest.mark.parametrize(("workers", "hosts"), [(1, 1), (2, 1), (2, 2), (3, 3), (4, 2)])
def test_links_are_measured(workers: int, hosts: int) -> None:
    run_ranks(workers, "measured", str(hosts), module="tests.trainers.ranks.links")


@pytest.mark.mpi
def test_what_is_off_is_measured_again() -> None:
    run_ranks(2, "again", module="tests.trainers.ranks.links")


@pytest.mark.parametrize(
    ("hosts", "ends"),
    [("a", [0]), ("aa", [0, 1]), ("aaaa", [0, 1]), ("abc", [0, 1, 2]), ("aabb", [0, 2]), ("abab", [0, 1])],
)
def test_the_first_rank_of_each_host_is_measured(hosts: str, ends: list[int]) -> None:
    assert links.choose_ends(hosts) == ends


def test_an_emulated_network_promises_what_its_options_say() -> None:
    network = NETWORKS["ethernet_1g"]()
    assert links.compute_expected(network, 4, None) == GIGABIT
    assert links.compute_expected(network, 4, {"latency_s": 200e-6}) == links.compute_expected(network, 4, None)
    without = Expected(None, PAYLOAD * 1e9, PAYLOAD * 1e9)
    assert links.compute_expected(network, 4, {"latency_s": None}) == without
    assert links.compute_expected(network, 4, {"latency_s": 200e-6, "own": {"host1": {"latency_s": None}}}) == without
    for name in ("none", "real"):
        assert links.compute_expected(NETWORKS[name](), 4, None) is None
    assert links.compute_expected(network, 1, None) is None  # its ranks talk over no link


def test_single_hosts_promise_what_is_their_own() -> None:
    hosts = {1: {"latency": "400us"}, 2: {"bandwidth": "100mbit"}, 9: {"bandwidth": "10mbit"}}
    found = links.compute_expected(Emulated("1gbit", "200us", hosts=hosts), 3, None)
    assert found == Expected(pytest.approx(300e-6), PAYLOAD * 1e9, PAYLOAD * 1e8)  # of the first two, of the slowest


@pytest.mark.parametrize(("changes", "missing"), [({"latency": "0s"}, "latency_s"), ({"loss": 0.01}, "bandwidth")])
def test_nothing_is_promised_that_is_not_known(changes: dict[str, Any], missing: str) -> None:
    found = links.compute_expected(Emulated(**changes), 2, None)
    assert found is not None and getattr(found, missing) is None
    assert links.find_marks(dataclasses.replace(AS_IT_SHOULD, **{missing: 1.0}), found) == []


@pytest.mark.parametrize(
    ("changes", "marks"),
    [
        ({}, []),
        ({"latency_s": 219e-6}, []),
        ({"latency_s": 221e-6}, ["latency"]),
        ({"latency_s": 150e-6}, ["latency"]),
        ({"bandwidth": 0.85e9}, ["bandwidth"]),
        ({"bandwidth": 1.1e9, "busy_cores": 2.0}, ["bandwidth"]),  # faster than it should be: no core was waited for
        ({"ring_bandwidth": 0.8e9}, ["bandwidth"]),
        ({"ring_bandwidth": 0.8e9, "busy_cores": 1.7}, ["bandwidth", "cpu"]),
        ({"ring_bandwidth": 0.8e9, "busiest_core": 0.95}, ["bandwidth", "cpu"]),
        ({"ring_bandwidth": 0.8e9, "busy_cores": None, "busiest_core": None, "cores": None}, ["bandwidth"]),
        ({"busy_cores": 2.0, "busiest_core": 1.0}, []),
        ({"latency_s": 5e-3, "busy_cores": 2.0}, ["latency"]),
    ],
)
def test_what_is_off_by_more_than_ten_per_cent_is_marked(changes: dict[str, Any], marks: list[str]) -> None:
    assert links.find_marks(dataclasses.replace(AS_IT_SHOULD, **changes), GIGABIT) == marks
    assert links.find_marks(dataclasses.replace(AS_IT_SHOULD, **changes), None) == []


def test_a_container_s_share_of_the_cores_can_be_the_limit() -> None:
    """Two of 64 cores' time are all that a run may have."""
    slow = dataclasses.replace(AS_IT_SHOULD, ring_bandwidth=0.8e9, busy_cores=1.9, busiest_core=0.1, cores=64)
    assert links.find_marks(slow, GIGABIT) == ["bandwidth"]
    assert links.find_marks(slow, GIGABIT, 2.0) == ["bandwidth", "cpu"]
    built = {"latency_s": 2e-4, "cores": 2.0}
    assert links.describe(NETWORKS["ethernet_1g"](), 2, slow, built)["marks"] == ["bandwidth", "cpu"]


def test_the_file_says_all_of_it() -> None:
    slow = dataclasses.replace(AS_IT_SHOULD, ring_bandwidth=1e8)
    found = json.loads(json.dumps(links.describe(NETWORKS["ethernet_1g"](), 2, slow, {"latency_s": 2e-4})))
    assert found["network"] == {"name": "ethernet_1g", **dataclasses.asdict(NETWORKS["ethernet_1g"]())}
    assert found["measured"]["ring_bandwidth"] == 1e8 and found["expected"]["latency_s"] == LATENCY
    assert found["hosts"] == 2 and found["marks"] == ["bandwidth"] and found["emulation"] == {"latency_s": 2e-4}
    alone = links.describe(NETWORKS["real"](), 1, None, None)
    assert alone["measured"] is alone["expected"] is alone["emulation"] is None and alone["marks"] == []


@pytest.mark.parametrize(
    ("rate", "latency", "chunk", "count"),
    [(125e6, 0.0, int(125e6 * 0.3 / 64), 65), (1e3, 0.0, 1024, 16), (12.5e9, 0.0, 1 << 20, 3577)],
)
def test_more_is_sent_where_more_can_be(rate: float, latency: float, chunk: int, count: int) -> None:
    assert links._plan_chunks(rate, latency) == (chunk, count)
    assert np.prod(links._plan_chunks(rate, 0.1)) >= rate * 0.8


def test_single_looks_that_are_late_change_little() -> None:
    times = np.arange(48) / 100
    assert links._rate(times) == pytest.approx(100)
    times[0] += 0.02
    times[-1] += 0.02
    assert links._rate(times) == pytest.approx(100, rel=0.01)


def test_busy_cores_are_those_of_the_machine() -> None:
    before = links._core_times()
    assert len(before) > 0 and all(0 <= busy <= total for busy, total in before)
    assert links._count_busy([(5.0, 10.0), (0.0, 10.0)], [(10.0, 15.0), (1.0, 15.0)]) == (pytest.approx(1.2), 1.0, 2)
    assert links._count_busy([], []) == (None, None, None)


@pytest.mark.mpi
@pytest.mark.parametrize("network", ["real", "none"])
def test_a_run_keeps_what_was_measured_before_its_first_step(network: str, tmp_path: Path) -> None:
    run_ranks(2, "trained", network, str(tmp_path), module="tests.trainers.ranks.links")
    result = json.loads((tmp_path / "result.json").read_text())
    path = tmp_path / "network.json"
    if network == "none":
        assert "network" not in result and not path.exists()
        return
    assert result["network"] == json.loads(path.read_text()) and result["network"]["network"] == {"name": "real"}
    assert result["network"]["measured"]["latency_s"] > 0


def test_a_lucky_message_does_not_plan_terabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take less than the median of small ones does."""
    monkeypatch.setattr(links, "_ask", lambda comm, peer, message, answer: 2.5e-3)
    assert links._estimate(None, 1, latency=1.5e-3) <= 10 * (4 << 20) / 2.5e-3  # type: ignore[arg-type]
