"""Time of every compressor on one core, beside a memory copy of the same tensor in the same run.

    python benchmarks/compressors.py [--elements 11200000] [--repeats 15] [--method qsgd ...]

Every repetition runs everything once, one after the other, so that whatever else the machine does hits
all of them alike; the first one is not counted. Times are medians with the minimum in brackets, ratios are
medians of the ratio to the copy of the same repetition. Methods that work on matrices get the layers
of ResNet-18 (11.2 M elements) instead of one flat tensor.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from compressors import Compressor, Key, build, registry

EXTRA = {
    "qsgd l2": build("qsgd", norm="l2"),
    "qsgd levels=1": build("qsgd", levels=1),
    "qsgd levels=127": build("qsgd", levels=127),
    "svd truncated": build("svd", random_sample=False),
}

Operations = Mapping[str, Callable[[], object]]


def resnet18_shapes() -> list[tuple[int, ...]]:
    """The convolutions and the linear layer of ResNet-18 for 32 x 32 images."""
    shapes: list[tuple[int, ...]] = [(64, 3, 3, 3), (10, 512)]
    before = 64
    for width in (64, 128, 256, 512):
        shapes += [(width, before, 3, 3)] + 3 * [(width, width, 3, 3)]
        if width != before:
            shapes.append((width, before, 1, 1))
        before = width
    return shapes


def measure(operations: Operations, repeats: int) -> dict[str, list[float]]:
    """Seconds of every repetition of every operation, the operations interleaved."""
    times: dict[str, list[float]] = {name: [] for name in operations}
    for repeat in range(repeats + 1):
        for name, operation in operations.items():
            start = time.perf_counter()
            operation()
            if repeat:
                times[name].append(time.perf_counter() - start)
    return times


def eager_qsgd(x: torch.Tensor, levels: int = 7, bucket: int = 512) -> Operations:
    """QSGD as usually written, with torch operations: buckets, stochastic rounding, two codes a byte."""
    state: dict[str, torch.Tensor] = {}
    out = torch.zeros_like(x)

    def encode() -> None:
        rows = torch.nn.functional.pad(x, (0, -len(x) % bucket)).view(-1, bucket)
        norms = rows.abs().amax(1, keepdim=True)
        exact = rows.abs() / norms.clamp_min(1e-30) * levels
        level = exact.floor()
        level += torch.rand_like(exact) < exact - level
        codes = (rows.sign() * level + levels).to(torch.uint8).view(-1, 2)
        state["codes"], state["norms"] = codes[:, 0] | codes[:, 1] << 4, norms

    def decode() -> None:
        codes = torch.stack([state["codes"] & 15, state["codes"] >> 4], 1)
        rows = (codes.float() - levels).view(-1, bucket) * (state["norms"] / levels)
        out.add_(rows.view(-1)[: len(x)])

    return {"encode": encode, "decode": decode}


def operations_of(compressor: Compressor, elements: int) -> tuple[Operations, int]:
    """Encode and decode of one gradient, and its number of elements."""
    shapes: list[tuple[int, ...]] = resnet18_shapes() if compressor.needs_matrix else [(elements,)]
    units = [torch.randn(shape) for shape in shapes]
    messages = [torch.empty(compressor.payload_bound(shape), dtype=torch.uint8) for shape in shapes]
    means = [torch.zeros(shape) for shape in shapes]
    payloads = list(messages)
    step = 0

    def encode() -> None:
        nonlocal step
        step += 1
        for unit, (x, message) in enumerate(zip(units, messages, strict=True)):
            payloads[unit] = compressor.compress(x, Key(0, 0, step, unit), message)

    def decode() -> None:
        for payload, mean in zip(payloads, means, strict=True):
            compressor.decompress_add(payload, mean, Key(0, 0, step, 0), 0.5)

    encode()
    return {"encode": encode, "decode": decode}, sum(x.numel() for x in units)


def bits_per_element(compressor: Compressor, elements: int) -> str:
    size = compressor.payload_size((elements,)) if not compressor.needs_matrix else None
    return f"{8 * size / elements:.2f}" if size is not None else "varies"


def row(name: str, bits: str, times: Mapping[str, list[float]], copy: list[float]) -> str:
    cells = []
    for operation in ("encode", "decode"):
        seconds = times[operation]
        ratio = statistics.median(one / other for one, other in zip(seconds, copy, strict=True))
        cells.append(f"{1e3 * statistics.median(seconds):9.2f} ({1e3 * min(seconds):8.2f}) {ratio:8.2f}")
    return f"{name:28} {bits:>8} {cells[0]} {cells[1]}"


def compare_methods(methods: Mapping[str, Compressor], elements: int, repeats: int) -> None:
    x = torch.randn(elements)
    target = torch.empty_like(x)
    print(f"{'':28} {'bits per':>8} {'encode, ms':>20} {'x copy':>8} {'decode, ms':>20} {'x copy':>8}")
    print(f"{'':28} {'element':>8} {'median':>9} {'(min)':>10} {'':>8} {'median':>9} {'(min)':>10}")
    rows: list[tuple[str, str, Operations]] = [
        (name, bits_per_element(compressor, elements), operations_of(compressor, elements)[0])
        for name, compressor in methods.items()
    ]
    rows.append(("qsgd in eager torch", "4.06", eager_qsgd(x)))
    everything: dict[str, Callable[[], object]] = {"copy": lambda: target.copy_(x)}
    for name, _, operations in rows:
        everything |= {f"{name}/{operation}": run for operation, run in operations.items()}
    times = measure(everything, repeats)
    for name, bits, _ in rows:
        print(row(name, bits, {part: times[f"{name}/{part}"] for part in ("encode", "decode")}, times["copy"]))
    seconds = times["copy"]
    print(f"{'memory copy':28} {'':>8} {1e3 * statistics.median(seconds):9.2f} ({1e3 * min(seconds):8.2f})")


def compare_svd(repeats: int) -> None:
    """The decomposition of ResNet-18's largest layers, against LAPACK's on the whole matrix."""
    x = torch.randn(512, 4608)
    sampled, truncated = build("svd"), build("svd", random_sample=False)
    low_rank = torch.randn(512, 1) @ torch.randn(1, 4608)
    operations: Operations = {
        "svd, encode": lambda: sampled.compress(x, Key(0, 0, 0, 0)),
        "svd truncated, encode": lambda: truncated.compress(x, Key(0, 0, 0, 0)),
        "svd, encode, a matrix of rank 1": lambda: sampled.compress(low_rank, Key(0, 0, 0, 0)),
        "torch.linalg.svd": lambda: torch.linalg.svd(x, full_matrices=False),
    }
    print("\n512 x 4608 float32")
    times = measure(operations, repeats)
    for name, seconds in times.items():
        ratio = statistics.median(full / one for full, one in zip(times["torch.linalg.svd"], seconds, strict=True))
        print(
            f"{name:36} {1e3 * statistics.median(seconds):9.2f} ms ({1e3 * min(seconds):8.2f})"
            f"   {ratio:5.1f} times as fast as torch.linalg.svd"
        )


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=11_200_000, help="of the flat tensor (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=15, help="counted repetitions (default: %(default)s)")
    everything = {**{name: build(name) for name in registry()}, **EXTRA}
    parser.add_argument("--method", nargs="+", choices=list(everything), default=list(everything))
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{processor()}, one thread, Python {platform.python_version()}, torch {torch.__version__}")
    print(f"{arguments.elements} float32, {arguments.repeats} interleaved repetitions\n")
    compare_methods({name: everything[name] for name in arguments.method}, arguments.elements, arguments.repeats)
    if any(everything[name].needs_matrix for name in arguments.method):
        compare_svd(max(3, arguments.repeats // 3))


if __name__ == "__main__":
    main()
