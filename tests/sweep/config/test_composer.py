"""Points composed quickly are what Hydra makes of them one by one."""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from gradsweep.errors import UsageError
from sweep.config import schema
from sweep.config.cached_repository import CachedRepository, cache_config_files
from sweep.config.composer import Composer, build_plain_config
from sweep.config.error_messages import explain
from sweep.launch.session import Session
from tests.conftest import ROOT
from trainers.config.groups import GROUPS
from trainers.config.run_config import RunConfig
from trainers.rules.resolve import resolve


@pytest.fixture(scope="module")
def loader() -> Iterator[ConfigLoaderImpl]:
    schema.register(RunConfig, GROUPS)
    schema.register_resolvers(Session().choose_directory)
    OmegaConf.register_new_resolver("half", lambda number: -(-number // 2), replace=True)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3", job_name="multirun"):
        loader = GlobalHydra.instance().config_loader()
        assert isinstance(loader, ConfigLoaderImpl)
        yield loader


def composer_of(loader: ConfigLoaderImpl, master: Sequence[str] = ()) -> Composer:
    return Composer(loader, loader.load_configuration("config", list(master), RunMode.MULTIRUN))


def by_hydra(composer: Composer, points: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    loader = GlobalHydra.instance().config_loader()  # with Hydra's own repository
    configs = [loader.load_sweep_config(composer.master, list(lines)) for lines in points]
    return [build_plain_config(config, config.hydra.launcher) for config in configs]


def exactly(configs: Sequence[dict[str, Any]]) -> list[str]:
    """With the types of all values and the order of all keys."""
    return [json.dumps(config) for config in configs]


def grid(*axes: Sequence[str]) -> list[list[str]]:
    return [list(point) for point in itertools.product(*axes)]


SAME = {
    "values": grid(["workers=2", "workers=4"], ["optimizer.lr=0.1", "optimizer.lr=1", "optimizer.lr=1e-3"]),
    "values and groups": grid(["compressor=qsgd", "compressor=svd"], ["seed=1", "seed=2"]),
    "options of a member": grid(["compressor=qsgd"], ["compressor.levels=1", "compressor.levels=7"]),
    "what is null": grid(["max_steps=3", "max_steps=null"], ["clip.norm=0.5", "clip.norm=null"]),
    "texts": grid(["sweep.name='a b=c,d'", 'sweep.name="7"', "sweep.name=plain"], ["seed=1"]),
    "a text that is a number": grid(["device=cpu"], ["sweep.name='3'", "sweep.name='true'"]),
    "true and false": grid(["compile=true", "compile=no"], ["optimizer.nesterov=false", "optimizer.nesterov=True"]),
    "added keys": grid(
        ["compressor=topk"], ["+compressor.values_options.levels=3", "+compressor.values_options.norm=l2"]
    ),
    "an open mapping": grid(
        ["compressor=topk"], ["compressor.values=qsgd"], ["compressor.values_options.levels=3"], ["seed=1", "seed=2"]
    ),
    "an open mapping as a whole": grid(
        ["compressor=topk"],
        ["compressor.values_options={levels:3}", "compressor.values_options={levels:4,norm:l2}"],
    ),
    "keys taken out": grid(["~mpi.environment.OMPI_MCA_coll"], ["seed=1", "seed=2"]),
    "keys taken out in one point": [["seed=1", "~mpi.environment.OMPI_MCA_coll"], ["seed=2"]],
    "forced": grid(["++workers=3", "++workers=5"], ["++compressor.extra=1"]),
    "lists": grid(["trackers=[tensorboard]", "trackers=[]", "gpus=[0,0,1]"], ["seed=1", "seed=2"]),
    "lists of mappings": grid(["phases=[{epoch: 0, size: 32}]", "phases=[]"], ["seed=1", "seed=2"]),
    "mappings": grid(["batch={size: 64, per: worker}", "batch={accumulate: 2}"], ["seed=1"]),
    "a mapping for a group": grid(["optimizer={lr: 0.5}", "optimizer={lr: 0.25}"], ["seed=1"]),
    "a mapping and a key of it": grid(["batch={size: 64}"], ["batch.size=32", "batch.size=16"]),
    "one key twice": [["workers=2", "workers=3"], ["workers=2", "workers=4"]],
    "what comes later wins": [["workers=3", "workers=2"], ["workers=4", "workers=2"]],
    "a mapping after a key of it": grid(["batch.size=32", "batch.size=16"], ["batch={size: 64}"]),
    "interpolations": grid(["seed=${workers}", "epochs=${workers}"], ["workers=2", "workers=4"]),
    "interpolations of values": grid(["batch.size='${half:${workers}}'"], ["workers=8", "workers=16"]),
    "relative interpolations": grid(["batch.accumulate=${.size}", "batch.accumulate=${..workers}"], ["batch.size=8"]),
    "interpolations of what Hydra knows": grid(["sweep.name=${hydra.job.config_name}"], ["seed=1", "seed=2"]),
    "interpolations of sections": grid(["data=${checkpoint}"], ["checkpoint.keep=1", "checkpoint.keep=2"]),
    "experiments": grid(["experiment=quick", "experiment=leansgd_speed"], ["workers=2", "workers=3"], ["epochs=7"]),
    "a group chosen by an experiment": grid(
        ["experiment=quick"], ["model=resnet20", "model=lenet"], ["seed=1", "seed=2"]
    ),
    "groups taken out": grid(["~experiment"], ["seed=1", "seed=2"]),
    "one point": [["seed=1"]],
    "nothing": [[], []],
    "Hydra's own": grid(["hydra.job.name=a"], ["seed=1", "seed=2"]),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", SAME)
def test_points_are_what_hydra_makes_of_them(loader: ConfigLoaderImpl, kind: str) -> None:
    composer = composer_of(loader)
    assert exactly(composer.compose(SAME[kind])) == exactly(by_hydra(composer, SAME[kind]))


LAUNCHER = {
    "of each point": (["+hydra.launcher.nodes=${workers}"], True),
    "computed": (["+hydra.launcher.nodes='${half:${workers}}'", "+hydra.launcher.comment=${compressor.name}"], True),
    "of each other": (["+hydra.launcher.tasks=4", "+hydra.launcher.cpus=${hydra.launcher.tasks}"], True),
    "of its own": (["+hydra.launcher.tasks=4", "+hydra.launcher.cpus=${.tasks}"], True),
    "of what was typed": (["+hydra.launcher.comment=${hydra.overrides.task}"], False),
    "by a name that is put together": (["+hydra.launcher.x=seed", "+hydra.launcher.y='${${.x}}'"], False),
    "by a look-up": (["+hydra.launcher.x=${oc.select:hydra.job.override_dirname}"], False),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", LAUNCHER)
def test_options_of_the_launcher_may_depend_on_the_point(loader: ConfigLoaderImpl, kind: str) -> None:
    master, quickly = LAUNCHER[kind]
    composer = composer_of(loader, master)
    points = grid(["compressor=qsgd"], ["workers=2", "workers=5"], ["seed=1", "seed=2"])
    composed = composer.compose(points)
    assert exactly(composed) == exactly(by_hydra(composer, points))
    assert (composer.hydra_compositions == 1) == quickly


@pytest.mark.thorough
def test_many_points_leave_nothing_behind_in_each_other(loader: ConfigLoaderImpl) -> None:
    draw = random.Random(1)
    pool = [
        *(f"workers={number}" for number in (1, 2, 3)),
        *("optimizer.lr=0.1", "optimizer.lr=0.7", "clip.norm=1.5", "batch={size: 32}", "batch.size=8", "gpus=[1]"),
        *("seed=${workers}", "~mpi.environment.OMPI_MCA_coll", "+mpi.environment.X=1", "precision=bf16", "max_steps=9"),
    ]
    points = [[f"compressor={draw.choice(['qsgd', 'topk'])}", *draw.sample(pool, 3)] for _ in range(16)]
    composer = composer_of(loader)
    assert exactly(composer.compose(points)) == exactly(by_hydra(composer, points))


def test_a_choice_of_groups_is_composed_once_and_equal_sections_are_kept_once(loader: ConfigLoaderImpl) -> None:
    composer = composer_of(loader, ["experiment=quick"])
    lines = (["compressor=qsgd", "compressor=svd"], [f"workers={n}" for n in (2, 4)], [f"seed={n}" for n in range(20)])
    composed = composer.compose(grid(["experiment=quick"], *lines))
    assert composer.hydra_compositions == 2
    assert [(config["compressor"]["name"], config["workers"], config["seed"]) for config in composed[38:42]] == [
        ("qsgd", 4, 18), ("qsgd", 4, 19), ("svd", 2, 0), ("svd", 2, 1),
    ]  # fmt: skip
    assert len({id(config["model"]) for config in composed}) == 1
    assert len({id(config["compressor"]) for config in composed}) == 2


def test_what_is_settled_in_one_point_is_not_in_another(loader: ConfigLoaderImpl) -> None:
    points = grid(["seed=1"], ["compressor=qsgd", "compressor=none"], ["workers=2", "workers=3"])
    composed = composer_of(loader).compose(points)
    before = exactly(composed)
    resolved = [resolve(config) for config in composed]
    assert [config["exchange"]["name"] for config in resolved] == ["allgather"] * 2 + ["allreduce"] * 2
    assert exactly(composed) == before


@pytest.mark.parametrize(
    "points",
    [
        grid(["workers=2", "workers=two"], ["seed=1"]),
        grid(["compressor=qsgd", "compressor=fooo"], ["workers=2", "workers=two"]),
        grid(["wrokers=2", "wrokers=3"]),
        grid(["compressor=svd"], ["compressor.levels=1", "compressor.levels=2"]),
        grid(["+workers=2", "+workers=3"]),
        grid(["seed=1", "seed=2"], ["~nothing.there"]),
        grid(["epochs=${nothing}"], ["seed=1", "seed=2"]),
        grid(["seed=1", "seed=[1"]),
        grid(["seed=1", "seed=2"], ["dataset@x=digits"]),
        grid(["clip=3", "clip=4"]),
        grid(["~memory"], ["seed=1", "seed=2"]),
        grid(["+optimizer@optimizer.second=sgd"], ["seed=1", "seed=2"]),
        grid(["experiment=null"], ["seed=1", "seed=2"]),
        grid(["batch.size=${half:${workers}}"], ["seed=1", "seed=2"]),
    ],
)
def test_errors_are_hydras(loader: ConfigLoaderImpl, points: list[list[str]]) -> None:
    composer = composer_of(loader)
    with pytest.raises(Exception) as expected:
        by_hydra(composer, points)
    with pytest.raises(type(expected.value)) as raised:
        composer.compose(points)
    assert str(raised.value) == str(expected.value)
    assert explain(raised.value, points[-1]) == explain(expected.value, points[-1])


def test_groups_of_another_search_path(loader: ConfigLoaderImpl, tmp_path: Path) -> None:
    for name in ("a", "b"):
        path = tmp_path / "batch" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"size: {ord(name)}\n")
    composer = composer_of(loader, [f"hydra.searchpath=[file://{tmp_path}]"])
    points = grid(["+batch=a", "+batch=b"], ["seed=1", "seed=2"])
    assert [config["batch"]["size"] for config in composer.compose(points)] == [97, 97, 98, 98]


def test_a_grid_of_a_swept_experiment_is_refused(loader: ConfigLoaderImpl, tmp_path: Path) -> None:
    path = tmp_path / "experiment" / "mine.yaml"
    path.parent.mkdir()
    path.write_text("# @package _global_\nhydra: {sweeper: {params: {seed: '1,2'}}}\n")
    composer = composer_of(loader, [f"hydra.searchpath=[file://{tmp_path}]"])
    with pytest.raises(UsageError, match="brings a grid of its own"):
        composer.compose([["experiment=quick"], ["experiment=mine"]])


def test_defaults_that_follow_a_choice(loader: ConfigLoaderImpl, tmp_path: Path) -> None:
    rows = tmp_path / "batch/rows"
    rows.mkdir(parents=True)
    for size, name in enumerate(("small", "large"), start=3):
        (tmp_path / f"batch/{name}.yaml").write_text("defaults: [{rows@_here_: '${batch}'}]\n")
        (rows / f"{name}.yaml").write_text(f"size: {size}\n")
    composer = composer_of(loader, [f"hydra.searchpath=[file://{tmp_path}]"])
    found = composer.compose(grid(["+batch=small", "+batch=large"], ["seed=1", "seed=2"]))
    assert [config["batch"]["size"] for config in found] == [3, 3, 4, 4]


def test_what_is_remembered_stays_as_it_was_read(loader: ConfigLoaderImpl, tmp_path: Path) -> None:
    """A composition changes what it puts together, and may have a search path of its own."""
    remembered = cache_config_files(loader)
    assert isinstance(remembered, ConfigLoaderImpl) and isinstance(remembered.repository, CachedRepository)
    repository = remembered.repository
    master = loader.load_configuration("config", [], RunMode.MULTIRUN)
    for line in ("experiment=digits_scaling", "experiment=quick"):  # one with a section of Hydra's, both at the top
        config = remembered.load_sweep_config(master, ["compressor=qsgd", line])
        OmegaConf.update(config, "compressor.levels", 99)
        OmegaConf.update(config, "workers", 99)
    assert len(repository._results) > 20
    for path, kept in repository._results.items():
        assert kept == loader.repository.load_config(path), path
    by_hydra = loader.repository.load_config("compressor/qsgd")

    (tmp_path / "compressor").mkdir()
    (tmp_path / "compressor/qsgd.yaml").write_text("levels: 3\n")
    elsewhere = copy.deepcopy(repository)
    path = ConfigSearchPathImpl()
    path.append("test", f"file://{tmp_path}")
    elsewhere.initialize_sources(path)
    other, kept = elsewhere.load_config("compressor/qsgd"), repository.load_config("compressor/qsgd")
    assert other is not None and other.config == {"levels": 3} and kept == by_hydra
    assert repository.config_exists("model/mlp") and not elsewhere.config_exists("model/mlp")
