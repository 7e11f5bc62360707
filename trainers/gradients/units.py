"""Cuts the gradient of a run into units."""

from __future__ import annotations

from compressors.memories.base import NoMemory
from trainers.config.run_config import RunConfig
from trainers.gradients.flat import Flat, Unit
from trainers.mpi.message_sizes import PART_BYTES
from trainers.options import exchanges as options


def cut_units(config: RunConfig, flat: Flat) -> list[Unit]:
    """Cut the gradient by `exchange.granularity`, in the order of the parameters.

    If the numbers do not depend on the borders of layers, neighbouring layers are joined up to the size of a part of a
    message (`PART_BYTES`): each unit costs time, which would slow down baseline runs. With exchange=sharded and
    granularity=model, the model is cut into a shard for each worker.
    """
    exchange = config.exchange
    shards = config.workers if isinstance(exchange, options.Sharded) else 1
    if exchange.granularity == "layer" and shards == 1 and _can_join_layers(config):
        return flat.cut_units("bucket", PART_BYTES / 2**20)
    return flat.cut_units(exchange.granularity, exchange.bucket_mib, shards)


def _can_join_layers(config: RunConfig) -> bool:
    """Tell whether layers can be joined into units without changing any number.

    Then joined layers have the joined payloads, and no part of the run looks at single tensors.
    """
    possible = config.policy.list_possible(config.compressor)
    return (
        isinstance(config.memory, NoMemory)
        and not config.policy.looks_at_tensors
        and all(compressor.joins for compressor in possible)
    )
