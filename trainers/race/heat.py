"""A heat: runs that are set up side by side in one MPI world take blocks of steps in turns.

In a round every run takes one block, in a random order that is the same on all ranks. A heat ends when every ratio to
the baseline is known with the required precision, or when its time is over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from gradsweep.csv_columns import PHASES
from trainers.devices.yardstick import Yardstick
from trainers.mpi import stopping
from trainers.race.plan import Plan
from trainers.race.racer import Racer
from trainers.race.ratios import Ratio, estimate_rates, estimate_ratios
from trainers.recording.readings import Readings
from trainers.training.failure_cause import RunFailed

if TYPE_CHECKING:
    from mpi4py import MPI

LEAST_ROUNDS = 3
LEAST_PRECISE_ROUNDS = 8
"""Rounds before a heat may end for its precision: an interval over fewer rounds is too often narrow by chance."""
TIMED_STEPS = 4
"""Steps of a block whose times count, at least."""
SETTLING_S = 0.02
"""Seconds at the beginning of a block that do not count, at least, and one step at least: caches are cold, threads that
overlap messages with backward have slept, and other workers are waited for."""
MOST_ROUND = 0.1
"""Part of a heat's time that a round may take; blocks are shorter where it would take more."""
REPORT_EVERY_S = 0.5

Report = Callable[[dict[str, Any], list[dict[str, Any]]], None]
"""Gets on rank 0 the figures so far (see `Heat.compute_figures`) and the blocks since the last call."""


@contextmanager
def blame(run: str, in_trial: bool = False) -> Iterator[None]:
    """Convert errors raised within the block into a RunFailed that names `run`.

    Raises:
        RunFailed: in place of any other exception.
    """
    try:
        yield
    except Exception as error:
        raise RunFailed(run, error, in_trial) from error


class Heat:
    """One heat of a race on one rank. All ranks call `run` together.

    Args:
        comm: one rank for each worker.
        racers: the runs by name; the first is the baseline.
        plan: has the duration and the required precision.
        random: generator for the order of turns, in the same state on all ranks.
        yardstick: read about once a second between two rounds, and at the end.
        report: called on rank 0 about twice a second, and at the end.
        least_rounds: the smallest number of rounds, however long they take.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        racers: Mapping[str, Racer],
        plan: Plan,
        random: np.random.Generator,
        yardstick: Yardstick,
        report: Report,
        least_rounds: int = LEAST_ROUNDS,
    ) -> None:
        self.comm, self.racers, self.plan, self._random, self._report = comm, dict(racers), plan, random, report
        self._least = min(2, len(racers))  # a single run is measured without a comparison
        self._least_rounds = least_rounds
        self.left: dict[str, str] = {}
        """Why runs have left the heat, by name."""
        self._means: dict[str, list[np.ndarray]] = {name: [] for name in racers}
        """By run, for each round the mean over steps and workers of the seconds of a step and of its phases."""
        self._timed: dict[str, int] = {}
        self._settling: dict[str, int] = {}
        self._rounds = 0
        self._rows: list[dict[str, Any]] = []
        self._yardstick, self._readings = yardstick, Readings()
        self._unread_s = 0.0
        """Seconds of steps since the yardstick was read; the same on all ranks."""

    def run(self) -> bool:
        """Give all runs turns until the heat is over; return whether a signal has ended it.

        Raises:
            RunFailed: a run has failed on this rank.
        """
        self._choose_block_lengths()
        self._read_yardstick()
        began = reported = time.monotonic()
        over = stopped = False
        while not over:
            stopped = self._take_round()
            now = time.monotonic()
            figures: dict[str, Any] | None = None
            over = stopped or len(self.racers) < self._least or now - began > self.plan.seconds
            if self.comm.rank == 0 and (over or now - reported > REPORT_EVERY_S):
                figures = self.compute_figures()
                precise = all(figure["precision"] <= self.plan.precision for figure in figures["runs"].values())
                over = over or (precise and self._rounds >= LEAST_PRECISE_ROUNDS)
            over = self.comm.bcast(over and (stopped or self._rounds >= self._least_rounds))
            if over and self._unread_s:
                self._read_yardstick()
            if figures is not None:
                self._report(self.compute_figures() if over else figures, self._rows)
                self._rows, reported = [], time.monotonic()
        return stopped

    def _choose_block_lengths(self) -> None:
        """Choose for each run the numbers of untimed and timed steps in a block: few if its steps take long."""
        from mpi4py import MPI

        seconds = np.array([racer.warm_step_s for racer in self.racers.values()])
        self.comm.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
        round_s = 0.0
        for (name, racer), step_s in zip(self.racers.items(), seconds.tolist(), strict=True):
            self._settling[name] = max(1, math.ceil(SETTLING_S / step_s))
            self._timed[name] = racer.count_timed_steps(max(TIMED_STEPS, self._settling[name]))
            round_s += step_s * (self._settling[name] + self._timed[name])
        if round_s > MOST_ROUND * self.plan.seconds:
            self._timed = {name: racer.count_timed_steps(1) for name, racer in self.racers.items()}

    def _take_round(self) -> bool:
        """Run a block of every run; return whether a rank was asked to stop."""
        from mpi4py import MPI

        names = list(self.racers)
        means = np.zeros((len(names), 1 + len(PHASES)))
        order = [int(place) for place in self._random.permutation(len(names))]
        for place in order:
            with blame(names[place]):
                name = names[place]
                means[place] = self.racers[name].take_block(self._timed[name], self._settling[name])
        flags = np.array([stopping.is_requested(), *(racer.is_lost for racer in self.racers.values())], dtype="i4")
        self.comm.Allreduce(MPI.IN_PLACE, flags, MPI.MAX)
        self.comm.Allreduce(MPI.IN_PLACE, means, MPI.SUM)
        means /= self.comm.size
        self._rounds += 1
        for place, name in enumerate(names):
            if flags[1 + place]:
                self._leave(name, f"the loss is not finite at step {self.racers[name].step}")
            else:
                self._note_block(name, order.index(place) + 1, means[place])
            self._unread_s += means[place, 0] * (self._settling[name] + self._timed[name])
        if self._unread_s >= self._yardstick.every_s:
            self._read_yardstick()
        return bool(flags[0])

    def _read_yardstick(self) -> None:
        self._readings.add(self._rounds, self._yardstick.read(), self._yardstick.hosts)
        self._unread_s = 0.0

    def _note_block(self, name: str, turn: int, means: np.ndarray) -> None:
        self._means[name].append(means)
        about = {"round": self._rounds, "turn": turn, "run": name}
        steps = {"step": self.racers[name].step, "steps": self._timed[name]}
        seconds = zip(("step_s", *(f"{phase}_s" for phase in PHASES)), means.tolist(), strict=True)
        self._rows.append({**about, **steps, **dict(seconds)})

    def _leave(self, name: str, reason: str) -> None:
        """Remove a run from the heat; if it is the baseline, the next run replaces it as the baseline."""
        self.left[name] = reason
        del self.racers[name], self._means[name]

    def compute_figures(self) -> dict[str, Any]:
        """Return the figures measured so far.

        `baseline` is the name of a run. `runs` has for each run the seconds of a step and its phases, the interval of
        the throughput, and the ratio of its speed to the baseline's with its interval. `pairs` has for all pairs the
        ratio of the second run's speed to the first's. Means over rounds are geometric, so that the quotient of two
        speeds equals the ratio. A run that was alone from the beginning has no ratio (NaN); its precision is that of
        its throughput. `yardstick` has the readings of the yardstick, with rounds in place of steps.
        """
        names = list(self.racers)
        if not self._rounds or not names:
            return {"baseline": None, "runs": {}, "pairs": [], "yardstick": None}
        means = np.array([self._means[name] for name in names])  # (runs, rounds, 1 + phases)
        times = means[:, :, 0].T
        step_s = np.exp(np.log(times).mean(0))
        phases_s = means[:, :, 1:].mean(1) * (step_s / times.mean(0))[:, None]
        rates = estimate_rates(times)
        ratios = estimate_ratios(times, 0) if self._least > 1 else [Ratio(math.nan, math.nan, math.nan)]
        runs = {
            name: {
                "step_s": step_s[place],
                "phases_s": dict(zip(PHASES, phases_s[place].tolist(), strict=True)),
                "throughput_low": rates[place].low,
                "throughput_high": rates[place].high,
                "ratio": ratios[place].value,
                "ratio_low": ratios[place].low,
                "ratio_high": ratios[place].high,
                "precision": (ratios if self._least > 1 else rates)[place].precision,
                "blocks": self._rounds,
                "timed_steps": self._rounds * self._timed[name],
                "last_step": self.racers[name].step,
            }
            for place, name in enumerate(names)
        }
        pairs, yardstick = _compare_pairs(names, times), self._readings.summarise()
        return {"baseline": names[0], "runs": runs, "pairs": pairs, "yardstick": yardstick}


def _compare_pairs(names: Sequence[str], times: np.ndarray) -> list[dict[str, Any]]:
    """Return for each pair of runs the ratio of the second one's speed to the first one's, with its interval."""
    pairs = []
    for place, name in enumerate(names):
        for other, ratio in zip(names[place + 1 :], estimate_ratios(times, place)[place + 1 :], strict=True):
            pairs.append({"runs": [name, other], "ratio": ratio.value, "low": ratio.low, "high": ratio.high})
    return pairs
