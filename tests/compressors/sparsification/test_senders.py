"""The mean over those who sent an element: against plain torch, as the code of DeMo and SparseLoCo forms it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from compressors import Compressor, CorruptPayload, build
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend
from compressors.sparsification.positions import HEADER

SHAPE = (24, 40)
SIDE = 8
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("topk", {"ratio": 0.2}),
    ("topk", {"ratio": 0.2, "values": "fp16"}),
    ("topk", {"ratio": 0.1, "values": "qsgd", "indices": "bitmap"}),
    ("topk", {"ratio": 0.3, "values": "mean"}),
    ("topk", {"ratio": 1.0}),
    ("dgc", {"ratio": 0.05, "sample_ratio": 0.1}),
    ("thresholdv", {"threshold": 1.5}),
    ("thresholdv", {"threshold": 9.0}),
    ("redsync_threshold", {"ratio": 0.1}),
    ("gaussiank", {"ratio": 0.1}),
    ("chunk_topk", {"k": 5, "block": SIDE}),
    ("chunk_topk", {"k": 3, "block": SIDE, "values": "statistical", "values_options": {"bits": 2}}),
]


def compress_all(compressor: Compressor, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [compressor.compress(x, make_key(1, worker=worker)) for worker, x in enumerate(tensors)]


def average(compressor: Compressor, payloads: list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    mean = torch.full_like(like, 7.0)  # what was there does not matter
    compressor.average(payloads, mean, make_key(1, worker=1))
    return mean


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(("name", "options"), METHODS)
def test_elements_are_averaged_over_those_who_sent_them(name: str, options: dict[str, Any], workers: int) -> None:
    compressor = build(name, **options, mean="senders")
    tensors = [draw_gaussian(SHAPE, seed) for seed in range(workers)]
    payloads = compress_all(compressor, tensors)
    total, count = torch.zeros(SHAPE), torch.zeros(SHAPE)
    for worker, payload in enumerate(payloads):
        key = make_key(1, worker=worker)
        compressor.decompress_add(payload, total, key)
        kept, _ = compressor.unpack_at(payload, SHAPE, torch.device("cpu"), key)  # type: ignore[attr-defined]
        count.view(-1)[torch.arange(total.numel()) if kept is None else kept] += 1
    expected = torch.where(count > 0, total / count.clamp(min=1), 0.0)
    mean = average(compressor, payloads, total)
    assert torch.equal(mean, expected)
    assert bool((count == 0).any()) == (options.get("ratio") != 1.0)


@pytest.mark.parametrize("workers", [2, 3])
def test_top_k_by_plain_torch(workers: int) -> None:
    tensors = [draw_gaussian((500,), seed) for seed in range(workers)]
    compressor = build("topk", ratio=0.1, mean="senders")
    kept = [x.abs().topk(50).indices for x in tensors]
    expected = torch.zeros(500).scatter_reduce_(
        0,
        torch.cat(kept),
        torch.cat([x[one] for x, one in zip(tensors, kept, strict=True)]),
        "mean",
        include_self=False,
    )
    mean = average(compressor, compress_all(compressor, tensors), tensors[0])
    torch.testing.assert_close(mean, expected)
    plain = build("topk", ratio=0.1)
    of_all = sum(plain.decompress(one, mean, make_key()) for one in compress_all(plain, tensors)) / workers
    assert mean.norm() > 1.2 * of_all.norm()  # few send the same elements


def list_blocks(x: torch.Tensor) -> torch.Tensor:
    """The blocks of a matrix: (blocks, side, side)."""
    rows, columns = x.shape
    return x.view(rows // SIDE, SIDE, columns // SIDE, SIDE).transpose(1, 2).reshape(-1, SIDE, SIDE)


def join_blocks(blocks: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    rows, columns = shape
    return blocks.view(rows // SIDE, columns // SIDE, SIDE, SIDE).transpose(1, 2).reshape(shape)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("signs", [False, True])
def test_coefficients_of_demo_by_plain_torch(workers: int, signs: bool) -> None:
    """Coefficients are averaged, then transformed back; with signs +-1 are."""
    angles = torch.arange(SIDE)[:, None] * (2 * torch.arange(SIDE) + 1) * math.pi / (2 * SIDE)
    basis = angles.double().cos() * math.sqrt(2 / SIDE)
    basis[0] = math.sqrt(1 / SIDE)
    kept, values = [], []
    tensors = [draw_gaussian(SHAPE, seed) for seed in range(workers)]
    for x in tensors:
        flat = (basis @ list_blocks(x).double() @ basis.T).flatten(1)
        kept.append(flat.abs().topk(4).indices)
        values.append(flat.gather(1, kept[-1]))
    found = torch.cat(values, 1)
    means = torch.zeros(len(found), SIDE * SIDE, dtype=torch.float64).scatter_reduce_(
        1, torch.cat(kept, 1), found.sign() if signs else found, "mean", include_self=False
    )
    expected = join_blocks(basis.T @ means.view(-1, SIDE, SIDE) @ basis, SHAPE)
    compressor = build("demo", k=4, block=SIDE, signs=signs, mean="senders")
    mean = average(compressor, compress_all(compressor, tensors), tensors[0])
    torch.testing.assert_close(mean, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "options"), METHODS)
def test_all_kernels_and_dtypes_give_the_same_mean(name: str, options: dict[str, Any]) -> None:
    tensors = [draw_gaussian(SHAPE, seed) for seed in range(3)]
    means = []
    for kernels in ("auto", "torch"):
        with backend.use(kernels):
            compressor = build(name, **options, mean="senders")
            payloads = compress_all(compressor, tensors)
            means.append(average(compressor, payloads, tensors[0]))
    assert torch.equal(*means)
    double = average(compressor, payloads, tensors[0].double())
    assert torch.equal(double.float(), means[0])


def test_positions_are_sent_where_values_without_them_were_shorter() -> None:
    x = draw_gaussian((400,))
    for values in ("fp32", "fp16"):
        plain, senders = (build("topk", ratio=0.99, values=values, mean=mean) for mean in ("all", "senders"))
        payload = senders.compress(x, make_key())
        assert len(plain.compress(x, make_key())) < len(payload) <= senders.payload_bound((400,))
        assert len(senders.find_sent(payload, 400, make_key())) == 396  # type: ignore[attr-defined]
    everything = build("topk", ratio=1.0, mean="senders")
    assert len(everything.compress(x, make_key())) == HEADER + 4 * 400


@pytest.mark.parametrize(("name", "options"), [*METHODS, ("demo", {"k": 4}), ("demo", {"k": 4, "signs": True})])
def test_what_a_worker_has_not_finite_is_seen_in_the_mean(name: str, options: dict[str, Any]) -> None:
    compressor = build(name, **options, mean="senders")
    tensors = [draw_gaussian(SHAPE, seed) for seed in range(3)]
    tensors[1][3, 4] = math.nan
    assert not average(compressor, compress_all(compressor, tensors), tensors[0]).isfinite().all()


def test_corrupt_payloads_are_refused() -> None:
    compressor = build("topk", mean="senders")
    payload = compressor.compress(draw_gaussian(SHAPE), make_key())
    with pytest.raises(CorruptPayload):
        average(compressor, [payload, payload[:-1]], torch.zeros(SHAPE))


def test_others_form_the_mean_of_what_payloads_decode_to() -> None:
    assert not build("topk").averages and not build("randomk").averages
    with pytest.raises(NotImplementedError, match="qsgd"):
        build("qsgd").average([], torch.zeros(3), make_key())
