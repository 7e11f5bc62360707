"""Hooks that compress the gradients of torch's own data parallelism: DistributedDataParallel and FSDP2.

They use the exchanges of a run (trainers/exchange), connected by torch.distributed alone: no MPI is needed.
"""

from trainers.hooks.ddp import ddp_hook
from trainers.hooks.fsdp import fsdp_hook, hsdp_hook

__all__ = ["ddp_hook", "fsdp_hook", "hsdp_hook"]
