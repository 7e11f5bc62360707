"""What a mixing step of decentralised training costs, against its parts, and with how many workers.

    python benchmarks/decentralised.py [parts] [workers] [--into docs/design/benchmarks.md]

- parts: one mixing step (all but the gradient and the optimizer) of D-PSGD and of CHOCO-SGD on a ring, for a model of
  11 million parameters, against what it is made of, measured beside it on the same message: to encode it, to send it
  to all neighbours by bare mpi4py, to decode what each of them has sent, and what the algorithm does on its own.
- workers: such a step on rings of more and more workers, of a model that is small enough for all of them. Where there
  are fewer cores than these, a step takes as much longer as workers share a core: times are multiplied by
  cores / workers, and compared with those of the smallest ring of the same degree.

Parts and whole are done in turn by the same ranks; figures are medians of all turns, after one to warm up.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import load_hydra, make_parser, print_tables  # noqa: E402
from benchmarks.trainer import compose_config, start_sides  # noqa: E402

METHODS = ("none", "sign_norm", "topk", "qsgd")
NAMES = ("all", "encode", "send", "decode", "own")


def measure(
    arguments: argparse.Namespace, model: str, workers: int, method: str, algorithm: str = "choco"
) -> dict[str, float]:
    """Return milliseconds by name: the step, and encoding, sending to all neighbours, decoding one message, and the
    passes of the algorithm over its own parameters."""
    overrides = [f"algorithm={algorithm}", "topology=ring", f"model={model}", f"compressor={method}"]
    config, _ = compose_config(*overrides, f"workers={workers}", f"batch.size={workers}", *arguments.override)
    with start_sides(workers, "gossip") as (side,):
        side.set_up(config=config)
        turns = [side.turn(arguments.steps) for _ in range(arguments.turns + 1)][1:]
    return {name: 1e3 * statistics.median(turn[name] for turn in turns) for name in NAMES}


def parts(arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of the table of parts."""
    head = ["workers", "algorithm", "compressor", "encode, ms", "send to all", "decode one", "sum", "own passes"]
    yield [*head, "mixing step", "to the sum (promised: 1.1)", "to sum + own"]
    for workers in arguments.ranks:
        for algorithm, method in itertools.product(arguments.algorithms, arguments.methods):
            ms = measure(arguments, arguments.model, workers, method, algorithm)
            whole = ms["encode"] + ms["send"] + min(workers - 1, 2) * ms["decode"]
            figures = [ms["encode"], ms["send"], ms["decode"], whole, ms["own"], ms["all"]]
            ratios = [ms["all"] / whole, ms["all"] / (whole + ms["own"])]
            yield [
                str(workers),
                algorithm,
                method,
                *(f"{one:.1f}" for one in figures),
                *(f"{one:.2f}" for one in ratios),
            ]


def workers(arguments: argparse.Namespace) -> Iterator[list[str]]:
    """Yield the rows of the table of workers."""
    cores = len(os.sched_getaffinity(0))
    scaled = f"times cores / workers ({cores} cores)"
    yield ["workers", "compressor", "mixing step, ms", scaled, "to the smallest ring"]
    for method in arguments.methods:
        smallest = None
        for count in arguments.workers:
            step = measure(arguments, arguments.small_model, count, method)["all"]
            own = step * min(1.0, cores / count)
            smallest = own if smallest is None else smallest
            yield [str(count), method, f"{step:.1f}", f"{own:.1f}", f"{own / smallest:.2f}"]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--model", default="resnet18", help="(default: %(default)s)")
    parser.add_argument(
        "--small-model", default="resnet56", help="of the table of workers, who share a machine (default: %(default)s)"
    )
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="compressors")
    parser.add_argument("--algorithms", nargs="+", default=["dpsgd", "choco"], help="of the table of parts")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4], help="of the table of parts")
    parser.add_argument("--workers", nargs="+", type=int, default=[4, 8, 16, 32], help="of the table of workers")
    parser.add_argument("--steps", type=int, default=3, help="in a turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--override", nargs="+", default=[], help="of the config, as for multirun.py")
    with load_hydra():
        print_tables(parser, "decentralised", {"parts": parts, "workers": workers})


if __name__ == "__main__":
    main()
