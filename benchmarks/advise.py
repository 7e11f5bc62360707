"""Hold the predictions of `python -m reports advise` against races on emulated networks, of models it has not seen.

    python benchmarks/advise.py
    python benchmarks/advise.py --models "model=resnet20" --networks 100mbit --into docs/design/benchmarks.md

For each model, advise measures one worker on this machine, and predicts the steps of all methods on each network. Then
the same methods race there (network=emulated, race=only), with as many workers as have cores of their own. Asked is an
error of the predicted step of at most 10 % in the median, and 25 % for nine tenths. The baseline of a race is tuned, as
advise assumes. It needs a machine without other work, and what emulation needs (docs/guide/networks.md).
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import PROGRAM, ROOT, Finding, make_parser, print_tables  # noqa: E402
from gradsweep.run_directory import SUMMARY  # noqa: E402

MODELS = (
    "model=resnet model.depth=20 dataset=synthetic batch.size=16",
    "model=vgg model.depth=11 dataset=synthetic batch.size=4",
)
NETWORKS = ("100mbit", "1gbit")
METHODS = ("qsgd", "topk", "powersgd", "fp16", "onebit", "sign", "randomk")
LATENCY = "200us"
MEDIAN, MOST = 10.0, 25.0  # per cent, asked of the errors


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A step as predicted and as raced, in s."""

    model: str
    network: str
    method: str
    predicted: float
    low: float
    high: float
    raced: float

    @property
    def error(self) -> float:
        """In per cent of the raced step."""
        return 100 * abs(self.predicted / self.raced - 1)

    @property
    def is_covered(self) -> bool:
        return self.low <= self.raced <= self.high


def predict(model: str, network: str, arguments: argparse.Namespace, folder: Path) -> dict[str, dict[str, str]]:
    """Return the rows of an advice by method."""
    words = [*shlex.split(model), "--workers", str(arguments.workers), "--network", network, "--latency", LATENCY]
    words += ["--methods", ",".join(METHODS), "--seconds", str(arguments.seconds), "--into", str(folder), "--quiet"]
    command = [sys.executable, "-m", "reports", "advise", *words]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    with (folder / "advice.csv").open() as file:
        return {row["compressor"]: row for row in csv.DictReader(file)}


def race(
    model: str, network: str, memories: Sequence[tuple[str, str]], arguments: argparse.Namespace, folder: Path
) -> dict[str, float]:
    """Return the seconds of a raced step by method."""
    grid = [
        f"compressor={','.join(name for name, _ in memories)}",
        f"memory={','.join(memory for _, memory in memories)}",
        "sweep.zip=[[compressor,memory]]",
    ]
    where = ["network=emulated", f"network.bandwidth={network}", f"network.latency={LATENCY}"]
    words = [*shlex.split(model), *grid, *where, f"workers={arguments.workers}", "batch.per=worker"]
    race_words = ["race=only", f"race.seconds={arguments.race_seconds}", f"hydra.sweep.dir={folder}"]
    subprocess.run([*PROGRAM, "--quiet", "-m", *words, *race_words], check=True, stdout=subprocess.DEVNULL)
    with (folder / SUMMARY).open() as file:
        return {row["compressor"]: 1 / float(row["iterations_per_second"]) for row in csv.DictReader(file)}


def compare(arguments: argparse.Namespace) -> list[Comparison]:
    """Predict and race all models on all networks."""
    found = []
    for model in arguments.models:
        for network in arguments.networks:
            with tempfile.TemporaryDirectory() as made:
                rows = predict(model, network, arguments, Path(made) / "advise")
                memories = [(name, rows[name]["memory"]) for name in ("none", *METHODS) if name in rows]
                raced = race(model, network, memories, arguments, Path(made) / "sweep")
                found += [
                    Comparison(
                        model.split()[0],
                        network,
                        name,
                        *(float(rows[name][column]) for column in ("step_s", "step_s_low", "step_s_high")),
                        raced[name],
                    )
                    for name, _ in memories
                    if name in raced
                ]
    return found


def summarize(found: Sequence[Comparison]) -> list[Finding]:
    """Return the errors beside what is asked of them."""
    errors = [one.error for one in found]
    covered = sum(one.is_covered for one in found)
    return [
        Finding("error of a predicted step, median", statistics.median(errors), "%", MEDIAN),
        Finding("error of a predicted step, 90th percentile", statistics.quantiles(errors, n=10)[-1], "%", MOST),
        Finding("raced steps outside their 90 % interval", 100 * (1 - covered / len(found)), "%"),
    ]


def build_rows(arguments: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Yield the rows of the table: the comparisons, then the errors."""
    yield ["model", "network", "method", "predicted", "90 %", "raced", "error"]
    found = compare(arguments)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([dataclasses.asdict(one) for one in found]))
    for one in found:
        times = [f"{1e3 * value:.1f} ms" for value in (one.predicted, one.low, one.high, one.raced)]
        yield [
            one.model,
            one.network,
            one.method,
            times[0],
            f"{times[1]} to {times[2]}",
            times[3],
            f"{one.error:.1f} %",
        ]
    for finding in summarize(found):
        yield [finding.what, "", "", finding.seen, finding.limit_text, "", ""]


def main(given: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="words of a config each")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), help="bandwidths (100mbit 1gbit)")
    parser.add_argument("--workers", type=int, default=max(2, os.cpu_count() or 2), help="default: as many as cores")
    parser.add_argument("--seconds", type=float, default=60.0, help="of measuring (60)")
    parser.add_argument("--race-seconds", type=float, default=60.0, help="of a race (60)")
    parser.add_argument("--json", type=Path, help="also write the comparisons here")
    print_tables(parser, "advise", {"steps": build_rows}, given)


if __name__ == "__main__":
    main()
