"""Which runs are disturbed, by their yardsticks."""

from __future__ import annotations

from typing import Any

import pytest

from gradsweep.disturbance import (
    OTHERS,
    SLOWER,
    choose_best,
    compute_drift,
    explain_disturbed,
    find_best,
    get_share_of_others,
)


def yardstick(slow_s: Any = 1e-3, others: Any = 0.0, **by_host: Any) -> dict[str, Any]:
    return {"slow_s": slow_s, "cores_of_others": others, "by_host": by_host or {"node": 1e-3}}


@pytest.mark.parametrize("slow", [1e-3, SLOWER * 1e-3])
@pytest.mark.parametrize("others", [0.0, OTHERS, None])
def test_a_run_within_the_thresholds_is_not_disturbed(slow: float, others: float | None) -> None:
    assert explain_disturbed(yardstick(slow, others), 1e-3) is None


def test_a_run_on_slow_cores_is_disturbed() -> None:
    reason = "its cores were 31 % slower than the best of the sweep for more than a tenth of its steps"
    assert explain_disturbed(yardstick(1.31e-3, None), 1e-3) == reason


def test_a_run_whose_cores_others_used_is_disturbed() -> None:
    assert explain_disturbed(yardstick(others=0.24), 1e-3) == "other processes took 24 % of its cores"
    assert explain_disturbed(yardstick(others=0.24), None) is not None, "without a best of the sweep"


def test_both_reasons_are_given() -> None:
    reason = explain_disturbed(yardstick(1.2e-3, 0.5), 1e-3)
    assert (
        reason is not None
        and "20 % slower" in reason
        and reason.endswith(", and other processes took 50 % of its cores")
    )


def test_the_best_of_a_sweep_is_that_of_each_host() -> None:
    sweep = [yardstick(a=2e-3, b=5e-3), yardstick(a=1e-3), None, yardstick(b=6e-3)]
    assert find_best(sweep) == {"a": 1e-3, "b": 5e-3}


def test_lucky_runs_with_few_of_the_readings_are_not_the_best_of_a_sweep() -> None:
    """Less than a tenth of all readings do not count: of 11 equal runs one does not, of 21 two do not."""
    times = [0.9e-3, 0.95e-3, *(1e-3 + number * 1e-6 for number in range(19))]
    for runs, best in ((1, 0.9e-3), (10, 0.9e-3), (11, 0.95e-3), (20, 0.95e-3), (21, 1e-3)):
        sweep = [yardstick(node=time) | {"readings": 5} for time in times[:runs]]
        assert find_best(sweep) == {"node": best}, runs
    sweep = [yardstick(node=time) | {"readings": 40 if time == times[0] else 5} for time in times]
    assert find_best(sweep) == {"node": 0.9e-3}, "it has many readings, such as the heat of a race"


def test_a_run_on_several_hosts_is_compared_with_the_slowest() -> None:
    best = {"new": 1e-3, "old": 2e-3, "idle": 9e-3}
    assert choose_best(yardstick(new=1.1e-3, old=2.1e-3), best) == 2e-3
    assert choose_best(yardstick(new=1.1e-3), best) == 1e-3
    assert choose_best(yardstick(other=1.1e-3), best) is None


def test_a_run_of_an_earlier_version_is_neither_disturbed_nor_undisturbed() -> None:
    assert explain_disturbed(None, 1e-3) is None
    assert compute_drift(None, 1e-3) is None and get_share_of_others(None) is None
    assert choose_best(None, {"node": 1e-3}) is None


@pytest.mark.parametrize("value", ["fast", True, [], -1.0, 0.0, float("nan"), float("inf"), None])
def test_damaged_values_are_unknown(value: Any) -> None:
    damaged = yardstick(value, "many", node=value)
    assert find_best([damaged]) == {} and choose_best(damaged, {"node": 1e-3}) is None
    assert compute_drift(damaged, 1e-3) is None and explain_disturbed(damaged, 1e-3) is None


@pytest.mark.parametrize("damaged", [[], "yes", 3, {"by_host": [1]}, {"by_host": None, "cores_of_others": 7}])
def test_a_damaged_yardstick_is_unknown(damaged: Any) -> None:
    assert find_best([damaged]) == {} and explain_disturbed(damaged, 1e-3) is None


def test_a_number_that_no_float_can_hold_is_no_figure() -> None:
    huge = 10**400
    assert explain_disturbed(yardstick(huge, huge, node=huge), 1e-3) is None
    assert find_best([yardstick(node=huge)]) == {}
