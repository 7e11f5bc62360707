"""A line says which compressors lose their errors."""

from __future__ import annotations

from typing import Any

import pytest

from trainers.rules.remarks import describe_lost_errors


def make_config(compressor: dict[str, Any], memory: str = "none", algorithm: str = "sgd") -> dict[str, Any]:
    return {"compressor": compressor, "memory": {"name": memory}, "algorithm": {"name": algorithm}}


def test_the_line_names_each_compressor_that_loses_its_errors_once() -> None:
    names = ["none", "topk", "qsgd", "topk", "powersgd", "sign", "fp16"]
    (line,) = describe_lost_errors(make_config({"name": name}) for name in names)
    assert line.startswith("compressor=topk,powersgd with memory=none: ") and "memory=residual" in line


@pytest.mark.parametrize(
    "config",
    [
        make_config({"name": "topk"}, memory="residual"),
        make_config({"name": "topk"}, algorithm="choco"),
        make_config({"name": "randomk", "unbiased": True}),
        {"trainer": {"name": "script"}, "compressor": {"name": "topk"}},
    ],
    ids=["error feedback", "choco keeps errors itself", "unbiased", "script"],
)
def test_no_line_where_no_errors_are_lost(config: dict[str, Any]) -> None:
    assert describe_lost_errors([config]) == []


def test_an_option_that_makes_a_compressor_unbiased_counts() -> None:
    both = [make_config({"name": "randomk"}), make_config({"name": "randomk", "unbiased": True})]
    (line,) = describe_lost_errors(both)
    assert line.startswith("compressor=randomk with")
