"""Helpers of all tests: the program as a user starts it, in a directory of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml

# these machines are shared: an example that takes long says nothing
hypothesis.settings.register_profile("gradsweep", deadline=None, derandomize=True)
hypothesis.settings.load_profile("gradsweep")

ROOT = Path(__file__).resolve().parent.parent

QUICK = ("experiment=quick", "max_steps=6", "epochs=1")
ENDLESS = ("experiment=quick", "epochs=1000000")


def written_presets(group: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """What stands in conf/ beside the members of a group: the name of a member, with some of its options."""
    presets = {}
    for path in (ROOT / "conf" / group).glob("*.yaml"):
        options = yaml.safe_load(path.read_text(encoding="utf-8"))
        (base, *_) = options.pop("defaults")
        if not base.startswith("/schema/"):
            presets[path.stem] = (base, options)
    return presets


class Program:
    """`python multirun.py ...` in the background, ended with the test whatever happens."""

    def __init__(self, cwd: Path, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "multirun.py"), *arguments],
            cwd=cwd,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, timeout: float = 60) -> tuple[int, str, str]:
        """Wait for it; exit status, stdout, stderr."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start a command in the test's directory."""
    programs: list[Program] = []

    def begin(*arguments: str, **environment: str) -> Program:
        programs.append(Program(tmp_path, *arguments, **environment))
        return programs[-1]

    yield begin
    for program in programs:
        if program.process.poll() is None:
            program.process.send_signal(signal.SIGTERM)
            program.process.communicate(timeout=30)


@pytest.fixture
def multirun(start: Callable[..., Program]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in the test's directory to its end."""
    return lambda *arguments, **environment: start(*arguments, **environment).end(timeout=240)


def eventually(condition: Callable[[], object], within_s: float = 30) -> object:
    """The first true value of `condition`, which is asked again and again; fails after `within_s`."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {within_s} s: {condition}")
