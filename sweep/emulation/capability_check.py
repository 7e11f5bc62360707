"""Test in a separate process, once per process and before any run starts, what this machine can emulate."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep.errors import UsageError, bad_value
from gradsweep.text import plural
from sweep.emulation import namespaces
from sweep.emulation.build_cluster import BuiltCluster, find_program, run_batch
from sweep.emulation.cluster import Cluster, count_hosts
from sweep.system import cgroups
from sweep.system.job_environment import build_python_environment
from sweep.system.processes import read_text

PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux"}
HOSTS_A_CORE = 16
HOST_BYTES = 300 << 20
"""The least memory of a rank with torch."""
MOST_PORTS = 1000
"""The kernel's bridge has 1024."""
SECONDS = 60


def check(network: Mapping[str, Any], ranks: int, command: Sequence[str], cores: int) -> None:
    """Refuse an emulated network that this machine cannot provide.

    Args:
        network: the section of the config, as `sweep.emulation.find_emulation` has it.
        ranks: the number of the run's ranks.
        command: mpi.command, which starts the ranks, with its program's full path.
        cores: the number of cores that all running runs may have together.

    Raises:
        UsageError: it cannot; the message says what is missing, and which package or setting would help.
    """
    name = network["name"]
    missing = [program for program in PROGRAMS if find_program(program) is None]
    if missing:
        packages = " and ".join(dict.fromkeys(PROGRAMS[program] for program in missing))
        raise _build_refusal(name, f"no program {' nor '.join(missing)} (package {packages})")
    if not _is_open_mpi(command[0]):
        raise bad_value(
            "mpi.command",
            command[0],
            f"the mpirun of Open MPI 5 or later with network={name}: it starts the ranks on the emulated hosts",
        )
    place = tempfile.gettempdir()
    if any(char.isspace() for char in place):
        raise bad_value(
            "TMPDIR", place, f"a path without spaces with network={name}: one ends what Open MPI starts the hosts with"
        )
    if (problem := try_emulation().get("problem")) is not None:
        raise _build_refusal(name, problem)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    check_size(network, ranks, cores, min(memory, cgroups.read_memory_limit() or memory))


def check_size(network: Mapping[str, Any], ranks: int, cores: int, memory: int) -> None:
    """Refuse more hosts than the machine's cores and memory and the emulated switch allow.

    Args:
        cores: the number of cores that all running runs may have together.
        memory: the bytes of memory that all running runs may have together.

    Raises:
        UsageError: too many hosts; the message has the limit and its reason.
    """
    hosts, ranks_a_host = count_hosts(network, ranks), int(network["workers_per_host"])
    limits = [
        (
            HOSTS_A_CORE * cores,
            f"{HOSTS_A_CORE} for each of {plural(cores, 'core')}; beyond, all wait for cores, not for the network",
        ),
        (
            memory // (HOST_BYTES * ranks_a_host),
            f"{memory / 2**30:.0f} GB of memory, with {ranks_a_host} x {HOST_BYTES >> 20} MB for each",
        ),
        (MOST_PORTS, "the ports of a switch"),
    ]
    most, why = min(limits)
    if hosts > most:
        raise UsageError(
            f"network={network['name']} with {ranks} ranks and workers_per_host={ranks_a_host}: {hosts} hosts; "
            f"valid is up to {most} on this machine ({why})"
        )


def _build_refusal(name: str, problem: str) -> UsageError:
    return UsageError(
        f"network={name}: this machine cannot emulate a network: {problem}; valid here is network=none or real"
    )


@functools.cache
def _is_open_mpi(program: str) -> bool:
    """Tell whether an MPI launcher is Open MPI's, in a version with the necessary options."""
    text = read_text(program, "--version", timeout=SECONDS)
    version = next((word for word in text.split() if word[:1].isdigit()), "0")
    return "(Open MPI)" in text and int(version.split(".")[0]) >= 5


@functools.cache
def try_emulation() -> dict[str, Any]:
    """Try to build a cluster; return why that failed (`problem`), or whether the kernel has netem (`netem`)."""
    command = [sys.executable, "-m", "sweep.emulation.capability_check"]
    try:
        with tempfile.TemporaryDirectory(prefix="gradsweep-") as scratch:
            environment = {**os.environ, **build_python_environment(), "TMPDIR": scratch}
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return {"problem": f"the attempt to do it failed: {error}"}


def has_netem() -> bool:
    """Tell whether the kernel can delay packets, by a test in this network namespace."""
    try:
        run_batch("tc", ["qdisc add dev lo root netem delay 1us", "qdisc del dev lo root"])
    except RuntimeError:
        return False
    return True


def _try_in_namespaces() -> dict[str, Any]:
    """Create two hosts and a switch in this process's namespaces, as a test."""
    place = Path(os.environ["TMPDIR"]) / "emulation"
    network = {"bandwidth": "1gbit", "latency": "0s", "loss": 0.0, "workers_per_host": 1}
    try:
        namespaces.isolate(place)
        BuiltCluster(Cluster.from_config(network, 2), place, sorted(os.sched_getaffinity(0)))
    except OSError as error:
        return {"problem": f"{error.strerror}; {_suggest_setting()}"}
    except RuntimeError as error:
        return {"problem": str(error)}
    return {"netem": has_netem()}


HINDERING = (
    *((f"user/max_{kind}_namespaces", "0", "16384") for kind in ("user", "pid", "mnt", "net", "uts", "ipc")),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel/unprivileged_userns_clone", "0", "1"),
)
"""Settings of the kernel: name, value that keeps users from namespaces, value that does not."""


def _suggest_setting(settings: Path = Path("/proc/sys")) -> str:
    """Return the kernel settings that would let a user create namespaces."""
    for name, hindering, value in HINDERING:
        try:
            now = (settings / name).read_text().strip()
        except OSError:
            continue
        if now == hindering:
            return f"it takes root, or `sysctl -w {name.replace('/', '.')}={value}` by root"
    return "it takes root, or a kernel and a container that allow user namespaces"


def main() -> None:
    def body(begun: object) -> int:
        print(json.dumps(_try_in_namespaces()), flush=True)
        return 0

    try:
        namespaces.contain(body)
    except OSError as error:
        print(json.dumps({"problem": f"{error.strerror}; {_suggest_setting()}"}))


if __name__ == "__main__":
    main()
