"""What the readings of a yardstick come to."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch

from trainers.checkpoint.state import to_plain
from trainers.devices.yardstick import Reading
from trainers.recording.readings import Readings

HOSTS = ("a", "b")


def reading(*seconds: float, others_s: float = 0.0, cores_s: float = 2.0) -> Reading:
    return Reading(np.array(seconds), np.full(len(seconds), others_s / max(cores_s, 1)), others_s, cores_s)


def test_figures_of_all_workers() -> None:
    readings = Readings()
    assert readings.summarise() is None
    readings.add(1, reading(1.0, 1.5, cores_s=0.0), HOSTS)
    readings.add(11, reading(1.1, 1.4, others_s=0.5), HOSTS)
    readings.add(21, reading(1.2, 1.6, others_s=0.1), HOSTS)
    found = readings.summarise()
    assert found is not None
    low, median, high = np.quantile([1.0, 1.5, 1.1, 1.4, 1.2, 1.6], [0.1, 0.5, 0.9])
    assert (found["best_s"], found["readings"], len(readings)) == (1.0, 3, 3)
    assert found["median_s"] == pytest.approx(median) and found["spread"] == pytest.approx((high - low) / median)
    lows = {"a": np.quantile([1.0, 1.1, 1.2], 0.1), "b": np.quantile([1.4, 1.5, 1.6], 0.1)}
    assert found["by_host"] == pytest.approx(lows) and found["cores_of_others"] == pytest.approx(0.6 / 4)


@pytest.mark.parametrize(("slow_steps", "expected"), [(8, 0.9), (10, 0.9), (12, 2.0)])
def test_slow_is_what_nine_tenths_of_the_steps_were_faster_than(slow_steps: int, expected: float) -> None:
    """Of 100 steps: by the slowest worker, and by the faster of the readings before and after a step."""
    readings = Readings()
    readings.add(40, reading(1.0, 0.5), HOSTS)
    readings.add(50, reading(0.6, 2.5), HOSTS)
    readings.add(50 + slow_steps, reading(0.6, 2.0), HOSTS)
    readings.add(100, reading(1.0, 0.9), HOSTS)
    found = readings.summarise()
    assert found is not None and found["slow_s"] == expected


def test_a_single_slow_reading_says_nothing_of_the_steps_around_it() -> None:
    """It was a moment, unless the reading before or after it is slow, too, or there is no other."""
    for slow in range(4):
        readings = Readings()
        for number in range(4):
            readings.add(10 * number + 1, reading(2.0 if number == slow else 1.0, 1.0), HOSTS)
        found = readings.summarise()
        assert found is not None and found["slow_s"] == 1.0
        readings = Readings()
        for number in range(4):
            readings.add(10 * number + 1, reading(2.0 if number in (slow, (slow + 1) % 4) else 1.0, 1.0), HOSTS)
        found = readings.summarise()
        assert found is not None and found["slow_s"] == (1.0 if slow == 3 else 2.0), "the first and the last are apart"
    readings = Readings()
    readings.add(1, reading(2.0, 1.0), HOSTS)
    found = readings.summarise()
    assert found is not None and found["slow_s"] == 2.0


def test_the_shortest_of_many_readings_is_not_the_best_of_a_host() -> None:
    readings = Readings()
    for number in range(100):
        readings.add(number + 1, reading(0.5 if number == 40 else 1.0, 2.0), HOSTS)
    found = readings.summarise()
    assert found is not None and (found["best_s"], found["by_host"]) == (0.5, {"a": 1.0, "b": 2.0})


def test_a_share_that_is_unknown_once_is_unknown() -> None:
    readings = Readings()
    readings.add(1, reading(1.0, 1.0, cores_s=0.0), HOSTS)
    found = readings.summarise()
    assert found is not None and found["cores_of_others"] is None, "of no time"
    readings.add(2, reading(1.0, 1.0, others_s=math.nan), HOSTS)
    readings.add(3, reading(1.0, 1.0), HOSTS)
    found = readings.summarise()
    assert found is not None and found["cores_of_others"] is None


def test_restored_readings_go_on_also_on_another_host() -> None:
    whole, first, second = Readings(), Readings(), Readings()
    for number in range(1, 4):
        first.add(number, reading(number, 3.0), HOSTS)
        whole.add(number, reading(number, 3.0), HOSTS)
    file = io.BytesIO()
    torch.save(to_plain(first.state_dict()), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    for each in (whole, second):
        each.add(9, reading(2.0, 1.0), ("c", "b"))
    assert second.summarise() == whole.summarise()
    found = second.summarise()
    low = {"a": np.quantile([1, 2, 3], 0.1), "b": np.quantile([3, 3, 3, 1], 0.1), "c": 2.0}
    assert found is not None and found["by_host"] == pytest.approx(low)


def test_a_state_has_one_tensor_and_that_of_an_earlier_version_has_many() -> None:
    readings, earlier, later = Readings(), Readings(), Readings(100)
    for number in (1, 2):
        readings.add(number, reading(number, 3.0), HOSTS)
    state = readings.state_dict()
    assert state["seconds"].tolist() == [[1.0, 3.0], [2.0, 3.0]]
    for key in ("start", "hosts", "earlier"):
        del state[key]
    earlier.load_state_dict({**state, "seconds": list(state["seconds"]), "best": {"a": 1.0, "b": 3.0}})
    assert {**(earlier.summarise() or {}), "by_host": None} == {**(readings.summarise() or {}), "by_host": None}
    assert (earlier.summarise() or {})["by_host"] == {"a": 1.0, "b": 3.0}, "an earlier version had the shortest only"
    earlier.add(3, reading(5.0, 4.0), ("a", "c"))
    assert (earlier.summarise() or {})["by_host"] == {"a": 5.0, "b": 3.0, "c": 4.0}
    later.load_state_dict(Readings(100).state_dict())
    later.add(101, reading(9.0, 9.0), HOSTS)
    later.add(121, reading(1.0, 1.0), HOSTS)
    found = later.summarise()
    assert found is not None and found["slow_s"] == 1.0, "the first reading stands for one step, not for 101"


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="the state of yardstick readings has the keys"):
        Readings().load_state_dict({"steps": []})
