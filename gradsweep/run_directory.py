"""The run directory: the only interface between sweep, trainers and reports.

This module has the names of its files, and reads a run's state and attempts. Standard library only, because every rank
and every report loads it.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep.disk import regular_files
from gradsweep.files import read_json

CONFIG = "config.yaml"
STATE = "state.json"
STEPS = "steps.csv"
EPOCHS = "epochs.csv"
LOCAL_MODELS = "local_models.csv"  # of a decentralised run only
YARDSTICK = "yardstick.csv"  # how fast the cores were between steps
RESULT = "result.json"
FAILURE = "failure-{rank}.json"  # in the attempt's directory, by the rank that raised
STOPPED = "stopped.json"  # likewise, by rank 0 of an attempt that was asked to stop and has saved where it was
JOB = "job.json"  # in the run's directory, where a scheduler runs it: {"cluster": "slurm", "id": "123_4"}
CHECKPOINT = "checkpoint"  # in the run's directory, see docs/guide/checkpoints.md
EMULATION = "emulation.json"  # likewise, of an emulated network, before it starts: what was built, and what failed
NETWORK = "network.json"  # likewise, by rank 0 where the network is measured; of a probe in the probe's directory
PROVENANCE = "provenance.json"  # likewise, before it starts: command, commit, packages, machine, environment
OTHER_NODES = "other_nodes"  # in it, by name: what is not as on the first one of an allocation
STDOUT = "stdout.log"
STDERR = "stderr.log"
RUNS = "runs"  # in the sweep's directory: one directory a run
PROBES = "probes"  # instead of it, of `python -m sweep probe`: what measures a network only, and is no run
RACES = "races"  # in the sweep's directory: one directory a race (docs/guide/races.md)
SCRIPT_CONFIG = "config.json"  # in the attempt's directory, for a script: its config without the launcher's sections
SCRIPT_RESUMED = "resumed.json"  # likewise, by the script: the step of the checkpoint that it goes on from
TUNED = "tuned.json"  # by rank 0 of a run with exchange.tune, after the trial that found the setting of its exchange
RACE_PLAN = "plan.json"  # in a race's directory, before it starts
RACE = "race.csv"  # likewise, by rank 0: a row a block
RATIOS = "ratios.json"  # likewise: what was measured so far
RACE_MODULE = "trainers.race"
"""The program of the ranks of a race; that of others is `trainers`."""
SCRIPT_MODULE = "trainers.script"
"""The program of the ranks of a run with trainer=script, which starts the user's own program."""
SIGNATURE_DIGITS = 8  # of 64 in the name of such a one; more where two runs would share them
SWEEP = "sweep.yaml"
SUMMARY = "summary.csv"
EVENTS = "events.jsonl"  # likewise: what happened, a JSON object a line (docs/reference/events.md)

WORLD_CONTROL = "control.json"
"""Name of the file that tells the ranks of a packed world where to connect to the launcher."""
ATTEMPT_VARIABLE = "GRADSWEEP_ATTEMPT"
"""Environment variable of all processes of an attempt: the path of its directory, by which they can be found."""
RUN_VARIABLE = "GRADSWEEP_RUN"
"""Environment variable of a script: the directory of its run."""
CORES_VARIABLE = "GRADSWEEP_CORES"
"""Environment variable of a rank: the cores of its run on this node, to pin itself to, such as 0,1,4; empty: don't."""
GPUS_VARIABLE = "GRADSWEEP_GPUS"
"""Environment variable of a rank: the GPUs of its run among those that it sees, such as 0,2; empty: all of them."""
STEERING_VARIABLE = "GRADSWEEP_STEERING"
"""Environment variable of a rank on an emulated host: the socket through which it corrects the latency."""
SWITCH_VARIABLE = "GRADSWEEP_SWITCH"
"""Environment variable of a rank on an emulated host: the process ID of the switch, if that is a process."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
"""Environment variables by which numerical libraries, when they are loaded, know how many threads to have."""

FORMAT = 1  # of the files above; a reader refuses what is newer than it knows
MEMORY_PARTS = ("model", "gradients", "optimizer", "compressor", "messages")
"""The keys of `memory_parts` in result.json (docs/guide/memory.md)."""

PENDING, RUNNING, DONE = "pending", "running", "done"
FAILED, DIVERGED, TIMEOUT = "failed", "diverged", "timeout"
PREEMPTED, CANCELLED = "preempted", "cancelled"
PRUNED = "pruned"
STATUS_MEANINGS = {
    PENDING: "no attempt has begun, or a failed run waits for its retry",
    RUNNING: "an attempt is under way",
    DONE: "the run is complete",
    FAILED: "an attempt ended with an error; state.json has the `reason` for people and the `cause` for programs",
    DIVERGED: "the loss was no longer a finite number; a resume does not repeat the run",
    TIMEOUT: "an attempt took longer than `sweep.time_minutes` or SLURM allows; a resume continues from a checkpoint",
    PREEMPTED: "the run was asked to save and to end (SIGUSR1, SLURM); a resume continues from this point",
    CANCELLED: "a user ended the run, or the sweep before the run began",
    PRUNED: "`sweep.prune` ended the run early, because other runs of the sweep did better; it has no result",
}
"""The statuses of state.json; docs/reference/exit-statuses.md is generated from here."""
STATUSES = tuple(STATUS_MEANINGS)
RESULTS = (DONE, DIVERGED)  # computed to an end
COMPLETE = (*RESULTS, PRUNED)  # a resume does not repeat these
FINE = (DONE, PRUNED)  # what was asked for
ONLY_RACED = "race=only: not to be trained"
"""The reason in state.json of a pending run that the last command with it was to race instead of training it."""


def is_fine(state: Mapping[str, Any]) -> bool:
    """Tell whether a run has ended as the user wanted: done, pruned, or not trained because it was only to race."""
    return state["status"] in FINE or (state["status"] == PENDING and state.get("reason") == ONLY_RACED)


def count_ranks(config: Mapping[str, Any]) -> int:
    """Return how many ranks a resolved config has: one for each worker, and one for a dedicated server."""
    servers = int((config.get("exchange") or {}).get("placement") == "dedicated")
    return int(config["workers"]) + servers


def is_script(config: Mapping[str, Any]) -> bool:
    """Tell whether a program of the user trains a run (trainer=script), by its resolved or composed config."""
    trainer = config.get("trainer")
    return isinstance(trainer, Mapping) and trainer.get("name") == "script"


_ATTEMPT = re.compile(r"attempt-(\d{1,9})", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Run:
    """The directory of one run."""

    directory: Path

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def signature(self) -> str:
        """The hash of the resolved config, which is at the end of the directory's name."""
        return self.name.rpartition("-")[2]

    def path(self, name: str) -> Path:
        return self.directory / name

    def attempt(self, number: int) -> Path:
        return self.directory / f"attempt-{number}"

    def attempt_numbers(self) -> list[int]:
        """Return the numbers of the attempts that have a directory."""
        try:
            there = regular_files.real_directories(self.directory)
        except OSError:
            return []
        return sorted(int(match[1]) for name in there if (match := _ATTEMPT.fullmatch(name)))

    def state(self) -> dict[str, Any]:
        """Return the content of state.json; a run without a readable state.json is pending."""
        state = read_json(self.path(STATE)) or {}
        attempts = state.get("attempts")
        return {
            "format": FORMAT,
            **state,
            "status": state["status"] if state.get("status") in STATUSES else PENDING,
            "attempts": [each for each in attempts if isinstance(each, dict)] if isinstance(attempts, list) else [],
        }

    def result(self) -> dict[str, Any] | None:
        return read_json(self.path(RESULT))

    def contributors(self) -> list[int]:
        """Return the numbers of the attempts that the run's figures come from (see the function `contributors`)."""
        return contributors(self, self.state()["attempts"], self.result())

    def records(self) -> list[dict[str, Any]]:
        """Return the provenance of the contributing attempts; empty if one of them has none."""
        records = [read_json(self.attempt(number) / PROVENANCE) for number in self.contributors()]
        return [] if None in records else [record for record in records if record is not None]

    def status(self) -> str:
        return str(self.state().get("status", PENDING))


def contributors(run: Run, attempts: Sequence[Mapping[str, Any]], result: Mapping[str, Any] | None) -> list[int]:
    """Return the numbers of the attempts whose steps are in a run's figures: the last one, and those that it continues.

    If the result says that the run continued from a checkpoint (`resumed_after`), all earlier attempts that have begun
    count, because it does not say which of them wrote the checkpoint.

    Args:
        attempts: the attempts in the run's state.json.
        result: the content of its result.json, if any.
    """
    numbers = [attempt["number"] for attempt in attempts if isinstance(attempt.get("number"), int)]
    earlier = numbers[:-1] if (result or {}).get("resumed_after") else []
    return [number for number in earlier if os.path.exists(run.attempt(number) / PROVENANCE)] + numbers[-1:]


def nodes_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the provenance of each node of an attempt, the first node first."""
    others = record.get(OTHER_NODES)
    changes = [node for node in others.values() if isinstance(node, dict)] if isinstance(others, dict) else []
    return [{**record, **node} for node in ({}, *changes)]


def runs_of(sweep: Path, folder: str = RUNS) -> list[Run]:
    """Return the runs of a sweep directory, sorted by name; with `folder`, those in another folder, such as probes.

    A directory counts as a run if it is not a symbolic link and has a regular file config.yaml.
    """
    directory = sweep / folder
    try:
        there = regular_files.real_directories(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [Run(directory / name) for name in sorted(there) if regular_files.is_regular(directory / name / CONFIG)]
