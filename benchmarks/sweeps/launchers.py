"""The launchers of part `peers`: the command that each takes for a grid, and a place to run it in."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.metadata
import itertools
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.sweeps.measuring import PROGRAM, environment, quoted
from sweep.settings.mpi import MpiSettings

MARK = "GRADSWEEP_PEERS"
"""Environment variable of all processes of a sweep: the directory that it runs in."""

MPIRUN = MpiSettings(["mpirun", "--bind-to", "none", "--oversubscribe", "-n", "{workers}"])

RANK = f"""#!/bin/sh
# rank.sh SECONDS FAILING ... LAST: the last word is seed=<point>, or the directory of a run
for last; do :; done
point=${{last#seed=}}
[ ! -d "$last" ] || point=$(sed -n 's/^seed: //p' "$last/config.yaml")
echo "begin $point $(date +%s.%N)" >> "${MARK}/marks"
sleep "$1"
echo "end $point $(date +%s.%N)" >> "${MARK}/marks"
[ "$point" != "$2" ] || exit 3
[ ! -d "$last" ] || echo '{{"status": "done"}}' > "$last/result.json"
"""

APP = """
import subprocess

import hydra


@hydra.main(version_base="1.3", config_path=".", config_name="config")
def main(config):
    subprocess.run([*config.command, f"seed={config.seed}"], check=True)


if __name__ == "__main__":
    main()
"""


@dataclasses.dataclass(frozen=True)
class Launcher:
    """One that is compared."""

    package: str
    overrides: tuple[str, ...] = ()
    """Of Hydra, which choose it; {slots} is how many runs it may have at a time."""

    at_a_time: Callable[[int], tuple[int | None, ...]] = lambda slots: (slots,)
    """How many runs it is asked to have at a time, in the sweeps that are compared; None: nothing can be asked."""

    own: bool = False
    """It is ours: the mpirun is its own business, not that of a program."""

    @property
    def version(self) -> str | None:
        """None where it is not installed."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return "" if self.own else None

    def sides(self, slots: int) -> list[Side]:
        return [Side(self, number) for number in dict.fromkeys(self.at_a_time(slots))]


LAUNCHERS = {
    "gradsweep": Launcher("gradsweep", ("sweep.max_parallel={slots}",), lambda slots: (1, slots), own=True),
    "basic": Launcher("hydra-core", (), lambda slots: (1,)),
    "joblib": Launcher("hydra-joblib-launcher", ("hydra/launcher=joblib", "hydra.launcher.n_jobs={slots}")),
    "submitit": Launcher("hydra-submitit-launcher", ("hydra/launcher=submitit_local",), lambda slots: (None,)),
}


@dataclasses.dataclass(frozen=True)
class Side:
    """A launcher with a number of runs at a time; the shell where there is no launcher."""

    launcher: Launcher | None
    at_a_time: int | None

    @property
    def name(self) -> str:
        if self.launcher is None:
            return "mpirun in a shell, " + ("all at once" if self.at_a_time is None else f"{self.at_a_time} at a time")
        what = "Gradsweep" if self.launcher.own else f"{self.launcher.package} {self.launcher.version}"
        return ", ".join([what, *(word.format(slots=self.at_a_time) for word in self.launcher.overrides)])

    def command(self, rank: Sequence[str], points: Sequence[int]) -> list[str]:
        """What runs a point for each number.

        Args:
            rank: the program of a rank, with the words that come first.
        """
        mpirun = [*MPIRUN.resolve_command(), *rank]
        if self.launcher is not None and self.launcher.own:
            program = [*PROGRAM, "-m", f"mpi.command={quoted(mpirun)}", "workers=1", "experiment=quick"]
            program.append("data.root=../data")  # the digits are prepared once, beside the sweeps
        elif self.launcher is not None:
            program = [sys.executable, "app.py", "-m", f"command={quoted(one_worker(mpirun))}"]
        else:
            words = shlex.join(one_worker(mpirun))
            numbers = f"printf '%s\\n' {' '.join(map(str, points))}"
            if self.at_a_time == 1:
                return ["sh", "-c", f"for i in $({numbers}); do {words} seed=$i; done"]
            return ["sh", "-c", f"{numbers} | xargs -P {self.at_a_time or 0} -I@ {words} seed=@"]
        own = [word.format(slots=self.at_a_time) for word in self.launcher.overrides]
        return [*program, f"seed={','.join(map(str, points))}", "hydra.sweep.dir=sweep", *own]


def one_worker(command: Sequence[str]) -> list[str]:
    return [word.replace("{workers}", "1") for word in command]


@dataclasses.dataclass(frozen=True)
class Ended:
    """A command that has ended: seconds, CPU seconds of all processes, exit status, output."""

    seconds: float
    cpu: float
    status: int
    out: str


class Place:
    """Directories for sweeps of ranks that wait so many `seconds`, removed in the end with all processes in them."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._sweeps: list[Sweep] = []

    def __enter__(self) -> Place:
        self._folder = tempfile.TemporaryDirectory()
        # what its launcher leaves behind becomes a child of this process, which so hears of its CPU time
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        return self

    def __exit__(self, *_: Any) -> None:
        for sweep in self._sweeps:
            sweep.reap(within_s=0)
        self._folder.cleanup()

    def sweep(self, side: Side, points: Sequence[int], *, waiting: float | None = None, failing: int = -1) -> Sweep:
        """A sweep in a directory of its own, not begun yet."""
        folder = Path(self._folder.name, str(len(self._sweeps) + 1))
        folder.mkdir()
        rank = folder / "rank.sh"
        rank.write_text(RANK)
        rank.chmod(0o755)
        (folder / "app.py").write_text(APP)
        (folder / "config.yaml").write_text(yaml.safe_dump({"seed": 0, "command": []}))
        words = [str(rank), str(self.seconds if waiting is None else waiting), str(failing)]
        self._sweeps.append(Sweep(folder, side.command(words, points)))
        return self._sweeps[-1]


class Sweep:
    """A command that runs points, in `folder`."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self.folder, self.command = folder, list(command)

    def begin(self) -> None:
        variables = environment(**{MARK: str(self.folder), "GRADSWEEP_SLOTS": str(self.folder / "slots")})
        self._before, self._began = os.times(), time.perf_counter()
        with (self.folder / "out").open("wb") as out:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def end(self) -> Ended:
        """Wait for the command, and then for what it has left behind."""
        seconds: float | None = None
        while seconds is None:
            pid, status = os.wait()
            if pid == self.process.pid:
                seconds = time.perf_counter() - self._began
                self.process.returncode = os.waitstatus_to_exitcode(status)
        self.reap(within_s=30)
        after = os.times()
        used = after.children_user + after.children_system - self._before.children_user - self._before.children_system
        return Ended(seconds, used, self.process.returncode, (self.folder / "out").read_text(errors="replace"))

    def run(self) -> Ended:
        self.begin()
        return self.end()

    def kill(self) -> None:
        """kill -9 of the command itself."""
        self.process.kill()
        _, status = os.waitpid(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)

    def left(self) -> list[int]:
        """Processes of the sweep that live."""
        mark = f"{MARK}={self.folder}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes() + b"\0":
                    found.append(int(entry.name))
            except OSError:  # of somebody else, or gone
                continue
        return found  # the environment of one that has died is empty

    def reap(self, within_s: float) -> None:
        """Wait so long for what is left of it, then end that."""
        deadline = time.monotonic() + within_s
        while left := self.left():
            if time.monotonic() > deadline:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
            _collect()
            time.sleep(0.02)
        _collect()

    def marks(self, what: str) -> list[tuple[int, float]]:
        """Points and times that ranks have written down: `begin` or `end`."""
        try:
            lines = (self.folder / "marks").read_text().splitlines()
        except FileNotFoundError:
            return []
        words = [line.split() for line in lines]
        return [(int(point), float(when)) for kind, point, when in words if kind == what]

    def most_at_once(self) -> int:
        """How many ranks have been there at the same time."""
        events = [(when, 1) for _, when in self.marks("begin")] + [(when, -1) for _, when in self.marks("end")]
        return max(itertools.accumulate((step for _, step in sorted(events)), initial=0))


def _collect() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
