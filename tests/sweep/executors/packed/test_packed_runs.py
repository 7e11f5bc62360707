"""Many runs in one MPI world: real ranks. The numbers are those of runs on their own, and each dies for itself."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradsweep import csv_columns, files, run_directory
from gradsweep.run_directory import Run, runs_of
from sweep.attempts.mpirun import MpirunAttempt
from sweep.attempts.run_task import RunTask
from sweep.directory import run_identity, run_layout
from sweep.executors.local import SlotJob
from sweep.executors.packed.attempt import PackedAttempt
from sweep.executors.packed.executor import PackedExecutor
from sweep.executors.packed.fork_server import ForkServers
from sweep.settings.mpi import MpiSettings, choose_transport
from sweep.system.processes import WORLD_VARIABLE, find_processes
from tests.conftest import PLAYED, ROOT, Program, eventually
from tests.sweep.fakes import read_log
from tests.trainers.configs import compose_config
from trainers.rules.resolve import resolve

pytestmark = [pytest.mark.mpi, pytest.mark.thorough]

Make = Callable[..., RunTask]
ENDLESS = {"epochs": 1000000, "checkpoint": {"every_steps": 20}}
OF_TIME = ("throughput_low", "throughput_high", "yardstick")
MEASURED = ("time_s", "step_s", "evaluate_s", *(f"{phase}_s" for phase in csv_columns.PHASES))
"""Columns that no two runs have alike."""


@pytest.fixture
def make(tmp_path: Path, digits: Path) -> Make:
    """Runs on the digits, laid out as a sweep's."""
    mpi = MpiSettings(**choose_transport(yaml.safe_load((ROOT / "conf/mpi/openmpi.yaml").read_text()), "local"))

    def task(folder: str = "sweep", **changes: Any) -> RunTask:
        config = {**resolve(compose_config(**{"data": {"root": str(digits)}, **changes})), "mpi": {}, "sweep": {}}
        (run,) = run_layout.lay_out(tmp_path / folder, [run_identity.Point(config, {})])
        return RunTask(str(run.directory), run_directory.count_ranks(config), 1, mpi.resolve_command(), mpi.variables)

    return task


class Kept(ForkServers):
    """Outlive the executor of a test: torch, once loaded, serves the next one's worlds as well."""

    def close(self) -> None:
        """Not yet."""


@pytest.fixture(scope="module")
def fork_servers() -> Iterator[ForkServers]:
    kept = Kept()
    yield kept
    ForkServers.close(kept)


@pytest.fixture
def executor(tmp_path: Path, fork_servers: ForkServers) -> Iterator[PackedExecutor]:
    """Two cores, whose locks are those of this test."""
    executor = PackedExecutor(tmp_path / "sweep", sorted(os.sched_getaffinity(0))[:2])
    executor.fork_servers = fork_servers
    yield executor
    executor.cancel_all("the test has ended")


def submit(executor: PackedExecutor, *tasks: RunTask) -> list[SlotJob]:
    jobs = executor.submit_runs(tasks)
    assert all(isinstance(job, SlotJob) for job in jobs)
    return jobs  # type: ignore[return-value]


def until(executor: PackedExecutor, condition: Callable[[], object], within_s: float = 120) -> object:
    def asked() -> object:
        executor.poll()
        return condition()

    return eventually(asked, within_s)


def ended(*jobs: SlotJob) -> Callable[[], bool]:
    return lambda: all(job.ended for job in jobs)


def steps(job: SlotJob) -> int:
    row = files.last_row(job.task.run.path(run_directory.STEPS))
    return int(row["step"]) if row else 0


def attempts(job: SlotJob) -> list[str]:
    return [attempt["status"] for attempt in job.task.run.state()["attempts"]]


def ranks_of(job: SlotJob) -> list[int]:
    """The processes that train a run at this moment."""
    assert isinstance(job.attempt, PackedAttempt)
    return [
        rank.pid for group in job.attempt.world.groups.values() if group.member is job.attempt for rank in group.ranks
    ]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def numbers(run: Run) -> Any:
    """All of a run's results that are neither measured times nor the hosts it happened to get."""
    tables = []
    for name in (run_directory.STEPS, run_directory.EPOCHS):
        with run.path(name).open() as file:
            tables.append([{k: v for k, v in row.items() if k not in MEASURED} for row in csv.DictReader(file)])
    result = run.result()
    assert result is not None and all(tables)
    left_out = (*MEASURED, "hosts", "phases_s", "total_s", "iterations_per_second", "samples_per_second", *OF_TIME)
    measured = re.compile("(peak|end)_.*memory.*|memory_before")  # memory_parts are counted
    return tables, {key: value for key, value in result.items() if key not in left_out and not measured.fullmatch(key)}


POINTS: list[dict[str, Any]] = [
    {"compressor": "none", "workers": 1},
    {"compressor": "svd", "model": "wideresnet", "batch_norm": "synchronised", "max_steps": 4, "workers": 2},
    {"compressor": "powersgd", "memory": "residual", "workers": 2},
    {"compressor": "topk", "exchange": {"name": "parameter_server", "placement": "dedicated"}, "workers": 2},
    {"compressor": "qsgd", "exchange": {"name": "allgather", "transport": "torch"}, "workers": 2},
]


def test_the_numbers_are_those_of_runs_of_their_own(executor: PackedExecutor, make: Make) -> None:
    """To the last bit, whatever was trained before in the same processes; and all of it in one world."""
    points = [{"epochs": 2, "max_steps": 16, "measure_every": 5, **point} for point in POINTS]
    jobs = submit(executor, *[make("sweep", **point) for point in points])
    (world,) = executor.worlds
    until(executor, ended(*jobs), 300)
    assert [job.reason for job in jobs] == [None] * len(jobs)
    assert world.size == 3
    assert [path.name for path in (Path(executor.folder) / "worlds").iterdir()] == ["world-1"]
    for job, point in zip(jobs, points, strict=True):
        alone = MpirunAttempt(make("alone", **point), executor.slots.cores[: job.task.workers])
        eventually(alone.poll, 120)
        assert alone.status == run_directory.DONE, alone.reason
        assert numbers(job.task.run) == numbers(alone.run), point


def test_a_killed_rank_takes_its_world_down_and_its_own_run_only(executor: PackedExecutor, make: Make) -> None:
    """What trained beside it goes on from its checkpoint in another world, what waited comes then."""
    bad, beside = submit(executor, make(**ENDLESS, workers=1), make(**ENDLESS, workers=1, seed=1))
    (later,) = submit(executor, make(epochs=1, workers=2))
    until(executor, lambda: steps(bad) > 40 and steps(beside) > 40)
    first = executor.worlds[0]
    assert len(first.groups) == 2 and not later.task.run.attempt_numbers()
    (pid,) = ranks_of(bad)
    os.kill(pid, signal.SIGKILL)
    until(executor, ended(bad))
    assert (bad.status, bad.reason, bad.cause) == (run_directory.FAILED, "a rank was killed by SIGKILL", "killed")
    until(executor, lambda: first.gone)
    assert not find_processes(first.directory.absolute(), WORLD_VARIABLE)
    until(executor, lambda: len(beside.task.run.attempt_numbers()) == 2 and steps(beside) > 40)
    assert attempts(beside) == [run_directory.PREEMPTED, run_directory.RUNNING] and attempts(bad) == [
        run_directory.FAILED
    ]
    assert "a run beside it failed" in beside.task.run.state()["attempts"][0]["reason"]
    restarted = steps(beside)
    assert restarted > 20  # not from its beginning
    executor.cancel([beside], "the test has seen enough")
    assert beside.status == run_directory.CANCELLED
    until(executor, ended(later))
    assert later.status == run_directory.DONE and attempts(later) == [run_directory.DONE]


def test_where_what_forks_the_ranks_is_killed_all_begin_again(executor: PackedExecutor, make: Make) -> None:
    """None of the runs is to blame, as where mpirun is killed; the next world's ranks come from another."""
    jobs = submit(executor, make(**ENDLESS, workers=1), make(**ENDLESS, workers=1, seed=1))
    until(executor, lambda: all(map(steps, jobs)))
    ((first,), forks) = executor.worlds, {parent_of(pid) for job in jobs for pid in ranks_of(job)}
    assert forks.isdisjoint(find_processes(first.directory.absolute(), WORLD_VARIABLE)) and len(forks) == 1
    os.kill(*forks, signal.SIGKILL)
    until(executor, lambda: [attempts(job) for job in jobs] == [[run_directory.PREEMPTED, run_directory.RUNNING]] * 2)
    assert all("nobody knows why" in job.task.run.state()["attempts"][0]["reason"] for job in jobs)
    assert not find_processes(first.directory.absolute(), WORLD_VARIABLE)


def replace_by_directory(path: Path) -> None:
    """Put a directory in the place of a file that a rank goes on making."""
    while not path.is_dir():
        path.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir()


def test_an_error_in_one_rank_ends_the_world_and_what_is_beside_it_is_saved(
    executor: PackedExecutor, make: Make, tmp_path: Path
) -> None:
    """The others wait for that rank in a collective, which nothing but an end of the processes gets them out of.

    Here each rank starts by itself: not every MPI can have them forked.
    """
    alone = {"GRADSWEEP_FORK": "0"}
    tasks = [make(**ENDLESS, workers=1, seed=1), make(**ENDLESS, workers=1)]
    tasks = [dataclasses.replace(task, environment={**task.environment, **alone}) for task in tasks]
    beside, bad = submit(executor, *tasks)
    until(executor, lambda: steps(beside) and steps(bad))
    assert {parent_of(pid) for pid in ranks_of(bad)} == {executor.worlds[0].process.pid}
    replace_by_directory(bad.task.run.path(run_directory.STEPS))  # where rank 0 wants to append a line
    until(executor, ended(bad))
    assert bad.status == run_directory.FAILED and str(bad.reason).startswith("rank 0: IsADirectoryError")
    assert "Traceback" in read_log(bad.task.run, run_directory.STDERR)
    until(executor, lambda: attempts(beside) == [run_directory.PREEMPTED, run_directory.RUNNING])
    assert beside.task.run.state()["attempts"][0]["reason"].startswith("a run beside it failed")
    assert "SIGUSR1: saved" in (files.read_json(beside.task.run.attempt(1) / run_directory.STOPPED) or {})["reason"]


def test_what_all_ranks_refuse_costs_no_world(executor: PackedExecutor, make: Make) -> None:
    jobs = submit(executor, make(workers=2, dataset="cifar10"), make(epochs=1, workers=2))
    (world,) = executor.worlds
    until(executor, ended(*jobs))
    assert [job.status for job in jobs] == [run_directory.FAILED, run_directory.DONE]
    assert str(jobs[0].reason).startswith("dataset=cifar10: ") and world.size == 2
    said = read_log(jobs[0].task.run, run_directory.STDERR)
    said = said.replace("\n", "")  # one rank may come between another's words and its newline
    assert said == 2 * str(jobs[0].reason)
    assert not (Path(executor.folder) / "worlds" / "world-2").exists()


def test_a_cancelled_run_leaves_its_ranks_to_the_next(executor: PackedExecutor, make: Make) -> None:
    """The one beside it does not notice; a resume of the cancelled one goes on where it was."""
    one, other = submit(executor, make(**ENDLESS, workers=1), make(**ENDLESS, workers=1, seed=1))
    until(executor, lambda: steps(one) and steps(other))
    pids = ranks_of(one)
    executor.cancel([one], "the test wants it", grace_s=60)
    saved = steps(one)
    reason = f"the test wants it; SIGUSR1: saved at step {saved}; a resume goes on from there"
    assert (one.status, one.task.run.state()["reason"]) == (run_directory.CANCELLED, reason)
    (again,) = submit(executor, one.task)
    until(executor, lambda: steps(again) > saved)
    assert (
        ranks_of(again) == pids
        and attempts(other) == [run_directory.RUNNING]
        and attempts(again)[0] == run_directory.CANCELLED
    )
    executor.preempt_all()
    until(executor, ended(again, other))
    assert [again.status, other.status] == [run_directory.PREEMPTED] * 2
    assert f"saved at step {steps(other)}" in str(other.reason)


def test_a_saved_run_goes_on_in_another_world(executor: PackedExecutor, make: Make) -> None:
    """Decentralised, with messages on their way when it is saved: the numbers are those of a run that was not."""
    point = {
        "algorithm": {"name": "choco", "order": "combine_then_adapt"},
        "exchange": {"name": "gossip", "overlap": True},
        "compressor": "sign_norm",
        "model": "mlp",
        "workers": 3,
        "max_steps": 600,
        "epochs": 100,
    }
    (job,) = submit(executor, make("sweep", **point))
    until(executor, lambda: steps(job))
    executor.preempt_all()
    until(executor, ended(job))
    assert job.status == run_directory.PREEMPTED, job.reason
    saved = steps(job)
    executor.worlds.pop().close()
    (again,) = submit(executor, job.task)
    until(executor, ended(again))
    tables, result = numbers(again.task.run)
    assert (again.status, result["resumed_after"]) == (run_directory.DONE, [saved])
    alone = MpirunAttempt(make("alone", **point), executor.slots.cores)
    eventually(alone.poll, 120)
    assert tables == numbers(alone.run)[0]


def test_runs_side_by_side_have_cores_of_their_own(executor: PackedExecutor, make: Make) -> None:
    jobs = submit(executor, *[make(**ENDLESS, workers=1, seed=seed) for seed in (1, 2)])
    until(executor, lambda: all(map(steps, jobs)))
    for job, core in zip(jobs, executor.slots.cores, strict=True):
        (pid,) = ranks_of(job)
        threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
        assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {frozenset([core])}
    (large,) = submit(executor, make(**ENDLESS, workers=3))
    executor.cancel(jobs, "make room", grace_s=60)
    until(executor, lambda: steps(large))
    first, second = executor.slots.cores  # as without a world: whom there is no core for may use all
    assert [os.sched_getaffinity(pid) for pid in ranks_of(large)] == [{first}, {second}, {first, second}]


def test_a_killed_launcher_leaves_no_process_and_resume_continues(
    start: Callable[..., Program], tmp_path: Path, digits: Path
) -> None:
    grid = (
        "-m",
        "hydra.sweep.dir=sweep",
        f"data.root={digits}",
        "sweep.pack=true",
        "experiment=quick",
        "seed=1,2,3",
        "workers=2",
        "epochs=30",
    )
    program = start(*grid, "checkpoint.every_steps=50", without=PLAYED)

    def runs() -> list[Run]:
        return runs_of(tmp_path / "sweep")

    eventually(lambda: any(run.status() == run_directory.DONE for run in runs()), 120)
    world = (tmp_path / "sweep/worlds/world-1").absolute()
    processes = find_processes(world, WORLD_VARIABLE)
    assert len(processes) == 5  # mpirun, what it has started as two ranks, and these, forked by somebody else
    (forks,) = {parent_of(pid) for pid in processes} - {*processes, program.process.pid}
    program.process.kill()
    program.end()
    eventually(lambda: not find_processes(world, WORLD_VARIABLE) and not Path(f"/proc/{forks}/environ").exists())
    before = {run.name: run.status() for run in runs()}
    again = start(*grid, "checkpoint.every_steps=50", "sweep.resume=sweep", without=PLAYED)
    code, out, err = again.end(200)
    assert code == 0, out + err
    assert all(run.status() == run_directory.DONE for run in runs())
    for run in runs():
        last = [attempt["status"] for attempt in run.state()["attempts"]]
        assert last == (
            [run_directory.DONE]
            if before[run.name] != run_directory.RUNNING
            else [run_directory.FAILED, run_directory.DONE]
        )


def test_an_interrupted_sweep_leaves_no_process(start: Callable[..., Program], tmp_path: Path, digits: Path) -> None:
    grid = ("-m", "hydra.sweep.dir=sweep", "sweep.pack=true", "experiment=quick", "epochs=1000000", "seed=1,2")
    program = start(*grid, "workers=2", f"data.root={digits}", without=PLAYED)
    eventually(lambda: any(files.last_row(run.path(run_directory.STEPS)) for run in runs_of(tmp_path / "sweep")))
    program.process.send_signal(signal.SIGINT)
    code, out, err = program.end()
    assert code == 128 + signal.SIGINT and "Traceback" not in err
    assert [run.status() for run in runs_of(tmp_path / "sweep")] == [run_directory.CANCELLED] * 2
    assert not find_processes((tmp_path / "sweep/worlds/world-1").absolute(), WORLD_VARIABLE)
