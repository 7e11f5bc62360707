"""A file system without locks, from the command line: `flock` fails in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradsweep import run_directory
from gradsweep.run_directory import runs_of
from tests.conftest import PLAYED, QUICK, ROOT, Program, eventually
from tests.sweep.fakes import SLEEP, end_launcher

pytestmark = pytest.mark.thorough

GRID = ("-m", "hydra.sweep.dir=sweep", *QUICK, "seed=1,2", "workers=1", 'mpi.command=[sh,rank.sh,"{workers}"]')
DONE = """echo '{"status": "done"}' > "$5/result.json"\n"""
NO_LOCKS = ": this file system has no locks; files .soft-* say which process has one\n"


def broken(name: str) -> dict[str, str]:
    paths = (str(ROOT / "tests/faults/broken"), str(ROOT))
    return {"BROKEN_FLOCK": name, "PYTHONPATH": os.pathsep.join(paths)}


def commands(cwd: Path, name: str, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "sweep", *words],
        cwd=cwd,
        env={**os.environ, **broken(name)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    end_launcher(tmp_path / "sweep")


@pytest.mark.parametrize("name", ["ENOLCK"])
def test_a_sweep_without_locks(start: Callable[..., Program], tmp_path: Path, name: str) -> None:
    """Begun, looked at, not begun twice, killed, resumed."""
    (tmp_path / "rank.sh").write_text(f"{SLEEP}\n")
    first = start(*GRID, without=PLAYED, **broken(name))
    eventually(lambda: any(run.status() == run_directory.RUNNING for run in runs_of(tmp_path / "sweep")))
    _, out, err = commands(tmp_path, name, "status", "sweep")
    assert f"run by pid {first.process.pid} on " in out and err == ""
    code, _, err = start(*GRID, without=PLAYED, **broken(name)).end()
    assert code == 2 and "another process is running this sweep" in err and "Traceback" not in err

    first.process.kill()
    _, err = first.process.communicate()
    assert err.count(NO_LOCKS) == 1 and "Traceback" not in err
    assert "nobody is running it" in commands(tmp_path, name, "status", "sweep")[1]
    (tmp_path / "rank.sh").write_text(DONE)
    code, _, err = commands(tmp_path, name, "resume", "sweep")
    assert code == 0 and err.count(str(tmp_path / "sweep") + NO_LOCKS) == 1 and "Traceback" not in err
    assert [run.status() for run in runs_of(tmp_path / "sweep")] == [run_directory.DONE] * 2
    assert not list((tmp_path / "sweep").rglob(".soft-*"))


def test_a_sweep_is_left_to_the_background_without_locks(start: Callable[..., Program], tmp_path: Path) -> None:
    (tmp_path / "rank.sh").write_text(f"{SLEEP}\n")
    code, out, err = start(*GRID, "sweep.wait=false", without=PLAYED, **broken("ENOLCK")).end()
    assert code == 0 and "2 of 2 runs to do" in out and err.count(NO_LOCKS) == 1
    eventually(lambda: runs_of(tmp_path / "sweep")[0].status() == run_directory.RUNNING)
    code, _, err = start(*GRID, without=PLAYED, **broken("ENOLCK")).end()
    assert code == 2 and "another process is running this sweep" in err
    code, out, err = commands(tmp_path, "ENOLCK", "cancel", "sweep")
    assert (code, err) == (0, "") and out.endswith("2 runs of 2 cancelled\n")
    eventually(lambda: "nobody is running it" in commands(tmp_path, "ENOLCK", "status", "sweep")[1])
    assert "Traceback" not in (tmp_path / "sweep/launcher.log").read_text()
    assert not list((tmp_path / "sweep").glob(".soft-*"))
