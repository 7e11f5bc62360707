"""Races in jobs of SLURM."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import run_directory
from tests.slurm.conftest import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


@pytest.mark.parametrize("pack", ["false", "true"])
def test_a_race_is_one_job(
    slurm: Slurm, tmp_path: Path, multirun: Callable[..., tuple[int, str, str]], pack: str
) -> None:
    slurm_words = ("hydra/launcher=slurm", "hydra.launcher.poll_s=1", f"sweep.pack={pack}")
    race_words = ("race=only", "race.seconds=1", "hydra.sweep.dir=out", *slurm_words)
    code, out, err = multirun("-m", "compressor=none,qsgd", "model=mlp", "workers=2", *race_words)
    assert code == 0, out + err
    (race,) = (tmp_path / "out" / run_directory.RACES).iterdir()
    (heat,) = json.loads((race / run_directory.RATIOS).read_text())["heats"]
    assert len(heat["runs"]) == 2
    job = json.loads((race / run_directory.STATE).read_text())["attempts"][-1]["job"]
    assert slurm.states()[job] == "COMPLETED" and list(slurm.states()).count(job) == 1
