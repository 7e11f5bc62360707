"""What is loaded before ranks are forked: all kernels that a run would load, and nothing that a fork would lose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gradsweep.run_directory import THREAD_VARIABLES
from tests.conftest import ROOT
from tests.trainers.configs import compose_config
from trainers.rules.resolve import resolve

PROGRAM = """
import json, os, sys
from pathlib import Path
from compressors.kernels import backend, warm_up
from trainers.config import run_config as configs
from trainers.packed.preload import preload
preload(sys.argv[1:])
before, used, chosen = set(sys.modules), dict(backend.used), backend.select("qsgd", "cpu")
threads = len(os.listdir("/proc/self/task"))
for directory in sys.argv[2:4]:  # of the first one nothing can be read, the last one has other kernels
    warm_up.warm_up(configs.load(Path(directory, "config.yaml")).compressor)
late = [name for name in set(sys.modules) - before if name.startswith("compressors.")]
print(json.dumps([sorted(before), used, chosen, threads, late]))
"""


def test_runs_find_loaded_what_they_work_with(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    runs = [tmp_path / name for name in ("damaged", "qsgd of one", "svd", "by torch")]
    for run in runs:
        run.mkdir()
    (runs[0] / "config.yaml").write_text("compressor: [")
    changes = (
        {"model": "resnet9", "compressor": "qsgd"},
        {"compressor": "svd"},
        {"compressor": "topk", "kernels": "torch"},
    )
    for run, change in zip(runs[1:], changes, strict=True):
        (run / "config.yaml").write_text(yaml.safe_dump(resolve(compose_config(**change))))
    command = [sys.executable, "-c", PROGRAM, *map(str, runs)]
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}  # as the fork server's
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    before, used, chosen, threads, late = json.loads(done.stdout)
    assert {
        "compressors.kernels.cpu.qsgd",
        "compressors.low_rank.linear_algebra.tridiagonal",
        "trainers.models.resnet9",
    } <= set(before)
    assert "compressors.kernels.reference.sparse" in before and "compressors.kernels.cpu.sparse" not in before
    assert (threads, late) == (1, [])
    assert (used, chosen) == ({}, "numba")  # as in a new process
