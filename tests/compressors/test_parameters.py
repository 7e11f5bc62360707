"""Ranges of hyper-parameters: what they accept works, what they refuse is said in one line."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from compressors import InvalidParameter, Key, build, memories, registry
from compressors.commands import single_worker
from compressors.conformance.cases import draw_gaussian
from compressors.policy.policy import Accordion, Policy
from gradsweep.options.parameters import check, from_mapping, number, show


@dataclasses.dataclass(frozen=True)
class Ranges:
    closed: float = number(0.5, low=0, high=1)
    above: float = number(0.5, low=0, high=1, above=True)
    below: float = number(0.5, low=0, high=1, below=True)
    between: float = number(0.5, low=0, high=1, above=True, below=True)
    half: float | None = number(None, low=1, above=True, optional=True)

    def __post_init__(self) -> None:
        check(self)


@pytest.mark.parametrize(
    ("name", "accepted", "refused", "words"),
    [
        ("closed", [0, 1, 0.0], [-1e-300, math.nextafter(1, 2)], "a number from 0 to 1"),
        ("above", [5e-324, 1], [0, -0.0], "a number above 0 to 1"),
        ("below", [0, math.nextafter(1, 0)], [1, 1.0], "a number from 0 to below 1"),
        ("between", [5e-324, math.nextafter(1, 0)], [0, 1], "a number above 0 to below 1"),
        ("half", [None, 1.5, 10**300], [1, 10**400, math.inf, math.nan, True, "2"], "a finite number above 1 or null"),
    ],
)
def test_ends_of_a_range_are_open_or_closed(name: str, accepted: list[Any], refused: list[Any], words: str) -> None:
    for value in accepted:
        assert getattr(from_mapping(Ranges, {name: value}), name) is value
    for value in refused:
        with pytest.raises(InvalidParameter) as error:
            from_mapping(Ranges, {name: value})
        assert error.value.valid == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", r"'a\nb'"),
        ("x" * 500, "x" * 200 + "..."),
        (10**400, "1" + 199 * "0" + "..."),
        (10**5000, "an integer too long to be written"),
        ("Größe", "Größe"),
    ],
    ids=["lines", "long", "digits", "too many digits", "letters"],
)
def test_a_wrong_value_is_told_in_one_line(value: Any, text: str) -> None:
    assert show(value) == text
    for name in ("levels", "norm"):
        with pytest.raises(InvalidParameter) as error:
            build("qsgd", **{name: value})
        assert str(error.value).startswith(f"{name}={text}: valid is ") and str(error.value).isprintable()
    if isinstance(value, str):
        with pytest.raises(InvalidParameter, match="one of the keys") as error:
            build("qsgd", **{value: 1})
        assert str(error.value).isprintable() and text in str(error.value)


@pytest.mark.parametrize(("name", "option"), [("signum", "beta"), ("intsgd", "beta"), ("dgc", "lower_bound")])
def test_what_would_never_change_is_refused(name: str, option: str) -> None:
    """A momentum of 1 never takes notice of a gradient, a threshold times 1 stays as it is."""
    with pytest.raises(InvalidParameter, match=f"{option}=1.0: valid is a number .* to below 1"):
        build(name, **{option: 1.0})


def test_a_memory_whose_momentum_never_forgets_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="momentum=1: valid is a number from 0 to below 1"):
        memories.build("dgc", momentum=1)


# Every option of every method at the ends of its range

ENDS = [0, 1, 2, 2**31 - 1, 2**63 - 1, 10**30, 10**300, 5e-324, 1e-45, 1 - 2**-53, 1 + 2**-52, 1e30, 3.5e38, 1.7e308]
ENDS += [10, 100, 1000, 10**6, 32767]


def ends(cls: type, *skipped: str) -> list[tuple[str, Any]]:
    """Values at or near the ends of the ranges of all options that take numbers."""
    fields = [field for field in dataclasses.fields(cls) if "valid" in field.metadata and field.name not in skipped]
    return [(field.name, value) for field in fields for value in ENDS if field.metadata["valid"].test(value)]


@pytest.mark.parametrize("name", registry())
def test_compressors_work_at_the_ends_of_their_ranges(name: str) -> None:
    x = draw_gaussian((12, 20))
    for option, value in ends(registry()[name]):
        try:
            compressor = single_worker.copy_without_state(build(name, **{option: value}))
        except InvalidParameter:
            continue  # where another option's default does not go with it
        for step in (1, 2):
            key = Key(0, 0, step, 0)
            if compressor.needs_movement and step > 1:
                compressor.observe_movement(0, 1.0, 0.1)
            payload = single_worker.encode(compressor, x, key)
            assert len(payload) <= compressor.payload_bound(x.shape), (option, value)
            q = compressor.decompress(payload, x, key)
            compressor.finish(q, key, 1)
            assert q.isfinite().all(), (option, value)
        compressor.law(x.shape)


@pytest.mark.parametrize("name", memories.REGISTRY)
def test_memories_work_at_the_ends_of_their_ranges(name: str) -> None:
    x, compressor = draw_gaussian((12, 20)), build("topk")
    for option, value in ends(memories.REGISTRY[name]):
        kept = memories.build(name, **{option: value})
        for step in (1, 2):
            kept.begin(0.1, 2, lambda: 1.0)
            p = kept.compensate(0, x)
            assert p.isfinite().all(), (option, value)
            payload = compressor.compress(p, Key(0, 0, step, 0))
            kept.update(Key(0, 0, step, 0), p, payload, compressor)
            kept.finish(0, torch.zeros_like(x))


@pytest.mark.parametrize("compressor", [{"name": 7}, {"name": None}, {"name": ["qsgd"]}, {"name": "qsgd", 1: 2}, {}])
def test_a_pattern_of_a_policy_that_is_no_compressor_is_refused(compressor: dict[Any, Any]) -> None:
    with pytest.raises(InvalidParameter, match="patterns=.* valid is a list of"):
        Policy(patterns=[{"match": "a", "compressor": compressor}])


def test_policies_take_the_ends_of_their_ranges() -> None:
    for option, value in ends(Policy, "warmup_ratios", "patterns"):
        policy = Policy(**{option: value})
        assert 0 < policy.ratio(1, 0.001) <= 1
    for option, value in ends(Accordion, "relaxed"):
        assert getattr(Accordion(**{option: value}), option) == value
