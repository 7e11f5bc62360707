"""Starts real ranks, which run a module of tests/trainers/ranks/."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import yaml

from sweep.executors.packed.fork_server import ForkServer, can_fork
from sweep.settings.mpi import MpiSettings, choose_transport
from sweep.system.job_environment import clean_environment
from tests.conftest import ROOT
from tests.trainers.ranks.fork_server import WORDS

OPENMPI = MpiSettings(**choose_transport(yaml.safe_load((ROOT / "conf/mpi/openmpi.yaml").read_text()), "local"))


class RanksOfTests(ForkServer):
    """Of this process, for all tests: each rank would take seconds to load what all of them work with."""

    script = ROOT / "tests" / "trainers" / "ranks" / "fork_server.py"


@functools.cache
def start_fork_server() -> RanksOfTests:
    return RanksOfTests({}, 1)


def run_ranks(workers: int, *arguments: str, module: str = "tests.trainers.ranks.exchange", **environment: str) -> None:
    """Run a function of a module with the MPI settings that users get."""
    command = [word.replace("{workers}", str(workers)) for word in OPENMPI.resolve_command()]
    with tempfile.TemporaryDirectory() as scratch:  # what a killed mpirun of the same pid has left elsewhere does harm
        rank = [sys.executable, "-m", module, *arguments]
        if can_fork(command, os.environ):
            Path(scratch, WORDS).write_text(json.dumps([module, *arguments]))
            rank = start_fork_server().serve(SimpleNamespace(code=None), scratch, workers)  # type: ignore[arg-type]
        done = subprocess.run(
            [*command, *rank],
            cwd=ROOT,
            env={
                **clean_environment(os.environ),
                **OPENMPI.variables,
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
