"""Exchanges whose units have owners (sharded, parameter server) and nodes (hierarchical), on real ranks and without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from compressors import memories
from gradsweep.errors import UsageError
from tests.trainers.configs import NO_MOMENTUM, compose_config
from tests.trainers.start_ranks import MONITORED, run_ranks
from trainers.exchange.unit_owners import build_second_memory
from trainers.gradients.flat import Flat
from trainers.lanes.sharding import assign_owners
from trainers.rules.resolve import resolve

MODULE = "tests.trainers.ranks.unit_owners"


@pytest.mark.parametrize(("first", "second"), [("none", "none"), ("ef21", "residual"), ("scaled_residual",) * 2])
def test_the_second_phase_has_a_memory_if_the_workers_have_one(first: str, second: str) -> None:
    assert build_second_memory("auto", memories.build(first)) == memories.build(second)
    assert build_second_memory("loco", memories.build(first)) == memories.build("loco")


def test_loco_has_the_same_options_in_both_phases() -> None:
    first = memories.build("loco", beta=0.5, reset=7)
    second = build_second_memory("auto", first)
    assert second == first and second is not first


NODES = "nodes + nodes_of_gpus"
OF_TWO = f"traffic + counted_by_hand + {NODES} + stays_unbiased + quadratic + random_numbers + second_state_matters"
OF_THREE = f"gradients + every_compressor + traffic + counted_by_hand + {NODES} + resume + backup + lagging + agreement"


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("workers", "functions"), [(1, "gradients"), (2, OF_TWO), (3, OF_THREE), (4, "gradients + traffic")]
)
def test_means_bytes_states_and_laws_on_real_ranks(workers: int, functions: str) -> None:
    """What each function holds stands in its docstring."""
    run_ranks(workers, *functions.split(), module=MODULE, **MONITORED)


def test_gradients_that_lie_side_by_side_travel_together() -> None:
    from tests.trainers.ranks.unit_owners import runs_of_memory

    runs_of_memory()


def test_shards_are_whole_units_the_largest_first() -> None:
    assert assign_owners([5, 9, 1, 4, 4], 2) == [1, 0, 1, 1, 0]
    assert assign_owners([3, 3, 3], 4) == [0, 1, 2] and assign_owners([7, 8], 1) == [0, 0]
    loads = [0, 0, 0]
    sizes = [100, 3, 40, 60, 22, 41, 9, 77]
    for size, owner in zip(sizes, assign_owners(sizes, 3), strict=True):
        loads[owner] += size
    assert max(loads) <= 4 / 3 * sum(sizes) / 3


@pytest.mark.parametrize("pieces", [1, 3, 4, 500])
def test_the_vector_of_a_model_is_cut_into_nearly_equal_pieces(pieces: int) -> None:
    flat = Flat(nn.Linear(10, 5))
    units = flat.cut_units("model", 4.0, pieces)
    sizes = [unit.gradient.numel() for unit in units]
    assert len(units) == min(pieces, 55) and max(sizes) - min(sizes) <= 1
    assert torch.equal(torch.cat([unit.values for unit in units]), flat.values)
    assert [unit.index for unit in units] == list(range(len(units)))
    assert len(flat.cut_units("layer", 4.0, pieces)) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"compressor": "powersgd", "exchange": "sharded"},
            "powersgd with exchange=sharded, exchange.granularity=layer: ",
        ),
        ({"compressor": "gtopk", "exchange": "parameter_server"}, "rounds of its own; valid is exchange=allreduce"),
        (
            {"compressor": "acp_sgd", "exchange": {"name": "sharded", "second": "none"}},
            "compressor=acp_sgd with exchange=sharded, exchange.granularity=layer: workers need the exact mean to "
            "encode the next step, and here only the rank that forms it has it; valid is exchange=allreduce",
        ),
        ({"compressor": "acp_sgd", "exchange": "parameter_server"}, "the exact mean to encode the next step, and here"),
        (
            {"compressor": "intsgd", "exchange": "sharded"},
            "compressor=intsgd with exchange=sharded, exchange.second=same: a worker cannot know the scale of a mean "
            "that is compressed again; valid is exchange.second=none",
        ),
        (
            {"compressor": "intsgd", "exchange": {"name": "parameter_server", "answer": "compressed"}},
            "exchange.answer=compressed: a worker cannot",
        ),
        (
            {"compressor": "intsgd", "exchange": {"name": "parameter_server", "backup": 1}},
            "compressor=intsgd with exchange=parameter_server, exchange.backup=1: all workers agree on a scale",
        ),
        (
            {
                "compressor": "topk",
                "memory": "ef21",
                "exchange": {"name": "sharded", "second_memory": "none"},
            },
            "memory=ef21 with exchange=sharded, exchange.second_memory=none: the common mean of the estimates would "
            "drift away from the sent values; valid is exchange.second_memory=residual",
        ),
        (
            {"compressor": "topk", "memory": "ef21", "exchange": {"name": "parameter_server", "backup": 1}},
            "memory=ef21 with exchange=parameter_server, exchange.backup=1: the mean of all estimates",
        ),
        (
            {"compressor": "qsgd", "memory": "loco", "exchange": {"name": "parameter_server", "backup": 1}},
            "memory=loco with exchange=parameter_server, exchange.backup=1: it keeps the errors of what is sent, not",
        ),
        (
            {"compressor": "fp16", "memory": "econtrol", "exchange": "hierarchical"},
            "compressor=fp16 with memory=econtrol, exchange=hierarchical: the network rounds its sums to 16 bits",
        ),
        (
            {"compressor": "fp16", "memory": "ef21", "exchange": "hierarchical"},
            "exchange=hierarchical: the network rou",
        ),
        (
            {"exchange": {"name": "parameter_server", "backup": 2}},
            "exchange.backup=2: valid is an integer from 0 to 1 with workers=2",
        ),
        (
            {"memory": "dgc", "optimizer": NO_MOMENTUM, "exchange": {"name": "parameter_server", "backup": 1}},
            "compressor=none with memory=dgc: momentum is cleared",
        ),
        (
            {"compressor": "sign", "exchange": {"name": "sharded", "second_memory": "residual"}},
            "compressor=sign with exchange=sharded, exchange.second_memory=residual: it sends directions only",
        ),
        ({"exchange": {"name": "hierarchical", "workers_per_node": 0}}, "exchange.workers_per_node=0: valid is"),
        ({"exchange": {"name": "sharded", "second": "qsgd"}}, "exchange.second=qsgd: valid is one of same, none"),
    ],
)
def test_what_cannot_work_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(compose_config(**changes))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"compressor": "fp16", "memory": "ef21", "exchange": "sharded"},
        {"compressor": "intsgd", "exchange": {"name": "sharded", "second": "none"}},
        {
            "compressor": "intsgd",
            "workers": 200,
            "exchange": {"name": "hierarchical", "workers_per_node": 2},
            "batch": {"size": 999},
        },
        {"compressor": "powersgd", "exchange": "hierarchical"},
        {"compressor": "acp_sgd", "exchange": "hierarchical"},
        {"compressor": "sign", "exchange": {"name": "parameter_server", "backup": 1, "answer": "compressed"}},
        {"exchange": {"name": "sharded", "granularity": "model"}},
    ],
    ids=str,
)
def test_what_can_work_is_not_refused(changes: dict[str, Any]) -> None:
    resolve(compose_config(**changes))
