"""What cannot be emulated is refused in one line before anything starts: programs, rights, hosts, places."""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import Any

import pytest

from sweep.emulation import building, possible
from sweep.launchers import options_of
from sweep.run import UsageError
from sweep.settings import SweepSettings
from tests.emulation.conftest import MPIRUN, described

GB = 1 << 30


@pytest.fixture(autouse=True)
def a_machine_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(possible, "facts", lambda: {"netem": False})
    monkeypatch.setattr(possible, "found", lambda program: f"/sbin/{program}")
    possible._is_open_mpi.cache_clear()


def program(folder: Path, text: str) -> str:
    path = folder / "mpirun"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_what_is_there_passes() -> None:
    possible.check(described(), 2, [MPIRUN])


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
    monkeypatch.setattr(possible, "found", lambda program: None if program in missing else program)
    with pytest.raises(UsageError, match=f"^network=emulated: .*{words}; valid here is network=none or real$"):
        possible.check(described(), 2, [MPIRUN])


def test_programs_of_the_system_need_not_be_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert building.found("nosuchprogram") is None
    monkeypatch.setattr(building, "OF_ROOT", str(tmp_path / "sbin"))
    (tmp_path / "sbin").mkdir()
    (tmp_path / "sbin/tc").write_text("")
    (tmp_path / "sbin/tc").chmod(0o755)
    assert building.found("tc") == str(tmp_path / "sbin/tc")


def test_what_the_kernel_refuses_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(possible, "facts", lambda: {"problem": "user namespaces: Operation not permitted"})
    with pytest.raises(
        UsageError, match="network=emulated: .*: user namespaces: Operation not permitted; valid here is"
    ):
        possible.check(described(), 2, [MPIRUN])


@pytest.mark.parametrize("said", ["mpirun (Open MPI) 4.1.6", "HYDRA build details: Version: 5.0.0", ""])
def test_another_mpi_is_refused(tmp_path: Path, said: str) -> None:
    other = program(tmp_path, f"echo '{said}'")
    with pytest.raises(
        UsageError, match=f"^mpi.command={other}: valid is the mpirun of Open MPI 5 or later with network"
    ):
        possible.check(described(), 2, [other])


@pytest.mark.parametrize(
    ("ranks", "each", "cores", "memory", "why"),
    [
        (33, 1, 2, 64 * GB, r"33 hosts; valid is up to 32 on this machine \(16 for each of 2 cores; beyond"),
        (8, 1, 2, 2 * GB, r"8 hosts; valid is up to 6 on this machine \(2 GB of memory, with 1 x 300 MB for each\)"),
        (20, 4, 2, 4 * GB, r"5 hosts; valid is up to 3 on this machine \(4 GB of memory, with 4 x 300 MB"),
        (1001, 1, 512, 9999 * GB, r"1001 hosts; valid is up to 1000 on this machine \(the ports of a switch\)"),
    ],
)
def test_more_hosts_than_are_sensible(ranks: int, each: int, cores: int, memory: int, why: str) -> None:
    """With the limit and its reason; one host fewer is none too many."""
    network = described(workers_per_host=each)
    with pytest.raises(UsageError, match=f"^network=emulated with {ranks} ranks and workers_per_host={each}: {why}"):
        possible.check_size(network, ranks, cores, memory)
    most = int(why.split("up to ")[1].split()[0])
    possible.check_size(network, most * each, cores, memory)


def config(**changes: Any) -> dict[str, Any]:
    plain = {
        "workers": 2,
        "threads_per_worker": 1,
        "exchange": {"name": "auto"},
        "mpi": {"command": ["mpirun", "{workers}"]},
    }
    return {**plain, **changes}


def test_the_local_launcher_asks_before_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(possible, "facts", lambda: {"problem": "no rights"})
    options = options_of({"cluster": "local"})
    with pytest.raises(UsageError, match="network=emulated: .*no rights"):
        options.check_run(config(network=described()), SweepSettings())
    options.check_run(config(network={"name": "real"}), SweepSettings())
    options.check_run(config(), SweepSettings())


def test_slurm_has_networks_of_its_own() -> None:
    options = options_of({"cluster": "slurm"})
    with pytest.raises(
        UsageError, match="^network=emulated: valid is real or none with hydra/launcher=slurm: its nodes"
    ):
        options.check_run(config(network=described()), SweepSettings())
    options.check_run(config(network={"name": "real"}), SweepSettings())


def test_what_helps_a_user_without_rights() -> None:
    assert "root" in possible._help(PermissionError(errno.EPERM, "user namespaces"))
