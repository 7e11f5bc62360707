"""sweep.dry_run and the estimates in it: what would be run, how long it may take, and nothing left behind."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gradsweep import files, run_directory, yaml_files
from gradsweep.run_directory import Run
from sweep.directory import run_identity, run_layout
from sweep.directory.run_state import write_state
from sweep.planning import cost, dry_run, estimate
from sweep.planning.estimate import Estimator, Parallelism
from sweep.planning.points import Points, TakenOut
from sweep.planning.races import group_runs
from sweep.settings.mpi import MpiSettings
from sweep.settings.race import RaceSettings
from sweep.settings.sweep import SweepSettings
from tests.sweep.fakes import resolved

Multirun = Callable[..., tuple[int, str, str]]


def config(**changes: Any) -> dict[str, Any]:
    return {
        "workers": 2,
        "threads_per_worker": 1,
        "epochs": 4,
        "max_steps": None,
        "seed": 0,
        "device": "cpu",
        "gpus": [],
        "gpus_per_node": None,
        "batch": {"size": 128, "per": "global"},
        "model": {"name": "mlp", "width": 64},
        "dataset": {"name": "digits"},
        "compressor": {"name": "qsgd", "levels": 7},
        "memory": {"name": "none"},
        "exchange": {"name": "allgather"},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "sweep": {},
        "mpi": {},
        "launcher": {"cluster": "local"},
        **changes,
    }


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


def finish(run: Run, of: dict[str, Any], seconds: float = 8.0, overhead: float = 2.0) -> None:
    """Leave what a run of 100 steps leaves that trained for so long, on two cores at most."""
    ended = f"2026-11-20T10:00:{seconds + overhead:06.3f}+00:00"
    cores = [0, 1][: of["workers"] * of["threads_per_worker"]]
    attempt = {"number": 1, "started": "2026-11-20T10:00:00.000+00:00", "ended": ended, "cores": cores}
    write_state(run, status=run_directory.DONE, attempts=[attempt])
    result = {
        "status": run_directory.DONE,
        "steps": 100,
        "epochs": of["epochs"],
        "time_s": seconds - 1,
        "evaluate_s": 1,
    }
    files.append_rows(run.path(run_directory.STEPS), ("step",), ({"step": step} for step in range(1, 101)))
    files.append_rows(
        run.path(run_directory.EPOCHS), ("epoch",), ({"epoch": epoch + 1} for epoch in range(of["epochs"]))
    )
    files.write_json(run.path(run_directory.RESULT), result)


def finished(root: Path, sweep: str, of: dict[str, Any], seconds: float = 8.0, overhead: float = 2.0) -> Run:
    (run,) = run_layout.lay_out(root / "2026-11-20" / sweep, [run_identity.Point(of, {})])
    finish(run, of, seconds, overhead)
    return run


def seconds(root: Path, **changes: Any) -> float | None:
    return Estimator(root / "2026-11-21" / "new").estimate_seconds(config(**changes))


def test_nothing_is_known_of_another_model_or_data(tmp_path: Path) -> None:
    assert seconds(tmp_path / "none") is None
    finished(tmp_path, "a", config())
    assert seconds(tmp_path, model={"name": "mlp", "width": 65}) is None
    assert seconds(tmp_path, dataset={"name": "cifar10"}) is None
    assert seconds(tmp_path, device="cuda") is None


def test_an_epoch_takes_as_long_as_in_finished_runs(tmp_path: Path) -> None:
    finished(tmp_path, "a", config(), 8.0)
    finished(tmp_path, "b", config(seed=1), 12.0)
    finished(tmp_path, "c", config(seed=2), 40.0)
    found = Estimator(tmp_path / "2026-11-21" / "new").estimate(
        config(epochs=8, seed=9, optimizer={"name": "sgd", "lr": 5})
    )
    assert found is not None and (found.seconds, found.runs, found.likeness) == (2 + 8 * 12 / 4, 3, "the same")


def test_the_most_alike_count(tmp_path: Path) -> None:
    finished(tmp_path, "same", config(), 4.0)
    finished(tmp_path, "alike", config(compressor={"name": "qsgd", "levels": 1}), 8.0)
    finished(tmp_path, "similar", config(compressor={"name": "svd"}), 16.0)
    finished(tmp_path, "far", config(compressor={"name": "svd"}, workers=16), 30.0)
    estimator = Estimator(tmp_path / "2026-11-21" / "new")

    def like(**changes: Any) -> tuple[float, str]:
        found = estimator.estimate(config(**changes))
        assert found is not None
        return found.seconds - 2, found.likeness

    assert like() == (4.0, "the same")
    assert like(compressor={"name": "qsgd", "levels": 3}) == (6.0, "alike")
    assert like(compressor={"name": "topk"}) == (8.0, "similar")  # the median of those with two workers
    assert like(compressor={"name": "topk"}, workers=12) == (30.0 + 2 * (12 / 16 - 1), "similar")


def test_a_packed_run_is_not_like_one_that_has_to_start(tmp_path: Path) -> None:
    finished(tmp_path, "packed", config(sweep={"pack": True}), 4.0, 0.0)
    finished(tmp_path, "own", config(compressor={"name": "qsgd", "levels": 1}, sweep={"pack": False}), 4.0, 3.0)
    found = Estimator(tmp_path / "2026-11-21" / "new").estimate(config(sweep={"pack": False}))
    assert found is not None and (found.seconds, found.likeness) == (7.0, "alike")


def scaled(of: dict[str, Any], **changes: Any) -> tuple[float, float]:
    """What a finished run of four epochs, 8 s and a start of 2 s tells of another: its start, and all the rest."""
    one = estimate.FinishedRun(
        (), of["workers"], Parallelism.from_config(of, min(2, of["workers"])), True, 0.07, 2.0, 2.0
    )
    asked = config(**changes)
    crew = Parallelism.from_config(asked, 2 if asked["launcher"]["cluster"] == "local" else None)
    told = one.scale_to(crew, asked["batch"]["per"] == "global")
    return told.overhead_s, 4 * told.epoch_s


def test_other_numbers_of_workers_are_scaled_by_how_many_have_a_core() -> None:
    """The work of an epoch is the same, whoever shares it; only the start is every rank's own."""
    assert scaled(config(workers=1), workers=2) == (2, 4)
    assert scaled(config(workers=2), workers=1) == (2, 16)
    assert scaled(config(workers=1), workers=8) == (8, 4)  # four ranks a core
    assert scaled(config(workers=2), workers=8) == (8, 8)
    assert scaled(config(workers=2), workers=2, threads_per_worker=2) == (4, 16)  # one rank at a time
    assert scaled(config(workers=2), workers=8, launcher={"cluster": "slurm"}) == (2, 2)
    assert scaled(config(workers=2, device="cuda"), workers=4, device="cuda") == (2, 4)


def test_a_step_is_scaled_by_whose_samples_it_has() -> None:
    one = estimate.FinishedRun((), 1, Parallelism(1, 1), True, 0.1, 1.0, 1.0)
    assert one.scale_to(Parallelism(8, 2), True).step_s == pytest.approx(0.05)  # a batch shared out to all
    assert one.scale_to(Parallelism(8, 2), False).step_s == pytest.approx(0.4)  # as much for each


def test_it_is_said_what_was_scaled(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(sweep.parent.parent, "a", config(workers=1), 8.0, 2.0)
    out = shown(points(config(workers=2)), sweep, capsys)
    assert out[-2].startswith("estimated: 6.0 s with 2 cores, ")
    assert out[-1] == (
        "  each from finished runs: 1 from 1 run similar to it (~), with other workers or cores, "
        "scaled by how many have a core"
    )


def test_without_a_gpu_auto_is_the_cpu_and_workers_share_its_cores(tmp_path: Path) -> None:
    """device=auto, the default, says nothing of where a run computes: the finished ones do."""
    run = finished(tmp_path, "a", config(device="auto"), 8.0, 2.0)
    estimator = Estimator(tmp_path / "2026-11-21" / "new")
    found = estimator.estimate(config(device="auto", workers=64))
    assert found is not None and found.seconds == 8 + 2 * 32  # 32 ranks a core begin one after the other
    files.write_json(run.path(run_directory.RESULT), {**(run.result() or {}), "device": "cuda:0"})
    found = Estimator(tmp_path / "2026-11-21" / "new").estimate(config(device="auto", workers=64))
    assert found is not None and found.seconds == 8 / 32 + 2 and not found.least


def test_the_same_workers_on_fewer_cores_take_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(tmp_path, "a", config(), 8.0, 2.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    found = Estimator(tmp_path / "2026-11-21" / "new").estimate(config())
    assert found is not None and (found.seconds, found.scaled) == (16 + 4, True)


@pytest.mark.parametrize(("workers", "least"), [(1, False), (2, False), (4, False), (8, True), (64, True)])
def test_far_more_workers_to_a_core_than_ever_measured_take_at_least_so_long(
    tmp_path: Path, workers: int, least: bool
) -> None:
    finished(tmp_path, "a", config(), 8.0, 2.0)
    found = Estimator(tmp_path / "2026-11-21" / "new").estimate(config(workers=workers))
    assert found is not None and found.least is least
    finished(tmp_path, "b", config(workers=64), 50.0, 9.0)
    found = Estimator(tmp_path / "2026-11-21" / "new").estimate(config(workers=64, seed=5))
    assert found is not None and (found.seconds, found.least) == (59, False)


def test_what_is_only_a_bound_is_marked_everywhere(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(sweep.parent.parent, "a", config(), 8.0, 2.0)
    out = shown(points(config(), config(workers=64)), sweep, capsys)
    assert re.search(r"64 +64 +≥1:12$", out[2]) and re.search(r"2 +2 +10\.0 s$", out[3])
    assert out[-2].startswith("estimated: at least 1:22 with 2 cores, ")
    assert "similar to it (≥), with other workers or cores, " in out[-1]
    assert out[-1].endswith(", none with so many to a core")
    dry_run.print_json(points(config(), config(workers=64)), sweep)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["least"] for each in told] == [True, False, True]


def test_nothing_more_is_known_of_what_is_far(tmp_path: Path) -> None:
    finished(tmp_path, "far", config(compressor={"name": "svd"}, workers=16), 30.0)
    found = Estimator(tmp_path / "2026-11-21" / "new").estimate(config(workers=1))
    assert found is not None and found.scaled and found.seconds == 2 / 8 + 60


def test_runs_that_were_cut_short_tell_of_steps_only(tmp_path: Path) -> None:
    finished(tmp_path, "cut", config(max_steps=100), 11.0)
    assert seconds(tmp_path) is None
    assert seconds(tmp_path, max_steps=50) == pytest.approx(2 + 50 * 0.1)
    finished(tmp_path, "whole", config(), 11.0)
    assert seconds(tmp_path) == 2 + 11
    assert seconds(tmp_path, max_steps=50) == pytest.approx(2 + 50 * 0.1)
    assert seconds(tmp_path, max_steps=10**6, epochs=8) == 2 + 22  # the epochs are over first


def test_runs_that_were_cut_short_do_not_hide_whole_ones_of_other_workers(tmp_path: Path) -> None:
    finished(tmp_path, "cut", config(workers=1, max_steps=100), 11.0)
    finished(tmp_path, "whole", config(workers=2), 12.0)
    found = Estimator(tmp_path / "2026-11-21" / "new").estimate(config(workers=1))
    assert found is not None and found.scaled and found.seconds == 2 + 24
    assert seconds(tmp_path, workers=1, max_steps=50) == pytest.approx(2 + 50 * 0.1)  # steps are known


def test_only_the_latest_runs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        run = finished(tmp_path, str(number), config(seed=number), 8.0 + number)
        os.utime(run.path(run_directory.RESULT), (number, number))
    monkeypatch.setattr(estimate, "MOST", 1)
    monkeypatch.chdir(tmp_path)  # where there is no output/ with more of them
    found = Estimator(tmp_path / "2026-11-21" / "new").estimate(config())
    assert found is not None and (found.runs, found.seconds) == (1, 2 + 10)


def test_a_sweep_elsewhere_counts_too_and_damaged_runs_do_not(tmp_path: Path) -> None:
    run = finished(tmp_path / "output", "a", config())
    assert Estimator(run.directory.parent.parent).estimate_seconds(config()) == 10
    state, result = run.path(run_directory.STATE), run.path(run_directory.RESULT)
    state.write_text("[")
    assert seconds(tmp_path / "output") == 8  # the time around the training is not known
    endless = '{"status": "done", "steps": 1, "epochs": 1e999, "time_s": 1}'
    forever = '{"status": "done", "steps": 1, "epochs": 1, "time_s": 1e999}'
    short = '{"status": "diverged", "steps": 1, "epochs": 1}'
    for text in ("{}", '{"status": "done", "steps": null}', short, "[", "[" * 9999, endless, forever):
        result.write_text(text)
        assert seconds(tmp_path / "output") is None
    finish(run, config())
    for text in ("- a", "a: [", "\x00", "workers: 0\n", "a: " + "[" * 9999):
        run.path(run_directory.CONFIG).write_text(text)
        assert seconds(tmp_path / "output") is None


def test_a_config_is_read_in_parts(tmp_path: Path) -> None:
    run = finished(tmp_path, "a", config(phases=[{"epoch": 0, "size": 32}], sweep={"exclude": ["a\nb: c\n\nd", "é"]}))
    assert yaml_files.read_sections(run.path(run_directory.CONFIG)) == config(
        phases=[{"epoch": 0, "size": 32}], sweep={"exclude": ["a\nb: c\n\nd", "é"]}
    )


@pytest.mark.parametrize(
    ("runs", "cores", "most", "wall"),
    [
        ([], 2, None, 0),
        ([(1, 5), (1, 3), (1, 1)], 2, None, 5),
        ([(1, 5), (2, 3), (1, 1)], 2, None, 9),  # strictly in order
        ([(8, 5), (8, 3)], 2, None, 8),
        ([(1, 5), (1, 3)], 2, 1, 8),
    ],
)
def test_when_the_last_run_ends(runs: list[tuple[int, float]], cores: int, most: int | None, wall: float) -> None:
    assert cost.simulate_wall_s(runs, cores, most) == wall


def make_points(
    configs: list[dict[str, Any]],
    typed: list[dict[str, str]],
    taken_out: list[TakenOut],
    settings: SweepSettings,
    mpi: MpiSettings | None = None,
) -> Points:
    """Points as they come from the checks, without these."""
    resolved_points = [
        dataclasses.replace(resolved(each.config), swept=each.swept, overrides=each.overrides)
        for each in run_identity.name_points(configs, typed)
    ]
    return Points(resolved_points, [*typed], list(range(len(configs))), taken_out, settings, mpi or MpiSettings())


def points(*configs: dict[str, Any], taken_out: list[TakenOut] | None = None) -> Points:
    typed = [{"workers": str(each["workers"]), "seed": str(each["seed"])} for each in configs]
    return make_points(list(configs), typed, taken_out or [], SweepSettings(dry_run=True))


def shown(of: Points, directory: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    dry_run.print_table(of, directory, Console(width=200))
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "2026-11-21" / "s"


def test_what_becomes_of_every_point(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = run_layout.lay_out(
        sweep, run_identity.name_points([config(seed=seed) for seed in (1, 2)], [{"seed": "1"}, {"seed": "2"}])
    )
    finish(runs[0], config(seed=1))
    before = sorted(sweep.rglob("*"))
    left = [config(seed=1), config(seed=2), config(seed=3, workers=4), config(seed=3, workers=4), config(seed=3)]
    out = shown(
        points(*left, taken_out=[TakenOut({"workers": "8", "seed": "3"}, "sweep.exclude: workers == 8")]), sweep, capsys
    )
    assert out[0] == (
        "2026-11-21/s: 6 points, 3 runs to do (1 complete, 1 duplicate, 1 taken out), launcher local; "
        "nothing is written or started (sweep.dry_run)"
    )
    known = [run.name for run in runs]
    new = [f"workers={n},seed=3-{run_layout.signature(config(seed=3, workers=n))[:8]}" for n in (4, 2)]
    assert [re.split("  +", line.rstrip()) for line in out[1:8]] == [
        ["#", "run", "workers", "cores", "time", "skipped"],
        ["1", new[0], "4", "4", "~12.0 s"],
        ["2", known[1], "2", "2", "10.0 s"],
        ["3", new[1], "2", "2", "10.0 s"],
        ["", known[0], "2", "2", "done in this sweep"],
        ["", new[0], "4", "4", "the same as 1"],
        ["", "workers=8,seed=3", "sweep.exclude: workers == 8"],
    ]
    assert out[8:] == [
        "estimated: 32.0 s with 2 cores, 32.0 s of runs, 0.0178 core-hours",
        "  each from finished runs: 2 from 1 run with the same settings; "
        "1 from 1 run similar to it (~), with other workers or cores, scaled by how many have a core",
    ]
    assert sorted(sweep.rglob("*")) == before
    again = run_layout.lay_out(sweep, points(*left).points)
    assert [run.name for run in again] == [known[0], known[1], new[0], new[0], new[1]]  # as it was shown


def test_what_all_runs_ask_for_is_said_once(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launcher = {"cluster": "slurm", "nodes": 2, "partition": "gpu", "qos": None}
    finish(run_layout.lay_out(sweep, run_identity.name_points([config()], [{}]))[0], config(), 34.0, 2.0)
    configs = [
        config(seed=1, launcher=launcher, device="cuda", exchange={"name": "star", "placement": "dedicated"}),
        config(
            seed=2, launcher=launcher, device="cuda", gpus=[0, 0], exchange={"name": "star", "placement": "dedicated"}
        ),
    ]
    out = shown(points(*configs), sweep, capsys)
    assert out[1] == "for every run: workers 3, cores 3, nodes 2, partition gpu"
    assert re.split("  +", out[2]) == ["#", "run", "GPUs", "time"]
    assert [re.split("  +", line)[2:] for line in out[3:5]] == [["2", "unknown"], ["1", "unknown"]]
    assert out[5].startswith("estimated: unknown; no finished run below ")
    out = shown(
        points(
            *({**each, "device": "cpu"} for each in configs), config(seed=3, model={"name": "x"}, launcher=launcher)
        ),
        sweep,
        capsys,
    )
    assert "estimated: 1:12 of runs, 0.06 core-hours, 0.04 node-hours, without 1 run of unknown length" in out


def test_an_option_of_the_launcher_does_not_hide_what_a_run_asks_for(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = {"cluster": "local", "cores": None}
    out = shown(
        points(config(seed=1, workers=2, launcher=launcher), config(seed=1, launcher=launcher, workers=1)),
        sweep,
        capsys,
    )
    assert re.split("  +", out[1])[2:4] == ["workers", "cores"]
    launcher["cores"] = 1
    assert shown(points(config(launcher=launcher)), sweep, capsys)[1].endswith("cores 2, launcher.cores 1")


def test_machines_are_told_the_same_in_lines(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (done,) = run_layout.lay_out(sweep, run_identity.name_points([config(seed=1)], [{"workers": "2", "seed": "1"}]))
    finish(done, config(seed=1))
    of = [config(seed=1), config(seed=2), config(seed=2), config(seed=3, dataset={"name": "other"})]
    dry_run.print_json(points(*of, taken_out=[TakenOut({"seed": "9"}, "sweep.exclude: seed == 9")]), sweep)
    *told, ended = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["event"], line["number"], line["standing"]) for line in told] == [
        *(("point", 1, "run"), ("point", 2, "run")),
        *(("point", None, "complete"), ("point", None, "duplicate"), ("point", None, "taken_out")),
    ]
    by_number = {line["run"].partition("-")[0]: line for line in told}
    one = by_number["seed=2"]
    assert (one["workers"], one["cores"], one["gpus"], one["options"]) == (2, 2, 0, {})
    assert one["directory"] == str(sweep / "runs" / one["run"])
    known = told[0] if told[0]["seconds"] else told[1]
    assert (known["seconds"], known["likeness"], known["rests_on"]) == (10.0, "the same", 1)
    assert [line["why"] for line in told[2:]] == [
        "done in this sweep",
        f"the same as {known['number']}",
        "sweep.exclude: seed == 9",
    ]
    assert told[4]["directory"] is None
    assert (ended["event"], ended["points"], ended["unknown"]) == ("dry_run_ended", 5, 1)
    assert ended["counts"] == {"run": 2, "complete": 1, "duplicate": 1, "taken_out": 1}
    assert (ended["seconds"], ended["run_seconds"], ended["node_hours"]) == (10.0, 10.0, None)


def test_cores_of_a_run_and_those_to_share_out_are_two_things(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launcher = {"cluster": "local", "cores": None, "gpus": None}
    finish(
        run_layout.lay_out(sweep, run_identity.name_points([config(workers=1)], [{}]))[0], config(workers=1), 8.0, 2.0
    )
    both = [config(workers=1, launcher=launcher, seed=seed) for seed in (1, 2)]
    out = shown(points(*both, config(workers=2, launcher=launcher)), sweep, capsys)
    assert re.split("  +", out[1])[:4] == ["#", "run", "workers", "cores"]
    one_core = [{**each, "launcher": {**launcher, "cores": 1}} for each in both]
    out = shown(points(*one_core), sweep, capsys)
    assert out[1] == "for every run: workers 1, cores 1, launcher.cores 1"
    assert "estimated: 20.0 s with 1 core, 20.0 s of runs, 0.00556 core-hours" in out


def test_one_run_and_none(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = make_points([config()], [{"compressor": "qsgd", "sweep.dry_run": "true"}], [], SweepSettings())
    out = shown(one, sweep, capsys)
    assert out[0].startswith("2026-11-21/s: 1 point, 1 run to do, launcher local; ")
    assert f"1  compressor=qsgd-{run_layout.signature(config())[:8]}" in out[3]
    finish(run_layout.lay_out(sweep, one.points)[0], config())
    assert shown(one, sweep, capsys)[-1] == "estimated: nothing to do"


def test_a_terminal_gets_a_table(sweep: Path) -> None:
    with Console(width=100, force_terminal=True, record=True, file=open(os.devnull, "w")) as console:
        dry_run.print_table(points(config(seed=1), config(seed=2), config(seed=3, gpus=[7])), sweep, console)
    text = console.export_text()
    assert "│" in text and all(f"seed={seed}-" in text for seed in (1, 2, 3))


def test_a_dry_run_leaves_nothing(multirun: Multirun, tmp_path: Path) -> None:
    command = ("-m", "compressor=qsgd,none,none", "workers=2,4", "sweep.dry_run=true")
    code, out, err = multirun(*command, 'sweep.exclude=["workers > 2 and compressor == qsgd"]')
    assert (code, err) == (0, "")
    assert "6 points, 3 runs to do (2 duplicate, 1 taken out)" in out.splitlines()[0]
    code, out, err = multirun("--json", "sweep.dry_run=true", "hydra.run.dir=here/and/there")
    assert (code, err) == (0, "")
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["point", "dry_run_ended"]
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_brings_its_grid(multirun: Multirun) -> None:
    code, out, err = multirun("-m", "experiment=digits_scaling", "seed=0,5", "sweep.dry_run=true")
    assert (code, err) == (0, "") and "18 points, 14 runs to do (4 taken out)" in out.splitlines()[0]
    assert "compressor=qsgd,workers=4,optimizer.lr=0.2,seed=5-" in out


def test_races_are_estimated_and_with_race_only_nothing_else(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that have been run are none, and runs that are equal race once."""
    grid = [config(seed=1, workers=count, compressor={"name": name}) for count in (2, 4) for name in ("none", "qsgd")]
    finish(run_layout.lay_out(sweep.parent / "old", [run_identity.Point(grid[0], {})])[0], grid[0])

    def plan(mode: str) -> Points:
        of = points(*grid, grid[0])
        race = RaceSettings(mode, seconds=20)
        return dataclasses.replace(of, points=[dataclasses.replace(point, race=race) for point in of.points])

    after = "training: 2 races of at most 20 s a heat, in all 40.0 s, and their set-up"
    out = shown(plan("auto"), sweep, capsys)
    assert f"after {after}" in out and any(line.startswith("estimated: ") for line in out)
    assert not any("race" in line for line in shown(plan("off"), sweep, capsys))
    out = shown(plan("only"), sweep, capsys)
    assert out[0].startswith("2026-11-21/s: 5 points, 4 to race (1 duplicate), launcher local")
    assert out[-1] == f"instead of {after}" and not any("estimated" in line or "time" in line for line in out)
    dry_run.print_json(plan("only"), sweep)
    *told, ended = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["standing"] for line in told] == ["race"] * 4 + ["duplicate"] and told[0]["seconds"] is None
    assert (ended["races"], ended["race_seconds"], ended["seconds"]) == (2, 40, None)
    two = [place.run for place in run_layout.locate_runs(sweep, plan("only").points)[:2]]
    (race,) = group_runs(sweep, dict(zip(two, grid, strict=False)))
    race.directory.mkdir(parents=True)
    files.write_json(race.directory / run_directory.RACE_PLAN, race.build_plan(20, 0.03, {}))
    for name in (run_directory.RESULT, run_directory.RATIOS):
        files.write_json(race.directory / name, {"status": "done"})
    assert "1 race of at most 20 s a heat, in all 20.0 s" in shown(plan("only"), sweep, capsys)[-1]


@pytest.mark.thorough
def test_what_a_dry_run_shows_is_what_is_run_and_a_report_that_stands_stays(multirun: Multirun, tmp_path: Path) -> None:
    rank = tmp_path / "rank.sh"
    rank.write_text(
        '#!/bin/sh\nfor last; do :; done\necho \'{"status": "done", "accuracy": 0.5}\' > "$last/result.json"\n'
    )
    rank.chmod(0o755)
    words = [f'mpi.command=[{rank},"{{workers}}"]', "experiment=quick", "seed=1,2,3", "workers=1,2,3"]
    grid = ["-m", *words, "sweep.zip=[[seed,workers]]", 'sweep.exclude=["seed == 2"]', "hydra.sweep.dir=s"]
    code, planned, err = multirun(*grid, "sweep.dry_run=true")
    assert code == 0 and not (tmp_path / "s").exists(), err
    code, out, err = multirun(*grid, without=["data"])
    assert code == 0 and "1 of 3 points are taken out" in out and "2 of 2 runs to do" in out, out + err
    assert [run.name.rpartition("-")[0] for run in run_directory.runs_of(tmp_path / "s")] == [
        "seed=1,workers=1",
        "seed=3,workers=3",
    ]
    assert all(run.name in planned for run in run_directory.runs_of(tmp_path / "s"))
    report = tmp_path / "s" / "report.html"
    before = report.stat().st_mtime_ns
    code, out, err = multirun(*grid, "sweep.resume=s", without=["data"])
    assert code == 0 and "nothing has changed since s/report.html" in out, out + err
    assert report.stat().st_mtime_ns == before
    code, out, err = multirun(*grid[:-3], "sweep.resume=s", "sweep.zip=[[seed,workers]]", without=["data"])
    assert code == 0 and "1 of 3 runs to do" in out and report.stat().st_mtime_ns > before, out + err


def test_the_longest_run_stands_first_and_what_is_reused_is_named(
    sweep: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [config(seed=1, epochs=1), config(seed=2, epochs=9), config(seed=3)]
    earlier = Run(sweep.parent / "earlier" / "runs" / "seed=3-abc")
    wanted = run_layout.signature(asked[2])
    monkeypatch.setattr(dry_run, "find_reusable", lambda points, directory, signatures: {wanted: earlier})
    out = shown(points(*asked), sweep, capsys)
    assert "2 runs to do (1 reused)" in out[0]
    heading = next(number for number, line in enumerate(out) if line.startswith("#"))
    cells = [re.split("  +", line.rstrip()) for line in out[heading + 1 : heading + 4]]
    assert [line[:2] for line in cells[:2]] == [
        ["1", f"seed=2-{run_layout.signature(asked[1])[:8]}"],
        ["2", f"seed=1-{run_layout.signature(asked[0])[:8]}"],
    ]
    assert cells[2][-1] == "from 2026-11-21/earlier/runs/seed=3-abc"
