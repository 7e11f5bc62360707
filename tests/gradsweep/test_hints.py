"""What a mistyped word may mean."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import compressors
from compressors.__main__ import main
from gradsweep.options.hints import did_you_mean, distance, find_nearest, one_of

METHODS = [*compressors.registry(), *compressors.aliases(), *compressors.presets()]
KEYS = ["workers", "epochs", "batch", "batch.size", "optimizer.lr", "algorithm.outer_lr", "compile", "compressor"]


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("qsdg", METHODS, ["qsgd"]),  # two letters swapped are one typo
        ("tpk", METHODS, ["topk"]),
        ("TopK", METHODS, ["topk"]),
        ("top-k", METHODS, ["top_k"]),
        ("random_ditherin", METHODS, ["random_dithering"]),
        ("foo", METHODS, []),
        ("", METHODS, []),
        ("lr", KEYS, ["optimizer.lr"]),
        ("batch_size", KEYS, ["batch.size"]),
        ("wrokers", KEYS, ["workers"]),
        ("optimizer.foo", KEYS, []),  # a long section makes no typo smaller
        ("comp", KEYS, ["compile", "compressor"]),
        ("a=5", ["a=1", "a=2", "b"], ["a=1", "a=2"]),
    ],
)
def test_what_is_nearest(word: str, known: list[str], meant: list[str]) -> None:
    assert find_nearest(word, known) == meant
    assert did_you_mean(word, known) == (f"did you mean {' or '.join(meant)}? " if meant else "")


def test_what_is_no_word_means_nothing() -> None:
    assert did_you_mean(None, ["None"]) == did_you_mean(10**5000, ["1"]) == ""


words = st.text("abc", max_size=6)


@given(words, words)
def test_the_distance_is_symmetric_and_small_for_a_typo(one: str, other: str) -> None:
    assert distance(one, other) == distance(other, one) <= max(len(one), len(other))
    assert (distance(one, other) == 0) == (one == other)
    swapped = one[1::-1] + one[2:]
    assert distance(one, swapped) <= 1 and distance(one, f"{one}x") == 1


def test_many_names_are_listed_by_a_command() -> None:
    assert one_of(["a", "b"], "list") == "one of a, b"
    assert one_of(METHODS, "list") == f"one of the {len(METHODS)} that `list` lists"
    assert one_of(METHODS, "list", "keys") == f"one of the {len(METHODS)} keys that `list` lists"


def test_the_command_that_errors_name_lists_all_methods(no_terminal: None) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(compressors.LISTED_BY.removeprefix("python -m compressors ").split()) == 0
    assert set(METHODS) <= set(re.findall(r"\w+", out.getvalue()))


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["shwo", "qsgd"], "did you mean show? "),
        (["show", "qsdg"], "name=qsdg: did you mean qsgd? "),
        (["check", "qsdg"], "name=qsdg: did you mean qsgd? "),
        (["bench", "qsdg"], "name=qsdg: did you mean qsgd? "),
        (["bench", "--devise", "cpu"], "--devise: unknown; did you mean --device? "),
        (["bench", "--device", "cdua"], "--device cdua: did you mean cuda? "),
    ],
)
def test_commands_have_hints(command: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        assert main(command) == 2
    err = capsys.readouterr().err
    assert line in err and "valid is " in err and err.count("\n") == 1
