"""How long the launchers of part `peers` take for the same points."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.sweeps.launchers import Ended, Place, Side, Sweep

HEADINGS = (
    "launcher",
    "most at once",
    "{0} points, s",
    "{1} points, s",
    "one more point, s",
    "beyond bare mpirun, s",
    "CPU of one more point, s",
)


TRIES = 3


def _whole(place: Place, side: Side, size: int) -> tuple[Sweep, Ended]:
    """A sweep that has computed all of its points: of sixteen mpiruns at once, one now and then cannot start."""
    for _ in range(TRIES):
        sweep = place.sweep(side, range(size))
        ended = sweep.run()
        if not ended.status and sorted(point for point, _ in sweep.marks("end")) == list(range(size)):
            return sweep, ended
        print(f"{side.name}: exit status {ended.status}\n{ended.out}", file=sys.stderr)
    raise SystemExit(f"{side.name}: {TRIES} times not all of {size} points")


class Times:
    """Sweeps of `points` and of twice as many by each side, interleaved.

    Raises:
        SystemExit: a sweep has not computed all of its points, however often it was tried.
    """

    def __init__(self, place: Place, sides: Sequence[Side], points: int, repeats: int) -> None:
        self.sides, self.points = sides, points
        self.sizes = (points, 2 * points)
        self.most = dict.fromkeys(sides, 0)
        found: dict[tuple[Side, int], list[tuple[float, float]]] = {(e, n): [] for e in sides for n in self.sizes}
        for _ in range(repeats + 1):
            for (side, size), times in found.items():
                sweep, ended = _whole(place, side, size)
                times.append((ended.seconds, ended.cpu))
                self.most[side] = max(self.most[side], sweep.most_at_once())
        self._wall, self._cpu = (
            {key: [each[index] for each in times[1:]] for key, times in found.items()} for index in range(2)
        )

    def _one_more(self, times: Mapping[tuple[Side, int], Sequence[float]], side: Side) -> float:
        """The median difference within a round, so that a machine that is slower in some of them does not count."""
        small, large = (times[side, size] for size in self.sizes)
        return statistics.median(more - less for less, more in zip(small, large, strict=True)) / self.points

    def beyond(self, side: Side) -> float:
        """Seconds of one more point that a shell with as many at a time does not take."""
        return self._one_more(self._wall, side) - self._one_more(self._wall, Side(None, side.at_a_time))

    def rows(self) -> Iterator[list[str]]:
        for side in self.sides:
            walls = [f"{statistics.median(self._wall[side, size]):.2f}" for size in self.sizes]
            wall, cpu = (f"{self._one_more(times, side):.3f}" for times in (self._wall, self._cpu))
            beyond = "" if side.launcher is None else f"{self.beyond(side):.3f}"
            yield [side.name, str(self.most[side]), *walls, wall, beyond, cpu]
