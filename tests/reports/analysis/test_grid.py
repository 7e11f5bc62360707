"""What was swept becomes rows, what was not becomes the caption."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import reports
from reports.analysis.cells import AGAINST, choose_baseline
from reports.analysis.grid import Grid, lay_out_runs
from reports.analysis.remarks import explain_scripts
from reports.building.sweep_report import read_report
from reports.reading.text import format_setting
from tests.reports import fabricate


def grid_of(directory: Path, *configs: dict[str, Any], swept: tuple[str, ...] = ()) -> Grid:
    sweep = directory / f"sweep-{len(list(directory.iterdir()))}"
    (sweep / "runs").mkdir(parents=True)
    for number, config in enumerate(configs):
        fabricate.run(sweep, config, "pending", name=f"{number}-abc")
    return lay_out_runs(reports.load(sweep).runs, swept)


def test_the_swept_keys_are_found_without_being_told(nine: Path) -> None:
    runs = reports.load(nine).runs
    for grid in (lay_out_runs(runs), lay_out_runs(runs, ["compressor", "workers"])):
        assert grid.labels == ["none", "qsgd", "svd"] and grid.workers == [2, 4, 8] and grid.keys == ()
        assert list(grid.runs["label"]) == ["none"] * 3 + ["qsgd"] * 3 + ["svd"] * 3
        assert list(grid.runs["workers"]) == [2, 4, 8] * 3


def test_an_exchange_that_follows_from_the_compressor_is_no_key(tmp_path: Path) -> None:
    """exchange=auto,tuned is allreduce for none and allgather for qsgd, each with and without a trial."""
    grid = [
        fabricate.config(name, workers, exchange__tune=tune)
        for name in ("none", "qsgd")
        for workers in (2, 4)
        for tune in (False, True)
    ]
    swept = ("exchange", "compressor", "workers")
    sweep = fabricate.sweep(tmp_path / "tuned", grid, swept=list(swept))
    tables = {table.name: table for table in read_report([sweep], sweep).tables}
    made = tables["speedup"]
    assert [column.name for column in made.columns[:2]] == ["compressor", "exchange.tune"]
    assert [row[0].text for row in made.rows] == ["none", "none", "qsgd", "qsgd"]
    assert not any("no baseline" in cell.text for row in made.rows for cell in row)
    chosen = [fabricate.config(exchange__name=name) for name in ("allreduce", "allgather")]
    assert grid_of(tmp_path, *chosen, swept=swept).keys == ("exchange",)
    zipped = [fabricate.config("none", w, exchange__name=name) for w, name in ((2, "allreduce"), (4, "allgather"))]
    assert grid_of(tmp_path, *zipped, swept=swept).keys == ("exchange",), "it follows from the workers"


def test_runs_that_differ_only_in_their_seed_are_one_cell(tmp_path: Path) -> None:
    configs = [fabricate.config(workers=w, seed=seed) for w in (4, 2) for seed in (10, 9)]
    for swept in ((), ("workers", "seed")):
        grid = grid_of(tmp_path, *configs, swept=swept)
        assert grid.keys == () and grid.seeds == (9, 10) and grid.run_keys == ("seed",)
        assert list(zip(grid.runs["workers"], grid.runs["seed"], strict=True)) == [(2, 9), (2, 10), (4, 9), (4, 10)]
        assert list(grid.runs["cell"]) == [0, 0, 1, 1]
        assert "seeds 9 and 10" in grid.caption and "follows" not in grid.caption


def test_one_seed_is_a_constant_like_any_other(nine: Path) -> None:
    grid = lay_out_runs(reports.load(nine).runs)
    assert grid.seeds == (0,) and grid.run_keys == () and list(grid.runs["cell"]) == list(range(9))
    assert "seed=0" in grid.caption and "seeds" not in grid.caption


def test_what_follows_the_seed_is_no_key(tmp_path: Path) -> None:
    configs = [fabricate.config(c, seed=s, batch__size=64 + s) for c in ("none", "qsgd") for s in (0, 1, 2)]
    grid = grid_of(tmp_path, *configs)
    assert grid.keys == () and list(grid.runs["cell"]) == [0, 0, 0, 1, 1, 1]
    assert grid.caption.endswith("set by what was swept: batch.size")
    folds = [fabricate.config(seed=s, batch__size=64 + s % 2) for s in (0, 1, 2)]
    assert grid_of(tmp_path, *folds, swept=("seed",)).keys == (), "only the seed was swept"


def test_what_was_swept_with_a_seed_drawn_for_each_is_a_key(tmp_path: Path) -> None:
    configs = [fabricate.config(seed=s, optimizer__lr=lr) for s, lr in enumerate((0.1, 0.1, 0.2, 0.2))]
    for swept in ((), ("optimizer.lr",)):
        grid = grid_of(tmp_path, *configs, swept=swept)
        assert grid.keys == ("optimizer.lr",) and list(grid.runs["cell"]) == [0, 0, 1, 1]


def test_the_same_run_in_two_sweeps_is_two_cells(tmp_path: Path) -> None:
    for name in ("a", "b"):
        fabricate.sweep(tmp_path / name, [fabricate.config(seed=seed) for seed in (0, 1)])
    grid = lay_out_runs(reports.load(tmp_path / "a", tmp_path / "b").runs)
    assert grid.keys == ("sweep",) and list(grid.runs["cell"]) == [0, 0, 1, 1]


def test_hyper_parameters_of_a_compressor_become_its_label(tmp_path: Path) -> None:
    levels = [fabricate.config("qsgd", compressor__levels=n) for n in (127, 7, 15)]
    grid = grid_of(tmp_path, *levels)
    assert grid.labels == ["qsgd levels=7", "qsgd levels=15", "qsgd levels=127"] and grid.keys == ()
    both = grid_of(tmp_path, *levels, fabricate.config("svd"), fabricate.config("none"))
    assert both.labels == ["none", *grid.labels, "svd"], "svd has no levels"
    other = grid_of(tmp_path, *levels, fabricate.config("nuqsgd", compressor__levels=6))
    assert other.labels == ["nuqsgd", *grid.labels], "what tells others apart says nothing of the only one"
    assert "levels=6" in other.options["nuqsgd"] and "levels" not in other.options["qsgd"]


def test_keys_of_all_kinds_and_types_tell_runs_apart(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {"optimizer__lr": 0.1, "optimizer__nesterov": True},
        {"optimizer__lr": 0.01, "optimizer__nesterov": False},
        {"optimizer__lr": "auto", "optimizer__nesterov": None},
        {"optimizer__lr": [1, 2], "optimizer__nesterov": {}},
    ]
    grid = grid_of(tmp_path, *(fabricate.config(**change) for change in changes))
    assert grid.keys == ("optimizer.lr", "optimizer.nesterov")
    assert len(set(zip(grid.runs["optimizer.lr"], map(str, grid.runs["optimizer.nesterov"]), strict=True))) == 4


def test_what_follows_from_a_group_is_no_row(tmp_path: Path) -> None:
    models = [{"name": "resnet", "depth": 18}, {"name": "mlp", "width": 128}]
    grid = grid_of(tmp_path, *(fabricate.config(model=model) for model in models))
    assert grid.keys == ("model",)
    same = grid_of(tmp_path, *(fabricate.config(model=model) for model in (*models, {"name": "mlp", "width": 64})))
    assert same.keys == ("model", "model.width")


def test_override_syntax_is_understood_and_more_keys_are_added_where_it_does_not_suffice(tmp_path: Path) -> None:
    configs = [fabricate.config(seed=seed, optimizer__lr=lr) for seed in (0, 1) for lr in (0.1, 0.2)]
    grid = grid_of(tmp_path, *configs, swept=("+experiment", "optimizer.lr", "compressor.name", "++seed"))
    assert grid.keys == ("optimizer.lr",) and grid.seeds == (0, 1)
    more = fabricate.config(seed=0, optimizer__lr=0.1, batch__size=64)
    assert grid_of(tmp_path, *configs, more, swept=("optimizer.lr",)).keys == ("optimizer.lr", "batch.size")
    assert grid_of(tmp_path, *configs, swept=("experiment",)).keys == ("optimizer.lr",)


def test_places_are_no_difference_and_equal_runs_are_still_told_apart(tmp_path: Path) -> None:
    configs = [fabricate.config(data={"root": place}, mpi={"command": place}) for place in ("a", "b")]
    grid = grid_of(tmp_path, *configs)
    assert grid.keys == ("run",) and list(grid.runs["run"]) == ["0-abc", "1-abc"]


def test_the_caption_says_what_is_constant_and_what_belongs_to_a_compressor(nine: Path) -> None:
    grid = lay_out_runs(reports.load(nine).runs)
    caption = grid.settings
    assert "model=wideresnet (depth=10, widen=1, dropout=0)" in caption
    assert "batch (size=128, per=global)" in caption and "nesterov=true" in caption and "max_steps" not in caption
    assert grid.caption == "seed=0, epochs=15, batch (size=128), model=wideresnet, dataset=digits"
    assert grid.options["none"] == "exchange=allreduce" and "levels" not in caption
    assert grid.options["qsgd"] == "exchange=allgather, levels=7, bucket_size=512, norm=max"
    assert "workers=" not in caption and "data" not in caption.replace("dataset", "") and "mpi" not in caption


def test_the_caption_names_what_differs_from_the_defaults(tmp_path: Path) -> None:
    """Of the group's choice, whoever has set it; without a known default, what was typed."""
    adam = {"name": "adam", "lr": 0.01, "beta1": 0.9, "weight_decay": 0.5, "mine": 3}
    grid = grid_of(tmp_path, *(fabricate.config(workers=w, optimizer=adam, kernels="torch") for w in (2, 4)))
    assert "optimizer=adam (lr=0.01, weight_decay=0.5, mine=3)" in grid.caption and "beta1" not in grid.caption
    typed = dataclasses.replace(grid, typed=("compressor", "kernels"))
    assert "mine" not in typed.caption and "weight_decay" in typed.caption and "kernels=torch" in typed.caption
    assert "kernels" not in dataclasses.replace(grid, typed=()).caption, "auto became torch before the run"


def test_the_caption_names_what_follows_from_the_rest(tmp_path: Path) -> None:
    configs = [fabricate.config(workers=w, batch__size=64 * w) for w in (2, 4)]
    grid = grid_of(tmp_path, *configs)
    assert grid.keys == () and grid.entangled == ("batch.size",)
    assert grid.caption.endswith("set by what was swept: batch.size")


def test_configs_without_the_usual_keys(tmp_path: Path) -> None:
    bare = fabricate.config()
    sweep = fabricate.sweep(tmp_path / "bare", [bare])
    for path in sweep.glob("runs/*/config.yaml"):
        path.write_text("status: 3\nnothing: null\n")
    grid = lay_out_runs(reports.load(sweep).runs)
    assert grid.labels == ["unknown"] and [format_setting(count) for count in grid.workers] == [""]
    assert grid.constants["config.status"] == 3, "not mistaken for the status of the run"


def of_script(**own: Any) -> dict[str, Any]:
    return fabricate.config(trainer={"name": "script", "command": ["python", "train.py"], "directory": "/w"}, own=own)


def test_runs_of_scripts_are_told_apart_by_their_own_keys(tmp_path: Path) -> None:
    configs = [of_script(hook=hook, rank=rank) for hook, rank in (("fp16", 1), ("none", 1), ("powersgd", 2))]
    grid = grid_of(tmp_path, *configs, swept=("own.hook",))
    assert grid.is_of_scripts and grid.labels == ["none"] and grid.keys == ("own.hook",)
    assert grid.by_method.labels == ["fp16", "none", "powersgd"] and grid.by_method.keys == ()
    assert choose_baseline(grid) == {"own.hook": "none"} and "/w" not in grid.caption
    assert "trainer=script (command=['python', 'train.py'])" in grid.caption
    assert explain_scripts(grid.runs)[0].startswith("scripts (trainer=script) do not race: ")
    without = grid_of(tmp_path, *(of_script(rank=rank) for rank in (1, 2)))
    assert choose_baseline(without) is AGAINST and without.by_method.labels == ["1", "2"]


def test_our_own_training_is_not_named(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, fabricate.config(trainer={"name": "sgd"}), fabricate.config("qsgd"))
    assert not grid.is_of_scripts and "trainer" not in grid.caption and explain_scripts(grid.runs) == []
    assert choose_baseline(grid) is AGAINST
