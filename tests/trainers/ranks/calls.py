"""What is counted of the calls of MPI: `mpirun -n W python -m tests.trainers.ranks.calls NAME [+ NAME ...]`."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI

import compressors
from compressors import memories
from compressors.policy.policy import Policy, Selector
from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import main
from tests.trainers.ranks.memories import local_gradient
from trainers.config import groups
from trainers.config import run_config as options
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.build import build_exchange
from trainers.gradients.flat import Unit
from trainers.mpi import message_sizes
from trainers.rules.resolve import resolve
from trainers.training.loop import train

COMM = MPI.COMM_WORLD
STEPS = 3
SHAPES = [(8,), (16, 32), (8,), (16, 64), (4,), (32, 32)]
"""From the last to the first there are four parts where the bound of a payload is dense, of 2, 3, 2 and 1 segments."""

CASES: dict[tuple[str, str, str], dict[str, float]] = {
    ("none", "allreduce", ""): {"allreduce": 8},
    ("none", "allgather", ""): {"allgather": 4},
    ("qsgd", "allgather", ""): {"allgather": 1},
    ("topk", "allgather", ""): {"allgather": 1, "sizes": 1},
    ("svd", "allgather", ""): {"allgather": 4, "sizes": 3},  # the last part is a vector, which is always as long
    ("svd", "mixed", "dense_1d"): {"allgather": 3, "sizes": 3, "allreduce": 1},
    ("powersgd", "mixed", ""): {"rounds": 2},
    ("powersgd", "mixed", "dense_1d"): {"rounds": 2, "allreduce": 1},
    ("dion", "mixed", ""): {"rounds": 2},
    ("acp_sgd", "allreduce", ""): {"allreduce": 7 / 3},  # 2 where P is sent, 3 where Q is
    ("intsgd", "allreduce", ""): {"agreement": 1, "allreduce": 3},
    ("gtopk", "mixed", ""): {"swaps": 1},
    ("none", "sharded", ""): {"alltoall": 1, "allgather": 1},
    ("topk", "sharded", ""): {"alltoall": 1, "allgather": 1, "sizes": 2},
    ("none", "hierarchical", ""): {"allreduce": 8, "reduce": 6, "bcast": 7},
    ("none", "parameter_server", ""): {"server": 1},
}
"""Compressor, exchange and policy, and what two workers on one host call in a step, the first of them."""

METHODS = ("Allreduce", "Allgather", "Allgatherv", "Alltoallv", "Isend")


class Counting:
    """A communicator that counts the calls that communicate."""

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.calls = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            self.calls[name] += 1
        return getattr(self.comm, name)


def small_parts() -> None:
    """A matrix is a part of its own."""
    message_sizes.PART_BYTES, message_sizes.SEGMENT_BYTES = 2**11, 2**11


def counted() -> None:
    """As many calls of each kind as are known, and in all as many as the communicator was asked for."""
    small_parts()
    for (name, exchange_name, policy), expected in CASES.items():
        units = [Unit(i, str(i), torch.zeros(s), torch.ones(s)) for i, s in enumerate(SHAPES)]
        described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
        selector = Selector(Policy(dense_1d=bool(policy)), compressors.build(name), described, COMM.size)
        comm: Any = Counting(COMM)
        config = groups.GROUPS["exchange"][exchange_name]()
        exchanger = build_exchange(config, comm, units, selector, memories.build("none"), 5, Stopwatch())
        assert exchanger.calls(0) == {}
        comm.calls.clear()
        for step in range(1, STEPS + 1):
            for unit in units:
                unit.gradient.copy_(local_gradient(COMM.rank, step, unit.index, SHAPES[unit.index]))
            exchanger.mean(step)
        found = exchanger.calls(STEPS)
        assert found.keys() == {"collectives_per_step"}, "nothing can leave early"
        if exchange_name == "hierarchical" and COMM.rank != 0:
            expected = {"reduce": 6, "bcast": 7}  # leaders exchange
        assert found["collectives_per_step"] == expected, (name, exchange_name, policy, found)
        if exchange_name not in ("hierarchical", "parameter_server"):
            assert comm.calls.total() == STEPS * sum(expected.values()), (name, exchange_name, policy, comm.calls)


def trained(folder: Path, **changes: Any) -> dict[str, Any]:
    """A run's result.json; two hidden layers, of which the first is completed last."""
    folder.mkdir(exist_ok=True)
    given = {"model": {"width": 32}, "batch": {"size": 60}, "max_steps": 6, "checkpoint": {"every_steps": 2}, **changes}
    return train(options.parse(resolve(compose_config(workers=COMM.size, **given))), COMM, folder)


def recorded() -> None:
    """result.json has them; of what leaves during backward too, and of a resumed run those of its last part."""
    small_parts()
    root = Path(COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None))
    svd: dict[str, Any] = {"compressor": "svd", "exchange": {"name": "allgather"}}
    result = trained(root / "a", **svd)
    assert result["collectives_per_step"] == {"allgather": 2, "sizes": 2}
    assert "early_collectives_per_step" not in result, "nothing leaves early without overlap"
    svd["exchange"]["overlap"] = True
    result = trained(root / "b", **svd)
    assert result["collectives_per_step"] == {"allgather": 2, "sizes": 2}
    assert result["early_collectives_per_step"] == {"allgather": 1, "sizes": 1}, "the last leaves when all is there"
    for number, late in enumerate(
        ({"clip": {"local_norm": 1.0}}, {"compressor": "powersgd", "exchange": {"name": "mixed", "overlap": True}})
    ):
        result = trained(root / f"late{number}", **{**svd, **late})
        assert result["early_collectives_per_step"] == {}, (late, result)
    factors = {"compressor": "acp_sgd", "exchange": {"name": "allreduce", "overlap": True}, "model": {"width": 256}}
    result = trained(root / "factors", **factors)
    calls, early = result["collectives_per_step"], result["early_collectives_per_step"]
    assert calls.keys() == {"allreduce"} and early["allreduce"] >= 1, "one factor leaves during backward"
    for _ in range(2):
        result = trained(root / "c", compressor="none", exchange={"name": "allreduce"}, max_steps=7)
        assert result["collectives_per_step"] == {"allreduce": 7}, result
    assert result["resumed_after"] == [6] and result["steps"] == 7
    local = {"algorithm": {"name": "local_sgd", "steps": 3}, "compressor": "none", "exchange": {"name": "allreduce"}}
    assert trained(root / "d", **local)["collectives_per_step"] == {"allreduce": 7 / 3}
    gossip = {"algorithm": "dpsgd", "topology": "complete", "exchange": "gossip"}
    assert trained(root / "e", **gossip)["collectives_per_step"] == {"neighbours": 1}


if __name__ == "__main__":
    main(globals())
