"""The simulator against closed forms, against its own other engine, and against what is known otherwise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.scaling.simulator import Cluster, Compute, Course, Link, Schedule, Step, graphs, schedules, simulate
from reports.scaling.simulator.events import Events
from reports.scaling.simulator.sharing import fair_rates
from tests.reports.scaling.closed_forms import SCHEDULES, compute_cost, compute_time

LINK = Link(latency_s=50e-6, s_per_byte=8e-9)  # 1 Gbit/s
GAMMA = 1e-10
N = 1e6
ALGORITHMS = [(collective, name) for collective, algorithms in SCHEDULES.items() for name in algorithms]
POWERS_ONLY = ("recursive_doubling", "rabenseifner", "binomial")
"""Else rounds of different workers begin at different times, of which the closed forms know nothing."""
CASES = [
    (collective, name, workers)
    for collective, name in ALGORITHMS
    for workers in (1, 2, 3, 4, 7, 8, 16)
    if name not in POWERS_ONLY or not workers & (workers - 1)
]
GRAPHS = (graphs.ring, graphs.torus, graphs.exponential)


def exchange_s(schedule: Schedule, cluster: Cluster, engine: str = "auto") -> float:
    """Seconds until the last one is through, if all begin together."""
    return float(simulate(cluster, Step(Compute(0.0), schedule), 1, engine=engine).finished.max())


@pytest.mark.parametrize("engine", ["rounds", "events"])
@pytest.mark.parametrize(("collective", "name", "workers"), CASES)
def test_collectives_take_what_closed_forms_say(collective: str, name: str, workers: int, engine: str) -> None:
    cluster = Cluster(workers, LINK, summing_s_per_byte=GAMMA)
    expected = compute_time(collective, name, N, workers, LINK.latency_s, LINK.s_per_byte, GAMMA)
    assert exchange_s(SCHEDULES[collective][name](workers, N), cluster, engine) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("workers", [3, 5, 7, 12])
@pytest.mark.parametrize("name", ["recursive_doubling", "rabenseifner"])
def test_announced_messages_make_folded_closed_forms_right_to_a_latency(name: str, workers: int) -> None:
    """A receiver takes the messages in the order of its rounds, each for three latencies."""
    cluster = Cluster(workers, LINK, eager_bytes=0.0)
    expected = compute_time("allreduce", name, N, workers, 3 * LINK.latency_s, LINK.s_per_byte)
    assert exchange_s(SCHEDULES["allreduce"][name](workers, N), cluster) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("workers", [64, 1024])
def test_thousands_of_workers_take_what_closed_forms_say(workers: int) -> None:
    for collective, name in (("allreduce", "ring"), ("allgather", "ring"), ("allreduce", "rabenseifner")):
        expected = compute_time(collective, name, N, workers, LINK.latency_s, LINK.s_per_byte)
        found = exchange_s(SCHEDULES[collective][name](workers, N), Cluster(workers, LINK))
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
def test_gossip_takes_a_latency_and_the_messages_of_all_neighbours(graph: Callable[[int], graphs.Neighbours]) -> None:
    neighbours = graph(16)
    expected = compute_time("gossip", "at_once", N, 1 + len(neighbours[0]), LINK.latency_s, LINK.s_per_byte)
    assert exchange_s(schedules.gossip(neighbours, N), Cluster(16, LINK)) == pytest.approx(expected)


def test_wire_bytes_are_those_of_closed_forms() -> None:
    for collective, name in ALGORITHMS:
        for workers in (2, 5, 8):
            made = SCHEDULES[collective][name](workers, N)
            sent = sum(one.bytes.sum() for one in made.iterate_rounds())
            assert sent == pytest.approx(compute_cost(collective, name, N, workers).wire), (
                collective,
                name,
            )


def schedule_of(kind: str, workers: int, n: float) -> Schedule | list[Schedule]:
    if kind == "server":
        return schedules.server(workers, n, 2 * n, dedicated=True)
    if kind == "hub":
        star = [list(range(1, workers))] + [[0]] * (workers - 1)
        return schedules.gossip(star, n)
    if kind == "one_peer":
        return [schedules.gossip(one, n) for one in graphs.one_peer_exponential(workers)]
    if kind in ("ring", "torus", "exponential"):
        return schedules.gossip(getattr(graphs, kind)(workers), n)
    collective, name = kind.split(".")
    return SCHEDULES[collective][name](workers, n)


KINDS = [*map(".".join, ALGORITHMS), "server", "hub", "one_peer", "ring", "torus", "exponential"]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Cluster, Step, int]:
    workers = draw(st.integers(2, 9))
    per_node = draw(st.sampled_from([1, 1, 2, 3]))
    links = draw(
        st.dictionaries(st.integers(0, math.ceil(workers / per_node) - 1), st.just(Link(1e-3, 4e-8)), max_size=1)
    )
    cluster = Cluster(
        workers,
        draw(st.sampled_from([LINK, Link(0.0, 8e-9), Link(1e-3, 0.0)])),
        per_node=per_node,
        inner=Link(1e-6, 1e-10),
        servers=1,
        links=links,
        oversubscription=draw(st.sampled_from([1.0, 2.0, 5.0])),
        eager_bytes=draw(st.sampled_from([math.inf, 3e5, 0.0])),
        summing_s_per_byte=draw(st.sampled_from([0.0, GAMMA])),
    )
    compute = Compute(draw(st.sampled_from([0.0, 1e-3, 1e-2])), draw(st.sampled_from([0.0, 0.3])), {1: 3.0})
    exchange = schedule_of(draw(st.sampled_from(KINDS)), workers, draw(st.sampled_from([1e3, N])))
    if isinstance(exchange, Schedule):
        exchange = exchange * draw(st.sampled_from([1, 1, 2, 7]))
    return cluster, Step(compute, exchange, encode_s=1e-3, decode_s=2e-3), draw(st.integers(0, 5))


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(cases())
def test_rounds_that_say_that_they_are_exact_are_what_events_give(case: tuple[Cluster, Step, int]) -> None:
    cluster, step, seed = case
    rounds = simulate(cluster, step, 3, seed, "rounds")
    if rounds.exact:
        events = simulate(cluster, step, 3, seed, "events")
        for name in ("ready", "exchanged", "finished"):
            np.testing.assert_allclose(getattr(rounds, name), getattr(events, name), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("eager", [math.inf, 0.0])
@pytest.mark.parametrize("per_node", [1, 3])
@pytest.mark.parametrize("kind", ["allreduce.ring", "allgather.ring", "allreduce.recursive_doubling"])
def test_many_parts_are_what_events_give_of_each_of_them(kind: str, per_node: int, eager: float) -> None:
    """Twice in a step, with other messages in between where they may: what was not played leaves all as if it had."""
    cluster = Cluster(6, LINK, per_node=per_node, inner=Link(1e-6, 1e-10), eager_bytes=eager)
    many = schedule_of(kind, 6, 1e4) * 12
    between = Schedule() if eager else schedules.make_messages([0, 3], [5, 1], N)
    step = Step(Compute(0.01, 0.5), many + between + many)
    assert step.schedules[0].messages == sum(len(one.sources) for one in step.schedules[0].iterate_rounds())
    events = simulate(cluster, step, 2, engine="events")
    rounds = simulate(cluster, step, 2, engine="rounds")
    assert rounds.exact == (per_node == 1 if eager == 0 else kind != "allreduce.recursive_doubling")
    if rounds.exact:
        np.testing.assert_allclose(rounds.finished, events.finished, rtol=1e-9)


def test_schedules_are_repeated_and_joined_in_order() -> None:
    one, other = schedules.make_messages([0], [1], 1.0), schedules.make_messages([1], [2], 2.0, repeats=2)
    made = (one + other) * 2 + one * 3
    assert [each.bytes[0] for each in made.iterate_rounds()] == [1, 2, 2, 1, 2, 2, 1, 1, 1]
    assert (made.messages, made.endpoints) == (9, 3)
    groups = schedules.group_endpoints(made, [[3, 4, 5], [0, 1, 2]])
    assert [each.sources.tolist() for each in groups.iterate_rounds()][:2] == [[3, 0], [4, 1]]
    assert (groups.messages, groups.endpoints) == (18, 6)
    assert (Schedule() * 5).messages == 0


@pytest.mark.parametrize("kind", ["allreduce.ring", "allgather.ring", "ring", "torus", "exponential"])
def test_rings_and_regular_graphs_are_exact_in_rounds_whoever_is_late(kind: str) -> None:
    step = Step(Compute(0.01, 0.5), schedule_of(kind, 12, N))
    assert simulate(Cluster(12, LINK), step, 3).engine == "rounds"
    late = simulate(Cluster(12, LINK, links={3: Link(1e-3, 8e-8)}), step, 3, engine="rounds")
    assert late.exact == (kind in ("allreduce.ring", "allgather.ring"))  # one message at a time, each link's own


def test_what_meets_on_a_link_is_left_to_events_or_said_not_to_be_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, step = Cluster(8, LINK, servers=1), Step(Compute(0.01, 0.5), schedule_of("server", 8, N))
    found = simulate(cluster, step, 3)
    assert (found.engine, found.exact) == ("events", True)
    monkeypatch.setattr("reports.scaling.simulator.simulation.MOST_EVENTS", 10)
    rough = simulate(cluster, step, 3)
    assert (rough.engine, rough.exact) == ("rounds", False)
    assert np.all(rough.finished[0] >= found.finished[0] - 1e-12)  # who comes alone is not faster


def test_a_link_is_shared_evenly_while_it_is_shared() -> None:
    """A needs a second of the link, B too and comes after half a one: A ends at 1.5 s, B at 2 s."""
    events = Events(Cluster(3, Link(0.0, 1.0)))
    ended = {}
    for at, source in ((0.0, 0), (0.5, 1)):

        def begin(source: int = source) -> None:
            events.send(source, 2, 1.0, lambda: None, lambda: ended.update({source: events.now}))

        events.schedule(at, begin)
    events.run()
    assert ended == {0: pytest.approx(1.5), 1: pytest.approx(2.0)}


def test_shares_are_max_min_fair() -> None:
    """Links of 1 and 2 B/s: two messages on the first, one of them and another one on the second."""
    rates = fair_rates(np.array([[0, 2], [0, 1], [1, 2]]), np.array([1.0, 2.0, 1e30]))
    assert rates == pytest.approx([0.5, 0.5, 1.5])


@pytest.mark.parametrize("workers", [1, 4, 100])
def test_incast_at_a_server_takes_the_link_as_often_as_there_are_messages(workers: int) -> None:
    cluster = Cluster(workers, LINK, servers=1, summing_s_per_byte=GAMMA)
    expected = 2 * LINK.latency_s + workers * (3 * N * LINK.s_per_byte + N * GAMMA)
    found = simulate(cluster, Step(Compute(0.0), schedules.server(workers, N, 2 * N, dedicated=True)), 1)
    assert found.finished == pytest.approx(np.full((1, workers), expected))


def test_a_colocated_server_has_one_message_less() -> None:
    one = exchange_s(schedules.server(4, N), Cluster(4, LINK))
    assert one == pytest.approx(2 * (LINK.latency_s + 3 * N * LINK.s_per_byte))


def test_an_oversubscribed_core_is_as_much_slower() -> None:
    schedule = schedules.allgather_ring(8, N)
    free, narrow = (exchange_s(schedule, Cluster(8, LINK, oversubscription=over)) for over in (1.0, 4.0))
    assert narrow - 7 * LINK.latency_s == pytest.approx(4 * (free - 7 * LINK.latency_s))


def test_workers_of_a_node_share_its_link() -> None:
    """Of 8 workers on 2 nodes all swap with one on the other node: four messages a link, each way."""
    cluster = Cluster(8, LINK, per_node=4, inner=Link(1e-6, 1e-10))
    swap = schedules.make_messages(np.arange(8), np.arange(8) ^ 4, N)
    assert exchange_s(swap, cluster) == pytest.approx(LINK.latency_s + 4 * N * LINK.s_per_byte)
    within = schedules.make_messages(np.arange(8), np.arange(8) ^ 1, N)
    assert exchange_s(within, cluster) == pytest.approx(1e-6 + N * 1e-10)


def test_a_hierarchical_exchange_is_the_sum_of_its_parts() -> None:
    inner = Link(1e-6, 1e-10)
    cluster = Cluster(32, LINK, per_node=8, inner=inner)
    found = exchange_s(schedules.hierarchical(32, 8, N, schedules.allreduce_ring(4, N / 10)), cluster)
    tree = compute_time("bcast", "binomial", N, 8, inner.latency_s, inner.s_per_byte)
    ring = compute_time("allreduce", "ring", N / 10, 4, LINK.latency_s, LINK.s_per_byte)
    assert found == pytest.approx(2 * tree + ring)


def test_links_of_their_own_slow_down_the_ring() -> None:
    """The latency between two nodes is the mean of theirs; the slower one of two links says how fast."""
    slow = Link(2 * LINK.latency_s, 10 * LINK.s_per_byte)
    one = schedules.make_messages([0], [1], N)
    found = exchange_s(one, Cluster(2, LINK, links={1: slow}))
    assert found == pytest.approx(1.5 * LINK.latency_s + N * slow.s_per_byte)


def mean_of_the_largest(count: int, mean: float, sigma: float) -> float:
    """E[max] of log-normals: the integral of 1 - F(x)^count."""
    from scipy import integrate, stats

    law = stats.lognorm(s=sigma, scale=mean * math.exp(-(sigma**2) / 2))
    value, _ = integrate.quad(lambda x: 1 - law.cdf(x) ** count, 0, mean * 50, limit=500)
    return float(value)


@pytest.mark.parametrize("workers", [1, 8, 64])
def test_a_synchronous_step_waits_for_the_slowest(workers: int) -> None:
    steps, sigma = 2000, 0.4
    course = simulate(
        Cluster(workers, Link(0.0, 0.0)), Step(Compute(0.1, sigma), schedules.allreduce_ring(workers, N)), steps, seed=3
    )
    expected = mean_of_the_largest(workers, 0.1, sigma)
    error = course.durations[:, 0].std() / math.sqrt(steps)
    assert course.step_s == pytest.approx(expected, abs=4 * error)
    assert np.ptp(course.finished, axis=1).max() == 0  # all are through together


def test_in_a_gossip_ring_a_slow_worker_delays_a_neighbour_a_step() -> None:
    step = Step(Compute(0.1), schedules.gossip(graphs.ring(20), N))
    slow = Step(Compute(0.1, slow={0: 2.0}), step.exchange)
    cluster = Cluster(20, LINK)
    delayed = simulate(cluster, slow, 6).finished > simulate(cluster, step, 6).finished + 1e-9
    distance = np.minimum(np.arange(20), 20 - np.arange(20))
    for number in range(6):
        assert np.array_equal(delayed[number], distance <= number + 1)


def test_gossip_hides_delays_that_an_allreduce_does_not() -> None:
    cluster, compute = Cluster(256, Link(0.0, 0.0)), Compute(0.1, 0.3)
    alike = [
        simulate(cluster, Step(compute, exchange), 50, seed=1).step_s
        for exchange in (
            schedules.gossip(graphs.one_peer_exponential(256)[0], 1.0),
            schedules.gossip(graphs.ring(256), 1.0),
            schedules.allreduce_ring(256, 1.0),
        )
    ]
    assert alike == sorted(alike) and 0.1 < alike[0] < 0.9 * alike[2]


def test_times_are_a_function_of_seed_step_and_worker() -> None:
    compute = Compute(0.1, 0.2)
    assert np.array_equal(compute.draw_times(8, 5, 1), compute.draw_times(16, 5, 1)[:8])
    different = [compute.draw_times(8, step, seed) for step, seed in itertools.product((0, 1), (0, 1))]
    assert all(not np.any(one == other) for one, other in itertools.combinations(different, 2))
    step = Step(compute, schedules.allreduce_ring(8, N))
    few, many = (simulate(Cluster(8, LINK), step, steps, seed=7) for steps in (3, 6))
    assert np.array_equal(few.finished, many.finished[:3])


def test_a_step_is_its_parts() -> None:
    step = Step(Compute(0.1), schedules.allgather_ring(4, N), encode_s=0.01, decode_s=0.02, update_s=0.005)
    course = simulate(Cluster(4, LINK), step, 3)
    ring = compute_time("allgather", "ring", N, 4, LINK.latency_s, LINK.s_per_byte)
    assert course.durations == pytest.approx(np.full((3, 4), 0.135 + ring))
    assert course.step_s == pytest.approx(0.135 + ring)
    assert course.exchange_s == pytest.approx(ring)


def test_schedules_take_turns() -> None:
    ones = [schedules.gossip(one, N) for one in graphs.one_peer_exponential(8)]
    assert [next(one.iterate_rounds()).targets[0] for one in ones] == [1, 2, 4]
    slow = Compute(0.1, slow={0: 2.0})
    course: Course = simulate(Cluster(8, LINK), Step(slow, ones), 3)
    quick = simulate(Cluster(8, LINK), Step(Compute(0.1), ones), 3)
    delayed = course.finished > quick.finished + 1e-9
    assert [np.flatnonzero(row).tolist() for row in delayed] == [[0, 1], [0, 1, 2, 3], list(range(8))]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Cluster(0, LINK), "workers=0"),
        (lambda: Cluster(4, LINK, per_node=2), "per_node=2"),
        (lambda: Cluster(4, LINK, links={4: LINK}), "node 4"),
        (lambda: Cluster(4, LINK, oversubscription=0), "oversubscription=0"),
        (lambda: Link(-1.0, 0.0), "latency_s=-1.0"),
        (lambda: Link(0.0, math.nan), "s_per_byte=nan"),
        (lambda: Compute(-1.0), "Compute"),
        (lambda: schedules.hierarchical(9, 4, N, Schedule()), "workers=9"),
        (lambda: simulate(Cluster(2, LINK), Step(Compute(0.0)), 0), "steps=0"),
        (lambda: simulate(Cluster(2, LINK), Step(Compute(0.0)), 1, engine="both"), "engine=both"),
        (lambda: simulate(Cluster(2, LINK), Step(Compute(0.0), schedules.allreduce_ring(3, N)), 1), "3 endpoints"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
