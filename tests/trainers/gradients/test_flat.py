"""Flat buffers and the units that they are cut into."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers import models
from trainers.gradients.flat import Flat
from trainers.options import models as options


def test_flat_buffers_are_the_model() -> None:
    model = models.build(options.MLP(width=5), (1, 2, 2), 3)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    flat = Flat(model)
    for parameter, value in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
    gradients = flat.gradients
    model(torch.ones(2, 1, 2, 2)).sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.untyped_storage().data_ptr() == gradients.data_ptr()
        for parameter in model.parameters()
    )
    flat.values.fill_(3.0)
    assert all((parameter == 3.0).all() for parameter in model.parameters())


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(1, 100))
def test_units_cover_the_gradient_once(widths: list[int], limit: int) -> None:
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(width)) for width in widths])
    flat = Flat(model)
    for granularity in ("layer", "bucket", "model"):
        flat.gradients.zero_()
        units = flat.cut_units(granularity, limit * 4 / 2**20)
        for unit in units:
            unit.gradient.add_(1)
            if granularity == "bucket":
                assert unit.gradient.numel() <= max(limit, *widths)
        assert (flat.gradients == 1).all()
        assert [unit.index for unit in units] == list(range(len(units)))
    assert len(flat.cut_units("model", 1.0)) == 1
