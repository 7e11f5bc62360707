"""Helpers of all tests: the program as a user starts it, in a directory of its own."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml

# these machines are shared: an example that takes long says nothing
hypothesis.settings.register_profile("gradsweep", deadline=None, derandomize=True)
hypothesis.settings.load_profile("gradsweep")

# a shell without job control has what it starts in the background ignore these, and so would all that tests start
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

ROOT = Path(__file__).resolve().parent.parent

QUICK = ("experiment=quick", "max_steps=6", "epochs=1")
ENDLESS = ("experiment=quick", "epochs=1000000")

NO_REPORT = ("report",)
PLAYED = ("data", "report")
"""What `without` leaves out where a test looks at no report, and where no rank wants the data or `digits` has them."""


def read_presets(group: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """What stands in conf/ beside the members of a group: the name of a member, with some of its options."""
    presets = {}
    for path in (ROOT / "conf" / group).glob("*.yaml"):
        options = yaml.safe_load(path.read_text(encoding="utf-8"))
        (base, *_) = options.pop("defaults")
        if not base.startswith("/schema/"):
            presets[path.stem] = (base, options)
    return presets


class Program:
    """`python multirun.py ...` in the background, ended with the test whatever happens.

    Args:
        without: what the test does not look at, of which torch or matplotlib takes seconds; see tests/without.py.

    A grid is not raced unless the test asks for it: that would take ten seconds.
    """

    def __init__(self, cwd: Path, *arguments: str, without: Sequence[str] = (), **environment: str) -> None:
        if "-m" in arguments and not any(word.startswith("race") for word in arguments):
            place = arguments.index("-m") + 1
            arguments = (*arguments[:place], "race=off", *arguments[place:])
        program = [str(ROOT / "tests/without.py"), ",".join(without)] if without else [str(ROOT / "multirun.py")]
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=cwd,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, timeout: float = 120) -> tuple[int, str, str]:
        """Wait for it; exit status, stdout, stderr."""
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed has no edge, whichever way the tests are started: pytest-xdist sets COLUMNS."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session", autouse=True)
def slots_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests wait for no other sweep of this user, and none for them."""
    slots = tmp_path_factory.mktemp("slots")
    os.environ["GRADSWEEP_SLOTS"] = str(slots)
    return slots


@pytest.fixture(autouse=True)
def slots_of_a_test(slots_of_the_tests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test does not wait for what an earlier one has not quite ended."""
    monkeypatch.setenv("GRADSWEEP_SLOTS", str(slots_of_the_tests / secrets.token_hex(4)))


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `data.root` with the digits prepared: once for all tests, each of which would load torch for it."""
    from trainers.config.groups import GROUPS
    from trainers.data import prepare

    root = tmp_path_factory.mktemp("digits")
    prepare(GROUPS["dataset"]["digits"](), root)
    return root


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start a command in the test's directory."""
    programs: list[Program] = []

    def begin(*arguments: str, without: Sequence[str] = (), **environment: str) -> Program:
        programs.append(Program(tmp_path, *arguments, without=without, **environment))
        return programs[-1]

    yield begin
    for program in programs:
        if program.process.poll() is None:
            program.process.send_signal(signal.SIGTERM)
            program.process.communicate(timeout=120)


@pytest.fixture
def multirun(start: Callable[..., Program]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in the test's directory to its end."""
    return lambda *arguments, **given: start(*arguments, **given).end(timeout=240)


def eventually(condition: Callable[[], object], within_s: float = 120) -> object:
    """The first true value of `condition`, which is asked again and again; fails after `within_s`."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"not within {within_s} s: {condition}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `slow` run only for a `-m` that names them; those of SLURM or a browser, where they fail, once more.

    SLURM's daemons, and a browser's processes, share a few cores with everything else: a heartbeat or a frame that
    comes late is no fault of ours. A test that passed only then is counted as `rerun` in pytest's last line. `.ci/run`
    tries every test twice.
    """
    for item in items:
        if item.get_closest_marker("slurm") or "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flaky(reruns=1))
    if "slow" in config.getoption("-m"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: ask for it with -m slow"))
