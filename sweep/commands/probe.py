"""Measure the network that training would use, and train nothing: latency, bandwidth, and what the collectives of the
exchanges take from 4 B to 64 MB; draw it, and write network.json beside the picture.

What is typed is what multirun.py takes: workers, network, mpi and hydra/launcher decide what is probed, all else makes
no difference. Several values (workers=2,4,8) are several probes, one after the other. Ctrl-C ends all of it. Exit
status 0: all is measured; 1: a probe has failed; 2: nothing was started; 128 + n: ended by signal n."""

from __future__ import annotations

import argparse
import os

from gradsweep.errors import bad_value
from sweep.console import flags
from sweep.launch import probe

SECONDS = 35.0
LEAST, MOST = 1.0, 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  python -m sweep probe workers=4\n"
        "  python -m sweep probe workers=2,4,8 network=ethernet_1g\n"
        "  python -m sweep probe workers=16 network=real hydra/launcher=slurm hydra.launcher.partition=cpu\n"
    )
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help="as of multirun.py")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="of a probe (default: %(default)g)")
    parser.add_argument("--config-dir", metavar="DIR", help="with files of one's own, such as network/office.yaml")
    parser.add_argument("--quiet", action="store_true", help="print only where network.json is, and what went wrong")


def run(options: argparse.Namespace) -> int:
    if not LEAST <= options.seconds <= MOST:
        raise bad_value("--seconds", f"{options.seconds:g}", f"a number from {LEAST:g} to {MOST:g}")
    for word in options.overrides:
        if "=" not in word and not word.startswith("~"):
            raise bad_value("probe", word, "KEY=VALUE, such as workers=4 or network=ethernet_1g")
    words = [*options.overrides, *([flags.QUIET] if options.quiet else [])]
    if options.config_dir is not None:
        if not os.path.isdir(options.config_dir):
            raise bad_value("--config-dir", options.config_dir, "a directory")
        words += ["--config-dir", options.config_dir]
    program, *rest = probe.build_command(options.seconds, words)
    os.execv(program, [program, *rest])
