"""Parameter servers that are ranks of their own: synchronous as the colocated one, and asynchronous."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradsweep import files, run_directory
from gradsweep.errors import UsageError
from sweep.attempts.mpirun import MpirunAttempt
from sweep.attempts.run_task import RunTask
from sweep.directory import run_identity, run_layout
from sweep.settings.mpi import MpiSettings, choose_transport
from tests.conftest import ROOT, eventually
from tests.faults.real_runs import has_left_nothing, list_ranks
from tests.trainers.configs import compose_config
from tests.trainers.start_ranks import MONITORED, run_ranks
from trainers.config import run_config
from trainers.rules.resolve import resolve

MODULE = "tests.trainers.ranks.servers"
SERVER = {"name": "parameter_server", "placement": "dedicated"}
LGRECO = {"lgreco": {"option": "levels", "values": [127], "interval": 1}}
ASYNCHRONOUS = {**SERVER, "mode": "asynchronous"}


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "functions"),
    [
        (2, "one_worker"),
        (3, "going_on + bounded"),
        (4, "as_colocated + asynchronous_run + backup + together + traffic"),
    ],
)
def test_laws_bytes_and_whole_runs_with_a_server(ranks: int, functions: str) -> None:
    """The last rank is the server. What each function holds stands in its docstring."""
    run_ranks(ranks, *functions.split(), module=MODULE, **MONITORED)


@pytest.mark.thorough
@pytest.mark.mpi
def test_a_run_dies_with_its_server_and_goes_on(tmp_path: Path, digits: Path) -> None:
    """The launcher starts a rank more than there are workers; this is killed between two checkpoints."""
    mpi = MpiSettings(**choose_transport(yaml.safe_load((ROOT / "conf/mpi/openmpi.yaml").read_text()), "local"))
    given = compose_config(
        workers=1,
        epochs=20,
        compressor={"name": "topk", "ratio": 0.1},
        memory="residual",
        exchange={**SERVER, "answer": "compressed"},
        data={"root": str(digits)},
        checkpoint={"every_steps": 20},
    )
    config_of_run = {**resolve(given), "mpi": {}, "sweep": {}}
    (run,) = run_layout.lay_out(tmp_path / "sweep", [run_identity.Point(config_of_run, {})])
    task = RunTask(
        str(run.directory), run_directory.count_ranks(config_of_run), 1, mpi.resolve_command(), mpi.variables
    )
    assert task.cores == 2
    first = MpirunAttempt(task, [0, 1])

    def steps() -> int:
        row = files.last_row(run.path(run_directory.STEPS))
        return int(row["step"]) if row else 0

    eventually(lambda: steps() > 25)
    ranks = list_ranks(run)
    numbers = {environment_of(pid).get("OMPI_COMM_WORLD_RANK"): pid for pid in ranks}
    assert set(numbers) - {None} == {"0", "1"}
    os.kill(numbers["1"], signal.SIGKILL)
    assert eventually(first.poll, 60) == run_directory.FAILED
    assert has_left_nothing(run)
    second = MpirunAttempt(task, [0, 1])
    assert eventually(second.poll, 120) == run_directory.DONE, second.reason
    result = run.result()
    assert result is not None and result["steps"] == 240 and result["resumed_after"][0] % 20 == 0


def environment_of(pid: int) -> dict[str, str]:
    """The variables that a process was started with."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


@pytest.mark.parametrize("exchange", ["allreduce", "sharded", {"name": "parameter_server"}, SERVER, ASYNCHRONOUS])
def test_a_dedicated_server_is_one_rank_more(exchange: Any) -> None:
    resolved = resolve(compose_config(workers=3, exchange=exchange))
    ranks = run_config.parse(resolved).ranks
    assert ranks == run_directory.count_ranks(resolved) == 3 + (exchange in (SERVER, ASYNCHRONOUS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exchange": {"name": "parameter_server", "mode": "asynchronous"}}, "exchange.placement=colocated: valid is "),
        ({"exchange": {**ASYNCHRONOUS, "answer": "compressed"}}, "exchange.answer=compressed: valid is dense"),
        ({"exchange": {**ASYNCHRONOUS, "backup": 1}}, "exchange.backup=1: valid is 0 with mode=asynchronous"),
        (
            {"exchange": {"name": "parameter_server", "backup": 1}, "batch_norm": "synchronised"},
            "exchange.backup=1 with batch_norm=synchronised: workers would wait for the last one in every layer; valid",
        ),
        (
            {"exchange": {**SERVER, "backup": 1}, "precision": "fp16"},
            "exchange.backup=1 with precision=fp16: all workers meet in every step",
        ),
        ({"exchange": {**SERVER, "staleness": -1}}, "exchange.staleness=-1: valid is"),
        ({"exchange": {**SERVER, "mode": "sometimes"}}, "exchange.mode=sometimes: valid is one of synchronous"),
        ({"exchange": ASYNCHRONOUS, "algorithm": "local_sgd"}, "algorithm=local_sgd: the server takes every step"),
        (
            {"exchange": ASYNCHRONOUS, "optimizer": {"name": "onebit_adam", "freeze_steps": 2}},
            "optimizer=onebit_adam: it takes one step of all workers",
        ),
        ({"exchange": ASYNCHRONOUS, "batch_norm": "synchronised"}, "batch_norm=synchronised: workers would wait"),
        ({"exchange": ASYNCHRONOUS, "precision": "fp16"}, "precision=fp16: all workers leave a step out"),
        (
            {
                "exchange": ASYNCHRONOUS,
                "compressor": "qsgd",
                "policy": {"accordion": {"option": "levels", "relaxed": 127, "interval": 1}},
            },
            "policy.accordion: it uses the mean gradient",
        ),
        (
            {"exchange": ASYNCHRONOUS, "compressor": "qsgd", "policy": LGRECO},
            "exchange.mode=asynchronous with policy.lgreco: all workers choose together",
        ),
        (
            {"exchange": SERVER, "compressor": "qsgd", "policy": LGRECO},
            "exchange.placement=dedicated with policy.lgreco: workers choose compressors",
        ),
        (
            {"exchange": {"name": "parameter_server", "backup": 1}, "compressor": "qsgd", "policy": LGRECO},
            "exchange.backup=1 with policy.lgreco: all workers choose together",
        ),
        (
            {"exchange": ASYNCHRONOUS, "compressor": {"name": "terngrad", "share_scale": True}},
            "exchange.mode=asynchronous: all workers agree on a scale",
        ),
        ({"exchange": ASYNCHRONOUS, "compressor": "topk", "memory": "ef21"}, "the mean of all estimates"),
        ({"exchange": ASYNCHRONOUS, "compressor": "powersgd"}, "its mean takes rounds of its own"),
        ({"exchange": SERVER, "compressor": "intsgd"}, "exchange.placement=dedicated: a server that trains nothing"),
        (
            {
                "exchange": SERVER,
                "compressor": "qsgd",
                "memory": "ef21",
                "policy": {"accordion": {"option": "levels", "relaxed": 127, "interval": 1}},
            },
            "policy.accordion and memory=ef21: workers choose compressors",
        ),
    ],
)
def test_what_cannot_work_with_a_server_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(compose_config(**changes))
    assert message in str(error.value) and "\n" not in str(error.value)
