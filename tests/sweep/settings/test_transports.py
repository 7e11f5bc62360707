"""What carries messages: the variables of each transport, and what is refused before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradsweep.errors import UsageError
from sweep.settings.mpi import MpiSettings, choose_transport, parse_mpi
from sweep.settings.transports import TRANSPORTS

Multirun = Callable[..., tuple[int, str, str]]
HOME = Path(sys.executable).parent


def section(**options: Any) -> dict[str, Any]:
    return {"mpi": {"command": [str(HOME / "mpirun"), "-n", "{workers}"], "environment": {}, **options}}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """An Open MPI without UCX, and a launcher of something else."""
    for name, text in (
        ("mpirun", "exit 0"),
        ("ompi_info", "printf 'mca:pml:cm:version:1\\nmca:pml:ob1:version:1\\nmca:mtl:ofi:version:1\\n'"),
        ("other/mpiexec", "exit 0"),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    return tmp_path


def test_the_environment_has_the_variables_of_the_transport_and_its_own_before_these() -> None:
    own = {"OMPI_MCA_opal_common_ucx_tls": "tcp", "A": "b"}
    given = MpiSettings(["mpirun"], own, "ucx").variables
    assert given == {**TRANSPORTS["ucx"], **own} and given["OMPI_MCA_pml"] == "ucx"
    assert MpiSettings(["mpirun"], own, "auto").variables == own
    before = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm,tcp"}
    assert MpiSettings(["mpirun"], before).variables == before


def test_shared_memory_has_the_name_that_every_open_mpi_has_for_it() -> None:
    assert MpiSettings(["mpirun"], {}, "shm").variables == {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader,tcp"}


@pytest.mark.parametrize("transport", list(TRANSPORTS))
def test_the_open_mpi_of_the_package_has_all_of_them(transport: str) -> None:
    assert parse_mpi(section(transport=transport)).transport == transport


@pytest.mark.parametrize("transport", ["auto", "shm", "tcp", "ofi"])
def test_a_library_is_taken_for_what_it_has(library: Path, transport: str) -> None:
    parse_mpi(section(command=[str(library / "mpirun"), "{workers}"], transport=transport))


def test_a_transport_that_the_library_lacks_is_refused(library: Path) -> None:
    lacking = section(command=[str(library / "mpirun"), "{workers}"], transport="ucx")
    with pytest.raises(UsageError, match=r"^mpi.transport=ucx: valid is one of auto, shm, tcp, ofi, which "):
        parse_mpi(lacking)
    for transport in ("tcp", "ucx", "ofi"):
        foreign = section(command=[str(library / "other" / "mpiexec"), "{workers}"], transport=transport)
        with pytest.raises(UsageError, match=f"^mpi.transport={transport}: valid is auto: .*mpiexec is no ompi_info"):
            parse_mpi(foreign)
    parse_mpi(section(command=[str(library / "other" / "mpiexec"), "{workers}"], transport="shm"))


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"transport": "ucc"}, "mpi.transport=ucc: did you mean ucx. valid is one of auto, shm, tcp, ucx, ofi or null"),
        ({"transport": ["shm"]}, r"mpi.transport=\['shm'\]: valid is one of auto, shm, tcp, ucx, ofi or null"),
        (
            {"transport": "shm", "environment": {"OMPI_MCA_btl": "self,tcp"}},
            "mpi.environment.OMPI_MCA_btl=self,tcp: valid is left out with mpi.transport=shm, or mpi.transport=auto",
        ),
        (
            {"transport": "tcp", "environment": {"OMPI_MCA_mtl": "ofi"}},
            "mpi.environment.OMPI_MCA_mtl=ofi: valid is left out with mpi.transport=tcp, or mpi.transport=auto",
        ),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], refused: str) -> None:
    with pytest.raises(UsageError, match=f"^{refused}$"):
        parse_mpi(section(**options))


def test_an_environment_chooses_where_the_transport_is_auto() -> None:
    own = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_pml": "ob1"}
    assert parse_mpi(section(transport="auto", environment=own)).variables == own
    assert parse_mpi(section(environment=own)).variables == own, "as in configs of earlier versions"


def test_null_is_fast_to_start_here_and_open_mpis_choice_on_slurm() -> None:
    given = section(transport=None)["mpi"]
    assert choose_transport(given, "local")["transport"] == "shm"
    assert choose_transport(given, "slurm")["transport"] == "auto"
    typed = section(transport="tcp")["mpi"]
    assert choose_transport(typed, "slurm") is typed


@pytest.mark.thorough
def test_a_grid_may_have_transports_but_one_command(multirun: Multirun) -> None:
    grid = ("-m", "experiment=quick", "mpi.transport=shm,tcp,ucx", "compressor=none,qsgd", "sweep.dry_run=true")
    code, out, err = multirun(*grid)
    assert code == 0 and "6 points, 6 runs" in out and "mpi.transport=ucx" in out, err
    code, _, err = multirun("-m", "experiment=quick", "mpi.transport=shm,tcp", "+mpi.environment.A=b,c")
    assert code == 2 and "mpi.environment: cannot be swept; valid is one value for all runs of a sweep" in err


def test_an_emulated_network_has_no_other_than_tcp(multirun: Multirun) -> None:
    code, _, err = multirun("experiment=quick", "mpi.transport=ucx", "network=ethernet_1g")
    refused = "mpi.transport=ucx: valid is auto, shm or tcp with an emulated network, whose hosts have only TCP\n"
    assert (code, err) == (2, refused)


@pytest.mark.thorough
def test_a_single_run_says_which_transport_null_meant(multirun: Multirun, tmp_path: Path) -> None:
    code, _, err = multirun("experiment=quick", "workers=1", "max_steps=2", "hydra.sweep.dir=s")
    assert code == 0, err
    (config,) = (tmp_path / "s").glob("runs/*/config.yaml")
    assert "transport: shm" in config.read_text()
