"""A compressor that needs error feedback and has none is found."""

from __future__ import annotations

from typing import Any

import pytest

import compressors
from tests.trainers.configs import compose_config
from trainers.rules.lost_errors import find_lost_errors


def test_each_compressor_that_loses_its_errors_is_named_once() -> None:
    names = ["none", "topk", "qsgd", "topk", "powersgd", "sign", "fp16"]
    assert find_lost_errors(compose_config(compressor=name) for name in names) == ["topk", "powersgd"]


@pytest.mark.parametrize(
    "changes",
    [
        {"compressor": "topk", "memory": "residual"},
        {"compressor": "topk", "algorithm": "choco"},
        {"compressor": {"name": "randomk", "unbiased": True}},
        {"compressor": "sign_norm", "algorithm": {"name": "local_sgd", "average": "radial_directional"}},
    ],
    ids=["error feedback", "choco keeps errors itself", "unbiased", "no memory is valid"],
)
def test_no_compressor_is_named_where_no_errors_are_lost(changes: dict[str, Any]) -> None:
    assert find_lost_errors([compose_config(**changes)]) == []


def test_scripts_compress_nothing_here() -> None:
    assert find_lost_errors([{"trainer": {"name": "script"}}]) == []


def test_options_of_a_compressor_count() -> None:
    unbiased = compose_config(compressor={"name": "randomk", "unbiased": True})
    assert find_lost_errors([unbiased, compose_config(compressor="randomk")]) == ["randomk"]


def test_a_compressor_of_a_policy_counts() -> None:
    config = compose_config(policy={"patterns": [{"match": "conv", "compressor": {"name": "topk"}}]})
    assert find_lost_errors([config]) == ["topk"]


@pytest.mark.parametrize(
    ("name", "options", "needs"),
    [
        ("topk", {}, True),
        ("powersgd", {}, True),
        ("acp_sgd", {}, True),
        ("onebit", {}, True),
        ("demo", {"signs": True}, True),
        ("int8", {"bits": 4}, True),
        ("int8", {}, False),
        ("int8", {"bits": 4, "stochastic": True}, False),
        ("statistical", {"bits": 2}, True),
        ("statistical", {"bits": 8}, False),
        ("eden", {}, False),
        ("eden", {"scale": "least_error"}, True),
        ("terngrad", {}, False),
        ("intsgd", {}, False),
        ("sign", {}, False),
        ("randomk", {}, True),
        ("randomk", {"unbiased": True, "values": "fp16"}, False),
        ("atomo", {}, False),
        ("fp16", {}, False),
    ],
    ids=str,
)
def test_what_needs_error_feedback(name: str, options: dict[str, Any], needs: bool) -> None:
    assert compressors.build(name, **options).needs_memory is needs
