"""What the launchers of part `peers` do when something goes wrong, or is asked for twice; each tried."""

from __future__ import annotations

import time

from benchmarks.sweeps.launchers import Place, Side

HEADINGS = (
    "launcher",
    "one of {0} points fails: others done",
    "exit status",
    "kill -9 of it: processes left after {2:g} s",
    "the same command again: points computed again",
    "{0} points, two of them equal: computed",
)
FAILING = 1
LONG_S = 600.0


def row(place: Place, side: Side, points: int, grace: float) -> list[str]:
    """What a launcher does, in the order of HEADINGS."""
    done, status = failing(place, side, points)
    left = killed(place, side, points, grace)
    return [
        side.name,
        f"{done} of {points - 1}",
        str(status),
        str(left),
        f"{again(place, side, points)} of {points}",
        str(equal(place, side, points)),
    ]


def failing(place: Place, side: Side, points: int) -> tuple[int, int]:
    """How many points were computed beside one that fails, and the exit status."""
    sweep = place.sweep(side, range(points), failing=FAILING)
    status = sweep.run().status
    return len({point for point, _ in sweep.marks("end")} - {FAILING}), status


def killed(place: Place, side: Side, points: int, grace: float) -> int:
    """How many processes are left `grace` seconds after the launcher was killed, a second after its first rank began.

    Raises:
        SystemExit: no rank has begun.
    """
    sweep = place.sweep(side, range(points), waiting=LONG_S)
    sweep.begin()
    try:
        deadline = time.monotonic() + 60
        while not sweep.marks("begin"):
            if time.monotonic() > deadline:
                raise SystemExit(f"{side.name}: no rank within a minute\n{(sweep.folder / 'out').read_text()}")
            time.sleep(0.05)
        time.sleep(1)
    finally:
        sweep.kill()
    time.sleep(grace)
    left = len(sweep.left())
    sweep.reap(within_s=0)
    return left


def again(place: Place, side: Side, points: int) -> int:
    """How many ranks begin when a command that has ended well is given once more.

    Raises:
        SystemExit: it has not ended well.
    """
    sweep = place.sweep(side, range(points))
    for _ in range(2):
        before = len(sweep.marks("begin"))
        ended = sweep.run()
        if ended.status:
            raise SystemExit(f"{side.name}: exit status {ended.status}\n{ended.out}")
        if side.launcher is not None and side.launcher.own:
            sweep.command.append("sweep.resume=sweep")
    return len(sweep.marks("begin")) - before


def equal(place: Place, side: Side, points: int) -> int:
    """How many ranks begin for so many points of which two are equal."""
    sweep = place.sweep(side, [*range(points - 1), points - 2])
    sweep.run()
    return len(sweep.marks("begin"))
