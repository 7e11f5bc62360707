"""L-GreCo: its dynamic programming against brute force, its error budget, its intervals, and its state."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from compressors import Compressor, InvalidParameter, Key, build
from compressors.conformance.cases import draw_gaussian
from compressors.policy.lgreco import STEPS, LGreCo, allocate
from compressors.policy.policy import Policy, Selector

UNITS = [("conv.weight", (8, 4, 3, 3)), ("fc.weight", (30, 40)), ("fc.bias", (30,)), ("head.weight", (10, 40))]
RATIOS = [0.01, 0.05, 0.4]
Floats = npt.NDArray[np.float64]


def draw_problem(seed: int, units: int = 4, options: int = 4) -> tuple[Floats, Floats]:
    """Errors that fall and sizes that grow from option to option, but for the first, which is one of the middle."""
    random = np.random.default_rng(seed)
    scales = 10 ** random.uniform(-3, 1, (units, 1))
    errors = -np.sort(-random.uniform(0, 1, (units, options)), axis=1) * scales
    sizes = np.sort(random.integers(1, 10**6, (units, options)), axis=1).astype(float)
    order = np.roll(np.arange(options), options // 2)
    return errors[:, order], sizes[:, order]


def pick(table: Floats, chosen: list[int] | tuple[int, ...]) -> float:
    return sum(float(row[option]) for row, option in zip(table, chosen, strict=True))


def search_all(errors: Floats, sizes: Floats, budget: float) -> float:
    """The fewest bytes within the budget, of all combinations."""
    every = itertools.product(range(errors.shape[1]), repeat=len(errors))
    return min((pick(sizes, chosen) for chosen in every if pick(errors, chosen) <= budget), default=np.inf)


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(25))
def test_the_choice_is_the_best_that_a_budget_in_steps_allows(seed: int, factor: float) -> None:
    errors, sizes = draw_problem(seed)
    budget, uniform = factor * float(errors[:, 0].sum()), float(sizes[:, 0].sum())
    chosen = allocate(errors, sizes, factor)
    whole = np.ceil(errors / budget * STEPS)
    best = search_all(whole, sizes, STEPS)
    if np.isinf(best) or (factor >= 1.0 and best >= uniform):
        assert chosen == [0] * len(errors)
        return
    assert pick(sizes, chosen) == best and pick(errors, chosen) <= budget
    # Rounding up to whole steps costs a step a unit at most.
    assert search_all(errors, sizes, budget) <= best <= search_all(errors, sizes, budget * (1 - len(errors) / STEPS))


@pytest.mark.parametrize("seed", range(10))
def test_many_units_keep_within_the_budget_and_below_the_uniform_size(seed: int) -> None:
    errors, sizes = draw_problem(seed, units=150, options=7)
    chosen = allocate(errors, sizes)
    assert pick(errors, chosen) <= errors[:, 0].sum()
    assert pick(sizes, chosen) < sizes[:, 0].sum()  # they differ in scale by four powers of ten


def test_a_budget_of_nothing_takes_what_has_no_error() -> None:
    errors = np.array([[0.0, 0.0, 1.0], [0.0, 2.0, 0.0]])
    sizes = np.array([[9.0, 5.0, 1.0], [9.0, 1.0, 7.0]])
    assert allocate(errors, sizes) == [1, 2]
    assert allocate(np.zeros((2, 3)), sizes) == [2, 1]
    assert allocate(np.array([[1.0, 9.0]]), np.array([[5.0, 1.0]])) == [0]


def test_a_factor_below_one_may_send_more() -> None:
    errors, sizes = np.array([[4.0, 1.0], [4.0, 3.0]]), np.array([[5.0, 9.0], [5.0, 6.0]])
    assert allocate(errors, sizes, 0.9) == [0, 1]
    assert allocate(errors, sizes, 0.5) == [1, 1]
    assert allocate(errors, sizes, 0.4) == [0, 0]  # none is within the budget


def test_equal_sizes_take_the_smaller_error() -> None:
    assert allocate(np.array([[4.0, 3.0, 2.0]]), np.array([[5.0, 1.0, 1.0]])) == [2]


# In a selector


def new_selector(compressor: Compressor | None = None, **policy: Any) -> Selector:
    lgreco = LGreCo("ratio", RATIOS, interval=2)
    return Selector(Policy(**{"lgreco": lgreco, **policy}), compressor or build("topk", ratio=0.1), UNITS, 2)


def draw_gradient(index: int, step: int) -> torch.Tensor:
    """Heavy tails in the first unit: few elements have most of its energy."""
    return draw_gaussian(UNITS[index][1], 100 * step + index) ** (5 if index == 0 else 1)


def take_step(one: Selector, step: int) -> list[Any]:
    """A step of a selector of a single worker; return the ratios in force."""
    if one.is_due:
        one.choose(one.measure(Key(0, 0, step, 0)))
    one.begin(step, 1, 0.1)
    for index in range(len(UNITS)):
        one.observe_own(index, draw_gradient(index, step))
    return [getattr(compressor, "ratio", None) for compressor in one.selected]


def test_options_are_chosen_anew_after_every_interval() -> None:
    one = new_selector()
    ratios = [take_step(one, step) for step in range(1, 6)]
    assert ratios[0] == ratios[1] == [0.1] * 4
    assert ratios[2] == ratios[3] != ratios[1] and set(ratios[2]) <= {0.1, *RATIOS}
    accumulated = [draw_gradient(index, 3) + draw_gradient(index, 4) for index in range(4)]
    candidates = [build("topk", ratio=ratio) for ratio in (0.1, *RATIOS)]
    key = Key(0, 0, 5, 0)
    errors, sizes = np.zeros((4, 4)), np.zeros((4, 4))
    for unit, x in enumerate(accumulated):
        for column, candidate in enumerate(candidates):
            payload = candidate.compress(x, key)
            errors[unit, column] = (x.double() - candidate.decompress(payload, x, key).double()).square().sum()
            sizes[unit, column] = len(payload)
    chosen = allocate(errors, sizes)
    assert ratios[4] == [candidates[option].ratio for option in chosen]  # type: ignore[attr-defined]
    assert pick(errors, chosen) <= errors[:, 0].sum() and pick(sizes, chosen) < sizes[:, 0].sum()


def test_a_larger_factor_sends_less() -> None:
    sizes = []
    for factor in (0.9, 1.0, 1.3):
        one = new_selector(lgreco=LGreCo("ratio", RATIOS, interval=1, factor=factor))
        take_step(one, 1)
        sizes.append(sum(ratio * draw_gradient(index, 1).numel() for index, ratio in enumerate(take_step(one, 2))))
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < sizes[0]


def test_units_of_gates_and_patterns_take_no_part() -> None:
    patterns = [{"match": "head", "compressor": {"name": "topk", "ratio": 0.2}}]
    one = new_selector(dense_1d=True, patterns=patterns)
    for step in range(1, 4):
        ratios = take_step(one, step)
        assert ratios[2:] == [None, 0.2]
    assert one.measure(Key(0, 0, 4, 0)).shape == (2, 2, 4)
    everything = new_selector(min_elements=10**6)
    assert [take_step(everything, step) for step in range(1, 5)] == [[None] * 4] * 4
    assert not everything.is_due


def test_nothing_is_chosen_before_every_unit_was_exchanged() -> None:
    """As with fragments of local steps, of which each exchange has one."""
    one = new_selector()
    for step in range(1, 5):
        assert not one.is_due
        one.begin(step, 1, 0.1)
        one.observe_own(step - 1, draw_gradient(step - 1, step))
    assert one.is_due


def test_errors_that_are_not_finite_change_nothing() -> None:
    one = new_selector()
    before = [take_step(one, step) for step in range(1, 4)][-1]
    one.observe_own(0, torch.full(UNITS[0][1], torch.nan))
    take_step(one, 4)
    assert one.is_due
    assert take_step(one, 5) == before != [0.1] * 4
    assert not one.is_due  # a new interval has begun


def test_a_state_goes_on_with_the_same_options() -> None:
    first = new_selector()
    for step in range(1, 5):
        take_step(first, step)
    state = first.state_dict()
    second = new_selector()
    second.load_state_dict(state)
    for step in range(5, 10):
        assert take_step(first, step) == take_step(second, step)
    fresh = new_selector()
    assert take_step(fresh, 5) != take_step(first, 10)
    allocation = state["allocation"]
    for wrong in (
        None,
        {},
        {**allocation, "more": 1},
        {**allocation, "chosen": [0, 1]},
        {**allocation, "chosen": [0, 0, 0, 4]},
        {**allocation, "exchanges": -1},
        {**allocation, "sums": {"0": torch.zeros(3)}},
        {**allocation, "sums": {"9": torch.zeros(UNITS[0][1])}},
    ):
        before = str(second.state_dict())
        with pytest.raises(ValueError, match="state"):
            second.load_state_dict({**state, "allocation": wrong})
        assert str(second.state_dict()) == before
    with pytest.raises(ValueError, match="a selector has the keys"):
        Selector(Policy(), build("topk", ratio=0.1), UNITS, 2).load_state_dict(state)


OPTIONS: dict[str, tuple[str, list[float]]] = {
    "qsgd": ("levels", [1, 127]),
    "int8": ("bits", [2, 4]),
    "powersgd": ("rank", [1, 4]),
    "acp_sgd": ("rank", [1, 4]),
    "svd": ("rank", [1, 4]),
    "terngrad": ("clip", [0, 1.5]),
    "chunk_topk": ("k", [8, 256]),
    "demo": ("k", [8, 256]),
    "gtopk": ("ratio", [0.01, 0.1]),
    "redsync_threshold": ("ratio", [0.01, 0.1]),
    "randomk": ("ratio", [0.1, 0.5]),
    "eden": ("bits", [1, 4]),
    "onebit": ("bucket_size", [100, 7]),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_kind_of_compressor_can_be_measured(name: str) -> None:
    """The compressor of the run is not touched: its state, if it has one, is that of what has been sent."""
    option, values = OPTIONS[name]
    compressor = build(name, share_scale=True) if name == "terngrad" else build(name)
    one = new_selector(compressor, lgreco=LGreCo(option, values, interval=1))
    take_step(one, 1)
    before = str(one.state_dict())
    measured = one.measure(Key(0, 0, 2, 0))
    assert measured.isfinite().all() and (measured >= 0).all() and str(one.state_dict()) == before
    assert torch.equal(measured, one.measure(Key(0, 0, 2, 0)))
    take_step(one, 2)
    assert {type(chosen) for chosen in one.selected} == {type(compressor)}


@pytest.mark.parametrize(
    ("name", "policy", "message"),
    [
        ("topk", {"lgreco": LGreCo("rank", [1])}, r"lgreco.option=rank: valid is an option of compressor=topk: "),
        ("topk", {"lgreco": LGreCo("ratio", [2.0])}, "lgreco.values=2.0: valid is a number above 0 to 1"),
        ("topk", {"lgreco": LGreCo("ratio", [0.01])}, "lgreco.values=.*other values than the compressor's own ratio"),
        ("powersgd", {"lgreco": LGreCo("rank", [1.5])}, "lgreco.values=1.5: valid is an integer"),
        ("signum", {"lgreco": LGreCo("beta", [0.5])}, "null with compressor=signum, which sends directions only"),
        ("intsgd", {"lgreco": LGreCo("bits", [32])}, "null with compressor=intsgd, which has a scale that follows"),
    ],
)
def test_what_cannot_be_chosen_is_refused(name: str, policy: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        Policy(**policy).check(build(name))


def test_settings_that_never_act_or_clash_are_refused() -> None:
    lgreco = LGreCo("ratio", RATIOS, interval=10)
    with pytest.raises(
        InvalidParameter, match=r"lgreco.interval=10: valid is an integer below the number of steps \(10\)"
    ):
        Policy(lgreco=lgreco).check_length(3, 10)
    Policy(lgreco=lgreco).check_length(3, 11)
    with pytest.raises(InvalidParameter, match="policy.warmup=none: both choose the option"):
        Policy(lgreco=lgreco, warmup="exponential")
    with pytest.raises(InvalidParameter, match="budget with compressor=atomo with budget=9.0, which overrules"):
        Policy(lgreco=lgreco).check(build("atomo", budget=9.0))
    for given in ({"option": "ratio"}, {"values": [0.1]}):
        with pytest.raises(InvalidParameter, match="a list of other values of ratio|option whose values"):
            LGreCo(**given)  # type: ignore[arg-type]
