"""Into which units the gradient of a run is cut."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainers.configs import compose_config
from trainers import models
from trainers.config import run_config as configs
from trainers.gradients.flat import Flat
from trainers.gradients.units import cut_units
from trainers.rules.resolve import resolve

LAYERS = [(7, 4), (7,), (7, 7), (7,), (3, 7), (3,)]
JOINED = [(7 * 4 + 7 + 7 * 7 + 7 + 3 * 7 + 3,)]


def shapes(width: int = 7, **changes: Any) -> list[tuple[int, ...]]:
    """Of the units of an MLP with two hidden layers, four inputs and three classes."""
    config = configs.parse(resolve(compose_config(model={"width": width}, **changes)))
    return [tuple(unit.gradient.shape) for unit in cut_units(config, Flat(models.build(config.model, (1, 2, 2), 3)))]


@pytest.mark.parametrize("compressor", ["none", "fp16", "bf16"])
def test_layers_that_make_no_difference_travel_together(compressor: str) -> None:
    assert shapes(compressor=compressor) == JOINED
    assert shapes(compressor=compressor, policy={"start_step": 2}) == JOINED
    assert shapes(compressor=compressor, exchange="parameter_server") == JOINED


def test_they_leave_in_parts_of_a_mebibyte() -> None:
    assert shapes(512, compressor="fp16") == [(512 * 4 + 512,), (512 * 512,), (512 + 3 * 512 + 3,)]


@pytest.mark.parametrize(
    "changes",
    [
        {"compressor": "qsgd"},
        {"compressor": "topk", "policy": {"start_step": 2}},
        {"memory": "residual", "compressor": "fp16"},
        {"policy": {"dense_1d": True}, "compressor": "fp16"},
        {"policy": {"min_elements": 30}, "compressor": "fp16"},
        {"policy": {"patterns": [{"match": "weight", "compressor": {"name": "fp16"}}]}},
        {"exchange": "sharded"},
    ],
)
def test_layers_stay_apart_where_something_looks_at_them(changes: dict[str, Any]) -> None:
    assert shapes(**changes, workers=2) == LAYERS


def test_other_granularities_are_what_they_say() -> None:
    assert shapes(exchange={"name": "auto", "granularity": "model"}) == JOINED
    assert shapes(exchange={"name": "sharded", "granularity": "model"}, workers=5) == [(23,)] * 5
    small = shapes(exchange={"name": "auto", "granularity": "bucket", "bucket_mib": 4 * 50 / 2**20})
    assert small == [(35,), (49,), (31,)]
