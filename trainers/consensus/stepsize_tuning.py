"""`consensus_stepsize=tune`: search for the stepsize that brings vectors closest to their mean.

As in the code of Koloskova, Lin, Stich and Jaggi, "Decentralized deep learning with arbitrary communication
compression", ICLR 2020: 20 stepsizes from 0.001 to 1 in a geometric series; 1000 iterations of averaging consensus with
each, on normally distributed vectors; the best has the least ||X - mean||^2 + ||X - estimates||^2. Unlike there,
stepsizes that fall behind are dropped early, which saves five sixths of the work; the result is the best of the 20 or a
neighbour of it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from compressors import Compressor
from compressors.base import count_elements
from compressors.kernels import backend
from gradsweep.errors import bad_value
from gradsweep.options.parameters import InvalidParameter
from trainers.consensus.simulate import DIVERGED, SCHEMES, Channel, draw_start_vectors
from trainers.topology.mixing import Mixing

if TYPE_CHECKING:
    from mpi4py import MPI

STEPSIZES = tuple(float(f"{10 ** (-3 + 3 * place / 19):.4g}") for place in range(20))
"""The candidates."""
ROUNDS = ((25, 10), (50, 7), (100, 5), (200, 4), (400, 2), (1000, 1))
"""After so many iterations, so many candidates are left."""
CONVERGED = 1e-8
"""A part of the start; far below it, float32 has nothing more to say, and whoever comes there first is the best."""
_DIMENSIONS = (2000, 4000, 8000)


class _Candidate:
    """A simulated consensus with one of the stepsizes, and how far it has come."""

    def __init__(
        self, scheme: str, start: torch.Tensor, mixing: Mixing, channel: Channel, stepsize: float, limit: int
    ) -> None:
        self._gossip = SCHEMES[scheme](start, mixing, channel, stepsize)
        self._mean, self._limit, self._step = start.mean(0), limit, 0
        self._start = self._distance()
        self.score = self._score()
        """||X - mean||^2 + ||X - estimates||^2, as a part of what the first of these was at the start."""
        self.standing = (limit, 0.0)
        """The iterations until it had converged, or the most there are, and ln(score) where it will be after these, if
        it goes on as since the last round: one that is near its end is not preferred to one that has begun slowly.
        The smaller the better."""

    def advance(self, iterations: int) -> None:
        """Continue to iteration `iterations`, unless the consensus has converged or diverged before."""
        before, begun = self.score, self._step
        while self._step < iterations:
            self._step += 1
            try:
                self._gossip.step(self._step)
            except FloatingPointError:  # a compressor that refuses what is no number
                return self._end(self._limit, math.inf)
            self.score = self._score()
            if not self.score <= DIVERGED:
                return self._end(self._limit, math.inf)
            if self.score <= CONVERGED:
                return self._end(self._step, self.score)
        if iterations > begun:
            slope = math.log(self.score / before) / (iterations - begun)
            self.standing = (self._limit, math.log(self.score) + slope * (self._limit - iterations))

    def _end(self, iterations: int, score: float) -> None:
        self.score, self._step = score, self._limit
        self.standing = (iterations, math.log(max(score, 1e-300)))

    def _score(self) -> float:
        return (self._distance() + self._gossip.compute_estimate_error()) / self._start

    def _distance(self) -> float:
        return float((self._gossip.x - self._mean).square().sum())


def tune_stepsize(
    comm: MPI.Comm | None,
    mixing: Mixing,
    compressor: Compressor,
    shapes: Sequence[Sequence[int]],
    seed: int,
    scheme: str = "choco",
) -> float:
    """Return the best consensus stepsize of STEPSIZES; the ranks share the work.

    The result does not depend on the number of ranks.

    Args:
        comm: the ranks that share the work and all call this with the same arguments; None: this process alone.
        mixing: for the run's number of workers, which may differ from the number of ranks.
        shapes: of the run's units.
        seed: of the vectors and of the compressor's random numbers.
        scheme: `choco` or `deep_squeeze`.

    Raises:
        UsageError: with no stepsize do the vectors come closer to their mean.
    """
    if mixing.workers == 1:
        return 1.0  # in consensus with itself
    rank, size = (0, 1) if comm is None else (comm.rank, comm.size)
    shape = choose_shape(compressor, shapes)
    start = draw_start_vectors(mixing.workers, count_elements(shape), seed).float()
    limit = ROUNDS[-1][0]
    mine = {
        place: _Candidate(
            scheme, start, mixing, Channel(compressor, [shape], mixing.workers, seed), STEPSIZES[place], limit
        )
        for place in range(rank, len(STEPSIZES), size)
    }
    left = list(range(len(STEPSIZES)))
    for iterations, count in ROUNDS:
        standings = _advance_all({place: mine[place] for place in left if place in mine}, iterations, comm)
        left = sorted(left, key=lambda place: (standings[place], place))[:count]
        if standings[left[0]][0] <= iterations:
            break
    if standings[left[0]][1] >= 0:
        valid = f"a number: with compressor={compressor.name} none from {STEPSIZES[0]} to 1 leads to a consensus"
        raise bad_value("algorithm.consensus_stepsize", "tune", valid)
    return STEPSIZES[left[0]]


def _advance_all(
    mine: Mapping[int, _Candidate], iterations: int, comm: MPI.Comm | None
) -> dict[int, tuple[int, float]]:
    """Advance this rank's candidates to iteration `iterations`; return the `standing` of all ranks' by number."""
    with _kernels():
        for candidate in mine.values():
            candidate.advance(iterations)
    here = {place: candidate.standing for place, candidate in mine.items()}
    everywhere = [here] if comm is None else comm.allgather(here)
    return {place: standing for part in everywhere for place, standing in part.items()}


def _kernels() -> contextlib.AbstractContextManager[None]:
    """Within the block, use CPU kernels if the run's own kernels need a GPU, since the vectors are in main memory."""
    try:
        backend.select("sums", "cpu")
    except InvalidParameter:
        return backend.use("auto")
    return contextlib.nullcontext()


def choose_shape(compressor: Compressor, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the shape of the vectors for the search, for a model whose units have these `shapes`.

    It is the shape of the unit that contains the model's middle element when units are sorted by size. The shape is
    reduced to at most about 8000 elements, or to fewer if the compressor's law is about as good for these.
    """
    ordered = sorted((tuple(shape) for shape in shapes if count_elements(shape)), key=count_elements)
    if not ordered:
        return (1,)
    middle, before = sum(map(count_elements, ordered)) / 2, 0
    for shape in ordered:
        before += count_elements(shape)
        if before >= middle:
            break
    wanted = _estimate_delta(compressor, shape)
    for dimension in _DIMENSIONS:
        smaller = _shrink(shape, dimension, compressor.needs_matrix)
        if _estimate_delta(compressor, smaller) <= 1.1 * wanted:
            break
    return smaller


def _estimate_delta(compressor: Compressor, shape: Sequence[int]) -> float:
    """Return delta from the compressor's law for `shape`, or 1 / (1 + omega) with its omega; 0 if it has neither."""
    law = compressor.law(shape)
    if law.delta is not None:
        return law.delta
    return 0.0 if law.omega is None else 1 / (1 + law.omega)


def _shrink(shape: tuple[int, ...], dimension: int, is_matrix: bool) -> tuple[int, ...]:
    """Return a shape of at most about `dimension` elements: a vector's, or a matrix's of similar proportions."""
    count = count_elements(shape)
    if not is_matrix or len(shape) < 2:
        return (min(count, dimension),)
    rows, columns = shape[0], count // shape[0]
    if count > dimension:
        rows = max(1, min(dimension, round(rows * math.sqrt(dimension / count))))
        columns = max(1, dimension // rows)
    return (rows, columns)
