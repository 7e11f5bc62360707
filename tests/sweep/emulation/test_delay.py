"""How the delay is found that makes a small message take what was asked for: on machines that are made up."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import pytest

from sweep.emulation import compile_c, delay
from sweep.emulation.build_cluster import BuiltCluster
from sweep.emulation.cluster import Cluster
from tests.sweep.emulation.conftest import describe_network

US = 1e-6


class Machine:
    """A cluster whose packets take `bare` s over the kernel's bridge, and `switched` s over a switch that adds nothing.

    Args:
        noise: what each measurement takes longer, in turn.
    """

    def __init__(self, bare: float, switched: float, noise: tuple[float, ...] = (), **network: Any) -> None:
        self.cluster = Cluster.from_config(describe_network(**network), 3)
        self.problems: list[str] = []
        self.bare, self.switched, self.noise = bare, switched, list(noise)
        self.delayer: Delayer | None = None

    def one_way(self, built: object, one: Any, other: Any) -> float:
        noise = self.noise.pop(0) if self.noise else 0.0
        if self.delayer is None:
            return self.bare + noise
        wanted = self.cluster.compute_latency(one, other)
        return self.switched + max(0.0, wanted - self.delayer.told[-1][0]) + noise


class Delayer:
    name = "switch"

    def __init__(self, machine: Machine) -> None:
        self.machine, self.told, self.removed = machine, [(0.0, 0.0)], False
        machine.delayer = self

    def set_delay(self, own: float, loss: float) -> None:
        self.told.append((own, loss))

    def remove(self) -> None:
        self.machine.delayer, self.removed = None, True


Delayed = Callable[[Machine], tuple[Any, float | None]]


@pytest.fixture
def delayed(monkeypatch: pytest.MonkeyPatch) -> Delayed:
    def call(machine: Machine) -> tuple[Any, float | None]:
        monkeypatch.setattr(delay, "measure_one_way", machine.one_way)
        monkeypatch.setattr(delay, "_start_delayer", lambda built, has_netem: Delayer(machine))
        return delay.start_delay(cast(BuiltCluster, machine), False)

    return call


def test_what_the_machine_takes_is_not_added_again(delayed: Delayed) -> None:
    machine = Machine(30 * US, 80 * US, latency="200us", loss=0.1)
    delayer, took = delayed(machine)
    assert took == pytest.approx(200 * US)
    assert delayer.told[-1] == (pytest.approx(80 * US), 0.1), "120 us are added"
    assert {loss for _, loss in delayer.told[:-1]} == {0.0}, "measured without losses"


def test_below_what_the_machine_takes_nothing_is_added(delayed: Delayed) -> None:
    assert delayed(Machine(30 * US, 80 * US, latency="20us")) == (None, 30 * US)
    assert delayed(Machine(30 * US, 80 * US, latency="0s")) == (None, 30 * US)
    delayer, _ = delayed(Machine(30 * US, 80 * US, latency="0s", loss=0.1))
    assert delayer.told[-1][1] == 0.1, "somebody has to lose the packets"


def test_the_nearer_one_where_the_switch_takes_too_long(delayed: Delayed) -> None:
    machine = Machine(30 * US, 90 * US, latency="50us")
    assert delayed(machine) == (None, 30 * US) and machine.delayer is None
    assert delayed(Machine(30 * US, 60 * US, latency="50us"))[1] == pytest.approx(60 * US)


@pytest.mark.parametrize("place", range(7))
def test_a_busy_moment_does_not_mislead(delayed: Delayed, place: int) -> None:
    """Whichever of the measurements it spoils."""
    noise = tuple(500 * US if number == place else 0.0 for number in range(7))
    delayer, took = delayed(Machine(30 * US, 80 * US, noise, latency="200us"))
    assert delayer.told[-1][0] == pytest.approx(80 * US) and took == pytest.approx(200 * US)


def test_the_longest_latency_is_measured(delayed: Delayed) -> None:
    machine = Machine(30 * US, 80 * US, latency="0s", hosts={1: {"latency": "2ms"}, 2: {"latency": "4ms"}})
    delayer, took = delayed(machine)
    assert took == pytest.approx(0.003) and delayer.told[-1][0] == pytest.approx(80 * US)


def test_what_the_machine_takes_is_measured_at_a_short_delay(delayed: Delayed) -> None:
    """There are too few round trips of a long latency to tell it from a busy machine."""
    machine = Machine(30 * US, 80 * US, latency="500ms")
    delayer, took = delayed(machine)
    assert took is None and delayer.told[-1] == (pytest.approx(80 * US), 0.0)
    assert all(0.5 - own <= delay.SHORT_S for own, _ in delayer.told[1:-1])


@pytest.mark.parametrize(
    ("network", "latency"),
    [({0: "10ms", 1: "10ms", 2: "10ms"}, 0.01), ({0: "10ms"}, 200 * US), ({}, 200 * US)],
)
def test_netem_has_one_latency(network: dict[int, str], latency: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of all hosts; where these differ and our switch cannot be had, that of the network for all of them."""
    machine = Machine(
        30 * US, 80 * US, latency="200us", hosts={host: {"latency": own} for host, own in network.items()}
    )
    added = [0.0]

    def batch(program: str, lines: list[str]) -> None:
        told = [re.search(r"netem limit \d+ delay (\d+)us", line) for line in lines]
        added.append(next((float(each[1]) * US for each in told if each), 0.0))

    def one_way(built: object, one: Any, other: Any) -> float:
        return 80 * US + added[-1]

    def switch(built: object) -> None:
        raise compile_c.NotCompiled("no cc")

    for name, stand_in in (("run_batch", batch), ("measure_one_way", one_way), ("Switch", switch)):
        monkeypatch.setattr(delay, name, stand_in)
    delayer, took = delay.start_delay(cast(BuiltCluster, machine), True)
    assert delayer is not None and delayer.name == "netem"
    assert took == pytest.approx(latency, abs=1 * US) and added[-1] == pytest.approx(latency - 80 * US, abs=1 * US)
    assert {host.latency for host in machine.cluster.hosts} == {machine.cluster.latency}
    assert machine.cluster.latency == pytest.approx(latency)
    assert machine.problems == (
        ["network.hosts: all have the latency of network.latency: no cc"] if len(network) == 1 else []
    )


def test_what_the_switch_can_hold() -> None:
    """Of what may wait at a port; without rights it is what the kernel lets everybody have."""
    cluster = Machine(0.0, 0.0, bandwidth="1gbit", hosts={0: {"bandwidth": "100mbit"}}).cluster
    assert delay.explain_small_buffer(cluster, 12_500_000) is None
    said = delay.explain_small_buffer(cluster, 212_992)
    assert said is not None and said.startswith("0.21 instead of 12.5 MB may wait at the switch")
    assert "`sysctl -w net.core.rmem_max=12500000 net.core.wmem_max=12500000` by root" in said
    assert delay.explain_small_buffer(Machine(0.0, 0.0, bandwidth="1tbit").cluster, delay.MOST_HELD) is None, (
        "it asks for no more"
    )


@pytest.mark.parametrize(
    ("network", "has_netem", "compiles", "kind", "problems"),
    [
        ({}, True, True, "Netem", []),
        ({}, False, True, "Switch", []),
        ({"loss": 0.1}, True, True, "Switch", []),
        ({"hosts": {1: {"latency": "2ms"}}}, True, True, "Switch", []),
        ({"hosts": {1: {"latency": "2ms"}}}, True, False, "Netem", ["network.hosts: all have the latency of"]),
        ({"loss": 0.1}, True, False, "Netem", ["loss: packets that start and end the ranks get lost, too: no cc"]),
        ({"loss": 0.1}, False, False, None, ["latency is not emulated: no cc, and", "loss is not emulated: no cc"]),
    ],
)
def test_who_delays(
    monkeypatch: pytest.MonkeyPatch,
    network: dict[str, Any],
    has_netem: bool,
    compiles: bool,
    kind: str | None,
    problems: list[str],
) -> None:
    """The kernel where it can, else our switch, else nobody; what cannot be had is noted."""

    def switch(built: object) -> str:
        if not compiles:
            raise compile_c.NotCompiled("no cc")
        return "Switch"

    monkeypatch.setattr(delay, "Netem", lambda built: "Netem")
    monkeypatch.setattr(delay, "Switch", switch)
    machine = Machine(0.0, 0.0, latency="1ms", **network)
    assert delay._start_delayer(cast(BuiltCluster, machine), has_netem) == kind
    assert kind is not None or not (machine.cluster.has_latency or machine.cluster.loss), "no part of it any more"
    assert len(machine.problems) == len(problems)
    assert all(found.startswith(start) for found, start in zip(machine.problems, problems, strict=True))
