"""The work of a step besides its messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from reports.scaling.simulator.cluster import Floats
from reports.scaling.simulator.schedules import Schedule


@dataclasses.dataclass(frozen=True)
class Compute:
    """The times to compute a gradient: log-normal, drawn for every worker and step.

    Args:
        mean_s: their mean, in seconds.
        sigma: standard deviation of their logarithm; 0: all are alike. The median is mean_s exp(-sigma^2 / 2).
        slow: workers that are slower in all steps, by their number: how many times as long they take.

    Raises:
        ValueError: a time is negative.
    """

    mean_s: float
    sigma: float = 0.0
    slow: Mapping[int, float] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.mean_s < 0 or self.sigma < 0 or any(factor < 0 for factor in self.slow.values()):
            raise ValueError(f"{self}: valid are times of 0 or more")

    def draw_times(self, workers: int, step: int, seed: int) -> Floats:
        """Return the seconds that each worker takes, (workers,).

        They depend on the arguments only, and those of the first workers do not depend on the number of workers.
        """
        normal = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 0, step])).standard_normal(workers)
        times = self.mean_s * np.exp(self.sigma * normal - self.sigma**2 / 2)
        for worker, factor in self.slow.items():
            if worker < workers:
                times[worker] *= factor
        return times


@dataclasses.dataclass(frozen=True)
class _Work:
    """The work of a worker in one step, besides its messages.

    Args:
        compute: the times to compute the gradient.
        encode_s: the time to encode the worker's own message, before the exchange.
        decode_s: the time to decode all that it receives, after the exchange.
        update_s: the time to update the parameters, after decoding.
    """

    compute: Compute
    encode_s: float = dataclasses.field(default=0.0, kw_only=True)
    decode_s: float = dataclasses.field(default=0.0, kw_only=True)
    update_s: float = dataclasses.field(default=0.0, kw_only=True)

    def draw_before(self, workers: int, step: int, seed: int) -> Floats:
        """Return the seconds of each worker from the step's beginning until its exchange, (workers,)."""
        return self.compute.draw_times(workers, step, seed) + self.encode_s

    @property
    def after_s(self) -> float:
        return self.decode_s + self.update_s


@dataclasses.dataclass(frozen=True)
class Step(_Work):
    """One step: compute, encode, exchange, decode, update.

    Args:
        exchange: a schedule, or several schedules that successive steps use in turn.
    """

    exchange: Schedule | Sequence[Schedule] = Schedule()

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules that steps use in turn."""
        return (self.exchange,) if isinstance(self.exchange, Schedule) else tuple(self.exchange)


@dataclasses.dataclass(frozen=True)
class Asynchronous(_Work):
    """Steps against a dedicated server by stale synchronous parallel (Ho et al., NeurIPS 2013): docs/guide/servers.md.

    The server processes one gradient after another and answers the sender with the parameters. A worker that is more
    than `staleness` steps ahead of the slowest gets its answer when the slowest has caught up.

    Args:
        push_bytes, pull_bytes: the sizes of a gradient's message and of the parameters.
        staleness: the steps that a worker may be ahead.
        server_s: the time that the server takes for a gradient.
    """

    push_bytes: float = 0.0
    pull_bytes: float = 0.0
    staleness: int = 4
    server_s: float = 0.0
