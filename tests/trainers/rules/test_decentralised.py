"""What goes together in decentralised training, as a config is resolved: nothing is started."""

from __future__ import annotations

from typing import Any

import pytest

import compressors
from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from trainers.options.algorithms import ALGORITHMS, Decentralised
from trainers.rules.resolve import resolve

NAMES = [name for name, cls in ALGORITHMS.items() if issubclass(cls, Decentralised)]
UNBIASED = "atomo,natural,natural_dithering,none,nuqsgd,qsgd,qsvd,svd"
SYMMETRIC = "ring,complete,chain,star,torus,hypercube,expander,margulis,social,random_regular,edges"
CYCLE = ";".join(f"{worker} {(worker + 1) % 8}" for worker in range(8))
COMBINE = {"order": "combine_then_adapt"}


def refusal(**changes: Any) -> str:
    with pytest.raises(UsageError) as error:
        resolve(compose_config(**changes))
    line = str(error.value)
    assert "\n" not in line and "valid" in line
    return line


@pytest.mark.parametrize("algorithm", NAMES)
def test_auto_becomes_gossip_and_the_topology_stays(algorithm: str) -> None:
    found = resolve(compose_config(algorithm=algorithm, exchange={"granularity": "bucket", "bucket_mib": 2.0}))
    kept = {"granularity": "bucket", "bucket_mib": 2.0, "overlap": False, "transport": "mpi"}
    assert found["exchange"] == {"name": "gossip", **kept}
    assert found["topology"]["name"] == "ring"


@pytest.mark.parametrize("algorithm", ["sgd", "local_sgd"])
def test_without_neighbours_there_is_no_topology(algorithm: str) -> None:
    torus = {"name": "torus", "rows": 3}
    assert resolve(compose_config(algorithm=algorithm, topology=torus))["topology"] == {"name": "none"}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"exchange": "allgather"},
            "algorithm=choco with exchange=allgather: parameters are mixed with those of neighbours; valid is "
            "exchange=gossip, or algorithm=sgd,local_sgd",
        ),
        ({"exchange": {"name": "parameter_server"}}, "algorithm=choco with exchange=parameter_server: parameters are"),
        (
            {"algorithm": "sgd", "exchange": "gossip"},
            "algorithm=sgd with exchange=gossip: all workers take the same step; valid is exchange=auto, or "
            "algorithm=dpsgd,choco,deep_squeeze,dcd,ecd,sgp",
        ),
        ({"algorithm": "local_sgd", "exchange": "gossip"}, "algorithm=local_sgd with exchange=gossip: all workers"),
        (
            {"topology": "none"},
            "topology=none: valid is one of ring, complete, chain, star, torus, hypercube, exponential,",
        ),
        (
            {"workers": 1},
            "workers=1 with algorithm=choco: a worker alone has no neighbours; valid is workers=2 or "
            "more, or algorithm=sgd,local_sgd",
        ),
        ({"clip": {"local_norm": 1.0}}, "algorithm=choco with clip.local_norm: workers send no gradients; valid is"),
        ({"batch_norm": "synchronised"}, "algorithm=choco with batch_norm=synchronised: the workers' models differ"),
        (
            {"compressor": "topk", "policy": {"accordion": {"option": "ratio", "relaxed": 0.1, "interval": 3}}},
            "algorithm=choco with policy.accordion: it uses the mean gradient, which no worker has; valid is",
        ),
        (
            {"compressor": "topk", "policy": {"lgreco": {"option": "ratio", "values": [0.1], "interval": 3}}},
            "algorithm=choco with policy.lgreco: all workers choose together, and each has neighbours only; valid is",
        ),
        (
            {"compressor": {"name": "topk", "mean": "senders"}},
            "compressor=topk, compressor.mean=senders with exchange=gossip: who has sent an element counts only",
        ),
        ({"optimizer": "onebit_adam"}, "algorithm=choco with optimizer=onebit_adam: it takes one step of all"),
        ({"optimizer": "dgc_sgd", "memory": "dgc"}, "algorithm=choco with optimizer=dgc_sgd: its momentum is that of"),
        (
            {"compressor": "topk", "memory": "residual"},
            "memory=residual with exchange=gossip: it keeps the unsent part of gradients, but parameters are sent; "
            "valid is memory=none, with algorithm=choco or deep_squeeze, which keep that themselves, or algorithm=sgd",
        ),
        ({"compressor": "topk", "memory": "ef21"}, "memory=ef21 with exchange=gossip: it keeps the unsent part"),
        (
            {"compressor": "sign"},
            "compressor=sign with exchange=gossip: it sends directions only, so how far parameters are from each other "
            "cannot be told; valid is compressor=sign_norm, or algorithm=sgd",
        ),
        ({"compressor": "signum"}, "compressor=signum with exchange=gossip: it sends directions only"),
        ({"compressor": "powersgd"}, "compressor=powersgd with exchange=gossip: its mean takes rounds of all workers"),
        ({"compressor": "gtopk"}, "compressor=gtopk with exchange=gossip: its mean takes rounds of all workers"),
        ({"compressor": "intsgd"}, "compressor=intsgd with exchange=gossip: all workers agree on a scale, and each"),
        (
            {"compressor": "acp_sgd"},
            "compressor=acp_sgd with exchange=gossip: all workers encode the next step by the same mean, and each has "
            "neighbours only; valid is algorithm=sgd, or a compressor whose payloads can be decoded alone",
        ),
        (
            {"compressor": {"name": "terngrad", "share_scale": True}},
            "compressor=terngrad with exchange=gossip: all workers agree on a scale, and each has neighbours only",
        ),
        (
            {"policy": {"patterns": [{"match": "w", "compressor": {"name": "powersgd"}}]}},
            "compressor=powersgd with exchange=gossip: its mean takes rounds",
        ),
        (
            {"compressor": "svd", "exchange": {"granularity": "model"}},
            "compressor=svd with exchange=gossip, exchange.granularity=model: it works on the matrix of a layer",
        ),
        (
            {"exchange": {"overlap": True}},
            "algorithm=choco, algorithm.order=adapt_then_combine with exchange.overlap=True: a gradient is computed at "
            "mixed parameters, so all messages must have arrived before; valid is exchange.overlap=false or "
            "algorithm.order=combine_then_adapt",
        ),
        (
            {"algorithm": "sgp", "exchange": {"name": "gossip", "overlap": True}},
            "algorithm=sgp with exchange.overlap=True: a gradient is computed at mixed parameters, so all messages "
            "must have arrived before; valid is exchange.overlap=false",
        ),
        (
            {"algorithm": {"name": "choco", **COMBINE}, "precision": "fp16"},
            "algorithm=choco, algorithm.order=combine_then_adapt with precision=fp16: messages leave before it is "
            "known whether all workers leave the step out; valid is precision=bf16 or fp32, or "
            "algorithm.order=adapt_then_combine",
        ),
        (
            {"algorithm": {"name": "choco", "consensus_stepsize": 0.0}},
            "algorithm.consensus_stepsize=0.0: valid is a number above 0.0 to 1.0 or tune",
        ),
        (
            {"algorithm": {"name": "deep_squeeze", "consensus_stepsize": 1.5}},
            "algorithm.consensus_stepsize=1.5: valid is a number above 0.0 to 1.0 or tune",
        ),
        (
            {"algorithm": {"name": "dpsgd", "consensus_stepsize": "tune"}},
            "algorithm.consensus_stepsize=tune: valid is a number above 0.0 to 1.0",
        ),
        (
            {"algorithm": {"name": "choco", "consensus_stepsize": float("nan")}},
            "algorithm.consensus_stepsize=nan: valid is a number above 0.0 to 1.0 or tune",
        ),
        (
            {"algorithm": "sgp", "compressor": "qsgd"},
            "compressor=qsgd with algorithm=sgp: push-sum needs uncompressed messages; valid is "
            "compressor=none",
        ),
    ],
)  # fmt: skip
def test_what_excludes_each_other_is_one_line(changes: dict[str, Any], line: str) -> None:
    assert line in refusal(**{"algorithm": "choco", **changes})


@pytest.mark.parametrize("compressor", ["topk", "sign_norm", "sign", "randomk", "fp16", "terngrad"])
def test_ecd_with_a_biased_compressor(compressor: str) -> None:
    options = {"name": compressor, "clip": 2.5} if compressor == "terngrad" else compressor
    assert refusal(algorithm="ecd", compressor=options) == (
        f"compressor={compressor} with algorithm=ecd: errors of extrapolations cancel out only where the compressor is "
        f"unbiased; valid is compressor={UNBIASED}"
    )


def test_ecd_with_an_exception_that_is_biased() -> None:
    patterns = {"patterns": [{"match": "weight", "compressor": {"name": "topk"}}]}
    assert refusal(algorithm="ecd", compressor="qsgd", policy=patterns).startswith("compressor=topk with algorithm=ecd")


@pytest.mark.parametrize("compressor", UNBIASED.split(","))
def test_ecd_works_with_what_its_line_names(compressor: str) -> None:
    resolve(compose_config(algorithm="ecd", compressor=compressor))


@pytest.mark.parametrize("algorithm", ["choco", "deep_squeeze", "dcd", "ecd"])
@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ({"name": "exponential"}, "topology=exponential"),
        ({"name": "edges", "links": CYCLE, "directed": True}, "topology=edges, topology.directed=true"),
    ],
)
def test_both_ways_is_how_neighbours_hear_of_each_other(algorithm: str, topology: dict[str, Any], words: str) -> None:
    assert refusal(algorithm=algorithm, topology=topology, workers=8) == (
        f"algorithm={algorithm} with {words}: neighbours must exchange messages in both directions; valid is "
        f"topology={SYMMETRIC}"
    )


def test_with_dpsgd_nobody_counts_more_than_others() -> None:
    topology = {"name": "edges", "links": f"{CYCLE};0 4", "directed": True}
    assert refusal(algorithm="dpsgd", topology=topology, workers=8) == (
        "algorithm=dpsgd with topology=edges, topology.directed=true: some workers have more weight than others, so "
        "the mean moves; valid is algorithm=sgp, or equal incoming and outgoing weights of every worker"
    )


@pytest.mark.parametrize(
    ("topology", "workers", "line"),
    [
        (
            "torus",
            7,
            "topology=torus with workers=7: a prime makes no grid; valid is workers=6 or 8, topology.rows=1 or",
        ),
        ({"name": "torus", "rows": 3}, 8, "topology.rows=3: valid is a divisor of workers=8: 1, 2, 4, 8"),
        ("hypercube", 6, "topology=hypercube with workers=6: valid is a power of two: 4 or 8"),
        ("margulis", 8, "topology=margulis with workers=8: valid is a square: 4 or 9"),
        ("expander", 8, "topology=expander with workers=8: valid is a prime: 7 or 11"),
        ("social", 16, "topology=social with workers=16: "),
        ({"name": "random_regular", "degree": 3}, 5, "topology.degree=3: valid is "),
        ({"name": "edges", "links": "0 1;2 3"}, 4, "worker 2 cannot be reached from worker 0; valid are"),
        ({"name": "edges", "links": "0 1 0.3;1 0 0.4"}, 2, "line 2: 1 0 0.4: valid is the weight that line 1 gives"),
        ({"name": "edges", "file": "no/links.txt"}, 2, "no/links.txt"),
    ],
    ids=str,
)
def test_a_topology_that_so_many_workers_cannot_have(topology: Any, workers: int, line: str) -> None:
    found = refusal(algorithm="choco", topology=topology, workers=workers)
    assert found.startswith("topology") and line in found, found


@pytest.mark.parametrize("algorithm", ["choco", "dcd", "ecd"])
def test_who_remembers_neighbours_keeps_them(algorithm: str) -> None:
    assert refusal(algorithm=algorithm, topology="one_peer_exponential", workers=8) == (
        f"algorithm={algorithm} with topology=one_peer_exponential: workers keep state of their neighbours, "
        f"which must be the same in all steps; valid is topology={SYMMETRIC}"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "dpsgd", "topology": "exponential"},
        {"algorithm": "dpsgd", "topology": "one_peer_exponential"},
        {"algorithm": "dpsgd", "topology": {"name": "edges", "links": CYCLE, "directed": True}},
        {"algorithm": "sgp", "topology": {"name": "edges", "links": f"{CYCLE};0 4", "directed": True}},
        {"algorithm": "dpsgd", "compressor": "topk"},
        {"algorithm": "sgp", "topology": "one_peer_exponential"},
        {"algorithm": "sgp", "topology": "ring", "policy": {"start_step": 3}},
        {"compressor": "sign_norm", "precision": "fp16"},
        {"compressor": "topk", "policy": {"warmup": "exponential"}},
        {"compressor": "redsync_threshold"},
        {"compressor": "sidco", "exchange": {"granularity": "model"}},
        {"compressor": {"name": "terngrad", "share_scale": False}},
        {"algorithm": {"name": "choco", **COMBINE}, "exchange": {"overlap": True}},
        {"algorithm": {"name": "deep_squeeze", **COMBINE}, "exchange": {"name": "gossip", "overlap": True}},
        {"algorithm": {"name": "choco", **COMBINE}, "precision": "bf16"},
        {"algorithm": "dcd", "exchange": {"overlap": True}, "precision": "fp16"},
        {"algorithm": {"name": "choco", "consensus_stepsize": "tune"}},
        {"algorithm": {"name": "choco", "consensus_stepsize": 1.0}},
        {"clip": {"norm": 1.0, "value": 0.5}},
        {"optimizer": "adam"},
        {"optimizer": "lars"},
        {"batch_norm": "local"},
        {"schedule": "plateau"},
        {"partition": {"scheme": "label"}},
        {"phases": [{"epoch": 2, "batch": 64}]},
    ],
    ids=str,
)
def test_what_goes_together_is_not_refused(changes: dict[str, Any]) -> None:
    resolve(compose_config(**{"algorithm": "choco", "workers": 8, **changes}))


@pytest.mark.parametrize("name", compressors.registry())
def test_every_compressor_works_with_choco_or_is_refused_for_its_kind(name: str) -> None:
    one = compressors.build(name)
    agrees = one.needs_movement or one.follows_mean or one.needs_agreement(compressors.Key(0, 0, 1, 0))
    works = not (one.scale_free or agrees or hasattr(one, "rounds"))
    if works:
        resolve(compose_config(algorithm="choco", compressor=name))
    else:
        others = {"optimizer": "dion", "memory": "residual"} if name == "dion" else {}
        assert refusal(algorithm="choco", compressor=name, **others).startswith(
            f"compressor={name} with exchange=gossip: "
        )
