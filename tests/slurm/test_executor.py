"""What hydra/launcher=slurm asks a real SLURM for, and what it gives; what goes wrong is in test_faults.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.run_directory import runs_of
from tests.conftest import NO_REPORT, PLAYED, QUICK, Program, eventually
from tests.slurm.conftest import Slurm
from tests.slurm.test_cluster import as_root
from tests.slurm.test_faults import Night, night

__all__ = ["night"]
pytestmark = [pytest.mark.slurm, pytest.mark.thorough]
Start = Callable[..., Program]


def test_a_grid_in_which_resources_depend_on_the_point(night: Night) -> None:
    night.let_end()
    folder = "hydra.sweep.dir='sw %j ee%a p'"  # % is special to sbatch's names of files
    options = ("hydra.launcher.nodes=${ceil:${workers},1}", 'hydra.launcher.setup=["export FROM_SETUP=\\"a b\\" # c"]')
    program = night.begin("seed=1,2", "workers=1,2", folder, *options)
    code, out, err = program.end(240)
    assert code == 0, out + err
    runs = runs_of(night.folder / "sw %j ee%a p")
    assert [run.status() for run in runs] == [run_directory.DONE] * 4
    last = {run.name.rpartition("-")[0]: run.state()["attempts"][-1] for run in runs}
    assert last["seed=1,workers=2"]["nodes"] == "n[1-2]"
    arrays = [last[f"seed={seed},workers={workers}"]["job"] for workers in (1, 2) for seed in (1, 2)]
    assert [job.partition("_")[2] for job in arrays] == ["0", "1", "0", "1"]
    assert len({job.partition("_")[0] for job in arrays}) == 2
    assert len(list((night.folder / "sw %j ee%a p" / "slurm").glob("*_*.log"))) == 4


def test_runs_on_cores_that_a_partition_hands_out_twice_are_marked(night: Night, slurm: Slurm) -> None:
    """Also those that have asked for nodes of their own: such a partition does not care."""
    slurm.ask("scontrol", "create", "PartitionName=twice", "Nodes=ALL", "OverSubscribe=FORCE:2")
    try:
        words = ("hydra.launcher.exclusive=true", "hydra.launcher.nodelist=n1", "hydra.launcher.mem_gb=1")
        program = night.begin("seed=1,2", "workers=1", *words, "hydra.launcher.partition=twice")
        runs = night.all_running(2)
        assert {run.state()["attempts"][0]["nodes"] for run in runs} == {"n1"}
        night.let_end()
        code, out, err = program.end(240)
        assert code == 0 and out.count("  shared cores\n") == 2, out + err
        program = night.begin("seed=1,2,3", "workers=1", *words, "hydra.launcher.partition=debug", "sweep.resume=sweep")
        code, out, err = program.end(240)
        assert code == 0 and "shared cores\n" not in out, out + err
        assert [run.state()["shared_cores"] for run in night.runs] == [True, True, False]
    finally:
        slurm.ask("scancel", "--partition=twice")
        eventually(lambda: not slurm.queue())
        slurm.ask("scontrol", "delete", "PartitionName=twice")


def test_setup_is_seen_by_the_ranks(night: Night) -> None:
    night.script.write_text('echo "$FROM_SETUP" > "$5/seen"; echo \'{"status": "done"}\' > "$5/result.json"')
    setup = 'hydra.launcher.setup=["export FROM_SETUP=\\"a b\\" # as it is"]'
    code, out, err = night.begin("workers=1", setup).end(240)
    assert code == 0, out + err
    assert (night.runs[0].path("seen")).read_text() == "a b\n"


def test_a_module_that_is_not_there_is_the_reason(night: Night) -> None:
    night.let_end()
    code, out, err = night.begin("workers=1", "hydra.launcher.modules=[mpi/none]").end(240)
    assert code == 1
    (run,) = night.runs
    assert run.status() == run_directory.FAILED and "module: " in run.state()["reason"]  # command not found, here
    assert not run.state()["attempts"] and not night.began(run)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("hydra.launcher.partition=moon", "sbatch: invalid partition specified: moon; "),
        ("hydra.launcher.mem_gb=100000", "sbatch: "),
        ("+hydra.launcher.reservaton=x", "sbatch: unrecognized option '--reservaton=x'"),
    ],
)
def test_what_slurm_refuses_is_one_line_and_nothing_is_queued(
    night: Night, slurm: Slurm, option: str, words: str
) -> None:
    code, out, err = night.begin("workers=1,2", option).end(240)
    assert code == 2 and err.count("\n") == 1, out + err
    assert err.startswith(f"hydra/launcher=slurm: {words}") and err.endswith("; nothing was submitted\n")
    assert not slurm.queue()
    assert not (night.folder / "sweep").exists()


def test_a_closed_terminal_leaves_the_jobs_which_a_later_launcher_adopts(
    night: Night, slurm: Slurm, start: Start
) -> None:
    program = night.begin("seed=range(2)", "workers=1")
    night.all_running(2)
    jobs = slurm.queue()
    program.process.send_signal(signal.SIGHUP)
    assert program.end(240)[0] == 128 + signal.SIGHUP
    assert slurm.queue() == jobs and night.statuses() == [run_directory.RUNNING] * 2
    # this machine would compute them a second time
    command = f'mpi.command=[sh,{night.script},"{{workers}}"]'
    command_of_slurm = (command, "mpi.transport=auto")  # the default there, which is part of a run's signature
    here = ("experiment=quick", "hydra.sweep.dir=sweep", "sweep.resume=sweep", *command_of_slurm)
    code, out, err = start("-m", "seed=range(2)", "workers=1", *here, without=PLAYED).end(240)
    assert code == 2 and "cluster=local: SLURM still has runs of this sweep" in err and err.count("\n") == 1
    again = night.begin("seed=range(3)", "workers=1", "sweep.resume=sweep")  # and one more
    night.all_running(3)
    night.let_end()
    code, out, err = again.end(240)
    assert code == 0, out + err
    assert night.statuses() == [run_directory.DONE] * 3 and [night.began(run) for run in night.runs] == [1] * 3


@as_root
def test_ranks_started_by_srun_on_two_nodes(slurm: Slurm, start: Start, tmp_path: Path) -> None:
    launcher = ("hydra/launcher=slurm", "hydra.launcher.poll_s=0.5", "hydra.launcher.nodes=2", "mpi=srun_pmix")
    command = ("-m", "hydra.sweep.dir=sweep", *QUICK, *launcher, "workers=2", "network=real")
    code, out, err = start(*command, without=NO_REPORT).end(240)
    assert code == 0, out + err
    result = runs_of(tmp_path / "sweep")[0].result()
    assert result is not None and result["hosts"] == ["n1", "n2"]
    network = result["network"]  # between the nodes, and nothing of it can be other than expected
    assert network["hosts"] == 2 and network["measured"]["latency_s"] > 0 and network["expected"] is None


@as_root
def test_ranks_started_by_srun_are_saved_at_a_signal(night: Night, slurm: Slurm) -> None:
    """The job sends it to srun, which passes it on to the ranks, on two nodes."""
    srun = f'mpi.command=[srun,"--mpi=none",-n,"{{workers}}",sh,{night.script},ranks]'
    program = night.begin("workers=2", "hydra.launcher.nodes=2", srun)
    eventually(lambda: night.runs and night.is_running(night.runs[0], 2), 240)
    (run,) = night.runs
    slurm.ask("scancel", "--batch", "--signal=USR2", night.job(run))
    # what the ranks have written comes first, then why they were asked to
    eventually(lambda: run.state()["reason"] == "asked by SIGUSR2; saved", 240)
    assert run.status() == run_directory.PREEMPTED
    program.process.send_signal(signal.SIGTERM)  # how it goes on is in test_faults.py
    code, out, err = program.end(240)
    assert (code, run.status()) == (128 + signal.SIGTERM, run_directory.CANCELLED), out + err


def test_ranks_that_srun_does_not_tell_of_each_other_say_so(slurm: Slurm, start: Start, tmp_path: Path) -> None:
    """Without PMIx each rank is a world of its own; none may write a step."""
    command = 'mpi.command=[srun,"--mpi=none",-n,"{workers}"]'
    launcher = ("hydra/launcher=slurm", "hydra.launcher.poll_s=0.5", command)
    command = ("-m", "hydra.sweep.dir=sweep", *QUICK, *launcher, "workers=2")
    code, out, err = start(*command, without=NO_REPORT).end(240)
    assert code == 1, out + err
    (run,) = runs_of(tmp_path / "sweep")
    assert run.status() == run_directory.FAILED
    assert run.state()["reason"].startswith("workers=2: the MPI world has 1 rank(s); valid is an mpi.command that")
    assert not run.path(run_directory.STEPS).exists() and os.listdir(run.attempt(1)).count("failure-0.json") == 1
