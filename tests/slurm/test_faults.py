"""What goes wrong in a night on a cluster, against a real SLURM: nothing is lost, nothing runs twice, nothing is left.

The ranks of most tests are a shell script that waits for the test, so that every fault comes at a known moment. The
fixture `slurm` asserts after every test that no process of a job is left.
"""

from __future__ import annotations

import contextlib
import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from gradsweep import files, run_directory
from gradsweep.run_directory import Run, runs_of
from sweep.attempts.mpirun import MpirunAttempt
from sweep.attempts.run_task import RunTask
from sweep.directory import run_identity, run_layout
from sweep.settings.mpi import MpiSettings
from tests.conftest import PLAYED, Program, eventually
from tests.slurm.conftest import CPUS, MAX_ARRAY, NODES, Slurm
from tests.slurm.test_cluster import as_root

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

WAIT_S = 240  # at most; a machine may have other things to do, too

# $5 is the directory of the run, after the number of workers, python, -m and trainers
RANK = r"""
date +%s%N >> "$5/began"
saved='{"status": "preempted", "reason": "saved at step 7"}'
trap 'echo "$saved" > "$GRADSWEEP_ATTEMPT/stopped.json"; exit 0' USR1
while [ ! -e "$0.go" ] && [ ! -e "$5/go" ]; do sleep 0.1; done
echo '{"status": "done"}' > "$5/result.json"
"""


MPIRUN = '[mpirun,--bind-to,none,--oversubscribe,-n,"{workers}"]'


class Night:
    """A sweep whose runs differ in their seed, as jobs of `slurm`, with ranks that wait for `let_end`."""

    def __init__(self, slurm: Slurm, start: Callable[..., Program], folder: Path) -> None:
        self.slurm, self._start, self.folder = slurm, start, folder
        self.script = folder / "rank"
        self.script.write_text(RANK, encoding="utf-8")
        self._programs: list[Program] = []

    def begin(self, *arguments: str, without: Sequence[str] = PLAYED) -> Program:
        """Start the launcher."""
        given = {word.split("=")[0]: word for word in arguments}
        usual = [
            "hydra/launcher=slurm",
            "hydra.launcher.poll_s=0.5",
            "sweep.retries=0",
            "hydra.sweep.dir=sweep",
            "experiment=quick",
            f'mpi.command=[sh,{self.script},"{{workers}}"]',
        ]
        usual = [word for word in usual if word.split("=")[0] not in given]
        self._programs.append(self._start("-m", *usual, *arguments, without=without))
        return self._programs[-1]

    def close(self) -> None:
        """End what is left of a test that has failed, and say what it had to say."""
        for program in self._programs:
            if program.process.poll() is None:
                program.process.send_signal(signal.SIGTERM)
                print(*program.end(WAIT_S))

    @property
    def mpirun(self) -> str:
        """The override that starts the ranks with mpirun."""
        return f'mpi.command=[mpirun,--bind-to,none,-n,"{{workers}}",sh,{self.script},ranks]'

    @property
    def runs(self) -> list[Run]:
        """The runs by their seeds."""
        found = runs_of(self.folder / "sweep") if (self.folder / "sweep").exists() else []
        return sorted(found, key=lambda run: int(run.name.partition("seed=")[2].split("-")[0].split(",")[0] or 0))

    def began(self, run: Run) -> int:
        """How often a rank of the run has begun."""
        with contextlib.suppress(OSError):
            return len(run.path("began").read_text(encoding="ascii").splitlines())
        return 0

    def is_running(self, run: Run, began: int = 1) -> bool:
        """Whether `began` ranks of a run have begun up to now, and its state tells of the attempt."""
        return self.began(run) == began and run.status() == run_directory.RUNNING

    def all_running(self, number: int) -> list[Run]:
        """So many runs, once their ranks wait."""
        eventually(lambda: len(self.runs) == number and all(map(self.is_running, self.runs)), WAIT_S)
        return self.runs

    def job(self, run: Run) -> str:
        """SLURM's id of the job that computes a run."""
        return str(run.state()["attempts"][-1]["job"])

    def let_end(self) -> None:
        """Have all ranks finish."""
        Path(f"{self.script}.go").touch()

    def statuses(self) -> list[str]:
        return [run.status() for run in self.runs]


@pytest.fixture
def night(slurm: Slurm, start: Callable[..., Program], tmp_path: Path) -> Iterator[Night]:
    night = Night(slurm, start, tmp_path)
    yield night
    night.close()


def processes_with(text: str, slurm: Slurm) -> list[int]:
    """The processes of jobs whose command line has `text` in it."""
    return [int(line.split()[0]) for line in slurm.processes() if text in line]


def test_jobs_cancelled_killed_held_and_requeued_from_outside(night: Night) -> None:
    program = night.begin("seed=range(6)", "workers=1", "sweep.retries=1", "sweep.backoff_s=1")
    untouched, cancelled, shot, orphaned, requeued, _ = night.all_running(6)
    slurm = night.slurm
    slurm.ask("scancel", night.job(cancelled))
    (rank,) = processes_with(str(shot.directory), slurm)[-1:]
    os.kill(rank, signal.SIGKILL)
    os.kill(job_python(night, orphaned), signal.SIGKILL)
    slurm.ask("scontrol", "requeue", night.job(requeued))
    eventually(lambda: night.began(requeued) == 2, WAIT_S)
    eventually(lambda: night.began(shot) == 2 and cancelled.status() == run_directory.CANCELLED, WAIT_S)
    night.let_end()
    code, out, err = program.end(WAIT_S)
    assert code == 1, out + err
    assert [run.status() for run in (untouched, shot, requeued)] == [run_directory.DONE] * 3, out
    assert cancelled.status() == run_directory.CANCELLED
    assert "SIGKILL" in shot.state()["attempts"][0]["reason"]
    assert orphaned.status() == run_directory.FAILED, orphaned.state()
    assert [night.began(run) for run in (untouched, cancelled, requeued)] == [1, 1, 2]


def job_python(night: Night, run: Run) -> int:
    """The process of a job that drives its run: the parent of what plays mpirun."""
    return int(Path(f"/proc/{run.state()['attempts'][-1]['pid']}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_job_held_or_on_nodes_that_are_switched_on_is_waited_for(
    night: Night, slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM says CONFIGURING while nodes are switched on for a job, for minutes; here a squeue that plays it does."""
    real = slurm.ask("sh", "-c", "command -v squeue").strip()
    squeue = tmp_path / "bin" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text(
        f'#!/bin/sh\ntouch {tmp_path}/asked\n{real} "$@" | sed s/PENDING/CONFIGURING/\n', encoding="utf-8"
    )
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{squeue.parent}:{os.environ['PATH']}")
    program = night.begin("seed=range(2)", "workers=1", "hydra.launcher.array_parallelism=1")
    eventually(lambda: len(night.runs) == 2 and any(map(night.began, night.runs)), WAIT_S)
    (job,) = [job for job, state in slurm.queue().items() if state == "PENDING"]
    slurm.ask("scontrol", "hold", job)
    night.let_end()
    eventually(lambda: night.statuses().count(run_directory.DONE) == 1, WAIT_S)
    for _ in range(3):
        (tmp_path / "asked").unlink(missing_ok=True)
        eventually((tmp_path / "asked").exists, WAIT_S)
    assert sorted(night.statuses()) == [run_directory.DONE, run_directory.PENDING] and program.process.poll() is None
    slurm.ask("scontrol", "release", job)
    code, out, err = program.end(WAIT_S)
    assert (code, night.statuses()) == (0, [run_directory.DONE] * 2), out + err


@as_root
def test_kill_of_a_rank_or_of_mpirun_and_scancel_on_two_nodes(night: Night, slurm: Slurm) -> None:
    program = night.begin("seed=range(4)", "workers=2", "hydra.launcher.nodes=2", night.mpirun)
    eventually(lambda: len(night.runs) == 4 and all(night.is_running(run, 2) for run in night.runs), WAIT_S)
    rank_lost, mpirun_lost, cancelled, well = night.runs
    os.kill(processes_with(f"trainers {rank_lost.directory}", slurm)[-1], signal.SIGKILL)
    os.kill(mpirun_lost.state()["attempts"][-1]["pid"], signal.SIGKILL)
    slurm.ask("scancel", night.job(cancelled))
    ended = [rank_lost, mpirun_lost, cancelled]
    statuses = [run_directory.FAILED, run_directory.FAILED, run_directory.CANCELLED]
    eventually(lambda: [run.status() for run in ended] == statuses, WAIT_S)
    for run in ended:
        eventually(lambda run=run: not processes_with(str(run.directory), slurm), WAIT_S)
    night.let_end()
    code, out, err = program.end(WAIT_S)
    assert (code, well.status()) == (1, run_directory.DONE), out + err
    assert "killed by SIGKILL" in rank_lost.state()["reason"]
    assert "the MPI launcher was killed by SIGKILL" in mpirun_lost.state()["reason"]


@as_root
def test_a_node_lost_under_mpirun_is_no_end_of_the_run(night: Night, slurm: Slurm) -> None:
    """mpirun of Open MPI 5.0 exits with 0 when the node of a rank is gone."""
    cpus = f"hydra.launcher.cpus={CPUS}"
    program = night.begin("seed=range(1)", "workers=2", "hydra.launcher.nodes=2", cpus, night.mpirun)
    eventually(lambda: night.runs and night.is_running(night.runs[0], 2), WAIT_S)
    (run,) = night.runs
    assert run.state()["attempts"][-1]["nodes"] == "n[1-2]"
    slurm.cluster("fail", "n2")
    eventually(lambda: night.began(run) == 4, WAIT_S)
    night.let_end()
    code, out, err = program.end(WAIT_S)
    assert (code, run.status()) == (0, run_directory.DONE), out + err
    assert run.state()["attempts"][-1]["nodes"] == "n[1,3]"


@as_root
def test_a_lost_node_and_one_set_down_give_their_runs_to_another_one(night: Night, slurm: Slurm) -> None:
    cpus = f"hydra.launcher.cpus={CPUS}"  # each run has a node to itself
    program = night.begin("seed=range(3)", "workers=1", cpus)
    runs = {run.state()["attempts"][-1]["nodes"]: run for run in night.all_running(3)}
    assert sorted(runs) == list(NODES)
    slurm.cluster("fail", "n2")
    slurm.ask("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=tried")
    runs["n1"].path("go").touch()
    for name in ("n2", "n3"):
        eventually(lambda name=name: night.began(runs[name]) == 2, WAIT_S)
        runs[name].path("go").touch()
    code, out, err = program.end(WAIT_S)
    assert (code, night.statuses()) == (0, [run_directory.DONE] * 3), out + err
    assert [night.began(runs[name]) for name in NODES] == [1, 2, 2]
    assert [attempt["cause"] for attempt in runs["n2"].state()["attempts"]] == ["lost", None]


def kill_slurmctld(slurm: Slurm) -> None:
    """With what it knows saved: else it begins jobs again after its restart (and the nodes refuse)."""
    saved, now = slurm.directory / "state" / "job_state", time.time()
    slurm.ask("scontrol", "update", f"JobId={next(iter(slurm.queue())).partition('_')[0]}", "Comment=saved")
    eventually(lambda: saved.exists() and saved.stat().st_mtime > now, WAIT_S)
    os.kill(slurm.pid("slurmctld"), signal.SIGKILL)


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_slurmctld_down_for_a_while(night: Night, slurm: Slurm, seconds: float) -> None:
    program = night.begin("seed=range(4)", "workers=1", "hydra.launcher.array_parallelism=2")
    eventually(lambda: sum(map(night.began, night.runs)) == 2, WAIT_S)
    kill_slurmctld(slurm)
    night.let_end()
    eventually(lambda: night.statuses().count(run_directory.DONE) == 2, WAIT_S)
    time.sleep(seconds)  # some questions that nobody answers
    assert program.process.poll() is None
    slurm.cluster("up")
    code, out, err = program.end(WAIT_S)
    assert (code, night.statuses()) == (0, [run_directory.DONE] * 4), out + err
    assert [night.began(run) for run in night.runs] == [1] * 4


def test_a_cancel_while_slurmctld_is_down_waits_for_it_and_holds_up_nothing_else(night: Night, slurm: Slurm) -> None:
    program = night.begin("seed=range(2)", "workers=1")
    cancelled, other = night.all_running(2)
    kill_slurmctld(slurm)
    sweep = night.folder / "sweep"
    asking = subprocess.Popen(
        [sys.executable, "-m", "sweep", "cancel", str(sweep), cancelled.name], stdout=subprocess.PIPE, text=True
    )
    eventually(lambda: list(sweep.glob("requests/*.json")), WAIT_S)
    other.path("go").touch()
    eventually(lambda: '"run_ended"' in (sweep / run_directory.EVENTS).read_text(encoding="utf-8"), WAIT_S)
    assert asking.poll() is None and cancelled.status() == run_directory.RUNNING
    slurm.cluster("up")
    assert "1 run of 2 cancelled" in asking.communicate(timeout=WAIT_S)[0]
    code, out, err = program.end(WAIT_S)
    assert (code, night.statuses()) == (1, [run_directory.CANCELLED, run_directory.DONE]), out + err
    assert [night.began(run) for run in night.runs] == [1, 1]


def test_a_killed_launcher_is_gone_on_with_and_nothing_runs_twice(night: Night, slurm: Slurm) -> None:
    grid = ("seed=range(4)", "workers=1", "hydra.launcher.array_parallelism=2")
    program = night.begin(*grid)
    eventually(lambda: sum(map(night.began, night.runs)) == 2, WAIT_S)
    program.process.kill()
    program.end()
    again = night.begin(*grid, "sweep.resume=sweep")
    time.sleep(3)
    night.let_end()
    code, out, err = again.end(WAIT_S)
    assert (code, night.statuses()) == (0, [run_directory.DONE] * 4), out + err
    assert [night.began(run) for run in night.runs] == [1] * 4


def test_a_launcher_killed_while_it_submits(night: Night, slurm: Slurm) -> None:
    grid = ("seed=range(3)", "workers=1")
    program = night.begin(*grid)
    eventually(lambda: list((night.folder / "sweep").glob("slurm/*")), WAIT_S)
    program.process.kill()
    program.end()
    night.let_end()
    code, out, err = night.begin(*grid, "sweep.resume=sweep").end(WAIT_S)
    assert (code, night.statuses()) == (0, [run_directory.DONE] * 3), out + err
    assert [night.began(run) for run in night.runs] == [1] * 3


def test_a_launcher_that_is_asked_to_end_takes_its_jobs_along(night: Night, slurm: Slurm) -> None:
    program = night.begin("seed=range(3)", "workers=1", "hydra.launcher.array_parallelism=2")
    eventually(lambda: sum(map(night.began, night.runs)) == 2, WAIT_S)
    program.process.send_signal(signal.SIGTERM)
    code, out, err = program.end(WAIT_S)
    assert code == 128 + signal.SIGTERM, out + err
    assert night.statuses() == [run_directory.CANCELLED] * 3
    eventually(lambda: not slurm.queue(), WAIT_S)


def test_what_waits_for_its_turn_again_is_cancelled_too(night: Night, slurm: Slurm) -> None:
    code, out, err = night.begin("seed=range(2)", "workers=1", "sweep.wait=false").end(WAIT_S)
    assert (code, "go on" in out or "goes on" in out) == (0, True), out + err
    sent_away, running = night.all_running(2)
    slurm.ask("scancel", "--batch", "--signal=USR2", night.job(sent_away))
    eventually(
        lambda: sent_away.status() == run_directory.PREEMPTED and slurm.queue()[night.job(sent_away)] == "PENDING",
        WAIT_S,
    )
    assert "; queued again; job " in slurm.ask(sys.executable, "-m", "sweep", "status", str(night.folder / "sweep"))
    said = slurm.ask(sys.executable, "-m", "sweep", "cancel", str(night.folder / "sweep"))
    assert "2 runs of 2 cancelled" in said
    assert night.statuses() == [run_directory.CANCELLED] * 2
    eventually(lambda: not slurm.queue(), WAIT_S)
    assert [night.began(run) for run in night.runs] == [1, 1]


def test_more_runs_than_an_array_may_have(night: Night, slurm: Slurm) -> None:
    night.let_end()
    number = MAX_ARRAY + 5
    code, out, err = night.begin(f"seed=range({number})", "workers=1").end(WAIT_S)
    assert (code, night.statuses()) == (0, [run_directory.DONE] * number), out + err
    arrays = {job.partition("_")[0] for run in night.runs for job in [night.job(run)]}
    assert len(arrays) == 2
    assert [night.began(run) for run in night.runs] == [1] * number


def test_preempted_out_of_time_and_sent_away_too_often(night: Night, slurm: Slurm) -> None:
    cpus = f"hydra.launcher.cpus={CPUS}"  # each run has a node to itself
    program = night.begin(
        "seed=range(3)", "workers=1", cpus, "hydra.launcher.partition=low", "hydra.launcher.requeues=1"
    )
    preempted, late, unlucky = night.all_running(3)
    node = preempted.state()["attempts"][-1]["nodes"]
    wanted = ("--partition=debug", "--exclusive", f"--nodelist={node}", "--output=/dev/null", "--wrap", "sleep 1000")
    other = slurm.ask("sbatch", "--parsable", *wanted).strip()
    slurm.ask("scontrol", "update", f"JobId={night.job(late)}", "EndTime=now+60")
    for times in (1, 2):
        eventually(lambda times=times: night.began(unlucky) == times, WAIT_S)
        slurm.ask("scancel", "--batch", "--signal=USR2", night.job(unlucky))
    eventually(lambda: unlucky.status() == run_directory.TIMEOUT, WAIT_S)
    eventually(lambda: night.began(late) == 2, WAIT_S)
    late.path("go").touch()
    eventually(lambda: slurm.queue()[other] == "RUNNING", WAIT_S)
    slurm.ask("scancel", other)
    eventually(lambda: night.began(preempted) == 2, WAIT_S)
    night.let_end()
    code, out, err = program.end(WAIT_S)
    assert (code, night.statuses()) == (1, [run_directory.DONE, run_directory.DONE, run_directory.TIMEOUT]), out + err
    reasons = [run.state()["attempts"][0]["reason"] for run in (preempted, late)]
    assert reasons == ["preempted by SLURM; saved", "near its time limit of 60 minutes; saved"]
    told = [line for line in out.splitlines() if line.startswith("preempted  ") and line.endswith("; queued again)")]
    assert {line.split("  ")[1] for line in told} == {run.name for run in night.runs}
    assert "hydra.launcher.requeues=1" in out and [night.began(run) for run in night.runs] == [2, 2, 2]


def test_preempted_where_jobs_are_ended_and_not_queued_again(night: Night, slurm: Slurm) -> None:
    """As sites with PreemptMode=CANCEL have it, without a word before: another try, in a job of its own."""
    slurm.ask("scontrol", "create", "PartitionName=spare", "Nodes=ALL", "PriorityTier=1", "PreemptMode=CANCEL")
    try:
        usual = ("workers=1", f"hydra.launcher.cpus={CPUS}", "hydra.launcher.partition=spare")
        program = night.begin(*usual, "sweep.retries=1", "sweep.backoff_s=1")
        (run,) = night.all_running(1)
        first, node = night.job(run), run.state()["attempts"][-1]["nodes"]
        wanted = (
            *("--partition=debug", "--exclusive", f"--nodelist={node}"),
            *("--output=/dev/null", "--wrap", "sleep 1000"),
        )
        other = slurm.ask("sbatch", "--parsable", *wanted).strip()
        eventually(lambda: slurm.queue().get(other) == "RUNNING", WAIT_S)
        eventually(lambda: night.is_running(run, 2), WAIT_S)
        assert night.job(run) != first and slurm.states()[first] == "PREEMPTED"
        night.let_end()
        code, out, err = program.end(WAIT_S)
        assert (code, run.status()) == (0, run_directory.DONE), out + err
        attempt = run.state()["attempts"][0]
        assert (attempt["status"], attempt["cause"]) == (run_directory.FAILED, "lost")
        assert "retry 1 of 1 in 1 s" in out and "SLURM preempted it and did not queue it again" in attempt["reason"]
    finally:
        slurm.ask("scancel", "--user", str(os.geteuid()))
        eventually(lambda: not slurm.queue(), WAIT_S)
        slurm.ask("scontrol", "delete", "PartitionName=spare")


@as_root
def test_a_run_that_is_sent_away_goes_on_bit_for_bit(night: Night, slurm: Slurm, digits: Path) -> None:
    """What SLURM sends before a time limit, or to preempt, saves the run; its job is queued again and goes on."""
    training = ("epochs=80", "compressor=topk", "memory=residual", "workers=2", "checkpoint.final=true")
    program = night.begin(
        *training, f"data.root={digits}", "hydra.launcher.nodes=2", "mpi=openmpi", "mpi.command=" + MPIRUN
    )
    eventually(lambda: night.runs and files.last_row(night.runs[0].path(run_directory.STEPS)), WAIT_S)
    (run,) = night.runs
    slurm.ask("scancel", "--batch", "--signal=USR2", night.job(run))
    code, out, err = program.end(WAIT_S)
    assert code == 0, out + err
    assert [attempt["status"] for attempt in run.state()["attempts"]] == [run_directory.PREEMPTED, run_directory.DONE]
    result = run.result()
    assert result is not None and 0 < result["resumed_after"][0] < 960

    config = yaml.safe_load(run.path(run_directory.CONFIG).read_text(encoding="utf-8"))
    (whole,) = run_layout.lay_out(night.folder / "whole", [run_identity.Point(config, {})])
    mpi = MpiSettings(**config["mpi"])
    attempt = MpirunAttempt(RunTask(str(whole.directory), 2, 1, mpi.resolve_command(), mpi.variables), [0])
    assert eventually(attempt.poll, WAIT_S) == run_directory.DONE, attempt.reason
    assert losses(run) == losses(whole) and len(losses(run)) == 960
    assert parameters(run) == parameters(whole)


def losses(run: Run) -> list[tuple[str, str, str]]:
    with run.path(run_directory.STEPS).open(encoding="utf-8") as file:
        return [(row["step"], row["loss"], row["memory_norm"]) for row in csv.DictReader(file)]


def parameters(run: Run) -> bytes:
    """The weights of the last checkpoint."""
    (path,) = run.path(run_directory.CHECKPOINT).glob("*/shared.pt")
    return path.read_bytes()
