"""Plays mpirun and the ranks of trainers/packed/worker.py, without MPI and torch: `python fake_world.py RANKS ...
POOL_DIR`.
Or one rank that an mpirun has started, with `rank` in place of their number.

What a rank does with a run is the text of the file `does` in the run's directory: `done` leaves a result; `wait` waits
to be stopped and says that it has saved; `killed` is killed, `together` with all others; `badly` fails in rank 0 while
the others wait; `cleanly` fails in all; `deaf` waits and does not listen, `signals` only to a SIGUSR2. Where there is
no such file, it notes that it has begun, waits until the file `go` is there (in the run's directory, or named by
FAKE_GO) and leaves a result.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any


def rank(number: int, size: int, pool: Path) -> None:
    control = json.loads((pool / "control.json").read_text())
    address = control["address"] if control["family"] == "AF_UNIX" else tuple(control["address"])
    link = Client(address, control["family"], authkey=bytes.fromhex(control["key"]))

    def say(**message: Any) -> None:
        link.send_bytes(json.dumps(message).encode())

    def terminated(signum: int, frame: object) -> None:
        say(say="terminated")
        os._exit(143)

    signal.signal(signal.SIGTERM, terminated)
    shown = size if not os.environ.get("FAKE_SINGLETONS") else 1
    say(say="hello", rank=number if shown == size else 0, size=shown, pid=os.getpid(), host="here", library="none")
    while True:
        order = json.loads(link.recv_bytes())
        if order["do"] == "end":
            os._exit(0)
        if order["do"] != "train":
            continue
        words, held = f"rank {order['ranks'].index(number)} of {order['ranks']} on {order['cores']}\n", []
        if order["descriptors"]:
            with socket.fromfd(link.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as plain:
                held = socket.recv_fds(plain, 1, order["descriptors"])[1]
            os.write(held[0], words.encode())
        else:
            say(say="output", number=order["number"], stream=0, data=words)
        directory, first = Path(order["directory"]), order["ranks"][0] == number
        does = (directory / "does").read_text() if (directory / "does").exists() else "until"
        failed = None
        if does == "until":
            does = until(link, directory, first)
        if does == "done" and first:
            (directory / "result.json").write_text('{"status": "done"}')
        if does == "wait":
            while json.loads(link.recv_bytes())["do"] != "stop":
                pass
        if does in ("wait", "stopped") and first:
            (Path(order["attempt"]) / "stopped.json").write_text('{"reason": "saved"}')
        if does == "signals":
            while (message := json.loads(link.recv_bytes()))["do"] != "signal":
                pass
            assert message["signal"] == signal.SIGUSR2
            say(say="output", number=order["number"], stream=1, data="dumped\n")
            time.sleep(1000)
        if does == "deaf" or (does == "badly" and not first):
            time.sleep(1000)
        if does == "together" or (does == "killed" and first):
            time.sleep(0.2)  # for the others to have begun
            os.kill(os.getpid() if does == "killed" else os.getppid(), signal.SIGKILL)
            time.sleep(1000)
        if does in ("badly", "cleanly"):
            failed = does
            report = {"rank": 0, "reason": f"failed {does}", "time": "now"}
            (Path(order["attempt"]) / "failure-0.json").write_text(json.dumps(report))
        for each in held:
            os.close(each)
        say(say="ended", number=order["number"], failed=failed)


def until(link: Any, directory: Path, first: bool) -> str:
    """Wait for a file, or for an order to stop."""
    if first:
        with (directory / "began").open("a") as file:
            file.write(f"{os.getpid()}\n")
    while not (directory / "go").exists() and not os.path.exists(os.environ.get("FAKE_GO", "/nowhere")):
        if link.poll(0.05) and json.loads(link.recv_bytes())["do"] == "stop":
            return "stopped"
    return "done"


def main() -> None:
    pool = Path(sys.argv[-1])
    if sys.argv[1] == "rank":  # of a real mpirun
        rank(int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"]), pool)
    size = int(sys.argv[1])
    if os.environ.get("FAKE_NO_START"):
        sys.exit("no slots are available")
    children = []
    for number in range(size):
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            try:
                rank(number, size, pool)
            finally:
                os._exit(1)
        children.append(child)

    def end(signum: int, frame: object) -> None:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    code = 0
    for _ in children:
        ended, status = os.waitpid(-1, 0)
        if status and not code:
            code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            for child in children:
                if child != ended:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGTERM)
    sys.exit(code)


main()
