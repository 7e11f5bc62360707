"""A rank of benchmarks/gpu_parts/sharing.py: it takes steps on the first GPU, which it shares with others.

mpirun -n W python -m benchmarks.gpu_parts.sharing_rank METHOD mpi|torch STEPS cuda|cpu
python -m benchmarks.gpu_parts.sharing_rank nccl STORE RANK
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time

import torch

from benchmarks.gpu_parts.steps import RESNET9, TINY_RESNET9, Trainer
from compressors.commands.method_specs import parse
from gradsweep.errors import UsageError
from trainers.devices import choose


def take_steps(method: str, transport: str, steps: int, device_name: str) -> None:
    """Take steps of the trainer; rank 0 prints their time as JSON."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    work = RESNET9 if device_name == "cuda" else TINY_RESNET9
    work = dataclasses.replace(work, batch=max(2, work.batch // comm.size))
    config = work.configure(device_name, parse(method), False, comm.size, transport)
    config = dataclasses.replace(config, gpus=[0] * comm.size)
    device = choose.choose(config, comm)
    trainer = Trainer(work, config, comm, device)
    trainer.take_steps(3)
    comm.Barrier()
    start = time.perf_counter()
    trainer.take_steps(steps)
    comm.Barrier()
    taken = (time.perf_counter() - start) / steps
    trainer.replica.require_same("the weights after these steps")
    free, total = torch.cuda.mem_get_info() if device.type == "cuda" else (0, 0)
    values = {
        "step_ms": 1e3 * taken,
        "samples_per_s": work.batch * comm.size / taken,
        "messages": choose.describe(device).get("messages", "in main memory"),
        "used_mb": (total - free) / 1e6,
        "phases_ms": trainer.list_phases(),
    }
    comm.Barrier()
    if comm.rank == 0:
        print(json.dumps(values), flush=True)


def try_nccl(store: str, rank: int) -> None:
    """Add up a number over two processes on the same GPU."""
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=2)
    number = torch.ones(1, device="cuda")
    dist.all_reduce(number)
    print(f"sum {float(number):g}", flush=True)
    dist.destroy_process_group()


def main(words: list[str]) -> None:
    if words[0] == "nccl":
        try_nccl(words[1], int(words[2]))
        return
    try:
        take_steps(words[0], words[1], int(words[2]), words[3])
    except UsageError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
