"""The script of docs/guide/torch-ddp.md and the lines of the README run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.system.job_environment import clean_environment
from tests.conftest import ROOT

GUIDE = ROOT / "docs" / "guide" / "torch-ddp.md"

DIGEST = """
total = sum(parameter.double().sum() for parameter in model.parameters())
totals = [torch.zeros((), dtype=torch.float64) for _ in range(dist.get_world_size())]
dist.all_gather(totals, total.detach())
assert totals[0] == totals[1], totals
print("moved", float(model.module.weight.grad.abs().sum()) > 0)
"""


BEFORE = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="file://{}", rank=0, world_size=1)
model = torch.nn.Linear(64, 64)
"""
AFTER = """
model(torch.ones(8, 64)).square().mean().backward()
print("compressed", float(model.module.weight.grad.abs().sum()) > 0)
"""


def read_script() -> str:
    (script,) = read_blocks(GUIDE)
    return script


def read_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_the_guide_is_short() -> None:
    assert len(GUIDE.read_text(encoding="utf-8").splitlines()) <= 120
    assert "register_comm_hook(*gradsweep.ddp_hook(" in read_script()


def test_the_lines_of_the_readme_compress(tmp_path: Path) -> None:
    (lines,) = (block for block in read_blocks(ROOT / "README.md") if "ddp_hook" in block)
    script = BEFORE.format(tmp_path / "store") + lines + AFTER
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout == "compressed True\n", done.stderr


@pytest.mark.thorough
def test_the_script_trains_under_torchrun_without_mpi(tmp_path: Path) -> None:
    without_mpi = "import sys\nsys.modules['mpi4py'] = None\n"
    (tmp_path / "train.py").write_text(without_mpi + read_script() + DIGEST)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**clean_environment(os.environ), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["True", "True", "moved", "moved"]  # lines of two ranks may mix
