"""A wheel with a distribution of plug-ins beside it, swept on a real SLURM from an empty directory."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.run_directory import runs_of
from tests import plugin_distribution
from tests.gradsweep.cli.conftest import write_script
from tests.slurm.conftest import Slurm
from tests.slurm.test_cluster import as_root
from tests.test_package import build, copy_checkout

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


@as_root  # nodes have names of their own
def test_a_distribution_beside_the_wheel_is_swept_on_two_nodes(slurm: Slurm, tmp_path: Path) -> None:
    site, empty = tmp_path / "site-packages", tmp_path / "empty"
    copy_checkout(tmp_path / "checkout")
    with zipfile.ZipFile(build("wheel", tmp_path / "checkout", tmp_path / "wheels")) as wheel:
        wheel.extractall(site)
    plugin_distribution.lay_out(site)
    script = write_script(tmp_path / "bin")
    empty.mkdir()
    own = ("compressor=chunk_top,none", "model=perceptron", "dataset=stripes", "task=custom")
    launcher = ("hydra/launcher=slurm", "hydra.launcher.poll_s=0.5", "hydra.launcher.nodes=2", "race=off")
    rest = ("task.target=my_plugin.tasks:Smooth", "workers=2", "epochs=1", "hydra.sweep.dir=own")
    done = subprocess.run(
        [str(script), "-m", *own, *launcher, *rest],
        cwd=empty,
        env={**os.environ, "PYTHONPATH": str(site)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    runs = runs_of(empty / "own")
    assert [run.status() for run in runs] == [run_directory.DONE] * 2
    for run in runs:
        result = run.result() or {}
        assert result["hosts"] == ["n1", "n2"] and 0 < result["metrics"]["top3"] <= 1
        assert "my-plugin" in (run.attempt(1) / run_directory.PROVENANCE).read_text(encoding="utf-8")
    assert (empty / "own" / "report.html").is_file()
