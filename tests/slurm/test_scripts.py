"""Training scripts of the user in jobs of SLURM, over two nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.run_directory import runs_of
from tests.conftest import NO_REPORT, ROOT
from tests.slurm.conftest import Slurm
from tests.slurm.test_cluster import as_root

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


@as_root
@pytest.mark.parametrize("mpi", ["openmpi", "srun_pmix"])
def test_a_ddp_script_finds_its_ranks_on_two_nodes(
    slurm: Slurm, tmp_path: Path, multirun: Callable[..., tuple[int, str, str]], mpi: str
) -> None:
    (tmp_path / "train_ddp.py").write_text((ROOT / "docs/guide/examples/train_ddp.py").read_text())
    slurm_words = ("hydra/launcher=slurm", "hydra.launcher.poll_s=1", "hydra.launcher.nodes=2", f"mpi={mpi}")
    script = ("trainer=script", "trainer.command=[python,train_ddp.py]", "ddp.hook=fp16", "epochs=1")
    code, out, err = multirun(*script, *slurm_words, "workers=2", "hydra.sweep.dir=out", without=NO_REPORT)
    assert code == 0, out + err
    (run,) = runs_of(tmp_path / "out")
    assert run.status() == run_directory.DONE and (run.result() or {})["steps"] == 24
    meeting = json.loads((run.attempt(1) / "rendezvous.json").read_text())
    assert meeting["address"] in ("n1", "n2", "n3"), "loopback would not do between nodes"
