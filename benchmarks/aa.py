"""Count how often a report calls two names of the same work different, while other programs are busy half of the time.

    python benchmarks/aa.py             # about 45 minutes on two cores
    python benchmarks/aa.py --trials 1 --seeds 4 --words 'workers=2 max_steps=60'
    python benchmarks/aa.py --into docs/design/benchmarks.md

In a trial (an A/A test), `compressor=none` is trained with two learning rates, on which no time depends, and with
several seeds. Loops of other programs are busy and idle in turn, for random times of several runs. By chance, a test at
.05 finds a difference in one of 20 trials. Two further tests of the same runs show what the report's test is made of:
one does not leave out the runs that are marked as disturbed, and one also pairs runs by seed.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pandas as pd  # noqa: E402

import reports  # noqa: E402
from benchmarks.measuring import PROGRAM, keep_busy, make_parser, print_tables  # noqa: E402
from reports.analysis.cells import Cells  # noqa: E402
from reports.analysis.grid import lay_out_runs  # noqa: E402
from reports.analysis.measures import THROUGHPUT  # noqa: E402
from reports.analysis.statistics import Difference, compare_paired, correct_differences  # noqa: E402
from reports.analysis.table import LEVEL  # noqa: E402

KEY, RATES = "optimizer.lr", ("0.1", "0.10001")
ASKED = 0.05
"""At most this share of the trials may find a difference."""
HALF_BUSY = """
import random, time
draw = random.Random({seed})
busy = draw.random() < 0.5
while True:
    until = time.monotonic() + draw.expovariate(1 / {mean_s})
    while time.monotonic() < until:
        sum(range(100_000)) if busy else time.sleep(0.05)
    busy = not busy
"""


def train(seed: int, arguments: argparse.Namespace) -> pd.DataFrame:
    """Return the runs of a trial as in `Report.runs`."""
    code = HALF_BUSY.format(seed=seed, mean_s=arguments.mean)
    with tempfile.TemporaryDirectory() as folder, keep_busy(arguments.neighbours, code=code):
        sweep = Path(folder) / "sweep"
        grid = ["-m", "compressor=none", f"{KEY}={','.join(RATES)}", f"seed=range({arguments.seeds})", "race=off"]
        words = ["epochs=1000", "evaluate_every=1000", *shlex.split(arguments.words), f"hydra.sweep.dir={sweep}"]
        subprocess.run([*PROGRAM, "--quiet", *grid, *words], check=True, stdout=subprocess.DEVNULL)
        return reports.load(sweep).runs


def compare_as_reports_do(runs: pd.DataFrame) -> Difference | None:
    """Return the difference of the throughput of the two names, as a report tests it."""
    grid = lay_out_runs(runs, [KEY])
    figures = Cells(grid, grid.runs, ("label", *grid.keys, "workers"), {KEY: RATES[0]}).compute_figures(THROUGHPUT)
    return next((cell.difference for cell in figures if cell.difference), None)


def compare_by_seed(runs: pd.DataFrame) -> Difference | None:
    """Return the difference over pairs with equal seeds, in it/s."""
    first, second = (
        dict(zip(of["seed"], of[THROUGHPUT.column], strict=True)) for _, of in runs.groupby(KEY, sort=True)
    )
    return correct_differences([compare_paired(second, first)])[0]


def count_differences(arguments: argparse.Namespace) -> Iterator[Sequence[str]]:
    """Yield the rows of the table."""
    found: dict[str, list[Difference | None]] = {"as reports do": [], "marked runs, too": [], "and by seed": []}
    for trial in range(arguments.trials):
        runs = train(trial, arguments)
        plain = runs.assign(disturbed=False)
        found["as reports do"].append(compare_as_reports_do(runs))
        found["marked runs, too"].append(compare_as_reports_do(plain))
        found["and by seed"].append(compare_by_seed(runs))
        told = ", ".join(f"{name}: p = {each[-1].p if each[-1] else float('nan'):.3f}" for name, each in found.items())
        print(
            f"trial {trial + 1}: {int(runs['disturbed'].sum())} of {len(runs)} runs disturbed; {told}", file=sys.stderr
        )
    yield ["test of the throughput", "trials", f"p < {LEVEL}", "asked", "pairs a trial"]
    for name, each in found.items():
        significant = sum(gap is not None and gap.p_holm < LEVEL for gap in each)
        most = int(ASKED * arguments.trials)
        asked = f"at most {most}{'' if significant <= most else ': missed'}" if name == "as reports do" else ""
        pairs = [gap.n if gap else 0 for gap in each]
        yield [name, str(len(each)), str(significant), asked, f"{min(pairs)} to {max(pairs)}"]


def main(given: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--trials", type=int, default=20, help="how many (20)")
    parser.add_argument("--seeds", type=int, default=10, help="of each name in a trial (10)")
    parser.add_argument("--neighbours", type=int, default=1, help="busy loops of other programs (1)")
    parser.add_argument("--mean", type=float, default=15.0, help="mean seconds of a busy and of an idle time (15)")
    words = "workers=2 max_steps=300"
    parser.add_argument("--words", default=words, help=f"more overrides of the sweep ({words})")
    print_tables(parser, "aa", {"differences": count_differences}, given)


if __name__ == "__main__":
    main()
