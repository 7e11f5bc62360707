"""What was typed and decides nothing: in a single run, in a grid, in a search, and in a directory with a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradsweep import run_directory
from gradsweep.errors import UsageError
from sweep.config import idle_options as idling
from sweep.directory import run_layout
from sweep.launch import execute as launch
from sweep.launch.session import Session
from sweep.planning.points import Points, check_points
from tests.trainers.configs import compose_config
from trainers.rules.idle_options import find_idle
from trainers.rules.resolve import resolve

SETTINGS = {"mpi": {"command": ["true", "{workers}"]}, "launcher": {"cluster": "local"}}
NO_TOPOLOGY = "valid is together with algorithm=dpsgd,choco,deep_squeeze,dcd,ecd,sgp,noloco; here algorithm="


def checked(
    axes: Mapping[str, Sequence[Any]], typed: Mapping[str, str] | None = None, whole: bool = True, **sweep: Any
) -> Points:
    """A grid as it is checked before a start; `typed` is what was typed beside it."""
    points = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    configs = [{**compose_config(**point), "sweep": sweep, **SETTINGS} for point in points]
    words = [{**{key: str(value) for key, value in point.items()}, **(typed or {})} for point in points]
    return check_points(configs, words, resolve, idle=find_idle, whole=whole)


def line(refused: Callable[[], Any]) -> str:
    with pytest.raises(UsageError) as error:
        refused()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_topology_that_no_algorithm_uses_is_refused() -> None:
    said = line(lambda: checked({"topology": ["ring"]}))
    assert said == f"topology=ring: {NO_TOPOLOGY}sgd"
    said = line(lambda: checked({"algorithm": ["sgd", "local_sgd"], "topology": ["torus", "ring"], "workers": [4]}))
    assert said == f"topology=torus: {NO_TOPOLOGY}sgd"
    for invalid in ("refuse", "skip"):  # it can work, so nothing of it is to be left out
        said = line(lambda way=invalid: checked({"topology": ["ring"]}, invalid=way))
        assert said.startswith("topology=ring: ")


def test_in_a_grid_a_value_that_decides_something_at_one_point_stays_at_the_others() -> None:
    found = checked({"algorithm": ["sgd", "choco"], "topology": ["ring", "torus"], "workers": [4]})
    assert len(found.points) == 4 and found.taken_out == []
    assert len({run_layout.signature(each.config) for each in found.points}) == 3  # that of sgd is computed once
    found = checked({"partition": [{"scheme": "iid"}, {"scheme": "dirichlet"}]}, {"partition.alpha": "0.1"})
    assert len(found.points) == 2


def test_an_option_in_a_mapping_is_looked_at_as_if_it_was_typed_alone() -> None:
    typed = {"scaling": "{rule:linear, base_batch: 64}"}
    axes: dict[str, Sequence[Any]] = {"scaling": [{"rule": "linear", "base_batch": 64}]}
    said = line(lambda: checked(axes, typed))
    assert (
        said == "scaling.base_batch=64: valid is together with scaling.by=batch,neighbourhood; here scaling.by=workers"
    )
    assert len(checked({"scaling": [{"rule": "linear"}]}, {"scaling": "{rule:linear}"}).points) == 1


def test_a_value_that_takes_an_option_away_is_fine() -> None:
    assert len(checked({"topology": ["none"]}).points) == 1
    assert len(checked({"seed": [1]}, {"policy.accordion.relaxed": "null"}).points) == 1


def test_a_search_may_need_it_later() -> None:
    assert len(checked({"topology": ["ring"]}, whole=False).points) == 1


def test_a_probe_minds_nothing() -> None:
    config = {**compose_config(), "sweep": {}, **SETTINGS}
    assert len(check_points([config], [{"topology": "ring"}], resolve).points) == 1


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ({"metric": "loss"}, "sweep.metric=loss: valid is left out of a grid without sweep.prune: only a search"),
        ({"prune_startup": 1}, "sweep.prune_startup=1: valid is together with sweep.prune=median"),
        ({"prune_warmup": 1}, "sweep.prune_warmup=1: valid is together with sweep.prune=median"),
        ({"retries": 0, "backoff_s": 1.0}, "sweep.backoff_s=1.0: valid is together with sweep.retries above 0"),
        (
            {"fail_fast": True, "max_failures": 3},
            "sweep.max_failures=3: valid is left out with sweep.fail_fast=true, which is 1",
        ),
    ],
)
def test_a_setting_that_another_one_makes_idle_is_refused_where_it_is_typed(sweep: dict[str, Any], said: str) -> None:
    typed = {f"sweep.{key}": str(value) for key, value in sweep.items()}
    assert line(lambda: checked({"seed": [1, 2]}, typed, **sweep)).startswith(said)
    assert len(checked({"seed": [1, 2]}, **sweep).points) == 2  # a preset may have it


def test_a_rule_that_could_end_no_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())  # optuna, where there is none
    rule = {"prune": "median", "prune_startup": 2}
    assert line(lambda: checked({"seed": [1, 2]}, **rule)) == (
        "sweep.prune_startup=2: valid is an integer below the number of points (2); else none is ever pruned"
    )
    three: dict[str, Sequence[Any]] = {"seed": [1, 2, 3]}
    assert len(checked(three, **rule).points) == 3
    assert len(checked({"seed": [1, 2]}, resume="there", **rule).points) == 2  # others are there already
    assert len(checked({"seed": [1, 2]}, whole=False, **rule).points) == 2  # others will come
    valid = "a number below that of the last epoch with an evaluation before the end of a run"
    short = line(lambda: checked({**three, "epochs": [4]}, prune_warmup=3, **rule))
    assert short == f"sweep.prune_warmup=3: valid is {valid} (3)"
    rare = line(lambda: checked({**three, "epochs": [8], "evaluate_every": [5]}, prune_warmup=5, **rule))
    assert rare == f"sweep.prune_warmup=5: valid is {valid} (5)"


@pytest.mark.parametrize("key", [*(f"sweep.{key}" for key in idling.OF_GRIDS), "hydra/sweeper", "hydra.sweeper.params"])
def test_what_only_a_grid_can_do_is_refused_of_a_single_run(key: str) -> None:
    said = line(lambda: idling.refuse_without_grid(["workers=2", f"{key}=1"]))
    assert said == f"{key}=1: valid is left out of a single run; with -m it is for a grid"


def test_a_single_run_may_have_all_that_is_about_runs() -> None:
    idling.refuse_without_grid(["sweep.retries=1", "sweep.pack=true", "sweep.prune=null", "seed=1", "~hydra.callbacks"])


def test_words_for_hydra_that_nobody_reads_are_refused() -> None:
    runs = "hydra.sweep.subdir=here: valid is left out: runs are in runs/ of hydra.sweep.dir"
    assert line(lambda: idling.refuse_unread(["hydra.sweep.subdir=here"], grid=False)) == runs
    single = "hydra.run.dir=here: valid is hydra.sweep.dir with -m"
    assert line(lambda: idling.refuse_unread(["hydra.run.dir=here"], grid=True)) == single
    idling.refuse_unread(["hydra.run.dir=here", "hydra.sweep.dir=here"], grid=False)


def execute(directory: Path, typed: Mapping[str, str] | None = None, **sweep: Any) -> Any:
    config = {**compose_config(), "sweep": {"dry_run": True, **sweep}, **SETTINGS}
    return launch.execute(Session(), [config], [typed or {}], directory, resolve, idle=find_idle, fresh=False)


def test_a_directory_with_a_sweep_is_joined_only_where_that_is_asked_for(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / run_directory.SWEEP).write_text("format: 1\n")
    assert line(lambda: execute(here)) == (
        f"hydra.sweep.dir={here}: valid is a directory without a sweep, or with sweep.resume={here} to go on with the "
        "one that is there"
    )
    assert execute(here, resume=str(here)) == execute(here, resume="last") == [None]
    assert execute(tmp_path / "another") == [None]


def test_two_places_for_one_sweep_are_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / run_directory.SWEEP).write_text("format: 1\n")
    one, other = tmp_path / "one", tmp_path / "other"
    said = line(lambda: execute(one, resume=str(other)))
    assert said == f"sweep.resume={other}: valid is {one} with hydra.sweep.dir={one}"
    said = line(lambda: execute(tmp_path / "new", {"sweep.name": "mine"}, name="mine"))
    assert said == f"sweep.name=mine: valid is left out with hydra.sweep.dir={tmp_path / 'new'}, the name in full"
