"""The mean is a mean, and the bytes that are counted are the bytes that are sent."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from sweep.executors.packed.fork_server import ForkServer, can_fork
from sweep.settings.mpi import MpiSettings
from sweep.system.job_environment import clean_environment
from tests.conftest import ROOT
from tests.trainers.ranks.fork_server import WORDS

pytestmark = pytest.mark.mpi

OPENMPI = yaml.safe_load((ROOT / "conf/mpi/openmpi.yaml").read_text())


class RanksOfTests(ForkServer):
    """Of this process, for all tests: each rank would take seconds to load what all of them work with."""

    script = ROOT / "tests" / "trainers" / "ranks" / "fork_server.py"


@functools.cache
def forks() -> RanksOfTests:
    return RanksOfTests({}, 1)


def mpirun(workers: int, *arguments: str, module: str = "tests.trainers.ranks.exchange", **environment: str) -> None:
    """Run a function of a module with the MPI settings that users get."""
    command = [word.replace("{workers}", str(workers)) for word in MpiSettings(OPENMPI["command"]).resolve_command()]
    with tempfile.TemporaryDirectory() as scratch:  # what a killed mpirun of the same pid has left elsewhere does harm
        rank = [sys.executable, "-m", module, *arguments]
        if can_fork(command, os.environ):
            Path(scratch, WORDS).write_text(json.dumps([module, *arguments]))
            rank = forks().serve(SimpleNamespace(code=None), scratch, workers)  # type: ignore[arg-type]
        done = subprocess.run(
            [*command, *rank],
            cwd=ROOT,
            env={
                **clean_environment(os.environ),
                **OPENMPI["environment"],
                "OMPI_ALLOW_RUN_AS_ROOT": "1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMP_NUM_THREADS": "1",
                "TMPDIR": scratch,
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,  # kernels may have to be compiled
        )
    assert done.returncode == 0, done.stderr


MONITORED = {"OMPI_MCA_pml": "ob1,monitoring", "OMPI_MCA_pml_monitoring_enable": "1"}
"""Open MPI counts the bytes of its messages (tests/trainers/ranks/sent_bytes.py)."""

OF_TWO = "none fp16 intsgd powersgd gtopk sign signum terngrad"
"""What is done otherwise by two or four workers than by three: sums, agreements, rounds, votes that can be even."""


@pytest.mark.parametrize(
    ("workers", "functions"),
    [
        (2, f"gradients + same_mean {OF_TWO} + uneven_bytes"),
        (3, "gradients + same_mean + traffic"),
        (4, "traffic"),
    ],
)
def test_means_and_bytes_of_all_compressors(workers: int, functions: str) -> None:
    """Workers compute the gradient of one process, and the mean of the decoded payloads; and send what they say."""
    mpirun(workers, *functions.split(), **MONITORED)
