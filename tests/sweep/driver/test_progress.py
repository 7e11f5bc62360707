"""Lines without a terminal, a picture with one, events for machines."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from gradsweep import csv_columns, files, run_directory
from gradsweep.run_directory import Run
from gradsweep.text import duration
from sweep.attempts.run_task import RunTask
from sweep.console.console import Output
from sweep.console.events import Events
from sweep.driver.live_display import build_picture, crop
from sweep.driver.progress import Progress
from sweep.driver.progress_tracker import Row, Tracker
from sweep.executors.local import SlotExecutor, SlotJob

Make = Callable[..., list[SlotJob]]


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (8.06, "8.1 s"), (60, "1:00"), (125.2, "2:05"), (3723, "1:02:03")]
)
def test_durations_for_people(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


CONFIG = {"epochs": 10, "max_steps": None}
NASTY = "rank 1: [bold]no[/bold] \x1b[2J\nsecond line " + "long " * 20


def write(run: Run, steps: int, per_epoch: int, epochs: int = 1) -> None:
    run.directory.mkdir(exist_ok=True)
    files.append_rows(
        run.path(run_directory.STEPS),
        csv_columns.STEP_COLUMNS,
        [{"step": steps, "epoch": 1 + steps // per_epoch, "loss": 0.25, "time_s": steps / 20}],
    )
    if epochs:
        files.append_rows(
            run.path(run_directory.EPOCHS),
            csv_columns.EPOCH_COLUMNS,
            [{"epoch": epochs, "step": per_epoch * epochs, "test_accuracy": 0.5, "evaluate_s": 0.5}],
        )


def test_a_row_reads_how_far_a_run_is(make: Make) -> None:
    row = Row(*make(1), epochs=10, max_steps=None)
    row.read()
    assert row.epoch is None and row.share is None and row.remaining_s is None
    write(row.run, steps=8, per_epoch=10, epochs=0)
    row.read()
    assert row.epoch == 1 and row.share is None  # nobody knows how many steps an epoch has
    write(row.run, steps=25, per_epoch=10)
    row.read()
    assert (row.epoch, row.loss, row.accuracy, row.iterations_per_second) == (3, 0.25, 0.5, 20)
    assert row.share == 0.25
    assert row.remaining_s == pytest.approx(75 / 20 + 9 * 0.5)  # steps, and evaluations of the epochs to come
    row.max_steps = 50
    row.read()
    assert row.share == 0.5
    row.ended = 1.0
    files.write_json(row.run.path(run_directory.RESULT), {"iterations_per_second": 22.0})
    row.read()
    assert row.iterations_per_second == 22  # as in the report: without the warm-up
    assert row.few_steps == ""


@pytest.fixture
def make(tmp_path: Path) -> Make:
    executor = SlotExecutor(tmp_path)

    def jobs(count: int, name: str = "x={}", cores: int = 1) -> list[SlotJob]:
        return [
            SlotJob(executor, RunTask(str(tmp_path / f"{name.format(i)}-abc"), cores, 1, [], {})) for i in range(count)
        ]

    return jobs


def test_a_line_for_each_run_that_ends(make: Make) -> None:
    out = io.StringIO()
    jobs = make(3)
    with Progress(jobs, [CONFIG] * 3, 3, Console(file=out, width=40)) as progress:
        write(jobs[0].task.run, 25, 10)
        jobs[0].status = run_directory.DONE
        progress.refresh()
        jobs[1].status, jobs[1].reason, jobs[1].cause = run_directory.FAILED, NASTY, "error"
        jobs[2].status = run_directory.DONE
        progress.refresh()
    lines = out.getvalue().splitlines()
    assert len(lines) == 3  # nothing is wrapped
    assert lines[0].startswith("[4/6]  done  x=0-abc  accuracy 0.5000  20.0 it/s")
    assert lines[1].startswith("[5/6]  failed  x=1-abc") and "(error: rank 1: [bold]no[/bold]" in lines[1]
    assert "\x1b" not in lines[1] and "second line" in lines[1]
    assert lines[2].startswith("[6/6]  done  x=2-abc")


@pytest.mark.parametrize(
    ("timed", "warmup", "words"),
    [
        (29, 10, "  22.0 it/s of 29 timed steps"),
        (30, 10, "  22.0 it/s  "),
        (200, 0, "  22.0 it/s of all 200 steps, warm-up included  "),
    ],
)
def test_a_throughput_of_few_steps_is_told_as_one(timed: int, warmup: int, words: str, make: Make) -> None:
    out = io.StringIO()
    (job,) = make(1)
    with Progress([job], [CONFIG], 0, Console(file=out, width=40)) as progress:
        write(job.task.run, 25, 10)
        result = {"iterations_per_second": 22.0, "steps": timed + warmup, "warmup_steps": warmup}
        files.write_json(job.task.run.path(run_directory.RESULT), result)
        progress.refresh()
        job.status = run_directory.DONE
        progress.refresh()
    assert words in f"{out.getvalue().splitlines()[-1]}  "


def test_quiet_is_failures_only(make: Make) -> None:
    out = io.StringIO()
    jobs = make(3)
    console = Console(file=out, force_terminal=True, force_interactive=True, width=90, height=20)
    with Progress(jobs, [CONFIG] * 3, 0, console, quiet=True) as progress:
        for job, status in zip(jobs, (run_directory.DONE, run_directory.FAILED, run_directory.CANCELLED), strict=True):
            job.status = status
        progress.report_event("retried", jobs[1].task.run, "in a minute")
    assert len(out.getvalue().splitlines()) == 1 and "failed  x=1-abc" in out.getvalue()


def test_a_run_that_is_tried_again_counts_once_and_by_its_newest_job(make: Make) -> None:
    jobs, out = make(2), io.StringIO()
    with Progress(jobs, [CONFIG] * 2, 0, Console(file=out, width=40)) as progress:
        jobs[0].status = run_directory.FAILED
        progress.refresh()
        assert progress.tracker.count_statuses() == {run_directory.FAILED: 1, run_directory.PENDING: 1}
        progress.report_event("retried", jobs[0].task.run, "retry 1 of 2 in 10 s")
        assert progress.tracker.count_statuses() == {run_directory.PENDING: 2}
        again = SlotJob(jobs[0].executor, jobs[0].task)
        progress.add_job(again)
        again.status = jobs[1].status = run_directory.RUNNING
        progress.refresh()
        assert progress.tracker.count_statuses() == {run_directory.RUNNING: 2} and len(progress.tracker.rows) == 2
        again.status = run_directory.DONE
        progress.refresh()
        assert progress.tracker.count_statuses() == {run_directory.RUNNING: 1, run_directory.DONE: 1}
    lines = out.getvalue().splitlines()
    assert [line.split("  ")[1 - line.startswith("retried")] for line in lines] == ["failed", "retried", "done"]
    assert lines[1] == "retried  x=0-abc  (retry 1 of 2 in 10 s)"


def test_what_ends_after_the_picture_has_gone_is_for_machines(make: Make, tmp_path: Path) -> None:
    jobs, out = make(3), io.StringIO()
    events = Events(tmp_path)
    with Progress(jobs, [CONFIG] * 3, 0, Console(file=out, width=40), events=events) as progress:
        jobs[0].status = run_directory.FAILED
        progress.report_event("retried", jobs[0].task.run, "in a minute")
    progress.count_failure(jobs[0].task.run)
    jobs[1].status = jobs[2].status = run_directory.CANCELLED
    progress.refresh()
    assert progress.tracker.count_statuses() == {run_directory.FAILED: 1, run_directory.CANCELLED: 2}
    assert [event["status"] for event in read(tmp_path) if event["event"] == "run_ended"] == ["failed"] + [
        "cancelled"
    ] * 2
    assert "cancelled" not in out.getvalue()


def test_what_has_failed_stays_above_the_picture(make: Make) -> None:
    out = io.StringIO()
    jobs = make(40)
    console = Console(file=out, force_terminal=True, force_interactive=True, width=90, height=20)
    with Progress(jobs, [CONFIG] * 40, 2, console) as progress:
        for job in jobs[:30]:
            job.status = run_directory.DONE
        jobs[30].status, jobs[30].reason = run_directory.FAILED, NASTY
        progress.refresh()
        for job in jobs[31:33]:
            job.status = run_directory.RUNNING
    text = out.getvalue()
    assert text.count("failed  x=30-abc") == 1 and "[bold]no[/bold]" in text and "\x1b[2J" not in text
    last = text[text.rindex("33/42") :]
    assert "2 running" in last and "7 queued" in last and "1 failed" in last and "32 done" in last


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50), (60, 12), (45, 10), (20, 4), (8, 2), (1, 1)])
@pytest.mark.parametrize("count", [1, 5, 300])
def test_the_picture_fits_any_terminal(make: Make, width: int, height: int, count: int) -> None:
    names_of = "compressor=[red]日本語の名前,workers=2,optimizer.lr=0.0123456789,exchange=allgather,seed={}"
    jobs = make(count, names_of)
    tracker = Tracker(jobs, [CONFIG] * count, 0, 0.0)
    for index, job in enumerate(jobs):
        job.status = [run_directory.RUNNING, run_directory.DONE, run_directory.PENDING][index % 3]
        if job.status == run_directory.RUNNING and index < 6:
            write(job.task.run, 25, 10)
    tracker.update(1.0)
    for row in tracker.list_running():
        row.read()
    out = io.StringIO()
    Console(file=out, width=width, height=height).print(build_picture(tracker, width, height, 9.0))
    lines = out.getvalue().splitlines()
    assert len(lines) < max(height, 3) and max(map(cell_len, lines)) <= width
    if width >= 60:
        assert any("[red]日" in line and "0.5000" in line for line in lines)  # neither markup nor cut to nothing
        assert any(line.endswith("more running") for line in lines) == (count == 300)


def test_names_are_cut_in_their_middle() -> None:
    assert crop("compressor=qsgd,seed=1", 30) == "compressor=qsgd,seed=1"
    assert crop("compressor=qsgd,seed=1", 11) == "compr…eed=1"
    assert cell_len(crop("日本語の名前の長い名前", 9)) <= 9


def test_ten_thousand_runs_are_looked_at_in_no_time(make: Make) -> None:
    """An eta and a picture touch what is running, not the files of what waits or has ended."""
    jobs = make(10_000)
    tracker = Tracker(jobs, [CONFIG] * len(jobs), 0, 0.0)
    for job in jobs[:5000]:
        job.status = run_directory.CANCELLED
    for job in jobs[5000:5010]:
        job.status = run_directory.RUNNING
    assert len(tracker.update(1.0)) == 5010
    assert tracker.update(2.0) == [] and len(tracker.list_running()) == 10
    assert tracker.count_statuses() == {
        run_directory.CANCELLED: 5000,
        run_directory.RUNNING: 10,
        run_directory.PENDING: 4990,
    }


def play(tracker: Tracker, job: SlotJob, begin: float, end: float | None = None, cores: int = 1) -> None:
    job.cores = list(range(cores))
    job.status = run_directory.RUNNING
    tracker.update(begin)
    if end is not None:
        job.status = run_directory.DONE
        tracker.update(end)


def test_what_is_left_is_estimated_from_runs_of_similar_size(make: Make) -> None:
    small, large = make(4), make(3, "y={}", cores=4)
    tracker = Tracker([*small, *large], [CONFIG] * 7, 0, 0.0)
    assert tracker.estimate_remaining_s(0.0) is None
    play(tracker, small[0], 0.0, 10.0)
    # six runs are left, of which nobody knows better than 10 core-seconds, at one core-second a second
    assert tracker.estimate_remaining_s(10.0) == pytest.approx(60)
    play(tracker, large[0], 10.0, 30.0, cores=4)
    # 3 small of 10 and 2 large of 80 core-seconds, at 90 core-seconds in 30 s
    assert tracker.estimate_remaining_s(30.0) == pytest.approx(190 / 3)


def test_the_last_run_decides_at_the_end(make: Make) -> None:
    jobs = make(2)
    tracker = Tracker(jobs, [CONFIG] * 2, 0, 0.0)
    write(jobs[1].task.run, 25, 10)
    play(tracker, jobs[0], 0.0, 4.0)
    play(tracker, jobs[1], 5.0)
    (row,) = tracker.list_running()
    assert tracker.estimate_remaining_s(6.0) == pytest.approx(3)  # as the other one, before its files have been read
    row.read()
    assert tracker.estimate_remaining_s(6.0) == row.remaining_s


def read(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / run_directory.EVENTS).read_text().splitlines()]


def test_events_of_runs(make: Make, tmp_path: Path) -> None:
    jobs = make(3)
    events = Events(tmp_path)
    with Progress(jobs, [CONFIG] * 3, 0, Console(file=io.StringIO()), events=events) as progress:
        jobs[0].status = jobs[1].status = run_directory.RUNNING
        progress.refresh()
        write(jobs[0].task.run, 25, 10)
        jobs[0].status = run_directory.DONE
        jobs[1].status, jobs[1].reason, jobs[1].cause = run_directory.FAILED, "two\nlines \u2028 \x85 and \x00", "error"
        jobs[2].status = run_directory.CANCELLED  # out of the queue
        progress.report_event("retried", jobs[1].task.run, "retry 1 of 2\nin 10 s")
    told = read(tmp_path)
    assert [event["event"] for event in told] == [
        *["run_started"] * 2,
        *["run_ended"] * 3,
        "run_retried",
    ]
    done, failed, cancelled, retried = told[2:]
    assert (done["run"], done["status"], done["accuracy"], done["iterations_per_second"]) == (
        "x=0-abc",
        "done",
        0.5,
        20,
    )
    assert (failed["cause"], failed["reason"]) == ("error", "two\nlines \u2028 \x85 and \x00")
    assert cancelled["status"] == run_directory.CANCELLED and cancelled["seconds"] is None
    assert (retried["run"], retried["reason"]) == ("x=1-abc", "retry 1 of 2\nin 10 s")
    assert all(str(event["time"]).endswith("+00:00") for event in told)


def test_a_torn_line_is_cut_off_and_numbers_are_json(tmp_path: Path) -> None:
    (tmp_path / run_directory.EVENTS).write_text('{"event": "old"}\n{"event": "to')
    Events(tmp_path).write("new", value=float("nan"), many=[float("inf")])
    assert [(event["event"], event.get("value"), event.get("many")) for event in read(tmp_path)] == [
        ("old", None, None),
        ("new", None, [None]),
    ]


def test_a_full_disk_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    events = Events(tmp_path)
    events.write("before")
    with monkeypatch.context() as patch:
        patch.setattr("gradsweep.run_directory.os.write", full)
        events.write("lost")
    events.write("after")
    assert [event["event"] for event in read(tmp_path)] == ["before", "after"]


def test_json_lines_on_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Events(tmp_path, echo=True).write("hello", text="[red]wide 日本語[/red]\t" + "x" * 500)
    out, _ = capfd.readouterr()
    assert out == (tmp_path / run_directory.EVENTS).read_text() and out.count("\n") == 1


def test_output_that_is_gone_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    moved: list[tuple[int, int]] = []
    monkeypatch.setattr("sweep.console.console.os.dup2", lambda old, new: moved.append((old, new)))
    monkeypatch.setattr("sys.stdout", Gone())
    out = Output()
    out.print("a line")
    out.print("and another")
    assert out.quiet and [new for _, new in moved] == [1]


def test_signs_that_an_encoding_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    Output().print("é…", soft_wrap=True)
    assert raw.getvalue() == b"??\n"


def test_whom_a_run_waits_for_is_said_once(make: Make) -> None:
    out = io.StringIO()
    jobs = make(2)
    with Progress(jobs, [CONFIG] * 2, 0, Console(file=out, width=40)) as progress:
        for others in (None, "pid 1 (/their/[sweep])", None, "pid 1 (/their/[sweep])", "pid 2 (/another)"):
            jobs[1].waits_for = others
            progress.refresh()
    assert out.getvalue().splitlines() == ["waits for pid 1 (/their/[sweep])", "waits for pid 2 (/another)"]


def test_a_terminal_shows_whom_a_run_waits_for_and_that_cores_are_shared(make: Make) -> None:
    out, jobs = io.StringIO(), make(4)
    jobs[0].waits_for, jobs[1].shared_cores = "pid 1 (/their/[sweep])", True
    with Progress(
        jobs,
        [CONFIG] * len(jobs),
        0,
        Console(file=out, force_terminal=True, force_interactive=True, width=90, height=20),
    ):
        pass
    assert "waits for pid 1 (/their/[sweep])" in out.getvalue()
    assert "cores are shared" in out.getvalue()


def test_a_line_says_that_cores_were_shared(make: Make) -> None:
    out, jobs = io.StringIO(), make(1)
    with Progress(jobs, [CONFIG], 0, Console(file=out, width=40)) as progress:
        jobs[0].status, jobs[0].shared_cores = run_directory.DONE, True
        progress.refresh()
    assert out.getvalue().rstrip().endswith("shared cores")
