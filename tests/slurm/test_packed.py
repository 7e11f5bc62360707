"""One allocation for many runs (sweep.pack), against a real SLURM: as test_faults.py, with ranks that are played.

tests/sweep/fake_world.py plays mpirun and its ranks: each run waits for the test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradsweep import run_directory
from gradsweep.run_directory import Run, runs_of
from sweep.system.processes import find_processes
from tests.conftest import PLAYED, QUICK, ROOT, Program, eventually
from tests.slurm.conftest import CPUS, NODES, Slurm
from tests.slurm.test_cluster import as_root
from tests.slurm.test_faults import WAIT_S, Night, processes_with
from tests.sweep.executors.packed.test_packed_runs import numbers

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

FAKE = ROOT / "tests" / "sweep" / "fake_world.py"


class PackedNight(Night):
    """A sweep whose runs differ in their seed, several in an allocation."""

    def begin(self, *arguments: str, without: Sequence[str] = PLAYED) -> Program:
        command = f'mpi.command=[python,"{FAKE}","{{workers}}"]'
        if not any(word.startswith("mpi.command=") for word in arguments):
            arguments = (command, *arguments)
        go = f"+mpi.environment.FAKE_GO={self.script}.go"
        return super().begin("sweep.pack=true", go, *arguments, without=without)

    def running(self) -> list[Run]:
        return [run for run in self.runs if run.status() == run_directory.RUNNING]

    def trains(self, number: int = 1, *others: Run) -> list[Run]:
        """So many runs besides others, once their ranks have begun, for the last attempt of each."""

        def look() -> list[Run]:
            found = [run for run in self.running() if run not in others]
            begun = [run for run in found if self.began(run) == len(run.state()["attempts"])]
            return begun if len(begun) == number else []

        eventually(look, WAIT_S)
        return look()

    def rank(self, run: Run) -> int:
        """The process of the first rank that trains a run."""
        return int(run.path("began").read_text(encoding="ascii").split()[-1])

    def jobs(self) -> dict[str, list[str]]:
        """The statuses of the attempts of each run, by its seed."""
        return {str(at): [each["status"] for each in run.state()["attempts"]] for at, run in enumerate(self.runs)}


@pytest.fixture
def night(slurm: Slurm, start: Callable[..., Program], tmp_path: Path) -> Iterator[PackedNight]:
    night = PackedNight(slurm, start, tmp_path)
    yield night
    night.close()


def job_python(run: Run) -> int:
    """The process of a job: the parent of what plays mpirun."""
    return int(Path(f"/proc/{run.state()['attempts'][-1]['pid']}/stat").read_text().rpartition(")")[2].split()[1])


def test_runs_are_shared_out_and_trained_one_after_the_other(night: PackedNight, slurm: Slurm) -> None:
    program = night.begin("seed=range(6)", "workers=1,2", "hydra.launcher.allocations=2")
    eventually(lambda: len(night.trains(4)) == 4, WAIT_S)  # of each group two
    assert len(slurm.queue()) == 4
    night.let_end()
    code, out, err = program.end(WAIT_S)
    assert (code, night.statuses()) == (0, [run_directory.DONE] * 12), out + err
    assert [night.began(run) for run in night.runs] == [1] * 12
    jobs = [run.state()["attempts"][0]["job"] for run in night.runs]
    assert {jobs.count(job) for job in jobs} == {3} and len({job.partition("_")[0] for job in jobs}) == 2
    worlds = list((night.folder / "sweep" / "slurm").glob("batch-*_*/worlds/*"))
    assert len(worlds) == 4


def test_runs_side_by_side_in_one_allocation(night: PackedNight, slurm: Slurm) -> None:
    program = night.begin("seed=range(4)", "workers=1", "hydra.launcher.side_by_side=2")
    first, second = night.trains(2)
    assert len({night.job(first), night.job(second), *slurm.queue()}) == 1
    assert first.state()["attempts"][0]["world"] == second.state()["attempts"][0]["world"]
    night.let_end()
    code, out, err = program.end(WAIT_S)
    assert (code, night.statuses()) == (0, [run_directory.DONE] * 4), out + err


def test_ranks_jobs_and_runs_that_are_killed(night: PackedNight, slurm: Slurm) -> None:
    grid = ("seed=range(6)", "workers=1", "hydra.launcher.allocations=3")
    program = night.begin(*grid, "sweep.retries=1", "sweep.backoff_s=1")
    shot, orphaned, cancelled = night.trains(3)
    left = {night.job(run): run for run in (shot, orphaned, cancelled)}
    assert len(left) == 3
    first = night.job(shot), night.job(orphaned)
    os.kill(night.rank(shot), signal.SIGKILL)
    os.kill(job_python(orphaned), signal.SIGKILL)
    slurm.ask("scancel", night.job(cancelled))
    eventually(lambda: night.began(shot) == 2 and orphaned.status() == run_directory.FAILED, WAIT_S)
    assert night.job(shot) != first[0]  # another job tries again, while its own goes on with the rest
    assert "SIGKILL" in shot.state()["attempts"][0]["reason"]
    night.let_end()
    code, out, err = program.end(WAIT_S)
    statuses = night.statuses()
    assert code == 1 and statuses.count(run_directory.CANCELLED) == 2, out + err  # what its job had before it, too
    assert (shot.status(), orphaned.status()) == (run_directory.DONE, run_directory.FAILED)
    assert statuses.count(run_directory.DONE) == 3  # among them the one that the killed job had not begun: tried again
    assert max(night.began(run) for run in night.runs if run != shot) == 1


@as_root
def test_sent_away_it_is_queued_again_and_goes_on_with_what_is_missing(night: PackedNight, slurm: Slurm) -> None:
    program = night.begin("seed=range(3)", "workers=1", "hydra.launcher.requeues=1")
    (first,) = night.trains()
    job = night.job(first)
    slurm.ask("scontrol", "update", f"JobId={job}", "EndTime=now+60")
    eventually(lambda: night.began(first) == 2, WAIT_S)
    slurm.ask("scontrol", "update", f"JobId={job}", "TimeLimit=60")  # else SLURM sends its signal at every start
    assert first.state()["attempts"][0]["reason"] == "near its time limit of 60 minutes; saved"
    first.path("go").touch()
    (second,) = night.trains(1, first)
    assert first.status() == run_directory.DONE
    for times in (1, 2):
        eventually(lambda times=times: night.began(second) == times, WAIT_S)
        slurm.ask("scancel", "--batch", "--signal=USR2", job)
        eventually(lambda times=times: len(second.state()["attempts"]) == times, WAIT_S)
        eventually(lambda: second.state()["attempts"][-1]["status"] == run_directory.PREEMPTED, WAIT_S)
    eventually(lambda: second.status() == run_directory.TIMEOUT, WAIT_S)
    (third,) = night.trains(1, first, second)
    slurm.ask("scontrol", "requeue", job)
    eventually(lambda: night.began(third) == 2, WAIT_S)
    night.let_end()
    code, out, err = program.end(WAIT_S)
    assert code == 1 and "hydra.launcher.requeues=1" in out, out + err
    assert (first.status(), second.status(), third.status()) == (
        run_directory.DONE,
        run_directory.TIMEOUT,
        run_directory.DONE,
    )
    assert [night.began(run) for run in (first, second, third)] == [2, 2, 2]
    assert {each["job"] for run in night.runs for each in run.state()["attempts"]} == {job}


def test_a_killed_launcher_is_gone_on_with_and_nothing_runs_twice(night: PackedNight, slurm: Slurm) -> None:
    grid = ("seed=range(5)", "workers=1", "hydra.launcher.allocations=2", "hydra.launcher.array_parallelism=1")
    program = night.begin(*grid)
    (first,) = night.trains()
    program.process.kill()
    program.end()
    before = slurm.queue()
    again = night.begin(*grid, "sweep.resume=sweep")
    time.sleep(3)
    assert slurm.queue().keys() == before.keys()
    first.path("go").touch()
    night.trains(1, first)
    night.let_end()
    code, out, err = again.end(WAIT_S)
    assert (code, night.statuses()) == (0, [run_directory.DONE] * 5), out + err
    assert [night.began(run) for run in night.runs] == [1] * 5


def test_runs_are_cancelled_from_other_shells_while_their_allocation_goes_on(night: PackedNight, slurm: Slurm) -> None:
    """With a launcher, and without: both a run that is trained and one that waits for its turn."""
    sweep = str(night.folder / "sweep")

    def cancel(*runs: Run) -> str:
        return slurm.ask(sys.executable, "-m", "sweep", "cancel", sweep, *(run.name for run in runs))

    program = night.begin("seed=range(6)", "workers=1", "sweep.wait=false")
    code, out, err = program.end(WAIT_S)
    assert code == 0 and "6 of 6 runs are with SLURM" in out, out + err
    (first,) = night.trains()
    waiting = [run for run in night.runs if run != first]
    said = cancel(first, waiting[0])
    assert "2 runs of 6 cancelled" in said and first.status() == waiting[0].status() == run_directory.CANCELLED
    eventually(lambda: not find_processes(first.attempt(1)), WAIT_S)
    (second,) = night.trains(1, first)
    again = night.begin("seed=range(6)", "workers=1", "sweep.resume=sweep")
    eventually(lambda: len(night.trains(2)) == 2, WAIT_S)  # what was cancelled is begun in a job of its own
    assert [night.began(run) for run in night.runs].count(2) <= 1
    cancel(second)
    assert second.status() == run_directory.CANCELLED
    night.let_end()
    code, out, err = again.end(WAIT_S)
    assert code == 1 and night.statuses().count(run_directory.DONE) == 5, out + err
    assert all(night.began(run) == 1 + (run == first) for run in night.runs if night.began(run))


def test_a_launcher_that_is_asked_to_end_takes_its_jobs_along(night: PackedNight, slurm: Slurm) -> None:
    program = night.begin("seed=range(4)", "workers=2", "hydra.launcher.allocations=2")
    night.trains(2)
    program.process.send_signal(signal.SIGTERM)
    code, out, err = program.end(WAIT_S)
    assert code == 128 + signal.SIGTERM, out + err
    assert night.statuses() == [run_directory.CANCELLED] * 4
    eventually(lambda: not slurm.queue() and not processes_with("fake_world", slurm), WAIT_S)


def test_a_launcher_that_is_asked_to_stop_leaves_all_saved(night: PackedNight, slurm: Slurm) -> None:
    program = night.begin("seed=range(3)", "workers=1")
    (first,) = night.trains()
    program.process.send_signal(signal.SIGUSR1)
    code, out, err = program.end(WAIT_S)
    assert (first.status(), first.state()["reason"]) == (run_directory.PREEMPTED, "asked to stop; saved"), out + err
    assert sorted(night.statuses()) == [run_directory.CANCELLED] * 2 + [run_directory.PREEMPTED]
    eventually(lambda: not slurm.queue(), WAIT_S)


@as_root
def test_a_lost_node_gives_its_runs_to_another_one(night: PackedNight, slurm: Slurm) -> None:
    cpus = f"hydra.launcher.cpus={CPUS}"
    program = night.begin("seed=range(2)", "workers=1", cpus, f"hydra.launcher.exclude={NODES[0]}")
    (first,) = night.trains()
    node = first.state()["attempts"][0]["nodes"]
    slurm.cluster("fail", node)
    eventually(lambda: night.began(first) == 2, WAIT_S)
    night.let_end()
    code, out, err = program.end(WAIT_S)
    assert (code, night.statuses()) == (0, [run_directory.DONE] * 2), out + err
    attempts = first.state()["attempts"]
    assert [each["cause"] for each in attempts] == ["lost", None] and attempts[1]["nodes"] != node


@as_root
def test_a_second_node_lost_is_no_end_of_the_runs(night: PackedNight, slurm: Slurm) -> None:
    """Ranks on two nodes, which mpirun starts."""
    cpus = f"hydra.launcher.cpus={CPUS}"
    mpirun = f'mpi.command=[mpirun,--bind-to,none,-n,"{{workers}}",python,"{FAKE}",rank]'
    program = night.begin("seed=range(2)", "workers=2", "hydra.launcher.nodes=2", cpus, mpirun)
    (first,) = night.trains()
    assert first.state()["attempts"][0]["nodes"] == "n[1-2]"
    log = first.attempt(1) / run_directory.STDOUT
    eventually(lambda: log.read_text().count("rank ") == 2, WAIT_S)  # it comes over the connection
    slurm.cluster("fail", "n2")
    eventually(lambda: night.began(first) == 2, WAIT_S)
    night.let_end()
    code, out, err = program.end(WAIT_S)
    assert (code, night.statuses()) == (0, [run_directory.DONE] * 2), out + err
    attempts = first.state()["attempts"]
    assert attempts[0]["reason"].startswith("lost n2") and attempts[1]["nodes"] == "n[1,3]"


@as_root
@pytest.mark.parametrize(("mpi", "nodes"), [("openmpi", 2), ("srun_pmix", 1)])
def test_the_numbers_are_those_of_runs_of_their_own(
    slurm: Slurm, start: Callable[..., Program], tmp_path: Path, digits: Path, mpi: str, nodes: int
) -> None:
    """Real ranks, started by mpirun on two nodes and by srun."""
    grid = ("compressor=topk,qsgd", "memory=residual", "workers=2", f"hydra.launcher.nodes={nodes}")
    launcher = ("hydra/launcher=slurm", "hydra.launcher.poll_s=0.5", f"mpi={mpi}", "sweep.retries=0")
    found: dict[str, Any] = {}
    for pack in ("true", "false") if nodes > 1 else ("true",):
        folder = f"hydra.sweep.dir=pack-{pack}"
        command = ("-m", *QUICK, folder, f"data.root={digits}", *launcher, *grid, f"sweep.pack={pack}")
        code, out, err = start(*command, without=PLAYED).end(2 * WAIT_S)
        assert code == 0, out + err
        found[pack] = {run.name: numbers(run) for run in runs_of(tmp_path / f"pack-{pack}")}
    packed = runs_of(tmp_path / "pack-true")
    assert len({run.state()["attempts"][0]["job"] for run in packed}) == 1
    assert len({run.state()["attempts"][0]["world"] for run in packed}) == 1
    assert len(found["true"]) == 2 and list(found.values())[0] == list(found.values())[-1]
    assert all((run.attempt(1) / run_directory.STDOUT).read_text().startswith("mlp on digits") for run in packed)
    with contextlib.suppress(AssertionError):
        eventually(lambda: not slurm.queue())
