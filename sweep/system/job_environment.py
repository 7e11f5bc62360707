"""Build the environment of an MPI job: without that of a surrounding MPI job, and with the path of our packages."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gradsweep.source_tree import IS_INSTALLED, ROOT
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

    With these variables mpirun would act as if inside of another mpirun or of an allocation: it would bind its ranks to
    wrong cores or refuse to start. The user's own OMPI_MCA_ settings are kept, but not those that an mpirun has set.

    Args:
        allocated: keep the variables of the SLURM allocation, because the job is to run in it.
    """
    is_rank = any(name in environment for name in ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"))
    kept = _KEPT if is_rank else (*_KEPT, "OMPI_MCA_")
    if allocated:
        kept = (*kept, "SLURM_", "SLURMD_", "SRUN_")
    return {
        name: value for name, value in environment.items() if not name.startswith(_INHERITED) or name.startswith(kept)
    }


def build_python_environment(code: str | None = None) -> dict[str, str]:
    """Build the variables by which Python finds our packages, but no modules in the working directory.

    Args:
        code: the directory of the packages; None: that of this process's packages, which Python finds by itself where
            they are installed: ahead of the standard library, others of that directory would hide modules of it.
    """
    packages = [code or ("" if IS_INSTALLED else str(ROOT)), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, packages)), "PYTHONSAFEPATH": "1"}


def build_job_environment(
    variables: Mapping[str, str], code: str | None, scratch: str, allocation: Allocation | None = None
) -> dict[str, str]:
    """Return the environment of an MPI job, with additional `variables`, and with `scratch` for temporary files.

    Each job needs its own directory: Open MPI creates one named by mpirun's pid in it, and fails if a killed mpirun
    with the same pid has left one.
    """
    given = {"TMPDIR": scratch} if allocation is None else allocation.build_environment(scratch)
    clean = clean_environment(os.environ, allocated=allocation is not None)
    environment = {**clean, **build_python_environment(code), **given, **variables}
    if os.geteuid() == 0:
        environment |= AS_ROOT
    return environment
