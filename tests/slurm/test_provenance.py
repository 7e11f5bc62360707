"""What runs record on a real SLURM: the node that they were computed on, not the machine they were submitted from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sweep import run as names
from sweep.run import Run, runs_of
from tests.conftest import Program
from tests.slurm.conftest import NODES, Slurm
from tests.slurm.test_cluster import as_root
from tests.slurm.test_faults import WAIT_S, Night
from tests.slurm.test_packed import FAKE

pytestmark = pytest.mark.slurm


@pytest.fixture
def night(slurm: Slurm, start: Callable[..., Program], tmp_path: Path) -> Iterator[Night]:
    night = Night(slurm, start, tmp_path)
    yield night
    night.close()


def record(run: Run) -> dict[str, Any]:
    (known,) = run.records()
    return known


def packed(night: Night) -> list[str]:
    words = ["sweep.pack=true", f'mpi.command=[python,"{FAKE}","{{workers}}"]']
    return [*words, f"+mpi.environment.FAKE_GO={night.script}.go"]


@pytest.mark.parametrize("is_packed", [False, True])
@as_root  # nodes have names of their own
def test_each_run_tells_of_its_node(night: Night, is_packed: bool) -> None:
    words = packed(night) if is_packed else []
    night.let_end()
    code, out, err = night.begin("seed=range(4)", "workers=1", "hydra.launcher.partition=debug", *words).end(WAIT_S)
    assert code == 0, out + err
    sweep = yaml.safe_load((night.folder / "sweep" / names.SWEEP).read_text(encoding="utf-8"))
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
