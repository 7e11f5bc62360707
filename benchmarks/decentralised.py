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
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hydra import initialize_config_dir  # noqa: E402

from benchmarks.trainer import composed, started  # noqa: E402
from gradsweep.cli import markdown_sections  # noqa: E402
from sweep.config import schema as hydras  # noqa: E402
from trainers.config import groups  # noqa: E402
from trainers.config import run_config as configs  # noqa: E402

PART = "decentralised"
METHODS = ("none", "sign_norm", "topk", "qsgd")
NAMES = ("all", "encode", "send", "decode", "own")


def measured(
    arguments: argparse.Namespace, model: str, workers: int, method: str, algorithm: str = "choco"
) -> dict[str, float]:
    """Milliseconds by name: the step, and encoding, sending to all neighbours, decoding one message, and what the
    algorithm does with its own."""
    overrides = [f"algorithm={algorithm}", "topology=ring", f"model={model}", f"compressor={method}"]
    config, _ = composed(*overrides, f"workers={workers}", f"batch.size={workers}", *arguments.override)
    with started(workers, "gossip") as (side,):
        side.set_up({"config": config})
        turns = [side.turn(arguments.steps) for _ in range(arguments.turns + 1)][1:]
    return {name: 1e3 * statistics.median(turn[name] for turn in turns) for name in NAMES}


def parts(arguments: argparse.Namespace) -> list[str]:
    """The rows of the table of parts."""
    head = ["workers", "algorithm", "compressor", "encode, ms", "send to all", "decode one", "sum", "own passes"]
    head += ["mixing step", "to the sum (promised: 1.1)", "to sum + own"]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for workers in arguments.ranks:
        for algorithm, method in itertools.product(arguments.algorithms, arguments.methods):
            found = measured(arguments, arguments.model, workers, method, algorithm)
            whole = found["encode"] + found["send"] + min(workers - 1, 2) * found["decode"]
            figures = [found["encode"], found["send"], found["decode"], whole, found["own"], found["all"]]
            ratios = [found["all"] / whole, found["all"] / (whole + found["own"])]
            cells = [str(workers), algorithm, method, *(f"{one:.1f}" for one in figures), *(f"{r:.2f}" for r in ratios)]
            rows.append("| " + " | ".join(cells) + " |")
            print(rows[-1], flush=True)
    return rows


def workers(arguments: argparse.Namespace) -> list[str]:
    """The rows of the table of workers."""
    cores = len(os.sched_getaffinity(0))
    head = [
        "workers",
        "compressor",
        "mixing step, ms",
        f"times cores / workers ({cores} cores)",
        "to the smallest ring",
    ]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for method in arguments.methods:
        smallest = None
        for count in arguments.workers:
            step = measured(arguments, arguments.small_model, count, method)["all"]
            own = step * min(1.0, cores / count)
            smallest = own if smallest is None else smallest
            rows.append(f"| {count} | {method} | {step:.1f} | {own:.1f} | {own / smallest:.2f} |")
            print(rows[-1], flush=True)
    return rows


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {"parts": parts, "workers": workers}
    parser.add_argument("tables", nargs="*", choices=[*tables, []], help="all of them by default")
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
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the tables between the comments in this page")
    arguments = parser.parse_args(given)
    hydras.register(configs.RunConfig, groups.GROUPS)
    hydras.register_resolvers()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        text = "\n\n".join("\n".join(tables[name](arguments)) for name in arguments.tables or tables)
    if arguments.into:
        markdown_sections.fill(arguments.into, PART, text)


if __name__ == "__main__":
    main()
