"""What sweep.yaml and every attempt record, so that two sweeps can be compared; no secrets."""

from __future__ import annotations

import os
import platform
import shlex
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradsweep import files, run_directory
from gradsweep.run_directory import Run, runs_of
from sweep.provenance import code_snapshot, git_state
from sweep.provenance import record as provenance
from sweep.provenance.calibration import calibrate_own
from tests.conftest import PLAYED, ROOT

Multirun = Callable[..., tuple[int, str, str]]

FAKE_WORLD = ROOT / "tests" / "sweep" / "fake_world.py"
RANK = '#!/bin/sh\nfor last; do :; done\necho \'{"status": "done"}\' > "$last/result.json"\n'
RATES = ("copy_gb_s", "matmul_gflop_s", "loop_mops")


def test_secrets_are_not_recorded() -> None:
    variables = {"OMP_NUM_THREADS": "1", "NCCL_SECRET": "s", "TORCH_AUTH_TOKEN": "t", "AWS_KEY": "k", "HOME": "h"}
    assert provenance.select_environment(variables) == {"OMP_NUM_THREADS": "1"}


def test_the_page_on_provenance_lists_what_is_allowed() -> None:
    page = (ROOT / "docs/guide/provenance.md").read_text(encoding="utf-8")
    missing = [name for name in (*provenance.ENVIRONMENT, *provenance.PACKAGES) if f"`{name}" not in page]
    assert not missing


def commands(folder: Path, packed: bool) -> list[str]:
    """What plays mpirun and its ranks."""
    if packed:
        return ["sweep.pack=true", f'mpi.command=[python,"{FAKE_WORLD}","{{workers}}"]']
    rank = folder / "rank"
    rank.write_text(RANK)
    rank.chmod(0o755)
    return [f'mpi.command=["{rank}","{{workers}}"]']


def load(sweep: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((sweep / run_directory.SWEEP).read_text(encoding="utf-8")))


def record(run: Run, number: int = 1) -> dict[str, Any]:
    return files.read_json(run.attempt(number) / run_directory.PROVENANCE) or {}


@pytest.mark.parametrize("packed", [False, True])
def test_a_sweep_and_each_of_its_runs_say_all_that_is_to_be_known(
    multirun: Multirun, tmp_path: Path, packed: bool
) -> None:
    typed = ["-m", "experiment=quick", "workers=1", "seed=1,2", "hydra.sweep.dir=s"]
    typed += ["mpi.environment.OMPI_MCA_coll=basic"]
    typed += ["race=off", *commands(tmp_path, packed)]
    (tmp_path / "go").touch()
    shell = {"OMP_SCHEDULE": "static", "NCCL_SECRET": "hush", "MINE": "mine", "FAKE_GO": str(tmp_path / "go")}
    code, out, err = multirun(*typed, without=PLAYED, **shell)
    assert code == 0, out + err
    sweep, runs = load(tmp_path / "s"), runs_of(tmp_path / "s")
    assert len(runs) == 2
    code_now, checkout_now = code_snapshot.read(), git_state.describe(ROOT)
    for known in (sweep, *map(record, runs)):
        assert shlex.split(known["command"]) == ["python", str(ROOT / "multirun.py"), *typed]
        assert known["code"] == {"digest": code_now.digest, "version": code_now.version}
        kept = {key: value for key, value in (checkout_now or {}).items() if known is sweep or key != "diff"}
        assert known["git"] == (kept or None)
        assert known["packages"] == provenance.list_packages() and "numpy" in known["packages"]
        assert (known["python"], known["platform"]) == (platform.python_version(), platform.platform())
        assert known["host"] == socket.gethostname()
        assert known["cpu"] == provenance.describe_cpu() and known["cpu"]["model"]
        assert known["gpus"] == provenance.list_gpus()
        assert known["mpi"].endswith(f"python: Python {platform.python_version()}" if packed else "rank")
        assert known["environment"]["OMP_SCHEDULE"] == "static"
        assert not {"NCCL_SECRET", "MINE", "HOME"} & set(known["environment"])
        calibration = known["calibration"]
        assert all(calibration[rate] > 0 for rate in RATES) and calibration["host"] == socket.gethostname()
    assert {*typed[1:3], typed[5], "seed=1", "seed=2"} <= set(sweep["overrides"])
    for run, seed in zip(runs, ("seed=1", "seed=2"), strict=True):
        known = record(run)
        assert seed in known["overrides"] and set(known["overrides"]) <= set(sweep["overrides"])
        assert known["environment"]["OMPI_MCA_coll"] == "basic", "of the ranks, not of the command"
        assert known["launcher"] == {"cluster": "local"}
        assert known["calibration"] == sweep["calibration"], "once for all of a sweep on this machine"


def test_a_resume_is_described_and_calibrated_by_itself(multirun: Multirun, tmp_path: Path) -> None:
    typed = ["-m", "experiment=quick", "workers=1", "hydra.sweep.dir=s", *commands(tmp_path, False)]
    assert multirun(*typed, "seed=1", without=PLAYED)[0] == 0
    assert multirun(*typed, "seed=1,2", "sweep.resume=s", without=PLAYED, OMP_SCHEDULE="static")[0] == 0
    sweep, (first, second) = load(tmp_path / "s"), runs_of(tmp_path / "s")
    (again,) = sweep["resumed"]
    assert "OMP_SCHEDULE" not in sweep["environment"] and again["environment"]["OMP_SCHEDULE"] == "static"
    assert sweep["calibration"]["time"] < again["calibration"]["time"]
    assert record(first)["calibration"] == sweep["calibration"]
    assert record(second)["calibration"] == again["calibration"] and "seed=1,2" in record(second)["command"]


def test_what_is_seen_on_a_node_takes_the_place_of_what_was_seen_where_it_was_submitted() -> None:
    submitted = {"command": "c", "mpi": "mpirun: of the login node", "calibration": {"host": "login"}}
    core = sorted(os.sched_getaffinity(0))[-1]
    known = provenance.describe_attempt({**submitted, **provenance.describe_node(["python"], [core])}, {})
    assert known["command"] == "c" and known["mpi"] == f"python: Python {platform.python_version()}"
    assert known["calibration"]["host"] == known["host"] == socket.gethostname()
    assert known["calibration"]["cores"] == [core] and set(known["calibration"]) == set(calibrate_own([core]))


def test_gpus_are_told_by_model_memory_and_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    asked = "--query-gpu=name,memory.total,driver_version --format=csv,noheader"
    program.write_text(
        f'#!/bin/sh\n[ "$*" = "{asked}" ] || exit 1\nprintf "A100, 81920 MiB, 1.2\\nT4, 1 MiB, 1.2\\n"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.list_gpus() == ["A100, 81920 MiB, 1.2", "T4, 1 MiB, 1.2"]
    program.write_text("#!/bin/sh\nexit 9\n")  # as without a driver
    assert provenance.list_gpus() == []
