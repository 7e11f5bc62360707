"""A sweep from its points to its end."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import yaml
from rich.console import Console

from sweep import compose, plan, provenance
from sweep import run as names
from sweep.local import SlotExecutor, SlotJob
from sweep.mpirun import MpiRun, python_environment
from sweep.plan import Point
from sweep.progress import Output, Progress
from sweep.run import Run, UsageError, bad_value, write_text
from sweep.settings import settings_of
from sweep.signals import Interrupted, noticed

LOCK = ".lock"
LOG_LINES = 10  # of a failed run, shown at the end
POLL_S = 0.05

EXECUTORS = {SlotExecutor.name(): SlotExecutor}
"""submitit executors by name: what `hydra.launcher.cluster` may say."""

_executed: dict[Path, list[Run]] = {}  # by sweep: the runs that this process was asked for
_opened: dict[Path, Path] = {}  # by the name asked for: the directory of the sweep that this process has made


class Sweep:
    """An open sweep directory: locked, so that no other process runs anything in it."""

    def __init__(self, directory: Path, *, fresh: bool) -> None:
        """Open `directory`; a `fresh` name that another sweep took in the same second gets a number.

        Raises:
            UsageError: the directory cannot be written or another process holds it.
        """
        self.directory = directory
        number = 1
        while not self._lock() or (fresh and (self.directory / names.SWEEP).exists()):
            if not fresh:
                raise UsageError(
                    f"hydra.sweep.dir={self.directory}: another process is running this sweep; "
                    f"valid is to wait for it, or another directory"
                )
            number += 1
            self.directory = directory.with_name(f"{directory.name}-{number}")

    def _lock(self) -> bool:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._locked: IO[str] = (self.directory / LOCK).open("w")
        except OSError as error:
            raise UsageError(
                f"hydra.sweep.dir={self.directory}: {error.strerror}; valid is a directory that can be written"
            ) from error
        try:
            fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._locked.close()
            return False
        return True

    def close(self) -> None:
        self._locked.close()

    def lay_out(
        self, configs: Sequence[dict[str, Any]], overrides: Sequence[Mapping[str, str]], mpi_program: Sequence[str]
    ) -> list[Run]:
        """Write sweep.yaml and a directory for every point; returns the runs, in order."""
        swept = plan.swept_keys(overrides)
        shown = swept or list(overrides[0])  # a single run is named by what was typed
        points = [
            Point(config, {key: point[key] for key in shown if key in point})
            for config, point in zip(configs, overrides, strict=True)
        ]
        typed = dict.fromkeys(f"{key}={value}" for point in overrides for key, value in point.items())
        self._describe(swept, list(typed), mpi_program)
        return plan.lay_out(self.directory, points)

    def _describe(self, swept: Sequence[str], overrides: Sequence[str], mpi_program: Sequence[str]) -> None:
        path = self.directory / names.SWEEP
        this = {"created": names.now(), "overrides": list(overrides), **provenance.describe(mpi_program)}
        if path.exists():
            known = _read_yaml(path)
            known["swept"] = list(dict.fromkeys([*known.get("swept", []), *swept]))
            known.setdefault("resumed", []).append(this)
        else:
            known = {"format": names.FORMAT, **this, "swept": list(swept)}
        write_text(path, yaml.safe_dump(known, sort_keys=False, allow_unicode=True))


def _read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file that somebody may have damaged; what is not one is empty."""
    try:
        known = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return known if isinstance(known, dict) else {}


def prepare_data(configs: Sequence[Mapping[str, Any]]) -> None:
    """Have the data sets of the runs prepared, once, before any rank needs them, and held against the runs' options.

    Raises:
        UsageError: files are missing, or a run's options do not fit its data; the line says which.
    """
    done = subprocess.run(
        [sys.executable, "-m", "trainers.data", "--runs"],
        input=json.dumps(list(configs)),
        stderr=subprocess.PIPE,
        env={**os.environ, **python_environment()},
        text=True,
        errors="replace",
    )
    lines = done.stderr.strip().splitlines()
    if done.returncode == 2 and lines:
        raise UsageError(lines[-1])
    if done.returncode:
        wanted = sorted({config["dataset"]["name"] for config in configs})
        raise UsageError(f"dataset={','.join(wanted)}: could not be prepared:\n{done.stderr.strip()}")
    if lines:
        print("\n".join(lines), file=sys.stderr)


@contextmanager
def forgetting(directory: Path) -> Iterator[None]:
    """Where this block ends early and nothing was started, take back what Hydra has made, as if it had not been."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            if not (directory / names.SWEEP).exists():
                (directory / "multirun.yaml").unlink(missing_ok=True)
                compose.forget_made()
        raise


def execute(
    configs: Sequence[Mapping[str, Any]],
    overrides: Sequence[Mapping[str, str]],
    directory: Path,
    resolve: Callable[[Mapping[str, Any]], dict[str, Any]],
    *,
    fresh: bool,
    cluster: str,
) -> list[Run]:
    """Run the points of a grid: check all, lay out their directories, run what is missing.

    Args:
        configs: of the points, composed; all of one sweep, so with equal sections `sweep` and `mpi`.
        overrides: key and value of each point's overrides, as typed.
        directory: of the sweep.
        resolve: checks one config and settles what it leaves open.
        fresh: the directory's name was made up for this sweep, so it may be changed.
        cluster: name of the submitit executor.

    Returns:
        The run of each point, in order; equal points share one.

    Raises:
        UsageError: a point cannot work; nothing was started.
        Interrupted: by a signal; everything that was started has been ended.
    """
    if cluster not in EXECUTORS:
        raise bad_value("hydra.launcher.cluster", cluster, "one of " + ", ".join(EXECUTORS))
    resolved = [resolve(config) for config in configs]
    if not resolved:
        raise UsageError("the grid has no points: valid is at least one value for every key")
    for config in resolved:
        for place in ("sweep", "mpi"):
            if config[place] != resolved[0][place]:
                raise UsageError(f"{place}: cannot be swept; valid is one value for all runs of a sweep")
    settings, mpi = settings_of(resolved[0])
    program = mpi.program()
    if settings.resume is not None and not (directory / names.SWEEP).is_file():
        raise UsageError(
            f"sweep.resume={settings.resume}: there is no sweep in {directory} (no {names.SWEEP}); "
            f"valid is `last` or the directory of a sweep"
        )
    prepare_data(resolved)
    # a sweeper that hands over batch after batch fills one directory
    sweep = Sweep(_opened.get(directory, directory), fresh=fresh and directory not in _opened)
    try:
        _opened[directory] = sweep.directory
        runs = sweep.lay_out(resolved, overrides, program)
        _executed.setdefault(sweep.directory, []).extend(runs)
        tasks = {
            run: MpiRun(str(run.directory), names.ranks(config), config["threads_per_worker"], program, mpi.environment)
            for run, config in zip(runs, resolved, strict=True)
        }
        configs_of = dict(zip(runs, resolved, strict=True))
        executor = EXECUTORS[cluster](sweep.directory, max_parallel=settings.max_parallel)
        _run_missing(sweep.directory, tasks, configs_of, executor)
    finally:
        sweep.close()
    return runs


def _run_missing(
    directory: Path, tasks: Mapping[Run, MpiRun], configs: Mapping[Run, Mapping[str, Any]], executor: SlotExecutor
) -> None:
    console = Output()
    todo = plan.missing(tasks)
    say(console, f"{os.path.relpath(directory)}: {len(todo)} of {len(tasks)} runs to do")
    jobs: list[SlotJob] = []
    try:
        for run in todo:
            job = executor.submit(tasks[run])
            assert isinstance(job, SlotJob)
            jobs.append(job)
        shown = Progress(jobs, [configs[run] for run in todo], len(tasks) - len(todo), console)
        with shown as progress, noticed(signal.SIGUSR1) as requests:
            while executor.queue or executor.running:
                executor.poll()
                if requests:
                    requests.clear()
                    executor.preempt_all()
                progress.refresh()
                time.sleep(POLL_S)
    except Interrupted:
        executor.cancel_all("interrupted")
        say(console, "\ninterrupted; what was running has been ended. To go on:", "yellow")
        say(console, f"  {resume_command(directory)}")
        raise
    finally:
        executor.cancel_all("the launcher failed")


def conclude() -> int:
    """Report on what this process has run and show what failed; returns the exit status, 0 or 1."""
    console = Output()
    failed = False
    for directory, runs in _executed.items():
        command = [sys.executable, "-m", "reports", str(directory)]
        environment = {**os.environ, **python_environment()}
        failed |= bool(subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, check=False).returncode)
        unfinished = [run for run in dict.fromkeys(runs) if run.status() != names.DONE]
        show_failures(unfinished, directory, console)
        failed |= bool(unfinished)
    return int(failed)


def show_failures(failed: Sequence[Run], directory: Path, console: Console) -> None:
    """Why runs failed, the end of their logs, and the command that computes only what is missing."""
    for run in failed:
        state = run.state()
        say(console, f"\n{state['status']}: {os.path.relpath(run.directory)}", "bold red")
        if state.get("reason"):
            say(console, f"  {state['reason']}")
        if state["attempts"]:
            log = run.attempt(state["attempts"][-1]["number"]) / names.STDERR
            for line in names.tail(log, LOG_LINES):
                say(console, f"  | {line}", "dim")
    if any(run.status() not in names.COMPLETE for run in failed):
        say(console, "\nTo compute only what is missing:")
        say(console, f"  {resume_command(directory)}")


def say(console: Console, text: str, style: str | None = None) -> None:
    """Print a line as it is: neither markup nor line breaks of rich's own, so that it can be copied."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def resume_command(directory: Path) -> str:
    """This command line with sweep.resume for `directory`."""
    words = [word for word in provenance.command_line() if not word.startswith("sweep.resume=")]
    value = os.path.relpath(directory)
    if not re.fullmatch(r"[A-Za-z0-9_./+-]+", value):  # Hydra's grammar wants quotes around the rest
        value = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return shlex.join([*words, f"sweep.resume={value}"])
