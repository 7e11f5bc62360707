"""The SLURM allocation in which this process runs: its resources, its time limit and preemption."""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.system.processes import read_output, read_text

CAME = "GRADSWEEP_SIGNALS"
"""Variable of a job with the names of the signals that came while the lines of its setup ran."""
BESIDE = ("srun", "--overlap", "--mem=0", "--mpi=none", "--quiet")
"""Starts a step that takes no resources from the other steps of its job."""


@dataclasses.dataclass(frozen=True)
class Allocation:
    """The allocation of a SLURM job, or of a task of a job array.

    Attributes:
        job: the job's id, such as 123_4.
        nodes: the number of nodes.
        cpus: the number of CPUs of all nodes together.
        confined: whether SLURM confines the job's processes to its own cores.
        shared: whether other jobs may use the job's cores, judged on the first node: the job has only a part of the
            node, but SLURM confines no job to its part (task/none).
        restarts: how often SLURM has started the job again.
    """

    job: str
    nodes: int
    cpus: int
    confined: bool
    restarts: int
    hosts: str
    shared: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Allocation:
        """Read the allocation from the environment of a batch script."""
        array, index = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
        cores = os.sched_getaffinity(0)
        usable = len(cores)
        counts = parse_cpu_counts(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
        nodes = int(environment.get("SLURM_JOB_NUM_NODES") or len(counts) or 1)
        here = counts[0] if counts else usable
        return cls(
            job=f"{array}_{index}" if array and index else environment["SLURM_JOB_ID"],
            nodes=nodes,
            cpus=sum(counts) if nodes > 1 else min(here, usable),
            confined=usable <= here,
            restarts=int(environment.get("SLURM_RESTART_COUNT") or 0),
            hosts=environment.get("SLURM_JOB_NODELIST", ""),
            # a site may count cores, and give a job all threads of each
            shared=usable > here and not (usable < (os.cpu_count() or 0) and _count_physical(cores) <= here),
        )

    @property
    def cores(self) -> list[int]:
        """The cores for the ranks; empty if other jobs may use the cores, too, or if there are several nodes."""
        return sorted(os.sched_getaffinity(0)) if self.confined and self.nodes == 1 and not self.shared else []

    def build_environment(self, scratch: str) -> dict[str, str]:
        """Return additional environment variables for the MPI launcher.

        Args:
            scratch: an empty directory on this node, for temporary files if the job has only one node.
        """
        given = {"TMPDIR": scratch} if self.nodes == 1 else {}
        if "SLURM_CPUS_PER_TASK" in os.environ:  # srun no longer takes it over from the allocation
            given["SRUN_CPUS_PER_TASK"] = os.environ["SLURM_CPUS_PER_TASK"]
        return given

    def build_record(self) -> dict[str, Any]:
        """Return the fields on the allocation for an attempt's entry in state.json."""
        return {"job": self.job, "nodes": self.hosts, "restarts": self.restarts}

    def query_job(self) -> dict[str, str]:
        """Query SLURM for this job; return its fields, empty if SLURM does not answer in time."""
        return _query("job", self.job)

    def is_oversubscribed(self) -> bool:
        """Tell whether SLURM may give our cores to other jobs too; False without an answer.

        SLURM may do so for the whole partition (OverSubscribe=FORCE), whatever the job requests, or for this job.
        """
        return self.query_job().get("OverSubscribe") == "YES"

    def is_overcounted(self) -> bool:
        """Tell whether SLURM assigns more CPUs of this node than exist (config_overrides); False without an answer.

        Then jobs to which SLURM assigns different CPUs may be on the same cores.
        """
        here = os.environ.get("SLURMD_NODENAME")
        counted = _query("node", here).get("CPUTot", "") if here else ""
        return counted.isdigit() and int(counted) > (os.cpu_count() or 1)

    def find_lost_nodes(self, timeout: float = 30) -> list[str]:
        """Return the job's other nodes on which no program can be started any more; empty if this is unknown.

        SLURM itself takes minutes to notice a lost node (SlurmdTimeout), but an mpirun that has lost one ends at once.
        """
        others = self.list_other_nodes(timeout)
        here = os.environ.get("SLURMD_NODENAME", "")
        # where this node does not answer either, the silence of others says nothing
        if not others or not _try_nodes([here], timeout)[here]:
            return []
        return [node for node, answered in _try_nodes(others, timeout).items() if not answered]

    def list_other_nodes(self, timeout: float = 2) -> list[str]:
        """Return the names of all nodes but this one; empty if they are unknown."""
        if self.nodes < 2:
            return []
        nodes = read_text("scontrol", "show", "hostnames", self.hosts, timeout=timeout)  # it only expands the list
        return [node for node in nodes.split() if node != os.environ.get("SLURMD_NODENAME")]

    def requeue(self, timeout: float = 20) -> tuple[bool | None, str]:
        """Make SLURM end this job and queue it again; return whether SLURM does so, and the reason if it refuses.

        None: not known. SLURM ends all processes of the job, and scontrol may be among them before it can report its
        success; or SLURM has not answered within `timeout` seconds.
        """
        try:
            done = subprocess.run(["scontrol", "requeue", self.job], capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return None, ""
        except OSError as error:
            return False, str(error)
        if done.returncode < 0:
            return None, ""
        return done.returncode == 0, done.stderr.strip() or f"scontrol exited with {done.returncode}"


def _query(kind: str, name: str, timeout: float = 2) -> dict[str, str]:
    """Query SLURM for a job or a node; return its fields, empty if SLURM does not answer in time."""
    words = read_text("scontrol", "show", kind, name, timeout=timeout).split()
    return dict(word.partition("=")[::2] for word in words if "=" in word)


def _try_nodes(nodes: Sequence[str], timeout: float) -> dict[str, bool]:
    """Tell for each of these nodes of the job whether a command can be started on it."""
    from concurrent.futures import ThreadPoolExecutor

    def answers(node: str) -> bool:
        command = [*BESIDE, "--nodes=1", "--ntasks=1", f"--nodelist={node}", "true"]
        return read_output(*command, timeout=timeout) is not None

    with ThreadPoolExecutor(len(nodes)) as pool:
        return dict(zip(nodes, pool.map(answers, nodes), strict=True))


def _count_physical(cores: Collection[int], root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Return to how many physical cores these hyperthreads belong."""
    siblings = set()
    for core in cores:
        try:
            siblings.add((root / f"cpu{core}/topology/thread_siblings_list").read_text(encoding="ascii").strip())
        except OSError:  # the kernel does not tell
            siblings.add(f"{core}")
    return len(siblings)


def parse_cpu_counts(text: str) -> list[int]:
    """Parse the CPUs of each node as SLURM writes them: '4(x2),2' is [4, 4, 2]."""
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(times or 1)
    return counts


def is_preempted(described: Mapping[str, str]) -> bool:
    """Tell whether SLURM has preempted a job; `described` are the job's fields (`query_job`)."""
    return described.get("PreemptTime", "None") not in ("None", "")


def compute_seconds_left(described: Mapping[str, str]) -> float | None:
    """Return the seconds until a job's time limit, from the job's fields; None if it is not known."""
    try:
        end = datetime.datetime.fromisoformat(described["EndTime"])
    except (KeyError, ValueError):
        return None
    return (end - datetime.datetime.now()).total_seconds()
