"""Where sweeps lie, wherever hydra.sweep.dir puts them: code, estimates and reuse ask one module."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradsweep import files, run_directory
from gradsweep.run_directory import Run
from gradsweep.sweeps import sweep_locations
from gradsweep.sweeps.sweep_locations import last_sweep
from sweep.directory import run_layout
from sweep.directory.run_identity import Point
from sweep.planning import reuse
from sweep.planning.estimate import Estimator
from sweep.provenance import code_snapshot
from tests.sweep.fakes import resolved
from tests.sweep.planning.test_dry_run import config, finish

DATED = "output/2026-11-20/14-03-22"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize(
    ("sweep", "root", "store"),
    [
        (DATED, "output", "output/.code"),
        ("a/b/c/2026-11-20/mine", "a/b/c", "a/b/c/.code"),
        ("mine", ".", "mine/.code"),
        ("a/b/c/mine", "a/b/c", "a/b/c/mine/.code"),
    ],
)
def test_the_root_of_a_sweep(sweep: str, root: str, store: str, absolute: bool, tmp_path: Path) -> None:
    base = tmp_path if absolute else Path()
    assert sweep_locations.root_of(base / sweep) == base / root
    assert code_snapshot.find_store(base / sweep) == base / store


def test_a_name_alone_is_understood_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "output/2026-11-20").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "output/2026-11-20")
    assert sweep_locations.root_of(Path("14-03-22")) == Path("..")


def make(sweep: str, version: str | None = None) -> Run:
    """A sweep with one run, finished by code of a version."""
    (run,) = run_layout.lay_out(Path(sweep), [Point(config(), {})])
    (Path(sweep) / run_directory.SWEEP).write_text("format: 1\n")
    if version is not None:
        finish(run, config())
        run.attempt(1).mkdir()
        files.write_json(run.attempt(1) / run_directory.PROVENANCE, {})
        state = run.state()
        files.write_json(
            run.path(run_directory.STATE), {**state, "attempts": [{**state["attempts"][0], "code_version": "v"}]}
        )
    return run


@pytest.mark.parametrize("new", ["output/2026-11-21/new", "output/new", "a/b/c/new", "a/b/c/2026-11-21/new", "new"])
@pytest.mark.parametrize("earlier", [DATED, "output/mine"])
def test_what_lies_below_output_is_found_from_everywhere(earlier: str, new: str) -> None:
    known, run = make(earlier, "v"), make(new)
    assert Estimator(Path(new)).estimate_seconds(config()) == 10
    assert reuse.take_finished(Path(new), {run: resolved(config())}, "v") == [run]
    assert run.state()["reused_from"] == str(known.directory)


@pytest.mark.parametrize("earlier", ["a/b/c/mine", "a/b/c/2026-11-20/mine"])
@pytest.mark.parametrize(
    ("new", "found"), [("a/b/c/new", True), ("a/b/c/2026-11-21/new", True), ("a/b/new", None), ("a/new", False)]
)
def test_what_lies_elsewhere_is_found_beside_a_sweep(earlier: str, new: str, found: bool | None) -> None:
    found = "2026" not in earlier if found is None else found  # not more than two levels below the root
    make(earlier, "v")
    run = make(new)
    assert (Estimator(Path(new)).estimate_seconds(config()) == 10) == found
    assert bool(reuse.take_finished(Path(new), {run: resolved(config())}, "v")) == found


def test_the_last_sweep_may_have_a_name_of_its_own() -> None:
    sweeps = [DATED, "output/mine", "output/.hidden/mine"]
    for when, sweep in enumerate(sweeps):
        make(sweep)
        os.utime(Path(sweep) / run_directory.SWEEP, (when, when))
    assert last_sweep(sweep_locations.OUTPUT) == Path("output/mine")
    os.utime(Path(DATED) / run_directory.SWEEP, (9, 9))
    assert last_sweep(sweep_locations.OUTPUT) == Path(DATED)
