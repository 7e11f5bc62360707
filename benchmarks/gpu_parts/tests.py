"""The tests that a GPU changes: the Triton kernels on the device, and those marked `gpu`."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys

from benchmarks.gpu_parts.results import ROOT, Context, build_environment

KERNELS = "tests/compressors/kernels/test_cuda.py"
MARKED = ("tests/trainers/devices", "tests/trainers/exchange/test_torch_transport.py")


def run(context: Context) -> None:
    """Run both, each in the time that is left, and write what they say at the end."""
    if importlib.util.find_spec("pytest") is None:
        context.write("left out", "pytest is not installed")
        return
    has_triton = importlib.util.find_spec("triton") is not None
    some = ["-k", "samples"] if context.dry else []
    if not context.dry:
        _run(context, "pytest -m gpu", ["-m", "gpu", "--continue-on-collection-errors", *MARKED], 0.3)
    if has_triton or context.dry:
        _run(context, "kernels", [KERNELS, *some], 1.0)


def _run(context: Context, case: str, words: list[str], share: float) -> None:
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--durations=10", *words]
    workers = min(8, len(os.sched_getaffinity(0)))
    if importlib.util.find_spec("xdist") is not None and workers > 2 and case == "kernels":
        command += ["-n", str(workers), "--dist", "worksteal"]
    log = context.folder / f"{case.replace(' ', '_')}.log"
    seconds = max(5.0, share * context.seconds_left)
    with log.open("w") as out:
        try:
            done = subprocess.run(command, cwd=ROOT, env=build_environment(), stdout=out, stderr=out, timeout=seconds)
            status: int | str = done.returncode
        except subprocess.TimeoutExpired:
            status = f"stopped after {seconds:.0f} s"
    text = log.read_text()
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", text)}
    failed = re.findall(r"^(?:FAILED|ERROR) (.*)", text, re.MULTILINE)
    if isinstance(status, str):  # no summary was printed
        results = list_results(text)
        names = [result for result, _ in results]
        counts = {word.lower(): names.count(word) for word in ("PASSED", "FAILED", "SKIPPED", "ERROR") if word in names}
        failed = [name for result, name in results if result in ("FAILED", "ERROR")]
    shown = ", ".join(f"{number} {word}" for word, number in counts.items()) or f"exit {status}"
    said = f"{shown}{f', {status}' if isinstance(status, str) else ''}"
    context.write(case, said, status=status, said=said, **counts)
    for line in failed[:20]:
        context.write(f"{case}: failed", line[:300], failed=line[:300])


def list_results(text: str) -> list[tuple[str, str]]:
    """Return the result and the name of each test in what `pytest -v` prints, with pytest-xdist or without."""
    line = r"^(?:\[gw\d+\] \[ *\d+%\] (\w+) (.*?) *|(tests/.*?) (PASSED|FAILED|SKIPPED|ERROR)\b.*)$"
    return [(one or other, name or named) for one, name, named, other in re.findall(line, text, re.MULTILINE)]
