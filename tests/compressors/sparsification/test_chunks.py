"""Chunk-wise top-k and DeMo beyond the conformance suite: published figures, the selection, the transform, signs."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from compressors import InvalidParameter, build
from compressors.conformance.cases import draw_gaussian, make_key
from compressors.kernels import backend
from compressors.memories import build as build_memory
from compressors.sparsification.blocks import cosines, grids
from compressors.sparsification.chunk_topk import ChunkTopK
from compressors.sparsification.demo import DeMo
from compressors.sparsification.positions import HEADER

NANOGPT_CHAR = [(65, 384), (256, 384), *6 * [(1152, 384), (384, 384), (1536, 384), (384, 1536)], *13 * [(384,)]]


def list_olmo(d: int, feedforward: int) -> list[tuple[int, int]]:
    """The matrices of OLMo as DeMo trains it: tied embedding, 16 layers with fused qkv and fused SwiGLU, no vectors."""
    return [(50304, d), *16 * [(3 * d, d), (d, d), (2 * feedforward, d), (d, feedforward)]]


@pytest.mark.parametrize(("k", "kept", "packed"), [(64, 174_336, 305_088), (32, 87_168, 152_544)])
def test_nanogpt_keeps_what_sparseloco_keeps(k: int, kept: int, packed: int) -> None:
    compressor = ChunkTopK(k=k, indices="packed", values="statistical", values_options={"bits": 2})
    assert sum(math.prod(shape) for shape in NANOGPT_CHAR) == 10_745_088
    assert sum(map(compressor.count_kept_of, NANOGPT_CHAR)) == kept
    assert kept * (12 + 2) == 8 * packed
    # Blocks of fewer elements need fewer bits, and those that are kept whole none; a unit has a header and four means.
    sizes = [compressor.payload_size(shape) for shape in NANOGPT_CHAR]
    assert sum(size for size in sizes if size is not None) <= packed + (HEADER + 16) * len(NANOGPT_CHAR)


def test_the_rate_of_sparseloco() -> None:
    compressor = ChunkTopK(k=64, indices="packed", values="statistical", values_options={"bits": 2})
    shape = (8192, 8192)
    size = compressor.payload_size(shape)
    assert size is not None
    assert 4 * math.prod(shape) / (size - HEADER - 16) == pytest.approx(4096 * 32 / (64 * 14), rel=1e-12)
    assert pytest.approx(146.29, abs=0.005) == 4096 * 32 / (64 * 14)


@pytest.mark.parametrize(
    ("matrices", "parameters", "blocks", "bytes_of"),
    [
        (list_olmo(1024, 4096), 319_946_752, 78_112, {32: 29_995_008, 16: 14_997_504, 8: 7_498_752, 1: 937_344}),
        (list_olmo(2048, 8192), 1_176_764_416, 287_296, {32: 110_321_664, 16: 55_160_832, 8: 27_580_416, 1: 3_447_552}),
    ],
)
def test_blocks_and_bytes_of_demo(
    matrices: list[tuple[int, int]], parameters: int, blocks: int, bytes_of: dict[int, int]
) -> None:
    assert sum(map(math.prod, matrices)) == parameters
    for k, size in bytes_of.items():
        compressor = DeMo(k=k, indices="packed")
        kept = sum(map(compressor.count_kept_of, matrices))
        assert (kept, 12 * kept) == (blocks * k, size)
        ours = [compressor.payload_size(shape) for shape in matrices]
        packed = sum(-(-12 * compressor.count_kept_of(shape) // 8) for shape in matrices)
        assert sum(one for one in ours if one is not None) == 4 * kept + packed + HEADER * len(matrices)


def test_divisors_of_awkward_sides() -> None:
    assert [grids.find_divisor(side, 64) for side in (50257, 577, 4096, 1)] == [29, 1, 64, 1]
    shape = (577, 128)
    assert ChunkTopK(k=64).count_kept_of(shape) == math.prod(shape)
    assert ChunkTopK(k=64, cut="flat").count_kept_of(shape) == 64 * -(-math.prod(shape) // 4096)


@pytest.mark.parametrize("k", [1, 5, 40, 47])
def test_each_block_keeps_its_largest(k: int) -> None:
    x = draw_gaussian((24, 40)).round(decimals=1)  # with ties
    compressor = ChunkTopK(block=8, k=k)
    sent = compressor.decompress(compressor.compress(x, make_key()), x, make_key())
    for top in range(0, 24, 8):
        for left in range(0, 40, 8):
            block = x[top : top + 8, left : left + 8].flatten()
            kept = block.abs().sort(descending=True, stable=True).indices[:k]
            expected = torch.zeros(64).index_copy(0, kept, block[kept])
            assert torch.equal(sent[top : top + 8, left : left + 8].flatten(), expected)


def test_kernels_select_the_same_in_blocks_of_changing_size_of_values() -> None:
    x = draw_gaussian((128, 192)) * torch.logspace(-30, 30, 192)
    x[:64, 64:128] = 0.0
    found = []
    for kernels in ("numba", "torch"):
        with backend.use(kernels):
            found.append(grids.select(x.view(-1), grids.cut(x.shape, 64, 64)))
    assert torch.equal(*found)


def test_the_transform_is_the_orthonormal_dct() -> None:
    basis = cosines.build_basis(64, torch.device("cpu")).double()
    assert torch.allclose(basis @ basis.t(), torch.eye(64, dtype=torch.float64), atol=1e-6)
    x = torch.ones(64, 64)
    parts = grids.cut(x.shape, 64, 1)
    found = cosines.transform(x.view(-1), parts)
    assert found[0] == pytest.approx(64.0) and found[1:].abs().max() < 1e-4
    # One cosine along the columns is one coefficient: row 0, column 3.
    wave = basis[3].float().repeat(64, 1)
    assert cosines.transform(wave.view(-1), parts).abs().argmax() == 3
    back = cosines.transform(cosines.transform(wave.view(-1), parts), parts, inverse=True)
    assert torch.allclose(back.view(64, 64), wave, atol=1e-5)


@pytest.mark.parametrize("shape", [(192, 4096), (70, 70), (100_000,), (5, 40_000), ()])
def test_pieces_are_whole_blocks_and_cover_the_tensor(shape: tuple[int, ...]) -> None:
    x = draw_gaussian(shape)
    parts, flat = grids.cut(shape, 64, 8), x.reshape(-1)
    pieces = cosines.cut(parts, x.device)
    assert [0, *(piece.stop for piece in pieces)] == [*(piece.start for piece in pieces), len(flat)]
    assert sum(piece.blocks.number for piece in pieces) == sum(part.blocks.number for part in parts)
    inside = [
        grids.select(flat[one.start : one.stop], [dataclasses.replace(one, start=0)]) + one.start for one in pieces
    ]
    assert torch.equal(torch.cat(inside), grids.select(flat, parts))


def test_the_memory_of_signs_lets_go_of_the_exact_coefficients() -> None:
    x = draw_gaussian((16, 16))
    memory = build_memory("scaled_residual", decay=0.5)
    memory.begin(0.1, 1, lambda: 0.0)
    demo = build("distro", block=8)
    payload = demo.compress(memory.compensate(0, x), make_key())
    memory.update(make_key(), x, payload, demo)
    exact = DeMo(block=8, k=4)
    expected = x - exact.decompress(exact.compress(x, make_key()), x, make_key())
    assert torch.allclose(memory.compensate(0, torch.zeros_like(x)), 0.5 * expected, atol=1e-5)
    parts = demo.divide(x.shape)  # type: ignore[attr-defined]
    received = cosines.transform(demo.decompress(payload, x, make_key()).view(-1), parts)
    assert sorted(received.round().abs().tolist()) == [0.0] * 240 + [1.0] * 16


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("chunk_topk", {"k": 17, "block": 4}, "k"),
        ("demo", {"k": 4097}, "k"),
        ("chunk_topk", {"values": "mean"}, "values"),
        ("demo", {"signs": True, "values": "fp16"}, "values"),
    ],
)
def test_bad_options_are_refused(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        build(name, **options)
