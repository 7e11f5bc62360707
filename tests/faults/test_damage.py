"""Whatever stands in the files of a finished sweep, every program answers, and no other run is lost."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import reports.__main__
import sweep.__main__
from gradsweep import files, run_directory
from gradsweep.run_directory import Run, runs_of
from gradsweep.signature import signature
from gradsweep.sweeps import planned_runs
from gradsweep.sweeps.sweep_lock import LOCK
from sweep.launch import opening
from sweep.planning import reuse
from sweep.planning.estimate import Estimator
from tests.reports import fabricate
from tests.sweep.fakes import without_data_and_report

pytestmark = pytest.mark.thorough

PATIENCE_S = 10

CONFIGS = [
    ("none", 2, run_directory.DONE),
    ("qsgd", 2, run_directory.DONE),
    ("svd", 2, run_directory.DIVERGED),
    ("svd", 4, run_directory.FAILED),
]


def finished(directory: Path) -> Path:
    """A sweep as it is left, with all files that one may have; its ranks fail as soon as they are started again."""
    fabricate.sweep(directory, [], created="2026-11-20T14:03:22.000+00:00", overrides=["compressor=none,qsgd,svd"])
    places = {
        "sweep": {"snapshot": False},
        "mpi": {"command": ["sh", "-c", "exit 3"], "environment": {}},
        "launcher": {"cluster": "local"},
    }
    recorded = []
    for compressor, workers, status in CONFIGS:
        config = fabricate.config(compressor, workers, epochs=3, **places)
        full = signature(config)
        name = f"compressor={compressor},workers={workers}-{full[:8]}"
        run = Run(fabricate.run(directory, config, status, name=name))
        recorded.append(planned_runs.entry(name, full, [f"compressor={compressor}"], config))
        files.write_json(run.path(run_directory.STATE), {**run.state(), "signature": full})
        files.write_json(
            run.attempt(1) / run_directory.PROVENANCE, {"format": 1, "cpu": "of some kind", "packages": {"a": "1"}}
        )
        for log in (run_directory.STDOUT, run_directory.STDERR):
            (run.attempt(1) / log).write_text("a line\nanother\n")
    planned_runs.note(directory, recorded)
    (directory / LOCK).write_text('{"pid": 1}\n')
    (directory / run_directory.EVENTS).write_text('{"event": "sweep_started"}\n')
    assert reports.__main__.main([str(directory), "--quiet"]) == 0  # tables, plots, and what it keeps for the next time
    return directory


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("damage") / "output" / "2026-11-20" / "14-03-22")


def cut(path: Path, draw: random.Random) -> None:
    os.truncate(path, draw.randrange(path.stat().st_size + 1))


def empty(path: Path, draw: random.Random) -> None:
    os.truncate(path, 0)


def remove(path: Path, draw: random.Random) -> None:
    path.unlink()


def grow(path: Path, draw: random.Random) -> None:
    os.truncate(path, 1 << 42)


def become_directory(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.mkdir()


def become_fifo(path: Path, draw: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def become_link(path: Path, draw: random.Random) -> None:
    path.unlink()
    path.symlink_to(draw.choice(["/dev/zero", path.name, "/proc/self/environ", "nowhere", "..", "/etc/hostname"]))


def change_bytes(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice([1, 3, 50])):
        place = draw.randrange(len(data) + 1)
        data[place : place + draw.choice([0, 1, 5])] = draw.choice(
            [b"", b"\0", b"\xff", b"[", b"\n", b'"', b"-", b"9e999"]
        )
    path.write_bytes(bytes(data))


def change_lines(path: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    if lines:
        place = draw.randrange(len(lines))
        lines[place : place + draw.choice([1, 2])] = draw.choice([[], [lines[0]], [lines[-1], lines[place]], [b",,\n"]])
    path.write_bytes(b"".join(lines))


ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    2**70,
    1e308,
    -0.0,
    "",
    "x",
    "\x1b[2J\n",
    "../..",
    [],
    [[1, [2]]],
    {},
    {"a": {"b": []}},
]


def change_value(path: Path, draw: random.Random) -> None:
    """Something of another type stands somewhere in a JSON or YAML file; in others a text does."""
    try:
        value = yaml.safe_load(path.read_text("utf-8"))
    except (ValueError, yaml.YAMLError):
        value = None
    places: list[tuple[Any, Any]] = []
    left = [value]
    while left:
        inner = left.pop()
        keys = list(inner) if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ()
        places += [(inner, key) for key in keys]
        left += [inner[key] for key in keys]
    if places:
        inner, key = draw.choice(places)
        inner[key] = draw.choice(ODD)
    else:
        value = draw.choice(ODD)
    path.write_text(json.dumps(value))


def become_bomb(path: Path, draw: random.Random) -> None:
    rows = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    path.write_text("\n".join(["a0: &a0 [x]", *rows]) + "\n")


def become_deep(path: Path, draw: random.Random) -> None:
    path.write_text(draw.choice(["[", '{"a":', "- ", "? "]) * 100_000)


DAMAGES = (cut, empty, remove, grow, become_directory, become_fifo, become_link, change_bytes, change_lines)
DAMAGES += (change_value, change_value, become_bomb, become_deep)


@contextlib.contextmanager
def patience() -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise AssertionError(f"no answer in {PATIENCE_S} s")  # no OSError, which a program may heed

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def answer(main: Callable[[list[str]], int], *arguments: object) -> str:
    """What a program prints; it ends with one of the statuses of which its documentation tells."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), patience():
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            status = int(ended.code or 0)
    out.flush()
    said = out.buffer.getvalue().decode("utf-8", "replace") + err.getvalue()  # type: ignore[attr-defined]
    assert status in (0, 1, 2), (arguments, said)
    assert "Traceback" not in said, (arguments, said)
    return said


def check(directory: Path, damaged: str | None) -> None:
    """Type every command; all runs but the one with this name are in what they say."""
    others = [run.name for run in runs_of(directory) if run.name != damaged]
    status = answer(sweep.__main__.main, "status", directory)
    assert all(name in status for name in others), status
    answer(reports.__main__.main, "list", directory.parent.parent)
    for name in os.listdir(directory / run_directory.RUNS) if (directory / run_directory.RUNS).is_dir() else ():
        answer(reports.__main__.main, "show", directory, name)
        answer(sweep.__main__.main, "logs", directory, name)
    first = f"{directory}/{others[0]}"
    for name in {others[1], damaged or others[1]}:
        answer(reports.__main__.main, "diff", first, f"{directory}/{name}")
    for resumed in (False, True):
        if resumed:
            answer(sweep.__main__.main, "resume", directory)
        built = answer(reports.__main__.main, directory, "--no-plots")
        if (directory / run_directory.SUMMARY).is_file():
            assert set(others) <= set(pd.read_csv(directory / run_directory.SUMMARY)["run"]), built
    for name in others:
        assert Run(directory / run_directory.RUNS / name).status() in (
            run_directory.DONE,
            run_directory.DIVERGED,
            run_directory.FAILED,
        )


def damage(directory: Path, path: str, how: Callable[[Path, random.Random], None], seed: int) -> str | None:
    """Damage a file of a sweep; returns the name of the run that it belongs to."""
    how(directory / path, random.Random(seed))
    parts = Path(path).parts
    return parts[1] if parts[0] == run_directory.RUNS else None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume without preparing the digits and without a process for its report."""
    without_data_and_report(monkeypatch)
    monkeypatch.setattr(opening, "calibrate", lambda: {})


COUNT = itertools.count()
TRIES = settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@TRIES
@given(st.data())
def test_a_damaged_file_costs_its_run_at_most(quick: None, pristine: Path, tmp_path: Path, data: st.DataObject) -> None:
    check_damaged(pristine, tmp_path, data)


@pytest.mark.slow
@settings(TRIES, max_examples=500, derandomize=False)
@given(st.data())
def test_so_it_is_in_500_other_tries(quick: None, pristine: Path, tmp_path: Path, data: st.DataObject) -> None:
    check_damaged(pristine, tmp_path, data)


def check_damaged(pristine: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Damage any file of a copy of the sweep in any way, and type every command."""
    paths = sorted(str(path.relative_to(pristine)) for path in pristine.rglob("*") if path.is_file())
    mostly = [path for path in paths if Path(path).parts[0] not in ("plots", "tables")]
    path = data.draw(st.sampled_from(mostly) | st.sampled_from(paths), "file")
    how = data.draw(st.sampled_from(DAMAGES), "damage")
    seed = data.draw(st.integers(0, 2**32), "seed")
    root = tmp_path / str(next(COUNT))
    directory = root / "output" / "2026-11-20" / "14-03-22"
    shutil.copytree(pristine, directory)
    try:
        check(directory, damage(directory, path, how, seed))
    finally:
        shutil.rmtree(root)


def keep_half(path: Path, _: random.Random) -> None:
    os.truncate(path, path.stat().st_size // 2)


def keep_workers(path: Path, _: random.Random) -> None:
    path.write_text("workers: 2\n")


def keep_whole_sections(path: Path, _: random.Random) -> None:
    text = path.read_text()
    path.write_text(text[: text.index("\noptimizer:") + 1])


@pytest.mark.parametrize(
    "how", [keep_half, keep_workers, keep_whole_sections, empty, become_bomb, become_deep, become_link, grow]
)
def test_a_damaged_config_leaves_its_run_out_by_name_with_the_reason(
    how: Callable[[Path, random.Random], None], quick: None, pristine: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "output" / "2026-11-20" / "14-03-22"
    shutil.copytree(pristine, directory)
    (damaged, *others) = runs_of(directory)
    how(damaged.path(run_directory.CONFIG), random.Random(0))
    said = answer(reports.__main__.main, directory, "--no-plots")
    assert f"left out: runs/{damaged.name}" in said
    assert set(pd.read_csv(directory / run_directory.SUMMARY)["run"]) == {run.name for run in others}
    check(directory, damaged.name)


def test_a_fifo_in_a_neighbouring_sweep_is_not_waited_for(quick: None, pristine: Path, tmp_path: Path) -> None:
    directories = [tmp_path / "output" / "2026-11-20" / name for name in ("mine", "theirs")]
    for directory in directories:
        shutil.copytree(pristine, directory)
    mine, theirs = map(runs_of, directories)
    for run, name in zip(
        theirs, (run_directory.STATE, run_directory.RESULT, run_directory.CONFIG, run_directory.STATE), strict=True
    ):
        become_fifo(run.path(name), random.Random(0))
    become_fifo(directories[1] / run_directory.SWEEP, random.Random(0))
    become_fifo(directories[1] / LOCK, random.Random(0))
    with patience():
        assert len(Estimator(directories[0]).finished) >= len(mine) // 2
        assert reuse.find_finished(directories[0], {run.signature * 8: {} for run in mine}, "v1") == {}
    check(directories[0], None)
    answer(sweep.__main__.main, "status", directories[1])
    answer(sweep.__main__.main, "resume", directories[1])
