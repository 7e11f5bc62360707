"""`python -m reports simulate`, as a user types it."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from gradsweep.options import units
from reports.__main__ import main
from reports.commands import simulate as command
from reports.scaling.measured import traffic
from reports.scaling.measured.links import parse_network
from reports.scaling.output import simulated, simulated_picture
from reports.scaling.simulator import Cluster, Compute, Link, exchanges, schedules
from reports.scaling.simulator.exchanges import EXCHANGES, SimulatedTraining
from reports.scaling.simulator.planning import PlannedRound
from tests.reports.scaling.closed_forms import compute_time


def records(directory: Path, *typed: str) -> list[dict[str, str]]:
    assert main(["simulate", "--into", str(directory), "--format", "csv", *typed]) == 0
    with open(directory / "simulated.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_says_what_the_closed_form_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["--workers", "4,16", "--network", "1gbit,10gbit", "--bytes", "10MB", "--stragglers", "0"]
    typed += ["--part", "none", "--eager", "none"]
    found = records(tmp_path, *typed, "--compute", "50ms", "--encode", "3ms", "--decode", "4ms", "--update", "1ms")
    assert [(one["network"], one["workers"]) for one in found] == [
        (network, workers) for network in ("1gbit", "10gbit") for workers in ("4", "16")
    ]
    for one in found:
        links = parse_network(one["network"])
        ring = compute_time("allreduce", "ring", 10e6, int(one["workers"]), links.alpha, links.beta)
        assert float(one["mean_s"]) == pytest.approx(0.058 + ring)
        assert float(one["efficiency"]) == pytest.approx(0.051 / (0.058 + ring))
        assert float(one["exchange_share"]) == pytest.approx(ring / (0.058 + ring))
        assert float(one["straggler_share"]) == pytest.approx(0, abs=1e-9)
    out = capsys.readouterr().out
    assert "Simulated steps" in out and "≈" not in out


SIZES = ("100KB", "5MB", "44MB")
AS_TRAINED = {"ring": ("fp16", "allreduce"), "allgather": ("qsgd", "allgather"), "gossip_ring": ("qsgd", "gossip")}
"""Compressors and exchanges of training, of which `reports scaling` finds the traffic in what two workers have sent."""


@pytest.mark.parametrize("exchange", AS_TRAINED)
def test_unless_told_otherwise_it_simulates_what_the_cost_model_of_training_says(tmp_path: Path, exchange: str) -> None:
    """In parts as the exchange posts them, long ones announced: `reports scaling` and `reports simulate` agree."""
    networks_ = ("100mbit", "10gbit", "infiniband")
    for size in SIZES:
        typed = ["--workers", "2,3,8,96,1024", "--network", ",".join(networks_), "--exchange", exchange]
        for one in records(tmp_path, *typed, "--bytes", size, "--stragglers", "0", "--steps", "1"):
            links = parse_network(one["network"])
            n = units.byte_count(size)
            found = traffic.infer_traffic(*AS_TRAINED[exchange], [traffic.CountedTraffic(2, n, n)], degree=2)
            assert isinstance(found, traffic.Traffic)
            asked = traffic.compute_demand(found.count_calls(int(one["workers"])), int(one["workers"]))
            expected = links.alpha * asked.latencies + links.beta * asked.bytes
            assert float(one["mean_s"]) - 0.1 == pytest.approx(expected, rel=0.01), one


def test_a_thousand_workers_wait_for_the_latencies_of_all_parts(tmp_path: Path) -> None:
    """44 MB are 28 parts, each a ring of 2,046 messages; of 4 MB a ring's messages are too short to be announced."""
    typed = ["--workers", "1024", "--bytes", "44MB", "--stragglers", "0", "--latency", "1ms", "--network", "10tbit"]
    for option, rings in (("none", 1), ("4MB", 11), ("1.5MiB", 28)):
        (found,) = records(tmp_path, *typed, "--part", option, "--steps", "1")
        assert float(found["mean_s"]) == pytest.approx(0.1 + rings * 2.046, rel=1e-3)
    typed[1] = "8"
    for option, latencies in (("none", 1), ("1KiB", 3), ("1MB", 1)):
        (found,) = records(tmp_path, *typed, "--eager", option, "--steps", "1")
        assert float(found["mean_s"]) == pytest.approx(0.1 + latencies * 28 * 0.014, rel=1e-2)


def test_parts_of_long_messages_are_not_played_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = []
    after = PlannedRound.advance
    monkeypatch.setattr(PlannedRound, "advance", lambda one, times: played.append(1) or after(one, times))
    typed = ["--workers", "12", "--bytes", "40GB", "--per-node", "3", "--exchange", "ring,doubling,hierarchical"]
    found = records(tmp_path, *typed, "--steps", "1")
    assert len(found) == 3 and 0 < len(played) < 2000  # of 25,432 parts


def test_the_picture_says_in_words_what_it_shows(tmp_path: Path) -> None:
    records(tmp_path, "--workers", "2,8", "--exchange", "ring,gossip_ring", "--network", "1gbit,10gbit")
    assert (tmp_path / "simulated_efficiency.png").read_bytes().startswith(b"\x89PNG")
    exact = simulated.SimulatedSteps("1gbit", "ring", 8, 0.2, 0.3, 0.25, 0.4, 0.1, 0.1, exact=True)
    found = [exact, dataclasses.replace(exact, exchange="server", efficiency=0.123, exact=False)]
    plot = simulated_picture.plot_efficiency(found)
    assert plot.alt == "Simulated efficiency by workers; with 8 workers: 1 Gbit/s, ring: 40 %; 1 Gbit/s, server: 12 %."
    marks = [line for line in plot.figure.axes[0].lines if line.get_marker() != "None"]
    assert [line.get_markerfacecolor() == line.get_color() for line in marks] == [True, False]
    assert [line.get_ydata()[0] for line in marks] == pytest.approx([40, 12.3])


def test_stragglers_and_slow_workers_cost_what_they_cost(tmp_path: Path) -> None:
    (slow,) = records(
        tmp_path, "--workers", "8", "--stragglers", "0", "--slow", "3", "--bytes", "0B", "--latency", "0s"
    )
    assert float(slow["mean_s"]) == pytest.approx(0.3)
    assert float(slow["straggler_share"]) == pytest.approx(2 / 3)
    one, other = (records(tmp_path, "--workers", "8", "--stragglers", "0.3", "--seed", seed) for seed in "12")
    assert 0 < float(one[0]["straggler_share"]) < 0.6 and float(one[0]["p90_s"]) > float(one[0]["median_s"])
    assert one != other
    assert one == records(tmp_path, "--workers", "8", "--stragglers", "0.3", "--seed", "1")


@pytest.mark.parametrize(
    ("text", "found"),
    [("44MB", 44e6), ("64 KiB", 65536.0), ("8B", 8.0), ("1.5gb", 1.5e9), ("44", None), ("-1MB", None), ("1mbit", None)],
)
def test_sizes_have_units(text: str, found: float | None) -> None:
    assert units.byte_count(text) == found


def test_every_exchange_can_be_typed(tmp_path: Path) -> None:
    assert tuple(EXCHANGES) == command._EXCHANGES
    typed = ["--workers", "1,8", "--exchange", ",".join(EXCHANGES), "--per-node", "4", "--steps", "3"]
    found = records(tmp_path, *typed)
    assert [one["exchange"] for one in found] == [name for name in EXCHANGES for _ in range(2)]
    times = {one["exchange"]: float(one["mean_s"]) for one in found if one["workers"] == "8"}
    assert times["gossip_one_peer"] < times["gossip_exponential"]
    assert times["ring"] < times["allgather"] < times["server"]


def test_a_simulation_that_is_not_exact_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reports.scaling.simulator.simulation.MOST_EVENTS", 10)
    (found,) = records(tmp_path, "--workers", "8", "--exchange", "server")
    assert found["exact"] == "false"
    assert "≈: messages of different workers meet" in capsys.readouterr().out


def test_payloads_that_come_are_decoded_and_servers_are_there() -> None:
    training = SimulatedTraining(Compute(0.1), 1e6, 4e6, encode_s=0.01, decode_s=0.02, update_s=0.003)

    def after(name: str, workers: int = 8, per_node: int = 1) -> float:
        cluster = Cluster(workers, Link(0, 0), per_node=per_node, inner=Link(0, 0), servers=EXCHANGES[name].servers)
        return EXCHANGES[name].make_step(cluster, training).after_s

    assert after("ring") == pytest.approx(0.023)
    assert after("allgather") == pytest.approx(8 * 0.02 + 0.003)
    assert after("gossip_torus", 16) == pytest.approx(4 * 0.02 + 0.003)
    assert after("hierarchical", per_node=4) == pytest.approx(2 * 0.02 + 0.003)
    assert after("asynchronous") == 0.0  # the server's work
    step = EXCHANGES["server"].make_step(Cluster(8, Link(0, 0), servers=1), training)
    assert isinstance(step, exchanges.Step)
    assert [one.bytes[0] for schedule in step.schedules for one in schedule.iterate_rounds()] == [1e6, 4e6]
    assert step.schedules[0].endpoints == 9 == schedules.server(8, 1.0, dedicated=True).endpoints


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--bytes", "44"], "--bytes=44: valid is a number with its unit, such as 44MB"),
        (["--compute", "-5ms"], "--compute: expected one argument"),
        (["--compute", "2h"], "--compute=2h: valid is a number with its unit, such as 100ms"),
        (["--compute", "0s"], "--compute=0s: valid is a time above 0, or one of --update"),
        (["--stragglers", "-1"], "--stragglers=-1.0: valid is 0 to 3"),
        (["--stragglers", "nan"], "--stragglers=nan: valid is 0 to 3"),
        (["--oversubscription", "0"], "--oversubscription=0.0: valid is 1 to 1,000"),
        (["--per-node", "0"], "--per-node=0: valid is 1 to 1,024"),
        (["--steps", "0"], "--steps=0: valid is 1 to 10,000"),
        (["--slow", "-2"], "--slow=-2.0: valid is 0 to 1,000"),
        (["--eager", "big"], "--eager=big: valid is none, or a size with its unit from 0B to 10000GB, such as 64KiB"),
        (["--part", "0B"], "--part=0B: valid is none, or a size with its unit from 1KiB to 10000GB, such as 64KiB"),
        (["--network", ""], "--network=: valid is one network or more, such as 10gbit"),
        (["--network", ","], "--network=,: valid is one network or more, such as 10gbit"),
        (
            ["--workers", "2..16384", "--exchange", "ring,asynchronous"],
            "--workers 4096: valid with asynchronous and 10 steps is up to 2500, or --steps 6 (a server takes 25,000",
        ),
        (["--workers", "512", "--exchange", "asynchronous", "--steps", "49"], "is up to 510, or --steps 48 (a server"),
        (["--seed", "-1"], "--seed=-1: valid is 0 to"),
        (["--format", "csv"], "--format=csv: valid is together with --into DIR"),
        (["--inner", "10gbit"], "--inner=10gbit: valid is together with --per-node above 1"),
        (["--staleness", "2"], "--staleness=2: valid is of --exchange asynchronous"),
        (["--dense", "2MB"], "--dense=2MB: valid is of --exchange hierarchical, server, asynchronous"),
        (["--exchange", "star"], "--exchange"),
        (["--network", "0gbit"], "--network=0gbit: valid is"),
        (["--latency", "10s"], "--latency=10s: valid is"),
        (["--workers", "0..4"], "--workers=0..4: valid is"),
        (["--workers", "100000"], "--workers=100000: valid is numbers up to 16384"),
        (
            ["--workers", "6", "--exchange", "hierarchical", "--per-node", "4"],
            "--workers 6: valid with hierarchical is",
        ),
    ],
)
def test_what_cannot_be_simulated_is_told_in_one_line(
    typed: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["simulate", *typed])
    except SystemExit as ended:
        status = ended.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert said in err and len(err.splitlines()) == 1
