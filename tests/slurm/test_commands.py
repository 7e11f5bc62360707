"""`python -m sweep` on runs that SLURM computes while nobody waits for them (sweep.wait=false)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep import run as names
from sweep.__main__ import main
from sweep.holding import holder
from tests.conftest import eventually
from tests.slurm.test_faults import Night, night

pytestmark = pytest.mark.slurm

__all__ = ["night"]  # a fixture


def test_a_sweep_is_left_to_slurm_and_steered_from_another_shell(
    night: Night, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = night.begin(
        "seed=range(3)", "workers=1", "hydra.launcher.array_parallelism=2", "sweep.wait=false"
    ).end(240)
    assert code == 0 and "3 of 3 runs are with SLURM" in out, out + err
    assert holder(tmp_path / "sweep") is None
    eventually(lambda: night.statuses() == [names.RUNNING, names.RUNNING, names.PENDING])
    capsys.readouterr()

    assert main(["status", "sweep", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["active"] and found["holder"] is None and found["counts"] == {"pending": 1, "running": 2}
    assert [run["job"] for run in found["runs"]] == sorted(night.slurm.queue())

    assert main(["cancel", "sweep", "seed=1", "seed=2"]) == 0  # one that runs, one that waits
    assert night.statuses() == [names.RUNNING, names.CANCELLED, names.CANCELLED]
    assert list(night.slurm.queue()) == [night.job(night.runs[0])]

    night.let_end()
    assert main(["watch", "sweep", "--interval", "0.5"]) == 1
    assert "3 runs: 1 done, 2 cancelled" in capsys.readouterr().out
    assert main(["resume", "sweep", "--no-wait"]) == 1  # not all is done
    assert "2 runs cancelled by name and left out" in capsys.readouterr().out
    eventually(lambda: not night.slurm.queue())
    assert main(["resume", "sweep", "--all"]) == 0
    assert night.statuses() == [names.DONE] * 3 and [night.began(run) for run in night.runs] == [1, 2, 1]
