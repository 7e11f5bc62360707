"""What tests of exchanges with owners and nodes run: `mpirun -n W python -m tests.trainers.ranks.unit_owners NAME`."""

from __future__ import annotations

import dataclasses
import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

import compressors
from compressors import Compressor, Key, memories
from compressors.memories.base import Memory
from compressors.policy.policy import Policy, Selector
from tests.trainers.arrays import random_arrays
from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import SHAPES, main, tensor
from tests.trainers.ranks.memories import BODY, CHANGING, epoch_of, local_gradient, new_units, rate
from tests.trainers.ranks.sent_bytes import Sent
from trainers.config import groups
from trainers.config import run_config as options
from trainers.data.batches import Shard
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange import base as exchange
from trainers.exchange.build import build_exchange
from trainers.gradients.flat import Flat, Unit
from trainers.lanes.second_phase import SecondPhase
from trainers.lanes.server import backup as backup_lane
from trainers.lanes.sharding import assign_owners
from trainers.mpi import staging, stopping
from trainers.recording import recorder
from trainers.replica.replica import Replica, Shares
from trainers.rules import compressors as compatibility
from trainers.training.loop import train

COMM = MPI.COMM_WORLD

EXCHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "sharded": ("sharded", {}),
    "sharded, second dense": ("sharded", {"second": "none"}),
    "nodes of one": ("hierarchical", {"workers_per_node": 1}),
    "nodes of two": ("hierarchical", {"workers_per_node": 2}),
    "one node": ("hierarchical", {}),
    "server": ("parameter_server", {}),
    "server, compressed": ("parameter_server", {"answer": "compressed"}),
}


def build(
    kind: str,
    compressor: Compressor,
    units: list[Unit],
    kept: Memory | None = None,
    policy: dict[str, Any] | None = None,
    **given: Any,
) -> exchange.Exchange:
    """An exchange of EXCHANGES; what it has of options is overruled by `given`."""
    name, values = EXCHANGES[kind]
    config = groups.GROUPS["exchange"][name](**{**values, **given})
    described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
    selector = Selector(Policy(**(policy or {})), compressor, described, COMM.size)
    return build_exchange(config, COMM, units, selector, kept or memories.build("none"), 5, Stopwatch())


def allowed(kind: str, compressor: Compressor, kept: Memory) -> bool:
    name, values = EXCHANGES[kind]
    one = compatibility.Combination(compressor, groups.GROUPS["exchange"][name](**values), kept)
    return not any(rule.is_broken(one) for rule in (*compatibility.RULES, *compatibility.MEMORY_RULES))


def require_same_bits(units: list[Unit], what: object) -> None:
    mine = np.concatenate([unit.gradient.numpy().ravel() for unit in units])
    everyone = np.empty((COMM.size, mine.size), dtype=np.float32)
    COMM.Allgather(mine, everyone)
    assert (everyone.view(np.int32) == everyone[0].view(np.int32)).all(), what


# The mean


def gradients() -> None:
    """The exchanged gradient of each global batch against a single process that sees all of it."""
    arrays = random_arrays(2 * 48 + 2)  # the last batch has 2 samples: some worker has fewer, or none
    for granularity in ("layer", "bucket", "model"):
        for kind in EXCHANGES:
            config = options.parse(compose_config(model={"width": 33}, workers=COMM.size))
            replica, watch = Replica(config, arrays.shape, 10, COMM), Stopwatch()
            units = units_of(replica.flat, kind, granularity)
            exchanger = build(kind, compressors.build("none"), units, granularity=granularity, bucket_mib=0.01)
            shard, alone = (Shard(arrays, 48, 3, rank, size) for rank, size in ((COMM.rank, COMM.size), (0, 1)))
            for step, (batch, whole) in enumerate(zip(shard.read_epoch(1), alone.read_epoch(1), strict=True), 1):
                replica.compute_gradient(batch, watch)
                exchanger.mean(step)
                require_same_bits(units, (kind, granularity))
                mine = replica.flat.gradients.clone()
                replica.comm = MPI.COMM_SELF
                replica.compute_gradient(whole, watch)
                replica.comm = COMM
                error = float((mine - replica.flat.gradients).abs().max() / replica.flat.gradients.abs().max())
                assert error < 1e-6, (granularity, kind, step, error)


def units_of(flat: Flat, kind: str, granularity: str) -> list[Unit]:
    name, values = EXCHANGES[kind]
    units = flat.cut_units(granularity, 0.01, COMM.size if name == "sharded" else 1)
    if granularity == "model":
        assert len(units) == (COMM.size if name == "sharded" else 1)
    return units


def every_compressor(*kinds: str) -> None:
    """All that an exchange allows: the same bits on all ranks, and the mean that one process computes."""
    for kind in kinds or EXCHANGES:
        is_whole = kind in ("sharded", "nodes of two", "server, compressed")
        for name in compressors.registry() if is_whole else ("intsgd", "topk"):
            compressor = compressors.build(name)
            if not allowed(kind, compressor, memories.build("none")):
                continue
            units = [Unit(i, str(i), tensor(COMM.rank + 10 * i), torch.zeros(30, 41)) for i in range(3)]
            exchanger = build(kind, compressor, units)
            for step in (1, 2):
                for unit in units:
                    unit.gradient.copy_(tensor(COMM.rank + 10 * unit.index))
                exchanger.mean(step)
                require_same_bits(units, (kind, name, step))
                if step > 1 or isinstance(compressor, compressors.base.Cooperative):
                    continue
                for unit in units:
                    expected = in_one_process(kind, name, unit.index)
                    error = float((unit.gradient - expected).abs().max() / expected.abs().max().clamp_min(1e-6))
                    assert error < (0.01 if "16" in name else 2e-5), (kind, name, unit.index, error)


def in_one_process(kind: str, name: str, unit: int) -> torch.Tensor:
    """What the workers should end with after their first step, from all their tensors."""
    inputs = [tensor(rank + 10 * unit) for rank in range(COMM.size)]
    exchange_name, given = EXCHANGES[kind]
    if exchange_name == "hierarchical":
        size = given.get("workers_per_node", COMM.size)
        nodes = [inputs[first : first + size] for first in range(0, COMM.size, size)]
        inputs = [torch.stack(node).sum(0) * (len(nodes) / COMM.size) for node in nodes]
    members = [compressors.build(name) for _ in inputs]
    keys = [Key(5, rank, 1, unit) for rank in range(len(inputs))]
    for member in members:
        member.join(len(inputs))
    if members[0].needs_agreement(keys[0]):
        statistics = [member.statistics(x, key) for member, x, key in zip(members, inputs, keys, strict=True)]
        for member, key in zip(members, keys, strict=True):
            member.agree(key, torch.stack(statistics).amax(0))
    mean = torch.zeros(30, 41)
    for member, x, key in zip(members, inputs, keys, strict=True):
        member.decompress_add(member.compress(x, key), mean, key, 1 / len(inputs))
    members[0].finish(mean, keys[0], len(inputs))
    if kind in ("sharded", "server, compressed"):
        owner = assign_owners([30 * 41] * 3, COMM.size)[unit] if kind == "sharded" else 0
        second = compressors.build("sign" if name == "signum" else name)
        second.join(1)
        key = Key(5, owner, 1, 3 + unit)
        mean = second.decompress(second.compress(mean, key), mean, key)
    return mean


# Bytes


def traffic(*kinds: str) -> None:
    """In two steps of every exchange MPI has sent the bytes that the ranks believe to have sent.

    That making the communicators of nodes and leaders costs messages, too, is left out.
    """
    for kind in kinds or EXCHANGES:
        for name in ("none", "fp16", "qsgd", "thresholdv", "terngrad", "sign", "intsgd", "powersgd", "acp_sgd"):
            compressor = compressors.build(name, **({"share_scale": True} if name == "terngrad" else {}))
            kept = memories.build("none" if compressor.scale_free else "residual")
            if not allowed(kind, compressor, kept):
                continue
            units = [Unit(i, str(i), torch.zeros(shape), torch.zeros(shape)) for i, shape in enumerate(SHAPES)]
            exchanger = build(kind, compressor, units, kept, {"dense_1d": True} if name == "qsgd" else {})
            with Sent() as sent:
                for step in (1, 2):
                    for unit in units:
                        unit.gradient.copy_(local_gradient(COMM.rank, step, unit.index, SHAPES[unit.index]))
                    sent.believed += exchanger.mean(step).sent_bytes
            sent.require_equal((kind, name))


def counted_by_hand() -> None:
    """Two phases send 2 (W - 1) / W messages, whatever W; a server W - 1 answers; a node a gradient each way."""
    workers, elements = COMM.size, 1200

    def step(kind: str, name: str, **given: Any) -> exchange.Traffic:
        units = [Unit(i, str(i), torch.ones(elements), torch.zeros(elements)) for i in range(workers)]
        exchanger = build(kind, compressors.build(name), units, **given)
        found = exchanger.mean(1)
        COMM.Barrier()  # what a worker that comes late is still to be sent is the exchange's
        return found

    dense = 4 * elements * workers
    found = step("sharded", "none")
    assert found.payload_bytes == dense and found.sent_bytes == 2 * (workers - 1) / workers * dense, found
    found = step("sharded", "fp16")
    assert found.payload_bytes == dense / 2 and found.sent_bytes == (workers - 1) / workers * dense, found
    found = step("sharded, second dense", "fp16")
    assert found.sent_bytes == (workers - 1) / workers * (dense / 2 + dense), found
    # all elements are above the threshold; sizes of 4 bytes a unit travel, too
    found, shape = step("sharded", "thresholdv"), torch.ones(elements)
    one = compressors.build("thresholdv")
    length = one.compress(shape, Key(5, 0, 1, 0)).numel()
    size = -(-length // 4) * 4 + 4
    assert found.payload_bytes == workers * size and found.sent_bytes == 2 * (workers - 1) * size, (found, size)
    is_server = COMM.rank == 0
    found = step("server", "fp16")
    assert found.payload_bytes == dense / 2
    assert found.sent_bytes == ((workers - 1) * dense if is_server else dense / 2), found
    found = step("server, compressed", "thresholdv", backup=1)
    assert found.sent_bytes == ((workers - 1) * (workers * size + 4) if is_server else workers * size), found
    found = step("nodes of two", "fp16")
    has_node = COMM.rank % 2 == 0 and COMM.rank + 1 < workers
    inside = (dense + 16 if has_node else 0) if COMM.rank % 2 == 0 else dense
    nodes = (workers + 1) // 2
    between = 2 * (nodes - 1) / nodes * dense / 2 if COMM.rank % 2 == 0 else 0
    assert found.payload_bytes == dense / 2 and found.sent_bytes == inside + between, found


# Laws


def stays_unbiased() -> None:
    """The mean over many units of what unbiased methods give is their common gradient, through both phases."""
    count, size, steps = 400, 32, 4
    x = [torch.randn(size, generator=torch.Generator().manual_seed(rank)) for rank in range(COMM.size)]
    expected = torch.stack(x).double().mean(0)
    given: dict[str, Any]
    for kind in ("sharded", "server, compressed"):
        for name, given in (("qsgd", {"levels": 4}), ("randomk", {"ratio": 0.5, "unbiased": True})):
            compressor = compressors.build(name, **given)
            assert compressor.unbiased
            units = [Unit(i, str(i), torch.zeros(size), torch.zeros(size)) for i in range(count)]
            exchanger = build(kind, compressor, units)
            found = []
            for step in range(1, steps + 1):
                for unit in units:
                    unit.gradient.copy_(x[COMM.rank])
                exchanger.mean(step)
                found += [unit.gradient.double() for unit in units]
            draws = torch.stack(found)
            deviation = draws.std(0) / len(draws) ** 0.5
            assert float(((draws.mean(0) - expected) / deviation).abs().max()) < 5.0, (kind, name)


def quadratic() -> None:
    """Each worker has f_r(w) = |w - c_r|^2 / 2: with memory in both phases w goes to the mean of the c_r; else not."""
    compressor = compressors.build("topk", ratio=0.1)
    for kind in ("sharded", "server, compressed"):
        distances = {}
        for first, second in (("residual", "residual"), ("residual", "none"), ("none", "none")):
            units = [Unit(i, str(i), torch.zeros(40), torch.zeros(40)) for i in range(2)]
            centres = [[tensor(rank + 10 * i).view(-1)[:40] for i in range(2)] for rank in range(COMM.size)]
            exchanger = build(kind, compressor, units, memories.build(first), second_memory=second)
            step_through(exchanger, units, centres, 250)
            distances[first, second] = distance(units, centres)
        both, one, none = distances.values()
        assert both < 0.05 and one > 3 * both and none > 0.5, (kind, distances)


Centres = list[list[torch.Tensor]]


def step_through(exchanger: exchange.Exchange, units: list[Unit], centres: Centres, steps: int) -> None:
    for step in range(1, steps + 1):
        for unit in units:
            unit.gradient.copy_(unit.values - centres[COMM.rank][unit.index])
        lr = 0.05 if step < steps / 2 else 0.05 * 2 * (1 - step / steps)
        exchanger.mean(step, lr=lr)
        for unit in units:
            unit.values.sub_(unit.gradient, alpha=lr)


def distance(units: list[Unit], centres: Centres) -> float:
    targets = [torch.stack([centre[unit.index] for centre in centres]).mean(0) for unit in units]
    return max(float((unit.values - target).abs().max()) for unit, target in zip(units, targets, strict=True))


# State


RUNS: list[tuple[str, str, dict[str, Any], str, dict[str, Any]]] = [
    ("sharded", "topk", {"ratio": 0.1}, "residual", CHANGING),
    ("sharded", "redsync_threshold", {"ratio": 0.05}, "scaled_residual", {}),
    ("sharded", "signum", {}, "none", {}),
    ("sharded", "int8", {"bits": 4}, "loco", {}),
    ("sharded, second dense", "intsgd", {}, "none", {}),
    ("server, compressed", "topk", {"ratio": 0.1}, "ef21", {}),
    ("server, compressed", "topk", {"ratio": 0.1}, "residual", CHANGING),
    ("server", "topk", {"ratio": 0.1}, "dgc", {}),
    ("nodes of two", "topk", {"ratio": 0.1}, "residual", CHANGING),
    ("nodes of two", "intsgd", {}, "residual", {}),
    ("nodes of two", "powersgd", {"rank": 1}, "residual", {}),
]


def started(
    number: int, values: list[torch.Tensor] | None = None, state: Any = None
) -> tuple[exchange.Exchange, list[Unit]]:
    """An exchange of RUNS, from its beginning or from where another was."""
    kind, name, given, kept, policy = RUNS[number]
    units = new_units(BODY)
    for unit, value in zip(units, values or [], strict=False):
        unit.values.copy_(value)
    made = build(kind, compressors.build(name, **given), units, memories.build(kept), policy)
    if state is not None:
        made.load_state_dict(state)
    return made, units


def resume() -> None:
    """Six steps in one go, and three, a new exchange with the state, and three more: the same means to the bit."""
    for number, run in enumerate(RUNS):
        exchanger, units = started(number)
        whole: list[list[torch.Tensor]] = []
        for step in range(1, 7):
            whole.append(one_step(exchanger, units, step))
            if step == 3:
                file = io.BytesIO()
                torch.save(exchanger.state_dict(), file)
                values = [unit.values.clone() for unit in units]
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        for state in (saved, None):
            exchanger, units = started(number, values, state)
            same = [all(map(torch.equal, one_step(exchanger, units, step), whole[step - 1])) for step in range(4, 7)]
            assert all(same) == (state is not None), (run, same)


def one_step(exchanger: exchange.Exchange, units: list[Unit], step: int) -> list[torch.Tensor]:
    for unit in units:
        unit.gradient.copy_(local_gradient(COMM.rank, step, unit.index, tuple(unit.gradient.shape)))
    exchanger.mean(step, epoch=epoch_of(step), lr=rate(step), measure=step == 2)
    for unit in units:
        unit.values.sub_(unit.gradient, alpha=rate(step))
    return [unit.gradient.clone() for unit in units]


def second_state_matters() -> None:
    """A state of which the second phase's part is wrong is refused, and one without its residuals goes on otherwise."""
    for kind in ("sharded", "server, compressed"):
        units = new_units(BODY)
        exchanger = build(kind, compressors.build("topk", ratio=0.1), units, memories.build("residual"))
        one_step(exchanger, units, 1)
        state, before = exchanger.state_dict(), str(exchanger.state_dict())
        owns = kind == "sharded" and COMM.rank < len(units) or COMM.rank == 0
        assert bool(state["second"]["kept"]) == owns, (kind, COMM.rank)
        wrong: list[Any] = [None, {}, {k: v for k, v in state.items() if k != "second"}]
        wrong += [{**state, "second": value} for value in (None, {}, {**state["second"], "memory": "NoMemory()"})]
        wrong += [{**state, "second": {**state["second"], key: None}} for key in ("kept", "compressors")]
        wrong += [{**state, "kept": None}]
        for one in wrong:
            try:
                exchanger.load_state_dict(one)
            except ValueError as error:
                assert "\n" not in str(error)
            else:
                raise AssertionError(one)
            assert str(exchanger.state_dict()) == before


# Nodes


def nodes() -> None:
    """Who is in which node, what its leader's key says, and that memory is the leader's."""
    units = new_units(BODY)
    kept = memories.build("residual")
    exchanger = build("nodes of two", compressors.build("topk", ratio=0.1), units, kept)
    one_step(exchanger, units, 1)
    leads = COMM.rank % 2 == 0
    assert exchanger.node.size == (2 if COMM.rank // 2 * 2 + 1 < COMM.size else 1)  # type: ignore[attr-defined]
    assert exchanger.nodes == exchanger.selector.workers == (COMM.size + 1) // 2  # type: ignore[attr-defined]
    assert (kept.norm() > 0) == leads
    if leads:
        assert exchanger.comm.rank == COMM.rank // 2
    for unit, whole in zip(units, (kept.unit_tensors.get(i) for i in range(len(units))), strict=True):  # type: ignore[attr-defined]
        shape = tuple(unit.gradient.shape)
        if leads:
            node = [rank for rank in (COMM.rank, COMM.rank + 1) if rank < COMM.size]
            x = sum(local_gradient(rank, 1, unit.index, shape) for rank in node) * ((COMM.size + 1) // 2 / COMM.size)
            topk, key = compressors.build("topk", ratio=0.1), Key(5, COMM.rank // 2, 1, unit.index)
            sent = topk.decompress(topk.compress(x, key), x, key)
            assert torch.allclose(whole["residual"], x - sent, atol=1e-6), unit.name  # type: ignore[index]
    traffic = exchanger.mean(2, measure=True)
    errors = COMM.allgather(traffic.compression_error)
    assert all(error is not None and 0 < error < 1 for error in errors), errors


def nodes_of_gpus() -> None:
    """Gradients that are not in main memory, here as far as `move_to_host` says so, are copied there and back."""
    plain = staging.move_to_host
    found = []
    for move_to_host in (plain, lambda tensor: plain(tensor).clone()):
        staging.move_to_host = move_to_host
        units = [Unit(i, str(i), torch.zeros(size), torch.zeros(size)) for i, size in enumerate((300, 7))]
        exchanger = build("nodes of two", compressors.build("topk", ratio=0.1), units, memories.build("residual"))
        found.append([mean for step in (1, 2) for mean in one_step(exchanger, units, step)])
    staging.move_to_host = plain
    require_same_bits(units, "a node of GPUs")
    assert all(mean.any() for mean in found[0])
    assert all(map(torch.equal, *found))


def runs_of_memory() -> None:
    """Gradients that lie side by side travel together."""
    from trainers.exchange.hierarchical import find_contiguous_runs

    whole, other = torch.arange(12.0), torch.zeros(3)
    parts = [whole[:4].view(2, 2), whole[4:6], other, whole[6:9], whole[10:]]
    units = [Unit(i, str(i), part, part) for i, part in enumerate(parts)]
    found = find_contiguous_runs(units)
    assert [run.tolist() for run in found] == [[0, 1, 2, 3, 4, 5], [0, 0, 0], [6, 7, 8], [10, 11]]
    found[0].fill_(7)
    assert (whole[:6] == 7).all()


# The second phase


def random_numbers() -> None:
    """The second phase draws other numbers than the first, and its compressors have a state of their own."""
    compressor = compressors.build("randomk", ratio=0.2)
    unit = Unit(0, "w", torch.ones(1000), torch.zeros(1000))
    exchanger = build("sharded", compressor, [unit])
    exchanger.mean(1)
    kept = int((unit.gradient != 0).sum())
    assert 10 <= kept <= 80, kept  # a fifth of a fifth; 200, if both phases chose the same elements
    second = SecondPhase(3, again=True, memory=memories.build("none"))
    momentum = compressors.build("redsync_threshold")
    assert second.get_compressor(momentum) is second.get_compressor(dataclasses.replace(momentum)) is not momentum
    assert second.get_compressor(compressors.build("signum")).name == "sign"


# Backup workers


def backup() -> None:
    """The last of three workers comes after the answer: its message is dropped, and its memory keeps everything."""
    side = COMM.Dup()
    shape = (300, 400)  # beyond what MPI sends without the receiver
    units = [Unit(0, "w", torch.zeros(shape), torch.zeros(shape))]
    given: dict[str, Any]
    for name, given in (("topk", {"ratio": 0.1}), ("none", {}), ("thresholdv", {"threshold": 0.5})):
        kept = memories.build("residual")
        exchanger = build("server, compressed", compressors.build(name, **given), units, kept, backup=1)
        means: list[torch.Tensor] = []
        late = COMM.size - 1
        total = torch.zeros(shape)
        for step in range(1, 2 + backup_lane.FURTHEST_BEHIND):
            gradient = local_gradient(COMM.rank, step, 0, shape)
            units[0].gradient.copy_(gradient)
            if COMM.rank == late:
                side.recv(source=1)  # the answer to this step is under way
                total += gradient
            traffic = exchanger.mean(step, measure=True)
            assert (traffic.compression_error is None) == (COMM.rank == late), (name, step)  # nobody knows its error
            if COMM.rank == 1:
                side.send(None, late)
            means.append(units[0].gradient.clone())  # workers that are apart cannot compare at once
            if COMM.rank == late:
                assert torch.allclose(kept.unit_tensors[0]["residual"], total, atol=1e-5), step  # type: ignore[attr-defined]
        COMM.Barrier()  # the server waits here while messages are still on their way
        for mean in means:
            require_same_bits([Unit(0, "w", mean, mean)], name)
        if name == "none":
            for step, mean in enumerate(means, 1):
                taken = torch.stack([local_gradient(rank, step, 0, shape) for rank in range(late)]).mean(0)
                assert torch.allclose(mean, taken, atol=1e-6), step
        exchanger.mean(9)  # with all there again
        require_same_bits(units, name)


def lagging() -> None:
    """With a backup worker, the others of a whole run go on while one is late."""
    side, begun, gradient, combine_every_s = COMM.Dup(), 0, Replica.compute_gradient, recorder.COMBINE_EVERY_S

    def waiting(self: Replica, *given: Any) -> Shares:
        nonlocal begun
        begun += 1
        if COMM.rank == 2 and begun == 4:
            side.recv(source=1)
        if COMM.rank == 1 and begun == 4 + backup_lane.FURTHEST_BEHIND - 1:
            side.send(None, 2)
        return gradient(self, *given)

    Replica.compute_gradient = waiting  # type: ignore[method-assign, assignment]
    recorder.COMBINE_EVERY_S = 1e6  # workers meet when they combine their rows
    server = {"name": "parameter_server", "backup": 1}
    folder = Path(COMM.bcast(tempfile.mkdtemp() if COMM.rank == 0 else None))
    result = train(options.parse(compose_config(workers=3, exchange=server, max_steps=12)), COMM, folder)
    assert result["steps"] == begun == 12
    Replica.compute_gradient, recorder.COMBINE_EVERY_S = gradient, combine_every_s  # type: ignore[method-assign]


def agreement() -> None:
    """Answers to questions of earlier steps: the same on all workers, one save for one wish, and none is left over."""
    found = []
    agreed = stopping.Agreement(COMM, behind=2)
    for step in range(1, 12):
        agreed.ask(COMM.rank == 0 and 3 <= step < 6)  # until the save of step 5
        found.append(agreed.answer())
        if found[-1] == stopping.SAVE:
            agreed.note_save()
        if step == 7 and COMM.rank == 1:
            stopping._note(0, None)
    assert found == [0, 0, 0, 0, stopping.SAVE, 0, 0, 0, 0, stopping.STOP, stopping.STOP], found
    agreed.close()
    stopping.forget()


if __name__ == "__main__":
    main(globals())
