"""`python -m trainers.data [--root DIR] [--download] NAME...`: prepare data sets before ranks start.

With `--runs` it reads the configs of runs from standard input, as a JSON list, prepares their data sets, and checks
that every run's options fit its data. The launcher calls it in this way.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep.cli.arguments import Parser
from gradsweep.errors import LISTED_BY, UsageError, bad_value
from gradsweep.options.hints import did_you_mean, one_of
from trainers import models
from trainers.config.groups import GROUPS, get_name
from trainers.config.run_config import RunConfig, parse
from trainers.data import build_feed, prepare
from trainers.data.try_out import check_metric, try_own_code
from trainers.models.fitting import check_fits
from trainers.options.datasets import Custom
from trainers.options.optimizers import Muon, Torch
from trainers.rules.training import check_length


def main() -> int:
    """Run the command; return exit status 0, or 2 with one line on stderr about the error."""
    parser = Parser(
        prog="python -m trainers.data",
        description="Download data sets and make their arrays ready before ranks start; quick where they are.",
    )
    datasets = {name: cls for name, cls in GROUPS["dataset"].items() if cls is not Custom}
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(datasets))
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data sets are kept (default: data)")
    parser.add_argument("--download", action="store_true", help="fetch what is missing, where its publisher offers it")
    parser.add_argument("--runs", action="store_true", help="the configs of runs are on standard input, as JSON")
    parser.add_argument("--metric", help="with --runs: a metric that all of them must have from their tasks")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(levelname)s: %(message)s")
    try:
        if not arguments.names and not arguments.runs:
            raise UsageError(f"NAME: missing; valid is {one_of(datasets, LISTED_BY)}")
        for name in arguments.names:
            if name not in datasets:
                raise bad_value("NAME", name, one_of(datasets, LISTED_BY), did_you_mean(name, datasets))
        for name in arguments.names:
            prepare(GROUPS["dataset"][name](), arguments.root, arguments.download)
        if arguments.runs:
            prepare_runs(json.load(sys.stdin), arguments.metric)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def prepare_runs(configs: Sequence[Mapping[str, Any]], metric: str | None = None) -> None:
    """Prepare the data sets of resolved configs, and check that every run can use its data set and the user's code.

    Args:
        metric: one that all runs must have from their tasks.

    Raises:
        UsageError: files are missing, a run's options do not fit its data, or the user's code cannot be used.
    """
    prepared: dict[str, object] = {}
    samples: dict[str, int] = {}
    for run in map(parse, configs):
        data = repr((run.dataset, run.data))
        fresh = data not in prepared
        if fresh:
            prepared[data] = _prepare(run)
        of_data = (run.dataset, run.data, run.batch, run.phases, run.workers, run.partition)
        tried = run.optimizer if isinstance(run.optimizer, (Torch, Muon)) or run.optimizer.groups else None
        use = repr((run.model, run.task, tried, *of_data))
        if use not in samples:
            feed = build_feed(run, 0, run.workers)
            if fresh:
                feed.try_out()
            for shape in feed.shapes:
                least = 1 if feed.task == "regression" else 2
                check_fits(run.model, shape, feed.classes, feed.kind, least=least)
                models.try_out(run.model, shape, feed.classes, least)
            metrics = try_own_code(run, feed)
            if metric is not None:
                check_metric(metric, metrics, run)
            samples[use] = feed.samples
            _note_large_batches(run, feed.samples)
            feed.close()
        check_length(run, samples[use])


def _prepare(run: RunConfig) -> object:
    """Prepare the data set of a run; return what is to be kept until all runs are checked: the user's own data."""
    if isinstance(run.dataset, Custom):
        from trainers.data import custom

        with contextlib.redirect_stdout(sys.stderr):  # stdout is the launcher's
            return custom.load(run.dataset)
    return prepare(run.dataset, Path(run.data.root), run.data.download)


def _note_large_batches(run: RunConfig, samples: int) -> None:
    """Warn if a batch is larger than the data set: an epoch is then one smaller step, since no sample is dropped."""
    for batch in dict.fromkeys(run.adapt_to(phase).global_batch for phase in run.completed_phases):
        if batch > samples:
            logging.warning(
                "a batch of %d samples (workers=%d) is more than the %d of dataset=%s: an epoch is one step with all",
                batch,
                run.workers,
                samples,
                get_name(run.dataset),
            )


if __name__ == "__main__":
    sys.exit(main())
