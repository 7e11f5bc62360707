"""Whoever is killed, nothing is left; signals go on to mpirun, and its end is the program's. A shell plays mpirun."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gradsweep import failure_causes
from sweep.attempts import failures
from tests.conftest import ROOT, eventually
from tests.sweep.emulation.conftest import Emulate, Emulation, interfaces

pytestmark = [pytest.mark.network, pytest.mark.thorough]

ENDLESS = "on host0 'sleep 1000' & on host1 'sleep 1000 & sleep 1000' & echo up; sleep 1000"
HEEDING = """for each in USR1 USR2 TERM; do trap "echo $each" $each; done
trap 'echo INT; exit 4' INT
echo up; while :; do sleep 0.05; done"""


def up(job: Emulation) -> None:
    """Wait for its mpirun."""
    assert job.process.stdout is not None and job.process.stdout.readline() == "up\n"


def program(pid: int) -> str:
    """What a process runs; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -USR1 $$", -10), ("kill -9 $$", -9)])
def test_it_ends_as_mpirun_did(emulate: Emulate, script: str, code: int) -> None:
    assert emulate(script).end()[0] == code


def test_signals_go_on_to_mpirun(emulate: Emulate) -> None:
    job = emulate(HEEDING)
    up(job)
    assert job.process.stdout is not None
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGUSR1):
        job.process.send_signal(number)
        assert job.process.stdout.readline() == f"{number.name[3:]}\n"
    job.process.send_signal(signal.SIGINT)
    assert job.end()[:2] == (4, "INT\n")


def test_a_signal_before_mpirun_ends_it(emulate: Emulate) -> None:
    """As it would end an mpirun that does not listen yet: the launcher knows what that status means."""
    job = emulate("echo started")
    job.process.send_signal(signal.SIGUSR1)
    assert job.end()[:2] == (-signal.SIGUSR1, "")


@pytest.mark.parametrize("moment", ["run", "set-up"])
def test_nothing_is_left_of_a_killed_one(emulate: Emulate, moment: str) -> None:
    before = interfaces()
    job = emulate(ENDLESS, ranks=4)
    if moment == "run":
        up(job)
        eventually(lambda: len(job.namespaces()) >= 3, 20)  # the switch's, and those of two hosts with a process
    else:
        eventually(job.namespaces, 20)
    namespaces = job.namespaces()
    job.process.send_signal(signal.SIGKILL)
    job.nothing_is_left(namespaces)
    assert interfaces() == before


def test_nothing_is_left_when_its_launcher_is_killed(tmp_path: Path) -> None:
    """The kernel tells it, as `sweep.system.processes.prepare_child` asks; also in a user namespace."""
    code = (
        "import os, sys, time, pathlib; from sweep.system.processes import prepare_child; me = os.getpid()\n"
        "from tests.sweep.emulation.conftest import Emulation\n"
        f"job = Emulation(pathlib.Path({str(tmp_path)!r}), {ENDLESS!r}, preexec=lambda: prepare_child([], me),\n"
        "    before=sys.argv[1:])\n"
        "job.process.stdout.readline(); print('up', flush=True); time.sleep(1000)"
    )
    for before in ([], without_rights()):
        launcher = subprocess.Popen(
            [sys.executable, "-c", code, *before], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert launcher.stdout is not None and launcher.stdout.readline() == "up\n"
        job = Left(tmp_path)
        namespaces = job.namespaces()
        assert namespaces
        launcher.kill()
        launcher.wait()
        job.nothing_is_left(namespaces)


class Left(Emulation):
    """What another process has started."""

    def __init__(self, directory: Path) -> None:
        self.attempt = directory / "attempt-1"


def without_rights() -> list[str]:
    """Words before a command that take root's right to make namespaces away; empty where there is none to take."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        return []
    return [setpriv, "--bounding-set=-sys_admin,-net_admin", "--inh-caps=-sys_admin,-net_admin"]


def test_no_rights_are_needed(emulate: Emulate) -> None:
    """Where the kernel lets users have namespaces; whoever started it finds its processes, and can end it."""
    words = without_rights()
    if words and subprocess.run([*words, "unshare", "--user", "true"], capture_output=True).returncode:
        pytest.skip("this kernel allows no user namespaces")
    job = emulate(ENDLESS, before=words, latency="5ms", bandwidth="1tbit")
    up(job)
    namespaces = job.namespaces()
    eventually(lambda: len(job.left()) >= 5, 20)
    record = job.record()
    assert record["delay"] in ("switch", "netem")
    if record["delay"] == "switch" and (words or os.geteuid() != 0):
        assert "MB may wait at the switch before packets get lost" in record["problems"][0]
    job.process.send_signal(signal.SIGKILL)
    job.nothing_is_left(namespaces)


def test_a_switch_that_dies_is_the_reason(emulate: Emulate) -> None:
    """Packets would stop, and ranks wait for ever."""
    job = emulate(ENDLESS, latency="5ms", hosts={1: {"latency": "6ms"}})
    up(job)
    (switch,) = [pid for pid in job.left() if "switch-" in program(pid)]
    os.kill(switch, signal.SIGKILL)
    code, out, err = job.end()
    reason, cause = failures.explain_exit(job.attempt, code)
    assert (code, cause) == (1, failure_causes.START)
    assert reason == "the network could not be emulated: the switch has ended with -9"
    job.nothing_is_left(set())


def test_it_is_ended_by_force_where_mpirun_does_not_end(emulate: Emulate) -> None:
    """Nobody else may be left to do it: the launcher may have been killed."""
    code = "import sys; from sweep.emulation import __main__, namespaces; namespaces.PATIENCE_S = 1; "
    code += "__main__.main(sys.argv[4:])"  # behind -c, python, -m, sweep.emulation
    job = emulate("trap 'echo heard' TERM; echo up; while :; do sleep 0.1; done", before=[sys.executable, "-c", code])
    up(job)
    namespaces = job.namespaces()
    job.process.terminate()
    assert job.end()[0] != 0
    job.nothing_is_left(namespaces)


def test_a_broken_connection_is_a_killed_rank(tmp_path: Path) -> None:
    """Ranks on other hosts see it before mpirun does."""
    reason, cause = failures.explain_exit(tmp_path, 14)
    assert (reason, cause) == ("a rank was killed: the others lost their connections to it", failure_causes.KILLED)
    assert failures.explain_exit(tmp_path, 14, out_of_memory=True)[1] == failure_causes.MEMORY
