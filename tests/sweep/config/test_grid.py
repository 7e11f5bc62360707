"""Grids beyond products: keys given once, values that go together, points that are left out."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from gradsweep.errors import UsageError
from sweep.config import grid
from sweep.planning.conditions import Condition, PointFilter
from sweep.planning.points import check_points
from sweep.settings.sweep import SweepSettings
from tests.conftest import ROOT
from trainers.config.groups import GROUPS

Multirun = Callable[..., tuple[int, str, str]]


def points(*arguments: str, params: dict[str, Any] | None = None, zipped: Any = ()) -> list[list[str]]:
    return grid.expand_points(params or {}, arguments, zipped, OverridesParser.create())


def test_all_combinations_the_last_key_fastest() -> None:
    assert points("a=1,2", "b=x", "c=range(2)") == [
        ["a=1", "b=x", "c=0"], ["a=1", "b=x", "c=1"], ["a=2", "b=x", "c=0"], ["a=2", "b=x", "c=1"],
    ]  # fmt: skip


def test_the_command_line_wins_over_the_grid_of_the_config_key_by_key() -> None:
    params = {"a": "1,2", "b": "x,y", "c": None, "+d": 5}
    assert points("a=7", "d=6", params=params) == [["a=7", "b=x", "d=6"], ["a=7", "b=y", "d=6"]]


def test_values_that_go_together() -> None:
    found = points("a=1,2", "s=5,6", "b=x,y", "c=3,4", "d=u,v", zipped=[["b", "a"], ["d", "c"]])
    assert found == [
        [f"a={a}", f"b={b}", f"s={s}", f"c={c}", f"d={d}"]
        for a, b in (("1", "x"), ("2", "y"))
        for s in (5, 6)
        for c, d in (("3", "u"), ("4", "v"))
    ]


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        (["g=n,t", "g.r=1,2"], [["g=n"], ["g=t", "g.r=1"], ["g=t", "g.r=2"]]),
        (["g=t,n", "w=2", "g.r=1"], [["g=t", "w=2", "g.r=1"], ["g=n", "w=2"]]),
        (["g=n,q,t", "g.s.deep=5", "g.r=1"], [["g=n"], ["g=q", "g.s.deep=5"], ["g=t", "g.r=1"]]),
        (["g=n,t", "g.typo=1"], [["g=n", "g.typo=1"], ["g=t", "g.typo=1"]]),
        (["g=n", "g.r=1,2"], [["g=n", "g.r=1"], ["g=n", "g.r=2"]]),
        (["g=n,t", "h.r=1"], [["g=n", "h.r=1"], ["g=t", "h.r=1"]]),
        (
            ["g=n,t", "h=n,t", "h.r=1"],
            [["g=n", "h=n"], ["g=n", "h=t", "h.r=1"], ["g=t", "h=n"], ["g=t", "h=t", "h.r=1"]],
        ),
    ],
)
def test_options_count_for_the_choices_that_have_them(typed: list[str], kept: list[list[str]]) -> None:
    options = {"n": [], "t": ["r"], "q": ["s"]}

    def list_options(overrides: Sequence[str], group: str) -> list[str]:
        assert not any(line.startswith(("g.", "h.r")) for line in overrides)
        return options[dict(line.split("=") for line in overrides)[group]]

    assert grid.drop_foreign_options(points(*typed), ["g", "h"], list_options) == kept


@pytest.mark.parametrize(
    ("zipped", "line"),
    [
        ([["a", "c"]], "sweep.zip=[[a,c]]: a has 2, c has 3; valid is as many values of each key"),
        ([["a", "nono"]], "sweep.zip=[[a,nono]]: nono is no key of this grid; valid is some of a, b, c"),
        ([["a", "b"], ["b"]], "sweep.zip=[[a,b],[b]]: b stands in it twice; valid is every key once"),
        (["a", "b"], "sweep.zip=['a', 'b']: valid is a list of lists of keys, such as [[optimizer.lr,workers]]"),
        ("a", "sweep.zip=a: valid is a list of lists of keys, such as [[optimizer.lr,workers]]"),
        ([[1]], "sweep.zip=[[1]]: valid is a list of lists of keys, such as [[optimizer.lr,workers]]"),
        ([[]], "sweep.zip=[[]]: valid is a list of lists of keys, such as [[optimizer.lr,workers]]"),
    ],
)  # fmt: skip
def test_what_cannot_go_together(zipped: Any, line: str) -> None:
    with pytest.raises(UsageError) as error:
        points("a=1,2", "b=x,y", "c=1,2,3", "d=1", zipped=zipped)
    assert str(error.value) == line


def test_a_grid_has_a_list_of_values() -> None:
    with pytest.raises(UsageError, match=r"^a=interval\(0.*\): valid is, in a grid, values such as 1,2,3, range"):
        points("a=interval(0,1)")


@pytest.mark.parametrize(
    "words",
    [
        ("workers=1", "workers=2,3"),
        ("-m", "+a=1", "a=2"),
        ("compressor=svd", "seed=1", "compressor=qsgd"),
        ("++a=1", "~a"),
        ("a@x=1", "a@x=2"),
        ("hydra.sweep.dir=a", "hydra.sweep.dir=b"),
    ],
)
def test_a_key_given_twice(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as error:
        grid.refuse_duplicates(words)
    given = [word for word in words if word not in ("-m", "seed=1")]
    assert str(error.value).startswith(f"{given[0]} and {given[1]}: give ")


@pytest.mark.parametrize(
    "words",
    [("a=1", "b=1"), ("a@x=1", "a@y=1"), ("~a", "+a={b: 1}"), ("a=1", "a.b=1"), ("--x=1", "--x=2"), ("-m", "-m")],
)
def test_keys_given_once(words: tuple[str, ...]) -> None:
    grid.refuse_duplicates(words)


MEMBERS = {"compressor": ["none", "qsgd", "svd"], "model": ["mlp", "wideresnet"]}


def config(compressor: str = "qsgd", workers: int = 4, **other: Any) -> dict[str, Any]:
    options = {"levels": 7} if compressor == "qsgd" else {}
    return {
        "workers": workers,
        "compressor": {"name": compressor, **options},
        "model": {"name": "wideresnet", "depth": 28},
        "precision": "fp32",
        "compile": False,
        "max_steps": None,
        "gpus": [0, 1],
        "batch": {"size": 128},
        "sweep": {},
        "mpi": {},
        "launcher": {"cluster": "local"},
        **other,
    }


CONFIGS = [config(), config("svd", 8)]


def holds(text: str, of: dict[str, Any] = CONFIGS[0]) -> bool:
    return Condition("sweep.exclude", text, CONFIGS, MEMBERS).holds(of)


@pytest.mark.parametrize(
    "text",
    [
        "workers == 4",
        "workers > 2 and compressor == qsgd",
        'compressor == "qsgd"',
        "compressor.name != svd",
        "compressor in [qsgd, none]",
        "compressor not in (svd,)",
        "2 <= workers < 5",
        "model.depth == 28 or workers == 1",
        "not compile",
        "compile == false",
        "max_steps == null",
        "max_steps == 3 or workers == 4",
        "precision == fp32",
        "workers * 2 + 1 == 9",
        "-workers < 0",
        "batch.size // workers == 32 and batch.size % workers == 0 and batch.size / workers >= 32.0",
        "1 in gpus",
        "workers in [batch.size / 32, 1]",
        "qsgd == compressor",
        "   workers == 4  ",
        "(workers > 2) == true",
    ],
)
def test_what_holds(text: str) -> None:
    assert holds(text)
    assert not holds(f"not ({text.strip()})")


def test_a_comparison_with_what_a_point_does_not_have_is_false() -> None:
    svd = CONFIGS[1]
    assert holds("compressor.levels == 7") and not holds("compressor.levels == 7", svd)
    assert not holds("compressor.levels != 7", svd) and not holds("compressor.levels + 1 == 8", svd)
    assert not holds("max_steps > 3") and not holds("max_steps <= 3")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("wrokers > 4", "column 1: wrokers: unknown key; did you mean workers. valid is one of .*workers"),
        (
            "workers > 4 and model.dept == 28",
            "column 17: model.dept: unknown key; did you mean model.depth. valid of model is one of name, depth",
        ),
        ("workers.real == 1", "column 1: workers.real: unknown key; valid is workers itself, which is no section"),
        ("workers > foo", "column 11: foo: unknown key; .*"),
        (
            "compressor == sdv",
            "column 15: sdv is no name of a compressor; did you mean svd. valid is one of none, qsgd, svd",
        ),
        ("compressor in [qsgd, 'foo']", "column 22: foo is no name of a compressor.*"),
        ("workers >", "column 10: invalid syntax; valid is comparisons of keys .*"),
        ("", "column .*: invalid syntax.*"),
        ("workers", "column 1: 4 is neither true nor false; valid is to compare it.*"),
        ("compressor", "column 1: 'qsgd' is neither true nor false.*"),
        ("batch == 3", "column 1: batch is a section; valid is one of its keys, such as batch.size"),
        ("workers > 'a'", "column 1: 4 and 'a' cannot be compared so"),
        ("workers + precision > 4", "column 1: 'fp32' is no number.*"),
        ("workers / 0 > 4", "column 1: .*zero"),
        ("workers in precision", "column 12: is no list.*"),
        ("workers is 4", "column 1: `is` is not understood.*"),
        ("__import__('os').system('true') == 0", "column 1: Call is not understood.*"),
        ("[x for x in gpus] == 1", "column 1: ListComp is not understood.*"),
        ("workers.__class__ == 1", "column 1: workers.__class__: unknown key.*"),
        ("(lambda: 1) == 1", "column 2: Lambda is not understood.*"),
        ("workers ** 9 == 1", "column 1: BinOp is not understood.*"),
        ("gpus[0] == 1", "column 1: Subscript is not understood.*"),
        ("workers == 1j", "column 12: 1j is not understood.*"),
        ("workers := 3", "column 9: invalid syntax.*"),
        ("'é' == x", "column 8: x: unknown key.*"),
        ("(" * 500 + "1" + ")" * 500, ".*"),
        ("1 == " + "-" * 990 + "1", ".*"),
        ("x" * 2000, "an expression of 2000 characters; valid is up to 1000"),
    ],
)
def test_what_is_no_expression_is_one_line(text: str, line: str) -> None:
    with pytest.raises(UsageError) as error:
        holds(text)
    message = str(error.value)
    assert "\n" not in message and re.search(line, message), message
    assert message.startswith("sweep.exclude")


@given(st.text(max_size=40) | st.from_regex(r"\A(workers|compressor|not|and|in|==|<|\(|\)|4|svd|\+|-| ){1,12}\Z"))
def test_any_text_holds_or_not_or_is_refused(text: str) -> None:
    try:
        assert holds(text) in (True, False)
    except UsageError as error:
        assert str(error).isprintable()


def test_every_key_of_a_config_can_be_written() -> None:
    def keys(path: Path) -> set[str]:
        def within(value: Any) -> set[str]:
            return (
                {key for name, item in value.items() for key in (name, *within(item))}
                if isinstance(value, dict)
                else set()
            )

        return within({k: v for k, v in yaml.safe_load(path.read_text()).items() if k not in ("defaults", "hydra")})

    paths = [
        ROOT / "conf" / "config.yaml",
        *(path for group in GROUPS for path in (ROOT / "conf" / group).glob("*.yaml")),
    ]
    found = set().union(*map(keys, paths))
    assert len(found) > 100 and not [key for key in found if not key.isidentifier() or keyword.iskeyword(key)]


def why_not(include: list[str], exclude: list[str]) -> list[str | None]:
    choice = PointFilter(include, exclude, CONFIGS, MEMBERS)
    return [choice.explain_exclusion(each) for each in CONFIGS]


def test_excluded_is_what_one_expression_holds_for_and_included_too() -> None:
    assert why_not([], []) == [None, None]
    assert why_not([], ["workers == 4", "workers == 8"]) == [
        "sweep.exclude: workers == 4",
        "sweep.exclude: workers == 8",
    ]
    assert why_not(["workers == 4", "compressor == svd"], []) == [None, None]
    assert why_not(["workers == 4"], []) == [None, "sweep.include: workers == 4"]
    assert why_not(["workers == 4"], ["compressor == qsgd"])[0] == "sweep.exclude: compressor == qsgd"


@pytest.mark.parametrize("key", ["exclude", "include"])
@pytest.mark.parametrize("value", [3, [3], {"a": 1}, None])
def test_expressions_are_texts(key: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"^sweep.{key}=.*: valid is a list of expressions, such as"):
        SweepSettings(**{key: value}).check()
    assert SweepSettings(exclude="a == 1").read_expressions("exclude") == ["a == 1"]


def test_a_point_that_cannot_work_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(given: Any) -> dict[str, Any]:
        if given["workers"] == 8:
            raise UsageError("workers=8: cannot work")
        return dict(given)

    sections = {"sweep": {"exclude": ["workers == 8"]}, "mpi": {"command": ["true", "{workers}"]}}
    configs = [config(workers=workers, **sections) for workers in (2, 8, 4)]
    typed = [{"workers": "2"}, {"workers": "8"}, {"workers": "4"}]
    left = check_points(configs, typed, resolve)
    assert [one.config["workers"] for one in left.points] == [2, 4] and left.numbers == [0, 2]
    assert [(one.overrides, one.why) for one in left.taken_out] == [(typed[1], "sweep.exclude: workers == 8")]
    first, second = (point.config for point in left.points)
    assert first["model"] is second["model"] or first["model"] is configs[0]["model"]
    with pytest.raises(UsageError, match="takes out all 1 points"):
        check_points(configs[1:2], typed[1:2], resolve)
    with pytest.raises(UsageError, match="workers=8: cannot work"):
        check_points([{**each, "sweep": {}} for each in configs], typed, resolve)
