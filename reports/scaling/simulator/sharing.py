"""Share links among messages by max-min fairness (Bertsekas and Gallager, "Data Networks", 1992, 6.5.2)."""

from __future__ import annotations

import numpy as np

from reports.scaling.simulator.cluster import Floats, Ints

_SAME = 1 + 1e-12


def fair_rates(paths: Ints, capacities: Floats) -> Floats:
    """Return max-min fair rates of messages, in bytes per second: a rate could only grow if a smaller one shrank.

    All rates rise together until a link is full; those on it stay, the others continue to rise.

    Args:
        paths: (messages, links of each), positions in `capacities`.
        capacities: bytes a second, finite.
    """
    rates = np.zeros(len(paths))
    left = capacities.copy()
    rising = np.arange(len(paths))
    while len(rising):
        on_way = paths[rising]
        load = np.bincount(on_way.ravel(), minlength=len(left))
        share = np.full(len(left), np.inf)
        np.divide(left, load, out=share, where=load > 0)
        level = share.min()
        is_full = (share <= level * _SAME)[on_way].any(axis=1)
        rates[rising[is_full]] = level
        left = np.maximum(left - level * np.bincount(on_way[is_full].ravel(), minlength=len(left)), 0.0)
        rising = rising[~is_full]
    return rates
