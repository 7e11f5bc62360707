"""`python -m sweep.emulation ASKED MPIRUN ...`: run an MPI job on emulated hosts; the exit status is the job's.

ASKED is JSON from `sweep.emulation.build_command`. SIGUSR1, SIGUSR2 and SIGTERM are passed on to mpirun. If the cluster
cannot be built, the exit status is 1, and a failure-*.json in the attempt's directory gives the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from gradsweep import files, run_directory
from gradsweep.failure_causes import START
from sweep.emulation import compile_c, delay, ip_tc_commands, namespaces
from sweep.emulation.build_cluster import BuiltCluster
from sweep.emulation.capability_check import has_netem
from sweep.emulation.cluster import Cluster, Shape, compute_packet_bytes
from sweep.emulation.latency_correction import LatencyCorrection
from sweep.system import cgroups
from sweep.system.job_environment import AS_ROOT


class Job:
    """An MPI job on an emulated cluster; its instance is in the first process of the cluster's namespaces."""

    def __init__(self, asked: dict[str, Any], words: Sequence[str]) -> None:
        self.cluster = Cluster.from_config(asked["network"], asked["ranks"])
        self.threads, self.words = int(asked["threads"]), list(words)
        self.attempt = Path(os.environ[run_directory.ATTEMPT_VARIABLE])
        self.place = Path(os.environ["TMPDIR"]) / "emulation"

    def run(self, begun: Callable[[], None]) -> int:
        """Build the cluster and run the job to its end; return its exit status, negative for a signal."""
        try:
            namespaces.isolate(self.place)
            cores = sorted(os.sched_getaffinity(0))
            built = BuiltCluster(self.cluster, self.place, cores)
            delayer, took = delay.start_delay(built, has_netem())
            switch = delayer.process.pid if isinstance(delayer, delay.Switch) else None
            command = self._build_command(built, switch)
            files.write_json(
                self.attempt / run_directory.EMULATION, self._build_record(built, delayer, took), durable=False
            )
        except (OSError, RuntimeError) as error:
            return report_failure(self.attempt, str(error))
        children = threading.Lock()
        if delayer is not None and took is not None:  # a long latency needs no correction
            with contextlib.suppress(OSError):  # it stays as measured on a bare connection
                LatencyCorrection(self.place / ip_tc_commands.STEERING, delayer, built.cluster, children).start()
        environment = {**os.environ, **AS_ROOT}
        signals = Signals()
        begun()
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        signals.attach(process)
        while True:  # the first process of a namespace inherits all orphans
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            with children:
                ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == process.pid:
                return os.waitstatus_to_exitcode(status)
            if ended == switch:
                return report_failure(self.attempt, f"the switch has ended with {os.waitstatus_to_exitcode(status)}")

    def _build_command(self, built: BuiltCluster, switch: int | None) -> list[str]:
        leased = [int(core) for core in os.environ.get(run_directory.CORES_VARIABLE, "").split(",") if core]
        hosts, agent = self.place / "hosts", self.place / "agent"
        hosts.write_text(ip_tc_commands.build_hostfile(self.cluster))
        prefix, plain = Path(os.path.realpath(self.words[0])).parent.parent, self.place / "mpi"
        plain.symlink_to(prefix)
        agent.write_text(
            ip_tc_commands.build_agent(
                self.cluster, leased, self.threads, str(self.place), str(prefix), str(plain), switch
            )
        )
        agent.chmod(0o700)
        preload: str | None = None
        try:
            idle = self.place / "idle"  # for the loader a space ends a path
            idle.symlink_to(compile_c.compile_program("idle", self.place))
            preload = ":".join(filter(None, [os.environ.get("LD_PRELOAD"), str(idle)]))
        except compile_c.NotCompiled as error:
            built.problems.append(f"ranks that wait take CPU time: {error}")
        added = ip_tc_commands.build_mpi_arguments(str(hosts), str(agent), preload)
        return [self.words[0], *added, *self.words[1:]]

    def _build_record(self, built: BuiltCluster, delayer: delay.Delayer | None, took: float | None) -> dict[str, Any]:
        cluster, there = self.cluster, built.cluster
        packet = compute_packet_bytes(cluster)
        return {
            "format": run_directory.FORMAT,
            "delay": "none" if delayer is None else delayer.name,
            "latency_s": _keep_if_equal(cluster.latency, there.latency),
            "small_message_s": took,
            "bandwidth": cluster.bandwidth,
            "loss": _keep_if_equal(cluster.loss, there.loss),
            "hosts": len(cluster.hosts),
            "workers_per_host": cluster.workers_per_host,
            "own": {
                host.name: {"bandwidth": host.bandwidth, "latency_s": _keep_if_equal(host.latency, real.latency)}
                for host, real in zip(cluster.hosts, there.hosts, strict=True)
                if (host.bandwidth, host.latency) != (cluster.bandwidth, cluster.latency)
            },
            "packet_bytes": packet,
            "burst_bytes": Shape.from_rate(cluster.bandwidth, packet).burst,
            "cores": _count_cores(),
            "kernel": os.uname().release,
            "problems": built.problems,
        }


def _keep_if_equal(asked: float, there: float) -> float | None:
    """Return the requested value if the cluster has the same one; else None."""
    return asked if asked == there else None


def _count_cores() -> float:
    """Return how many cores all hosts have together: the run's leased cores, or a container's lower CPU limit."""
    leased = float(len(os.sched_getaffinity(0)))
    return min(leased, cgroups.read_cpu_limit() or leased)


class Signals:
    """Passes signals on to mpirun; those that arrive before mpirun runs are passed on when it runs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        for number in namespaces.PASSED_ON:
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._send(self._process.pid, number)

    def attach(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        for number in self._early:
            self._send(process.pid, number)

    @staticmethod
    def _send(pid: int, number: int) -> None:
        """Send a signal by `os.kill`: Popen's method could take the status of an ended mpirun from `Job.run`."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def report_failure(attempt: Path, reason: str) -> int:
    """Write the reason of a failure into a failure-*.json for the launcher; return the exit status of this program."""
    reason = f"the network could not be emulated: {reason}"
    print(reason, file=sys.stderr)
    report = {"rank": None, "reason": reason, "cause": START, "time": files.now()}
    files.write_json(attempt / run_directory.FAILURE.format(rank="network"), report)
    return 1


def main(arguments: Sequence[str]) -> NoReturn:
    job = Job(json.loads(arguments[0]), arguments[1:])
    try:
        namespaces.contain(job.run)
    except OSError as error:
        sys.exit(report_failure(job.attempt, f"{error.strerror}"))


if __name__ == "__main__":
    main(sys.argv[1:])
