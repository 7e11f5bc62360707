"""Bytes that one step of a method adds to the peak of a process, beyond its payload.

    python benchmarks/memory.py NAME[,option=value...] ELEMENTS|resnet18

The first step is not counted: it compiles, and leaves what the method remembers. Prints "unknown" where the
system cannot say what the peak was (it is asked through /proc).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

from compressors import Key  # noqa: E402
from compressors.base import Compressor, Cooperative  # noqa: E402
from compressors.commands import alone, timing  # noqa: E402
from compressors.commands.parsing import parse  # noqa: E402


def step(compressor: Compressor, gradients: timing.Gradients, number: int) -> int:
    """Encode all units, then decode them; the bytes of the payloads."""
    batch = [(x, Key(0, 0, number, unit)) for unit, x in enumerate(gradients.steps[number % 2])]
    if isinstance(compressor, Cooperative):
        payloads = [one.mean for one in compressor.alone(batch)]
    else:
        payloads = [alone.encode(compressor, x, key) for x, key in batch]
    for payload, mean, (_, key) in zip(payloads, gradients.means, batch, strict=True):
        compressor.decompress_add(payload, mean, key)
        compressor.finish(mean, key, 1)
    return sum(len(payload) for payload in payloads)


def status(field: str) -> int:
    """Bytes that /proc reports for this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    method, size = sys.argv[1:]
    torch.set_num_threads(1)
    shapes = timing.resnet18_shapes() if size == "resnet18" else [(int(size),)]
    gradients, compressor = timing.Gradients(shapes), alone.fresh(parse(method))
    step(compressor, gradients, 1)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
        before = status("VmRSS")
        payload = step(compressor, gradients, 2)
        print(max(0, status("VmHWM") - before - payload))
    except (OSError, StopIteration):
        print("unknown")


if __name__ == "__main__":
    main()
