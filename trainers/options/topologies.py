"""Topologies by name: who exchanges with whom in decentralised training; built by trainers/topology."""

from __future__ import annotations

import dataclasses

from compressors.parameters import boolean, choice, integer
from trainers.options.base import Part


@dataclasses.dataclass(frozen=True)
class NoTopology(Part):
    """All workers have the same parameters: what every run has whose algorithm is not decentralised."""


@dataclasses.dataclass(frozen=True)
class Topology(Part):
    """A graph of the workers, and how much what comes from a neighbour counts: the mixing matrix W.

    Args:
        weights: `uniform`, w_ij = 1 / (d + 1) with d the largest degree; `metropolis_hastings`,
            w_ij = 1 / (1 + max(d_i, d_j)). What is left of a row is the worker's own weight.
        lazy: (I + W) / 2 in place of W, whose eigenvalues are then not negative.
    """

    weights: str = choice("uniform", "uniform", "metropolis_hastings")
    lazy: bool = boolean(False)


@dataclasses.dataclass(frozen=True)
class Complete(Topology):
    """Every worker is the neighbour of every other one: with uniform weights, mixing is the mean."""


@dataclasses.dataclass(frozen=True)
class Ring(Topology):
    """A cycle; of two workers, one link."""


@dataclasses.dataclass(frozen=True)
class Chain(Topology):
    """A path: a ring without one link."""


@dataclasses.dataclass(frozen=True)
class Star(Topology):
    """Worker 0 is the neighbour of all others, who have no other one."""


@dataclasses.dataclass(frozen=True)
class Torus(Topology):
    """A grid of `rows` times workers / rows whose borders are joined; null: as square as it can be."""

    rows: int | None = integer(None, low=2, optional=True)


@dataclasses.dataclass(frozen=True)
class Hypercube(Topology):
    """Workers whose numbers differ in one bit are neighbours; for powers of two."""


@dataclasses.dataclass(frozen=True)
class Exponential(Topology):
    """Worker i sends to i + 1, i + 2, i + 4, ... modulo the number of workers: directed (Assran et al., 2019)."""


@dataclasses.dataclass(frozen=True)
class OnePeerExponential(Topology):
    """In step k, worker i sends to i + 2^(k mod ceil(log2 n)) only: the exponential graph, one link at a time."""


@dataclasses.dataclass(frozen=True)
class Expander(Topology):
    """A cycle with a chord from every number to its inverse modulo the number of workers, a prime."""


@dataclasses.dataclass(frozen=True)
class Margulis(Topology):
    """The expander of Margulis, Gabber and Galil on the pairs of numbers modulo m, for m^2 workers."""


@dataclasses.dataclass(frozen=True)
class Social(Topology):
    """The 32 nodes of Davis's women of the South and the events that they took part in, for 32 workers."""


@dataclasses.dataclass(frozen=True)
class RandomRegular(Topology):
    """A connected graph drawn at random, in which every worker has `degree` neighbours."""

    degree: int = integer(3, low=2, high=4095)
    draw: int = integer(0, low=0, high=2**31 - 1)


@dataclasses.dataclass(frozen=True)
class Edges(Topology):
    """Links from a file: two numbers of workers a line, from 0, and optionally a weight."""

    file: str = ""
    directed: bool = boolean(False)


TOPOLOGIES: dict[str, type] = {
    "none": NoTopology,
    "ring": Ring,
    "complete": Complete,
    "chain": Chain,
    "star": Star,
    "torus": Torus,
    "hypercube": Hypercube,
    "exponential": Exponential,
    "one_peer_exponential": OnePeerExponential,
    "expander": Expander,
    "margulis": Margulis,
    "social": Social,
    "random_regular": RandomRegular,
    "edges": Edges,
}
