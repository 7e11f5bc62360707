"""How many elements a ratio keeps: the published rules, in decimal arithmetic."""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compressors import InvalidParameter, build, registry
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.sparsification import counts


def fields_of(member: type) -> set[str]:
    return {field.name for field in dataclasses.fields(member)}


@pytest.mark.parametrize(
    ("n", "ratio", "rule", "expected"),
    [
        (30, 0.1, "ceil", 3),  # 30 * 0.1 is 3.0000000000000004
        (31, 0.1, "ceil", 4),
        (1000, 0.001, "ceil", 1),
        (1, 0.001, "ceil", 1),
        (1000, 0.001, "floor_plus_one", 2),
        (999, 0.001, "floor_plus_one", 1),
        (10, 1.0, "floor_plus_one", 10),
        (100, 0.29, "at_least_one_floor", 29),  # 100 * 0.29 is 28.999999999999996
        (99, 0.01, "at_least_one_floor", 1),
        (100, 0.9, "drop_ratio", 10),  # 100 * (1 - 0.9) is 9.999999999999998
        (105, 0.9, "drop_ratio", 10),
        (5, 0.99, "drop_ratio", 1),
        (5, 1.0, "drop_ratio", 1),
        (7, 1e-20, "drop_ratio", 6),
        (2**40, 1e-12, "ceil", 2),
    ],
)
def test_the_rules(n: int, ratio: float, rule: str, expected: int) -> None:
    assert counts.count_kept(n, ratio, rule) == expected


@given(
    st.integers(1, 10**9),
    st.decimals("0.0001", 1, places=4),
    st.sampled_from(counts.RULES),
)
def test_a_ratio_is_the_decimal_number_that_was_written(n: int, ratio: Decimal, rule: str) -> None:
    exact = {
        "ceil": math.ceil(n * ratio),
        "floor_plus_one": math.floor(n * ratio) + 1,
        "at_least_one_floor": max(1, math.floor(n * ratio)),
        "drop_ratio": max(1, math.floor(n * (1 - ratio))),
    }
    assert counts.count_kept(n, float(ratio), rule) == min(n, exact[rule])


@pytest.mark.parametrize("ratio", [0.001, 0.1, 0.25, 0.9, 0.999])
def test_a_ratio_and_the_part_that_it_keeps_are_told_apart(ratio: float) -> None:
    dropped = float(1 - Decimal(str(ratio)))
    for rule in ("ceil", "floor_plus_one", "at_least_one_floor"):
        assert counts.compute_part_kept(ratio, rule) == Fraction(str(ratio))
        assert counts.compute_ratio(ratio, rule) == ratio
    assert counts.compute_part_kept(dropped, "drop_ratio") == Fraction(str(ratio))
    assert counts.compute_ratio(ratio, "drop_ratio") == dropped


@pytest.mark.parametrize("name", [name for name, member in registry().items() if "count" in fields_of(member)])
@pytest.mark.parametrize("n", [200, 5000, 30_000])
def test_dropping_nine_tenths_is_keeping_one(name: str, n: int) -> None:
    """Wherever a method works with a ratio, and not only for the number that it keeps."""
    x = draw_gaussian((n,), n)
    keeping, dropping = build(name, ratio=0.1, count="at_least_one_floor"), build(name, ratio=0.9, count="drop_ratio")
    for step in range(3):
        assert torch.equal(dropping.compress(x, make_key(step)), keeping.compress(x, make_key(step)))
    for shape in ((n,), (7,), (3, 5)):
        assert dropping.law(shape) == keeping.law(shape)
        assert dropping.payload_bound(shape) == keeping.payload_bound(shape)


@pytest.mark.parametrize("name", [name for name, member in registry().items() if "count" in fields_of(member)])
def test_dropping_everything_keeps_something(name: str) -> None:
    compressor = build(name, ratio=1.0, count="drop_ratio")
    for n in (1, 50, 30_000):
        x = draw_gaussian((n,), 1)
        q = compressor.decompress(compressor.compress(x, make_key()), x, make_key())
        assert 1 <= int(q.count_nonzero()) <= max(1, n // 2)
        assert 0 < compressor.law((n,)).delta <= 1


@pytest.mark.parametrize("rule", counts.RULES)
@pytest.mark.parametrize("ratio", [1e-9, 0.01, 1.0])
def test_nothing_is_kept_of_nothing(ratio: float, rule: str) -> None:
    assert counts.count_kept(0, ratio, rule) == 0


@pytest.mark.parametrize("name", ["topk", "randomk", "block_randomk", "gtopk"])
def test_ratios_are_above_zero_and_at_most_one(name: str) -> None:
    for wrong in (0, 1.01, -0.5, True, "0.1"):
        with pytest.raises(InvalidParameter, match=f"ratio={wrong}"):
            build(name, ratio=wrong)
    with pytest.raises(InvalidParameter, match="count=round: valid is one of ceil, floor_plus_one"):
        build(name, count="round")
