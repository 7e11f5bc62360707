"""Units that leave during backward: the same numbers to the bit, in the same order, and times that add up."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from tests.trainers.start_ranks import MONITORED, run_ranks
from trainers.devices.stopwatch import Stopwatch
from trainers.gradients.arrivals import Arrivals
from trainers.gradients.flat import Flat, Unit

MODULE = "tests.trainers.ranks.overlap"


EVERY_LANE = "none fp16 intsgd thc qsgd topk terngrad powersgd acp_sgd gtopk"


@pytest.mark.mpi
def test_overlap_changes_no_bit_of_any_number() -> None:
    """And parts have the mean of the decoded payloads, and the bytes that MPI has sent; an error comes to light."""
    each = [f"{what} {overlap} {EVERY_LANE}" for what in ("means", "traffic") for overlap in ("false", "true")]
    run_ranks(3, *" + ".join(["alike", *each, "failing"]).split(), module=MODULE, **MONITORED)


class Crossed(nn.Module):
    """Uses its layers in another order than it has them, and one not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.unused, self.first = nn.Linear(3, 2), nn.Linear(9, 9), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


@pytest.mark.parametrize(("granularity", "pieces"), [("layer", 1), ("bucket", 1), ("model", 1), ("model", 3)])
def test_units_leave_in_one_order_whatever_order_backward_takes(granularity: str, pieces: int) -> None:
    model = Crossed()
    flat = Flat(model)
    units = flat.cut_units(granularity, 40 / 2**20, pieces)  # with pieces, parameters lie in two units
    assert granularity != "model" or len(units) == pieces
    left: list[tuple[int, torch.Tensor]] = []

    def submit(unit: Unit) -> None:
        left.append((unit.index, unit.gradient.clone()))

    arrivals = Arrivals(flat, units, submit)
    expected = [unit.index for unit in reversed(units)]
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for expecting in (True, False, True):
        left.clear()
        flat.gradients.zero_()
        model(x).sum().backward()  # a first piece of the batch: nothing may leave
        assert not left
        if expecting:
            arrivals.expect()
        model(x).square().sum().backward()
        early = [index for index, _ in left]
        # `first` is complete last, but stands before all others; `unused` never is
        whole = {"layer": 2, "bucket": None, "model": None if pieces > 1 else 0}[granularity] if expecting else 0
        assert whole is None or len(early) == whole
        assert early == expected[: len(early)]
        arrivals.flush()
        assert [index for index, _ in left] == expected
        assert all(torch.equal(gradient, units[index].gradient) for index, gradient in left)


def test_nothing_arrives_after_close() -> None:
    model = nn.Linear(4, 3)
    flat = Flat(model)
    left: list[str] = []
    arrivals = Arrivals(flat, flat.cut_units("layer", 1.0), lambda unit: left.append(unit.name))
    for arrived in (2, 2):
        arrivals.expect()
        model(torch.ones(2, 4)).sum().backward()
        assert len(left) == arrived
        arrivals.close()


def test_a_gradient_that_comes_twice_is_an_error() -> None:
    model = nn.Linear(4, 3)
    flat = Flat(model)
    arrivals = Arrivals(flat, flat.cut_units("layer", 1.0), lambda unit: None)
    arrivals.expect()
    loss = model(torch.ones(2, 4)).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="was computed twice in one backward"):
        loss.backward()


def test_no_second_counts_twice_where_one_phase_interrupts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    watch = Stopwatch()
    for _ in watch.time_steps("data", [0]):
        with watch("backward"):
            now[0] += 1
            with watch("encode"):
                now[0] += 10
                with watch("communicate"):
                    now[0] += 100
                now[0] += 20
            with watch("encode"):
                now[0] += 30
            now[0] += 2
        with watch("decode"):
            now[0] += 1000
        assert watch.seconds == {"data": 0, "backward": 3, "encode": 60, "communicate": 100, "decode": 1000}
        assert watch.measure_step() == 1163
