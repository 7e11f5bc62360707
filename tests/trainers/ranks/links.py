"""What tests/trainers/network/test_links.py has real ranks do."""

from __future__ import annotations

from pathlib import Path

import yaml
from mpi4py import MPI

from gradsweep import run_directory
from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import main
from trainers.config import run_config
from trainers.network import links
from trainers.options.networks import Emulated
from trainers.race.tuning import tune_run
from trainers.rules.resolve import resolve
from trainers.training import rank

COMM = MPI.COMM_WORLD


def measured(hosts: str) -> None:
    """As if neighbouring ranks were on one of so many hosts. What is sent is received: no message is left over."""
    number = int(hosts)
    own = COMM.rank * number // COMM.size
    MPI.Get_processor_name = lambda: f"host{own}"
    asked: list[float] = []
    for correct in (None, lambda latency: asked.append(latency) or len(asked) == 1, lambda latency: True):
        found, measured = links.measure(COMM, correct)
        assert found == number
        if COMM.rank or COMM.size == 1:
            assert measured is None
        else:
            assert measured is not None
            assert 0 < measured.latency_s < 1 and min(measured.bandwidth, measured.ring_bandwidth) > 1e6
            assert measured.busy_cores is not None and measured.cores is not None
            assert 0 < measured.busy_cores <= measured.cores and 0 < measured.busiest_core <= 1
    assert len(asked) == (2 if COMM.rank == 0 < COMM.size - 1 else 0), "after a correction it is measured again"
    status = MPI.Status()
    COMM.Barrier()
    assert not COMM.Iprobe(status=status)


def again() -> None:
    """What is off is measured again, by all ranks alike, and the try with the fewest marks counts."""
    network, original, tried = Emulated(), links.find_marks, []

    def marks(*given: object) -> list[str]:
        tried.append(given)
        return [["latency", "bandwidth"], ["cpu"], ["latency", "cpu"], []][(len(tried) - 1) % 4]

    links.find_marks = marks
    MPI.Get_processor_name = lambda: f"host{COMM.rank}"
    for expected, tries in ((["cpu"], 3), ([], 1)):
        found = links.measure_run(COMM, network, None)
        assert (found is None) == (COMM.rank > 0)
        assert found is None or (found["marks"], found["tries"]) == (expected, tries)
    links.find_marks = original


def trained(network: str, place: str) -> None:
    directory = Path(place)
    resolved = resolve(
        compose_config(network=network, workers=COMM.size, max_steps=3, data={"root": str(directory / "data")})
    )
    if COMM.rank == 0:
        (directory / run_directory.CONFIG).write_text(yaml.safe_dump(resolved))
    COMM.Barrier()
    rank.train_run(run_config.load(directory / run_directory.CONFIG), COMM, directory, tune_run)


if __name__ == "__main__":
    main(globals())
