"""`python -m sweep` on runs that SLURM computes while nobody waits for them (sweep.wait=false)."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.sweeps.sweep_lock import read_lock_owner
from sweep.__main__ import main
from tests.conftest import eventually
from tests.slurm.test_faults import Night, night

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]

__all__ = ["night"]  # a fixture


def test_a_sweep_is_left_to_slurm_and_steered_from_another_shell(
    night: Night, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = night.begin(
        "seed=range(3)", "workers=1", "hydra.launcher.array_parallelism=2", "sweep.wait=false"
    ).end(240)
    assert code == 0 and "3 of 3 runs are with SLURM" in out, out + err
    assert read_lock_owner(tmp_path / "sweep") is None
    eventually(lambda: night.statuses() == [run_directory.RUNNING, run_directory.RUNNING, run_directory.PENDING])
    capsys.readouterr()

    assert main(["status", "sweep", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["active"] and found["holder"] is None and found["counts"] == {"pending": 1, "running": 2}
    assert [run["job"] for run in found["runs"]] == sorted(night.slurm.queue())

    assert main(["cancel", "sweep", "seed=1", "seed=2"]) == 0  # one that runs, one that waits
    assert night.statuses() == [run_directory.RUNNING, run_directory.CANCELLED, run_directory.CANCELLED]
    assert list(night.slurm.queue()) == [night.job(night.runs[0])]

    night.let_end()
    assert main(["watch", "sweep", "--interval", "0.5"]) == 1
    assert "3 runs: 1 done, 2 cancelled" in capsys.readouterr().out
    assert main(["resume", "sweep", "--no-wait"]) == 1  # not all is done
    assert "2 runs cancelled by name and left out" in capsys.readouterr().out
    eventually(lambda: not night.slurm.queue())
    assert main(["resume", "sweep", "--all"]) == 0
    assert night.statuses() == [run_directory.DONE] * 3 and [night.began(run) for run in night.runs] == [1, 2, 1]


@pytest.mark.parametrize("how", ["requeue", "requeuehold"])
def test_a_job_that_somebody_has_queued_again_goes_on(
    night: Night, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its run was ended as one that is cancelled; until the job begins again only SLURM can tell."""
    monkeypatch.chdir(tmp_path)
    code, out, err = night.begin("seed=1", "workers=1", "sweep.wait=false").end(240)
    assert code == 0, out + err
    (run,) = night.all_running(1)
    job = night.job(run)
    night.slurm.ask("scontrol", how, job)
    eventually(lambda: run.status() == run_directory.CANCELLED)
    capsys.readouterr()
    assert main(["status", "sweep"]) == 0
    assert "run by its scheduler's jobs" in capsys.readouterr().out  # also before SLURM has tidied up
    eventually(lambda: night.slurm.queue()[job] == "PENDING")
    assert main(["status", "sweep"]) == 0
    assert f"; queued again; job {job} (pending: " in capsys.readouterr().out
    with ThreadPoolExecutor() as pool:
        watching = pool.submit(main, ["watch", "sweep", "--interval", "0.1"])
        if how == "requeuehold":
            night.slurm.ask("scontrol", "release", job)
        night.let_end()
        assert watching.result(240) == 0
    assert run.status() == run_directory.DONE and night.began(run) == 2


def test_a_run_whose_job_was_queued_again_is_cancelled(night: Night, tmp_path: Path) -> None:
    code, out, err = night.begin("seed=range(2)", "workers=1", "sweep.wait=false").end(240)
    assert code == 0, out + err
    job = night.job(night.all_running(2)[0])
    night.slurm.ask("scontrol", "requeuehold", job)
    eventually(lambda: night.slurm.queue()[job] == "PENDING" and night.runs[0].status() == run_directory.CANCELLED)
    said = night.slurm.ask(sys.executable, "-m", "sweep", "cancel", str(tmp_path / "sweep"))
    assert "2 runs of 2 cancelled" in said and not night.slurm.queue()
