"""Cuts the gradient of a run into units."""

from __future__ import annotations

from compressors import Compressor
from compressors.memories.base import Memory, NoMemory
from compressors.policy.policy import Policy
from trainers.config.run_config import RunConfig
from trainers.gradients.flat import Flat, Unit
from trainers.mpi.message_sizes import PART_BYTES
from trainers.options import exchanges as options
from trainers.options.algorithms import LocalSGD


def cut_units(config: RunConfig, flat: Flat) -> list[Unit]:
    """Cut the gradient by `exchange.granularity`, in the order of the parameters.

    If the numbers do not depend on the borders of layers, neighbouring layers are joined up to the size of a part of a
    message (`PART_BYTES`): each unit costs time, which would slow down baseline runs. With exchange=sharded and
    granularity=model, the model is cut into a shard for each worker; with fragments, each of them.
    """
    exchange = config.exchange
    shards = config.workers if isinstance(exchange, options.Sharded) else 1
    local = config.algorithm if isinstance(config.algorithm, LocalSGD) else LocalSGD()
    if (
        exchange.granularity == "layer"
        and shards == 1
        and not local.looks_at_units
        and can_join_layers(config.policy, config.compressor, config.memory)
    ):
        return flat.cut_units("bucket", PART_BYTES / 2**20)
    return flat.cut_units(exchange.granularity, exchange.bucket_mib, shards * local.fragments)


def can_join_layers(policy: Policy, compressor: Compressor, memory: Memory) -> bool:
    """Tell whether layers can be joined into units without changing any number.

    Then joined layers have the joined payloads, and no part of the run looks at single tensors.
    """
    return (
        isinstance(memory, NoMemory)
        and not policy.looks_at_tensors
        and all(possible.joins for possible in policy.list_possible(compressor))
    )
