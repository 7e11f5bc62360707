"""Grids with points that cannot work: what is left out, what refuses the sweep, and what is said of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradsweep.errors import UsageError
from sweep.directory import run_identity, run_layout
from sweep.launch import execute
from sweep.launch.session import Session
from sweep.planning import invalid_points
from sweep.planning.points import Points, check_points
from sweep.settings.sweep import SweepSettings
from tests.trainers.configs import compose_config
from trainers.rules.resolve import resolve

SETTINGS = {"mpi": {"command": ["true", "{workers}"]}, "launcher": {"cluster": "local"}}


def grid(**keys: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*keys.values())]


def checked(points: Sequence[Mapping[str, Any]], invalid: str = "corners", **how: bool) -> Points:
    configs = [{**compose_config(**point), "sweep": {"invalid": invalid}, **SETTINGS} for point in points]
    typed = [{key: str(value) for key, value in point.items()} for point in points]
    return check_points(configs, typed, resolve, **how)


def left(points: Points) -> list[str]:
    return [",".join(typed.values()) for typed in points.overrides]


def test_the_grid_of_centralised_and_decentralised_algorithms() -> None:
    """As in the README: not every algorithm goes with every compressor."""
    algorithms = ["sgd", "dpsgd", "choco", "deep_squeeze", "dcd", "ecd"]
    points = grid(
        algorithm=algorithms,
        topology=["ring", "torus", "complete"],
        compressor=["sign", "topk", "qsgd"],
        workers=[4, 8, 16],
    )
    found = checked(points)
    assert len(points) == 162 and len(found.points) == 108
    of = {name: {one["compressor"] for one in found.overrides if one["algorithm"] == name} for name in algorithms}
    assert of.pop("sgd") == {"sign", "topk", "qsgd"} and of.pop("ecd") == {"qsgd"}
    assert list(of.values()) == [{"topk", "qsgd"}] * 4
    assert [each["points"] for each in invalid_points.summarise(found.taken_out)] == [36, 9, 9]
    assert [points[number] for number in found.numbers] == [
        point for point in points if {key: str(value) for key, value in point.items()} in found.overrides
    ]
    assert len({run_layout.signature(each.config) for each in found.points}) == 90  # sgd has no topology


def test_a_corner_is_left_out_with_its_reason() -> None:
    found = checked(grid(algorithm=["choco", "ecd"], compressor=["topk", "qsgd"]))
    assert left(found) == ["choco,topk", "choco,qsgd", "ecd,qsgd"] and found.numbers == [0, 1, 3]
    (out,) = found.taken_out
    assert out.impossible and out.overrides == {"algorithm": "ecd", "compressor": "topk"}
    assert out.why.startswith("compressor=topk with algorithm=ecd: errors of extrapolations")


@pytest.mark.parametrize(
    ("points", "line"),
    [
        (grid(algorithm=["ecd"], compressor=["topk", "qsgd"]), "compressor=topk with algorithm=ecd"),
        (grid(algorithm=["choco", "ecd"], compressor=["qsgd", "sign"]), "compressor=sign with exchange=gossip"),
        (grid(algorithm=["sgd", "choco"], memory=["residual"]), "memory=residual with exchange=gossip"),
        (
            grid(algorithm=["sgd", "choco"], topology=["ring", "torus"], workers=[7]),
            "topology=torus with workers=7: a prime makes no grid",  # that sgd has no topology does not make it work
        ),
        (grid(workers=[2, 4], epochs=[1, 0]), "epochs=0: valid is an integer"),
        (grid(compressor=["none"], epochs=[0]), "epochs=0: valid is an integer"),
    ],
)
def test_a_value_that_works_nowhere_refuses_the_grid(points: list[dict[str, Any]], line: str) -> None:
    with pytest.raises(UsageError) as error:
        checked(points)
    assert str(error.value).startswith(line)


def test_it_can_be_asked_for_that_all_points_work() -> None:
    points = grid(algorithm=["choco", "ecd"], compressor=["topk", "qsgd"])
    with pytest.raises(UsageError, match="^compressor=topk with algorithm=ecd: "):
        checked(points, "refuse")
    assert len(checked(points[:2], "refuse").points) == 2


def test_it_can_be_asked_for_what_works_of_anything() -> None:
    found = checked(grid(workers=[2, 4], epochs=[1, 0]), "skip")
    assert left(found) == ["2,1", "4,1"] and len(found.taken_out) == 2
    for points in (grid(workers=[2, 4], epochs=[0, -1]), grid(epochs=[0])):
        with pytest.raises(UsageError, match="^epochs=0: valid is"):
            checked(points, "skip")


def test_the_setting_is_one_of_three() -> None:
    with pytest.raises(UsageError) as error:
        SweepSettings(invalid="ignore").check()
    assert str(error.value) == "sweep.invalid=ignore: valid is one of corners, refuse, skip"


def test_a_search_goes_on_where_it_has_tried_what_cannot_work() -> None:
    """Its values come once: 0.0312 as a learning rate works at no other point."""
    works, fails = grid(compressor=["qsgd"], seed=[1]), grid(compressor=["topk"], seed=[2], algorithm=["ecd"])
    for way in ("corners", "skip"):
        found = checked([*fails, *works], way, whole=False)
        assert left(found) == ["qsgd,1"] and found.numbers == [1]
        found = checked(fails, way, whole=False, begun=True)
        assert found.points == [] and [each.impossible for each in found.taken_out] == [True]
        with pytest.raises(UsageError, match="^compressor=topk with algorithm=ecd"):
            checked(fails, way, whole=False)  # nothing has worked yet
    with pytest.raises(UsageError, match="^compressor=topk with algorithm=ecd"):
        checked([*fails, *works], "refuse", whole=False, begun=True)


def test_a_batch_of_a_search_without_a_point_that_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweep.yaml").write_text("format: 1\n")
    config = {**compose_config(algorithm="ecd", compressor="topk"), "sweep": {}, **SETTINGS}
    session = Session()
    session.directory = tmp_path
    for _ in range(2):
        typed = {"algorithm": "ecd", "compressor": "topk"}
        assert execute.execute(session, [config], [typed], tmp_path, resolve, fresh=True, whole=False) == [None]
    (why,) = yaml.safe_load((tmp_path / "sweep.yaml").read_text())["points_left_out"]
    assert why["points"] == 2 and why["why"].startswith("compressor=topk with algorithm=ecd: ")
    assert "1 of 1 point cannot work" in capsys.readouterr().out


def test_what_is_left_out_is_said_in_a_line_a_reason() -> None:
    out = [invalid_points.TakenOut({}, f"reason {number % 3}", impossible=True) for number in range(60)]
    out.append(invalid_points.TakenOut({}, "sweep.exclude: workers == 8"))
    assert invalid_points.describe_left_out(out, 100, most=2) == [
        "1 of 100 points are taken out by sweep.exclude or sweep.include",
        "60 of 100 points cannot work and are left out (sweep.invalid):",
        "  20: reason 0",
        "  20: reason 1",
        "  and for 1 other reason: sweep.yaml has them",
    ]
    assert invalid_points.describe_left_out(out, 100)[-1] == "  20: reason 2"
    assert invalid_points.describe_left_out(out[-1:], 2) == [
        "1 of 2 points are taken out by sweep.exclude or sweep.include"
    ]
    assert invalid_points.describe_left_out([], 2) == []


def test_a_run_without_neighbours_has_no_topology_in_its_name(tmp_path: Path) -> None:
    points = checked(grid(algorithm=["sgd", "choco"], topology=["ring", "complete"]))
    places = run_layout.locate_runs(tmp_path, points.points)
    assert [place.run.name.rpartition("-")[0] for place in places] == [
        "algorithm=sgd,topology=none",
        "algorithm=sgd,topology=none",
        "algorithm=choco,topology=ring",
        "algorithm=choco,topology=complete",
    ]
    assert places[0].run == places[1].run
    assert places[0].point.overrides == ("algorithm=sgd", "topology=ring")  # as typed


def test_options_that_were_settled_away_are_not_in_a_name() -> None:
    configs = [{"topology": {"name": "none"}}, {"topology": {"name": "ring", "lazy": True}}]
    typed = [{"seed": "1", "topology.lazy": "true"}, {"seed": "2", "topology.lazy": "false"}]
    first, second = run_identity.name_points(configs, typed)
    assert first.swept == {"seed": "1"} and second.swept == {"seed": "2", "topology.lazy": "false"}
