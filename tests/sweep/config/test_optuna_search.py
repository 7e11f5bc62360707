"""hydra/sweeper=optuna over our launcher, with the real sweeper (an extra); a shell script plays the ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gradsweep import run_directory
from gradsweep.run_directory import runs_of
from sweep.config.hydra_patches import tolerate_last_failure
from tests.conftest import PLAYED

pytestmark = pytest.mark.thorough

pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")

TRAIN = """#!/bin/sh
# the nearer the learning rate is to 0.5, the better; above 0.9 it fails
lr=$(sed -n '/^optimizer:/,/^  lr:/s/^  lr: //p' "$5/config.yaml")
loss=$(awk -v lr="$lr" 'BEGIN {if (lr > 0.9) exit 1; print (lr - 0.5) ^ 2}') || exit 3
echo "$lr" >> computed
accuracy=$(awk -v loss="$loss" 'BEGIN {print 1 - loss}')
echo "{\\"status\\": \\"done\\", \\"loss\\": $loss, \\"accuracy\\": $accuracy}" > "$5/result.json"
"""

Multirun = Callable[..., tuple[int, str, str]]
Search = Callable[..., tuple[int, str, str]]


@pytest.fixture
def search(multirun: Multirun, tmp_path: Path) -> Search:
    """A search of optimizer.lr in DIR/sweep."""
    script = tmp_path / "train.sh"
    script.write_text(TRAIN)
    os.chmod(script, 0o755)
    return lambda *arguments, **given: multirun(
        *(
            "-m",
            "hydra/sweeper=optuna",
            "sweep.retries=0",
            "sweep.share_cores=true",
            "hydra.sweep.dir=sweep",
            "data.root=data",
        ),
        f"mpi.command=[{script},'{{workers}}']",
        *arguments,
        **given,
    )


def computed(directory: Path) -> list[float]:
    return [float(line) for line in (directory / "computed").read_text().split()]


def test_a_search_and_its_resume(search: Search, tmp_path: Path) -> None:
    space = 'hydra.sweeper.params={optimizer.lr: "tag(log, interval(0.001, 0.9))"}'
    code, out, err = search(space, "hydra.sweeper.n_trials=2", "sweep.metric=loss")
    assert (code, err) == (0, ""), out + err
    sweep = tmp_path / "sweep"
    first = computed(tmp_path)
    runs = runs_of(sweep)
    assert len(first) == 2 and [run.status() for run in runs] == [run_directory.DONE] * 2
    losses = {run.name: (run.result() or {})["loss"] for run in runs}
    best = min(losses, key=lambda name: losses[name])
    found = yaml.safe_load((sweep / "optimization_results.yaml").read_text())
    assert found["best_value"] == min(losses.values())  # downwards, as a loss wants
    assert f"best loss of 2 runs: {losses[best]:.6g}, sweep/runs/{best}" in out
    assert out.count("report.html") == 1 and (sweep / "report.html").is_file()
    assert yaml.safe_load((sweep / run_directory.SWEEP).read_text())["swept"] == ["optimizer.lr"]
    assert all(run.name.startswith("optimizer.lr=0.") for run in runs)

    again = (space, "hydra.sweeper.n_trials=4", "sweep.metric=loss", "sweep.resume=sweep")
    code, out, err = search(*again, without=PLAYED)
    assert (code, err) == (0, ""), out + err
    assert computed(tmp_path)[:2] == first and len(computed(tmp_path)) == 4  # goes on from where it was
    told = [json.loads(line) for line in (sweep / run_directory.EVENTS).read_text().splitlines()]
    assert [event["missing"] for event in told if event["event"] == "runs_planned"] == [2, 0, 2]
    assert [event["event"] for event in told].count("sweep_ended") == 2


def test_one_at_a_time_upwards_and_a_failure_in_between(search: Search, tmp_path: Path) -> None:
    code, out, err = search(
        "optimizer.lr=0.4,0.95,0.1", "hydra/sweeper/sampler=grid", "hydra.sweeper.n_jobs=1", without=PLAYED
    )
    assert code == 1, out + err
    assert sorted(run.status() for run in runs_of(tmp_path / "sweep")) == [
        run_directory.DONE,
        run_directory.DONE,
        run_directory.FAILED,
    ]
    found = yaml.safe_load((tmp_path / "sweep/optimization_results.yaml").read_text())
    assert float(found["best_params"]["optimizer.lr"]) == 0.4 and found["best_value"] == pytest.approx(0.99)
    assert err == "" and "best accuracy of 2 runs: 0.99" in out


def test_the_last_point_of_a_grid_may_fail() -> None:
    optuna = pytest.importorskip("optuna")
    assert tolerate_last_failure() and tolerate_last_failure()
    study = optuna.create_study(sampler=optuna.samplers.GridSampler({"lr": [0.1, 0.95]}))
    for state in (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.FAIL):
        trial = study.ask()
        lr = trial.suggest_float("lr", 0, 1)
        study.tell(trial, lr if state is optuna.trial.TrialState.COMPLETE else None, state)
    assert sorted(trial.params["lr"] for trial in study.trials) == [0.1, 0.95]


def test_more_failures_than_a_search_bears_with(search: Search, tmp_path: Path) -> None:
    code, out, err = search(
        "optimizer.lr=interval(0.91,1)", "hydra.sweeper.max_failure_rate=0.4", "--json", without=PLAYED
    )
    assert code == 1
    assert len(runs_of(tmp_path / "sweep")) == 2  # the first batch
    assert err.startswith("no accuracy of optimizer.lr=0.9") and "Traceback" not in err
    told = [json.loads(line) for line in out.splitlines()]
    assert (told[-1]["event"], told[-1]["counts"], told[-1]["exit_status"]) == ("sweep_ended", {"failed": 2}, 1)


HOPELESS_THIRD = """#!/bin/sh
# the first two are at 0.5 at once; the third is far from it, epoch after epoch, and slow
echo >> computed
[ $(wc -l < computed) -lt 3 ] && loss=0.5 pause=0 || loss=9 pause=0.3
echo epoch,test_loss > "$5/epochs.csv"
for epoch in $(seq 50); do
  echo "$epoch,$loss" >> "$5/epochs.csv"
  sleep $pause
done
echo "{\\"status\\": \\"done\\", \\"loss\\": $loss}" > "$5/result.json"
"""


def test_a_search_whose_hopeless_run_is_ended_by_the_median_of_earlier_batches(search: Search, tmp_path: Path) -> None:
    given = ["optimizer.lr=interval(0.001,0.9)", "hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=1", "epochs=50"]
    rule = ["sweep.metric=loss", "sweep.prune=median", "sweep.prune_startup=2", "sweep.prune_warmup=2"]
    (tmp_path / "train.sh").write_text(HOPELESS_THIRD)
    code, out, err = search(*given, *rule, without=PLAYED)
    assert (code, err) == (0, ""), out + err
    runs = runs_of(tmp_path / "sweep")
    assert sorted(run.status() for run in runs) == [run_directory.DONE, run_directory.DONE, run_directory.PRUNED]
    (hopeless,) = (run for run in runs if run.status() == run_directory.PRUNED)
    assert "loss 9 after epoch" in hopeless.state()["reason"] and hopeless.result() is None
    found = yaml.safe_load((tmp_path / "sweep/optimization_results.yaml").read_text())
    assert found["best_value"] == 0.5


def test_a_search_cannot_be_left(search: Search, tmp_path: Path) -> None:
    """Whoever suggests the next points waits for the values of the last ones."""
    before = {path.name for path in tmp_path.iterdir()}
    code, out, err = search(
        "optimizer.lr=interval(0.001,0.9)", "hydra.sweeper.n_trials=2", "sweep.wait=false", without=PLAYED
    )
    valid = "true with a sweeper that goes by results, or hydra/sweeper=grid"
    assert (code, out, err) == (2, "", f"sweep.wait=false: valid is {valid}\n")
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("given", [(), ("optimizer.lr=0.1",)])
def test_a_search_without_values_to_choose_from_is_refused(search: Search, tmp_path: Path, given: tuple[str]) -> None:
    """All its trials would be equal."""
    before = {path.name for path in tmp_path.iterdir()}
    code, out, err = search("hydra.sweeper.n_trials=2", *given, without=PLAYED)
    assert (code, out) == (2, "") and err.startswith("hydra/sweeper=optuna: valid is together with values to choose")
    assert err.count("\n") == 1 and {path.name for path in tmp_path.iterdir()} == before
