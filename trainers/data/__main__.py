"""`python -m trainers.data [--root DIR] [--download] NAME...`: prepare data sets before ranks start."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from sweep.run import UsageError
from trainers.config import GROUPS
from trainers.data import prepare


def main() -> int:
    """Exit status 0, or 2 with one line on stderr that says what is missing where."""
    parser = argparse.ArgumentParser(prog="python -m trainers.data", description=prepare.__doc__)
    parser.add_argument("names", nargs="+", choices=list(GROUPS["dataset"]), metavar="NAME")
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data sets are kept (default: data)")
    parser.add_argument("--download", action="store_true", help="fetch what is missing, where its publisher offers it")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(levelname)s: %(message)s")
    try:
        for name in arguments.names:
            prepare(name, arguments.root, arguments.download)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
