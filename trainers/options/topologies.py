"""Topologies by name: who exchanges with whom in decentralised training; built by trainers/topology."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from gradsweep.options.parameters import Checked, boolean, choice, integer


@dataclasses.dataclass(frozen=True)
class NoTopology(Checked):
    """No topology, for algorithms that are not decentralised: all workers have the same parameters."""


_WEIGHTS = ("uniform", "metropolis_hastings", "local_degree")


@dataclasses.dataclass(frozen=True)
class Topology(Checked):
    """The base of topologies: a graph of the workers, and a rule for the weights in its mixing matrix W.

    Topologies of plug-ins have `build_graph(workers)`: it returns a networkx graph on the numbers of the workers, or a
    list with the graph of each step of a period.

    Args:
        weights: the rule for the weight w_ij of neighbour j's parameters on worker i; i's own weight is the rest to 1,
            and d_i is the number of i's neighbours. `uniform`: w_ij = 1 / (1 + the largest d), and on a directed graph
            1 / (1 + the number of links that leave j). `metropolis_hastings`: w_ij = 1 / (1 + max(d_i, d_j)).
            `local_degree`: w_ij = 1 / max(d_i, d_j), where a loop that belongs to the graph counts as a neighbour (Xiao
            & Boyd, 2004, section 4.2).
        lazy: use (I + W) / 2 in place of W, so that no eigenvalue is negative.
    """

    symmetric: ClassVar[bool] = True
    """Whether links go both ways and W is symmetric. A class whose options decide this overrides it by a property."""
    fixed: ClassVar[bool] = True
    """Whether the graph is the same in every step."""

    weights: str = choice("uniform", *_WEIGHTS)
    lazy: bool = boolean(False)


@dataclasses.dataclass(frozen=True)
class Complete(Topology):
    """Every worker is the neighbour of every other one: with uniform weights, mixing is the mean."""


@dataclasses.dataclass(frozen=True)
class Ring(Topology):
    """A cycle of all workers; two workers have a single link."""


@dataclasses.dataclass(frozen=True)
class Chain(Topology):
    """A path: a ring without one link."""


@dataclasses.dataclass(frozen=True)
class Star(Topology):
    """Worker 0 is the only neighbour of all other workers."""


@dataclasses.dataclass(frozen=True)
class Torus(Topology):
    """A grid of `rows` times workers / rows with joined opposite borders; null: as square as possible.

    A torus with one row is a ring. If a side is 2, double links between two workers count once.
    """

    rows: int | None = integer(None, low=1, high=4096, optional=True)


@dataclasses.dataclass(frozen=True)
class Hypercube(Topology):
    """Workers whose numbers differ in one bit are neighbours; the number of workers is a power of two."""


@dataclasses.dataclass(frozen=True)
class Exponential(Topology):
    """Worker i sends to i + 1, i + 2, i + 4, ... modulo the number of workers: directed (Assran et al., 2019)."""

    symmetric: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class OnePeerExponential(Topology):
    """The exponential graph, a link at a time: in step k, worker i sends only to i + 2^((k - 1) mod ceil(log2 n))."""

    symmetric: ClassVar[bool] = False
    fixed: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class Expander(Topology):
    """A cycle with a chord from every number to its inverse modulo the number of workers, a prime.

    Workers 0, 1 and -1 have loops, since 1 and -1 are their own inverses. So with `local_degree` all weights are 1/3.
    """

    weights: str = choice("local_degree", *_WEIGHTS)


@dataclasses.dataclass(frozen=True)
class Margulis(Topology):
    """The expander of Margulis, Gabber and Galil on the pairs of numbers modulo m, for m^2 workers.

    Multiple links between two workers count once. It has loops, which `local_degree` counts as neighbours.
    """

    weights: str = choice("local_degree", *_WEIGHTS)


@dataclasses.dataclass(frozen=True)
class Social(Topology):
    """The 32 nodes of Davis's women of the South and the events that they took part in, for 32 workers."""

    weights: str = choice("local_degree", *_WEIGHTS)


@dataclasses.dataclass(frozen=True)
class RandomRegular(Topology):
    """A connected graph drawn at random, in which every worker has `degree` neighbours."""

    degree: int = integer(3, low=2, high=4095)
    draw: int = integer(0, low=0, high=2**31 - 1)


@dataclasses.dataclass(frozen=True)
class RandomPairs(Topology):
    """Pairs drawn at random in every step, for an even number of workers; after `rounds` steps they repeat.

    Li et al., "NoLoCo: No-all-reduce low communication training method for large models", 2025.
    """

    fixed: ClassVar[bool] = False

    rounds: int = integer(100, low=1, high=10_000)
    draw: int = integer(0, low=0, high=2**31 - 1)


@dataclasses.dataclass(frozen=True)
class Edges(Topology):
    """Links from a file: two numbers of workers a line, from 0, and optionally a weight; # begins a comment.

    Args:
        file: path of the file, which is read when a config is composed.
        links: the links that a run uses: the lines of the file, separated by semicolons. May be given without a file.
        directed: a line is a link from its first worker to its second only, instead of both ways.
    """

    file: str = ""
    links: str = ""
    directed: bool = boolean(False)

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        return not self.directed


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
    "random_pairs": RandomPairs,
    "edges": Edges,
}
