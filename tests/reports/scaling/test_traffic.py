"""What a step sends, as it is found in the bytes that runs have counted."""

from __future__ import annotations

import math

import pytest

import compressors
from compressors.base import Cooperative
from reports.scaling import traffic
from reports.scaling.collectives import cost
from reports.scaling.traffic import EAGER, PART, Counted, Traffic, of_runs
from trainers.sizes import allreduce_bytes

MIB = 2.0**20


def lanes(compressor: str, exchange: str, *counted: Counted) -> Traffic:
    found = of_runs(compressor, exchange, counted)
    assert isinstance(found, Traffic)
    return found


@pytest.mark.parametrize("workers", [3, 4, 8, 16])
def test_shares_of_what_is_summed_and_what_is_gathered_follow_from_the_bytes(workers: int) -> None:
    summed, gathered = 3e6, 5e5
    sent = allreduce_bytes(int(summed / 4), 4, workers) + (workers - 1) * gathered
    found = lanes("new", "mixed", Counted(2, 3.5e6, 3.5e6), Counted(workers, 3.5e6, sent))
    assert found.summed == pytest.approx(summed) and found.gathered == pytest.approx(gathered)


def test_of_two_workers_the_name_tells() -> None:
    two = Counted(2, 1e6, 1e6)
    assert lanes("none", "auto", two).summed == 1e6 and lanes("qsgd", "auto", two).gathered == 1e6
    assert lanes("none", "allgather", two).gathered == 1e6 and lanes("qsgd", "allreduce", two).summed == 1e6


def test_lists_of_compressors_are_those_of_the_package() -> None:
    for name, kind in compressors.registry().items():
        one = kind()
        is_cooperative = isinstance(one, Cooperative) and name != "gtopk"
        assert (name in traffic.SUMMED) == (one.sum_dtype is not None or is_cooperative), name
        is_sized = one.payload_size((64, 64)) is None and name != "gtopk"
        assert (name in traffic.SIZED) == is_sized, name
        assert name not in traffic.AGREEING or kind.needs_agreement is not compressors.Compressor.needs_agreement
    known = compressors.registry().keys()
    assert traffic.SUMMED | traffic.SIZED | traffic.AGREEING | traffic.ROUNDS.keys() <= known


def test_large_messages_leave_in_parts_and_ask_first() -> None:
    found = Traffic("lanes", summed=44e6).demand(4)
    parts = math.ceil(44e6 / PART)
    assert found.parts == parts and found.messages == 6 * parts
    assert 44e6 / parts / 4 > EAGER and found.latencies == 3 * found.messages
    assert found.bytes == pytest.approx(cost("allreduce", "ring", 44e6, 4).bytes)
    assert Traffic("lanes", summed=44e6).demand(64).latencies == 126 * parts, "shorter messages need not ask"


def test_sizes_and_rounds_and_agreements_are_collectives_of_their_own() -> None:
    plain = Traffic("lanes", gathered=1e4).demand(8)
    assert Traffic("lanes", gathered=1e4, is_sized=True).demand(8).messages == 2 * plain.messages
    assert Traffic("lanes", summed=1e4, rounds=2).demand(8).parts == 2
    assert Traffic("lanes", gathered=1e4, agrees=True).demand(8).parts == 2


def test_a_sum_of_fewer_floats_than_workers_is_no_ring() -> None:
    assert Traffic("lanes", summed=512.0).demand(128).messages == 254
    assert Traffic("lanes", summed=508.0).demand(128).messages == 7


def test_the_fastest_algorithm_depends_on_the_links() -> None:
    small, large = Traffic("lanes", summed=8e3), Traffic("lanes", summed=1e6)
    assert small.demand(1024, 1e-3, 1e-9).messages == 10 < small.demand(1024).messages
    assert large.demand(1024, 1e-6, 1e-9).bytes < 2e6, "not recursive doubling, which sends it ten times"


def test_patterns_of_other_exchanges() -> None:
    sharded = of_runs("qsgd", "sharded", [Counted(4, 1e6, 1e6 * 3 / 4 + 3 / 4 * 2e6)])
    assert isinstance(sharded, Traffic) and sharded.answered == pytest.approx(2e6) and sharded.payloads(8) == 1
    assert sharded.demand(4).bytes == pytest.approx(3 / 4 * 3e6)
    ring = of_runs("topk", "gossip", [Counted(8, 1e5, 2e5)], degree=2.0)
    assert isinstance(ring, Traffic) and ring.demand(8) == ring.demand(1024) and ring.payloads(1024) == 3
    assert ring.demand(8).bytes == 2e5
    swaps = of_runs("gtopk", "allreduce", [Counted(8, 3e4, 3e4)])
    assert isinstance(swaps, Traffic) and swaps.pattern == "swaps"
    assert swaps.demand(1024).bytes == pytest.approx(10 * 1e4) and swaps.demand(12).messages == 5
    local = of_runs("none", "allreduce", [Counted(8, 1e4, 2 * 7 / 8 * 1e4)], every=8)
    assert isinstance(local, Traffic) and local.demand(8).messages == 14 / 8
    assert local.demand(8).bytes == pytest.approx(2 * 7 / 8 * 1e4)


@pytest.mark.parametrize("exchange", ["hierarchical", "parameter_server"])
def test_what_is_not_modelled_says_so(exchange: str) -> None:
    assert "not in the cost model" in str(of_runs("none", exchange, [Counted(4, 1e6, 1e6)]))
    assert "no run of it with two workers" in str(of_runs("none", "auto", [Counted(1, 1e6, 0.0)]))
