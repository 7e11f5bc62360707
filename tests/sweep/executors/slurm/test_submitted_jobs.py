"""Runs as jobs of SLURM where no SLURM is needed: submitted, adopted. Scripts play its commands (fake_slurm.py)."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gradsweep import failure_causes, files, run_directory
from gradsweep.errors import UsageError
from gradsweep.files import write_json
from gradsweep.run_directory import Run, runs_of
from sweep.attempts.run_task import RunTask, load_task
from sweep.directory import completion, run_identity, run_layout
from sweep.directory.run_state import write_state
from sweep.driver.drive import Drive
from sweep.executors.base import Job
from sweep.executors.slurm.executor import SlurmRunExecutor
from sweep.executors.slurm.queue import build_environment
from sweep.provenance import record
from sweep.settings.sweep import SweepSettings
from tests.conftest import PLAYED, eventually
from tests.sweep.fake_slurm import FakeSlurm, Make, began, executor, fake, make, polled, quick, read, submit
from tests.sweep.fakes import resolved

pytestmark = pytest.mark.thorough

__all__ = ["executor", "fake", "make", "quick"]


def test_runs_that_ask_for_the_same_share_arrays_below_the_limit(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make
) -> None:
    tasks = [make(f"{workers}-{i}", workers, nodes=workers) for i in range(5) for workers in (1, 2)]
    jobs = submit(executor, *tasks)
    ids = {job.task.run.name: job.slurm_id for job in jobs}
    assert [ids[f"1-{i}"] for i in range(5)] == ["100_0", "100_1", "100_2", "200_0", "200_1"]  # MaxArraySize is 3
    assert [ids[f"2-{i}"] for i in range(5)] == ["300_0", "300_1", "300_2", "400_0", "400_1"]
    for script, size, workers in zip(fake.arrays(), (3, 2, 3, 2), (1, 1, 2, 2), strict=True):
        assert f"#SBATCH --array=0-{size - 1}%{size}\n" in script
        assert f"#SBATCH --ntasks={workers}\n" in script and f"#SBATCH --nodes={workers}\n" in script
    batch = read(executor.folder / "slurm" / "batch-0002.json")
    assert batch["id"] == "200" and batch["runs"] == ["1-3", "1-4"]
    assert read(tasks[6].run.path("job.json"))["id"] == "200_0"


def test_options_reach_sbatch_and_only_setup_reaches_the_shell(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make
) -> None:
    options = {
        **{"partition": "gpu", "account": "a b", "gpus_per_node": 2, "mem_gb": 8, "exclusive": True, "time": 7},
        **{"array_parallelism": 1, "modules": ["cuda/12; rm"], "setup": ['export X="$HOME" # mine'], "cpus": 3},
        **{"additional": {"reservation": "r$(x)"}, "hint": "nomultithread", "oversubscribe": False},
        **{"qos": "long", "constraint": "a100&nvme", "gres": "gpu:a100:2", "nodelist": "n[1-3],n7", "exclude": "n4"},
    }
    submit(executor, make("a", **options), make("b", **options))
    (script,) = fake.arrays()
    asked = {line[len("#SBATCH --") :] for line in script.splitlines() if line.startswith("#SBATCH")}
    assert asked >= {
        *("partition=gpu", "account='a b'", "gpus-per-node=2", "mem=8192M", "exclusive", "time=7", "cpus-per-task=3"),
        *("qos=long", "constraint='a100&nvme'", "gres=gpu:a100:2", "nodelist='n[1-3],n7'", "exclude=n4"),
        *("array=0-1%1", "reservation='r$(x)'", "hint=nomultithread", "signal=B:USR2@90", "requeue"),
    }
    assert not any(line.startswith(("oversubscribe", "wckey")) for line in asked)
    shell = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert shell[2:4] == ["module load 'cuda/12; rm' || exit 1", 'export X="$HOME" # mine']
    assert shell[4].startswith("trap '' USR1 USR2; ")
    assert shell[-1].startswith("exec ") and "-m sweep.executors.slurm_job" in shell[-1]


def test_setup_that_goes_elsewhere_does_not_change_which_code_runs(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the code is named from the working directory, where relative paths of a config belong to as well."""
    package = tmp_path / "code" / "sweep" / "executors" / "slurm_job"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "__main__.py").write_text("import os; print('of the copy, in', os.getcwd())")
    monkeypatch.chdir(tmp_path)
    submit(executor, dataclasses.replace(make("a", setup=["cd /"]), code="code"))
    done = subprocess.run(["bash", str(fake.here / "array.1")], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == f"of the copy, in {tmp_path}\n"


@pytest.mark.parametrize(
    ("number", "reason", "requeued"),
    [
        (signal.SIGUSR2, "near its time limit of 60 minutes; before it had begun", ["requeue 100_0"]),
        (signal.SIGUSR1, "asked to stop; before it had begun", []),
    ],
)
def test_a_signal_while_the_script_sets_up_ends_no_setup_and_is_heeded_after_it(
    executor: SlurmRunExecutor,
    fake: FakeSlurm,
    make: Make,
    tmp_path: Path,
    number: int,
    reason: str,
    requeued: list[str],
) -> None:
    task = make("a", setup=[f"touch '{tmp_path}/here'", "sleep 1", f"touch '{tmp_path}/there'"])
    submit(executor, dataclasses.replace(task, command=["sh", "-c", "exec sleep 1000"]))
    place = {"SLURM_ARRAY_JOB_ID": "100", "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_ID": "100"}
    process = subprocess.Popen(["bash", str(fake.here / "array.1")], env={**os.environ, **place})
    try:
        eventually((tmp_path / "here").exists)
        process.send_signal(number)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "there").exists()
    assert (task.run.status(), task.run.state()["reason"]) == (run_directory.PREEMPTED, reason)
    assert [asked for asked in fake.asked("scontrol") if "requeue" in asked] == requeued


def test_jobs_do_not_inherit_an_allocation_around_us() -> None:
    own = {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "SBATCH_ACCOUNT": "mine", "OMPI_MCA_btl": "tcp"}
    assert build_environment(own) == own
    assert own.keys() - build_environment(own, asked={"account"}) == {"SBATCH_ACCOUNT"}  # sbatch would take it instead
    assert build_environment({"SBATCH_ARRAY_INX": "0-9", "SBATCH_WAIT": "1"}) == {}
    around = {"SLURM_JOB_ID": "1", "SLURM_CPU_BIND": "x", "PMIX_RANK": "0", "SQUEUE_STATES": "RUNNING"}
    assert build_environment({**own, **around}).keys() == {"PATH", "SLURM_CONF"}


def test_sbatch_is_given_a_clean_environment(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "3", "SLURM_CONF": "here", "KEPT": "yes"}.items():
        monkeypatch.setenv(name, value)
    submit(executor, make("a"))
    seen = (fake.here / "environment").read_text(encoding="utf-8").splitlines()
    assert {"KEPT=yes", "SLURM_CONF=here"} <= set(seen)
    assert not any(line.startswith(("SLURM_JOB_ID", "SLURM_NTASKS")) for line in seen)


def test_a_refused_array_takes_back_the_others(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    (fake.here / "refuse").write_text("2", encoding="utf-8")
    tasks = [make("a", 1), make("b", 2)]
    with pytest.raises(UsageError) as error:
        executor.submit_runs(tasks)
    said = "sbatch: no such partition; Batch job submission failed for b"
    assert str(error.value) == f"hydra/launcher=slurm: {said}; nothing was submitted"
    by_name, first = fake.asked("scancel")  # it may have been accepted all the same: an answer may get lost
    assert by_name.startswith("--name=gradsweep-") and first == "100"
    assert not executor.active
    assert [path.name for path in sorted((executor.folder / "slurm").iterdir())] == ["batch-0001.json", "batch-0001.sh"]
    assert not tasks[1].run.path("job.json").exists()
    assert all(task.run.status() == run_directory.PENDING for task in tasks)


def test_a_refusal_does_not_cancel_what_was_there(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    first = make("a")
    submit(executor, first)
    fake.queue(_100_0="RUNNING")
    (fake.here / "refuse").write_text("2", encoding="utf-8")
    again = SlurmRunExecutor(executor.folder, 0.05)
    with pytest.raises(UsageError, match="no such partition"):
        again.submit_runs([first, make("b")])
    again.cancel_all("the launcher failed")
    assert not [asked for asked in fake.asked("scancel") if not asked.startswith("--name")]


def test_jobs_that_are_alive_are_adopted(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    tasks = [make(name) for name in "abc"]
    submit(executor, *tasks)
    began(tasks[1], "100_1")
    began(tasks[2], "100_2", run_directory.DONE)
    tasks[2].run.path(run_directory.RESULT).write_text('{"status": "done"}', encoding="utf-8")
    fake.queue(_100_0="PENDING", _100_1="RUNNING", _100_2="COMPLETED")
    again = SlurmRunExecutor(executor.folder, 0.05)
    todo = completion.list_missing([task.run for task in tasks], again.reconcile)
    assert [run.name for run in todo] == ["a", "b"]
    assert [run.status() for run in todo] == [run_directory.PENDING, run_directory.RUNNING]
    jobs = submit(again, *tasks[:2])
    assert [job.slurm_id for job in jobs] == ["100_0", "100_1"]
    assert len(fake.arrays()) == 1 and len(fake.asked("squeue")) == 1
    again.poll()
    assert [job.status for job in jobs] == [run_directory.PENDING, run_directory.RUNNING]


def test_a_job_whose_launcher_died_before_it_noted_the_id_is_found_by_name(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make
) -> None:
    task = make("a")
    submit(executor, task)
    path = executor.folder / "slurm" / "batch-0001.json"
    write_json(path, {**read(path), "id": None})
    write_json(task.run.path("job.json"), {**read(task.run.path("job.json")), "id": None})
    fake.queue(_100_0=f"PENDING,None,{read(path)['name']}")
    (job,) = submit(SlurmRunExecutor(executor.folder, 0.05), task)
    assert job.slurm_id == "100_0" and len(fake.arrays()) == 1
    assert read(path)["id"] == "100" and read(task.run.path("job.json"))["id"] == "100_0"


def test_a_batch_that_sbatch_never_saw_is_submitted_anew(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make
) -> None:
    task = make("a")
    submit(executor, task)
    path = executor.folder / "slurm" / "batch-0001.json"
    write_json(path, {**read(path), "id": None})
    again = SlurmRunExecutor(executor.folder, 0.05)
    assert completion.list_missing([task.run], again.reconcile) == [task.run]
    assert task.run.status() == run_directory.PENDING
    (job,) = submit(again, task)
    assert job.slurm_id == "200_0" and read(task.run.path("job.json"))["batch"] == "batch-0002"


def test_a_job_that_has_said_its_last_word_is_not_adopted(
    executor: SlurmRunExecutor, fake: FakeSlurm, make: Make
) -> None:
    task = make("a")
    submit(executor, task)
    began(task, "100_0", run_directory.FAILED)
    fake.queue(_100_0="COMPLETING")
    (job,) = submit(SlurmRunExecutor(executor.folder, 0.05), task)
    assert job.slurm_id == "200_0"


def test_another_try_is_another_job(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    """SLURM still has the first one, which is ending, and the run's state says by now that it waits."""
    task = make("a")
    (job,) = submit(executor, task)
    began(task, "100_0", run_directory.FAILED, reason="out of memory")
    polled(executor, lambda: job.ended)
    write_state(task.run, status=run_directory.PENDING, reason="retry 1 of 2 in 5 s")
    fake.queue(_100_0="COMPLETING")
    (again,) = submit(executor, dataclasses.replace(task, alone=True))
    assert again.slurm_id == "200_0"
    assert "#SBATCH --exclusive\n" in fake.arrays()[1] and "exclusive" not in fake.arrays()[0]


def test_a_refused_retry_ends_neither_the_sweep_nor_its_reason(
    executor: SlurmRunExecutor,
    fake: FakeSlurm,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tasks = {task.run: task for task in (make("a"), make("b"))}
    first, submit_runs = list(tasks.values()), executor.submit_runs

    def refusing(tasks: Sequence[RunTask]) -> list[Job]:
        if len(tasks) == 1:
            (fake.here / "refuse").write_text("1", encoding="utf-8")
            return submit_runs(tasks)
        jobs = submit_runs(tasks)
        began(
            first[0], "100_0", run_directory.FAILED, cause=failure_causes.KILLED, reason="a rank was killed by SIGKILL"
        )
        began(first[1], "100_1")
        fake.queue(_100_0="FAILED", _100_1="NODE_FAIL")  # this one ends later
        return jobs

    monkeypatch.setattr(executor, "submit_runs", refusing)
    settings = SweepSettings(retries=1, backoff_s=0.0)
    points = {run: resolved({"epochs": 1, "max_steps": None}) for run in tasks}
    Drive(executor.folder, points, lambda run, point: tasks[run], executor, settings).run()
    assert [run.state()["reason"] for run in tasks] == ["a rank was killed by SIGKILL", "a node failed"]
    assert capsys.readouterr().out.count("no retry: hydra/launcher=slurm: sbatch: no such partition") == 2


@pytest.mark.parametrize("wait", ["true"])
def test_a_refused_sweep_is_one_line_and_leaves_nothing(
    fake: FakeSlurm, multirun: Callable[..., tuple[int, str, str]], tmp_path: Path, wait: str
) -> None:
    (fake.here / "refuse").write_text("1", encoding="utf-8")
    given = ("-m", "hydra/launcher=slurm", "experiment=quick", "workers=1", f"sweep.wait={wait}")
    code, out, err = multirun(*given, "hydra.sweep.dir=refused/sweep", without=PLAYED)
    assert code == 2 and err.count("\n") == 1 and err.startswith("hydra/launcher=slurm: sbatch: no such partition; ")
    assert not (tmp_path / "refused").exists()


def test_a_refused_sweep_leaves_what_was_there_before(
    fake: FakeSlurm, multirun: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    given = ("-m", "hydra/launcher=slurm", "experiment=quick", "workers=1", "hydra.sweep.dir=s", "sweep.wait=false")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "mine").touch()
    (fake.here / "refuse").write_text("1", encoding="utf-8")
    assert multirun(*given, without=PLAYED)[0] == 2
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["mine"]
    (fake.here / "refuse").write_text("2", encoding="utf-8")
    assert multirun(*given, without=PLAYED)[0] == 0
    (first,) = runs_of(tmp_path / "s")
    assert multirun(*given, "seed=5", "sweep.resume=s", without=PLAYED)[0] == 2
    assert first in runs_of(tmp_path / "s") and first.path("job.json").exists()


def test_what_an_earlier_sweep_has_finished_is_not_submitted(
    fake: FakeSlurm, multirun: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    given = ("-m", "hydra/launcher=slurm", "experiment=quick", "workers=1", "sweep.wait=false", "sweep.reuse=true")
    assert multirun(*given, "hydra.sweep.dir=first", without=PLAYED)[0] == 0
    (run,) = runs_of(tmp_path / "first")
    task = json.loads(run.path("job.json").read_text())["task"]
    version = task["code_version"]
    run.attempt(1).mkdir()
    files.write_json(run.attempt(1) / run_directory.PROVENANCE, record.describe_attempt(task["origin"], {}))
    files.write_json(run.path(run_directory.RESULT), {"format": 1, "status": run_directory.DONE, "accuracy": 0.5})
    write_state(
        run, status=run_directory.DONE, attempts=[{"number": 1, "status": run_directory.DONE, "code_version": version}]
    )
    code, out, err = multirun(*given, "hydra.sweep.dir=second", "seed=0,1", without=PLAYED)
    assert code == 0 and "second: 1 runs taken from earlier sweeps" in out and "1 of 2 runs are with SLURM" in out, err
    assert sorted(each.status() for each in runs_of(tmp_path / "second")) == [run_directory.DONE, run_directory.PENDING]
    code, out, err = multirun(*given, "hydra.sweep.dir=third", without=PLAYED)
    assert code == 0 and "0 of 1 runs are with SLURM" in out, err


@pytest.mark.parametrize("setting", ["fail_fast=true", "max_failures=2", "on_end=[echo,done]"])
def test_what_needs_a_launcher_that_waits_is_refused_without(
    fake: FakeSlurm, multirun: Callable[..., tuple[int, str, str]], tmp_path: Path, setting: str
) -> None:
    given = ("-m", "hydra/launcher=slurm", "experiment=quick", "workers=1", "hydra.sweep.dir=s", "sweep.wait=false")
    code, _, err = multirun(*given, f"sweep.{setting}", without=PLAYED)
    assert code == 2 and err.count("\n") == 1 and err.startswith(f"sweep.{setting.partition('=')[0]}="), err
    assert "with sweep.wait=false on SLURM" in err and not (tmp_path / "s").exists()


def test_a_launcher_that_died_before_another_try(executor: SlurmRunExecutor, fake: FakeSlurm, make: Make) -> None:
    task = make("a")
    submit(executor, task)
    began(task, "100_0", run_directory.FAILED, reason="out of memory")
    write_state(task.run, status=run_directory.PENDING, reason="retry 1 of 2 in 5 s")
    fake.queue(_100_0="FAILED")
    assert completion.list_missing([task.run], SlurmRunExecutor(executor.folder, 0.05).reconcile) == [task.run]
    assert task.run.state()["attempts"][0]["reason"] == "out of memory" == task.run.state()["reason"]


def test_tasks_survive_being_written_as_json(make: Make) -> None:
    task = make("a", 3, nodes=2)
    assert load_task(json.loads(json.dumps(dataclasses.asdict(task)))) == task


def test_a_resume_does_not_write_states_that_a_job_may_be_writing(tmp_path: Path) -> None:
    point = run_identity.Point({"workers": 1, "sweep": {}}, {"seed": "1"})
    (run,) = run_layout.lay_out(tmp_path, [point])
    before = run.path(run_directory.STATE).stat().st_mtime_ns, run.path(run_directory.STATE).stat().st_ino
    assert run_layout.lay_out(tmp_path, [point]) == [Run(run.directory)]
    assert (run.path(run_directory.STATE).stat().st_mtime_ns, run.path(run_directory.STATE).stat().st_ino) == before
