"""Models: published numbers of parameters, shapes of outputs."""

from __future__ import annotations

import pytest
import torch

from trainers import models
from trainers.options import models as options


@pytest.mark.parametrize(
    ("depth", "widen", "classes", "count"),
    [(10, 1, 10, 77_850), (16, 1, 10, 175_066), (28, 10, 10, 36_479_194), (40, 4, 100, 8_972_340)],
)
def test_wideresnet_has_the_published_number_of_parameters(depth: int, widen: int, classes: int, count: int) -> None:
    with torch.device("meta"):
        model = models.build(options.WideResNet(depth, widen), (3, 32, 32), classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize("config", [options.WideResNet(), options.MLP()])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
def test_models_give_a_row_of_logits_per_sample(config: object, shape: tuple[int, int, int]) -> None:
    assert models.build(config, shape, 7)(torch.zeros(3, *shape)).shape == (3, 7)
