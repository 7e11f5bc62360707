"""The slot queue: leases, order, cancellation; jobs that mean the same as submitit's. Without MPI: the
command of a run is a shell that plays mpirun; the words after it are its $0, $1, ..."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from submitit import AutoExecutor
from submitit.core.utils import FailedJobError

from sweep import run as names
from sweep.local import SlotExecutor, SlotJob, Slots
from sweep.mpirun import MpiRun, RunFailed, clean_environment, failure_reason, processes_of, settle_abandoned
from tests.conftest import eventually

SUCCEED = """echo '{"status": "done", "accuracy": 0.5}' > "$3/result.json"
touch "$3/../order.$(date +%s%N).$(basename $3)" """
SLEEP = "sleep 1000 & sleep 1000"
Make = Callable[..., MpiRun]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def task(name: str, script: str = SUCCEED, cores: int = 1) -> MpiRun:
        (tmp_path / name).mkdir(exist_ok=True)
        return MpiRun(str(tmp_path / name), cores, 1, ["sh", "-c", script], {"FOO": "bar"})

    return task


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[SlotExecutor]:
    executor = SlotExecutor(tmp_path)
    executor.slots = Slots([0] * 4)  # four leases of the core that every machine has
    yield executor
    executor.cancel_all("the test has ended")


def submit(executor: SlotExecutor, task: MpiRun) -> SlotJob:
    job = executor.submit(task)
    assert isinstance(job, SlotJob)
    return job


def test_cores_are_leased_to_one_run_at_a_time() -> None:
    slots = Slots([3, 1, 2])
    first = slots.lease(2)
    assert first == [1, 2]
    assert slots.lease(2) is None
    assert slots.lease(1) == [3]
    slots.release([1, 2])
    assert slots.lease(2) == [1, 2]


def test_a_run_larger_than_the_machine_gets_all_of_it() -> None:
    slots = Slots([0, 1])
    assert slots.lease(8) == [0, 1]
    assert slots.lease(1) is None


def test_jobs_mean_what_submitits_mean(executor: SlotExecutor, make: Make) -> None:
    good, bad = submit(executor, make("good")), submit(executor, make("bad", "echo why >&2; exit 3"))
    assert good.result() == {"status": "done", "accuracy": 0.5}
    assert good.done() and good.state == "COMPLETED" and good.exception() is None and good.stdout() == ""
    with pytest.raises(FailedJobError, match="exited with 3"):
        bad.result()
    assert bad.state == "FAILED" and bad.stderr() == "why\n"
    assert isinstance(bad.exception(), FailedJobError)
    assert bad.mpi_run.run.state()["attempts"][0]["exit_code"] == 3


def test_submitit_finds_the_executor_by_name(tmp_path: Path, make: Make) -> None:
    auto = AutoExecutor(tmp_path, cluster="slots")
    assert auto.submit(make("run")).result()["status"] == "done"
    with pytest.raises(TypeError, match="MpiRun"):
        auto.submit(print)


def test_tasks_can_be_pickled_and_called_like_any_function(make: Make) -> None:
    """What submitit does in a SLURM job."""
    assert pickle.loads(pickle.dumps(make("run")))()["accuracy"] == 0.5
    with pytest.raises(RunFailed, match="failed: the MPI launcher exited with 1"):
        make("bad", "exit 1")()


def test_first_in_first_out_and_nobody_is_overtaken(executor: SlotExecutor, make: Make, tmp_path: Path) -> None:
    sizes = {"a": 3, "b": 4, "c": 1, "d": 1}
    jobs = [submit(executor, make(name, "sleep 0.5\n" + SUCCEED, cores)) for name, cores in sizes.items()]
    assert jobs[0].status == names.RUNNING
    assert [job.status for job in jobs[1:]] == [names.PENDING] * 3  # c would fit beside a, but b is first
    for job in jobs:
        job.wait()
    order = [path.name.split(".")[-1] for path in sorted(tmp_path.glob("order.*"))]
    assert order[:2] == ["a", "b"] and set(order[2:]) == {"c", "d"}


def test_max_parallel(executor: SlotExecutor, make: Make) -> None:
    executor.max_parallel = 2
    jobs = [submit(executor, make(str(i), SLEEP)) for i in range(3)]
    assert [job.state for job in jobs] == ["RUNNING", "RUNNING", "PENDING"]
    jobs[0].cancel()
    executor.poll()
    assert [job.state for job in jobs] == ["CANCELLED", "RUNNING", "RUNNING"]


def test_cancel_leaves_no_process(executor: SlotExecutor, make: Make) -> None:
    job = submit(executor, make("run", f"trap '' TERM; {SLEEP}"))
    assert job.attempt is not None
    eventually(lambda: len(processes_of(job.attempt.directory)) == 3)
    executor.cancel([job], "the test wants it", grace_s=0.3)
    assert processes_of(job.attempt.directory) == []
    assert job.state == "CANCELLED"
    assert job.mpi_run.run.state()["reason"] == "the test wants it"
    assert executor.slots.free == [0] * 4


def test_what_a_job_leaves_behind_is_ended(executor: SlotExecutor, make: Make) -> None:
    job = submit(executor, make("run", "setsid sleep 1000 & exit 1"))
    job.wait()
    assert job.attempt is not None and processes_of(job.attempt.directory) == []


def test_a_result_counts_whatever_the_exit_code(executor: SlotExecutor, make: Make) -> None:
    job = submit(executor, make("run", SUCCEED + "; exit 9"))
    assert job.result()["accuracy"] == 0.5
    assert job.mpi_run.run.status() == names.DONE


def test_exit_code_0_without_a_result_is_a_failure(executor: SlotExecutor, make: Make) -> None:
    """A lost node can make mpirun exit with 0."""
    job = submit(executor, make("run", "exit 0"))
    job.wait()
    assert job.state == "FAILED" and "left no result" in str(job.reason)


def test_a_run_that_cannot_be_started_does_not_stop_the_queue(executor: SlotExecutor, make: Make) -> None:
    broken = make("broken")
    broken.command = ["/no/such/program"]
    jobs = [submit(executor, broken), submit(executor, make("good"))]
    for job in jobs:
        job.wait()
    assert [job.state for job in jobs] == ["FAILED", "COMPLETED"]
    assert "could not be started" in str(jobs[0].mpi_run.run.state()["reason"])
    assert executor.slots.free == [0] * 4


def test_a_retry_is_another_attempt(executor: SlotExecutor, make: Make) -> None:
    submit(executor, make("run", "exit 1")).wait()
    job = submit(executor, make("run"))
    job.wait()
    assert [attempt["status"] for attempt in job.mpi_run.run.state()["attempts"]] == [names.FAILED, names.DONE]
    assert (job.mpi_run.run.directory / "attempt-2" / names.STDERR).exists()


def test_the_environment_of_a_run(executor: SlotExecutor, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    job = submit(executor, make("run", "env > $3/environment; exit 1"))
    job.wait()
    text = (job.mpi_run.run.directory / "environment").read_text()
    assert "FOO=bar\n" in text and "GRADSWEEP_CORES=0\n" in text
    assert "SLURM_" not in text and "OMPI_COMM" not in text


def test_every_attempt_has_a_place_of_its_own_for_temporary_files(executor: SlotExecutor, make: Make) -> None:
    """Two mpiruns with the same pid, one after the other, must not meet what the first has left."""
    script = 'echo "$TMPDIR"; touch "$TMPDIR/left"; exit 1'
    places = []
    for name in ("one", "two", "one"):
        job = submit(executor, make(name, script))
        assert job.exception() is not None
        places.append(Path((job.stdout() or "").strip()))
    assert len(set(places)) == 3
    assert all(place.is_absolute() and not place.exists() for place in places)
    job = submit(executor, make("where", f'test -d "$TMPDIR" && {SUCCEED}'))
    assert job.result()


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
    assert failure_reason(tmp_path, code) == reason


def test_the_first_rank_that_raised_gives_the_reason(tmp_path: Path) -> None:
    for rank, when in ((0, "2026-01-01T00:00:02"), (3, "2026-01-01T00:00:01")):
        names.write_json(tmp_path / f"failure-{rank}.json", {"rank": rank, "reason": f"rank {rank} fell", "time": when})
    assert failure_reason(tmp_path, 1) == "rank 3 fell"


def test_a_job_dies_with_its_launcher(tmp_path: Path, make: Make) -> None:
    task = make("run", SLEEP)
    child = os.fork()
    if child == 0:
        task.start([0])
        time.sleep(1000)
    attempt = Path(task.directory) / "attempt-1"
    eventually(lambda: task.run.status() == names.RUNNING)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    # the shell gets SIGTERM; mpirun would end its ranks, which here a resume does
    eventually(lambda: len(processes_of(attempt)) <= 2)
    settle_abandoned(task.run)
    eventually(lambda: not processes_of(attempt))
    assert task.run.status() == names.FAILED


def test_an_attempt_that_no_state_tells_of_is_ended_by_a_resume(make: Make) -> None:
    """The launcher was killed between starting it and writing that it had."""
    attempt = make("run", SLEEP).start([0])
    try:
        attempt.run.path(names.STATE).unlink()
        eventually(lambda: len(processes_of(attempt.directory)) == 3)
        settle_abandoned(attempt.run)
        attempt.process.wait(5)
        assert processes_of(attempt.directory) == [] and attempt.run.status() == names.PENDING
    finally:
        attempt.stop(names.CANCELLED, "the test has ended")


def test_nothing_runs_that_no_state_tells_of(
    executor: SlotExecutor, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: neither does the run go on unseen on cores that are leased again, nor does the queue stop."""

    def full(*arguments: object, **changes: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sweep.mpirun.write_state", full)
    monkeypatch.setattr("sweep.local.write_state", full)
    job = submit(executor, make("run", SLEEP))
    job.wait()
    assert job.state == "FAILED" and "No space left" in str(job.reason)
    assert processes_of(job.mpi_run.run.attempt(1).absolute()) == []
    monkeypatch.undo()
    assert submit(executor, make("next")).result()["status"] == "done"


def test_a_state_that_is_deleted_meanwhile_does_not_stop_the_queue(executor: SlotExecutor, make: Make) -> None:
    job = submit(executor, make("run", 'rm "$3/state.json"; exit 1'))
    job.wait()
    assert job.state == "FAILED" and job.reason == "the MPI launcher exited with 1"
    assert job.mpi_run.run.status() == names.FAILED


def test_the_users_files_do_not_shadow_ours(
    executor: SlotExecutor, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(executor, make("run", 'echo "$PYTHONPATH" "$PYTHONSAFEPATH"; exit 1'))
    job.wait()
    path, _, safe = str(job.stdout()).strip().rpartition(" ")
    assert safe == "1" and Path(path.split(os.pathsep)[0]) == Path(__file__).resolve().parents[2]
