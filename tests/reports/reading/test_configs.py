"""Configs are read section by section, and mean what YAML says they mean."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gradsweep.signature import signature
from gradsweep.yaml_files import Dumper
from reports.reading import configs
from tests.reports import fabricate

TEXTS = st.text(st.characters(codec="utf-8"))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
NAMES = st.sampled_from(["a", "b_1", "name", "optimizer", "yes", "1", "", "a b", "status", "data", "-", "é"]) | TEXTS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner), max_leaves=8)


@pytest.mark.thorough
@given(st.lists(st.dictionaries(NAMES, VALUES, min_size=1), min_size=1, max_size=4), st.booleans())
@settings(max_examples=40, deadline=None)
def test_what_a_sweep_writes_is_read_as_yaml_does(written: list[dict[str, Any]], allow_unicode: bool) -> None:
    read = configs.Configs()
    for config in written:
        data = yaml.dump(config, Dumper=Dumper, sort_keys=False, allow_unicode=allow_unicode).encode()
        found, value = read.read(data), configs.load_mapping(data)
        assert repr(found.keys) == repr(configs.flatten_keys(value))
        assert found.signature == signature(value)


LINES = "a: 1~b:~- x~  c: 2~  - y~d: 'e~f: g'~# h~i: |~  j~~k: [~]~---~...~l: &m 1~n: *m~a:~  o: 3~? p~: q~<<: {r: 1}"
LINES += "~r: 2~s:\tt~\tu: 4~v: w\x85x: y~z: >-"


@given(
    st.lists(st.sampled_from(LINES.split("~")), min_size=1, max_size=7),
    st.sampled_from(["\n", "\n", "\r\n"]),
    st.booleans(),
)
@settings(max_examples=500, deadline=None)
def test_whatever_is_written_means_what_yaml_says(lines: list[str], end: str, ended: bool) -> None:
    data = (end.join(lines) + (end if ended else "")).encode()
    read = configs.Configs()
    for _ in range(2):  # the second time what is known of sections counts
        assert outcome(read.read, data) == outcome(
            lambda data: configs.Config.from_mapping(configs.load_mapping(data)), data
        )


def outcome(read: Any, data: bytes) -> str:
    try:
        return repr(read(data))
    except ValueError as error:
        return type(error).__name__


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a: {x: 1}\na: {y: 2}\n", {"a.y": 2}),
        ("a: &m {x: 1}\nb: 2\n", {"a.x": 1, "b": 2}),
        ("r: 2\n<<: {r: 1, s: 1}\n", {"r": 2, "s": 1}),
        ("a: 'x\nb: y'\n", {"a": "x b: y"}),
        ("a: 1", {"a": 1}),
    ],
)
def test_sections_that_are_not_by_themselves_are_read_together(text: str, keys: dict[str, Any]) -> None:
    assert configs.Configs().read(text.encode()).keys == keys


def test_equal_sections_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    monkeypatch.setattr(
        configs, "load_mapping", lambda data, load=configs.load_mapping: parsed.append(data) or load(data)
    )
    read = configs.Configs()
    for seed in range(20):
        read.read(yaml.safe_dump(fabricate.config(seed=seed), sort_keys=False).encode())
    sections = len(fabricate.config())
    assert len(parsed) == sections + 19, "nothing but the seeds"
