"""Graphs of gossip: lists of neighbours, as `schedules.gossip` takes them. Any other graph can be used as well."""

from __future__ import annotations

Neighbours = list[list[int]]


def ring(workers: int) -> Neighbours:
    """Return the neighbours in a bidirectional ring; two workers have one link."""
    return [sorted({(i - 1) % workers, (i + 1) % workers} - {i}) for i in range(workers)]


def torus(workers: int) -> Neighbours:
    """Return the neighbours in a torus that is as square as possible; one row is a ring. Two workers have one link."""
    rows = max(side for side in range(1, int(workers**0.5) + 1) if workers % side == 0)
    columns = workers // rows

    def number_at(row: int, column: int) -> int:
        return row % rows * columns + column % columns

    around = ((-1, 0), (1, 0), (0, -1), (0, 1))
    places = [(row, column) for row in range(rows) for column in range(columns)]
    return [
        sorted({number_at(row + y, column + x) for y, x in around} - {number_at(row, column)}) for row, column in places
    ]


def exponential(workers: int) -> Neighbours:
    """Return the graph in which each worker sends to the workers 1, 2, 4, ... after it (Assran et al., 2019)."""
    hops = [2**bit for bit in range((workers - 1).bit_length())]
    return [[(i + hop) % workers for hop in hops] for i in range(workers)]


def one_peer_exponential(workers: int) -> list[Neighbours]:
    """Return the exponential graph with one link per step: the graphs of a period of steps."""
    hops = [2**bit for bit in range((workers - 1).bit_length())]
    return [[[(i + hop) % workers] for i in range(workers)] for hop in hops]
