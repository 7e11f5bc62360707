"""The result of a script's run, from what it has written."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from gradsweep import csv_columns, files
from gradsweep.errors import UsageError
from trainers.script.environment import name_options
from trainers.script.outcome import find_resumes, write_result
from trainers.script.rank import find_last_line

MPI_LINES = f"""\
{"-" * 74}
MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
{"-" * 74}
[node7:1234] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,
Abort(1) on node 0 (rank 0 in comm 0): application called MPI_Abort
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "attempt-1").mkdir()
    return tmp_path


def write(run: Path, steps: str = "", epochs: str = "", result: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write what a script has written, and return the result that follows from it."""
    for name, text in (("steps.csv", steps), ("epochs.csv", epochs)):
        if text:
            (run / name).write_text(text)
    if result is not None:
        files.write_json(run / "attempt-1" / "result.json", result)
    write_result(run, run / "attempt-1", {"workers": 2, "warmup_steps": 2})
    return files.read_json(run / "result.json") or {}


def refuse(run: Path, **given: Any) -> str:
    with pytest.raises(UsageError) as error:
        write(run, **given)
    assert "\n" not in str(error.value) and not (run / "result.json").exists()
    return str(error.value)


def make_steps(count: int, step_s: float = 0.5) -> str:
    return "step,step_s,samples\n" + "".join(f"{step},{step_s if step > 2 else 9},16\n" for step in range(1, count + 1))


def test_figures_come_from_the_rows_after_the_warm_up(run: Path) -> None:
    found = write(run, make_steps(42), "epoch,step,test_accuracy,ppl\n1,21,0.5,3\n2,42,0.4,2\n", {"extra": 1.5})
    assert (found["status"], found["steps"], found["epochs"], found["format"]) == ("done", 42, 2, 1)
    assert (found["accuracy"], found["best_accuracy"], found["metrics"], found["extra"]) == (0.4, 0.5, {"ppl": 2}, 1.5)
    assert found["iterations_per_second"] == pytest.approx(2) and found["samples_per_second"] == pytest.approx(32)
    assert (found["warmup_steps"], found["timed_steps"]) == (2, 40)
    assert found["throughput_low"] == found["throughput_high"] == pytest.approx(2)  # all steps took as long
    assert found["time_s"] == pytest.approx(38) and found["sent_bytes"] is None and found["phases_s"] == {}
    with (run / "steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == csv_columns.STEP_COLUMNS
    assert [rows[2][name] for name in ("step", "epoch", "time_s", "samples", "loss")] == ["3", "1", "18.5", "16.0", ""]


def test_a_run_within_its_warm_up_has_no_timed_steps(run: Path) -> None:
    found = write(run, make_steps(2), result={})
    assert (found["steps"], found["warmup_steps"], found["timed_steps"]) == (2, 0, 0)
    assert found["throughput_low"] is None and found["iterations_per_second"] == pytest.approx(1 / 9)


def test_a_run_without_rows_has_its_own_figures_only(run: Path) -> None:
    found = write(run, result={"status": "done", "accuracy": 0.25})
    assert (found["steps"], found["accuracy"], found["iterations_per_second"]) == (0, 0.25, None)


def test_a_loss_that_is_not_finite_is_divergence(run: Path) -> None:
    found = write(run, "step,step_s,samples,loss\n1,1,1,0.5\n2,1,1,nan\n", result={})
    assert (found["status"], found["reason"]) == ("diverged", "the loss is not finite at step 2")


def test_steps_of_every_attempt_warm_up(run: Path) -> None:
    (run / "attempt-2").mkdir()
    files.write_json(run / "attempt-2" / "resumed.json", {"step": 4})
    assert find_resumes(run) == [4]
    found = write(run, make_steps(8), result={})
    assert (found["resumed_after"], found["warmup_steps"], found["timed_steps"]) == ([4], 4, 4)
    (run / "attempt-3").mkdir()
    files.write_json(run / "attempt-3" / "resumed.json", {"step": 4})  # attempt 2 had saved nothing
    assert find_resumes(run) == [4]
    (run / "attempt-4").mkdir()  # began anew
    assert find_resumes(run) == []


def test_a_stopped_run_has_no_result(run: Path) -> None:
    files.write_json(run / "attempt-1" / "stopped.json", {"step": 3})
    assert write(run, make_steps(3), result={}) == {}


def test_columns_of_its_own_are_metrics(run: Path) -> None:
    found = write(run, epochs="epoch,step,test_f1,bleu\n1,1,0.25,7\n", result={"metrics": {"bleu": 8, "wer": 2}})
    assert found["metrics"] == {"f1": 0.25, "bleu": 8, "wer": 2}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "the script exited with 0 and left no result; valid is to call finish() of gradsweep.script.Run, or "),
        ({"result": {"status": "good"}}, "result.json: status=good: valid is done or diverged"),
        ({"result": [1]}, "result.json: valid is a JSON object"),
        ({"result": {"accuracy": "high"}}, "result.json: accuracy=high: valid is a number, or null"),
        ({"result": {"metrics": {"f1": [1]}}}, "result.json: f1=[1]: valid is a number, or null"),
        ({"result": {"metrics": 3}}, "result.json: metrics=3: valid is a mapping of names to numbers"),
        (
            {"result": {}, "steps": "step,step_s,sample\n1,1,1\n"},
            "steps.csv: column sample: unknown; did you mean samples? valid is some of step, epoch, ",
        ),
        (
            {"result": {}, "steps": "step,step_s\n1,1\n"},
            "steps.csv: column samples: missing; valid is at least step, step_s, samples",
        ),
        (
            {"result": {}, "steps": "step,step_s,samples\n1,1,1\n3,1,1\n"},
            "steps.csv: row 2 has step 3.0; valid is a row a step, from 1",
        ),
        (
            {"result": {}, "steps": "step,step_s,samples\n1,long,1\n"},
            "steps.csv: row 1: step_s=long: valid is a number, or nothing",
        ),
        (
            {"result": {}, "epochs": "epoch,step,test_acuracy\n1,1,1\n"},
            "epochs.csv: column test_acuracy: unknown; did you mean test_accuracy?",
        ),
    ],
)
def test_wrong_files_are_told_in_a_line(run: Path, given: dict[str, Any], line: str) -> None:
    assert refuse(run, **given).startswith(line)


def test_the_yardstick_of_rank_0_is_summarised(run: Path) -> None:
    header = ",".join(csv_columns.YARDSTICK_COLUMNS)
    times = [0.001] * 8 + [0.002] * 2
    rows = "".join(f"{10 * n},1,0,node,{seconds},\n" for n, seconds in enumerate(times, 1))
    (run / "yardstick.csv").write_text(f"{header}\n{rows}")
    found = write(run, make_steps(5), result={})["yardstick"]
    assert (found["best_s"], found["slow_s"], found["readings"]) == (0.001, 0.002, 10)
    assert found["cores_of_others"] is None and list(found["by_host"].values()) == [0.001]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("first\n\nlast\n", "last"),
        (
            'Traceback (most recent call last):\n  File "a"\n    x\nValueError: no\n[W] destructor\n',
            "ValueError: no",
        ),
        (
            "Traceback (most recent call last):\n  a\nKeyError: 1\n\nDuring handling\n\n"
            "Traceback (most recent call last):\n  b\nmy.Diverged: at 3\n",
            "my.Diverged: at 3",
        ),
        ("Traceback (most recent call last):\n  cut", "  cut".strip()),
        (f"no data.bin\n{MPI_LINES}", "no data.bin"),
        (MPI_LINES, "Abort(1) on node 0 (rank 0 in comm 0): application called MPI_Abort"),
    ],
)
def test_the_line_that_says_why_a_script_failed(text: str, line: str) -> None:
    assert find_last_line(text) == line


def test_options_are_variables() -> None:
    options = {"workers": 4, "ddp": {"hook": "fp16", "on": True, "more": [1, 2]}, "max_steps": None, "gpus": [0]}
    assert name_options(options) == {
        "GRADSWEEP_WORKERS": "4",
        "GRADSWEEP_DDP_HOOK": "fp16",
        "GRADSWEEP_DDP_ON": "true",
        "GRADSWEEP_DDP_MORE": "[1, 2]",
        "GRADSWEEP_MAX_STEPS": "",
    }
