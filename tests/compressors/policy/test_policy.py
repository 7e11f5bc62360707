"""Gates, warm-ups, exceptions and Accordion: which compressor is in force, for which unit, at which step."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from compressors import Compressor, InvalidParameter, build
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels.reference import sums
from compressors.policy.policy import Accordion, Policy, Selector

UNITS = [("conv.weight", (8, 4, 3, 3)), ("conv.bias", (8,)), ("fc.weight", (10, 40)), ("fc.bias", (10,))]


def selector(compressor: Compressor | None = None, **policy: Any) -> Selector:
    return Selector(Policy(**policy), compressor or build("qsgd"), UNITS, 2)


def names(one: Selector, step: int = 1, epoch: int = 1, lr: float = 0.1) -> list[str]:
    one.begin(step, epoch, lr)
    return [compressor.name for compressor in one.selected]


def test_without_a_policy_everything_is_compressed() -> None:
    one = selector()
    assert names(one) == ["qsgd"] * 4
    assert len({id(compressor) for compressor in one.selected}) == 1
    assert one.begin(2, 1, 0.1) is False


def test_small_and_one_dimensional_tensors_can_be_sent_dense() -> None:
    assert names(selector(min_elements=289)) == ["none", "none", "qsgd", "none"]
    assert names(selector(min_elements=288)) == ["qsgd", "none", "qsgd", "none"]
    assert names(selector(dense_1d=True)) == ["qsgd", "none", "qsgd", "none"]


def test_compression_can_start_later() -> None:
    one = selector(start_step=3)
    assert names(one, 1) == names(one, 2) == ["none"] * 4
    assert one.begin(3, 1, 0.1) is True and one.selected[0].name == "qsgd"
    assert one.begin(4, 1, 0.1) is False


def test_the_first_pattern_found_in_a_name_decides_before_the_gates() -> None:
    patterns = [
        {"match": r"^fc\.", "compressor": {"name": "qsgd", "levels": 1}},
        {"match": "weight", "compressor": {"name": "none"}},
    ]
    one = selector(patterns=patterns, dense_1d=True)
    assert names(one) == ["none", "none", "qsgd", "qsgd"]
    assert [c.levels for c in one.selected[2:]] == [1, 1]  # type: ignore[attr-defined]
    assert names(selector(patterns=patterns, start_step=5)) == ["none"] * 4


@pytest.mark.parametrize(
    ("final", "options", "expected"),
    [
        # Deep Gradient Compression's warm-up: 75 %, 93.75 %, 98.4375 %, 99.6 % sparsity, then 99.9 %
        (0.001, {"warmup": "list", "warmup_ratios": [0.25, 0.0625, 0.015625, 0.004]}, [0.25, 0.0625, 0.015625, 0.004]),
        # its public implementation: the 1/6th power of the ratio for 5 epochs
        (0.001, {"warmup": "exponential", "warmup_epochs": 5}, [0.31623, 0.1, 0.031623, 0.01, 0.0031623, 0.001]),
        (0.1, {"warmup": "exponential", "warmup_epochs": 9, "warmup_coefficient": 0.5}, [0.5, 0.25, 0.125, 0.1, 0.1]),
        (0.1, {"warmup": "exponential", "warmup_epochs": 1, "warmup_coefficient": 0.5}, [0.5, 0.1, 0.1]),
        (0.2, {}, [0.2, 0.2]),
    ],
)
def test_the_ratio_warms_up(final: float, options: dict[str, Any], expected: list[float]) -> None:
    found = [Policy(**options).ratio(epoch, final) for epoch in range(1, len(expected) + 2)]
    assert found == pytest.approx([*expected, final], rel=1e-4)


def test_a_ratio_of_one_is_dense_and_every_epoch_has_its_own_compressor() -> None:
    one = selector(build("topk", ratio=0.01), warmup="list", warmup_ratios=[1.0, 0.25])
    assert names(one, 1, 1) == ["none"] * 4
    assert names(one, 2, 2) == ["topk"] * 4 and one.selected[0].ratio == 0.25  # type: ignore[attr-defined]
    assert one.begin(3, 2, 0.1) is False
    assert names(one, 4, 3) == ["topk"] * 4 and one.selected[0].ratio == 0.01  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["topk", "dgc", "randomk", "sidco"])
@pytest.mark.parametrize(
    "options",
    [{"warmup": "list", "warmup_ratios": [1.0, 0.25, 0.0625]}, {"warmup": "exponential", "warmup_epochs": 3}],
    ids=lambda options: options["warmup"],
)
def test_a_warm_up_is_of_what_is_kept_also_where_the_ratio_is_what_is_dropped(
    name: str, options: dict[str, Any]
) -> None:
    keeping = selector(build(name, ratio=0.01, count="at_least_one_floor"), **options)
    dropping = selector(build(name, ratio=0.99, count="drop_ratio"), **options)
    for epoch in range(1, 6):
        assert names(keeping, epoch, epoch) == names(dropping, epoch, epoch)
        for index, (_, shape) in enumerate(UNITS):
            x = draw_gaussian(shape, index)
            assert torch.equal(
                keeping.selected[index].compress(x, make_key()), dropping.selected[index].compress(x, make_key())
            )
        if epoch > 1:
            parts = [one.selected[0].ratio for one in (keeping, dropping)]  # type: ignore[attr-defined]
            assert parts[0] + parts[1] == pytest.approx(1.0) and parts[0] < 0.5
    assert dropping.selected[0].ratio == 0.99  # type: ignore[attr-defined]


def test_nothing_can_be_warmed_up_to_from_a_ratio_that_drops_everything() -> None:
    with pytest.raises(InvalidParameter, match="warmup_coefficient=None: valid is a number where"):
        selector(build("topk", ratio=1.0, count="drop_ratio"), warmup="exponential")
    given = selector(build("topk", ratio=1.0, count="drop_ratio"), warmup="exponential", warmup_coefficient=0.5)
    assert names(given) == ["topk"] * 4 and given.selected[0].ratio == 0.5  # type: ignore[attr-defined]


def accordion(**options: Any) -> Selector:
    return selector(accordion=Accordion(option="levels", relaxed=127, **{"interval": 2, **options}))


def levels(one: Selector, epoch: int, scale: list[float], lr: float = 0.1) -> list[int]:
    """What is selected in an epoch of three steps, the mean gradient of each unit being constant."""
    for step in range(3):
        one.begin(3 * epoch + step, epoch, lr)
        for index, (_, shape) in enumerate(UNITS):
            one.observe(index, torch.full(shape, float(scale[index])))
    return [compressor.levels for compressor in one.selected]  # type: ignore[attr-defined]


def test_accordion_compresses_less_where_gradients_change() -> None:
    """Norms are compared every second epoch, against a threshold of half of the last one."""
    one = accordion()
    assert levels(one, 1, [1, 1, 1, 1]) == [127] * 4
    assert levels(one, 2, [1, 1, 1, 1]) == [127] * 4
    assert levels(one, 3, [9, 9, 9, 9]) == [127] * 4  # the first comparison has nothing to compare with
    assert levels(one, 4, [0.51, 0.5, 1.49, 1.5]) == [127] * 4
    assert levels(one, 5, [1, 1, 1, 1]) == [7, 127, 7, 127]
    assert levels(one, 6, [0.51, 0.5, 1.49, 0.1]) == [7, 127, 7, 127]
    assert levels(one, 7, [1, 1, 1, 1]) == [7, 7, 7, 127]


def test_accordion_compresses_less_after_a_drop_of_the_learning_rate() -> None:
    one = accordion()
    for epoch in range(1, 6):
        found = levels(one, epoch, [1, 1, 1, 1])
    assert found == [7] * 4
    assert levels(one, 6, [1, 1, 1, 1], lr=0.06) == [7] * 4
    assert levels(one, 7, [1, 1, 1, 1], lr=0.02) == [127] * 4
    assert levels(one, 8, [1, 1, 1, 1], lr=0.02) == [127] * 4
    assert levels(one, 9, [1, 1, 1, 1], lr=0.02) == [7] * 4


def test_a_gradient_that_was_zero_is_a_critical_regime() -> None:
    one = accordion(interval=1)
    for epoch, scale in enumerate([0.0, 0.0, 1.0], 1):
        levels(one, epoch, [scale] * 4)
    assert levels(one, 4, [1, 1, 1, 1]) == [127] * 4
    assert levels(one, 5, [1, 1, 1, 1]) == [7] * 4


def test_the_state_can_be_saved_in_the_middle_of_a_run() -> None:
    first, second = accordion(), accordion()
    for epoch in range(1, 5):
        levels(first, epoch, [1, 1, 2.0**epoch, 1])
    state = first.state_dict()
    second.load_state_dict(state)
    for epoch in range(5, 9):
        scale = [1, 1, 1, 2.0**epoch]
        assert levels(first, epoch, scale) == levels(second, epoch, scale)


def test_the_state_of_compressors_is_saved_with_it() -> None:
    first = selector(build("signum"))
    second = selector(build("signum"))
    first.begin(1, 1, 0.1)
    first.selected[0].compress(draw_gaussian((8, 4, 3, 3)), make_key(1))
    second.load_state_dict(first.state_dict())
    for one in (first, second):
        one.begin(2, 1, 0.1)
    x = -0.01 * draw_gaussian((8, 4, 3, 3))
    assert torch.equal(first.selected[0].compress(x, make_key(2)), second.selected[0].compress(x, make_key(2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_elements": -1}, "min_elements=-1: valid is an integer from 0 up"),
        ({"warmup": "list"}, r"warmup_ratios=\[\]: valid is a list with warmup=list"),
        ({"warmup": "exponential", "warmup_epochs": 0}, "warmup_epochs=0: valid is an integer from 1 up with"),
        ({"warmup_ratios": [0.5]}, r"warmup_ratios=\[0.5\]: valid is a list with warmup=list, else empty"),
        ({"warmup": "list", "warmup_ratios": [1.5]}, r"warmup_ratios=\[1.5\]: valid is a list of ratios above 0"),
        ({"patterns": [{"match": "("}]}, "patterns=.*valid is a list of {match: a regular expression"),
        ({"patterns": [{"match": "(", "compressor": {"name": "none"}}]}, r"patterns=\(: valid is a regular expression"),
        ({"patterns": [{"match": "a", "compressor": {"name": "qsgd", "levels": 0}}]}, "compressor.levels=0: valid is"),
        ({"patterns": [{"match": "a", "compressor": {"name": "foo"}}]}, "compressor.name=foo: valid is one of"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        Policy(**options)


def test_a_policy_that_the_compressor_has_no_option_for_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="warmup=exponential: valid is none with compressor=qsgd"):
        Policy(warmup="exponential").check(build("qsgd"))
    for accordion, message in (
        (Accordion("rank", 2), "accordion.option=rank: valid is an option of compressor=qsgd: levels"),
        (Accordion("levels", 2.5), "accordion.relaxed=2.5: valid is an integer from 1"),
        (Accordion("levels", 0.5), "accordion.relaxed=0.5: valid is an integer from 1"),
        (Accordion("levels", 7.0), "accordion.relaxed=7: valid is another value than the compressor's own levels"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            Policy(accordion=accordion).check(build("qsgd"))
    with pytest.raises(InvalidParameter, match="relaxed=None: valid is given"):
        Accordion("levels")


def test_an_integer_can_take_the_place_of_null() -> None:
    whole = build("qsgd", bucket_size=None)
    relaxed = Policy(accordion=Accordion("bucket_size", 64.0)).build_relaxed(whole)
    assert relaxed == build("qsgd", bucket_size=64) and repr(relaxed) == repr(build("qsgd", bucket_size=64))
    assert repr(Policy(accordion=Accordion("ratio", 1)).build_relaxed(build("topk"))) == repr(build("topk", ratio=1.0))


@pytest.mark.parametrize(
    ("options", "epochs", "message"),
    [
        ({"warmup": "exponential", "warmup_epochs": 8}, 9, "warmup_epochs=8: valid is an integer below .* \\(8\\)"),
        ({"warmup": "list", "warmup_ratios": [0.5, 0.1]}, 3, "warmup_ratios=\\[0.5, 0.1\\]: valid is a list shorter"),
    ],
)
def test_a_warm_up_must_come_to_its_end(options: dict[str, Any], epochs: int, message: str) -> None:
    policy = Policy(**options)
    policy.check_length(epochs)
    with pytest.raises(InvalidParameter, match=message):
        policy.check_length(epochs - 1)


def test_all_kinds_that_may_be_used_are_named() -> None:
    def kinds(**options: Any) -> list[str]:
        return [one.name for one in Policy(**options).list_possible(build("qsgd"))]

    assert kinds() == ["qsgd"]
    assert kinds(start_step=2) == kinds(min_elements=2) == kinds(dense_1d=True) == ["qsgd", "none"]
    assert kinds(warmup="list", warmup_ratios=[1, 0.5]) == ["qsgd", "none"]
    assert kinds(patterns=[{"match": "a", "compressor": {"name": "svd"}}]) == ["qsgd", "svd"]


def patterns(*found: str) -> list[dict[str, Any]]:
    return [{"match": one, "compressor": {"name": "none"}} for one in found]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            ["weigth"],
            r"patterns.match=weigth: valid is a regular expression found in the name of a tensor \(conv.weight, ",
        ),
        (
            ["^fc", "fc.bias"],
            r"fc.bias: valid is .* of a tensor that no pattern before it finds \(conv.weight, conv.bias\)",
        ),
        (["", "conv"], r"conv: valid is .* that no pattern before it finds \(none is left\)"),
    ],
)
def test_a_pattern_that_decides_nothing_is_refused(found: list[str], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        selector(patterns=patterns(*found))
    many = [(f"layer{number}.weight", (2, 2)) for number in range(9)]
    with pytest.raises(InvalidParameter, match=r"\(layer0.weight, layer1.weight, layer2.weight, layer3.weight, ...\)$"):
        Selector(Policy(patterns=patterns("q")), build("none"), many, 2)
    selector(patterns=patterns("fc.bias", "^fc"))


@pytest.mark.parametrize("interval", [1, 3, 4])
def test_accordion_is_refused_where_it_could_not_act(interval: int) -> None:
    """In the shortest run that is not refused, the compressor's own option comes into force in the last epoch."""
    policy = Policy(accordion=Accordion("levels", 127, interval=interval))
    one = selector(accordion=policy.accordion)
    epochs = 1
    while levels(one, epochs, [1, 1, 1, 1]) == [127] * 4:
        epochs += 1
    assert epochs == 2 * interval + 1
    policy.check_length(epochs)
    for fewer in range(1, epochs):
        with pytest.raises(
            InvalidParameter, match=rf"^accordion.interval={interval}: valid is .*{epochs} epochs or more"
        ):
            policy.check_length(fewer)
    Policy().check_length(1)


def test_a_start_behind_the_end_is_refused() -> None:
    Policy(start_step=7).check_length(1, 7)
    with pytest.raises(InvalidParameter, match=r"start_step=8: valid is an integer up to the number of steps \(7\)"):
        Policy(start_step=8).check_length(1, 7)


def test_an_option_that_another_overrules_is_refused() -> None:
    for compressor, policy, message in (
        (
            build("atomo", budget=5.0),
            Policy(warmup="list", warmup_ratios=[0.5]),
            "warmup=list: valid is none with compr",
        ),
        (
            build("atomo", budget=5.0),
            Policy(accordion=Accordion("ratio", 0.5)),
            "accordion.option=ratio: valid is budget",
        ),
        (build("svd", budget=5.0), Policy(accordion=Accordion("rank", 5)), "accordion.option=rank: valid is budget"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            policy.check(compressor)
        policy.check(dataclasses.replace(compressor, budget=None))  # type: ignore[call-arg]
    Policy(accordion=Accordion("budget", 5)).check(build("svd", budget=2.0))


def test_accordion_adds_gradients_of_16_bits_in_32() -> None:
    mean = torch.ones(4, dtype=torch.bfloat16)
    one = Selector(Policy(accordion=Accordion("levels", 9, interval=1)), build("qsgd"), [("w", (4,))], 2)
    one.begin(1, 1, 0.1)
    for _ in range(1000):
        one.observe(0, mean)
    one.begin(1001, 2, 0.1)
    assert one.state_dict()["regimes"]["norms"] == [2000.0] and torch.equal(mean, torch.ones_like(mean))


def test_accordion_compares_norms_that_are_the_same_on_every_host() -> None:
    """Sums in an order of our own: torch's depends on the processor and the number of threads."""
    mean = draw_gaussian((70_001,))
    norm = math.sqrt(sums.moments(mean)[2])
    assert norm != float(mean.double().norm())
    one = Selector(Policy(accordion=Accordion("levels", 9, interval=1)), build("qsgd"), [("w", (70_001,))], 2)
    one.begin(1, 1, 0.1)
    one.observe(0, mean)
    one.begin(2, 2, 0.1)
    assert one.state_dict()["regimes"]["norms"] == [norm]


@pytest.mark.parametrize(
    "changes",
    [
        {"units": [["conv.weight", [8, 4, 3, 3]]]},
        {"units": None},
        {"epoch": None},
        {"epoch": "3"},
        {"lr": None},
        {"regimes": None},
        {"regimes": {"critical": [True] * 3, "norms": [None] * 4, "sums": [None] * 4}},
        {"regimes": {"critical": [1] * 4, "norms": [None] * 4, "sums": [None] * 4}},
        {"regimes": {"critical": [True] * 4, "norms": ["1"] * 4, "sums": [None] * 4}},
        {"regimes": {"critical": [True] * 4, "norms": [None] * 4, "sums": [torch.zeros(3)] * 4}},
        {"regimes": {"critical": [True] * 4, "norms": [None] * 4}},
        {"compressors": None},
        {"compressors": {"TopK(ratio=0.1)": {}}},
        {"compressors": {"Signum(beta=0.9)": None}},
        {"compressors": {"Signum(beta=0.9)": {"0": {"q": torch.zeros(3)}}}},
        {"more": 1},
    ],
    ids=str,
)
def test_what_is_no_state_is_refused_and_changes_nothing(changes: dict[str, Any]) -> None:
    policy = {"accordion": Accordion("beta", 0.5, interval=2)}
    one, other = selector(build("signum"), **policy), selector(build("signum"), **policy)
    one.begin(1, 1, 0.1)
    one.selected[0].compress(draw_gaussian((8, 4, 3, 3)), make_key(1))
    state = one.state_dict()
    one.begin(2, 2, 0.1)
    one.observe(0, draw_gaussian((8, 4, 3, 3)))
    before = one.state_dict()
    for wrong in ({**state, **changes}, None, [], {}):
        with pytest.raises(ValueError, match="state|keeps tensors"):
            one.load_state_dict(wrong)  # type: ignore[arg-type]
        assert str(one.state_dict()) == str(before)
        assert one.begin(2, 2, 0.1) is False
    other.load_state_dict(state)
    other.begin(2, 2, 0.1)
    x = draw_gaussian((8, 4, 3, 3))
    assert torch.equal(one.selected[0].compress(x, make_key(2)), other.selected[0].compress(x, make_key(2)))


def test_norms_of_nothing_are_zero() -> None:
    one = accordion(interval=1)
    one.begin(1, 1, 0.1)
    one.begin(2, 2, 0.1)
    assert one.state_dict()["regimes"]["norms"] == [0.0] * 4 and math.isfinite(one.state_dict()["lr"])
