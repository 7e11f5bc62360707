"""The run directory: what is written is whole, what is torn is dropped."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradsweep import errors, files, run_directory
from gradsweep.run_directory import Run
from tests.conftest import ROOT

COLUMNS = ("step", "loss", "note")


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    files.write_json(path, {"status": "running"})
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space"):
        files.write_json(path, {"status": "done"})
    assert files.read_json(path) == {"status": "running"}
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]


def test_written_files_have_the_permissions_of_ordinary_ones(tmp_path: Path) -> None:
    (tmp_path / "ordinary").write_text("")
    files.write_text(tmp_path / "written", "")
    assert (tmp_path / "written").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_lines_of_several_processes_are_all_kept(tmp_path: Path) -> None:
    """A sweep that is left and its launcher write events at once: what one has begun is no torn line to the other."""
    path = tmp_path / "events.jsonl"
    writer = (
        "from pathlib import Path; from gradsweep import files; "
        "[files.append_json(Path({!r}), {{'of': {}, 'n': n}}) for n in range(500)]"
    )
    writers = [subprocess.Popen([sys.executable, "-c", writer.format(str(path), of)], cwd=ROOT) for of in range(4)]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 4
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((line["of"], line["n"]) for line in told) == [(of, n) for of in range(4) for n in range(500)]


def test_json_has_no_nan(tmp_path: Path) -> None:
    files.write_json(tmp_path / "x.json", {"a": math.nan, "b": [math.inf, 1.5], "c": {"d": -math.inf}})
    text = (tmp_path / "x.json").read_text()
    assert json.loads(text, parse_constant=lambda word: pytest.fail(word)) == {
        "a": None,
        "b": [None, 1.5],
        "c": {"d": None},
    }


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1]", b"null"])
def test_json_that_is_none_reads_as_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    assert files.read_json(tmp_path / "x.json") is None
    assert Run(tmp_path).status() == run_directory.PENDING


@given(st.lists(st.text(max_size=20), max_size=6), st.binary(max_size=40).filter(lambda torn: b"\n" not in torn))
def test_a_torn_last_line_is_dropped_and_cut_off(
    tmp_path_factory: pytest.TempPathFactory, notes: list[str], torn: bytes
) -> None:
    path = tmp_path_factory.mktemp("csv") / "steps.csv"
    rows = [{"step": str(i), "loss": "0.5", "note": note} for i, note in enumerate(notes)]
    files.append_rows(path, COLUMNS, rows)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert files.complete_text(path).encode() == whole
    files.append_rows(path, COLUMNS, [{"step": "99", "loss": "1", "note": "after"}])
    assert path.read_bytes() == whole + b"99,1,after\n"


def test_a_torn_header_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_bytes(b"step,lo")
    assert files.last_row(path) is None
    files.append_rows(path, COLUMNS, [{"step": 1, "loss": 2}])
    assert path.read_text() == "step,loss,note\n1,2,\n"


def test_the_last_complete_row(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    assert files.last_row(path) is None
    files.append_rows(path, COLUMNS, [])
    assert files.last_row(path) is None
    files.append_rows(path, COLUMNS, [{"step": i, "loss": i / 2, "note": ""} for i in range(5000)])
    with path.open("ab") as file:
        file.write(b"5000,0.")
    assert files.last_row(path) == {"step": "4999", "loss": "2499.5", "note": ""}


def test_the_tail_of_a_log_of_any_bytes(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"first\n" * 9000 + b"\xff\x00 strange\n\nlast")
    lines = files.tail(tmp_path / "log", 2)
    assert len(lines) == 2 and lines[1] == "last" and "strange" in lines[0]
    assert files.tail(tmp_path / "none") == []


def test_a_missing_value_is_named_null() -> None:
    assert str(errors.bad_value("seed", None, "an integer")) == "seed=null: valid is an integer"


def test_what_a_killed_process_has_left_of_a_file_is_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = {"state.json", ".lock", ".hidden.json", "steps.csv", ".code"}
    for name in (*kept, ".state.json.9w8dyenr", ".config.yaml.a_b0c1d2"):
        (tmp_path / name).write_text("")
    files.remove_partial(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept
