"""Build the environment of an MPI job: without that of another MPI job or an allocation, and with our packages."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gradsweep.source_tree import ROOT
from sweep.system.slurm_allocation import Allocation

_INHERITED = (
    "OMPI_",
    "PMIX_",
    "PRTE_",
    "PMI_",
    "MPI_LOCAL",
    "HYDRA_",
    "SLURM_",
    "SLURMD_",
    "SRUN_",
    "SBATCH_",
    "SUBMITIT_",
)
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Variables with which Open MPI starts as root; it asks twice."""
_KEPT = ("OMPI_ALLOW_RUN_AS_ROOT", "HYDRA_FULL_ERROR", "SLURM_CONF")


def clean_environment(environment: Mapping[str, str], *, allocated: bool = False) -> dict[str, str]:
    """Return `environment` without the variables of a surrounding MPI job or SLURM allocation.

    With these variables an mpirun behaves as inside of another one or of an allocation: it binds its ranks to the wrong
    cores or refuses to start. The user's own OMPI_MCA_ settings stay, unless an mpirun set them.

    Args:
        allocated: keep the variables of the SLURM allocation, in which the job is to run.
    """
    is_rank = any(name in environment for name in ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"))
    kept = _KEPT if is_rank else (*_KEPT, "OMPI_MCA_")
    if allocated:
        kept = (*kept, "SLURM_", "SLURMD_", "SRUN_")
    return {
        name: value for name, value in environment.items() if not name.startswith(_INHERITED) or name.startswith(kept)
    }


def build_python_environment(code: str | None = None) -> dict[str, str]:
    """Build the variables by which our programs find our packages, and no files of the working directory.

    Args:
        code: directory of the packages; None: that of this process.
    """
    packages = [code or str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, packages)), "PYTHONSAFEPATH": "1"}


def build_job_environment(
    variables: Mapping[str, str], code: str | None, scratch: str, allocation: Allocation | None = None
) -> dict[str, str]:
    """Return the environment of an MPI job: with its own `variables` and directory for temporary files.

    Open MPI names a directory there by the pid of mpirun, and fails over one that a killed mpirun has left.
    """
    given = {"TMPDIR": scratch} if allocation is None else allocation.build_environment(scratch)
    clean = clean_environment(os.environ, allocated=allocation is not None)
    environment = {**clean, **build_python_environment(code), **given, **variables}
    if os.geteuid() == 0:
        environment |= AS_ROOT
    return environment
