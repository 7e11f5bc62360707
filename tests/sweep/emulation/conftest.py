"""Clusters of the tests: described, and built for real where the kernel allows it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradsweep import run_directory
from sweep import emulation
from sweep.emulation.build_cluster import find_program
from sweep.emulation.capability_check import PROGRAMS, try_emulation
from sweep.system.processes import find_processes
from tests.conftest import ROOT, eventually

MPIRUN = str(Path(sys.executable).parent / "mpirun")


def describe_network(**changes: Any) -> dict[str, Any]:
    """The section `network` of a config."""
    plain = {"name": "emulated", "bandwidth": "1gbit", "latency": "0s", "loss": 0.0, "workers_per_host": 1, "hosts": {}}
    return {**plain, **changes}


@pytest.fixture(autouse=True)
def a_kernel_that_allows_it(request: pytest.FixtureRequest) -> None:
    """Skip what builds a cluster where that cannot be, with the reason."""
    if request.node.get_closest_marker("network"):
        missing = [program for program in (*PROGRAMS, "cc") if find_program(program) is None]
        if missing:
            pytest.skip(f"no program {' nor '.join(missing)}")
        if problem := try_emulation().get("problem"):
            pytest.skip(problem)


class Emulation:
    """A job on an emulated cluster, with a shell script that plays mpirun: what it is told comes behind its name.

    In the script, `on HOST COMMAND...` runs a command there.

    Args:
        directory: of the attempt, and for temporary files.
        before: words before the command: another way to start it.
        preexec: called in the child before it begins.
    """

    def __init__(
        self,
        directory: Path,
        script: str,
        ranks: int = 2,
        before: Sequence[str] = (),
        preexec: Callable[[], None] | None = None,
        environment: dict[str, str] | None = None,
        **network: Any,
    ) -> None:
        self.attempt, temporary = directory / "attempt-1", directory / "tmp"
        for each in (directory, self.attempt, temporary):
            each.mkdir(exist_ok=True)
        program = directory / "mpirun"
        program.write_text(f'#!/bin/sh\non() {{ "$TMPDIR/emulation/agent" -x "$@"; }}\n{script}\n')
        program.chmod(0o755)
        self.process = subprocess.Popen(
            [*before, *emulation.build_command(describe_network(**network), ranks, 1, [str(program), "of the user"])],
            env={
                **os.environ,
                **(environment or {}),
                "PYTHONPATH": str(ROOT),
                "TMPDIR": str(temporary),
                run_directory.ATTEMPT_VARIABLE: str(self.attempt),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=preexec,
        )

    def end(self) -> tuple[int, str, str]:
        """Exit status, stdout, stderr."""
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err

    def record(self) -> dict[str, Any]:
        """What it has written of itself."""
        return dict(json.loads((self.attempt / run_directory.EMULATION).read_text()))

    def is_up(self) -> bool:
        return (self.attempt / run_directory.EMULATION).exists()

    def left(self) -> list[int]:
        """Its processes."""
        return find_processes(self.attempt)

    def namespaces(self) -> set[str]:
        """The network namespaces of its processes."""
        return namespaces_of(self.left()) - {os.readlink("/proc/self/ns/net")}

    def nothing_is_left(self, namespaces: set[str]) -> None:
        """No process of it, and none in its namespaces, which have no other way to stay."""
        eventually(lambda: not self.left(), 30)
        assert not namespaces & all_namespaces()


def all_namespaces() -> set[str]:
    """The network namespaces of all processes of the machine."""
    return namespaces_of(int(entry.name) for entry in Path("/proc").glob("[0-9]*"))


def namespaces_of(pids: Iterable[int]) -> set[str]:
    links = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            links.add(os.readlink(f"/proc/{pid}/ns/net"))
    return links


Emulate = Callable[..., Emulation]


@pytest.fixture
def emulate(tmp_path: Path) -> Iterator[Emulate]:
    """Start a job on an emulated cluster in a directory of the test's."""
    made: list[Emulation] = []

    def begin(script: str, name: str = "job", **given: Any) -> Emulation:
        made.append(Emulation(tmp_path / name, script, **given))
        return made[-1]

    yield begin
    for each in made:
        if each.process.poll() is None:
            each.process.send_signal(signal.SIGKILL)
            each.process.communicate()


@pytest.fixture(scope="session")
def links() -> str:
    """The interfaces of this namespace, which no test may change."""
    return interfaces()


def interfaces() -> str:
    program = find_program("ip") or shutil.which("ip")
    assert program is not None
    return subprocess.run([program, "-o", "link"], capture_output=True, text=True, check=True).stdout
