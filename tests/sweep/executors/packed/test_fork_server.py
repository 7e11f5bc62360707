"""Ranks that are forked by a process which has loaded everything, in place of what MPI started; neither is here."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.attempts.run_task import RunTask
from sweep.executors.packed import fork_server
from sweep.executors.packed.fork_server import ForkServer, ForkServers
from sweep.launch import execute
from sweep.launch.session import Session
from sweep.settings.sweep import SweepSettings
from sweep.system.processes import WORLD_VARIABLE, find_processes, kill_processes
from tests.conftest import ROOT, eventually

POOL = '''
"""Stands for a rank: tells of itself, then does what DOES says."""
import json, os, signal, sys, time
heard = []
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: heard.append(number))
def main(arguments):
    pass_on = signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    told = dict(arguments=arguments, pid=os.getpid(), parent=os.getppid(), folder=os.getcwd(), own=os.environ["OWN"])
    told |= dict(cores=sorted(os.sched_getaffinity(0)), forked="torch" in sys.modules, reaps=pass_on)
    told |= dict(open=sorted(int(each) for each in os.listdir("/proc/self/fd")), variables=len(os.environ))
    print(json.dumps(told), flush=True)
    print("to stderr", file=sys.stderr, flush=True)
    does = os.environ["DOES"]
    if does.startswith("die"):
        os.kill(os.getpid(), int(does.split()[1]))
    if does == "wait":
        while len(heard) < 2:
            time.sleep(0.01)
        print(json.dumps(heard), flush=True)
        does = "5"
    if does == "hang":
        time.sleep(1000)
    os._exit(int(does))
if __name__ == "__main__":
    main(sys.argv[1:])
'''


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Code whose ranks are played, in a directory with a space; and libraries of which nothing is loaded."""
    libraries = tmp_path / "libraries"
    code = tmp_path / "the code"
    for package in (
        "trainers",
        "trainers/packed",
        "trainers/training",
        "compressors",
        "compressors/kernels",
        "compressors/kernels/cpu",
    ):
        (code / package).mkdir(parents=True)
        (code / package / "__init__.py").touch()
    (code / "trainers/packed/worker.py").write_text(POOL)
    for name in ("trainers/packed/isolation.py", "trainers/training/loop.py", "compressors/kernels/cpu/sums.py"):
        (code / name).touch()
    shutil.copy(ROOT / "trainers/packed/rank_proxy.py", code / "trainers/packed")
    (libraries / "scipy").mkdir(parents=True)
    for name in ("torch.py", "yaml.py", "numba.py", "scipy/__init__.py", "scipy/linalg.py"):
        (libraries / name).touch()
    (libraries / "numba.py").write_text("def njit(signature):\n    return lambda function: function\n")
    monkeypatch.setenv("PYTHONPATH", str(libraries))
    return code


@pytest.fixture
def forks(code: Path) -> Iterator[ForkServer]:
    forks = ForkServer({}, 1)
    yield forks
    forks.close()


@pytest.fixture
def world(tmp_path: Path, code: Path, forks: ForkServer) -> Callable[..., subprocess.Popen[str]]:
    """Starts what MPI starts as ranks of a world: it has a directory for its sockets, and a mark."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    program = forks.serve(task(code), str(scratch), 4)

    def start(does: str, **more: Any) -> subprocess.Popen[str]:
        own = {"PMIX_RANK": "0", "OWN": "that of\nthis rank", "DOES": does, WORLD_VARIABLE: str(tmp_path)}
        environment = {**os.environ, "PYTHONPATH": str(code), **own, **more.pop("variables", {})}
        environment = {name: value for name, value in environment.items() if value is not None}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(program, env=environment, text=True, **pipes, **more)

    return start


def task(code: Path, command: Sequence[str] = ("mpirun",), **environment: str) -> RunTask:
    return RunTask(str(code), 1, 1, list(command), environment, code=str(code))


def told(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    deadline = threading.Timer(120, process.kill)
    deadline.start()
    try:
        return json.loads(process.stdout.readline())
    finally:
        deadline.cancel()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def refused(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(str(address))
        except ConnectionRefusedError:
            return True
        return False


def test_a_rank_is_what_mpi_has_started(world: Any, forks: ForkServer, tmp_path: Path) -> None:
    """It has the environment, cores, directory, stdin, stdout and stderr of that process, and its end."""
    core = max(os.sched_getaffinity(0))
    process = world("3", cwd=tmp_path, preexec_fn=lambda: os.sched_setaffinity(0, [core]))
    about, (_, errors) = told(process), process.communicate(timeout=120)
    assert about.pop("pid") != process.pid and about.pop("parent") == forks.process.pid
    assert about.pop("variables") == len(set(os.environ) | {"PYTHONPATH", "PMIX_RANK", "OWN", "DOES", WORLD_VARIABLE})
    assert about.pop("open")[:3] == [0, 1, 2]
    assert about == {
        "arguments": [str(tmp_path / "scratch")],
        "folder": str(tmp_path),
        "own": "that of\nthis rank",
        "cores": [core],
        "forked": True,
        "reaps": True,
    }
    assert (errors, process.returncode) == ("to stderr\n", 3)


def test_ranks_do_not_keep_what_is_others(world: Any) -> None:
    """A pipe to another rank that stays open here would hide that one's end."""
    processes = [world("hang") for _ in range(3)]
    kept = [set(told(process)["open"]) for process in processes]
    assert all(len(each) <= 4 for each in kept), kept  # and the listing itself
    for process in processes:
        process.kill()
        process.communicate(timeout=120)


PRELOADING = '''
"""Stands for what loads what runs need."""
import sys, threading, time
def preload(runs):
    sys.modules["__main__"].preloaded = runs
    if any("with a thread" in run for run in runs):
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
'''
TELLS = "import json, os, sys\ndef main(arguments):\n    told = getattr(sys.modules['__main__'], 'preloaded', None)\n"
TELLS += (
    "    print(json.dumps(told), flush=True)\n    os._exit(0)\nif __name__ == '__main__':\n    main(sys.argv[1:])\n"
)


@pytest.mark.parametrize(
    ("runs", "preloaded"),
    [
        ([], None),
        (["a run", "/b"], ["a run", "/b"]),
        ([f"/{number}" for number in range(60)], [f"/{number}" for number in range(0, 60, 5)]),
        (["/with a thread"], None),  # whose ranks start by themselves
    ],
)
def test_what_runs_need_is_loaded_before_ranks_are_forked(
    code: Path, forks: ForkServer, tmp_path: Path, runs: list[str], preloaded: list[str] | None
) -> None:
    (code / "trainers/packed/worker.py").write_text(TELLS)
    (code / "trainers/packed/preload.py").write_text(PRELOADING)
    (tmp_path / "scratch").mkdir()
    program = forks.serve(task(code), str(tmp_path / "scratch"), 1, runs)
    environment = {**os.environ, "PYTHONPATH": str(code), "PMIX_RANK": "0"}
    pipes = {"env": environment, "capture_output": True, "text": True}
    done = subprocess.run(program, cwd=tmp_path, timeout=120, check=True, **pipes)
    assert json.loads(done.stdout) == (preloaded and [os.path.abspath(run) for run in preloaded])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_rank_that_is_killed_is_seen_to_be(world: Any, number: int) -> None:
    process = world(f"die {int(number)}" if number != signal.SIGTERM else "hang")
    rank = told(process)["pid"]
    if number == signal.SIGTERM:
        os.kill(rank, signal.SIGKILL)
        number = signal.SIGKILL
    process.communicate(timeout=120)
    assert process.returncode == -number


def test_who_hands_over_nothing_gets_no_rank(world: Any, forks: ForkServer, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(tmp_path / "scratch" / fork_server.SOCKET))
        link.send(b".")
        assert link.recv(1) == b""
    process = world("0")
    assert told(process)["forked"]
    process.communicate(timeout=120)


def test_signals_reach_the_rank(world: Any) -> None:
    process = world("wait")
    told(process)
    process.send_signal(signal.SIGUSR1)
    process.send_signal(signal.SIGTERM)
    assert sorted(told(process)) == sorted([signal.SIGUSR1, signal.SIGTERM])
    process.communicate(timeout=120)
    assert process.returncode == 5


def test_a_signal_that_comes_before_the_rank_reaches_it_once(world: Any, forks: ForkServer) -> None:
    forks.process.send_signal(signal.SIGSTOP)
    process = world("wait")
    status = Path(f"/proc/{process.pid}/status")
    eventually(lambda: int(status.read_text().split("SigCgt:")[1].split()[0], 16) >> signal.SIGUSR1 - 1 & 1)
    process.send_signal(signal.SIGUSR1)
    forks.process.send_signal(signal.SIGCONT)
    told(process)
    process.send_signal(signal.SIGTERM)
    assert told(process) == [signal.SIGUSR1, signal.SIGTERM]
    process.communicate(timeout=120)
    assert process.returncode == 5


def test_a_rank_dies_with_what_mpi_has_started(world: Any) -> None:
    processes = [world("hang"), world("hang")]
    ranks = [told(process)["pid"] for process in processes]
    processes[0].kill()
    processes[0].communicate(timeout=120)
    eventually(lambda: not alive(ranks[0]))
    assert alive(ranks[1]) and processes[1].poll() is None
    processes[1].kill()
    processes[1].communicate(timeout=120)


@pytest.mark.parametrize("how", ["killed", "left"])
def test_all_ranks_die_with_the_fork_server_and_that_with_its_launcher(world: Any, forks: ForkServer, how: str) -> None:
    processes = [world("hang"), world("hang")]
    ranks = [told(process)["pid"] for process in processes]
    if how == "killed":
        forks.process.kill()
    else:
        forks._control.close()
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL
    eventually(lambda: not any(map(alive, ranks)))
    eventually(lambda: forks.process.poll() is not None)
    assert forks.was_killed == (how == "killed")


def test_the_ranks_of_a_world_are_found_by_its_mark(world: Any, forks: ForkServer, tmp_path: Path) -> None:
    """Though the process that forked them had another, and serves other worlds."""
    process, other = world("hang"), world("hang", variables={WORLD_VARIABLE: "/another"})
    rank, others = told(process)["pid"], told(other)["pid"]
    assert set(find_processes(tmp_path, WORLD_VARIABLE)) == {process.pid, rank}
    kill_processes(tmp_path, WORLD_VARIABLE)
    assert not alive(rank) and process.wait(20) == -signal.SIGKILL
    assert alive(others) and forks.process.poll() is None
    process.communicate()
    other.kill()
    other.communicate(timeout=120)


@pytest.mark.parametrize("why", ["another MPI", "no fork server", "forgotten"])
def test_without_a_fork_server_it_is_an_ordinary_rank(world: Any, forks: ForkServer, tmp_path: Path, why: str) -> None:
    if why == "no fork server":
        forks.close()
    if why == "forgotten":
        forks.stop_serving(str(tmp_path / "scratch"))
        eventually(lambda: refused(tmp_path / "scratch" / fork_server.SOCKET))
    process = world("3", cwd=tmp_path, variables={"PMIX_RANK": None} if why == "another MPI" else {})
    about = told(process)
    process.communicate(timeout=120)
    assert about["pid"] == process.pid and not about["forked"] and process.returncode == 3


def test_where_a_library_has_a_thread_nothing_is_forked(code: Path, tmp_path: Path) -> None:
    (tmp_path / "libraries/torch.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    )
    forks = ForkServer({}, 1)
    try:
        assert forks.process.wait(20) == 0 and not forks.was_killed
    finally:
        forks.close()


def test_one_fork_server_serves_all_that_is_started_alike(code: Path) -> None:
    fork_servers = ForkServers()
    try:
        first = fork_servers.find_or_start(task(code))
        assert first is not None and fork_servers.find_or_start(task(code)) is first
        assert fork_servers.find_or_start(task(code, FOO="1")) not in (None, first)
        first.process.kill()
        first.process.wait()
        assert fork_servers.find_or_start(task(code)) not in (None, first)
    finally:
        fork_servers.close()
    assert first.process.returncode is not None


def test_one_that_was_started_early_is_taken_or_ends(code: Path) -> None:
    fork_servers = ForkServers()
    with fork_servers.start_early(["mpirun"], {}, 1):
        (waiting,) = fork_servers._all
    assert fork_servers.find_or_start(task(code)) is waiting
    fork_servers.close()
    assert waiting.process.returncode is not None
    with pytest.raises(KeyError), fork_servers.start_early(["mpirun"], {}, 1):
        (waiting,) = fork_servers._all
        raise KeyError
    assert waiting.process.returncode is not None and not fork_servers._all


@pytest.mark.parametrize(
    ("command", "environment", "suits"),
    [
        (["/opt/ompi/bin/mpirun", "-n", "{workers}"], {}, True),
        (["srun", "--mpi=pmix"], {}, False),
        (["./site-mpirun"], {}, False),
        (["mpirun"], {"GRADSWEEP_FORK": "0"}, False),
    ],
)
def test_who_may_fork(
    command: list[str], environment: dict[str, str], suits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "has_gpu_driver", lambda: False)
    assert fork_server.can_fork(command, environment) is suits
    monkeypatch.setattr(fork_server, "has_gpu_driver", lambda: True)
    assert not fork_server.can_fork(command, environment)


@pytest.mark.parametrize(
    ("settings", "cluster", "loads"),
    [
        ({"pack": True}, "local", True),
        ({"pack": False}, "local", False),
        ({"pack": True, "wait": False}, "local", False),
        ({"pack": True}, "slurm", False),
    ],
)
def test_packed_sweeps_of_this_machine_load_while_data_is_prepared(
    settings: dict[str, bool], cluster: str, loads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    session = Session()
    session.fork_servers = ForkServers()
    monkeypatch.setattr(session.fork_servers, "start_early", lambda *x: asked.append(x) or contextlib.nullcontext())
    mpi = SimpleNamespace(resolve_command=lambda: ["/there/mpirun"], variables={"A": "1"})
    config = {"launcher": {"cluster": cluster}, "threads_per_worker": 2}
    point = SimpleNamespace(config=config, mpi=mpi)
    points: Any = SimpleNamespace(settings=SweepSettings(**settings), points=[point])
    with execute._load_torch_early(session, points):
        assert asked == ([(["/there/mpirun"], {"A": "1"}, 2)] if loads else [])
