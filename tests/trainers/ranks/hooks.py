"""Hooks of torch's own data parallelism: `mpirun -n W python -m tests.trainers.ranks.hooks NAME [ARGUMENT...]`."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsweep
from compressors import build, memories
from compressors.policy.policy import Policy, Selector
from gradsweep.csv_columns import PHASES, STEP_COLUMNS
from gradsweep.errors import UsageError
from tests.trainers.ranks.exchange import main
from tests.trainers.ranks.overlap import same
from trainers.config.groups import GROUPS
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.base import Exchange, Traffic
from trainers.exchange.build import build_exchange
from trainers.exchange.torch_transport import connect
from trainers.gradients.flat import Unit
from trainers.hooks.ddp import DDPState
from trainers.rules.compressors import choose_exchange

COMM = MPI.COMM_WORLD
STEPS = 4
DDP_OPTIONS = ("find_unused_parameters", "gradient_as_bucket_view")
CAP_MIB = 0.02
"""Of DDP's buckets: several for the model below."""

TOLERANCE = {
    "none": 1e-6,
    "fp16": 2e-3,
    "bf16": 1e-2,
    "powersgd": 1e-4,
    "acp_sgd": 1e-4,
    "dion": 1e-3,
    "batched_powersgd": 1e-4,
}
"""By how much gradients of more than two workers may differ from those with MPI, as a part of their norm, because sums
are added in another order. Those of all other methods do not differ by a bit, and with two workers none do."""


@contextlib.contextmanager
def connected() -> Iterator[None]:
    """Within the block there is a default process group of all ranks, over gloo."""
    group = connect(COMM, torch.device("cpu"))
    yield
    group.close()  # not after an error, when others may not come


class Net(nn.Module):
    """Convolutions, matrices, vectors, one of a single element; with `spare` a layer without a part in the loss."""

    def __init__(self, spare: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
        self.norm = nn.GroupNorm(4, 16)
        self.hidden = nn.Linear(16 * 36, 40)
        self.scale = nn.Parameter(torch.ones(1))
        self.out = nn.Linear(40, 10)
        if spare:
            self.spare = nn.Linear(40, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.out(torch.relu(self.hidden(self.norm(self.conv(images)).flatten(1)) * self.scale))


def build_model(spare: bool = False) -> nn.Module:
    torch.manual_seed(1)
    return Net(spare)


def compute_loss(model: nn.Module, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + COMM.rank)
    images = torch.randn(4, 3, 8, 8, generator=generator)
    labels = torch.randint(10, (4,), generator=generator)
    return nn.functional.cross_entropy(model(images), labels)


class Reference:
    """The same gradients, exchanged by MPI: a unit a parameter, or the units of the hook."""

    def __init__(self, name: str, memory: str, exchange: dict[str, Any], **options: Any) -> None:
        self.model = build_model()
        self.named = [(key, one) for key, one in self.model.named_parameters()]
        self.compressor, self.memory = build(name, **options), memory
        member = exchange.get("name", "auto")
        member = choose_exchange([self.compressor]) if member == "auto" else member
        self.config = GROUPS["exchange"][member](**{key: value for key, value in exchange.items() if key != "name"})
        self.exchange: Exchange | None = None
        self.members: list[list[int]] = []

    def _cut(self, members: list[list[int]], joined: bool) -> None:
        """Begin anew with these units, whose memories come along by parameter."""
        kept: dict[int, dict[str, torch.Tensor]] = {}
        before: dict[int, torch.Tensor] = {}
        if self.exchange is not None:
            for unit, named in getattr(self.exchange.memory, "unit_tensors", {}).items():
                for key, tensor in named.items():
                    for number, part in self._cut_tensor(unit, tensor):
                        kept.setdefault(number, {})[key] = part
            for unit, tensor in self.exchange._before.items():
                before |= dict(self._cut_tensor(unit, tensor))
        self.members, units = members, []
        for index, numbers in enumerate(members):
            shape = [sum(self.named[number][1].numel() for number in numbers)] if joined else self.named[index][1].shape
            units.append(Unit(index, self.named[index][0], torch.zeros(shape), torch.zeros(shape)))
        described = [(unit.name, tuple(unit.gradient.shape)) for unit in units]
        selector = Selector(Policy(), self.compressor, described, COMM.size)
        memory = memories.build(self.memory)
        self.exchange = build_exchange(self.config, COMM, units, selector, memory, 7, Stopwatch())
        for index, numbers in enumerate(members):
            shape = units[index].gradient.shape
            if kept:
                memory.unit_tensors[index] = {  # type: ignore[attr-defined]
                    key: torch.cat([kept[number][key] for number in numbers]).view(shape) if tensor.ndim else tensor
                    for key, tensor in kept[numbers[0]].items()
                }
            if before:
                self.exchange._before[index] = torch.cat([before[number] for number in numbers])

    def _cut_tensor(self, unit: int, tensor: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
        """Return the part of each parameter of a unit, or a scalar for each."""
        numbers = self.members[unit]
        if not tensor.ndim:
            return [(number, tensor) for number in numbers]
        parts = tensor.flatten().split([self.named[number][1].numel() for number in numbers])
        return list(zip(numbers, parts, strict=True))

    def mean(self, step: int, members: list[list[int]], joined: bool) -> Traffic:
        """Compute and average the gradients of a step."""
        if members != self.members:
            self._cut(members, joined)
        assert self.exchange is not None
        self.model.zero_grad()
        compute_loss(self.model, step).backward()
        for unit, numbers in zip(self.exchange.units, members, strict=True):
            gradients = [self.named[number][1].grad for number in numbers]
            unit.gradient.copy_(torch.cat([g.flatten() for g in gradients]).view(unit.gradient.shape))  # type: ignore[union-attr]
            unit.values.copy_(torch.cat([self.named[n][1].detach().flatten() for n in numbers]).view(unit.values.shape))
        traffic = self.exchange.mean(step, lr=0.05)
        COMM.Barrier()  # MPI sends on only while this rank calls it, not while it waits for gloo
        for unit, numbers in zip(self.exchange.units, members, strict=True):
            counts = [self.named[number][1].numel() for number in numbers]
            for number, part in zip(numbers, unit.gradient.flatten().split(counts), strict=True):
                parameter = self.named[number][1]
                parameter.grad = part.view(parameter.shape).clone()
        return traffic


def wrap(hooked: nn.Module, method: str, **arguments: Any) -> tuple[Any, torch.optim.Optimizer, DDPState]:
    kinds = {
        key: arguments.pop(key) for key in ("find_unused_parameters", "gradient_as_bucket_view") if key in arguments
    }
    model = DistributedDataParallel(hooked, bucket_cap_mb=CAP_MIB, **kinds)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    state, hook = gradsweep.ddp_hook(method, seed=7, optimizer=optimizer, module=hooked, **arguments)
    model.register_comm_hook(state, hook)
    return model, optimizer, state


def take_step(model: Any, optimizer: torch.optim.Optimizer, step: int) -> list[torch.Tensor]:
    """Take a step; return the gradients that the optimizer got."""
    optimizer.zero_grad()
    compute_loss(model, step).backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    optimizer.step()
    return gradients


def require_mpi(granularity: str, memory: str, exchange: str, *names: str) -> None:
    """Gradients and bytes are those of an exchange by MPI."""
    with connected():
        for name in names:
            arguments = {"exchange": exchange, "granularity": granularity, "memory": memory}
            model, optimizer, state = wrap(build_model(), name, **arguments)
            by_mpi = Reference(name, memory, {"name": exchange, "granularity": granularity})
            sgd = torch.optim.SGD(by_mpi.model.parameters(), lr=0.05)
            layouts = set()
            for step in range(1, STEPS + 1):
                gradients = take_step(model, optimizer, step)
                counts = state.take_counts()
                layout = state._layout
                assert layout is not None
                layouts.add(len(layout.buckets))
                joined = granularity == "bucket"
                members = [[number for number, _ in unit] for unit in layout.members]
                members = members if joined else [[number] for number in range(len(by_mpi.named))]
                traffic = by_mpi.mean(step, members, joined)
                sgd.step()
                theirs = [parameter.grad for parameter in by_mpi.model.parameters()]
                compare(name, step, gradients, theirs)
                if name != "gtopk":  # the hook sends lengths, too
                    assert counts["payload_bytes"] == pytest.approx(traffic.payload_bytes, rel=1e-3), (name, step)
                    assert counts["sent_bytes"] == pytest.approx(traffic.sent_bytes, rel=2e-2), (name, step)
                    seconds = counts.pop("phases")
                    assert seconds["encode"] > 0 and seconds["decode"] > 0 and set(seconds) <= set(PHASES)
                    assert set(counts) <= set(STEP_COLUMNS)
            assert len(layouts) == 2, layouts  # of the first step, and as DDP made them anew


def compare(name: str, step: int, ours: list[torch.Tensor], theirs: list[Any]) -> None:
    if COMM.size == 2 or name not in TOLERANCE:
        assert all(same(one, other) for one, other in zip(ours, theirs, strict=True)), (name, step)
        return
    one, other = (torch.cat([gradient.flatten() for gradient in gradients]) for gradients in (ours, theirs))
    difference = float((one - other).norm() / other.norm())
    assert difference <= TOLERANCE[name], (name, step, difference)


def resume() -> None:
    """A state that was saved and loaded continues to the bit; a worker that has not loaded does not."""
    with connected():
        for name, memory, exchange in (
            ("topk", "residual", "auto"),
            ("qsgd", "ef21", "sharded"),
            ("topk", "econtrol", "auto"),
            ("qsgd", "loco", "sharded"),
            ("powersgd", "residual", "auto"),
            ("acp_sgd", "residual", "auto"),
            ("topk", "dgc", "auto"),
            ("intsgd", "none", "auto"),
        ):
            model, optimizer, state = wrap(build_model(), name, memory=memory, exchange=exchange)
            for step in (1, 2, 3):
                take_step(model, optimizer, step)
            file = io.BytesIO()
            torch.save({"model": model.module.state_dict(), "hook": state.state_dict()}, file)
            expected = [take_step(model, optimizer, step) for step in (4, 5)]
            file.seek(0)
            saved = torch.load(file, weights_only=True)
            fresh = build_model()
            fresh.load_state_dict(saved["model"])
            model, optimizer, state = wrap(fresh, name, memory=memory, exchange=exchange)
            state.load_state_dict(saved["hook"])
            assert state.step == 3 and same(state.state_dict(), saved["hook"])
            again = [take_step(model, optimizer, step) for step in (4, 5)]
            if name in ("powersgd", "acp_sgd") and COMM.size > 2:
                continue  # DDP's first buckets are others, and so is the order of its sums
            assert same(expected, again), (name, memory, exchange)
            with pytest.raises(ValueError, match="before the first step, but 5 have been taken"):
                state.load_state_dict(saved["hook"])
            model, optimizer, state = wrap(build_model(), name, memory=memory, granularity="layer")
            with pytest.raises(ValueError, match="has the keys"):
                state.load_state_dict({"step": 3})


def kinds() -> None:
    """Unused parameters, gradients that are views of buckets, accumulation, clipping by the whole norm, names."""
    with connected():
        runs = []
        for kind in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}):
            model, optimizer, state = wrap(build_model(), "topk", ratio=0.1, memory="residual", **kind)
            runs.append([take_step(model, optimizer, step) for step in range(1, STEPS + 1)])
        assert same(runs[0], runs[1]) and same(runs[0], runs[2])

        model, optimizer, state = wrap(build_model(spare=True), "qsgd", find_unused_parameters=True)
        for step in (1, 2, 3):
            take_step(model, optimizer, step)
        assert model.module.spare.weight.grad is None and state.step == 3

        clipped = {"name": "dgc", "clip": 0.01}
        model, optimizer, state = wrap(build_model(), "topk", ratio=0.1, memory=clipped)
        for step in range(1, STEPS + 1):
            gradients = take_step(model, optimizer, step)
        assert 0 < float(torch.cat([g.flatten() for g in gradients]).norm()) < 0.1

        model, optimizer, state = wrap(build_model(), "none")
        with model.no_sync():
            compute_loss(model, 1).backward()
        assert state.step == 0
        compute_loss(model, 2).backward()
        assert state.step == 1
        plain = build_model()
        for step in (1, 2):
            compute_loss(plain, step).backward()
        for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
            expected = COMM.allreduce(other.grad.double().numpy()) / COMM.size  # type: ignore[union-attr]
            assert torch.allclose(mine.grad.double(), torch.as_tensor(expected), atol=1e-6)

        policy = {"patterns": [{"match": r"^out\.", "compressor": {"name": "none"}}], "min_elements": 100}
        model, optimizer, state = wrap(build_model(), "topk", ratio=0.01, policy=policy, measure_every=2)
        take_step(model, optimizer, 1)
        assert int((model.module.out.weight.grad != 0).sum()) > 100
        assert int((model.module.hidden.weight.grad != 0).sum()) <= COMM.size * 231
        assert 0 < state.take_counts()["compression_error"] < 1
        take_step(model, optimizer, 2)
        assert "compression_error" not in state.take_counts() and state.take_counts()["payload_bytes"] == 0

        lgreco = {"option": "ratio", "values": [0.01, 0.3], "interval": 2}
        model, optimizer, state = wrap(build_model(), "topk", ratio=0.1, mean="senders", policy={"lgreco": lgreco})
        for step in range(1, 6):
            take_step(model, optimizer, step)
        assert len(set(state.state_dict()["exchange"]["selector"]["allocation"]["chosen"])) > 1
        values = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        assert all(torch.equal(values, torch.as_tensor(other)) for other in COMM.allgather(values.numpy()))

        with pytest.raises(UsageError, match=r"^policy: it goes by epochs"):
            model, optimizer, state = wrap(build_model(), "topk", policy={"warmup": "exponential"})
            take_step(model, optimizer, 1)
        model, optimizer, state = wrap(build_model(), "topk", ratio=0.01, policy={"warmup": "exponential"})
        kept = []
        for epoch in (1, 3):
            state.epoch = epoch
            take_step(model, optimizer, epoch)
            kept.append(state.take_counts()["payload_bytes"])
        assert kept[0] > 2 * kept[1]


def subgroups() -> None:
    """Two halves of the ranks, each with a DistributedDataParallel of its own."""
    with connected():
        half = COMM.size // 2
        groups = [dist.new_group(range(half)), dist.new_group(range(half, COMM.size))]
        mine = groups[COMM.rank // half]
        model = DistributedDataParallel(build_model(), process_group=mine)
        model.register_comm_hook(*gradsweep.ddp_hook("qsgd", seed=COMM.rank // half, process_group=mine))
        for step in (1, 2, 3):
            compute_loss(model, step).backward()
        digest = [parameter.grad.sum().item() for parameter in model.parameters()]  # type: ignore[union-attr]
        everyone = COMM.allgather(digest)
        assert everyone[0] == everyone[half - 1] != everyone[half] == everyone[-1]


def shards() -> None:
    """FSDP2: each worker has its shard of the mean of what the workers' payloads decode to, with error feedback."""
    from torch.distributed.fsdp import fully_shard

    with connected():
        plain = shard_model(fully_shard)
        expected = [take_sharded_step(plain, step) for step in (1, 2)]
        state = gradsweep.fsdp_hook(model := shard_model(fully_shard), "none")
        for step in (1, 2):
            found = take_sharded_step(model, step)
            assert all(
                torch.allclose(one, other, atol=1e-6) for one, other in zip(found, expected[step - 1], strict=True)
            )
            counts = state.take_counts()
            assert counts["payload_bytes"] > 4 * sum(one.numel() for one in found)
            assert counts["phases"]["communicate"] > 0
        for name, memory, options in (
            ("qsgd", "none", {}),
            ("topk", "residual", {"ratio": 0.05}),
            ("fp16", "none", {}),
            ("sign", "none", {}),
            ("terngrad", "none", {}),
            ("topk", "dgc", {"ratio": 0.05}),
        ):
            model = shard_model(fully_shard)
            state = gradsweep.fsdp_hook(model, name, memory=memory, seed=3, **options)
            spied: dict[str, list[torch.Tensor]] = {}
            for key, part in state.parts.items():
                part.average = functools.partial(spy, part, spied, key)  # type: ignore[method-assign]
            kept = {key: memories.build(memory) for key in state.parts}
            for step in (1, 2, 3):
                take_sharded_step(model, step)
                for key, part in state.parts.items():
                    require_mean(part, kept[key], spied[key], step, build(name, **options))
            saved = copy.deepcopy(state.state_dict())
            again = gradsweep.fsdp_hook(shard_model(fully_shard), name, memory=memory, seed=3, **options)
            again.load_state_dict(saved)
            assert same(again.state_dict(), saved)
        with pytest.raises(UsageError, match=r"^fsdp_hook: Net is not sharded; valid after fully_shard"):
            gradsweep.fsdp_hook(build_model(), "qsgd")
        with pytest.raises(UsageError, match=r"^compressor=powersgd with exchange=sharded"):
            gradsweep.fsdp_hook(shard_model(fully_shard), "powersgd")


def spy(part: Any, spied: dict[str, Any], key: str, group: Any, units: Any, device: Any) -> None:
    """Note the gradients before an exchange, and the mean of this worker's shard behind it."""
    before = [unit.gradient.clone() for unit in units]
    type(part).average(part, group, units, device)
    spied[key] = [*before, units[COMM.rank].gradient.clone()]


def require_mean(part: Any, memory: Any, spied: list[torch.Tensor], step: int, compressor: Any) -> None:
    """The mean is that of all workers' payloads, with a memory for each shard."""
    from compressors import Key

    *gradients, found = spied
    compressor.join(COMM.size)
    memory.begin(1.0, COMM.size, lambda: 0.0)
    keys = [Key(part._seed, COMM.rank, step, unit) for unit in range(COMM.size)]
    sent = [memory.compensate(unit, gradient.clone()).clone() for unit, gradient in enumerate(gradients)]
    if compressor.needs_agreement(keys[0]):
        for key, x in zip(keys, sent, strict=True):
            largest = COMM.allreduce(compressor.statistics(x, key).numpy(), MPI.MAX)
            compressor.agree(key, torch.as_tensor(largest))
    payloads = []
    for key, x in zip(keys, sent, strict=True):
        payloads.append(compressor.compress(x, key))
        memory.update(key, x, payloads[-1], compressor)
    received = COMM.alltoall([payload.numpy() for payload in payloads])
    mean = torch.zeros_like(found)
    for payload in received:
        compressor.decompress_add(torch.as_tensor(payload), mean, keys[COMM.rank], 1 / COMM.size)
    compressor.finish(mean, keys[COMM.rank], COMM.size)
    assert torch.allclose(mean, found, atol=1e-7), (compressor, step)


def shard_model(fully_shard: Any, **arguments: Any) -> nn.Module:
    model = build_model()
    fully_shard(model.hidden, **arguments)
    fully_shard(model, **arguments)
    return model


def take_sharded_step(model: nn.Module, step: int) -> list[torch.Tensor]:
    model.zero_grad()
    compute_loss(model, step).backward()
    gradients = [parameter.grad.to_local().clone() for parameter in model.parameters()]  # type: ignore[union-attr]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.to_local().sub_(parameter.grad.to_local(), alpha=0.05)  # type: ignore[attr-defined, union-attr]
    return gradients


def nodes() -> None:
    """HSDP: replicas of two nodes, each sharded over its workers, are averaged with compression."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with connected():
        mesh = init_device_mesh("cpu", (2, COMM.size // 2), mesh_dim_names=("nodes", "shards"))
        between = mesh["nodes"].get_group()
        native = shard_model(fully_shard, mesh=mesh)
        expected = [take_sharded_step(native, step) for step in (1, 2)]
        for name, tolerance, options in (
            ("none", 1e-6, {}),
            ("qsgd", 0.5, {"levels": 127}),
            ("topk", 1e-6, {"ratio": 1.0}),
        ):
            model = shard_model(fully_shard, mesh=mesh["shards"])
            state = gradsweep.hsdp_hook(model, name, process_group=between, **options)
            for step in (1, 2):
                found = take_sharded_step(model, step)
                one, other = (torch.cat([g.flatten() for g in gs]) for gs in (found, expected[step - 1]))
                assert float((one - other).norm() / other.norm()) <= tolerance, (name, step)
            partner = (COMM.rank + COMM.size // 2) % COMM.size
            theirs = COMM.sendrecv(one, partner, source=partner)
            assert torch.equal(one, theirs), name
            assert state.take_counts()["sent_bytes"] > 0
        with pytest.raises(
            UsageError, match=r"^hsdp_hook: hidden is sharded over a mesh of two dimensions|^hsdp_hook: the"
        ):
            gradsweep.hsdp_hook(native, "qsgd", process_group=between)


if __name__ == "__main__":
    main(globals())
