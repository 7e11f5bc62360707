"""`python -m sweep probe` by a job of SLURM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradsweep import run_directory
from tests.conftest import ROOT
from tests.slurm.conftest import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


def test_what_slurm_gives_is_probed(slurm: Slurm, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sweep", "probe", "--quiet", "--seconds", "10", "workers=2", "network=real"]
        + ["hydra/launcher=slurm", "hydra.launcher.poll_s=1"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob(f"output/*/*-probe/{run_directory.PROBES}/*/{run_directory.NETWORK}")
    found = json.loads(path.read_text())
    assert found["kind"] == "probe" and found["workers"] == 2 and found["network"] == {"name": "real"}
    assert all(found["collectives"][name]["points"] for name in ("allreduce", "allgather", "alltoall", "bcast"))
    job = json.loads((path.parent / run_directory.STATE).read_text())["attempts"][-1]["job"]
    assert slurm.states()[job] == "COMPLETED"
    assert done.stdout.split() == [str(path.relative_to(tmp_path))]
