"""PowerSGD's kernels for all units of a step, in Triton: the results of numba up to rounding, few launches."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from compressors import Key, build
from compressors.commands.bench_timing import Gradients, Worker
from compressors.conformance.cases import draw_gaussian
from compressors.kernels import backend
from compressors.low_rank.powersgd import BatchedPowerSGD, PowerSGD
from tests.compressors.kernels.test_cuda import DEVICE, MODULES, triton_for_every_tensor

__all__ = ["triton_for_every_tensor"]

SHAPES = [(24, 40), (7,), (24, 40), (12, 5, 3, 3), (70, 24), (), (9, 300), (3, 0)]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that were started."""
    names: list[str] = []
    original = MODULES["powersgd"].launch

    def launch(kernel: Any, *arguments: Any, **constants: Any) -> None:
        names.append(kernel.fn.__name__)
        original(kernel, *arguments, **constants)

    monkeypatch.setattr(MODULES["powersgd"], "launch", launch)
    return names


def run(compressor: PowerSGD, gradients: Sequence[Sequence[torch.Tensor]], device: str) -> list[list[torch.Tensor]]:
    """What is added to the units in each step, and what overwrites them in every second."""
    found = []
    for step, units in enumerate(gradients, start=1):
        batch = [(x.to(device), Key(1, 0, step, 3 * unit)) for unit, x in enumerate(units)]
        outs = [(torch.ones_like(x), key) for x, key in batch]
        compressor.decompress_together(compressor.reduce_alone(batch), outs, replace=step % 2 == 0)
        found.append([out.cpu() for out, _ in outs])
    return found


def close(found: Sequence[Sequence[torch.Tensor]], expected: Sequence[Sequence[torch.Tensor]]) -> bool:
    return all(
        torch.allclose(one, other, atol=1e-4, equal_nan=True)
        for step, wanted in zip(found, expected, strict=True)
        for one, other in zip(step, wanted, strict=True)
    )


@pytest.mark.parametrize(
    "compressor",
    [
        PowerSGD(),
        PowerSGD(rank=4, epsilon=1e-3, iterations=2, error="local"),
        PowerSGD(rank=3, warm_start=False, start_step=2),
        PowerSGD(orthogonalisation="qr"),
        PowerSGD(rank=9),
        BatchedPowerSGD(rank=1),
    ],
    ids=str,
)
def test_steps_are_those_of_numba(compressor: PowerSGD) -> None:
    """Also after a step of zeros and one with NaN, which leave nothing to start from."""
    gradients = [[draw_gaussian(shape, 100 * step + unit) for unit, shape in enumerate(SHAPES)] for step in range(5)]
    gradients[1] = [torch.zeros(shape) for shape in SHAPES]
    gradients[3] = [torch.full(shape, math.nan) for shape in SHAPES]
    found = run(compressor, gradients, DEVICE)
    grouped = compressor.rank <= MODULES["powersgd"].MOST_RANK
    assert backend.used["powersgd"] == ("triton" if grouped else "torch")
    compressor.unit_tensors.clear()
    with backend.use("torch"):
        assert close(found, run(compressor, gradients, "cpu"))


def test_long_vectors_are_read_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    gradients = [[draw_gaussian(shape, 100 * step + unit) for unit, shape in enumerate(SHAPES)] for step in range(3)]
    gradients[1][3:] = [torch.zeros(shape) for shape in SHAPES[3:]]
    found = []
    for whole, block in ((16384, 8192), (64, 64)):
        monkeypatch.setattr(MODULES["powersgd"], "_WHOLE", whole)
        monkeypatch.setattr(MODULES["powersgd"], "_BLOCK", block)
        found.append(run(PowerSGD(rank=4, epsilon=1e-3), gradients, DEVICE))
    assert close(*found)


def test_launches_do_not_grow_with_the_units(launches: list[str]) -> None:
    counts = []
    for copies in (1, 5):
        compressor = PowerSGD()
        run(compressor, [[draw_gaussian(shape) for shape in copies * SHAPES]], DEVICE)
        counts.append(len(launches))
        launches.clear()
    assert counts == [6, 6]  # Q orthonormal, P, P orthonormal, Q by chunks and their sums; P Q^T


class Operations(TorchDispatchMode):
    """Counts torch's operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["powersgd", "batched_powersgd", "acp_sgd", "dion"])
def test_later_steps_do_not_wait(name: str) -> None:
    """Reading a number of a tensor on a GPU is a wait."""
    worker = Worker(build(name), Gradients([(24, 40), (24, 40), (7, 9), (64, 10)], DEVICE))
    worker.decode_and_finish()
    for _ in range(2):
        with Operations() as operations:
            worker.encode()
            worker.decode_and_finish()
        assert not operations.names["_local_scalar_dense"]


def test_bases_of_dion_are_found_by_shape() -> None:
    counts = []
    for copies in (1, 4):
        worker = Worker(build("dion"), Gradients(copies * [(24, 40)], DEVICE))
        with Operations() as operations:
            worker.encode()
            worker.decode()
        names = operations.names
        assert names["mm"] == 2 * copies and names["addmm_"] == copies
        counts.append([names[name] for name in ("bmm", "linalg_cholesky_ex", "linalg_vector_norm", "add_", "div_")])
    assert counts[0] == counts[1] and sum(counts[0]) < 20
