"""The run directory: the only interface between sweep, trainers and reports.

Names, atomic writes and tolerant reads, nothing else; loads only the standard library, because
every rank and every report loads it.

Two rules keep a run directory readable at any moment, also after a power cut:
a file is either replaced as a whole (`write_text`, `write_json`) or only ever appended to
(`append_rows`), and whoever reads an appended file ignores a torn last line (`complete_text`).
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import datetime
import io
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep import disk_errors, file_lock, files

CONFIG = "config.yaml"
STATE = "state.json"
STEPS = "steps.csv"
EPOCHS = "epochs.csv"
LOCAL_MODELS = "local_models.csv"  # of a decentralised run only
RESULT = "result.json"
FAILURE = "failure-{rank}.json"  # in the attempt's directory, by the rank that raised
STOPPED = "stopped.json"  # likewise, by rank 0 of an attempt that was asked to stop and has saved where it was
JOB = "job.json"  # in the run's directory, where a scheduler runs it: {"cluster": "slurm", "id": "123_4"}
CHECKPOINT = "checkpoint"  # in the run's directory, see docs/guide/checkpoints.md
EMULATION = (
    "emulation.json"  # likewise, of an emulated network, before it starts: what was built, and what could not be
)
NETWORK = "network.json"  # likewise, by rank 0 where the network is measured, before its first step; a probe's is in
# the probe's directory
PROVENANCE = "provenance.json"  # likewise, before it starts: command, commit, packages, machine, environment
OTHER_NODES = "other_nodes"  # in it, by name: what is not as on the first one of an allocation
STDOUT = "stdout.log"
STDERR = "stderr.log"
RUNS = "runs"  # in the sweep's directory: one directory a run
PROBES = "probes"  # instead of it, of `python -m sweep probe`: what measures a network only, and is no run
SIGNATURE_DIGITS = 8  # of 64 in the name of such a one; more where two runs would share them
SWEEP = "sweep.yaml"
SUMMARY = "summary.csv"
EVENTS = "events.jsonl"  # likewise: what happened, a JSON object a line (docs/reference/events.md)

PATIENCE_S = 10.0  # for another process to have appended its line

PLACES = ("sweep", "mpi", "launcher", "data", "checkpoint", "gpus", "gpus_per_node", "trackers")
"""Keys of a config that say where and how a run is made, not what it computes: not in its signature."""

ADDED = {"network": {"name": "none"}}
"""Sections that configs of earlier versions lack, and what these mean by that: such a section is not in a signature,
so that runs are still the runs that they were."""

ATTEMPT_VARIABLE = "GRADSWEEP_ATTEMPT"
"""Environment variable of all processes of an attempt: the path of its directory, by which they can be found."""
CORES_VARIABLE = "GRADSWEEP_CORES"
"""Environment variable of a rank: the cores of its run on this node, to pin itself to, such as 0,1,4; empty: don't."""
GPUS_VARIABLE = "GRADSWEEP_GPUS"
"""Environment variable of a rank: the GPUs of its run among those that it sees, such as 0,2; empty: all of them."""
STEERING_VARIABLE = "GRADSWEEP_STEERING"
"""Environment variable of a rank on an emulated host: the socket through which it corrects the latency."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
"""Environment variables by which numerical libraries, when they are loaded, know how many threads to have."""

FORMAT = 1  # of the files above; a reader refuses what is newer than it knows

PENDING, RUNNING, DONE = "pending", "running", "done"
FAILED, DIVERGED, TIMEOUT = "failed", "diverged", "timeout"
PREEMPTED, CANCELLED = "preempted", "cancelled"
PRUNED = "pruned"  # ended early, because others of the sweep did better (sweep.prune): has no result
STATUSES = (PENDING, RUNNING, DONE, FAILED, DIVERGED, TIMEOUT, PREEMPTED, CANCELLED, PRUNED)
RESULTS = (DONE, DIVERGED)  # computed to an end
COMPLETE = (*RESULTS, PRUNED)  # a resume does not repeat these
FINE = (DONE, PRUNED)  # what was asked for

PHASES = ("data", "forward", "backward", "encode", "communicate", "decode", "update")

# steps.csv: one row per optimizer step. Times, loss and bytes are means over the workers.
STEP_COLUMNS = (
    "step",  # optimizer steps taken, from 1
    "epoch",  # from 1
    "time_s",  # training time since the first step began; evaluation is not in it
    "samples",  # in the global batch
    "loss",  # mean over the global batch
    "accuracy",  # share of the global batch that was classified correctly
    "lr",
    *(f"{phase}_s" for phase in PHASES),
    "step_s",  # the whole step; more than the sum of its phases by what lies between them
    "payload_bytes",  # one worker's message
    "sent_bytes",  # what one worker put on the wire, by the collective's algorithm
    "compression_ratio",  # bytes of the fp32 gradient / payload_bytes
    "compression_error",  # ||x - Q(x)|| / ||x||, on the steps where it is measured; else empty
    "memory_norm",  # l2 norm of what memory withholds, on the same steps; else empty
)

# epochs.csv: one row per evaluation, which is at the end of every `evaluate_every`-th epoch and of the run.
EPOCH_COLUMNS = (
    "epoch",
    "step",  # steps taken so far
    "time_s",  # training time so far; evaluation is not in it
    "lr",
    "train_loss",  # mean over the samples since the row before, while they trained
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "sent_bytes",  # by one worker, all steps so far
    "evaluate_s",
)
# Of a decentralised run epochs.csv has these as well; test_loss and test_accuracy are those of the average of the
# workers' models there. The first four are empty with algorithm.evaluate_local=false.
LOCAL_EPOCH_COLUMNS = (
    "local_test_loss",  # mean over the workers of what each worker's own model has on the whole test set
    "local_test_accuracy",
    "local_test_accuracy_least",  # of the worker whose model is worst
    "local_test_accuracy_most",
    "consensus_distance",  # sqrt(mean_i ||x_i - mean x||^2) of the parameters
)

# local_models.csv of a decentralised run: after every epoch a row for each worker.
LOCAL_MODEL_COLUMNS = (
    "epoch",
    "worker",  # from 0
    "test_loss",  # of its own model on the whole test set; empty with algorithm.evaluate_local=false
    "test_accuracy",
    "distance",  # ||x_i - mean x||
)


class UsageError(Exception):
    """What a user asked for cannot work; nothing was started. `str()` is the one line to print."""


LISTED_BY = "python multirun.py --help"
"""Lists the keys of a config, and the members of its groups."""


def bad_value(key: str, value: object, valid: str, meant: str = "") -> UsageError:
    """A UsageError that names the key, its value and what is valid, in one line whatever the value is.

    Args:
        meant: a hint that stands before what is valid, by `gradsweep.hints.did_you_mean`.
    """
    shown = "null" if value is None else str(value)
    return UsageError(f"{key}={shown if shown.isprintable() else repr(shown)}: {meant}valid is {valid}")


def ranks(config: Mapping[str, Any]) -> int:
    """What mpirun starts for a resolved config: a rank for each worker, and one for a server that is none of them."""
    servers = int(config["exchange"].get("placement") == "dedicated")
    return int(config["workers"]) + servers


def now() -> str:
    """The present time as ISO 8601 in UTC, to the millisecond: sorts as text, on every host."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace the file at `path` by `text` in UTF-8, see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"), durable=durable)


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace the file at `path` as a whole: readers see the old or the new, never a part.

    The new one is written under a name that nobody can know before, so that nobody can have put a link there.

    Args:
        durable: it is on the disk before this returns; else a power cut may leave the old one, or an empty file.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with disk_errors.naming(path), os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:  # also a signal's, which may come when the file has got its name
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def remove_partial(directory: Path) -> None:
    """Remove what `write_text` has left in a directory where its process was killed; nobody may be writing there."""
    for path in directory.glob(".*.*"):
        if re.fullmatch(r"\.(.+\.)+[a-z0-9_]{8}", path.name):
            with contextlib.suppress(OSError):
                path.unlink()


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Replace the file at `path` by `value` as strict JSON: NaN and Inf, which JSON lacks, become null."""
    write_text(path, json.dumps(_without_nan(value), indent=1, allow_nan=False) + "\n", durable=durable)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return value


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object at `path`; None where there is no regular file, or it holds none."""
    try:
        with disk_errors.naming(path):
            value = json.loads(files.read_text(path))
    except (FileNotFoundError, NotADirectoryError, files.NotRegular, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def append_rows(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows to a CSV in one write, with a header first where the file is new or empty.

    A torn last line, left by a crash, is cut off before anything is added to it.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    descriptor = files.open_descriptor(path, flags=os.O_RDWR | os.O_CREAT)
    try:
        with disk_errors.naming(path):
            end = _end_of_last_line(descriptor)
            if end == 0:
                writer.writeheader()
            writer.writerows(rows)
            _write_at(descriptor, end, text.getvalue())
    finally:
        os.close(descriptor)


def append_json(path: Path, value: Mapping[str, Any]) -> None:
    """Append an object as one line of strict JSON; a torn last line, left by a crash, is cut off first.

    Several processes may append to one file: one waits for the other, whose line would pass for a torn one.

    Raises:
        BlockingIOError: the other one does not let go of it.
    """
    with disk_errors.naming(path), file_lock.take(path, wait_s=PATIENCE_S) as lock:
        _write_at(lock.descriptor, _end_of_last_line(lock.descriptor), json_line(value))


def json_line(value: Mapping[str, Any]) -> str:
    """An object as a line of strict JSON, in ASCII: whatever is in its texts, it is one line."""
    return json.dumps(_without_nan(value), allow_nan=False) + "\n"


def _write_at(descriptor: int, end: int, text: str) -> None:
    """Make `text` what follows the first `end` bytes."""
    os.ftruncate(descriptor, end)
    os.lseek(descriptor, end, os.SEEK_SET)
    data = memoryview(text.encode())
    while data:
        data = data[os.write(descriptor, data) :]


def keep_rows(path: Path, rows: int) -> None:
    """Cut a CSV after its first `rows` rows, at once: a reader sees it as it was or cut.

    Raises:
        ValueError: it has fewer rows; nothing has been changed.
    """
    end = left = 0
    if path.exists():
        with path.open("rb") as file:
            for number, line in enumerate(file):  # the header is line 0
                if number > rows or not line.endswith(b"\n"):
                    break
                end, left = end + len(line), number
    if left < rows:
        raise ValueError(f"{path.name} has {left} of {rows} rows")
    if path.exists():
        os.truncate(path, end)


def _end_of_last_line(descriptor: int, block: int = 4096) -> int:
    position = os.lseek(descriptor, 0, os.SEEK_END)
    while position > 0:
        start = max(0, position - block)
        newline = os.pread(descriptor, position - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0


def complete_text(path: Path) -> str:
    """Return the text of an append-only file up to its last newline; empty where no regular file is there."""
    try:
        with disk_errors.naming(path):
            data = files.read_bytes(path, files.MOST_ROW_BYTES)
    except (FileNotFoundError, files.NotRegular):
        return ""
    return data[: data.rfind(b"\n") + 1].decode("utf-8", errors="replace")


def last_row(path: Path, block: int = 8192) -> dict[str, str] | None:
    """Return the last complete row of a CSV by column name; None where there is none yet.

    Reads the two ends of the file only: cheap enough to follow hundreds of runs.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    try:
        with disk_errors.naming(path), files.open_regular(path) as file:
            header = file.readline(block)
            file.seek(max(len(header), file.seek(0, os.SEEK_END) - block))
            tail = file.read(block)
    except FileNotFoundError:
        return None
    lines = tail[: tail.rfind(b"\n") + 1].splitlines()
    if not header.endswith(b"\n") or not lines:
        return None
    names, values = (line.decode("utf-8", "replace").split(",") for line in (header.strip(), lines[-1]))
    return dict(zip(names, values, strict=False))


def tail(path: Path, lines: int = 12, block: int = 16384) -> list[str]:
    """The last non-empty lines of a log, whatever bytes are in it."""
    try:
        with files.open_regular(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - block))
            text = file.read(block).decode("utf-8", errors="replace")
    except OSError:
        return []
    return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]


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
        """The hash of the resolved config, as the directory's name ends."""
        return self.name.rpartition("-")[2]

    def path(self, name: str) -> Path:
        return self.directory / name

    def attempt(self, number: int) -> Path:
        return self.directory / f"attempt-{number}"

    def attempt_numbers(self) -> list[int]:
        """Return the numbers of the attempts that have left a directory."""
        try:
            there = files.real_directories(self.directory)
        except OSError:
            return []
        return sorted(int(found[1]) for name in there if (found := _ATTEMPT.fullmatch(name)))

    def state(self) -> dict[str, Any]:
        """The content of state.json; a run without a readable one is pending."""
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
        """See `contributors`."""
        return contributors(self, self.state()["attempts"], self.result())

    def records(self) -> list[dict[str, Any]]:
        """What these attempts have recorded of where they were made; empty where that of one is not there."""
        found = [read_json(self.attempt(number) / PROVENANCE) for number in self.contributors()]
        return [] if None in found else [record for record in found if record is not None]

    def status(self) -> str:
        return str(self.state().get("status", PENDING))


def contributors(run: Run, attempts: Sequence[Mapping[str, Any]], result: Mapping[str, Any] | None) -> list[int]:
    """The numbers of the attempts whose steps are in a run's figures: the last, and those it has gone on from.

    That it has gone on from a checkpoint stands in its result (`resumed_after`), from whose does not: then all that
    have begun count.

    Args:
        attempts: of its state.
        result: of it; None: there is none.
    """
    numbers = [each["number"] for each in attempts if isinstance(each.get("number"), int)]
    earlier = numbers[:-1] if (result or {}).get("resumed_after") else []
    return [number for number in earlier if os.path.exists(run.attempt(number) / PROVENANCE)] + numbers[-1:]


def nodes_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What an attempt has recorded of each node that it was on, the first one first; of one that said nothing: none."""
    others = record.get(OTHER_NODES)
    said = [node for node in others.values() if isinstance(node, dict)] if isinstance(others, dict) else []
    return [{**record, **node} for node in ({}, *said)]


def runs_of(sweep: Path, folder: str = RUNS) -> list[Run]:
    """Return the runs of a sweep directory, sorted by name; in another `folder` its probes.

    A run is a directory, and no link to one, with a config.yaml that is a regular file.
    """
    directory = sweep / folder
    try:
        there = files.real_directories(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [Run(directory / name) for name in sorted(there) if files.is_regular(directory / name / CONFIG)]
