"""What goes together in decentralised training: rules of whole runs.

Which compressors and memories go with exchange=gossip is in the tables of trainers/rules/compressors.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import compressors
from compressors import Compressor
from gradsweep.errors import UsageError
from trainers.config.groups import name_of
from trainers.config.run_config import RunConfig
from trainers.options.algorithms import ALGORITHMS, DCD, DPSGD, ECD, SGP, Choco, Decentralised, DeepSqueeze
from trainers.options.exchanges import Gossip
from trainers.options.optimizers import DGCSGD, OneBitAdam
from trainers.options.topologies import TOPOLOGIES, Edges, Topology
from trainers.rules.servers import Rule
from trainers.topology import validity

_NAMES = [name for name, cls in ALGORITHMS.items() if issubclass(cls, Decentralised)]
_OTHERS = [name for name, cls in ALGORITHMS.items() if not issubclass(cls, Decentralised)]

RULES: tuple[Rule, ...] = (
    (
        "clip.local_norm",
        lambda run: run.clip.local_norm is not None,
        "gradients are not exchanged; valid is clip.norm, of every worker's own gradient",
    ),
    (
        "batch_norm=synchronised",
        lambda run: run.batch_norm == "synchronised",
        "the workers' models differ, so that samples would be normalised by what other models make of others; valid is "
        "batch_norm=averaged or local",
    ),
    (
        "policy.accordion",
        lambda run: run.policy.accordion.option is not None,
        "it goes by the mean gradient, which nobody has; valid is policy.accordion.option=null",
    ),
    (
        "optimizer=onebit_adam",
        lambda run: isinstance(run.optimizer, OneBitAdam),
        "it steps along one momentum of all workers; valid is optimizer=adam",
    ),
    (
        "optimizer=dgc_sgd",
        lambda run: isinstance(run.optimizer, DGCSGD),
        "its momentum is that of memory=dgc, which is one of gradients; valid is optimizer=sgd",
    ),
)
"""With a decentralised algorithm."""

SYMMETRIC = (Choco, DeepSqueeze, DCD, ECD)
"""Algorithms for graphs without directions."""
FIXED = (Choco, DCD, ECD)
"""Algorithms in which neighbours remember each other from step to step."""

_ALONE = "a worker has nobody to exchange parameters with; valid is workers=2 or more, or algorithm="
_EVERYBODY = (
    f"parameters are mixed with those of neighbours; valid is exchange=gossip, or algorithm={','.join(_OTHERS)}"
)
_NOBODY = f"all workers take the same step; valid is exchange=auto, or algorithm={','.join(_NAMES)}"
_NOT_TORCH = "neighbours exchange by MPI; valid is exchange.transport=mpi"
_ONE_WAY = "neighbours must hear of each other both ways; valid is topology="
_DIRECTED = "topology.directed=true"
_UNBALANCED = (
    "some workers count more than others, so that the mean moves; valid is algorithm=sgp, or as much coming to every "
    "worker as leaves it"
)
_REMEMBERS = "neighbours remember each other from step to step, so that they must stay the same; valid is topology="
_BIASED = "errors of extrapolations cancel out only where the compressor is unbiased; valid is compressor="
_LOSSY = "push-sum's weights are those of what was sent as it is; valid is compressor=none"
_WAITS = (
    "the next gradient is that of mixed parameters, so that nothing is sent while it is computed; valid is "
    "exchange.overlap=false"
)
_SENT_EARLY = (
    "messages leave before it is known whether all workers leave the step out; valid is precision=bf16 or fp32, or "
    "algorithm.order=adapt_then_combine"
)


def _listed(names: Iterable[str]) -> str:
    return ",".join(names)


def _topologies(test: Callable[[type[Topology]], bool]) -> str:
    found: dict[str, type] = {name: cls for name, cls in TOPOLOGIES.items() if issubclass(cls, Topology)}
    return _listed(name for name, cls in found.items() if test(cls))


def _algorithms(classes: tuple[type, ...]) -> str:
    return ", ".join(name for name, cls in ALGORITHMS.items() if cls in classes)


@functools.cache  # a sweep may ask for thousands of points
def _unbiased() -> str:
    return _listed(name for name in compressors.registry() if compressors.build(name).unbiased)


def lines() -> list[str]:
    """The rules in words, for docs/reference/compatibility.md."""
    every, directed = "a decentralised algorithm", "a directed topology (exponential, one_peer_exponential, edges)"
    return [
        f"{every} ({', '.join(_NAMES)}) with another exchange than gossip: {_EVERYBODY}",
        f"exchange=gossip with another algorithm: {_NOBODY}",
        f"{every} with exchange.transport=torch: {_NOT_TORCH}",
        f"{every} with workers=1: {_ALONE}{_listed(_OTHERS)}",
        f"{every} with topology=none",
        *validity.LINES,
        *(f"{every} with {words}: {why}" for words, _, why in RULES),
        f"exchange.overlap=true with {every} but dcd, ecd and those with algorithm.order=combine_then_adapt: {_WAITS}",
        f"algorithm.order=combine_then_adapt with precision=fp16: {_SENT_EARLY}",
        f"algorithm={_algorithms(SYMMETRIC)} with {directed}: {_ONE_WAY}{_symmetric(fixed=False)}",
        f"algorithm={_algorithms(FIXED)} with topology=one_peer_exponential: {_REMEMBERS}{_symmetric(fixed=True)}",
        f"algorithm=dpsgd with {_DIRECTED} and a matrix whose rows do not sum to 1: {_UNBALANCED}",
        f"algorithm=ecd with a biased compressor: {_BIASED}{_unbiased()}",
        f"algorithm=sgp with another compressor than none: {_LOSSY}",
    ]


def _symmetric(*, fixed: bool) -> str:
    """Topologies with default options that are symmetric and, where that is asked for, the same in every step."""
    return _topologies(lambda one: one().symmetric and (one.fixed or not fixed))


def check(run: RunConfig) -> None:
    """Refuse what does not go together.

    Raises:
        UsageError: names the combination, the reason and what would work.
    """
    given = f"algorithm={name_of(run.algorithm)}"
    gossips = isinstance(run.exchange, Gossip)
    if not run.decentralised:
        if gossips:
            raise UsageError(f"{given} with exchange=gossip: {_NOBODY}")
        return
    if not gossips:
        raise UsageError(f"{given} with exchange={name_of(run.exchange)}: {_EVERYBODY}")
    if run.workers == 1:
        raise UsageError(f"workers=1 with {given}: {_ALONE}{_listed(_OTHERS)}")
    for words, forbidden, why in RULES:
        if forbidden(run):
            raise UsageError(f"{given} with {words}: {why}")
    _check_topology(run, given)
    for compressor in run.policy.possible(run.compressor):
        _check_compressor(run, compressor, given)
    _check_order(run, given)


def check_transport(run: RunConfig) -> None:
    """Refuse what `exchange=auto` was told about torch.distributed, before it becomes `gossip`, which has MPI only.

    Raises:
        UsageError: names the combination and what would work.
    """
    if run.exchange.transport != "mpi":
        given = f"exchange.transport={run.exchange.transport}"
        raise UsageError(f"{given} with algorithm={name_of(run.algorithm)}: {_NOT_TORCH}")


def _check_topology(run: RunConfig, given: str) -> None:
    topology = run.topology
    name = f"topology={name_of(topology)}"
    validity.check(topology, run.workers)
    if isinstance(run.algorithm, FIXED) and not topology.fixed:
        raise UsageError(f"{given} with {name}: {_REMEMBERS}{_symmetric(fixed=True)}")
    if isinstance(run.algorithm, SYMMETRIC) and not topology.symmetric:
        stated = f"{name}, {_DIRECTED}" if isinstance(topology, Edges) else name
        raise UsageError(f"{given} with {stated}: {_ONE_WAY}{_symmetric(fixed=False)}")
    if isinstance(run.algorithm, DPSGD) and getattr(topology, "directed", False):
        from trainers.topology import build  # numpy and graphs: only here it takes a matrix to tell

        if not build(topology, run.workers).doubly_stochastic:
            raise UsageError(f"{given} with {name}, {_DIRECTED}: {_UNBALANCED}")


def _check_compressor(run: RunConfig, compressor: Compressor, given: str) -> None:
    if isinstance(run.algorithm, ECD) and not compressor.unbiased:
        raise UsageError(f"compressor={compressor.name} with {given}: {_BIASED}{_unbiased()}")
    if isinstance(run.algorithm, SGP) and not compressor.lossless:
        raise UsageError(f"compressor={compressor.name} with {given}: {_LOSSY}")


def _check_order(run: RunConfig, given: str) -> None:
    order = getattr(run.algorithm, "order", None)
    if order == "combine_then_adapt" and run.precision == "fp16":
        raise UsageError(f"{given}, algorithm.order={order} with precision=fp16: {_SENT_EARLY}")
    if not run.exchange.overlap:
        return
    if order != "combine_then_adapt" and not isinstance(run.algorithm, (DCD, ECD)):
        stated = "" if order is None else f", algorithm.order={order}"
        other = "" if order is None else " or algorithm.order=combine_then_adapt"
        raise UsageError(f"{given}{stated} with exchange.overlap=True: {_WAITS}{other}")
