"""The mean is a mean, and the bytes that are counted are the bytes that are sent."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from sweep.mpirun import clean_environment
from sweep.settings import MpiSettings
from tests.conftest import ROOT

pytestmark = pytest.mark.mpi

OPENMPI = yaml.safe_load((ROOT / "conf/mpi/openmpi.yaml").read_text())


def mpirun(workers: int, *arguments: str, module: str = "tests.trainers.ranks", **environment: str) -> None:
    """Run a function of a module with the MPI settings that users get."""
    command = [word.replace("{workers}", str(workers)) for word in MpiSettings(OPENMPI["command"]).program()]
    with tempfile.TemporaryDirectory() as scratch:  # what a killed mpirun of the same pid has left elsewhere does harm
        done = subprocess.run(
            [*command, sys.executable, "-m", module, *arguments],
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
            timeout=400,  # kernels may have to be compiled
        )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_together_compute_the_gradient_of_one_process(workers: int) -> None:
    mpirun(workers, "gradients")


@pytest.mark.parametrize("workers", [2, 3])
def test_every_worker_ends_with_the_mean_of_the_decoded_payloads(workers: int) -> None:
    mpirun(workers, "same_mean")


def test_dense_units_are_summed_beside_gathered_ones() -> None:
    mpirun(2, "uneven_bytes")


def bytes_sent(workers: int, folder: Path, *names: str, what: str = "traffic", **how: str) -> tuple[float, int]:
    """Of some exchanges: what the ranks believe, and Open MPI's own count (pml/monitoring) of point-to-point messages.

    Args:
        names: of compressors; all of them where none is given.
        what: the function that does them, and gets `folder` and `names`.
        how: the module with that function, and environment variables.
    """
    mpirun(
        workers,
        what,
        str(folder),
        *names,
        OMPI_MCA_pml="ob1,monitoring",
        OMPI_MCA_pml_monitoring_enable="1",
        OMPI_MCA_pml_monitoring_enable_output="3",
        OMPI_MCA_pml_monitoring_filename=str(folder / "sent"),
        **how,
    )
    counted = 0
    for rank in range(workers):
        for line in (folder / f"sent.{rank}.prof").read_text().splitlines():
            fields = line.split("\t")
            if fields[0] in ("E", "I"):  # messages of programs and of collectives, to one peer
                counted += int(fields[3].split()[0])
    return sum(float(path.read_text()) for path in folder.glob("believed-*.txt")), counted


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_sent_bytes_are_what_mpi_has_sent(workers: int, tmp_path: Path) -> None:
    believed, counted = bytes_sent(workers, tmp_path)
    assert believed == pytest.approx(counted, rel=1e-12) and counted > 0
