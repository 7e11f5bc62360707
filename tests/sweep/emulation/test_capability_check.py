"""What cannot be emulated is refused in one line before anything starts: programs, rights, hosts, places."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from gradsweep.errors import UsageError
from sweep.emulation import build_cluster, capability_check
from sweep.launchers.launchers import check_network
from sweep.system import cgroups
from tests.sweep.emulation.conftest import MPIRUN, describe_network

GB = 1 << 30


@pytest.fixture(autouse=True)
def a_machine_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability_check, "try_emulation", lambda: {"netem": False})
    monkeypatch.setattr(capability_check, "find_program", lambda program: f"/sbin/{program}")
    capability_check._is_open_mpi.cache_clear()


def program(folder: Path, text: str) -> str:
    path = folder / "mpirun"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_what_is_there_passes() -> None:
    capability_check.check(describe_network(), 2, [MPIRUN], 2)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (("tc",), r"no program tc \(package iproute2\)"),
        (("ip", "tc"), r"no program ip nor tc \(package iproute2\)"),
        (("nsenter",), r"no program nsenter \(package util-linux\)"),
    ],
)
def test_missing_programs_are_named_with_their_packages(
    missing: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capability_check, "find_program", lambda program: None if program in missing else program)
    with pytest.raises(UsageError, match=f"^network=emulated: .*{words}; valid here is network=none or real$"):
        capability_check.check(describe_network(), 2, [MPIRUN], 2)


def test_programs_of_the_system_need_not_be_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build_cluster.find_program("nosuchprogram") is None
    monkeypatch.setattr(build_cluster, "OF_ROOT", str(tmp_path / "sbin"))
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin/tc").write_text("")
    (tmp_path / "sbin/tc").chmod(0o755)
    assert build_cluster.find_program("tc") == str(tmp_path / "sbin/tc")


def test_a_directory_for_temporary_files_with_a_space_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI would look for a program of the name that ends there, for a minute."""
    monkeypatch.setattr(tempfile, "tempdir", "/my files")
    with pytest.raises(UsageError, match="^TMPDIR=.?/my files.?: valid is a path without spaces with network=emulated"):
        capability_check.check(describe_network(), 2, [MPIRUN], 2)


def test_what_the_kernel_refuses_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        capability_check, "try_emulation", lambda: {"problem": "user namespaces: Operation not permitted"}
    )
    with pytest.raises(
        UsageError, match="network=emulated: .*: user namespaces: Operation not permitted; valid here is"
    ):
        capability_check.check(describe_network(), 2, [MPIRUN], 2)


@pytest.mark.parametrize("said", ["mpirun (Open MPI) 4.1.6", "HYDRA build details: Version: 5.0.0", ""])
def test_another_mpi_is_refused(tmp_path: Path, said: str) -> None:
    other = program(tmp_path, f"echo '{said}'")
    with pytest.raises(
        UsageError, match=f"^mpi.command={other}: valid is the mpirun of Open MPI 5 or later with network"
    ):
        capability_check.check(describe_network(), 2, [other], 2)


@pytest.mark.parametrize(
    ("ranks", "each", "cores", "memory", "why"),
    [
        (33, 1, 2, 64 * GB, r"33 hosts; valid is up to 32 on this machine \(16 for each of 2 cores; beyond"),
        (17, 1, 1, 64 * GB, r"17 hosts; valid is up to 16 on this machine \(16 for each of 1 core; beyond"),
        (8, 1, 2, 2 * GB, r"8 hosts; valid is up to 6 on this machine \(2 GB of memory, with 1 x 300 MB for each\)"),
        (20, 4, 2, 4 * GB, r"5 hosts; valid is up to 3 on this machine \(4 GB of memory, with 4 x 300 MB"),
        (1001, 1, 512, 9999 * GB, r"1001 hosts; valid is up to 1000 on this machine \(the ports of a switch\)"),
    ],
)
def test_more_hosts_than_are_sensible(ranks: int, each: int, cores: int, memory: int, why: str) -> None:
    """With the limit and its reason; one host fewer is none too many."""
    network = describe_network(workers_per_host=each)
    with pytest.raises(UsageError, match=f"^network=emulated with {ranks} ranks and workers_per_host={each}: {why}"):
        capability_check.check_size(network, ranks, cores, memory)
    most = int(why.split("up to ")[1].split()[0])
    capability_check.check_size(network, most * each, cores, memory)


def config(**changes: Any) -> dict[str, Any]:
    plain = {
        "workers": 2,
        "threads_per_worker": 1,
        "exchange": {"name": "auto"},
        "launcher": {"cluster": "local"},
        "mpi": {"command": ["mpirun", "{workers}"]},
    }
    return {**plain, **changes}


def test_the_local_launcher_asks_before_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability_check, "try_emulation", lambda: {"problem": "no rights"})
    with pytest.raises(UsageError, match="network=emulated: .*no rights"):
        check_network(config(network=describe_network()))
    check_network(config(network={"name": "real"}))
    check_network(config())


def test_a_container_s_share_is_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the machine's cores and memory; and so is what the launcher may share out."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    monkeypatch.setattr(capability_check, "_is_open_mpi", lambda program: True)
    for cores, quota, most in ((None, 2.0, 32), (1, None, 16), ("0-3", None, 64)):
        monkeypatch.setattr(cgroups, "read_cpu_limit", lambda quota=quota: quota)
        monkeypatch.setattr(cgroups, "read_memory_limit", lambda: 9999 * GB)
        monkeypatch.setattr(os, "sysconf", lambda name: GB)
        here = {"launcher": {"cluster": "local", "cores": cores}, "network": describe_network()}
        check_network(config(**here, workers=most))
        with pytest.raises(UsageError, match=f"valid is up to {most} on this machine"):
            check_network(config(**here, workers=most + 1))
    monkeypatch.setattr(cgroups, "read_memory_limit", lambda: GB)
    with pytest.raises(UsageError, match=r"valid is up to 3 on this machine \(1 GB of memory"):
        check_network(config(network=describe_network(), workers=4))


def test_slurm_has_networks_of_its_own() -> None:
    slurm = {"cluster": "slurm"}
    with pytest.raises(
        UsageError, match="^network=emulated: valid is real or none with hydra/launcher=slurm: its nodes"
    ):
        check_network(config(network=describe_network(), launcher=slurm))
    check_network(config(network={"name": "real"}, launcher=slurm))


@pytest.mark.parametrize(
    ("settings", "helps"),
    [
        ({}, "root, or a kernel and a container that allow user namespaces"),
        ({"user/max_user_namespaces": "0"}, "root, or `sysctl -w user.max_user_namespaces=16384` by root"),
        ({"user/max_net_namespaces": "0"}, "root, or `sysctl -w user.max_net_namespaces=16384` by root"),
        (
            {"user/max_user_namespaces": "9", "kernel/unprivileged_userns_clone": "0"},
            "kernel.unprivileged_userns_clone=1",
        ),
        (
            {"kernel/apparmor_restrict_unprivileged_userns": "1", "kernel/unprivileged_userns_clone": "1"},
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ],
)
def test_what_helps_a_user_without_rights(tmp_path: Path, settings: dict[str, str], helps: str) -> None:
    for name, value in settings.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{value}\n")
    assert helps in capability_check._suggest_setting(tmp_path)


@pytest.mark.parametrize(
    ("program_", "line", "said", "module"),
    [
        (
            "tc",
            "qdisc replace dev eth0 root handle 1: tbf rate 1bit",
            "Error: Specified qdisc kind is unknown.",
            "sch_tbf",
        ),
        ("tc", "qdisc add dev lo root netem delay 1us", "Error: Specified qdisc kind is unknown.", "sch_netem"),
        ("ip", "link add eth0 mtu 1500 type veth peer name port0", "Error: Unknown device type.", "veth"),
        ("ip", "link add bridge0 mtu 1500 type bridge stp_state 0", "Error: Unknown device type.", "bridge"),
        ("tc", "qdisc replace dev eth0 root handle 1: tbf rate 1bit", "Error: Exclusivity flag on.", None),
    ],
)
def test_a_missing_module_of_the_kernel_is_named_with_its_packages(
    program_: str, line: str, said: str, module: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = program(tmp_path, f"echo '{said}' >&2; echo 'Command failed -:1' >&2; exit 1")
    monkeypatch.setattr(build_cluster, "find_program", lambda name: refusing)
    with pytest.raises(RuntimeError) as raised:
        build_cluster.run_batch(program_, [line])
    added = str(raised.value).removeprefix(f"{program_} {line}: {said}")
    packages = f"(package linux-modules-extra-{os.uname().release} or kernel-modules-extra)"
    assert added == ("" if module is None else f"; it lacks the module {module} of the kernel {packages}")
