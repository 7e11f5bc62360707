"""Describe the nodes of a SLURM job: before any rank starts, each node runs a program that describes it.

srun ... python -m sweep.provenance.slurm_nodes MPI_PROGRAM
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from gradsweep.run_directory import OTHER_NODES
from sweep.provenance import record
from sweep.system.job_environment import build_python_environment
from sweep.system.slurm_allocation import BESIDE, Allocation

PATIENCE_S = 1.0  # for answers of other nodes after this one's, or as long as this one took
RATES = ("copy_gb_s", "matmul_gflop_s", "loop_mops", "steadiness")  # of a calibration that a node records


def describe_job(program: Sequence[str], allocation: Allocation) -> dict[str, Any]:
    """Describe the nodes of a SLURM job, for runs that were submitted from another node.

    Args:
        program: the MPI launcher, with its arguments.

    Returns:
        `mpi` and `calibration` of this node. With several nodes also `other_nodes`: maps the name of each other node to
        its calibration and to all else that differs from this node, or to None if it has not answered.
    """
    others = allocation.list_other_nodes()
    asked = _ask(program, others)
    began = time.monotonic()
    here = record.describe_node(program, allocation.cores)
    if allocation.nodes < 2:
        return here
    answers = {} if asked is None else _collect_answers(asked, max(PATIENCE_S, time.monotonic() - began))
    own = {**record.describe_machine(), **here}
    return {
        **here,
        OTHER_NODES: {name: _find_differences(answers[name], own) if name in answers else None for name in others},
    }


def _ask(program: Sequence[str], nodes: Sequence[str]) -> subprocess.Popen[bytes] | None:
    """Start, by srun, the program that describes each of these nodes; return None without nodes or srun."""
    if not nodes:
        return None
    size = [f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1", f"--nodelist={','.join(nodes)}"]
    # a task may use all cores of the job on its node, as this one may; --label: long lines come in pieces
    how = ["--cpu-bind=none", "--export=ALL", "--label", "--time=1"]
    try:
        return subprocess.Popen(
            [*BESIDE, *size, *how, sys.executable, "-m", "sweep.provenance.slurm_nodes", *program[:1]],
            env={**os.environ, **build_python_environment()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return None


def _collect_answers(asked: subprocess.Popen[bytes], patience_s: float) -> dict[str, dict[str, Any]]:
    """Return the descriptions that nodes have sent within `patience_s` seconds, by node name."""
    with asked:
        try:
            output, _ = asked.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired as late:
            asked.kill()  # its tasks on other nodes end by themselves, or by --time
            output = late.output or b""
    pieces: dict[str, str] = {}
    for task, piece in re.findall(r"^ *(\d+): (.*)$", output.decode(errors="replace"), re.MULTILINE):
        pieces[task] = pieces.get(task, "") + piece
    answers = {}
    for text in pieces.values():
        try:
            answer = json.loads(text)
        except ValueError:  # a line that was cut, or not of our program
            continue
        if isinstance(answer, dict) and "node" in answer:
            answers[str(answer.pop("node"))] = answer
    return answers


def _find_differences(node: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a node's description that differ from this node's, and its calibration."""
    measured = node.get("calibration") or {}
    alike = {"host", "calibration", *(key for key in node if node[key] == here.get(key))}
    different = {key: value for key, value in node.items() if key not in alike}
    return {**different, "calibration": {rate: measured[rate] for rate in RATES if rate in measured}}


if __name__ == "__main__":
    about = {**record.describe_machine(), **record.describe_node(sys.argv[1:], [])}
    print(json.dumps({"node": os.environ["SLURMD_NODENAME"], **about}))
