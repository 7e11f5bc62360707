"""A kernel gives the same bits in the process that compiles it as in those that load it from disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPT = """
import hashlib, numpy, torch
from compressors.low_rank.linear_algebra import gram_svd
matrix = torch.randn(100, 300, generator=torch.Generator().manual_seed(0))
found = gram_svd.decompose(matrix, 3)
print(hashlib.sha256(found.sigma.tobytes() + found.vectors(numpy.arange(7)).tobytes()).hexdigest())
"""


@pytest.mark.thorough
def test_a_decomposition_does_not_depend_on_who_compiled_the_kernels(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT]
    compiled, loaded = (subprocess.check_output(command, env=environment, text=True) for _ in range(2))
    assert any(tmp_path.rglob("*.nbi")) and compiled == loaded
