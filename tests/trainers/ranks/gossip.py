"""Decentralised algorithms over real messages: `mpirun -n W python -m tests.trainers.ranks.gossip NAME`."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch

import compressors
from compressors import Compressor, CorruptPayload, Key
from tests.trainers.ranks.algorithms import COMM, PLAIN, Run, close, everyone, same
from tests.trainers.ranks.exchange import main
from tests.trainers.ranks.sent_bytes import Sent
from trainers.algorithms.gossiping import Gossiping
from trainers.exchange.base import Traffic
from trainers.exchange.gossip import Gossip

LATE = "combine_then_adapt"
PLAIN_SGD = {**PLAIN, "weight_decay": 0.0}
TOPK = {"name": "topk", "ratio": 0.1}
ROUGH = {"name": "topk", "ratio": 0.02, "indices": "delta"}  # the length of its payloads depends on the data


def mixing(run: Run) -> torch.Tensor:
    """W, of a topology that is the same in every step."""
    return torch.tensor(run.algorithm.setup.exchange.mixing.get_matrix(1)).float()  # type: ignore[attr-defined]


def equal(one: torch.Tensor, other: torch.Tensor) -> None:
    """To 1e-6 of the norm."""
    error = float((one - other).norm() / other.norm())
    assert error < 1e-6, error


def nearly(one: torch.Tensor, other: torch.Tensor, tolerance: float) -> None:
    """All but a few elements are close: where the last bit of an input differs, it may be rounded to another level."""
    far = (one - other).abs() > tolerance * float(other.abs().max())
    assert float(far.float().mean()) < 2e-3, float((one - other).abs().max())


class Everyone:
    """All workers in one process, by the formulas of the papers: every worker has every other one's estimate.

    Args:
        run: of which the first parameters and the units are taken.
        spread: (workers, parameters) that all begin with.
    """

    def __init__(self, run: Run, compressor: dict[str, Any] | str, spread: torch.Tensor) -> None:
        given = {"name": compressor} if isinstance(compressor, str) else dict(compressor)
        self.compressor: Compressor = compressors.build(given.pop("name"), **given)
        self.units, self.w, self.x = run.algorithm.setup.units, mixing(run), spread.clone()
        self.h = torch.zeros_like(spread)  # estimates, or errors
        self.h1 = spread.clone()  # estimates that begin with the parameters

    def q(self, values: torch.Tensor, step: int) -> torch.Tensor:
        """Q of every row, unit by unit."""
        found = torch.zeros_like(values)
        for worker, row in enumerate(values):
            for unit in self.units:
                shape, place = unit.gradient.shape, unit.gradient.storage_offset()
                piece = slice(place, place + unit.gradient.numel())
                key = Key(0, worker, step, unit.index)
                payload = self.compressor.compress(row[piece].reshape(shape), key)
                found[worker, piece] = self.compressor.decompress(payload, row[piece].reshape(shape), key).reshape(-1)
        return found

    def step(self, algorithm: dict[str, Any], t: int, moved: torch.Tensor) -> None:
        """One step of all workers; `moved` is what the optimizer has added to the parameters of each."""
        gamma, late = algorithm.get("consensus_stepsize", 1.0), algorithm.get("order") == LATE
        identity = torch.eye(len(self.w))
        x = self.x if late else self.x + moved
        name = algorithm["name"]
        if name == "dcd":
            z = self.w @ self.x + moved - self.x
            self.x = self.x + self.q(z, t)
            return
        if name == "ecd":
            after = self.w @ self.h1 + moved
            z = (1 - t / 2) * self.x + t / 2 * after
            self.h1 = (1 - 2 / t) * self.h1 + 2 / t * self.q(z, t)
            self.x = after
            return
        if late and t == 1:
            self.x = x + moved
            return
        if name == "dpsgd":
            mixed = gamma * (self.w - identity) @ self.q(x, t)
        elif name == "choco":
            self.h = self.h + self.q(x - self.h, t)
            mixed = gamma * (self.w - identity) @ self.h
        else:
            v = x + self.h
            c = self.q(v, t)
            self.h = v - c
            mixed = gamma * (self.w - identity) @ c
        self.x = x + mixed + (moved if late else 0)


def algorithms(gamma: float) -> Iterator[dict[str, Any]]:
    for name in ("dpsgd", "choco", "deep_squeeze"):
        for order in ("adapt_then_combine", LATE):
            yield {"name": name, "order": order, "consensus_stepsize": gamma}
    yield {"name": "dcd"}
    yield {"name": "ecd"}


def formulas() -> None:
    """Every algorithm against its paper's formulas, with compressors of all kinds; and what conserves the mean."""
    for algorithm in algorithms(0.4):
        conserves = algorithm["name"] in ("dpsgd", "choco", "deep_squeeze")
        late = algorithm.get("order") == LATE
        for topology, compressor in (("ring", TOPK), ("star", "qsgd"), ("complete", ROUGH), ("ring", "none")):
            if algorithm["name"] == "ecd" and compressor in (TOPK, ROUGH):
                continue
            run = Run(algorithm=algorithm, topology=topology, compressor=compressor, optimizer=PLAIN_SGD)
            reference = Everyone(run, compressor, everyone(run.values))
            for step in range(1, 7):
                lr = run.begin(step)
                moved = -lr * everyone(run.gradients)
                before = everyone(run.values).double().mean(0)
                run.algorithm.finish()
                reference.step(algorithm, step, moved)
                after = everyone(run.values)
                nearly(after, reference.x, 2e-5 if algorithm["name"] == "ecd" else 2e-6)
                reference.x = after
                if conserves or (algorithm["name"] == "dcd" and compressor == "none"):
                    expected = before + moved.double().mean(0)
                    assert float((after.double().mean(0) - expected).abs().max()) < 1e-6, (algorithm, topology)
            assert (float((after - after.mean(0)).norm()) > 1e-4) or (topology == "complete" and not late)


def equalities() -> None:
    """Without compression and with gamma 1 all are D-PSGD, which on the complete graph is centralised SGD; with
    momentum, weight decay and a last batch that is smaller."""
    heavy = {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "decay_1d": False}
    for topology, optimizer in (("complete", heavy), ("ring", PLAIN_SGD)):
        ends = {}
        for algorithm in algorithms(1.0):
            run = Run(algorithm=algorithm, topology=topology, optimizer=optimizer)
            run.steps(1, 10)
            ends[algorithm["name"], algorithm.get("order", LATE) == LATE] = everyone(run.values)
        for (_, late), values in ends.items():
            equal(values, ends["dpsgd", late])
        if topology == "complete":
            central = Run(optimizer=optimizer)
            central.steps(1, 10)
            for name in ("dpsgd", "choco", "deep_squeeze"):
                equal(ends[name, False][COMM.rank], central.values)


def contraction() -> None:
    """Without gradients, workers come closer to their mean by the factor that the spectral gap says, or at least so."""
    for topology in ("ring", "star", "complete", "one_peer_exponential"):
        for name in ("dpsgd", "choco", "sgp"):
            if name == "choco" and topology == "one_peer_exponential":
                continue
            extra = {} if name == "sgp" else {"consensus_stepsize": 1.0}
            run = Run(algorithm={"name": name, **extra}, topology=topology, optimizer={**PLAIN_SGD, "lr": 1e-30})
            torch.manual_seed(COMM.rank)
            run.values.copy_(torch.randn_like(run.values))
            if name == "sgp":
                run.algorithm.pushed.values.copy_(run.values)  # type: ignore[attr-defined]
            mean, distances = everyone(run.values).double().mean(0), []
            for step in range(1, 9):
                run.begin(step)
                run.algorithm.finish()
                distances.append(float((everyone(run.values).double() - mean).norm()))
            gossip = run.algorithm.setup.exchange
            assert isinstance(gossip, Gossip)
            rho = 1.0 - gossip.mixing.gap
            if rho < 1e-9:
                assert distances[-1] < 1e-5 * len(run.values) ** 0.5, (topology, name)
            else:
                assert abs((distances[-1] / distances[3]) ** 0.25 - rho) < 0.02, (topology, name, distances, rho)


def lasting() -> None:
    """Rounding moves the mean of all workers by little in many steps, too: of sums of parameters it would be ten times
    as much by then, and grow faster than the steps."""
    run = Run(algorithm="choco", compressor="qsgd", optimizer={**PLAIN_SGD, "lr": 1e-30})
    torch.manual_seed(COMM.rank)
    run.values.copy_(torch.randn_like(run.values))
    mean = everyone(run.values).double().mean(0)
    for step in range(1, 201):
        run.algorithm.begin(step, 1, 1e-30, measure=False)
        run.gradients.zero_()
        run.algorithm.finish()
    spread = everyone(run.values).double()
    assert float((spread - mean).norm()) < 1e-3 * float(mean.norm()), "it has converged"
    assert float((spread.mean(0) - mean).norm()) < 5e-6 * float(mean.norm())


def push_sum() -> None:
    """On a directed graph whose rows do not sum to 1, workers come to the mean nevertheless; weights travel, too."""
    run = Run(algorithm="sgp", topology="exponential", optimizer={**PLAIN_SGD, "lr": 1e-30})
    gossip = run.algorithm.setup.exchange
    assert isinstance(gossip, Gossip)
    uneven = gossip.mixing.matrices[0].copy()
    uneven[:, 0] = 0.0
    uneven[0, 0], uneven[1 % COMM.size, 0] = 0.25, 0.75
    changed = dataclasses.replace(gossip.mixing, matrices=(uneven,))
    assert not changed.doubly_stochastic
    gossip.mixing = gossip.lane.mixing = changed
    torch.manual_seed(COMM.rank)
    run.algorithm.pushed.values.copy_(torch.randn_like(run.values))  # type: ignore[attr-defined]
    run.values.copy_(run.algorithm.pushed.values)  # type: ignore[attr-defined]
    mean = everyone(run.values).mean(0)
    for step in range(1, 25):
        run.begin(step)
        run.algorithm.finish()
    weights = COMM.allgather(float(run.algorithm.weight))  # type: ignore[attr-defined]
    assert abs(sum(weights) - COMM.size) < 1e-12 and max(weights) - min(weights) > 0.1
    close(run.values, mean, 1e-4)


def traffic() -> None:
    """What is counted is what Open MPI counts, message by message."""
    for topology in ("ring", "star", "exponential", "one_peer_exponential"):
        for name, compressor in (("dpsgd", "none"), ("dpsgd", ROUGH), ("sgp", "none")):
            run = Run(algorithm=name, topology=topology, compressor=compressor)
            for step in (1, 2):
                run.begin(step)
                with Sent() as sent:
                    counted = run.algorithm.finish()
                sent.believed += counted.sent_bytes
                sent.require_equal((topology, name, compressor, step))
                gossip = run.algorithm.setup.exchange
                assert isinstance(gossip, Gossip)
                targets = gossip.mixing.find_targets(COMM.rank, step)
                assert counted.sent_bytes == len(targets) * counted.payload_bytes


def wrong_lengths() -> None:
    """A message that is too short is named by the workers that it comes to, and by nobody else."""
    run = Run(algorithm="dpsgd", topology="ring", compressor="none")
    gossip = run.algorithm.setup.exchange
    assert isinstance(gossip, Gossip)
    leave = gossip.lane.send

    def shortened() -> None:
        gossip.lane.used -= 64 if COMM.rank == 0 else 0
        leave()

    gossip.lane.send = shortened  # type: ignore[method-assign]
    run.begin(1)
    said = ""
    try:
        run.algorithm.finish()
    except CorruptPayload as error:
        said = str(error)
    size = 4 * len(run.values)
    wanted = f"worker 0's message has {size - 64} bytes, and should have {size}"
    assert said == (wanted if 0 in gossip.mixing.find_sources(COMM.rank, 1) else ""), (COMM.rank, said)


def noloco() -> None:
    """The rule of the paper in plain torch, where a worker gets both means."""
    for consensus in (None, 0.2):
        algorithm = {"name": "noloco", "steps": 3, "outer_lr": 0.7, "outer_momentum": 0.5, "consensus": consensus}
        run = Run(algorithm=algorithm, topology="random_pairs", optimizer=PLAIN_SGD)
        gossip = run.algorithm.setup.exchange
        assert isinstance(gossip, Gossip)
        c = 0.7 if consensus is None else consensus
        slow, momentum = everyone(run.values), torch.zeros_like(everyone(run.values))
        pairs = set()
        for step in range(1, 13):
            lr = run.begin(step)
            x = everyone(run.values - lr * run.gradients)
            traffic = run.algorithm.finish()
            assert (traffic.sent_bytes == 4 * len(run.values)) == (step % 3 == 0), (step, traffic)
            if step % 3 == 0:
                w = torch.tensor(gossip.mixing.get_matrix(step // 3)).float()
                pairs.add(tuple(w.flatten().tolist()))
                momentum = 0.5 * momentum + 0.7 * w @ (x - slow) + c * (w @ slow - slow)
                slow = slow + momentum
                x = slow
            equal(everyone(run.values), x)
        assert len(pairs) > 1 and float((x - x.mean(0)).norm()) > 1e-4


GOING_ON: list[dict[str, Any]] = [
    {"algorithm": {"name": "choco", "order": LATE}, "compressor": TOPK},
    {"algorithm": {"name": "choco"}, "compressor": "qsgd", "optimizer": "adam"},
    {"algorithm": {"name": "deep_squeeze"}, "compressor": ROUGH},
    {"algorithm": {"name": "dpsgd", "order": LATE}, "topology": "one_peer_exponential"},
    {"algorithm": {"name": "dcd"}, "compressor": "qsgd", "exchange": {"name": "gossip", "overlap": True}},
    {"algorithm": {"name": "ecd"}, "compressor": "qsgd"},
    {"algorithm": {"name": "sgp"}, "topology": "exponential"},
    {"algorithm": {"name": "noloco", "steps": 3}, "topology": "random_pairs", "compressor": ROUGH},
    {"algorithm": {"name": "choco"}, "compressor": TOPK, "policy": {"start_step": 5, "dense_1d": True}},
]


def going_on() -> None:
    """A copy that is given the state goes on to the bit; whatever else is given is refused, and changes nothing."""
    for changes in GOING_ON:
        first, saved = Run(**changes), {}
        counted: list[Traffic] = []
        for step in range(1, 14):
            counted += first.steps(step, step)
            if step in (1, 4, 9):
                saved[step] = copy.deepcopy((first.values, first.algorithm.state_dict()))
        for stop, (values, state) in saved.items():
            second = Run(**changes)
            second.values.copy_(values)
            second.algorithm.load_state_dict(state)
            assert second.steps(stop + 1, 13) == counted[stop:], (changes, stop)
            assert torch.equal(second.values, first.values), (changes, stop)
            assert same(second.algorithm.state_dict(), first.algorithm.state_dict()), (changes, stop)
    state = first.algorithm.state_dict()
    for wrong in ({}, None, {**state, "kept": {}}, {**state, "kept": {**state["kept"], "estimate": torch.zeros(3)}}):
        try:
            first.algorithm.load_state_dict(wrong)  # type: ignore[arg-type]
        except ValueError:
            assert same(first.algorithm.state_dict(), state)
            continue
        raise AssertionError(f"{wrong!r} was taken")


def ways() -> None:
    """Neither overlap nor what a payload covers, where that makes no difference, changes a bit."""
    for algorithm in ({"name": "choco", "order": LATE}, {"name": "dcd"}, {"name": "ecd"}):
        for compressor in ("none", "fp16"):
            if algorithm["name"] == "ecd" and compressor == "fp16":
                continue
            ends = []
            for granularity, overlap in (("layer", False), ("layer", True), ("bucket", False), ("model", True)):
                way = {"name": "gossip", "granularity": granularity, "bucket_mib": 0.005, "overlap": overlap}
                run = Run(algorithm=algorithm, compressor=compressor, exchange=way)
                run.steps(1, 6)
                run.algorithm.state_dict()
                ends.append(run.values.clone())
                run.algorithm.setup.exchange.close()
            assert all(torch.equal(end, ends[0]) for end in ends), (algorithm, compressor)


def measured() -> None:
    """Compression errors are those of what is compressed; nothing is lost without compression."""
    for compressor, lost in (("none", 0.0), (TOPK, math.sqrt(0.9))):
        run = Run(algorithm={"name": "choco"}, compressor=compressor)
        error = run.steps(1, 1)[0].compression_error
        assert error is not None and 0 <= error <= lost + 1e-9 and (error > 0) == (lost > 0)
        assert run.steps(2, 2)[0].compression_error is None
        assert isinstance(run.algorithm, Gossiping)


def of_four() -> None:
    for test in (formulas, equalities, contraction, lasting, noloco, going_on, ways, measured, push_sum, wrong_lengths):
        test()


if __name__ == "__main__":
    main(globals())
