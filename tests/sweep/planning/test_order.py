"""In which order runs start: what is compared close in time, the rest longest first."""

from __future__ import annotations

import os
import random
import statistics
from typing import Any

import pytest

from sweep.executors.backlog import Entry
from sweep.planning.order import arrange_runs
from tests.sweep.executors.test_backlog import Job, Machine
from tests.trainers.configs import compose_config

Config = dict[str, Any]
METHODS = {"none": 1.0, "qsgd": 1.15, "topk": 1.3, "svd": 1.6, "powersgd": 1.2}


def make(compressor: str = "none", seed: int = 0, workers: int = 2, cluster: str = "local", **changes: Any) -> Config:
    place = {"launcher": {"cluster": cluster}, "mpi": {}, "sweep": changes.pop("sweep", {})}
    return {**compose_config(compressor=compressor, seed=seed, workers=workers, **changes), **place}


def arrange(configs: list[Config], seconds: list[float | None] | None = None) -> list[Config]:
    times = seconds or [None] * len(configs)
    order = arrange_runs(list(zip(configs, times, strict=True)))
    assert sorted(order) == list(range(len(configs)))
    return [configs[index] for index in order]


def describe(config: Config) -> tuple[int, int, str]:
    return config["workers"], config["seed"], config["compressor"]["name"]


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    set_cores(monkeypatch, 2)


def set_cores(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    monkeypatch.setattr(os, "cpu_count", lambda: cores)


def test_runs_of_earlier_versions_stand_among_those_of_this_one() -> None:
    """A config without the sections that its version lacked is in no group of its own."""
    grid = [make(name, seed) for name in METHODS for seed in range(8)]
    expected = [describe(config) for config in arrange(grid)]
    for config in grid[::3]:
        del config["network"]
    assert [describe(config) for config in arrange(grid)] == expected


def test_seed_by_seed_and_each_in_another_order() -> None:
    grid = [make(name, seed) for name in METHODS for seed in range(8)]
    ordered = [describe(config) for config in arrange(grid)]
    assert [seed for _, seed, _ in ordered] == sorted(list(range(8)) * len(METHODS))
    blocks = [tuple(name for _, seed, name in ordered if seed == number) for number in range(8)]
    assert len(set(blocks)) >= 7 and len({block[0] for block in blocks}) >= 3, "no method is always first"
    for shuffled in (random.Random(1).sample(grid, len(grid)), grid[5:]):
        there = {describe(config) for config in shuffled}
        again = [describe(config) for config in arrange(shuffled)]
        assert again == [each for each in ordered if each in there], "also in a resume, of what is left"


@pytest.mark.parametrize("cluster", ["local", "slurm"])
def test_what_is_not_compared_is_ordered_longest_first(cluster: str) -> None:
    grid = [make(name, seed, workers, cluster) for workers in (1, 2) for seed in (0, 1) for name in METHODS]
    assert [each["workers"] for each in arrange(grid)] == [2] * 10 + [1] * 10, "more cores"
    seconds: list[float | None] = [30.0 if each["workers"] == 1 else 10.0 for each in grid]
    assert [each["workers"] for each in arrange(grid, seconds)] == [1] * 10 + [2] * 10, "30 core-seconds, and 20"
    seconds[-1] = None
    assert [each["workers"] for each in arrange(grid, seconds)] == [2] * 10 + [1] * 10, "it may be the longest of all"
    epochs = [make(name, epochs=epochs, cluster=cluster) for epochs in (4, 8) for name in METHODS]
    assert [each["epochs"] for each in arrange(epochs)] == [8] * 5 + [4] * 5
    steps = [make(name, max_steps=steps, cluster=cluster) for steps in (100, None, 200) for name in METHODS]
    assert [each["max_steps"] for each in arrange(steps)] == [None] * 5 + [200] * 5 + [100] * 5
    assert arrange_runs([]) == []


def test_a_run_that_is_larger_than_the_machine_has_all_of_it() -> None:
    grid = [make(workers=workers) for workers in (4, 2, 8)]
    assert [each["workers"] for each in arrange(grid, [10.0, 12.0, 11.0])] == [2, 8, 4]


def test_the_last_runs_start_longest_first_where_they_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = [make(name, seed) for seed in (0, 1) for name in METHODS]
    seconds: list[float | None] = [METHODS[each["compressor"]["name"]] for each in grid]
    drawn = arrange(grid)
    assert arrange(grid, seconds) == drawn, "one after the other"
    set_cores(monkeypatch, 8)
    ordered = arrange(grid, seconds)
    assert ordered[:-4] == drawn[:-4]
    last = [METHODS[each["compressor"]["name"]] for each in ordered[-4:]]
    assert last == sorted(last, reverse=True) and ordered != drawn
    limited = [{**each, "sweep": {"max_parallel": 1}} for each in grid]
    assert [describe(each) for each in arrange(limited, seconds)] == list(map(describe, drawn))


@pytest.mark.parametrize(("cores", "most"), [(2, 1.0), (8, 1.05), (16, 1.2)])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("workers", [(2,), (1, 2, 4, 8)])
def test_all_is_done_about_as_early_as_longest_first(
    monkeypatch: pytest.MonkeyPatch, cores: int, most: float, known: bool, workers: tuple[int, ...]
) -> None:
    """In a simulation of the queue; what is compared starts much closer in time."""
    set_cores(monkeypatch, cores)
    grid = [make(name, seed, count) for count in workers for name in METHODS for seed in range(3)]
    took = [METHODS[each["compressor"]["name"]] * (8 / each["workers"] + 1) for each in grid]

    def simulate(order: list[int]) -> tuple[float, float]:
        """When all is done, and the mean time between the first and the last start of what is compared."""
        machine = Machine((cores,))
        jobs = [Job(i, (min(grid[i]["workers"], cores),), took[i] if known else None, took[i]) for i in order]
        machine.backlog.add(Entry(job, job.wants, job.believed) for job in jobs)
        machine.dispatch()
        while machine.step():
            pass
        blocks: dict[tuple[int, int], list[float]] = {}
        for index, config in enumerate(grid):
            blocks.setdefault(describe(config)[:2], []).append(machine.started[index])
        return machine.now, statistics.mean(max(starts) - min(starts) for starts in blocks.values())

    used = [min(config["workers"], cores) * seconds for config, seconds in zip(grid, took, strict=True)]
    end, apart = simulate(arrange_runs([(c, t if known else None) for c, t in zip(grid, took, strict=True)]))
    end_before, apart_before = simulate(sorted(range(len(grid)), key=lambda index: -used[index]))
    assert end <= most * end_before and apart < apart_before
