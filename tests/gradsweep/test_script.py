"""What a training script of the user reports by gradsweep.script.Run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gradsweep import csv_columns, files
from gradsweep.script import Run
from gradsweep.script.ranks import find_master, find_rank_variables
from tests.conftest import ROOT

ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
SRUN = {"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_LOCALID": "1", "SLURM_NODEID": "2"}


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an attempt, as a rank finds it in its environment."""
    for name in (*ALONE, *OPENMPI, *SRUN, "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "attempt-1"
    path.mkdir()
    files.write_json(path / "config.json", {"epochs": 3, "ddp": {"hook": "fp16", "rank": None}})
    monkeypatch.setenv("GRADSWEEP_RUN", str(tmp_path))
    monkeypatch.setenv("GRADSWEEP_ATTEMPT", str(path))
    return path


@pytest.fixture(autouse=True)
def keep_signals() -> object:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, ("0", "1", "0", "1")),
        (OPENMPI, ("3", "4", "1", "2")),
        ({**SRUN, **OPENMPI}, ("3", "4", "1", "2")),  # mpirun in an allocation
        ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}, ("5", "6", "1", "2")),
        ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "3,2,1"}, ("5", "6", "1", "1")),
        ({"PMIX_RANK": "1", "SLURM_NTASKS": "2"}, ("1", "2", "0", "1")),
        ({"RANK": "7", "WORLD_SIZE": "8"}, ("7", "8", "0", "1")),  # torchrun
    ],
)
def test_ranks_as_torch_distributed_wants_them(environment: dict[str, str], found: tuple[str, ...]) -> None:
    assert tuple(find_rank_variables(environment).values()) == found


def test_all_ranks_learn_the_address_of_rank_0(tmp_path: Path) -> None:
    first = find_master(tmp_path, {**ALONE, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"})
    other = find_master(tmp_path, {**ALONE, "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"})
    assert first == other and first["MASTER_ADDR"] == "127.0.0.1" and int(first["MASTER_PORT"]) > 1023


def test_steps_and_epochs_become_rows_with_the_documented_columns(attempt: Path) -> None:
    run = Run()
    assert (run.get("ddp.hook"), run.get("ddp.rank", 2), run.get("no.such", "x")) == ("fp16", 2, "x")
    run.start()
    for loss in (2.0, 1.0):
        run.step(samples=8, loss=loss, phases={"forward": 0.5}, sent_bytes=100)
    run.epoch(test_accuracy=0.5, perplexity=7.0)
    run.step(samples=8, loss=float("nan"))
    run.finish(accuracy=0.75)
    header, *rows = (attempt.parent / "steps.csv").read_text().splitlines()
    assert header == ",".join(csv_columns.STEP_COLUMNS) and len(rows) == 3
    first, last = (dict(zip(csv_columns.STEP_COLUMNS, row.split(","), strict=True)) for row in (rows[0], rows[-1]))
    assert (first["step"], first["epoch"], first["forward_s"], first["backward_s"]) == ("1", "1", "0.5", "")
    assert (last["step"], last["epoch"], last["loss"], last["accuracy"]) == ("3", "2", "nan", "")
    assert float(first["time_s"]) == float(first["step_s"]) >= 0
    epoch = files.last_row(attempt.parent / "epochs.csv")
    assert epoch is not None and epoch["train_loss"] == "1.5" and epoch["perplexity"] == "7.0"
    assert epoch["step"] == "2" and epoch["test_loss"] == ""
    assert files.read_json(attempt / "result.json") == {"status": "done", "reason": None, "accuracy": 0.75}


def test_an_unknown_phase_is_refused(attempt: Path) -> None:
    with pytest.raises(ValueError, match="phases: fowrard: unknown; valid is some of data, forward"):
        Run().step(samples=1, phases={"fowrard": 1.0})


def test_a_resumed_script_goes_on_after_its_checkpoint(attempt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    for _ in range(3):
        run.step(samples=1, step_s=1.0)
        run.epoch(test_accuracy=0.1)
    run.read_yardstick()
    os.kill(os.getpid(), signal.SIGUSR1)
    assert run.checkpoint_requested() and run.checkpoint.is_dir()
    run.stop()
    stopped = files.read_json(attempt / "stopped.json") or {}
    assert stopped["step"] == 3 and stopped["reason"].startswith("SIGUSR1: saved at step 3;")
    again = attempt.with_name("attempt-2")
    again.mkdir()
    monkeypatch.setenv("GRADSWEEP_ATTEMPT", str(again))
    run = Run()
    run.resume(2)
    run.step(samples=1, step_s=1.0)
    run.epoch(test_accuracy=0.9)
    run.flush()
    last, epoch = (files.last_row(attempt.parent / name) or {} for name in ("steps.csv", "epochs.csv"))
    assert (last["step"], last["epoch"], last["time_s"]) == ("3", "3", "3.0")
    assert (epoch["epoch"], epoch["test_accuracy"]) == ("3", "0.9")
    assert len((attempt.parent / "epochs.csv").read_text().splitlines()) == 4
    assert len((attempt.parent / "yardstick.csv").read_text().splitlines()) == 1
    assert files.read_json(again / "resumed.json") == {"step": 2}
    with pytest.raises(ValueError, match="steps.csv has 3 of 9 rows"):
        Run().resume(9)


def test_a_resume_within_an_epoch_keeps_its_training_loss(attempt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    for loss in (9.0, 1.0, 2.0, 3.0):
        run.step(samples=2, loss=loss)
        if loss == 9.0:
            run.epoch(test_accuracy=0.1)
    run.stop()
    again = attempt.with_name("attempt-2")
    again.mkdir()
    monkeypatch.setenv("GRADSWEEP_ATTEMPT", str(again))
    run = Run()
    run.resume(3)
    run.step(samples=2, loss=6.0)
    run.epoch(test_accuracy=0.9)
    epoch = files.last_row(attempt.parent / "epochs.csv") or {}
    assert (epoch["epoch"], epoch["train_loss"]) == ("2", "3.0")


def test_other_ranks_write_nothing(attempt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    run = Run()
    run.step(samples=1, loss=1.0)
    run.epoch(test_accuracy=0.1)
    run.stop()
    run.finish()
    assert run.steps == 1
    assert {path.name for path in attempt.parent.rglob("*.*")} <= {"attempt-1", "config.json", "stacks-1.txt"}


def test_without_a_sweep_nothing_is_written_and_little_is_loaded(tmp_path: Path) -> None:
    code = (
        "import sys; from gradsweep.script import Run; run = Run(); run.start(); run.step(samples=1, loss=1.0)\n"
        "run.epoch(test_accuracy=1.0); run.read_yardstick(); run.finish()\n"
        "print(run.config, run.rank, run.checkpoint, sorted({'torch', 'yaml', 'numpy'} & set(sys.modules)))"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GRADSWEEP_", "OMPI_"))}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("{} 0 checkpoint []\n", "") and not list(tmp_path.iterdir())
