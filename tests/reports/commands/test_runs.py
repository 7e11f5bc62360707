"""`python -m reports list`, `show`, `diff`, `logs` and `prune`, on fabricated runs."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gradsweep import files, run_directory
from reports.__main__ import main
from sweep.directory.sweep_directory import Sweep
from tests.conftest import ROOT
from tests.reports import fabricate
from tests.reports.conftest import HOSTILE

STEERING = "\x1b[2J"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """output/ with two sweeps: 14-03-22 with two runs, of which one failed, and later 15-00-00 with one."""
    root = tmp_path_factory.mktemp("made") / "output"
    first = fabricate.sweep(root / "2026-11-20/14-03-22", [fabricate.config("none", 4)])
    failed = fabricate.run(
        first, fabricate.config("qsgd", 2), run_directory.FAILED, f"rank 1 {STEERING} died: {HOSTILE}"
    )
    (failed / "attempt-1" / run_directory.STDERR).write_bytes(b"Traceback\xff\n" + STEERING.encode() + b"boom\n")
    fabricate.sweep(root / "2026-11-20/15-00-00", [fabricate.config("svd", 2)], created="2026-11-20T15:00:00+00:00")
    os.utime(first / run_directory.SWEEP, (1, 1))
    return root


@pytest.fixture
def output(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it below the working directory."""
    shutil.copytree(made, tmp_path / "output")
    monkeypatch.chdir(tmp_path)
    return Path("output")


@pytest.fixture
def first(output: Path) -> Path:
    return output / "2026-11-20/14-03-22"


def told(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    capsys.readouterr()
    assert main([*map(str, arguments)]) == status
    out, err = capsys.readouterr()
    assert STEERING not in out + err and (err == "" if status == 0 else err.count("\n") == 1)
    return out if status == 0 else err


def run_of(sweep: Path, compressor: str) -> Path:
    (found,) = (sweep / run_directory.RUNS).glob(f"compressor={compressor},*")
    return found


def test_list_shows_every_sweep(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = told(capsys, "list").splitlines()[1:]
    words = first.split()
    best = files.read_json(run_of(output / "2026-11-20/14-03-22", "none") / run_directory.RESULT) or {}
    assert words[:6] == ["output/2026-11-20/14-03-22", "2026-11-20", "14:03", "2", "1", "1"]
    assert words[6] == f"{best['accuracy']:.4f}" and words[7].startswith("compressor=none,workers=4-")
    assert second.split()[:6] == ["output/2026-11-20/15-00-00", "2026-11-20", "15:00", "1", "1", "0"]
    assert told(capsys, "list", output / "2026-11-20/15-00-00").splitlines()[1:] == [second]
    found = json.loads(told(capsys, "list", "--json"))
    assert [(sweep["runs"], sweep["done"], sweep["failed"]) for sweep in found] == [(2, 1, 1), (1, 1, 0)]
    assert found[0]["best_accuracy"] == best["accuracy"]


def test_list_bears_with_what_is_damaged(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = output / "2026-11-20/14-03-22"
    (sweep / run_directory.SWEEP).write_bytes(b"\xff\x00created: no\n")
    (run_of(sweep, "none") / run_directory.STATE).write_text("{")
    strange = output / f"2026-11-20/{HOSTILE.replace('/', '|')}{STEERING}"
    fabricate.sweep(strange, [fabricate.config("none", 2)])
    assert len(told(capsys, "list").splitlines()) == 4
    assert told(capsys, "list", "nowhere", status=2).startswith("reports: nowhere: no such directory; valid is ")
    (output / "empty").mkdir()
    assert told(capsys, "list", output / "empty") == "output/empty: no sweeps\n"


def test_show_tells_all_of_a_run(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, failed = (run_of(first, name) for name in ("none", "qsgd"))
    text = told(capsys, "show", f"{first}/compressor=none")
    result = files.read_json(done / run_directory.RESULT) or {}
    assert text.splitlines()[0] == f"{done.name}: done"
    assert re.search(r"^  optimizer\.lr +0\.1$", text, re.MULTILINE) and re.search(
        r"^  workers +4$", text, re.MULTILINE
    )
    assert re.search(rf"^  accuracy +{result['accuracy']:.6g}$", text, re.MULTILINE)
    assert re.search(r"^  phases_s\.encode +\S+$", text, re.MULTILINE)
    assert re.search(r"^ +\S+ k?B  steps\.csv$", text, re.MULTILINE) and "end of" not in text
    text = told(capsys, "show", failed)
    assert text.splitlines()[1].startswith(r"  rank 1 \x1b[2J died: ")
    assert text.splitlines()[-3:] == ["end of attempt-1/stderr.log", "  Traceback�", r"  \x1b[2Jboom"]
    found = json.loads(told(capsys, "show", first, "compressor=none", "--json"))
    assert found["result"] == result and found["config"]["optimizer.lr"] == 0.1


def test_a_run_is_found_as_sweep_does(output: Path, first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(first, "qsgd")
    for words in ([run], [first / run.name], [first, "compressor=q"], [first / run.name.rpartition("-")[2]]):
        assert told(capsys, "show", *words).startswith(f"{run.name}: failed\n")
    assert told(capsys, "show", "compressor=svd").startswith("compressor=svd,workers=2-"), "of the last sweep"
    assert told(capsys, "show", first, status=2) == "reports: RUN: 2 runs; valid is one of them\n"
    assert "no such run" in told(capsys, "show", "compressor=qsgd", status=2)
    (run / run_directory.CONFIG).write_text("a: [1\n")
    assert "no config can be read" in told(capsys, "show", run, status=2)


def test_diff_puts_two_runs_side_by_side(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "diff", f"{first}/compressor=none", "compressor=svd")
    assert [line.split() for line in text.split("\n\n")[1].splitlines()] == [
        ["config", "A", "B"],
        ["workers", "4", "2"],
        ["compressor", "none", "svd"],
        ["exchange", "allreduce", "allgather"],
        ["compressor.rank", "-", "3"],
        ["compressor.budget", "-", "null"],
    ]
    sizes = re.search(r"^payload_bytes +(\d+) +(\d+) +([\d.]+)$", text, re.MULTILINE)
    assert sizes and float(sizes[3]) == pytest.approx(int(sizes[2]) / int(sizes[1]), abs=5e-4)
    assert "configs are equal" in told(capsys, "diff", "compressor=svd", "compressor=svd")
    found = json.loads(told(capsys, "diff", f"{first}/compressor=none", f"{first}/compressor=qsgd", "--json"))
    assert found["config"]["workers"] == [4, 2] and found["result"]["status"] == ["done", "failed"]


def test_throughputs_of_few_steps_are_marked(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(first, "none")
    result = files.read_json(run / run_directory.RESULT) or {}
    rate = f"{result['iterations_per_second']:.6g}"
    everything = f"of all {result['steps']} steps, warm-up included"
    kinds = {1: "of 1 timed step", 29: "of 29 timed steps", 0: everything, 30: "", result["steps"]: everything}
    for timed, words in kinds.items():
        files.write_json(run / run_directory.RESULT, {**result, "timed_steps": timed})
        shown = f"{rate} {words}".rstrip()
        assert re.search(rf"^  iterations_per_second +{shown}$", told(capsys, "show", run), re.MULTILINE)
        text = told(capsys, "diff", run, "compressor=svd")
        ending = "" if words else r" +\d+\.\d+"
        assert re.search(rf"^iterations_per_second +{shown} +\d[\d.]*{ending}$", text, re.MULTILINE)
    files.write_json(run / run_directory.RESULT, {**result, "steps": 15})  # of an earlier version
    assert f"{rate} of 5 timed steps" in told(capsys, "show", run)


def test_logs_are_those_of_sweep(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(first, "qsgd")
    (run / "attempt-1" / run_directory.STDERR).write_text("one\ntwo\n")
    assert told(capsys, "logs", run, "--stderr", "--lines", 1) == "two\n"
    assert told(capsys, "logs", run, "-f", "--stderr") == "one\ntwo\n"


@pytest.mark.parametrize("name", ["list", "show", "prune"])
def test_a_path_that_is_called_like_a_command(name: str, nine: Path, tmp_path: Path) -> None:
    shutil.copytree(nine, tmp_path / name)
    command = [sys.executable, "-m", "reports", f"./{name}", "--no-plots", "--quiet"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    assert (done.returncode, done.stdout.decode()) == (0, f"{name}/report.html\n")


def test_a_mistyped_command_is_answered_in_one_line(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "lst", status=2).endswith("; did you mean list?\n")
    with pytest.raises(SystemExit) as ended:
        main(["list", "--jsn"])
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.count("\n") == 1
    assert err.startswith("python -m reports list: --jsn: unknown; did you mean --json? valid is one of --help, --json")


def with_checkpoint(run: Path) -> Path:
    step = run / run_directory.CHECKPOINT / "step-00000120"
    step.mkdir(parents=True)
    (step / "shared.pt").write_bytes(b"x" * 1000)
    return run / run_directory.CHECKPOINT


def with_attempts(run: Path, *statuses: str) -> None:
    """More attempts than the one that it has, which becomes the first."""
    state = files.read_json(run / run_directory.STATE) or {}
    state["attempts"] = [{**state["attempts"][0], "number": n, "status": s} for n, s in enumerate(statuses, 1)]
    files.write_json(run / run_directory.STATE, state)
    for number in range(1, len(statuses) + 1):
        (run / f"attempt-{number}").mkdir(exist_ok=True)
        (run / f"attempt-{number}" / run_directory.STDOUT).write_text("12345")


def test_prune_shows_what_would_go_and_deletes_it_when_told(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, failed = (with_checkpoint(run_of(first, name)) for name in ("none", "qsgd"))
    error = told(capsys, "prune", first, "--checkpoints", status=2)
    assert "no terminal" in error and done.exists() and failed.exists()
    out = told(capsys, "prune", first, "--checkpoints", "--yes").splitlines()
    assert out[0] == f"{first}: 2 directories, 2 kB" and not done.exists() and not failed.exists()
    assert "1 kB" in out[1] and "a resume computes it from the beginning" in out[2]
    assert (done.parent / run_directory.RESULT).exists() and (failed.parent / "attempt-1").exists()
    assert told(capsys, "prune", first, "--checkpoints", "--yes") == "nothing to delete\n"
    assert "valid is --checkpoints, --failed-attempts or both" in told(capsys, "prune", first, status=2)


def test_prune_asks_on_a_terminal(first: Path) -> None:
    checkpoint = with_checkpoint(run_of(first, "none"))
    for answer, stays in ((b"\n", True), (b"n\n", True), (b"y\n", False)):
        above, below = pty.openpty()
        os.write(above, answer)
        done = subprocess.run(
            [sys.executable, "-m", "reports", "prune", str(first), "--checkpoints"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=below,
            capture_output=True,
        )
        os.close(above), os.close(below)
        assert done.returncode == 0 and b"delete them? [y/N]" in done.stdout and checkpoint.exists() == stays


def test_failed_attempts_go_but_those_that_a_result_or_a_reason_needs(
    first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, failed = (run_of(first, name) for name in ("none", "qsgd"))
    with_attempts(done, "failed", "preempted", "timeout", "done")
    with_attempts(failed, "failed", "failed")
    result = files.read_json(done / run_directory.RESULT) or {}
    files.write_json(done / run_directory.RESULT, {**result, "resumed_after": [60]})
    (done / "attempt-2" / run_directory.PROVENANCE).write_text("{}")
    out = told(capsys, "prune", first, "--failed-attempts", "--yes")
    left = {run: sorted(path.name for path in run.glob("attempt-*")) for run in (done, failed)}
    assert left == {done: ["attempt-2", "attempt-4"], failed: ["attempt-2"]}
    assert "3 directories, 35 B" in out
    with_attempts(failed, "failed", "failed")
    with_checkpoint(failed)
    assert told(capsys, "prune", failed, "--failed-attempts", "--yes") == "nothing to delete\n", "it may go on"


def test_prune_leaves_alone_what_is_running(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, failed = (with_checkpoint(run_of(first, name)) for name in ("none", "qsgd"))
    opened = Sweep(first, fresh=False)  # as the launcher does
    try:
        out = told(capsys, "prune", first, "--checkpoints", "--yes")
        assert "left alone: 1 run that is running or may be taken up" in out
        assert failed.exists() and not done.exists()
    finally:
        opened.close()
    state = files.read_json(failed.parent / run_directory.STATE) or {}
    files.write_json(failed.parent / run_directory.STATE, {**state, "status": run_directory.RUNNING})
    assert told(capsys, "prune", first, "--checkpoints", "--yes").endswith("nothing to delete\n") and failed.exists()


def test_prune_keeps_its_word_when_a_sweep_is_taken_up_while_it_asks(
    first: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = with_checkpoint(run_of(first, "qsgd"))
    taken = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: taken.append(Sweep(first, fresh=False)) or "y")
    try:
        assert "left alone: runs/" in told(capsys, "prune", first, "--checkpoints") and failed.exists()
    finally:
        taken[0].close()


def test_prune_never_follows_a_symbolic_link(first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precious = tmp_path / "precious"
    shutil.copytree(run_of(first, "none"), precious / "run-1")
    kept = with_checkpoint(precious / "run-1")
    (first / run_directory.RUNS / "linked-11111111").symlink_to(precious / "run-1")
    (run_of(first, "none") / run_directory.CHECKPOINT).symlink_to(kept)
    inner = with_checkpoint(run_of(first, "qsgd"))
    (inner / "away").symlink_to(precious)
    out = told(capsys, "prune", first, "--checkpoints", "--yes")
    assert out.count("a symbolic link") == 1 and (kept / "step-00000120/shared.pt").exists() and not inner.exists()
