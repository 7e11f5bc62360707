"""Lines without a terminal, a table with one."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from sweep import run as names
from sweep.local import SlotExecutor, SlotJob
from sweep.mpirun import MpiRun
from sweep.progress import Progress, Row, duration
from sweep.run import Run


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (8.06, "8.1 s"), (60, "1:00"), (125.2, "2:05"), (3723, "1:02:03")]
)
def test_durations_for_people(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


CONFIG = {"epochs": 10, "max_steps": None}


def write(run: Run, steps: int, per_epoch: int) -> None:
    run.directory.mkdir(exist_ok=True)
    names.append_rows(
        run.path(names.STEPS),
        names.STEP_COLUMNS,
        [{"step": steps, "epoch": 1 + steps // per_epoch, "loss": 0.25, "time_s": steps / 20}],
    )
    names.append_rows(
        run.path(names.EPOCHS), names.EPOCH_COLUMNS, [{"epoch": 1, "step": per_epoch, "test_accuracy": 0.5}]
    )


def test_a_row_reads_how_far_a_run_is(tmp_path: Path) -> None:
    row = Row(Run(tmp_path / "run"), epochs=10, max_steps=None)
    row.update(3.0)
    assert row.epoch is None and row.remaining_s is None
    write(row.run, steps=25, per_epoch=10)
    row.update(5.0)
    assert (row.epoch, row.loss, row.accuracy, row.iterations_per_second) == (3, 0.25, 0.5, 20)
    assert row.remaining_s == pytest.approx(15)  # a quarter of 100 steps took 5 s
    row.max_steps = 50
    row.update(5.0)
    assert row.remaining_s == pytest.approx(5)
    names.write_json(row.run.path(names.RESULT), {"iterations_per_second": 22.0})
    row.update(None)
    assert row.iterations_per_second == 22  # as in the report: without the warm-up


@pytest.fixture
def jobs(tmp_path: Path) -> list[SlotJob]:
    executor = SlotExecutor(tmp_path)
    return [SlotJob(executor, MpiRun(str(tmp_path / f"x={i}-abc"), 1, 1, [], {})) for i in range(40)]


def test_a_line_for_each_run_that_ends(jobs: list[SlotJob], tmp_path: Path) -> None:
    out = io.StringIO()
    jobs = jobs[:2]
    with Progress(jobs, [CONFIG] * 2, 3, Console(file=out, width=40)) as progress:
        write(jobs[0].mpi_run.run, 25, 10)
        jobs[0].status = names.DONE
        progress.refresh()
        jobs[1].status, jobs[1].reason = names.FAILED, "rank 1: [bold]no[/bold] " + "long " * 20
        progress.refresh()
    lines = out.getvalue().splitlines()
    assert len(lines) == 2  # nothing is wrapped
    assert lines[0].startswith("[4/5]  done  x=0-abc  accuracy 0.5000  20.0 it/s")
    assert lines[1].startswith("[5/5]  failed  x=1-abc") and "[bold]no[/bold]" in lines[1]


def test_a_table_that_fits_the_terminal(jobs: list[SlotJob]) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=90, height=20)
    for job in jobs[:30]:
        job.status = names.DONE
    for job in jobs[30:32]:
        job.status = names.RUNNING
    with Progress(jobs, [CONFIG] * 40, 0, console):
        pass
    table = out.getvalue()[-4000:]
    assert "30 of 40 runs finished" in table
    assert table.count("running") >= 2 and "pending" in table
