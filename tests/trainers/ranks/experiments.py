"""What test_experiments.py runs on real ranks: `mpirun -n W python -m tests.trainers.ranks.experiments NAME FILE`."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

from compressors.policy.policy import Selector
from tests.trainers.ranks.exchange import main
from trainers import models
from trainers.config import run_config as options
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.base import Traffic
from trainers.exchange.build import build_exchange
from trainers.exchange.gossip import Gossip
from trainers.gradients.flat import Flat
from trainers.topology.mixing import Mixing
from trainers.training import loop

COMM = MPI.COMM_WORLD


def train(file: str) -> None:
    """Every config in the file is trained to its end, one after the other."""
    failed = []
    for name, config in json.loads(Path(file).read_text()).items():
        directory = COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None)
        run = options.parse(config)
        comm = COMM.Split(int(COMM.rank >= run.ranks), COMM.rank)
        if COMM.rank >= run.ranks:  # only some have a server
            continue
        result = loop.train(run, comm, Path(directory))
        if result["status"] != "done" or result["steps"] != config["max_steps"]:
            failed.append(f"{name}: {result['status']} after {result['steps']} steps: {result['reason']}")
    assert not failed, "\n".join(failed)


def measure(file: str) -> None:
    """What a worker's message has in step 100 of epoch 10 of every config: the bytes are written into the file.

    Gradients are random numbers. A second worker would not change what this one sends.
    """
    found: dict[str, Any] = {}
    for name, (config, shape, classes) in json.loads(Path(file).read_text()).items():
        run = options.parse(config)
        torch.manual_seed(0)
        flat = Flat(models.build(run.model, tuple(shape), classes))
        flat.gradients.normal_()
        units = flat.cut_units(run.exchange.granularity, run.exchange.bucket_mib)
        described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
        selector = Selector(run.policy, run.compressor, described, 1)
        mixing = Mixing((np.eye(1),)) if run.decentralised else None
        parts = (run.exchange, MPI.COMM_SELF, units, selector, run.memory, run.seed, Stopwatch())
        exchanger = build_exchange(*parts, mixing=mixing)
        traffic = sent(exchanger) if isinstance(exchanger, Gossip) else exchanger.mean(100, epoch=10)
        shapes = [tuple(unit.gradient.shape) for unit in units]
        found[name] = {"parameters": len(flat), "payload_bytes": traffic.payload_bytes, "shapes": shapes}
    Path(file).write_text(json.dumps(found))


def sent(gossip: Gossip) -> Traffic:
    """What a worker would send to each of its neighbours."""
    gossip.begin(100, epoch=10)
    for unit in reversed(gossip.units):
        gossip.submit(unit)
    gossip.send()
    gossip.receive()
    return gossip.traffic()


if __name__ == "__main__":
    main(globals())
