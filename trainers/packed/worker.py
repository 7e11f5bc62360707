"""`mpirun -n R python -m trainers.packed.worker WORLD_DIR`: a rank of a world of many runs (docs/guide/packing.md).

WORLD_DIR/control.json has the address at which the launcher (sweep/executors/packed/world.py) listens. The launcher
sends orders as JSON: to train a run with some ranks of the world, to stop it, to end. A rank reports that a run has
ended here, or that a signal ends the rank. A rank without a run waits without computing, and ends with the launcher.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import sys
import threading
from functools import partial
from multiprocessing.connection import Client, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.mpi import stopping
from trainers.mpi.process import die_with_parent, limit_threads
from trainers.training import rank

if TYPE_CHECKING:
    from mpi4py import MPI

MESSAGE_BYTES = 1 << 20
"""Size of an order, at most."""


class Control:
    """The connection to the launcher; a thread reads it, so that an order to stop arrives during the training.

    Args:
        directory: of control.json, which has the address and the key of the connection.
    """

    def __init__(self, directory: Path) -> None:
        from gradsweep.run_directory import WORLD_CONTROL

        self._control = json.loads((directory / WORLD_CONTROL).read_text())
        self.threads: int = self._control["threads"]
        self._sending = threading.Lock()
        self._changing = threading.Lock()
        self.orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()  # to train or to end
        self._current: int | None = None
        self._to_stop: set[int] = set()
        # When a rank has died, mpirun sends SIGTERM to the others. They report it, so that the launcher knows which
        # rank was first. The signal itself writes the byte, even if the main thread hangs in a collective.
        self._woken, writing = socket.socketpair()
        writing.setblocking(False)
        self._writing = writing
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)

    def begin(self, hello: dict[str, Any]) -> None:
        """Connect to the launcher, send `hello`, and start to read orders."""
        family, address = self._control["family"], self._control["address"]
        if family != "AF_UNIX":
            address = tuple(address)  # host, port
        self._connection = Client(address, family, authkey=bytes.fromhex(self._control["key"]))
        self.send(hello)
        threading.Thread(target=self._read, name="control", daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; errors are ignored, because the reading thread notices if the launcher has ended."""
        try:
            with self._sending:
                self._connection.send_bytes(json.dumps(message).encode())
        except OSError:
            pass

    def send_output(self, number: int, stream: int, data: bytes) -> None:
        """Send output of run `number` on this rank."""
        self.send({"say": "output", "number": number, "stream": stream, "data": data.decode("latin-1")})

    def train(self, number: int | None) -> None:
        """Note that run `number` begins (None: no run); an order to stop it, even an earlier one, becomes a request."""
        with self._changing:
            self._current = number
            stopping.forget()
            if number in self._to_stop:
                stopping.request()

    def _read(self) -> None:
        while True:
            ready = wait([self._connection, self._woken])
            if self._woken in ready and signal.SIGTERM in self._woken.recv(64):
                self.send({"say": "terminated"})
                os._exit(128 + signal.SIGTERM)
            if self._connection in ready:
                try:
                    order = self._receive()
                except (EOFError, OSError):
                    os._exit(1)  # the launcher is gone
                self._take(order)

    def _receive(self) -> dict[str, Any]:
        order: dict[str, Any] = json.loads(self._connection.recv_bytes(MESSAGE_BYTES))
        if order.get("descriptors"):  # they come with a byte behind the order
            with socket.fromfd(self._connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as link:
                _, descriptors, _, _ = socket.recv_fds(link, 1, order["descriptors"], socket.MSG_CMSG_CLOEXEC)
            order["descriptors"] = descriptors
        return order

    def _take(self, order: dict[str, Any]) -> None:
        if order["do"] == "signal":  # from another node
            os.kill(os.getpid(), order["signal"])
            return
        if order["do"] != "stop":
            self.orders.put(order)
            return
        with self._changing:
            self._to_stop.add(order["number"])
            if self._current == order["number"]:
                stopping.request()


def track_communicators(comm: MPI.Intracomm, made: list[MPI.Comm]) -> MPI.Intracomm:
    """Return `comm` as a communicator that adds its duplicates and splits to `made`, to be freed later."""
    from mpi4py import MPI

    plain: Any = MPI.Intracomm

    def note(derived: MPI.Comm) -> MPI.Comm:
        made.append(derived)
        return derived

    class Tracked(plain):
        """A communicator whose duplicates and splits get the same class from mpi4py."""

        def Dup(self, *arguments: Any, **named: Any) -> Any:
            return note(super().Dup(*arguments, **named))

        def Split(self, *arguments: Any, **named: Any) -> Any:
            return note(super().Split(*arguments, **named))

        def Split_type(self, *arguments: Any, **named: Any) -> Any:
            return note(super().Split_type(*arguments, **named))

    return Tracked(comm)


def serve(control: Control) -> None:
    """Train the runs that the launcher orders, until it orders to end."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    library = MPI.Get_library_version().splitlines()[0]
    identity = {"rank": world.rank, "size": world.size, "pid": os.getpid(), "host": socket.gethostname()}
    control.begin({"say": "hello", **identity, "library": library})
    while (order := control.orders.get())["do"] == "train":
        members = world.group.Incl(order["ranks"])
        comm = world.Create_group(members, tag=order["number"])  # the other ranks do not take part
        members.Free()
        made: list[MPI.Comm] = [comm]
        control.train(order["number"])
        failed = train(order, track_communicators(comm, made), control)
        control.train(None)
        if not failed:
            for derived in reversed(made):
                if derived != MPI.COMM_NULL:  # freed by its owner
                    derived.Free()
        control.send({"say": "ended", "number": order["number"], "failed": failed})


def train(order: dict[str, Any], comm: MPI.Intracomm, control: Control) -> str | None:
    """Train a run as if in a process of its own; return None, or `cleanly` or `badly` if it failed.

    `cleanly`: no messages of the run are in transit, so the world can go on if all ranks of the run report this. A rank
    without descriptors for its logs, since it may be on another node, sends its output to the launcher.
    """
    from gradsweep.errors import UsageError
    from gradsweep.run_directory import ATTEMPT_VARIABLE, CORES_VARIABLE, GPUS_VARIABLE, RACE_MODULE
    from trainers.config import run_config as configs
    from trainers.packed.isolation import forward_logs, redirect_logs, set_environment, tidy

    directory, held = Path(order["directory"]), order["descriptors"]
    cores, gpus = (",".join(map(str, order[key])) for key in ("cores", "gpus"))
    variables = {ATTEMPT_VARIABLE: order["attempt"], CORES_VARIABLE: cores, GPUS_VARIABLE: gpus}
    logs = redirect_logs(held) if held else forward_logs(partial(control.send_output, order["number"]))
    with logs, set_environment(variables):
        stopping.write_stacks_into(Path(order["attempt"]), comm.rank)
        threads = threading.active_count()
        try:
            if order["module"] == [RACE_MODULE]:
                from trainers.race.race import run_race

                run_race(directory, comm)
            else:
                from trainers.race.tuning import tune_run

                rank.train_run(configs.load(directory / "config.yaml"), comm, directory, tune_run)
            failed = None
        except BaseException as error:
            rank.wait_for_mpirun(error)
            rank.report_failure(directory, error, comm.rank)
            clean = isinstance(error, UsageError) and not stopping.has_begun() and threading.active_count() == threads
            failed = "cleanly" if clean else "badly"
        stopping.end_stacks()
        tidy()
    return failed


def main(arguments: list[str]) -> None:
    """Serve the launcher of the world whose directory is the only argument."""
    stopping.listen()  # before anything slow: an unhandled SIGUSR1 would end this rank
    die_with_parent()
    if len(arguments) != 1:
        print("usage: mpirun -n RANKS python -m trainers.packed.worker WORLD_DIR", file=sys.stderr)
        rank.exit_rank(2)
    try:
        control = Control(Path(arguments[0]))
        limit_threads(control.threads)
        serve(control)
    except BaseException as error:
        import traceback

        traceback.print_exception(error)
        rank.exit_rank(1)
    rank.exit_rank(0)


if __name__ == "__main__":
    main(sys.argv[1:])
