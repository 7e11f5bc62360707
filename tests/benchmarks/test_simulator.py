"""benchmarks/simulator.py: what its ranks do is what is simulated."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import simulator
from reports.scaling.simulator import Compute
from sweep import emulation

ASKED = {"bytes": 4000, "repeats": 2, "steps": 3, "compute_s": 0.02, "sigma": 0.5, "seed": 1}


@pytest.mark.mpi
def test_ranks_sleep_as_simulated_workers_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine's memory instead of emulated hosts, whose links are tested elsewhere."""
    monkeypatch.setattr(emulation, "build_command", lambda network, ranks, threads, job: job)
    found = simulator.measure_exchanges("1gbit", "0s", 3, ASKED)
    assert found["latency_s"] > 0
    for name in found["alike"]:
        assert len(found["alike"][name]) == 2 and simulator.make_schedule(name, 3, 4000).endpoints == 3
        through = np.array(found["stragglers"][name])
        slept = np.cumsum([Compute(0.02, 0.5).draw_times(3, step, 1) for step in range(3)], axis=0)
        assert through.shape == (3, 3) and np.all(through >= slept)
        waited_for_all = np.cumsum(np.diff(slept, axis=0, prepend=0).max(axis=1))
        assert np.all(through >= waited_for_all[:, None])  # of three, all are neighbours
    assert (
        set(found["alike"])
        == set(found["stragglers"])
        == {
            "allreduce",
            "allgather",
            "server",
            "gossip_ring",
            "gossip_exponential",
        }
    )


def test_figures_of_the_simulator_stand_beside_those_of_the_ranks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A network that is twice as slow as its name is off by 100 %."""

    def ranks(network: str, latency: str, hosts: int, asked: dict[str, float]) -> dict[str, object]:
        n = asked["bytes"]
        ring = 2 * 2 * (hosts - 1) / hosts * n * 8 / (1e9 * simulator.PAYLOAD_SHARE)
        return {"latency_s": 0.0, "alike": {"allreduce": [ring]}, "stragglers": {"allreduce": [[1.0] * hosts]}}

    monkeypatch.setattr(simulator, "measure_exchanges", ranks)
    simulator.main(["emulated", "--networks", "1gbit", "--hosts", "4", "--steps", "1"])
    cells = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].strip("|").split("|")]
    assert cells[:3] == ["1gbit, 0.00 ms", "4", "allreduce"]
    assert cells[5] == "+100.0 %"
