"""`python -m trainers.data [--root DIR] [--download] NAME...`: prepare data sets before ranks start.

With `--runs` the configs of runs stand on standard input, as a list in JSON: their data sets are prepared, and every
run's options are held against its data. So the launcher calls it.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.run import UsageError, bad_value
from trainers import models
from trainers.config import GROUPS, parse
from trainers.data import feed, prepare
from trainers.training_rules import check_length


def main() -> int:
    """Exit status 0, or 2 with one line on stderr that says what is missing where."""
    parser = argparse.ArgumentParser(prog="python -m trainers.data", description=prepare.__doc__)
    known = ", ".join(GROUPS["dataset"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=known)
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data sets are kept (default: data)")
    parser.add_argument("--download", action="store_true", help="fetch what is missing, where its publisher offers it")
    parser.add_argument("--runs", action="store_true", help="the configs of runs are on standard input, as JSON")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(levelname)s: %(message)s")
    try:
        if not arguments.names and not arguments.runs:
            raise UsageError(f"NAME: missing; valid is one of {known}")
        for name in arguments.names:
            if name not in GROUPS["dataset"]:
                raise bad_value("NAME", name, f"one of {known}")
        for name in arguments.names:
            prepare(GROUPS["dataset"][name](), arguments.root, arguments.download)
        if arguments.runs:
            prepare_runs(json.load(sys.stdin))
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def prepare_runs(configs: Sequence[Mapping[str, Any]]) -> None:
    """Prepare the data sets of resolved configs, and see that every run can use its own.

    Raises:
        UsageError: files are missing, or a run's options do not fit its data.
    """
    prepared: set[str] = set()
    lengths: dict[str, tuple[int, int]] = {}  # samples, and steps of an epoch
    for run in map(parse, configs):
        data = repr((run.dataset, run.data.root))
        if data not in prepared:
            prepare(run.dataset, Path(run.data.root), run.data.download)
            prepared.add(data)
        use = repr((run.model, run.dataset, run.data.root, run.batch, run.workers, run.partition))
        if use not in lengths:
            found = feed(run, 0, run.workers)
            models.check(run.model, found.shape, found.classes, run.dataset.kind)
            lengths[use] = found.samples, found.steps_per_epoch
        check_length(run, *lengths[use])


if __name__ == "__main__":
    sys.exit(main())
