"""Measure everything that a GPU decides, on the machine that has one, and write docs/reference/gpu.md.

    python benchmarks/gpu.py [--full] [--dry] [--parts PART ...] [--seconds N] [--out DIR] \
        [--compare FILE] [--page FILE] [--from DIR]

It installs nothing: parts whose packages are missing are left out, with a line each. Every part is a process of its own
with a deadline, and writes each result as soon as it has it, so that a crash, a hang or the end of the time costs only
what was not measured yet. The results are in DIR: gpu.jsonl, a result a line; gpu.json, with which later runs are
compared (--compare); gpu.md and gpu.png. Without a GPU it ends with the exit status 2.

Parts, in order of importance:

- machine: versions, the speed of a copy and of a product of matrices
- compiling: the Triton kernels of all methods and ResNet-9, into the caches of later parts
- methods: encode and decode of every method at 25.6 M elements, against a copy and against the reference in torch
- bits: large and unaligned tensors, the Triton kernels against the reference
- resnet9: training steps on synthetic data
- tests: the tests of the kernels, and those marked `gpu`
- resnet50, gpt2: training steps on synthetic data
- hooks: torch's own communication hooks
- layers: the exchange of ResNet-50's gradient, 161 layers, with every method
- large: the usual methods at the 124 M elements of GPT-2
- shared: one GPU shared by 2 and 4 ranks
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.gpu_parts import page, results  # noqa: E402
from benchmarks.gpu_parts.results import LINES, SUMMARY, Context  # noqa: E402
from gradsweep.errors import UsageError  # noqa: E402

PARTS: dict[str, tuple[str, float]] = {
    "machine": ("machine.run", 2),
    "compiling": ("compiling.run", 5),
    "methods": ("methods.run", 6),
    "bits": ("bits.run", 4),
    "resnet9": ("steps.run_resnet9", 7),
    "tests": ("tests.run", 8),
    "resnet50": ("steps.run_resnet50", 3),
    "gpt2": ("steps.run_gpt2", 3),
    "hooks": ("methods.run_hooks", 1),
    "layers": ("layers.run", 3),
    "large": ("methods.run_large", 3),
    "shared": ("sharing.run", 3),
}
"""By part: the function in benchmarks/gpu_parts, and its share of the time; what it leaves goes to later parts."""
SECONDS, FULL_SECONDS, DRY_SECONDS = 600.0, 7200.0, 3600.0
_SPARE_S = 8.0
"""Seconds in which a part starts, and after its deadline finishes what it has begun; then it is ended."""


def main() -> int:
    options = parse_arguments()
    if options.from_ is not None:
        page.write(options.from_, json.loads((options.from_ / SUMMARY).read_text()), options.page)
        return 0
    if not options.dry and not torch.cuda.is_available():
        print(f"no GPU: torch {torch.__version__} sees none; valid is a machine with one, or --dry", file=sys.stderr)
        return 2
    if options.part is not None:
        return run_part(options.part, options, options.seconds)
    folder: Path = options.out
    if folder.exists():
        for name in (LINES, SUMMARY, page.TEXT, page.PICTURE):
            (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    run_parts(options)
    records = results.read_lines(folder / LINES)
    summary = {"date": time.strftime("%Y-%m-%d"), "command": describe_command(options), "results": records}
    (folder / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n")
    try:
        page.write(folder, summary, None if options.dry else options.page)
    except UsageError as error:
        print(error, file=sys.stderr)  # there is a text beside the results all the same
    if options.compare is not None:
        old = json.loads(options.compare.read_text())["results"]
        print("\n".join(results.compare(old, records) or ["nothing is slower or faster by more than the spread"]))
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="measure more; by default within two hours")
    parser.add_argument("--dry", action="store_true", help="walk through all parts on the CPU with tiny sizes")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help="default: all")
    parser.add_argument("--seconds", type=float, help=f"for all parts (default: {SECONDS:.0f})")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", metavar="DIR", help="default: build/gpu")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="the gpu.json of an earlier run")
    parser.add_argument("--page", type=Path, default=page.PAGE, metavar="FILE", help="default: docs/reference/gpu.md")
    parser.add_argument(
        "--from",
        dest="from_",
        type=Path,
        metavar="DIR",
        help="only write the page, with the results in DIR",
    )
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = DRY_SECONDS if options.dry else FULL_SECONDS if options.full else SECONDS
    options.out = options.out.resolve()
    if options.from_ is not None and not (options.from_ / SUMMARY).is_file():
        parser.error(f"--from {options.from_}: valid is a directory with the {SUMMARY} of a run")
    if options.compare is not None and not options.compare.is_file():
        parser.error(f"--compare {options.compare}: valid is the gpu.json of an earlier run")
    return options


def describe_command(options: argparse.Namespace) -> str:
    """Return the command without the paths of this machine."""
    words = ["python benchmarks/gpu.py", *(f"--{name}" for name in ("full", "dry") if getattr(options, name))]
    if options.parts != list(PARTS):
        words += ["--parts", *options.parts]
    return " ".join([*words, f"--seconds {options.seconds:g}"])


def run_parts(options: argparse.Namespace) -> None:
    """Run each part as a process of its own; a later part gets the time that earlier ones have left."""
    end = time.monotonic() + options.seconds
    names = [name for name in PARTS if name in options.parts]
    for place, name in enumerate(names):
        left = end - time.monotonic()
        shares = sum(PARTS[one][1] for one in names[place:])
        seconds = left * PARTS[name][1] / shares - _SPARE_S * (not options.dry)
        context = Context(name, options.out, "", options.dry, options.full, end)
        if seconds < 1:
            context.write("left out", "no time left", left_out=True)
            continue
        began = time.monotonic()
        status = run_part(name, options, seconds) if options.dry else run_process(name, seconds, options)
        taken = time.monotonic() - began
        if status:
            what = "ended at its deadline" if status == -signal.SIGKILL else f"ended with exit status {status}"
            context.write("incomplete", what, status=status, said=what)
        context.write("took", f"{taken:.1f} of {seconds:.0f} s", seconds=taken)


def run_process(name: str, seconds: float, options: argparse.Namespace) -> int:
    """Run a part for so many seconds and a few more; return its exit status."""
    command = [sys.executable, str(Path(__file__).resolve()), "--part", name, "--seconds", f"{seconds:.1f}"]
    command += ["--out", str(options.out), *(["--full"] if options.full else [])]
    environment = results.build_environment(OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "4"))
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(seconds + _SPARE_S)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with what it has started
        process.wait()


def run_part(name: str, options: argparse.Namespace, seconds: float) -> int:
    """Run a part in this process; a dry run does so with all of them, to load everything once."""
    if options.dry:
        os.environ |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    device = "cpu" if options.dry else "cuda"
    context = Context(name, options.out, device, options.dry, options.full, time.monotonic() + seconds)
    module, _, function = PARTS[name][0].partition(".")
    try:
        getattr(importlib.import_module(f"benchmarks.gpu_parts.{module}"), function)(context)
    except Exception:  # the other parts are measured all the same
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
