"""The queue of this machine: order, cancellation; jobs that mean the same as submitit's. Without MPI: the
command of a run is a shell that plays mpirun; the words after it are its $0, $1, ... All shells run on
core 0, whichever they were leased: these machines may have no other."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from submitit import AutoExecutor
from submitit.core.utils import FailedJobError

from gradsweep import files, run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run
from sweep.attempts.failures import explain_exit
from sweep.attempts.mpirun import MpirunAttempt
from sweep.attempts.run_task import RunTask
from sweep.directory.run_state import reconcile_abandoned
from sweep.executors.local import SlotExecutor, SlotJob
from sweep.executors.slots import LockedSlots
from sweep.executors.submitit_adapter import RunFailed, compute
from sweep.system.job_environment import clean_environment
from sweep.system.lease import Lease
from sweep.system.processes import find_processes, prepare_child
from tests.conftest import ROOT, eventually
from tests.sweep.fakes import read_log

SUCCEED = """echo '{"status": "done", "accuracy": 0.5}' > "$3/result.json"
touch "$3/../order.$(date +%s%N).$(basename $3)" """
SLEEP = "sleep 1000 & sleep 1000"
Make = Callable[..., RunTask]
Build = Callable[..., SlotExecutor]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def task(name: str, script: str = SUCCEED, cores: int = 1, gpus: int = 0) -> RunTask:
        (tmp_path / name).mkdir(exist_ok=True)
        return RunTask(str(tmp_path / name), cores, 1, ["sh", "-c", script], {"FOO": "bar"}, gpus=gpus)

    return task


@pytest.fixture(autouse=True)
def a_machine_of_four_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slots").mkdir(mode=0o700)
    monkeypatch.setenv("GRADSWEEP_SLOTS", str(tmp_path / "slots"))
    monkeypatch.setattr("sweep.system.processes.prepare_child", lambda cores, parent: prepare_child([0], parent))


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Build]:
    executors = []

    def begin(**options: Any) -> SlotExecutor:
        executors.append(SlotExecutor(tmp_path, [0, 1, 2, 3], **options))
        return executors[-1]

    yield begin
    for executor in executors:
        executor.cancel_all("the test has ended")


@pytest.fixture
def executor(build: Build) -> SlotExecutor:
    return build()


LEASE = """import sys
from sweep.executors.slots import LockedSlots
lease = LockedSlots([0, 1, 2, 3], sweep='/their/sweep').lease(1)
print('ready', flush=True)
sys.stdin.read()
"""


def submit(executor: SlotExecutor, task: RunTask) -> SlotJob:
    (job,) = executor.submit_runs([task])
    assert isinstance(job, SlotJob)
    return job


def is_over(job: SlotJob) -> bool:
    job.executor.poll()
    return job.ended


def result_of(job: SlotJob) -> dict[str, Any]:
    job.wait()
    result = job.task.run.result()
    assert result is not None
    return result


def test_jobs_mean_what_submitits_mean(tmp_path: Path, make: Make) -> None:
    executor = AutoExecutor(tmp_path, cluster="slots")
    good = executor.submit(compute, make("good"))
    bad = executor.submit(compute, make("bad", "echo why >&2; exit 3"))
    assert good.result() == {"status": "done", "accuracy": 0.5}
    assert good.done() and good.state == "COMPLETED" and good.exception() is None and good.stdout() == ""
    with pytest.raises(FailedJobError, match="exited with 3"):
        bad.result()
    assert bad.state == "FAILED" and bad.stderr() == "why\n"
    assert isinstance(bad.exception(), FailedJobError)
    assert Run(tmp_path / "bad").state()["attempts"][0]["exit_code"] == 3
    assert good.get_info()["jobState"] == "COMPLETED" and "exited with 3" in bad.get_info()["reason"]


def test_submitit_finds_the_executor_by_name(tmp_path: Path, make: Make) -> None:
    auto = AutoExecutor(tmp_path, cluster="slots")
    assert auto.submit(make("run")).result()["status"] == "done"  # as before there was `compute`
    long = auto.submit(compute, make("long", SLEEP))
    long.cancel()
    assert long.done() and long.state == "CANCELLED"
    for wrong in ((print,), (print, make("other")), (compute, 1)):
        with pytest.raises(TypeError, match="RunTask"):
            auto.submit(*wrong)


def test_tasks_can_be_pickled_and_called_like_any_function(make: Make) -> None:
    """What submitit does in a SLURM job."""
    function, task = pickle.loads(pickle.dumps((compute, make("run"))))
    assert function(task)["accuracy"] == 0.5
    with pytest.raises(RunFailed, match="failed: the MPI launcher exited with 1"):
        compute(make("bad", "exit 1"))


def test_first_in_first_out_and_nobody_is_overtaken(executor: SlotExecutor, make: Make, tmp_path: Path) -> None:
    sizes = {"a": 3, "b": 4, "c": 1, "d": 1}
    wait = f"until [ -e '{tmp_path}/go' ]; do sleep 0.05; done\n"
    jobs = [submit(executor, make(name, wait + SUCCEED, cores)) for name, cores in sizes.items()]
    assert jobs[0].status == run_directory.RUNNING
    assert [job.status for job in jobs[1:]] == [run_directory.PENDING] * 3  # c would fit beside a, but b is first
    (tmp_path / "go").touch()
    for job in jobs:
        job.wait()
    order = [path.name.split(".")[-1] for path in sorted(tmp_path.glob("order.*"))]
    assert order[:2] == ["a", "b"] and set(order[2:]) == {"c", "d"}


def test_runs_that_are_submitted_together_start_in_the_arranged_order(build: Build, make: Make) -> None:
    executor = build(max_parallel=1, arrange=lambda tasks: sorted(tasks, key=lambda task: -len(task.run.name)))
    jobs = executor.submit_runs([make("a", SLEEP), make("bbb", SLEEP), make("cc", SLEEP)])
    assert [job.task.run.name for job in jobs] == ["a", "bbb", "cc"]
    for running in (1, 2, 0):
        assert [job.status == run_directory.RUNNING for job in jobs] == [place == running for place in range(3)]
        jobs[running].cancel()
        executor.poll()


def test_a_small_run_overtakes_a_large_one_that_has_to_wait_longer(build: Build, make: Make) -> None:
    seconds = {"long": 1000.0, "head": 900.0, "short": 1.0, "longer": 2000.0}
    executor = build(estimate=lambda task: seconds[task.run.name])
    sizes = {"long": 3, "head": 4, "short": 1, "longer": 1}
    jobs = {name: submit(executor, make(name, SLEEP, cores)) for name, cores in sizes.items()}
    assert {name: job.status == run_directory.RUNNING for name, job in jobs.items()} == {
        "long": True,
        "head": False,
        "short": True,
        "longer": False,
    }
    jobs["short"].cancel()
    executor.poll()
    assert jobs["longer"].status == run_directory.PENDING, "it would end when the head could long have run"
    jobs["long"].cancel()
    executor.poll()
    assert [jobs["head"].status, jobs["longer"].status] == [run_directory.RUNNING, run_directory.PENDING]


def test_a_run_that_is_to_be_alone_waits_for_all_others_and_they_for_it(executor: SlotExecutor, make: Make) -> None:
    beside, alone, after = make("beside", SLEEP), make("alone", SLEEP), make("after", SLEEP)
    alone.alone = True
    jobs = [submit(executor, task) for task in (beside, alone, after)]
    assert [job.status for job in jobs] == [run_directory.RUNNING, run_directory.PENDING, run_directory.PENDING]
    jobs[0].cancel()
    executor.poll()
    assert [job.status for job in jobs[1:]] == [run_directory.RUNNING, run_directory.PENDING]


def test_gpus_are_leased_to_one_run_at_a_time(build: Build, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    executor = build(gpus=lambda: ["0", "1", "3"])
    tell = f'env | grep CUDA_ > "$3/cuda"; {SLEEP}'
    jobs = [submit(executor, make(name, tell, 1, gpus)) for name, gpus in (("a", 2), ("b", 1), ("c", 1), ("d", 0))]
    assert [job.status for job in jobs] == [
        run_directory.RUNNING,
        run_directory.RUNNING,
        run_directory.PENDING,
        run_directory.PENDING,
    ]
    for job, ids in zip(jobs, ("0,1", "3"), strict=False):
        told = job.task.run.path("cuda")
        eventually(lambda told=told: told.exists() and told.read_text().count("\n") == 2)  # type: ignore[misc]
        assert sorted(told.read_text().split()) == ["CUDA_DEVICE_ORDER=PCI_BUS_ID", f"CUDA_VISIBLE_DEVICES={ids}"]
        assert job.task.run.state()["attempts"][-1]["gpus"] == ids.split(",")
    jobs[0].cancel()
    executor.poll()
    assert [job.status for job in jobs[2:]] == [run_directory.RUNNING, run_directory.RUNNING]
    assert jobs[3].task.run.state()["attempts"][-1]["gpus"] == []


def test_more_gpus_than_there_are_is_an_error_before_anything_starts(build: Build, make: Make) -> None:
    executor = build(gpus=lambda: ["0"])
    with pytest.raises(UsageError, match="wants 2 GPUs, of which there are 1"):
        executor.submit_runs([make("a", SLEEP), make("b", SLEEP, 1, 2)])
    assert not executor.active


def test_another_sweep_has_the_cores(build: Build, make: Make) -> None:
    one, other = build(), build()
    first = submit(one, make("first", SLEEP, 3))
    job = submit(other, make("second", SLEEP, 2))
    assert job.status == run_directory.PENDING
    assert first.waits_for is None
    first.cancel()
    eventually(lambda: is_over(job) or job.status == run_directory.RUNNING)
    assert job.status == run_directory.RUNNING and job.attempt is not None
    assert job.task.run.state()["attempts"][-1]["cores"] == [0, 1]


def test_a_cancelled_run_keeps_no_core_from_other_sweeps(build: Build, make: Make) -> None:
    one, two, three = build(), build(), build()
    submit(one, make("first", SLEEP, 2))
    large = submit(two, make("large", SLEEP, 4))
    small = submit(three, make("small", SLEEP, 1))
    assert [large.status, small.status] == [run_directory.PENDING] * 2, "two are free, for the large one"
    large.cancel()
    eventually(lambda: is_over(small) or small.status == run_directory.RUNNING)


def test_who_has_the_cores_is_named(executor: SlotExecutor, make: Make, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEASE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None and other.stdout is not None and other.stdout.readline() == "ready\n"
        job = submit(executor, make("run", SUCCEED, 4))
        assert job.status == run_directory.PENDING
        assert job.waits_for == f"pid {other.pid} (/their/sweep) to free cores"
        other.stdin.close()
        assert result_of(job)["status"] == run_directory.DONE
        assert job.waits_for is None


def test_who_waits_for_a_run_of_its_own_sweep_names_no_other(build: Build, make: Make) -> None:
    """As many run as may run at a time: another sweep, which has a core, is not what it waits for."""
    command = [sys.executable, "-c", LEASE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None and other.stdout is not None and other.stdout.readline() == "ready\n"
        for executor in (build(max_parallel=1), build(max_parallel=1, share_cores=True)):
            first = submit(executor, make("first", SLEEP, 1))
            second = submit(executor, make("second", SLEEP, 1))
            executor._looked_at = 0.0
            executor.poll()
            assert [first.status, second.status] == [run_directory.RUNNING, run_directory.PENDING]
            assert second.waits_for is None
            executor.cancel_all("enough")
        other.stdin.close()


def test_the_cores_of_a_killed_launcher_stay_its_runs(make: Make, tmp_path: Path) -> None:
    """Until the last of its processes is gone: what a later sweep starts there would not be timed fairly."""
    task = make("run", "trap '' TERM; echo $$ > $3/pid; while :; do sleep 0.1; done", 2)
    child = os.fork()
    if child == 0:
        SlotExecutor(tmp_path, [0, 1, 2, 3]).submit_runs([task])
        time.sleep(1000)
    told = task.run.path("pid")
    eventually(lambda: told.exists() and told.read_text().strip())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    slots = LockedSlots([0, 1, 2, 3])
    assert slots.lease(3) is None
    os.kill(int(told.read_text()), signal.SIGKILL)
    lease = eventually(lambda: slots.lease(3))
    assert isinstance(lease, Lease) and lease.cores == (0, 1, 2)
    slots.close()


def test_shared_cores_are_not_waited_for_nor_pinned_to(build: Build, make: Make) -> None:
    fair, sharing = build(), build(share_cores=True)
    alone = submit(fair, make("alone", "until [ -e $3/go ]; do sleep 0.05; done;" + SUCCEED, 4))
    assert not alone.shared_cores
    script = "env > $3/environment; " + SLEEP
    jobs = [submit(sharing, make(str(number), script, 2)) for number in range(5)]
    assert [job.status for job in jobs] == [run_directory.RUNNING] * 4 + [run_directory.PENDING], (
        "as many as there are cores"
    )
    assert all(job.shared_cores for job in jobs[:4])
    for job in jobs[:4]:
        told = job.task.run.path("environment")
        eventually(lambda told=told: "GRADSWEEP_CORES=" in (told.read_text() if told.exists() else ""))  # type: ignore[misc]
        assert "GRADSWEEP_CORES=\n" in told.read_text()
        assert job.task.run.state()["shared_cores"] is True
    alone.task.run.path("go").touch()
    assert result_of(alone) and alone.shared_cores, "it had its cores for itself no more"
    assert alone.task.run.state()["shared_cores"] is True and alone.task.run.status() == run_directory.DONE
    sharing.cancel_all("enough")
    again = submit(fair, make("again"))
    assert result_of(again) and not again.shared_cores
    assert again.task.run.state()["shared_cores"] is False


def test_max_parallel_decides_where_cores_are_shared(build: Build, make: Make) -> None:
    executor = build(share_cores=True, max_parallel=6)
    jobs = [submit(executor, make(str(number), SLEEP, 4)) for number in range(7)]
    assert [job.status for job in jobs] == [run_directory.RUNNING] * 6 + [run_directory.PENDING]


def test_what_goes_on_from_a_checkpoint_of_shared_cores_stays_marked(build: Build, make: Make) -> None:
    task = make("run", "exit 1")
    submit(build(share_cores=True), task).wait()
    task.run.path(run_directory.CHECKPOINT).mkdir()
    submit(build(), task).wait()
    assert task.run.state()["shared_cores"] is True, "times of the first attempt are in its figures"
    task.run.path(run_directory.CHECKPOINT).rmdir()
    submit(build(), task).wait()
    assert task.run.state()["shared_cores"] is False


def test_max_parallel(executor: SlotExecutor, make: Make) -> None:
    executor.max_parallel = 2
    jobs = [submit(executor, make(str(i), SLEEP)) for i in range(3)]
    assert [job.status for job in jobs] == [run_directory.RUNNING, run_directory.RUNNING, run_directory.PENDING]
    jobs[0].cancel()
    executor.poll()
    assert [job.status for job in jobs] == [run_directory.CANCELLED, run_directory.RUNNING, run_directory.RUNNING]


def test_what_fails_by_itself_while_it_is_ended_says_why(executor: SlotExecutor, make: Make) -> None:
    """What is told of a job is what its state.json says."""
    job = submit(executor, make("run", "exit 3"))
    assert job.attempt is not None
    os.waitid(os.P_PID, job.attempt.process.pid, os.WEXITED | os.WNOWAIT)
    executor.cancel([job], "the test wants it")
    state = job.task.run.state()
    told = (run_directory.FAILED, "the MPI launcher exited with 3", "unknown")
    assert (job.status, job.reason, job.cause) == told
    assert (state["status"], state["reason"], state["attempts"][-1]["cause"]) == told


def test_cancel_leaves_no_process(executor: SlotExecutor, make: Make) -> None:
    job = submit(executor, make("run", f"trap '' TERM; {SLEEP}"))
    assert job.attempt is not None
    eventually(lambda: len(find_processes(job.attempt.directory)) == 3)
    executor.cancel([job], "the test wants it", grace_s=0.3)
    assert find_processes(job.attempt.directory) == []
    assert job.status == run_directory.CANCELLED
    assert job.task.run.state()["reason"] == "the test wants it"
    assert executor.slots.leased_cores == []


def test_what_a_job_leaves_behind_is_ended(executor: SlotExecutor, make: Make) -> None:
    job = submit(executor, make("run", "setsid sleep 1000 & exit 1"))
    job.wait()
    assert job.attempt is not None and find_processes(job.attempt.directory) == []


def test_a_result_counts_whatever_the_exit_code(executor: SlotExecutor, make: Make) -> None:
    job = submit(executor, make("run", SUCCEED + "; exit 9"))
    assert result_of(job)["accuracy"] == 0.5
    assert job.task.run.status() == run_directory.DONE


def test_exit_code_0_without_a_result_is_a_failure(executor: SlotExecutor, make: Make) -> None:
    """A lost node can make mpirun exit with 0."""
    job = submit(executor, make("run", "exit 0"))
    job.wait()
    assert job.status == run_directory.FAILED and "left no result" in str(job.reason)


def test_a_run_that_cannot_be_started_does_not_stop_the_queue(executor: SlotExecutor, make: Make) -> None:
    broken = make("broken")
    broken.command = ["/no/such/program"]
    jobs = [submit(executor, broken), submit(executor, make("good"))]
    for job in jobs:
        job.wait()
    assert [job.status for job in jobs] == [run_directory.FAILED, run_directory.DONE]
    assert "could not be started" in str(jobs[0].task.run.state()["reason"])
    assert executor.slots.leased_cores == []


def test_a_retry_is_another_attempt(executor: SlotExecutor, make: Make) -> None:
    submit(executor, make("run", "exit 1")).wait()
    job = submit(executor, make("run"))
    job.wait()
    assert [attempt["status"] for attempt in job.task.run.state()["attempts"]] == [
        run_directory.FAILED,
        run_directory.DONE,
    ]
    assert (job.task.run.directory / "attempt-2" / run_directory.STDERR).exists()


def test_the_environment_of_a_run(executor: SlotExecutor, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    job = submit(executor, make("run", "env > $3/environment; exit 1"))
    job.wait()
    text = (job.task.run.directory / "environment").read_text()
    assert "FOO=bar\n" in text and "GRADSWEEP_CORES=0\n" in text
    assert "SLURM_" not in text and "OMPI_COMM" not in text


def test_every_attempt_has_a_place_of_its_own_for_temporary_files(executor: SlotExecutor, make: Make) -> None:
    """Two mpiruns with the same pid, one after the other, must not meet what the first has left."""
    script = 'echo "$TMPDIR"; touch "$TMPDIR/left"; exit 1'
    places = []
    for name in ("one", "two", "one"):
        job = submit(executor, make(name, script))
        job.wait()
        assert job.task.run.result() is None
        places.append(Path(read_log(job.task.run).strip()))
    assert len(set(places)) == 3
    assert all(place.is_absolute() and not place.exists() for place in places)
    job = submit(executor, make("where", f'test -d "$TMPDIR" && {SUCCEED}'))
    assert result_of(job)


def test_the_users_own_mpi_settings_stay_unless_an_mpirun_set_them() -> None:
    own = {"OMPI_MCA_btl": "tcp", "PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "PMIX_RANK": "0"}
    assert clean_environment(own) == {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}
    del own["PMIX_RANK"]
    assert clean_environment(own) == own


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (137, "a rank was killed by SIGKILL"),
        (-9, "the MPI launcher was killed by SIGKILL"),
        (139, "a rank was killed by SIGSEGV"),
        (2, "the MPI launcher exited with 2"),
        (255, "the MPI launcher exited with 255"),
    ],
)
def test_reasons_from_exit_codes(tmp_path: Path, code: int, reason: str) -> None:
    assert explain_exit(tmp_path, code)[0] == reason


def test_the_first_rank_that_raised_gives_the_reason(tmp_path: Path) -> None:
    for rank, when in ((0, "2026-01-01T00:00:02"), (3, "2026-01-01T00:00:01")):
        files.write_json(tmp_path / f"failure-{rank}.json", {"rank": rank, "reason": f"rank {rank} fell", "time": when})
    assert explain_exit(tmp_path, 1)[0] == "rank 3 fell"


def test_a_job_dies_with_its_launcher(tmp_path: Path, make: Make) -> None:
    task = make("run", SLEEP)
    child = os.fork()
    if child == 0:
        MpirunAttempt(task, [0])
        time.sleep(1000)
    attempt = Path(task.directory) / "attempt-1"
    eventually(lambda: task.run.status() == run_directory.RUNNING)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    # the shell gets SIGTERM; mpirun would end its ranks, which here a resume does
    eventually(lambda: len(find_processes(attempt)) <= 2)
    reconcile_abandoned(task.run)
    eventually(lambda: not find_processes(attempt))
    assert task.run.status() == run_directory.FAILED


def test_an_attempt_that_no_state_tells_of_is_ended_by_a_resume(make: Make) -> None:
    """The launcher was killed between starting it and writing that it had."""
    attempt = MpirunAttempt(make("run", SLEEP), [0])
    try:
        attempt.run.path(run_directory.STATE).unlink()
        eventually(lambda: len(find_processes(attempt.directory)) == 3)
        reconcile_abandoned(attempt.run)
        attempt.process.wait(60)
        assert find_processes(attempt.directory) == [] and attempt.run.status() == run_directory.PENDING
    finally:
        attempt.stop(run_directory.CANCELLED, "the test has ended")


def test_nothing_runs_that_no_state_tells_of(
    executor: SlotExecutor, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: neither does the run go on unseen on cores that are leased again, nor does the queue stop."""

    def full(*arguments: object, **changes: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sweep.attempts.attempt.write_state", full)
    monkeypatch.setattr("sweep.executors.base.write_state", full)
    job = submit(executor, make("run", SLEEP))
    job.wait()
    assert job.status == run_directory.FAILED and "No space left" in str(job.reason)
    assert find_processes(job.task.run.attempt(1).absolute()) == []
    monkeypatch.undo()
    assert result_of(submit(executor, make("next")))["status"] == "done"


def test_a_state_that_is_deleted_meanwhile_does_not_stop_the_queue(executor: SlotExecutor, make: Make) -> None:
    job = submit(executor, make("run", 'rm "$3/state.json"; exit 1'))
    job.wait()
    assert job.status == run_directory.FAILED and job.reason == "the MPI launcher exited with 1"
    assert job.task.run.status() == run_directory.FAILED


def test_the_users_files_do_not_shadow_ours(
    executor: SlotExecutor, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(executor, make("run", 'echo "$PYTHONPATH" "$PYTHONSAFEPATH"; exit 1'))
    job.wait()
    path, _, safe = read_log(job.task.run).strip().rpartition(" ")
    assert safe == "1" and Path(path.split(os.pathsep)[0]) == ROOT


@pytest.mark.parametrize(
    "script", ["exec sleep 1000", "sleep 1000 & r=$!; trap 'kill -USR1 $r' USR1; wait $r; wait $r"]
)
def test_a_request_to_save_before_anybody_listens_is_no_failure(
    executor: SlotExecutor, make: Make, script: str
) -> None:
    """It kills mpirun before it has begun, or a rank that is only starting."""
    job = submit(executor, make("early", script))
    eventually(lambda: job.task.run.status() == run_directory.RUNNING)
    executor.preempt_all()
    job.wait()
    assert (job.status, job.reason, job.cause) == (run_directory.PREEMPTED, "SIGUSR1 came before it had begun", None)
    assert job.task.run.state()["attempts"][0]["status"] == run_directory.PREEMPTED


def test_a_rank_that_kills_itself_with_that_signal_has_failed(executor: SlotExecutor, make: Make) -> None:
    job = submit(executor, make("itself", "kill -USR1 $$"))
    job.wait()
    assert (job.status, job.cause) == (run_directory.FAILED, "killed")


def test_a_request_to_save_that_got_lost_is_made_again(
    executor: SlotExecutor, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An mpirun that has no ranks yet passes it on to nobody."""
    monkeypatch.setattr("sweep.attempts.mpirun.AGAIN_S", 0.1)
    saved = """echo '{"status": "preempted", "reason": "saved"}' > "$GRADSWEEP_ATTEMPT/stopped.json" """
    script = f"n=0; trap 'n=$((n + 1))' USR1; touch '{tmp_path}/deaf'; while [ $n -lt 2 ]; do sleep 0.05; done; {saved}"
    job = submit(executor, make("lost", script))
    eventually((tmp_path / "deaf").exists)
    executor.preempt_all()
    job.wait()
    assert (job.status, job.reason) == (run_directory.PREEMPTED, "saved")
