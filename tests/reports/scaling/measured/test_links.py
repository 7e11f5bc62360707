"""Networks and numbers of workers as they are typed, and as a probe has written them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradsweep import files
from gradsweep.errors import UsageError
from gradsweep.options.units import bits_per_second, seconds
from reports.scaling.measured.links import NOMINAL, parse_network, parse_networks, parse_workers
from trainers.options.networks import NETWORKS, Emulated


def test_a_bandwidth_is_what_frames_leave_of_it() -> None:
    links = parse_network("10gbit")
    assert links.bandwidth == pytest.approx(10e9 * 1448 / 1514) and 0 < links.alpha < 1e-3
    assert (
        parse_network("1gbit").alpha
        >= links.alpha
        >= parse_network("100gbit").alpha
        >= parse_network("infiniband").alpha
    )
    assert parse_network("1gbit", 0.003).alpha == 0.003


def test_names_are_those_of_the_networks_that_runs_can_have() -> None:
    emulated = {name: network() for name, network in NETWORKS.items() if issubclass(network, Emulated)}
    assert NOMINAL.keys() & emulated.keys() == emulated.keys() - {"emulated"}
    for name in NOMINAL.keys() & emulated.keys():
        rate, latency, *_ = NOMINAL[name]
        assert rate == bits_per_second(emulated[name].bandwidth)
        assert latency == pytest.approx(seconds(emulated[name].latency))


@pytest.mark.parametrize("word", ["10", "0gbit", "-1gbit", "fast", "1kbit", "100tbit", "nangbit"])
def test_what_is_no_network_is_told_in_one_line(word: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--network={word}: valid is infiniband, ")):
        parse_networks(f"1gbit,{word}", None, None)


@pytest.mark.parametrize("latency", ["10s", "5", "-1ms", "soon"])
def test_what_is_no_latency_is_told_in_one_line(latency: str) -> None:
    with pytest.raises(UsageError, match=f"--latency={latency}: valid is a one-way time"):
        parse_networks("1gbit", latency, None)


def test_each_network_is_there_once_and_a_probe_first(tmp_path: Path) -> None:
    path = tmp_path / "network.json"
    measured = {"latency_s": 4e-5, "bandwidth": 9e8, "ring_bandwidth": 8e8}
    files.write_json(path, {"format": 1, "kind": "probe", "network": {"name": "real"}, "measured": measured})
    found = parse_networks("1gbit,10gbit,1gbit", "1ms", path)
    assert [one.name for one in found] == ["probe (real)", "1gbit", "10gbit"]
    assert found[0].alpha == 4e-5 and found[0].bandwidth == pytest.approx(8e8) and found[1].alpha == 1e-3


@pytest.mark.parametrize(
    "content",
    [{}, {"measured": None}, {"measured": {"latency_s": 0, "bandwidth": 1e9}}, {"measured": {"latency_s": 1}}],
)
def test_a_probe_without_figures_is_refused(tmp_path: Path, content: dict[str, object]) -> None:
    path = tmp_path / "network.json"
    files.write_json(path, content)
    with pytest.raises(UsageError, match=r"--probe .*network.json: no latency and bandwidth in it"):
        parse_networks("1gbit", None, path)
    with pytest.raises(UsageError, match=r"--probe .*absent.json: no such file"):
        parse_networks("1gbit", None, tmp_path / "absent.json")


def test_workers_as_typed() -> None:
    assert parse_workers("2..1024") == [2**power for power in range(1, 11)]
    assert parse_workers("3..20,5") == [3, 4, 5, 8, 16, 20] and parse_workers("7") == [7]


@pytest.mark.parametrize("typed", ["0..4", "2..", "8..2", "many", "1..2..3", "", "2,,4", "2..4000000", "²"])
def test_what_are_no_workers_is_told_in_one_line(typed: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--workers={typed}: valid is ")):
        parse_workers(typed)
