"""What carries the messages of MPI is told by what carries them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.settings.transports import TRANSPORTS
from tests.trainers.start_ranks import run_ranks
from trainers.network import transport
from trainers.network.transport import RDMA, SHM, TCP, UNKNOWN, list_fast_devices, tell_link

MINE = [("10.0.0.1", 40000, "10.0.0.9", 22), ("10.0.0.1", 1024, "10.0.0.2", 50000)]
THEIRS = [("10.0.0.2", 50000, "10.0.0.1", 1024)]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("asked", "more", "told"),
    [
        ("shm", {}, "ob1 shm"),
        ("tcp", {}, "ob1 tcp"),
        ("auto", {}, "ob1 shm"),
        ("ucx", {}, "ucx shm"),
        ("ucx", {"UCX_TLS": "tcp,self"}, "ucx tcp"),
        ("ofi", {}, "ofi tcp"),
    ],
)
@pytest.mark.parametrize("workers", [2, 3])
def test_ranks_tell_what_carries_their_messages(workers: int, asked: str, more: dict[str, str], told: str) -> None:
    chosen = TRANSPORTS[asked] or {"OMPI_MCA_pml": "", "OMPI_MCA_btl": ""}
    run_ranks(workers, "told", module="tests.trainers.ranks.transport", TESTED=told, **chosen, **more)


@pytest.mark.mpi
def test_ranks_tell_the_algorithms_of_all_collectives() -> None:
    module = "tests.trainers.ranks.transport"
    run_ranks(2, "algorithms", module=module, OMPI_MCA_coll_tuned_reduce_algorithm="5")
    run_ranks(2, "free", module=module, OMPI_MCA_coll_tuned_use_dynamic_rules="0")


def test_a_connection_of_both_ranks_is_theirs() -> None:
    assert tell_link(MINE, THEIRS, is_near=False, has_rdma=True) == TCP
    assert tell_link(THEIRS, MINE, is_near=True, has_rdma=False) == TCP
    others = [("10.0.0.2", 50000, "10.0.0.3", 1024), ("10.0.0.2", 50000, "10.0.0.1", 1025)]
    assert tell_link(MINE, others, is_near=True, has_rdma=True) == SHM
    assert tell_link(MINE, others, is_near=False, has_rdma=True) == RDMA
    assert tell_link(MINE, [], is_near=False, has_rdma=False) == UNKNOWN


def test_devices_count_that_have_an_active_port(tmp_path: Path) -> None:
    assert list_fast_devices(tmp_path) == []
    for device, port, state in (("mlx5_0", 1, "4: ACTIVE"), ("mlx5_1", 1, "1: DOWN"), ("hfi1_0", 2, "4: ACTIVE")):
        place = tmp_path / "infiniband" / device / "ports" / str(port)
        place.mkdir(parents=True)
        (place / "state").write_text(f"{state}\n")
    (tmp_path / "cxi" / "cxi0").mkdir(parents=True)
    assert list_fast_devices(tmp_path) == ["cxi0", "hfi1_0", "mlx5_0"]


def test_another_mpi_tells_no_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpi4py.MPI.__file__", None)  # only this program's own symbols
    assert transport.read_layer() is None
