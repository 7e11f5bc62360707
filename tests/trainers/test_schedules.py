"""The learning rate at stated steps."""

from __future__ import annotations

import pytest

from trainers import schedules
from trainers.options import schedules as options


def test_cosine_with_warm_up() -> None:
    config = options.Cosine(warmup_epochs=1)
    factors = [schedules.factor(config, step, 30, 10) for step in range(1, 31)]
    assert factors[:10] == pytest.approx([i / 10 for i in range(1, 11)])
    assert factors[10] == 1.0
    assert factors[20] == pytest.approx(0.5)
    assert 0 < factors[-1] < 0.01
    assert factors[10:] == sorted(factors[10:], reverse=True)


def test_constant_with_fractional_warm_up() -> None:
    config = options.Constant(warmup_epochs=0.5)
    assert [schedules.factor(config, step, 9, 4) for step in (1, 2, 3, 9)] == [0.5, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("config", [options.Constant(warmup_epochs=100), options.Cosine(warmup_epochs=100)])
def test_a_warm_up_longer_than_the_run(config: options.Constant | options.Cosine) -> None:
    assert [schedules.factor(config, step, 10, 10) for step in (1, 10)] == [1 / 1000, 10 / 1000]
