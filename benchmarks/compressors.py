"""The speed that is promised: every method against its usual eager torch implementation and a memory copy.

    python benchmarks/compressors.py [--repeats 9] [--method qsgd ...] [--into docs/reference/compressors.md]

One core, 11.2 M float32 (normal noise of the standard deviation 0.001), encode and decode together. Every repetition
runs everything once, one after the other, so that whatever else the machine does hits all of them alike; ratios
are medians of the ratios within a repetition. Methods for matrices get the layers of ResNet-18, 11.2 M elements too.
Memory is what two steps add to the peak of a process beyond the payload, what is kept included, in percent of the
gradient (see benchmarks/memory.py). What is compared with is in benchmarks/eager.py; a method without a usual version
there is compared with a copy only. For all methods and their options: `python -m compressors bench`.
"""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks import eager  # noqa: E402
from benchmarks.measuring import make_parser  # noqa: E402
from compressors import registry  # noqa: E402
from compressors.commands import bench_timing  # noqa: E402
from compressors.commands.bench_timing import Gradients, Operation, Times, Worker  # noqa: E402
from compressors.commands.method_specs import parse  # noqa: E402
from gradsweep.cli import markdown_sections, tables  # noqa: E402
from gradsweep.cli.arguments import parse_positive  # noqa: E402
from gradsweep.cli.tables import Column, Table  # noqa: E402

SLOW = ("svd",)  # whose eager version takes seconds: a third of the repetitions
MEMORY_PERCENT = 5.0


@dataclasses.dataclass(frozen=True)
class Case:
    """A method as it is measured, and what is promised of it."""

    method: str  # NAME[,option=value...]
    copies: float | None  # encode and decode take at most so many memory copies
    faster: float | None = None  # and are at least so many times as fast as the eager version
    eager: Callable[[Gradients], Any] | None = None  # builds the eager version, with methods `encode` and `decode`
    layers: bool = False
    memory: float | None = MEMORY_PERCENT  # and take at most so many percent of the gradient

    @property
    def name(self) -> str:
        return self.method.partition(",")[0]


def _flat(name: str, **options: float) -> Callable[[Gradients], eager.Eager]:
    """Return the eager version of `name` with these options."""
    write, read = eager.FLAT[name]
    return lambda room: eager.Eager(room.flat[0], room.mean, lambda x: write(x, **options), read)


CASES = [
    Case("qsgd", 5, 10, _flat("qsgd")),
    Case("terngrad", 5, 10, _flat("terngrad")),
    Case("natural", 5, 10, _flat("natural")),
    Case("int8", 5, 10, _flat("int8")),
    Case("onebit", 5, 10, _flat("onebit")),
    Case("sign", 3, 5, _flat("sign")),
    Case("sign_norm", 3, 5, _flat("sign_norm")),
    Case("topk,ratio=0.01", 8, 7, _flat("topk", ratio=0.01)),
    Case("dgc,ratio=0.001", 4, 5, _flat("dgc", ratio=0.001)),
    Case("thresholdv,threshold=0.0026", 4, 5, _flat("thresholdv", threshold=0.0026)),  # keeps 1 %
    Case("adaptive_threshold", 4, 5, _flat("adaptive_threshold")),
    Case("randomk,ratio=0.01", 1, 5, _flat("randomk", ratio=0.01)),
    Case("fp8", 5),
    Case("statistical", 5),
    Case("eden", 8),
    Case("thc", 8),
    Case("chunk_topk", 6, layers=True),
    Case("demo", 12, layers=True, memory=10),
    Case("acp_sgd,rank=2", None, layers=True),
    Case("dion", None, layers=True, memory=None),
    Case("svd,rank=3", None, 25, lambda room: eager.LayerSVD(room.steps[0], room.means, 3), layers=True),
    Case("powersgd,rank=2", None, 1.5, lambda room: eager.LayerPowerSGD(room.steps[0], room.means, 2), layers=True),
]


@dataclasses.dataclass(frozen=True)
class Result:
    """What was measured of a case."""

    case: Case
    bits: float
    encode: Times
    decode: Times
    eager: Times | None
    memory: float | None  # percent

    @property
    def copies(self) -> float:
        return (self.encode + self.decode).ratio

    @property
    def faster(self) -> float | None:
        return None if self.eager is None else self.eager.compare_with((self.encode + self.decode).seconds)

    @property
    def missed(self) -> str:
        """The promises that do not hold."""
        is_missed = {
            "copy": self.case.copies is not None and self.copies > self.case.copies,
            "eager": self.faster is not None and self.faster < (self.case.faster or 0.0),
            "memory": self.memory is not None and self.memory > (self.case.memory or math.inf),
        }
        return ", ".join(name for name in is_missed if is_missed[name])


def measure(cases: Sequence[Case], room: Gradients, repeats: int) -> list[Result]:
    """Measure all cases interleaved on the same gradients."""
    workers = {case: Worker(parse(case.method), room) for case in cases}
    operations: dict[str, Operation] = {}
    for case, worker in workers.items():
        operations |= {f"{case.name}/encode": worker.encode, f"{case.name}/decode": worker.decode}
        if case.eager is not None:
            usual = case.eager(room)
            operations |= {f"{case.name}/eager encode": usual.encode, f"{case.name}/eager decode": usual.decode}
    times = bench_timing.time_interleaved(operations, room.copy, repeats)
    return [
        Result(
            case,
            8 * worker.payload_bytes / room.elements,
            times[f"{case.name}/encode"],
            times[f"{case.name}/decode"],
            times[f"{case.name}/eager encode"] + times[f"{case.name}/eager decode"] if case.eager else None,
            extra_memory(case, room),
        )
        for case, worker in workers.items()
    ]


def extra_memory(case: Case, room: Gradients) -> float | None:
    """Measure in a process of its own how many percent of the gradient a step needs beyond its payload."""
    shape = "resnet18" if case.layers else str(room.elements)
    command = [sys.executable, str(ROOT / "benchmarks" / "memory.py"), case.method, shape]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return None if done.stdout.strip() == "unknown" else 100 * float(done.stdout) / room.bytes


def table(results: Sequence[Result]) -> Table:
    """Return a table with a row for each case; promises stand beside the figures."""
    headings = ("bits", "encode, ms", "decode, ms", "x copy", "at most", "x eager", "at least", "memory, %", "at most")
    columns = [Column("method"), *(Column(name, is_number=True) for name in headings), Column("missed")]
    return Table(columns, [_cells(result) for result in results])


def _cells(result: Result) -> list[str]:
    copies = result.case.copies
    return [
        result.case.method,
        f"{result.bits:.3g}",
        f"{1e3 * result.encode.median:.2f}",
        f"{1e3 * result.decode.median:.2f}",
        f"{result.copies:.2f}",
        "-" if copies is None else f"{copies:g}",
        "-" if result.faster is None else f"{result.faster:.1f}",
        "-" if result.case.faster is None else f"{result.case.faster:g}",
        "-" if result.memory is None else f"{result.memory:.1f}",
        "-" if result.case.memory is None else f"{result.case.memory:g}",
        result.missed,
    ]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--elements", type=parse_positive, default=11_200_000, help="default: %(default)s")
    parser.add_argument("--repeats", type=parse_positive, default=9, help="counted repetitions (default: %(default)s)")
    names = [case.name for case in CASES if case.name in registry()]
    parser.add_argument("--method", nargs="+", choices=names, default=names)
    parser.add_argument("--into", type=Path, metavar="PAGE", help="fill the part 'speed' of a Markdown page as well")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(1)  # the gradients are drawn from a generator that starts at 0
    groups: dict[tuple[bool, bool], list[Case]] = {}
    for case in CASES:
        if case.name in options.method:
            groups.setdefault((case.layers, case.name in SLOW), []).append(case)
    results = []
    for (layers, is_slow), cases in groups.items():
        shapes = bench_timing.resnet18_shapes() if layers else [(options.elements,)]
        results += measure(cases, Gradients(shapes), max(3, options.repeats // 3) if is_slow else options.repeats)
    repetitions = f"{options.repeats} interleaved repetitions"
    heading = f"{bench_timing.describe_machine(1)}; {options.elements} float32, {repetitions}"
    filled = table(results)
    tables.print_table(filled)
    tables.print_line(heading)
    if options.into is not None:
        markdown_sections.fill(options.into, "speed", f"{heading}.\n\n{tables.format_markdown(filled)}")


if __name__ == "__main__":
    main()
