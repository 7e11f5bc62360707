"""A sweep over training scripts of the user (trainer=script), as a user types it."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml

from gradsweep import files, run_directory
from gradsweep.run_directory import runs_of
from tests.conftest import NO_REPORT, ROOT, Program, eventually

Multirun = Callable[..., tuple[int, str, str]]

DDP = ROOT / "docs" / "guide" / "examples" / "train_ddp.py"
WITHOUT_TORCH = """
import sys
from gradsweep.script import Run
run = Run()
for number in range(int(run.get("script.steps", 6))):
    run.step(samples=4, loss=1.0 / (number + 1), step_s=0.01)
    if number == run.get("script.fails", -1) and run.rank == 0:
        raise ValueError("no more\\nof it")
run.epoch(test_accuracy=0.5, bleu=7)
if run.get("script.ends", True):
    run.finish()
"""
IN_SHELL = """
[ "$GRADSWEEP_SCRIPT_LR" = 0.25 ] && [ "$WORLD_SIZE" = 2 ] || exit 3
if [ "$RANK" = 0 ]; then
  echo step,step_s,samples,loss > "$GRADSWEEP_RUN/steps.csv"
  for step in 1 2 3; do echo "$step,0.1,8,1.5" >> "$GRADSWEEP_RUN/steps.csv"; done
  echo '{"accuracy": 0.125}' > "$GRADSWEEP_ATTEMPT/result.json"
fi
"""
OVER_MPI = """
from mpi4py import MPI
from gradsweep.script import Run
run = Run()
ranks = MPI.COMM_WORLD.allgather(run.rank)
assert ranks == list(range(MPI.COMM_WORLD.size)) == list(range(run.size))
run.step(samples=sum(ranks), loss=1.0, step_s=1.0)
run.finish(accuracy=1.0)
"""
WRONG_COLUMN = """
echo step,stepp > "$GRADSWEEP_RUN/steps.csv"
echo '{}' > "$GRADSWEEP_ATTEMPT/result.json"
"""
SLEEPS = """
import json, time
from gradsweep.script import Run
run = Run()
if run.rank:  # nothing keeps the ranks of this script in step
    raise SystemExit
saved = run.checkpoint / "state.json"
begun = json.loads(saved.read_text())["step"] if saved.exists() else 0
if begun:
    run.resume(begun)
for step in range(begun + 1, 5):
    if step == 3 and not begun:
        while not run.checkpoint_requested():
            time.sleep(0.05)
        saved.write_text(json.dumps({"step": run.steps}))
        run.stop()
        raise SystemExit
    run.step(samples=1, loss=1.0, step_s=1.0)
    run.flush()
run.finish(accuracy=1.0)
"""


@pytest.mark.thorough
@pytest.mark.mpi
def test_a_plain_ddp_script_is_swept_over_torchs_own_hooks(multirun: Multirun, tmp_path: Path) -> None:
    (tmp_path / "train_ddp.py").write_text(DDP.read_text())
    command = ["-m", "trainer=script", "trainer.command=[python,train_ddp.py]", "ddp.hook=none,fp16,powersgd"]
    code, out, err = multirun(*command, "workers=2", "hydra.sweep.dir=swept")
    assert code == 0, out + err
    runs = runs_of(tmp_path / "swept")
    assert len(runs) == 3 and {run.status() for run in runs} == {run_directory.DONE}
    results = {yaml.safe_load(run.path("config.yaml").read_text())["ddp"]["hook"]: run.result() for run in runs}
    for hook in ("none", "fp16", "powersgd"):
        result = results[hook]
        assert result is not None and result["steps"] == 192 and result["epochs"] == 8 and result["accuracy"] > 0.7
        assert result["timed_steps"] == 182 and result["iterations_per_second"] > 0 and result["throughput_low"] > 0
        assert result["yardstick"]["readings"] == 3
    assert len({result["loss"] for result in results.values() if result}) == 3, "the hooks compute the same"
    for run in runs:
        steps = pd.read_csv(run.path("steps.csv"))
        assert steps.step.tolist() == list(range(1, 193)) and steps.samples.eq(64).all()
        assert steps.loss.iloc[-24:].mean() < steps.loss.iloc[:24].mean()
        assert not run.path("checkpoint").exists()
    summary = pd.read_csv(tmp_path / "swept" / "summary.csv")
    assert sorted(summary["ddp.hook"].fillna("none")) == ["fp16", "none", "powersgd"]
    tables = "".join(path.read_text() for path in (tmp_path / "swept" / "tables").glob("*.md"))
    assert "powersgd" in tables and "scripts (trainer=script) do not race" in tables
    assert (tmp_path / "swept" / "report.html").stat().st_size > 10000


@pytest.mark.thorough
@pytest.mark.mpi
def test_any_program_reports_by_files(multirun: Multirun, tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(IN_SHELL)
    code, out, err = multirun(
        *("trainer=script", "trainer.command=[sh,train.sh]", "script.lr=0.25", "hydra.sweep.dir=swept"),
        without=NO_REPORT,
    )
    assert code == 0, out + err
    (run,) = runs_of(tmp_path / "swept")
    result = run.result() or {}
    assert (result["steps"], result["accuracy"], result["iterations_per_second"]) == (3, 0.125, pytest.approx(10))
    assert "script.lr=0.25" in run.name
    provenance = files.read_json(run.attempt(1) / run_directory.PROVENANCE)
    assert provenance is not None and provenance["environment"]["GRADSWEEP_ATTEMPT"] == str(run.attempt(1))


@pytest.mark.thorough
@pytest.mark.mpi
def test_a_script_may_use_mpi_itself(multirun: Multirun, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OVER_MPI)
    words = ("trainer=script", "trainer.command=[python,train.py]", "workers=3", "hydra.sweep.dir=swept")
    code, out, err = multirun(*words, without=NO_REPORT)
    assert code == 0, out + err
    (run,) = runs_of(tmp_path / "swept")
    assert (run.result() or {})["samples_per_second"] == 3


@pytest.mark.thorough
@pytest.mark.mpi
def test_a_script_and_what_it_imports_run_from_a_copy(multirun: Multirun, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("HERE = __file__\n")
    (tmp_path / "train.py").write_text(f"import helper, os\nprint(__file__, helper.HERE, os.getcwd()){WITHOUT_TORCH}")
    words = ("trainer=script", "trainer.command=[python,train.py]", "workers=1", "hydra.sweep.dir=swept")
    code, out, err = multirun(*words, without=NO_REPORT)
    assert code == 0, out + err
    (run,) = runs_of(tmp_path / "swept")
    script, helper, place = (run.attempt(1) / run_directory.STDOUT).read_text().split()
    assert Path(script).parent == Path(helper).parent and Path(script).parent.parent == tmp_path / "swept/.code"
    assert place == str(tmp_path)
    provenance = files.read_json(run.attempt(1) / run_directory.PROVENANCE) or {}
    assert provenance["user_code"]["code"] == ["helper.py", "train.py"]
    before = provenance["user_code"]["digest"]
    (tmp_path / "helper.py").write_text("HERE = 'elsewhere'\n")
    reused = ("sweep.reuse=true", "hydra.sweep.dir=again")
    code, out, err = multirun(*words[:-1], *reused, without=NO_REPORT)
    assert code == 0 and "0 runs taken" in out, out + err
    (again,) = runs_of(tmp_path / "again")
    provenance = files.read_json(again.attempt(1) / run_directory.PROVENANCE) or {}
    assert provenance["user_code"]["digest"] != before


@pytest.mark.thorough
@pytest.mark.mpi
def test_the_reason_of_a_failed_script_is_its_last_line(multirun: Multirun, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WITHOUT_TORCH)
    (tmp_path / "wrong.sh").write_text(WRONG_COLUMN)
    command = ["-m", "trainer=script", "workers=2", "hydra.sweep.dir=swept", "sweep.retries=0"]
    commands = "[python,train.py],[sh,-c,'echo good bye >&2; exit 3'],[sh,wrong.sh]"
    code, out, err = multirun(
        *command, f"trainer.command={commands}", "script.fails=2", "+script.ends=false", without=NO_REPORT
    )
    assert code == 1, out + err
    found = (str(run.state()["reason"]) for run in runs_of(tmp_path / "swept"))
    raised, column, printed = sorted(found, key=lambda reason: reason.partition(": ")[2])
    assert raised == "rank 0: ValueError: no more" and re.fullmatch("rank [01]: good bye", printed)
    assert column.startswith("steps.csv: column stepp: unknown; did you mean step? valid is ")
    code, out, err = multirun(
        *command[:-1], "sweep.resume=swept", "trainer.command=[python,train.py]", "script.ends=false", without=NO_REPORT
    )
    assert code == 1
    states = [run.state() for run in runs_of(tmp_path / "swept")]
    ended = [str(state["reason"]) for state in states if "exited with 0" in str(state["reason"])]
    assert ended and ended[0].startswith("the script exited with 0 and left no result; valid is to call finish() of ")


@pytest.mark.thorough
@pytest.mark.mpi
def test_a_stopped_script_goes_on_from_its_own_checkpoint(
    start: Callable[..., Program], multirun: Multirun, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SLEEPS)
    command = ["trainer=script", "trainer.command=[python,train.py]", "workers=2", "warmup_steps=1"]
    program = start(*command, "hydra.sweep.dir=swept", without=NO_REPORT)

    def has_two_steps() -> bool:
        return any(
            (files.last_row(run.path("steps.csv")) or {}).get("step") == "2" for run in runs_of(tmp_path / "swept")
        )

    eventually(has_two_steps)
    program.process.send_signal(signal.SIGUSR1)
    program.end()
    (run,) = runs_of(tmp_path / "swept")
    assert run.state()["reason"] == "SIGUSR1: saved at step 2; a resume goes on from there"
    assert run.status() == run_directory.PREEMPTED and (run.path("checkpoint") / "state.json").exists()
    code, out, err = multirun(*command, "sweep.resume=swept", without=NO_REPORT)
    assert code == 0, out + err
    result = run.result() or {}
    assert (result["steps"], result["resumed_after"], result["timed_steps"], result["time_s"]) == (4, [2], 2, 4.0)
    assert run.contributors() == [1, 2] and not run.path("checkpoint").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("trainer=script", r"trainer.command=\[\]: valid is a program and its arguments, such as \[python,train.py\]"),
        ("trainer=scrpt", "trainer=scrpt: did you mean script. valid is one of script, sgd"),
        (
            "trainer=script trainer.command=[pyton]",
            r"trainer.command=\[pyton\]: valid is .*; pyton is not found beside .*",
        ),
        (
            "trainer=script trainer.command=[true] modle.depth=3",
            "modle.depth=3: unknown key; did you mean model. valid is a key in a group of the script, as script.depth",
        ),
        (
            "trainer=script trainer.command=[true] lr=3",
            "lr=3: unknown key; valid is a key in a group of the script, as script.lr",
        ),
        (
            "trainer=script trainer.command=[true] compressor=topk",
            "compressor=topk: valid is left out with trainer=script, or a key of the script's own, .*",
        ),
        ("trainer=script trainer.command=[true] wandb.api_key=abc", r"wandb.api_key=\*\*\*: a secret, by its name, .*"),
        ("ddp.hook=none", "ddp.hook=none: unknown key; .*, or with trainer=script a key of the script's own"),
        ("trainer.command=[true]", "trainer.command=.*: unknown key of trainer=sgd; trainer=script has command"),
    ],
)
def test_a_script_that_cannot_work_is_refused_in_a_line(multirun: Multirun, words: str, line: str) -> None:
    code, out, err = multirun(*words.split())
    assert (code, out, err.count("\n")) == (2, "", 1) and re.fullmatch(line, err.strip()), err


def test_a_file_may_hold_a_script_and_its_keys(multirun: Multirun, tmp_path: Path) -> None:
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    text = (
        "# @package _global_\ndefaults: [override /trainer: script]\ntrainer: {command: ['true']}\nddp: {hook: fp16}\n"
    )
    (tmp_path / "mine" / "experiment" / "my.yaml").write_text(text)
    words = ["-m", "--config-dir=mine", "experiment=my", "sweep.dry_run=true"]
    code, out, err = multirun(*words, "ddp.hook=none,fp16")
    assert code == 0 and "2 points, 2 runs to do" in out, out + err
    (tmp_path / "mine" / "experiment" / "my.yaml").write_text("# @package _global_\noptim: {lr: 1}\n")
    code, out, err = multirun(*words)
    assert code == 2 and err.startswith("optim={'lr': 1}: unknown key; did you mean optimizer? valid is one of the "), (
        err
    )
    assert err.count("\n") == 1


def test_a_dry_run_of_scripts_has_no_races(multirun: Multirun, tmp_path: Path) -> None:
    words = [
        "-m",
        "trainer=script",
        "trainer.command=[true]",
        "ddp.hook=none,fp16",
        "workers=2,4",
        "sweep.dry_run=true",
    ]
    code, out, err = multirun(*words, "race=auto", 'sweep.exclude=["ddp.hook == fp16 and workers == 4"]')
    assert code == 0 and "4 points, 3 runs to do (1 taken out)" in out and "race" not in out, out + err
    assert "ddp.hook=fp16,workers=2-" in out
