"""When and how the workers of a run save and restore checkpoints together."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsweep.errors import UsageError
from gradsweep.files import keep_rows, now, write_json
from gradsweep.run_directory import CHECKPOINT, EPOCHS, LOCAL_MODELS, STEPS, YARDSTICK
from trainers.checkpoint import files
from trainers.checkpoint.files import META, SHARED, Damaged
from trainers.checkpoint.state import Training, describe_config, digest
from trainers.config.run_config import RunConfig

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclasses.dataclass(frozen=True)
class Position:
    """The position of a run between two steps.

    `epoch` (from 1) is the epoch of the next step, `start` the number of its steps that are done, and `step` the number
    of all steps that are done. After the last step of an epoch its evaluation is still to come; after the evaluation
    the position is the beginning of the next epoch.
    """

    epoch: int = 1
    start: int = 0
    step: int = 0


class Keeper:
    """Saves and restores the checkpoints of one run. All workers call its methods together.

    Args:
        began: time.monotonic() at the beginning of this attempt.
    """

    def __init__(self, config: RunConfig, comm: MPI.Comm, directory: Path, training: Training, began: float) -> None:
        self.comm, self.directory, self.training = comm, directory, training
        self.config, self.decentralised = config.checkpoint, config.decentralised
        self.described = describe_config(config)
        self.root = directory / CHECKPOINT
        self._saved_at, self._began = time.monotonic(), began
        self._earlier_s = 0.0
        self._last: Position | None = None

    @property
    def total_s(self) -> float:
        """Seconds of this attempt, and of earlier attempts up to the checkpoints from which the run continued."""
        return self._earlier_s + time.monotonic() - self._began

    # When

    def is_overdue(self) -> bool:
        """Tell on rank 0 whether the time between two saves (every_minutes) is over; False on other ranks."""
        minutes = self.config.every_minutes
        return self.comm.rank == 0 and minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes

    def is_due(self, step: int) -> bool:
        """Tell whether a save after `step` is due."""
        return self.config.every_steps is not None and step % self.config.every_steps == 0

    def is_due_after(self, epoch: int) -> bool:
        """Tell whether a save after the evaluation of `epoch` is due."""
        return self.config.every_epochs is not None and epoch % self.config.every_epochs == 0

    # Saving

    def save(self, position: Position, *, required: bool = False) -> None:
        """Write a checkpoint. If that fails, the last checkpoint stays and the run continues, unless the save is
        `required`.

        Raises:
            Diverged: a loss is not finite; nothing is saved.
            DifferentWeights: the workers' weights differ.
            UsageError: the checkpoint is `required` and could not be written; on all workers.
        """
        if position == self._last:  # nothing has been computed since
            return
        self.training.recorder.combine()
        error = self._write(position)
        self._saved_at = time.monotonic()
        if error is None:
            self._last = position
        else:
            last = next(reversed(files.find_checkpoints(self.root)), "none")
            line = f"checkpoint of step {position.step}: {error}; the last complete one is {last}"
            if required:
                raise UsageError(line)
            if self.comm.rank == 0:
                print(f"{line}; the run goes on", file=sys.stderr, flush=True)

    def _write(self, position: Position) -> str | None:
        """Write a checkpoint; return the error, if any, the same on all workers."""
        name = files.name_checkpoint(position.step, evaluated=not position.start)
        partial = self.root / f".{name}.partial"
        entries = self.training.collect_entries()
        digests = self.comm.allgather({key: digest(value) for key, value in entries.items()})
        shared = {key for key in entries if all(others.get(key) == digests[0][key] for others in digests)}
        if self.training.algorithm.replicated and "parameters" not in shared:
            self.training.replica.require_same(f"step {position.step}: the weights")
        if error := self._do_on_rank_0(lambda: files.begin(self.root, name)):
            return error
        own_files = {files.name_worker_file(self.comm.rank): set(entries) - shared}
        if self.comm.rank == 0:
            own_files[SHARED] = shared
        mine: dict[str, Any] = {}
        error = None
        try:
            for file, keys in own_files.items():
                mine[file] = files.write_file(partial / file, {key: entries[key] for key in sorted(keys)})
        except (OSError, RuntimeError) as failed:
            error = f"worker {self.comm.rank}: {_to_line(failed)}"
        everyone = self.comm.allgather((mine, error))
        if error := next((error for _, error in everyone if error), None):
            if self.comm.rank == 0:
                shutil.rmtree(partial, ignore_errors=True)
            return error
        written = {file: described for written_files, _ in everyone for file, described in written_files.items()}
        return self._do_on_rank_0(lambda: self._complete(partial, name, position, written))

    def _do_on_rank_0(self, action: Any) -> str | None:
        """Call `action` on rank 0; return its error, if any, on all workers."""
        error = None
        if self.comm.rank == 0:
            try:
                action()
            except OSError as failed:
                error = _to_line(failed)
        answer: str | None = self.comm.bcast(error)
        return answer

    def _complete(self, partial: Path, name: str, position: Position, written: Mapping[str, Any]) -> None:
        try:
            for name_of_file, described in written.items():
                if (partial / name_of_file).stat().st_size != described["bytes"]:
                    raise OSError(f"{name_of_file} is not on the file system that rank 0 sees")
            for rows in self._count_rows(position):  # rows up to the checkpoint must survive a power failure
                if (self.directory / rows).exists():
                    with (self.directory / rows).open("rb") as file:
                        os.fsync(file.fileno())
            meta = {
                "format": files.FORMAT,
                "time": now(),
                "workers": self.comm.size,
                "position": dataclasses.asdict(position),
                "total_s": self.total_s,
                "config": self.described,
                "files": dict(sorted(written.items())),
            }
            write_json(partial / META, meta)
            files.commit(partial, name, self.config.keep)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    def _count_rows(self, position: Position) -> dict[str, int]:
        """Return the number of rows that each CSV has at `position`, at which the recorder must be."""
        recorder, workers = self.training.recorder, self.comm.size
        evaluated = len(recorder.epochs)
        local = {LOCAL_MODELS: evaluated * workers} if self.decentralised else {}
        return {STEPS: position.step, EPOCHS: evaluated, YARDSTICK: len(recorder.readings) * workers, **local}

    # Going on

    def restore(self) -> Position:
        """Restore the newest checkpoint and return its position; without a checkpoint, remove the rows of earlier
        attempts.

        Raises:
            UsageError: the checkpoint cannot be used; on all workers, and nothing has been changed.
        """
        chosen = self._do_on_all(self._choose if self.comm.rank == 0 else lambda: None)[0]
        if chosen is None:
            if self.comm.rank == 0:
                for name in self._count_rows(Position()):
                    (self.directory / name).unlink(missing_ok=True)
            return Position()
        path, position, meta = chosen
        entries: dict[str, Any] = {}

        def read() -> None:
            for file in (SHARED, files.name_worker_file(self.comm.rank)):
                entries.update(files.read_file(path / file, meta["files"].get(file)))

        def cut() -> None:
            for name, count in self._count_rows(position).items():
                keep_rows(self.directory / name, count)

        self._do_on_all(read, path)
        self._do_on_all(lambda: self.training.load(entries), path)
        self._do_on_all(cut if self.comm.rank == 0 else lambda: None, path)
        self._earlier_s, self._last = float(meta["total_s"]), position
        return position

    def _choose(self) -> tuple[Path, Position, dict[str, Any]] | None:
        """Return the newest checkpoint, which must belong to this run; None without a checkpoint."""
        checkpoints = files.find_checkpoints(self.root)
        if not checkpoints:
            return None
        path = checkpoints[-1]
        try:
            meta = files.read_meta(path)
            theirs = meta["config"]
            keys = [key for key in {**self.described, **theirs} if theirs.get(key) != self.described.get(key)]
            if keys:
                values = [(key, theirs.get(key, "(none)"), self.described.get(key, "(none)")) for key in keys]
                differences = ", ".join(f"{key}={its} (here {ours})" for key, its, ours in values)
                raise Damaged(f"it is that of another config: {differences}")
            if meta["workers"] != self.comm.size:
                raise Damaged(f"it is that of {meta['workers']} workers, not of {self.comm.size}")
            return path, Position(**meta["position"]), meta
        except (Damaged, TypeError) as error:
            raise Damaged(self._explain(path, error)) from error

    def _do_on_all(self, action: Any, path: Path | None = None) -> list[Any]:
        """Call `action` on every worker; return the results of all.

        Raises:
            UsageError: it failed on a worker; raised on all workers.
        """
        result = error = None
        try:
            result = action()
        except (Damaged, ValueError, KeyError, TypeError, RuntimeError, OSError) as failed:
            error = _to_line(failed) if path is None else self._explain(path, failed)
        everyone = self.comm.allgather((result, error))
        if line := next((error for _, error in everyone if error), None):
            raise UsageError(line)
        return [result for result, _ in everyone]

    def _explain(self, path: Path, error: Exception) -> str:
        older = files.find_checkpoints(self.root)[:-1]
        choices = f"remove {self.root} to compute the run from its first step"
        if older:
            choices = f"remove {path.name} there to go on from {older[-1].name}, or {choices}"
        return f"{path}: {_to_line(error)}; valid is a complete checkpoint of this run: {choices}"


def _to_line(error: Exception) -> str:
    """Return the message of an error as one line."""
    return " ".join(str((isinstance(error, OSError) and error.strerror) or error or type(error).__name__).split())
