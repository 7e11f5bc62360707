"""What a probe of a network has found (python -m sweep probe): tables here, and a picture, network.png, beside
network.json."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gradsweep.cli.tables import print_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=Path, help="a network.json, or the directory of a probe"
    )
    parser.add_argument("--no-plots", dest="plots", action="store_false", help="print the tables only")


def run(options: argparse.Namespace) -> int:
    from reports.tables import probe_tables, terminal

    found = {path: probe_tables.load_probe(path) for path in probe_tables.find_files(*options.paths)}
    for path, probe in found.items():
        terminal.print_tables(probe_tables.build_tables(probe))
        print_line(f"\n{os.path.relpath(path)}")
        if options.plots:
            from reports.plots.network import plot_probe

            picture = plot_probe(probe).save(path.parent, ["png"])
            print_line(os.path.relpath(picture.get_path(path.parent)))
    return 0
