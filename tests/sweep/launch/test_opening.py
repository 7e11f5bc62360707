"""The steps before the first submission, and the executor that they make."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from sweep.launch.opening import open_runs
from tests.sweep import fakes


def test_runs_start_seed_by_seed_however_they_were_typed(tmp_path: Path) -> None:
    runs = fakes.lay_out(tmp_path, [fakes.SUCCEED] * 4, max_parallel=1)
    points = fakes.load_points([runs[place] for place in (2, 0, 3, 1)])
    tasks, executor = open_runs(tmp_path, points, Console(quiet=True))
    jobs = executor.submit_runs([tasks(run, point) for run, point in points.items()])
    assert [job.task.run for job in jobs] == list(points)
    for job in jobs:
        job.wait()
    started = {run: run.state()["attempts"][0]["started"] for run in runs}
    assert sorted(started.values()) == list(started.values())
