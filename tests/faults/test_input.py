"""What a config may say: words that mean something to a shell or to a file system stay words."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import runs_of
from sweep.directory.run_identity import build_name
from sweep.settings.mpi import MpiSettings
from sweep.settings.sweep import SweepSettings
from tests.conftest import PLAYED, QUICK
from tests.faults.conftest import HERE, StandInOf, ranks

pytestmark = pytest.mark.thorough

Multirun = Callable[..., tuple[int, str, str]]

NASTY = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "a && touch pwned",
    "| touch pwned",
    "> pwned",
    "../../pwned",
    "/pwned",
    "..",
    "a\ntouch pwned\n",
    "-rf *",
    "'\"\\ $HOME ~ %s {workers} ${workers}",
    "\x1b[31m\x07é\u202e",
]


@pytest.mark.parametrize("value", NASTY)
def test_a_name_stays_within_its_directory(value: str) -> None:
    for swept in ({"key": value}, {"key": value * 100}, {"key": "1", value: "1"}, {}):
        name = build_name(swept)
        assert name and name not in (".", "..") and len(name.encode()) <= 120
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=,+-")
        assert not name.startswith("-")  # a word that could be taken for an option


def test_a_variable_reaches_the_ranks_as_it_is(stand_in: StandInOf, tmp_path: Path) -> None:
    script = f'printf "%s" "$NASTY" > "$4/seen"; {ranks(1, 0)}'
    sweep = stand_in(script, len(NASTY), environment=[{"NASTY": value} for value in NASTY])
    code, out = sweep.finish()
    assert code == 0, out
    assert sorted(run.path("seen").read_text() for run in sweep.runs) == sorted(NASTY)
    assert not list(tmp_path.rglob("*pwned*"))


def test_values_of_a_sweep_from_the_command_line(multirun: Multirun, tmp_path: Path) -> None:
    """Typed, composed, laid out, run and reported: patterns may contain anything."""
    rank = shlex.join([sys.executable, "-S", str(HERE / "rank.py")])
    script = tmp_path / "rank.sh"
    script.write_text(f'{rank} 0 1 0 "$5"\n')
    words = ["a;touch pwned", "$(touch pwned)", "../../pwned", "a\ntouch pwned"]
    swept = ",".join('[{match:"' + word.replace("$(", "[$](") + '",compressor:{name:none}}]' for word in words)
    code, out, err = multirun(
        "-m",
        "hydra.sweep.dir=sweep",
        *QUICK,
        f"policy.patterns={swept}",
        f"mpi.command=[sh,'{script}','{{workers}}']",
        "sweep.snapshot=false",
        without=PLAYED[:1],
    )
    runs = runs_of(tmp_path / "sweep")
    assert len(runs) == len(words), out + err
    assert {run.status() for run in runs} == {run_directory.DONE}
    assert {run.directory.parent for run in runs} == {tmp_path / "sweep/runs"}
    assert not list(tmp_path.rglob("*pwned")) and not list(tmp_path.parent.glob("pwned"))


NAME = "up to 81 of A-Z, a-z, 0-9, '.', '_' and '-', a letter or digit first"


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"retries": -1}, "sweep.retries=-1: valid is an integer from 0 up"),
        ({"backoff_s": -1.0}, "sweep.backoff_s=-1.0: valid is a finite number from 0 up"),
        ({"backoff_s": float("nan")}, "sweep.backoff_s=nan: valid is a finite number from 0 up"),
        ({"max_failures": 0}, "sweep.max_failures=0: valid is an integer from 1 up or null"),
        ({"hang_minutes": 0.0}, "sweep.hang_minutes=0.0: valid is a number above 0, up to 1e+09, or null"),
        (
            {"time_minutes": float("inf")},
            "sweep.time_minutes=inf: valid is a number above 0, up to 1e+09, or null",
        ),
        ({"log_megabytes": 0.0}, "sweep.log_megabytes=0.0: valid is a number from 0.01 to 1e+09"),
        ({"log_megabytes": 1e308}, "sweep.log_megabytes=1e+308: valid is a number from 0.01 to 1e+09"),
        (
            {"name": "a\nb"},
            r"sweep.name='a\nb': valid is up to 81 of A-Z, a-z, 0-9, '.', '_' and '-', a letter or digit first",
        ),
    ],
)
def test_settings_out_of_range(setting: dict[str, float], line: str) -> None:
    with pytest.raises(UsageError) as found:
        SweepSettings(**setting).check()  # type: ignore[arg-type]
    assert str(found.value) == line


def test_a_setting_out_of_range_as_a_user_types_it(multirun: Multirun, tmp_path: Path) -> None:
    line = "sweep.time_minutes=-2.0: valid is a number above 0, up to 1e+09, or null\n"
    assert multirun("-m", *QUICK, "sweep.time_minutes=-2") == (2, "", line)
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("environment", [{"A=B": "x"}, {"": "x"}, {"A": "x\0y"}, {"A\0": "x"}])
def test_variables_that_no_process_can_have(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"mpi\.environment\..*: valid is a name without '=', and no NUL in either"):
        MpiSettings(["sh"], environment).check()
    with pytest.raises(UsageError, match="mpi.command=.*: valid is a list of words without NUL"):
        MpiSettings(["sh", "a\0b"]).check()
