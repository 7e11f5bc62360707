"""Identify random streams by keys: the values on which random numbers depend."""

from __future__ import annotations

import dataclasses

_MASK = (1 << 64) - 1


def splitmix64(state: int) -> int:
    """Return one step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): a bijection of 64 bits."""
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


@dataclasses.dataclass(frozen=True)
class Key:
    """The identity of a random stream: every draw depends only on the key and a counter.

    So a run that is repeated, or resumed from its state, draws the same numbers. The global torch RNG is never used.
    """

    seed: int
    worker: int
    step: int
    unit: int

    def mix(self) -> int:
        """Return the key as 64 well-mixed bits, from which a kernel's generator starts."""
        state = 0
        for part in (self.seed, self.worker, self.step, self.unit):
            state = splitmix64(state ^ (part & _MASK))
        return state

    def share(self) -> Key:
        """Return the key without the worker, for random numbers that must be the same on all workers."""
        return dataclasses.replace(self, worker=-1)
