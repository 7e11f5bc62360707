"""Fewer bits and other layouts give nearly the same training; what a replica remembers goes on to the bit."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from tests.trainers.start_ranks import run_ranks
from trainers import models
from trainers.config import run_config
from trainers.data.feeds import Batch, Feed
from trainers.devices.stopwatch import Stopwatch
from trainers.options.sections import LossScale
from trainers.replica.precision import LossScaler
from trainers.replica.replica import Replica

pytestmark = pytest.mark.usefixtures("one_thread")


class Alone:
    """A communicator of one."""

    rank, size = 0, 1

    def Allgather(self, mine: Any, everyone: Any) -> None:
        everyone[:] = mine

    def Allreduce(self, mine: Any, total: Any, operation: Any = None) -> None:
        if hasattr(mine, "shape"):
            total[:] = mine


class Blobs(Feed):
    """Ten classes of images, each with its own pattern."""

    shape, classes, samples, steps = (3, 8, 8), 10, 160, 10

    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for step in range(start, self.steps):
            yield Batch(*blobs(16, step), 16)

    def read_test_set(self, epoch: int = 1) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield blobs(64, 99)


def blobs(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    patterns = torch.randn(10, *Blobs.shape, generator=torch.Generator().manual_seed(1))
    random = torch.Generator().manual_seed(100 + seed)
    labels = torch.randint(10, (count,), generator=random)
    return patterns[labels] + 0.5 * torch.randn(count, *Blobs.shape, generator=random), labels


def small() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(models, "build", lambda *_: small())

    def build(**changes: Any) -> Replica:
        return Replica(run_config.parse(compose_config(workers=1, **changes)), Blobs.shape, 10, Alone())  # type: ignore[arg-type]

    return build


def losses(one: Replica, start: int = 0, steps: int = 30, lr: float = 0.1) -> list[float]:
    """Of plain SGD."""
    found, feed = [], Blobs()
    one.model.train()
    for step in range(start, steps):
        batch = next(feed.read_epoch(1, step % feed.steps))
        found.append(one.compute_gradient(batch, Stopwatch()).read()[0])
        if one.check_usable(Stopwatch()):
            one.flat.values.sub_(one.flat.gradients, alpha=lr)
    return found


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({"precision": "bf16"}, 0.05),
        ({"precision": "fp16"}, 0.02),
        ({"precision": "fp16", "loss_scale": {"initial": 1024.0, "dynamic": False}}, 0.02),
    ],
    ids=str,
)
def test_the_loss_falls_as_with_32_bits(replica: Any, changes: dict[str, Any], tolerance: float) -> None:
    plain, other = losses(replica()), losses(replica(**changes))
    assert plain[-1] < 0.3 < 2 < plain[0]
    assert other != plain
    for expected, loss in zip(plain, other, strict=True):
        assert loss == pytest.approx(expected, rel=tolerance, abs=tolerance)


def test_parameters_and_gradients_stay_in_32_bits(replica: Any) -> None:
    one = replica(precision="bf16")
    seen = []
    one.model[3].register_forward_hook(lambda *call: seen.append(call[2].dtype))
    one.compute_gradient(next(Blobs().read_epoch(1)), Stopwatch())
    one.evaluate(Blobs())
    assert seen == [torch.bfloat16] * 2
    assert one.flat.gradients.dtype is torch.float32 and float(one.flat.gradients.norm()) > 0
    assert all(parameter.dtype is torch.float32 for parameter in one.model.parameters())


def test_images_are_channels_last_in_the_model(replica: Any) -> None:
    one, plain = replica(channels_last=True), replica()
    seen: list[bool] = []
    one.model[0].register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    for each in (one, plain):
        each.model[4].p = 0.0  # the elements are drawn in another order
        each.compute_gradient(next(Blobs().read_epoch(1)), Stopwatch())
        each.evaluate(Blobs())
    assert seen == [True, True]
    torch.testing.assert_close(one.flat.gradients, plain.flat.gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_another_replica_goes_on_to_the_bit(replica: Any, precision: str) -> None:
    options = {"precision": precision, "loss_scale": {"initial": 2.0**30, "growth_interval": 3}}
    whole = losses(replica(**options), steps=24)
    first = replica(**options)
    begun = losses(first, steps=13)
    state, values = first.state_dict(), first.flat.values.clone()
    assert losses(first, 13, 24) == whole[13:]  # what was given out is a copy
    second = replica(**options)
    second.flat.values.copy_(values)
    second.load_state_dict(state)
    assert begun + losses(second, 13, 24) == whole
    assert (first.scaler is None) == (precision == "fp32")
    if first.scaler is not None and second.scaler is not None:
        assert first.scaler.state_dict() == second.scaler.state_dict() and first.scaler.skipped > 0
    for part in ("buffers", "rng"):  # each of them is needed
        third = replica(**options)
        third.flat.values.copy_(values)
        third.load_state_dict({**state, part: third.state_dict()[part]})
        if part == "rng":
            assert losses(third, 13, 24) != whole[13:]
        else:  # not used in training
            losses(third, 13, 24)
            assert not torch.equal(third.model[1].running_mean, second.model[1].running_mean)


def test_a_state_of_something_else_is_refused(replica: Any) -> None:
    one = replica()
    state = one.state_dict()
    for wrong, message in (
        ({}, "has the keys buffers, scaler, carried, rng"),
        ({**state, "scaler": {"scale": 1.0, "good": 0, "skipped": 0}}, "only fp16 has one"),
        ({**state, "buffers": {}}, "a model's buffers keeps"),
        ({**state, "rng": {**state["rng"], "cuda": state["rng"]["cpu"]}}, "is not one of cpu"),
    ):
        with pytest.raises(ValueError, match=message):
            one.load_state_dict(wrong)


def test_what_a_model_carries_is_in_the_state(replica: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Carrying(nn.Linear):
        hidden = torch.zeros(2)

        def copy_carried(self) -> dict[str, torch.Tensor]:
            return {"hidden": self.hidden}

        def carry(self, carried: dict[str, torch.Tensor]) -> None:
            self.hidden = carried["hidden"]

    monkeypatch.setattr(models, "build", lambda *_: Carrying(2, 2))
    first, second = replica(), replica()
    first.model.hidden = torch.ones(2)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.model.hidden, torch.ones(2))


def test_a_scale_is_taken_off_exactly() -> None:
    scaler = LossScaler(LossScale(initial=2.0**30))
    gradients = torch.randn(1000)
    scaled = gradients * 2.0**30
    assert scaler.unscale(scaled) and torch.equal(scaled, gradients)
    for value in (math.inf, -math.inf, math.nan):
        assert not scaler.unscale(torch.tensor([1.0, value, 2.0]))
    assert not scaler.unscale(torch.tensor([-math.inf, 2.0]))


@pytest.mark.mpi
def test_an_overflow_on_one_rank_makes_all_leave_the_step_out(tmp_path: Path) -> None:
    run_ranks(2, "scaling", str(tmp_path), module="tests.trainers.ranks.replica")


def test_one_sample_of_one_number_a_channel_is_one_line(replica: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(192), nn.Linear(192, 10))
    monkeypatch.setattr(models, "build", lambda *_: vectors)
    one = replica(batch={"size": 2})
    with pytest.raises(UsageError, match="batch.size=2: a worker's part of a batch is one sample, .*; valid is"):
        one.compute_gradient(Batch(*blobs(1, 0), 1), Stopwatch())
    assert one.compute_gradient(Batch(*blobs(2, 0), 2), Stopwatch()).read()[0] > 0


def test_what_cannot_be_compiled_is_one_line(replica: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise error("no compiler\nthat works")

    error = type("BackendCompilerFailed", (RuntimeError,), {"__module__": "torch._dynamo.exc"})
    monkeypatch.setattr(torch, "compile", lambda model: fail)
    with pytest.raises(UsageError) as raised:
        replica(compile=True).compute_gradient(next(Blobs().read_epoch(1)), Stopwatch())
    assert str(raised.value) == "compile=true: no compiler; valid is false for this model on this machine"
    monkeypatch.setattr(torch, "compile", lambda model: lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # an error of the model itself
        replica(compile=True).compute_gradient(next(Blobs().read_epoch(1)), Stopwatch())


def test_a_model_of_torchs_own_modules_is_compiled_too(replica: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`small` is an nn.Sequential; what is compiled is seen without a compiler."""
    from torch._dynamo import utils

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    utils.counters.clear()
    one = replica(compile=True)
    assert list(one.model.state_dict()) == list(small().state_dict())
    losses(one, steps=2)
    assert utils.counters["stats"]["calls_captured"] >= len(small())
    one.evaluate(Blobs())


@pytest.mark.slow
def test_a_compiled_model_trains_alike(replica: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = [layer for layer in small() if not isinstance(layer, nn.Dropout)]  # which draws otherwise when compiled
    monkeypatch.setattr(models, "build", lambda *_: nn.Sequential(*copy.deepcopy(exact)))
    plain, compiled = losses(replica()), losses(replica(compile=True))
    assert compiled == pytest.approx(plain, rel=0.01)
