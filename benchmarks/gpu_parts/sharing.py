"""One GPU shared by several ranks: by MPI, which stages messages in main memory, and by NCCL, as far as that works."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu_parts.results import ROOT, Context, build_environment
from sweep.system.job_environment import AS_ROOT, clean_environment

CASES = [(ranks, method) for ranks in (2, 4) for method in ("none", "qsgd", "topk,ratio=0.01")]
STEPS = 20
_RANK = [sys.executable, "-m", "benchmarks.gpu_parts.sharing_rank"]
_SECONDS = 90.0


def run(context: Context) -> None:
    """Take steps of ResNet-9, with one global batch of 512, by 2 and 4 ranks on the first GPU."""
    _try_nccl(context)
    mpirun = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")
    if mpirun is None or importlib.util.find_spec("mpi4py") is None:
        said = "left out: needs mpi4py and an mpirun"
        context.write("MPI", said, said=said)
        return
    cases: list[tuple[int, str, str]] = [(ranks, method, "mpi") for ranks, method in CASES]
    cases.append((2, "none", "torch"))
    cases = cases[1:2] if context.dry else cases
    for place, (ranks, method, transport) in enumerate(cases):
        if not context.has_time(cases[place:]):
            return
        words = [*_RANK, method, transport, str(1 if context.dry else STEPS), context.device]
        command = [mpirun, "--bind-to", "none", "--oversubscribe", "-n", str(ranks), *words]
        case = f"{ranks} ranks, exchange.transport={transport}, {method}"
        status, text = _start([command], context, {**AS_ROOT, **_read_variables()})[0]
        found = [line for line in text.splitlines() if line.startswith("{")]
        if status or not found:
            said = f"failed: {find_reason(text)}"
            context.write(case, said, said=said)
            continue
        values = json.loads(found[-1])
        said = f"{values['step_ms']:.2f} ms a step, {values['samples_per_s']:.0f} samples/s, {values['messages']}, "
        said += f"{values['used_mb']:.0f} MB of the GPU in use"
        context.write(case, said, said=said, **values)


def _try_nccl(context: Context) -> None:
    """Let two processes try a sum by NCCL on one GPU, without a check of ours, and write what NCCL says."""
    if context.dry:
        return
    with tempfile.TemporaryDirectory() as folder:
        commands = [[*_RANK, "nccl", f"file://{folder}/store", str(rank)] for rank in range(2)]
        ended = _start(commands, context, {"NCCL_DEBUG": "WARN"})
    said = "works" if not any(status for status, _ in ended) else f"refused: {find_reason(ended[0][1])}"
    context.write("2 ranks, bare NCCL", said, said=said)


def _start(commands: Sequence[Sequence[str]], context: Context, variables: dict[str, str]) -> list[tuple[int, str]]:
    """Run commands side by side; return the exit status and the output of each."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = clean_environment(build_environment(TMPDIR=scratch)) | variables
        processes = [
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for command in commands
        ]
        ended = []
        for process in processes:
            try:
                text, _ = process.communicate(timeout=max(5.0, min(_SECONDS, context.seconds_left)))
            except subprocess.TimeoutExpired:
                process.kill()
                text = f"{process.communicate()[0]}\nno end within its time"
            ended.append((process.returncode, text))
        return ended


def _read_variables() -> dict[str, str]:
    """Return the variables with which runs start the ranks of Open MPI; none where PyYAML is missing."""
    if importlib.util.find_spec("yaml") is None:
        return {}
    import yaml

    from sweep.settings.mpi import MpiSettings, choose_transport

    section = yaml.safe_load((ROOT / "conf/mpi/openmpi.yaml").read_text())
    return MpiSettings(**choose_transport(section, "local")).variables


def find_reason(text: str) -> str:
    """Return the line of an output that says best why a program has failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for words in (("Duplicate GPU",), ("share a GPU",), ("Error", "error"), ("",)):
        for line in reversed(lines):
            if any(word in line for word in words):
                return line[:300]
    return "no output"
