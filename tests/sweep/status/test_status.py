"""`python -m sweep status`: what it shows of runs in every state, and of damaged ones; what it costs."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from gradsweep import files, run_directory
from gradsweep.run_directory import Run
from sweep.__main__ import main
from sweep.console.console import Output
from sweep.directory import scheduler_job
from sweep.directory.run_state import include
from sweep.directory.sweep_directory import Sweep
from sweep.launchers import schedulers
from sweep.status import overview
from sweep.status.overview import LOST, Overview, View, read_view
from sweep.status.watch import Lines
from tests.conftest import ROOT
from tests.sweep.fakes import write_run

ATTEMPT = {"number": 1, "status": "running", "started": "2026-11-20T10:00:00.000+00:00", "ended": None, "host": "n7"}
ENDED = {**ATTEMPT, "status": "failed", "ended": "2026-11-20T10:01:05.000+00:00"}


def views(sweep: Path) -> dict[str, View]:
    overview = Overview(sweep)
    overview.refresh()
    return overview.views


def shown(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[str]:
    assert main(["status", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    write_run(tmp_path, "a=1-11111111", {"status": "done", "attempts": [ENDED]}, {"status": "done", "accuracy": 0.5})
    write_run(tmp_path, "a=2-22222222", {"status": "running", "attempts": [ATTEMPT]}, steps=25)
    write_run(tmp_path, "a=3-33333333", {"status": "failed", "reason": "rank 1: \x1b[2Jno\n why", "attempts": [ENDED]})
    write_run(tmp_path, "a=4-44444444", {"status": "pending", "attempts": []})
    return tmp_path


def test_a_line_for_each_run(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, sweep)
    assert lines[0].endswith("4 runs: 1 pending, 1 done, 1 failed, 1 lost")
    assert lines[1] == "nobody is running it"
    assert [line.split()[:3] for line in lines[4:]] == [
        ["a=1-11111111", "done", "1"],
        ["a=2-22222222", "lost", "1"],
        ["a=3-33333333", "failed", "1"],
        ["a=4-44444444", "pending", "0"],
    ]
    assert lines[6].endswith(r"1:05  rank 1: \x1b[2Jno why")  # neither a clear screen nor a second line
    assert Run(sweep / "runs/a=2-22222222").status() == run_directory.RUNNING  # nothing was written


def test_what_is_held_is_running(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    held = Sweep(sweep, fresh=False)
    run = Run(sweep / "runs/a=2-22222222")
    files.write_json(
        run.path(run_directory.STATE), {"status": "running", "attempts": [{**ATTEMPT, "started": files.now()}]}
    )
    lines = shown(capsys, sweep)
    assert lines[1].startswith(f"run by pid {os.getpid()} on {socket.gethostname()} since 20")
    # a quarter of 10 epochs of 10 steps; epoch 3 has begun; 20 steps a second; accuracy of the first epoch
    assert lines[5].split()[:7] == ["a=2-22222222", "running", "1", "25%", "3/10", "0.7500", "20.0"]
    files.write_json(run.path(run_directory.STATE), {"status": "running", "attempts": [ATTEMPT]})
    assert views(sweep)[run.name].status == LOST  # left by an earlier launcher, of a host that the holder is not
    mine = {**ATTEMPT, "host": socket.gethostname(), "pid": os.getpid()}
    files.write_json(run.path(run_directory.STATE), {"status": "running", "attempts": [mine]})
    assert views(sweep)[run.name].status == run_directory.RUNNING  # its clock was put back, but the process is there
    held.close()
    assert views(sweep)[run.name].status == LOST


def test_a_race_under_way_is_named(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that its launcher has begun, and none that an earlier one has left; files and links there are no races."""
    races = sweep / run_directory.RACES
    for name, started in (("workers=2-0123abcd", files.now()), ("workers=4-0123abcd", ATTEMPT["started"])):
        (races / name).mkdir(parents=True)
        (races / name / run_directory.CONFIG).write_text("workers: 2\n")
        state = {"status": "running", "attempts": [{**ATTEMPT, "started": started}]}
        files.write_json(races / name / run_directory.STATE, state)
    (races / "a file").write_text("")
    (races / "a link").symlink_to(races / "workers=2-0123abcd")
    assert shown(capsys, sweep)[1] == "nobody is running it"
    held = Sweep(sweep, fresh=False)
    race = Run(races / "workers=2-0123abcd")
    mine = {"status": "running", "attempts": [{**ATTEMPT, "started": files.now()}]}
    files.write_json(race.path(run_directory.STATE), mine)
    assert shown(capsys, sweep)[1].endswith("; race under way: workers=2-0123abcd")
    assert json.loads("\n".join(shown(capsys, sweep, "--json")))["racing"] == [race.name]
    found = Overview(sweep)
    found.refresh()
    with Lines(Output(), found) as lines:
        assert "race under way: workers=2-0123abcd" in capsys.readouterr().out
        lines.show()
        assert "race" not in capsys.readouterr().out
        files.write_json(race.path(run_directory.STATE), {**mine, "status": "done"})
        found.refresh()
        lines.show()
        files.write_json(race.path(run_directory.STATE), mine)
        found.refresh()
        lines.show()
        assert capsys.readouterr().out.splitlines() == ["race under way: workers=2-0123abcd"]
    for path in races.iterdir():
        path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
    races.rmdir()
    races.write_text("")
    assert "race" not in shown(capsys, sweep)[1]
    held.close()


def test_what_was_only_to_race_is_not_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path, "a=1-11111111", {"status": "pending", "reason": run_directory.ONLY_RACED, "attempts": []})
    assert shown(capsys, tmp_path)[-1].split(maxsplit=3) == [run.name, "pending", "0", "race=only: not to be trained"]
    assert main(["watch", str(tmp_path)]) == 0 and "missing" not in capsys.readouterr().out
    include(run)
    assert run.state()["reason"] is None, "now it is to be trained"
    assert main(["watch", str(tmp_path)]) == 1 and "To compute only what is missing" in capsys.readouterr().out


def test_to_look_disturbs_no_launcher(sweep: Path) -> None:
    with (sweep / ".lock").open("a+") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        overview = Overview(sweep)
        overview.refresh()
        assert overview.holder is None


class Scheduler:
    alive: dict[str, str | None] | None = {}
    asked: list[list[str]] = []

    @classmethod
    def query(cls, ids: Any) -> dict[str, str | None] | None:
        cls.asked.append(list(ids))
        return cls.alive


def test_a_scheduler_is_asked_once_and_for_what_it_alone_knows(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulers, "query_slurm", Scheduler.query)
    monkeypatch.setattr(Scheduler, "asked", [])
    for name, job in (("a=2-22222222", "7_1"), ("a=4-44444444", "7_3"), ("a=1-11111111", "7_0")):
        files.write_json(sweep / "runs" / name / run_directory.JOB, {"cluster": "slurm", "id": job})
    monkeypatch.setattr(Scheduler, "alive", {"7_1": None})
    overview = Overview(sweep)
    for _ in range(3):
        overview.refresh()
    assert Scheduler.asked == [["7_1", "7_3"]]
    assert overview.active and overview.views["a=2-22222222"].status == run_directory.RUNNING
    monkeypatch.setattr(Scheduler, "alive", {})
    assert views(sweep)["a=2-22222222"].status == LOST
    monkeypatch.setattr(Scheduler, "alive", None)  # it does not answer: nobody is declared dead
    assert views(sweep)["a=2-22222222"].status == run_directory.RUNNING


@pytest.mark.parametrize("status", ["preempted", "cancelled"])
def test_a_run_that_was_sent_away_is_shown_as_queued_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: str
) -> None:
    """A job that somebody has queued again was ended like one that was cancelled."""
    monkeypatch.setattr(schedulers, "query_slurm", Scheduler.query)
    run = write_run(tmp_path, "a=1-11111111", {"status": status, "reason": "saved", "attempts": [ENDED]})
    files.write_json(run.path(run_directory.JOB), {"cluster": "slurm", "id": "7_1"})
    waits = {"7_1": "pending: BeginTime"}
    again = "saved; queued again; job 7_1 (pending: BeginTime)"
    for alive, line, active in ((waits, again, True), ({}, "saved", False)):
        monkeypatch.setattr(Scheduler, "alive", alive)
        assert shown(capsys, tmp_path)[-1].endswith(line)
        overview = Overview(tmp_path)
        overview.refresh()
        assert overview.active == active and overview.views[run.name].ended != active
    monkeypatch.setattr(Scheduler, "alive", None)  # it does not answer: nobody says that it will go on
    assert shown(capsys, tmp_path)[-1].endswith("saved")


def test_a_scheduler_is_asked_again_soon_about_a_job_that_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether it is gone then or queued again shows only when all has been tidied up."""
    monkeypatch.setattr(schedulers, "query_slurm", Scheduler.query)
    monkeypatch.setattr(overview, "ASK_SOON_S", 0.0)
    monkeypatch.setattr(Scheduler, "alive", {"7_1": scheduler_job.COMPLETING})
    run = write_run(tmp_path, "a=1-11111111", {"status": "cancelled", "reason": "ended", "attempts": [ENDED]})
    files.write_json(run.path(run_directory.JOB), {"cluster": "slurm", "id": "7_1"})
    assert shown(capsys, tmp_path)[-1].endswith("ended; job 7_1 (completing)")
    seen = Overview(tmp_path)
    seen.refresh()
    assert seen.active
    monkeypatch.setattr(Scheduler, "alive", {})
    seen.refresh()
    assert not seen.active and seen.views[run.name].ended


def test_a_run_that_was_cancelled_by_its_name_is_nobody_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulers, "query_slurm", Scheduler.query)
    monkeypatch.setattr(Scheduler, "asked", [])
    run = write_run(tmp_path, "a=1-11111111", {"status": "cancelled", "left_out": True, "attempts": [ENDED]})
    files.write_json(run.path(run_directory.JOB), {"cluster": "slurm", "id": "7_1"})
    assert views(tmp_path)[run.name].ended and Scheduler.asked == []


def test_what_a_job_waits_for_is_shown(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(schedulers, "query_slurm", Scheduler.query)
    monkeypatch.setattr(Scheduler, "alive", {"7_1": None, "7_3": "pending: DependencyNeverSatisfied"})
    for name, job in (("a=2-22222222", "7_1"), ("a=4-44444444", "7_3")):
        files.write_json(sweep / "runs" / name / run_directory.JOB, {"cluster": "slurm", "id": job})
    lines = {line.split()[0]: line for line in shown(capsys, sweep) if line.startswith("a=")}
    assert lines["a=2-22222222"].endswith("job 7_1")
    assert lines["a=4-44444444"].endswith("job 7_3 (pending: DependencyNeverSatisfied)")
    monkeypatch.setattr(Scheduler, "alive", {"7_1": None})
    assert next(line for line in shown(capsys, sweep) if line.startswith("a=4-")).endswith("job 7_3 (ended)")


@pytest.mark.parametrize(
    ("name", "content", "status", "remark"),
    [
        (run_directory.STATE, None, "pending", "state.json: missing"),
        (run_directory.STATE, b"", "pending", "state.json: damaged"),
        (run_directory.STATE, b'{"status": "dan', "pending", "state.json: damaged"),
        (run_directory.STATE, b'{"status": 3, "attempts": [1, {"number": null}]}', "pending", ""),
        (run_directory.RESULT, None, "done", "result.json: missing"),
        (run_directory.RESULT, b'{"status"', "done", "result.json: damaged"),
        (run_directory.STEPS, b"\xff\xfe", "done", ""),
        (run_directory.CONFIG, b"\xff\xfe", "done", ""),
    ],
)
def test_damaged_files_are_shown_as_what_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, status: str, remark: str
) -> None:
    result = None if name == run_directory.STATE else {"status": "done"}
    run = write_run(tmp_path, "a=1-11111111", {"status": "done", "attempts": [ENDED]}, result, steps=3)
    run.path(name).unlink(missing_ok=True)
    if content is not None:
        run.path(name).write_bytes(content)
    (line,) = shown(capsys, tmp_path)[4:]
    assert line.split()[1] == status and line.endswith(remark)


def test_a_number_that_nobody_can_read_is_short(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    huge = {"accuracy": 1e308, "iterations_per_second": -1e300, "total_s": 1e300, "time_s": 1e300}
    write_run(sweep, "huge", {"status": "done", "attempts": []}, {"status": "done", **huge})
    main(["status", str(sweep)])
    main(["status", str(sweep), "huge"])
    out = capsys.readouterr().out
    assert "1e+308" in out and "-1e+300" in out and "0" * 20 not in out


def test_a_result_counts_where_the_state_is_gone(tmp_path: Path) -> None:
    run = write_run(tmp_path, "a=1-11111111", {}, {"status": "diverged", "accuracy": None})
    run.path(run_directory.STATE).unlink()
    assert read_view(f"{tmp_path}/runs/", run.name).status == run_directory.DIVERGED


def test_directories_without_a_config_are_no_runs(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sweep / "runs/a=2-22222222" / run_directory.CONFIG).unlink()
    lines = shown(capsys, sweep)
    assert "3 runs" in lines[0] and lines[-1].endswith("no run: a=2-22222222")


def test_json(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads("\n".join(shown(capsys, sweep, "--json")))
    assert found["counts"] == {"pending": 1, "done": 1, "failed": 1, "lost": 1} and found["holder"] is None
    assert [run["status"] for run in found["runs"]] == ["done", "lost", "failed", "pending"]
    assert found["runs"][1]["progress"] == 0.25 and found["runs"][2]["time_s"] == 65


def test_some_runs_only(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def of(*arguments: str) -> list[str]:
        return [line.split()[0] for line in shown(capsys, sweep, *arguments)[4:]]

    assert of("--failed") == ["a=2-22222222", "a=3-33333333"]
    assert of("22222222") == of("a=2") == ["a=2-22222222"]
    assert of("a=[13]*", "a=4") == ["a=1-11111111", "a=3-33333333", "a=4-44444444"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["{sweep}", "a=5"], "a=5: no such run; did you mean a=1 or a=2 or a=3? valid is .*"),
        (["{sweep}", "a="], "a=: 4 runs begin so (a=1-11111111, .*, ...); valid is more of a name, or 'a=*'"),
        (["{sweep}/nowhere"], "nowhere: no such run; .*"),
        (["{sweep}/no/where"], ".*/no/where: there is no sweep in it .*"),
        (["{sweep}/runs"], ".*/runs: there is no sweep in it .*"),
        (["last"], "last: there is no sweep in .*/output; valid is the directory of a sweep"),
        (["a=1"], "last: there is no sweep in .*"),
    ],
)
def test_errors_are_one_line(
    sweep: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(sweep)
    assert main(["status", *(word.format(sweep=sweep) for word in words)]) == 2
    out, err = capsys.readouterr()
    pattern = re.escape(line).replace(r"\.\*", ".*")
    assert out == "" and re.fullmatch(pattern + "\n", err), err


def test_the_last_sweep_and_the_directory_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for when, name in enumerate(("10-00-00", "11-00-00-named", "09-00-00")):  # the third was resumed
        write_run(Path("output/2026-11-20", name), f"a={when}-1111111{when}", {"status": "pending"})
        Path("output/2026-11-20", name, run_directory.SWEEP).write_text("format: 1\n")
        os.utime(Path("output/2026-11-20", name, run_directory.SWEEP), (when, when))
    assert shown(capsys)[0].startswith("output/2026-11-20/09-00-00: 1 run: 1 pending")
    assert shown(capsys, "last", "a=2")[4].startswith("a=2-11111112")
    for word in ("runs/a=1-11111111/", "a=1-11111111", "a=1", "11111111"):
        assert shown(capsys, f"output/2026-11-20/11-00-00-named/{word}")[4].startswith("a=1-11111111")


def test_an_ended_run_is_read_once_and_a_changed_one_again(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(
        "sweep.status.overview.read_view", lambda above, name: (looked.append(name), read_view(above, name))[1]
    )
    overview = Overview(sweep)
    overview.refresh()
    overview.refresh()
    assert looked.count("a=1-11111111") == looked.count("a=4-44444444") == 1
    assert looked.count("a=2-22222222") == 2
    files.write_json(sweep / "runs/a=4-44444444" / run_directory.STATE, {"status": "cancelled", "left_out": True})
    overview.refresh()
    assert overview.views["a=4-44444444"].left_out


def test_a_reader_that_has_gone_is_no_error(sweep: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m sweep status {shlex.quote(str(sweep))} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_ten_thousand_runs_in_a_few_megabytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """How long it takes is for `benchmarks/sweep.py status` to say; here, with a tenth, that it keeps no file."""
    for i in range(1000):
        status = ("done", "running", "failed", "pending")[i % 4]
        attempts = [] if status == "pending" else [ENDED]
        result = {"status": "done", "accuracy": 0.5, "more": "x" * 2000} if status == "done" else None
        write_run(
            tmp_path, f"a={i}-{i:08d}", {"status": status, "attempts": attempts}, result, 30 * (status == "running")
        )
    tracemalloc.start()
    lines = shown(capsys, tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(lines) == 1004 and lines[0].endswith("1000 runs: 250 pending, 250 done, 250 failed, 250 lost")
    assert peak < 5e6
