"""The same points by Gradsweep, by Hydra's own launchers and in a shell's loop: times, and what becomes of failures.

Every point is an mpirun of the same rank: a shell that waits `--seconds` and does nothing else. Hydra's launchers (the
basic one, hydra-joblib-launcher, hydra-submitit-launcher on this machine) run a small program of Hydra's that calls
mpirun for its point; the shell calls mpirun in a loop, or by `xargs -P`.

Times: sweeps of `--points` and of twice as many, interleaved, medians of `--repeats` after one that is not counted. One
more point is the median difference of both within a round by `--points`; beyond bare mpirun is the difference to the
shell with as many at a time. CPU time is that of all processes, whoever has waited for them. "Most at once" is counted
from what the ranks have written. Ranks that wait disturb each other little, so that more of them than cores cost
nothing here.

Behaviours, each tried once: the rank of one point fails; kill -9 of the launcher while its ranks run; the same command
a second time after it has ended well; a value that stands in the grid twice.

Launchers that are not installed are left out, and said so: pip install -c constraints.txt -e '.[peers]'
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from benchmarks.sweeps import trials
from benchmarks.sweeps.launchers import LAUNCHERS, Place, Side
from benchmarks.sweeps.measuring import Finding, markdown
from benchmarks.sweeps.peer_times import HEADINGS, Times

ASKED_S = 0.3
INSTALL = "python -m pip install -c constraints.txt -e '.[peers]'"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.5, help="that a rank waits (default: 0.5)")
    parser.add_argument("--slots", type=int, default=min(2, len(os.sched_getaffinity(0))), help="runs at a time")
    parser.add_argument("--repeats", type=int, default=5, help="0: behaviours only")
    parser.add_argument("--grace", type=float, default=5.0, help="seconds between kill -9 and the count (default: 5)")
    parser.add_argument("--launchers", nargs="+", choices=[*LAUNCHERS], help="default: all that are installed")


def measure(given: argparse.Namespace) -> Iterator[Finding | str]:
    chosen = {name: LAUNCHERS[name] for name in given.launchers or LAUNCHERS}
    missing = [name for name, launcher in chosen.items() if launcher.version is None]
    if missing:
        yield f"not installed, left out: {', '.join(missing)} ({INSTALL})"
    sides = [side for name in chosen if name not in missing for side in chosen[name].sides(given.slots)]
    with Place(given.seconds) as place:
        if given.repeats:
            shells = [Side(None, number) for number in dict.fromkeys(side.at_a_time for side in sides)]
            times = Times(place, [*shells, *sides], given.points, given.repeats)
            yield markdown([heading.format(given.points, 2 * given.points) for heading in HEADINGS], times.rows())
            for side in sides:
                if side.launcher is LAUNCHERS["gradsweep"]:
                    what = f"one more run beyond bare mpirun, {side.at_a_time} at a time"
                    yield Finding(what, times.beyond(side), "s", ASKED_S)
        last = {side.launcher: side for side in sides}
        tried = [trials.row(place, side, given.points, given.grace) for side in last.values()]
    yield markdown([heading.format(given.points, given.points - 1, given.grace) for heading in trials.HEADINGS], tried)
