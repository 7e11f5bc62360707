"""Rules on options that do not go together in decentralised training.

The tables of trainers/rules/compressors.py say which compressors and memories go with exchange=gossip.
"""

from __future__ import annotations

from trainers import topology
from trainers.config.run_config import RunConfig
from trainers.options.algorithms import ALGORITHMS, Decentralised
from trainers.options.optimizers import OF_MOMENTA
from trainers.options.topologies import TOPOLOGIES, Topology
from trainers.rules.compressors import list_compressors
from trainers.rules.rule import ACCORDION, LGRECO, Condition, Rule, has, has_other, read, refuse
from trainers.topology import validity

_NAMES = ",".join(name for name, cls in ALGORITHMS.items() if issubclass(cls, Decentralised))
_OTHERS = ",".join(name for name, cls in ALGORITHMS.items() if not issubclass(cls, Decentralised))
_TOPOLOGIES = {name: cls() for name, cls in TOPOLOGIES.items() if issubclass(cls, Topology)}
_FIXED = ",".join(name for name, options in _TOPOLOGIES.items() if options.symmetric and options.fixed)

_DECENTRALISED = Condition("a decentralised algorithm", lambda run: run.decentralised, "{algorithm=}")
_DIRECTED_FILE = Condition(
    "topology=edges, topology.directed=true", lambda run: bool(read(run, "topology.directed", False))
)
_OVERLAP = has("exchange.overlap", True)
_BOTH_WAYS = has("algorithm", "choco", "deep_squeeze", "dcd", "ecd")
_ONE_WAY = "neighbours must exchange messages in both directions"
_WAITS = "a gradient is computed at mixed parameters, so all messages must have arrived before"
_ORDER = "{algorithm=}, {algorithm.order=}"

UNTUNED = Rule(
    has("exchange.tune", True),
    _DECENTRALISED,
    "messages to neighbours have one setting only",
    "exchange=auto, or a centralised algorithm",
)

BEFORE_GOSSIP = (UNTUNED,)
"""Checked before exchange=auto becomes gossip, which has no such options."""

RULES = (
    Rule(
        Condition("another algorithm than a decentralised one", lambda run: not run.decentralised, "{algorithm=}"),
        has("exchange", "gossip"),
        "all workers take the same step",
        f"exchange=auto, or algorithm={_NAMES}",
    ),
    Rule(
        _DECENTRALISED,
        has_other("exchange", "gossip"),
        "parameters are mixed with those of neighbours",
        f"exchange=gossip, or algorithm={_OTHERS}",
    ),
    Rule(
        has("workers", 1),
        _DECENTRALISED,
        "a worker alone has no neighbours",
        f"workers=2 or more, or algorithm={_OTHERS}",
    ),
    Rule(
        _DECENTRALISED,
        Condition("clip.local_norm", lambda run: run.clip.local_norm is not None),
        "workers send no gradients",
        "clip.norm, here for each worker's gradient",
    ),
    Rule(
        _DECENTRALISED,
        has("batch_norm", "synchronised"),
        "the workers' models differ, so that samples would be normalised by statistics of other models",
        "batch_norm=averaged or local",
    ),
    Rule(_DECENTRALISED, ACCORDION, "it uses the mean gradient, which no worker has", "policy.accordion.option=null"),
    Rule(
        _DECENTRALISED, LGRECO, "all workers choose together, and each has neighbours only", "policy.lgreco.option=null"
    ),
    Rule(
        _DECENTRALISED,
        has("optimizer", *OF_MOMENTA),
        "it takes one step of all workers together",
        "optimizer=adam",
    ),
    Rule(
        _DECENTRALISED,
        has("optimizer", "dgc_sgd"),
        "its momentum is that of memory=dgc, which is one of gradients",
        "optimizer=sgd",
    ),
)

TOPOLOGY_RULES = (
    Rule(
        has("algorithm", "choco", "dcd", "ecd"),
        has("topology", "one_peer_exponential", "random_pairs"),
        "workers keep state of their neighbours, which must be the same in all steps",
        f"topology={_FIXED}",
    ),
    Rule(_BOTH_WAYS, _DIRECTED_FILE, _ONE_WAY, f"topology={_FIXED}"),
    Rule(_BOTH_WAYS, has("topology", "exponential", "one_peer_exponential"), _ONE_WAY, f"topology={_FIXED}"),
    Rule(
        has("algorithm", "dpsgd"),
        Condition(
            f"{_DIRECTED_FILE.words} and a matrix whose rows do not sum to 1",
            lambda run: _DIRECTED_FILE.test(run) and not topology.build(run.topology, run.workers).doubly_stochastic,
            _DIRECTED_FILE.words,
        ),
        "some workers have more weight than others, so the mean moves",
        "algorithm=sgp, or equal incoming and outgoing weights of every worker",
    ),
    Rule(
        has("algorithm.order", "combine_then_adapt", shown=_ORDER),
        has("precision", "fp16"),
        "messages leave before it is known whether all workers leave the step out",
        "precision=bf16 or fp32, or algorithm.order=adapt_then_combine",
    ),
    Rule(
        has("algorithm.order", "adapt_then_combine", shown=_ORDER),
        _OVERLAP,
        _WAITS,
        "exchange.overlap=false or algorithm.order=combine_then_adapt",
    ),
    Rule(has("algorithm", "sgp", "noloco"), _OVERLAP, _WAITS, "exchange.overlap=false"),
)
"""Of a decentralised run whose topology is valid."""

COMPRESSOR_RULES = (
    Rule(
        Condition("a biased compressor", lambda one: not one.compressor.unbiased, "{compressor=}"),
        has("algorithm", "ecd"),
        "errors of extrapolations cancel out only where the compressor is unbiased",
        f"compressor={list_compressors(lambda compressor: compressor.unbiased)}",
    ),
    Rule(
        has_other("compressor", "none"),
        has("algorithm", "sgp"),
        "push-sum needs uncompressed messages",
        "compressor=none",
    ),
)
"""Of each compressor that a run can come to use."""


def check(run: RunConfig) -> None:
    """Refuse a run whose algorithm, exchange and topology do not go together.

    Raises:
        UsageError: names the combination, the reason and what would work.
    """
    refuse(run, RULES)
    if run.decentralised:
        validity.check(run.topology, run.workers)
        refuse(run, TOPOLOGY_RULES)
