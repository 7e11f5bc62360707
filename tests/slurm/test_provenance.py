"""What runs record on a real SLURM: the node that they were computed on, not the machine they were submitted from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradsweep import run_directory
from gradsweep.run_directory import Run, runs_of
from tests.conftest import NO_REPORT, QUICK, Program
from tests.plugin_distribution import CHUNK_TOP
from tests.slurm.conftest import NODES, Slurm
from tests.slurm.test_cluster import as_root
from tests.slurm.test_faults import WAIT_S, Night
from tests.slurm.test_packed import FAKE

pytestmark = [pytest.mark.slurm, pytest.mark.thorough]


@pytest.fixture
def night(slurm: Slurm, start: Callable[..., Program], tmp_path: Path) -> Iterator[Night]:
    night = Night(slurm, start, tmp_path)
    yield night
    night.close()


def record(run: Run) -> dict[str, Any]:
    (known,) = run.records()
    return known


def packed(night: Night, before: str = "") -> list[str]:
    words = ["sweep.pack=true", f'mpi.command=[{before}python,"{FAKE}","{{workers}}"]']
    return [*words, f"+mpi.environment.FAKE_GO={night.script}.go"]


@pytest.mark.parametrize("is_packed", [False, True])
@as_root  # nodes have names of their own
def test_each_run_tells_of_its_node(night: Night, is_packed: bool) -> None:
    words = packed(night) if is_packed else []
    night.let_end()
    code, out, err = night.begin("seed=range(4)", "workers=1", "hydra.launcher.partition=debug", *words).end(WAIT_S)
    assert code == 0, out + err
    sweep = yaml.safe_load((night.folder / "sweep" / run_directory.SWEEP).read_text(encoding="utf-8"))
    assert sweep["host"] not in NODES and sweep["calibration"]["host"] == sweep["host"]
    for run in night.runs:
        known = record(run)
        assert known["host"] == run.state()["attempts"][0]["host"] and known["host"] in NODES
        assert known["calibration"]["host"] == known["host"] and known["calibration"]["loop_mops"] > 0
        assert known["calibration"]["time"] > sweep["calibration"]["time"]
        assert known["launcher"]["cluster"] == "slurm" and known["launcher"]["partition"] == "debug"
        assert known["environment"]["SLURM_JOB_PARTITION"] == "debug"
        assert known["cpu"]["model"] and "gpus" in known and known["mpi"] and known["packages"]
        assert known["command"] == sweep["command"] and known["git"]["commit"] == sweep["git"]["commit"]
    measured = {json.dumps(record(run)["calibration"]) for run in night.runs}  # at the same time, perhaps
    assert len(measured) == (1 if is_packed else 4), "once for each job"


@pytest.mark.parametrize("is_packed", [False, True])
@as_root
def test_each_run_tells_of_all_its_nodes(night: Night, tmp_path: Path, is_packed: bool) -> None:
    """Here the second one has another MPI."""
    mpi = tmp_path / "mpi"
    mpi.write_text('#!/bin/sh\n[ "$1" != --version ] || exec echo "of $(hostname)"\nexec "$@"\n', encoding="utf-8")
    mpi.chmod(0o755)
    words = packed(night, f"{mpi},") if is_packed else [f'mpi.command=[{mpi},sh,{night.script},"{{workers}}"]']
    night.let_end()
    # one after the other: they would delay each other's nodes beyond what any waits for
    grid = ("seed=range(3)", "workers=2", "hydra.launcher.nodes=2", "hydra.launcher.array_parallelism=1")
    code, out, err = night.begin(*grid, *words).end(WAIT_S)
    assert code == 0, out + err
    told = [record(run) for run in night.runs]
    assert [known["mpi"] for known in told] == [f"{mpi}: of n1"] * 3
    others = [known["other_nodes"] for known in told]
    assert [set(each) for each in others] == [{"n2"}] * 3
    answered = [each["n2"] for each in others if each["n2"] is not None]
    assert answered
    for node in answered:
        assert node["mpi"] == f"{mpi}: of n2" and node["calibration"]["loop_mops"] > 0
        assert "packages" not in node and "host" not in node["calibration"]


@as_root
def test_a_node_that_cannot_be_asked_is_named_and_the_run_goes_on(night: Night, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "srun").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (tmp_path / "bin" / "srun").chmod(0o755)
    setup = f'hydra.launcher.setup=["export PATH={tmp_path}/bin:$PATH"]'
    night.let_end()
    code, out, err = night.begin("seed=1", "workers=2", "hydra.launcher.nodes=2", setup).end(WAIT_S)
    assert code == 0, out + err
    assert record(night.runs[0])["other_nodes"] == {"n2": None}


def test_what_nodes_of_another_partition_have_made_is_computed_again(night: Night) -> None:
    night.let_end()
    given = ("seed=1", "workers=1", "sweep.reuse=true")
    for partition, name, taken in (("debug", "first", 0), ("low", "second", 0), ("debug", "third", 1)):
        words = (f"hydra.sweep.dir={name}", f"hydra.launcher.partition={partition}")
        code, out, err = night.begin(*given, *words).end(WAIT_S)
        assert code == 0 and f"{name}: {taken} runs taken from earlier sweeps" in out, out + err
    ((first,), (third,)) = (runs_of(night.folder / name) for name in ("first", "third"))
    assert (
        record(third) == record(first) and Path(third.state()["reused_from"]).parts[-3:] == first.directory.parts[-3:]
    )


@as_root
def test_ranks_on_two_nodes_import_the_users_code_from_the_snapshot(
    slurm: Slurm, start: Callable[..., Program], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(CHUNK_TOP, encoding="utf-8")
    launcher = ("hydra/launcher=slurm", "hydra.launcher.poll_s=0.5", "hydra.launcher.nodes=2", "race=off")
    own = ("plugins=[./mine.py]", "compressor=chunk_top", "memory=residual")
    code, out, err = start("-m", "hydra.sweep.dir=sweep", *QUICK, *launcher, *own, "workers=2", without=NO_REPORT).end(
        240
    )
    assert code == 0, out + err
    (run,) = runs_of(tmp_path / "sweep")
    result = run.result()
    assert result is not None and result["hosts"] == ["n1", "n2"]
    place = Path(record(run)["environment"]["GRADSWEEP_USER_CODE"])
    assert place.parent == tmp_path / "sweep" / ".code" and (place / "mine.py").is_file()
    assert record(run)["user_code"]["code"] == ["mine.py"]
