"""Tensors of more than 2^31 elements, for real: `python -m pytest tests/compressors/test_beyond_32_bits.py -m slow`.

Each test takes up to half a minute, and as much memory as the payload: the tensor's 8 GiB are zeros that are mapped,
not stored, and what is decoded into lies over one piece of memory again and again, but for its end. There all elements
are that are not zero, and what comes out must be like what went in; before, nothing may have been written.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compressors import Compressor, build
from compressors.conformance.cases import draw_gaussian, format_case, make_key
from compressors.sparsification.randomk import BlockRandomK

pytestmark = pytest.mark.slow

FIRST = 2**31
TAIL = 2**20
COUNT = FIRST + TAIL
PIECE = 2**28  # bytes
SPARE = 6 * 2**30
"""Bytes that must be free, the payload aside."""
FEW = 1e5 / COUNT
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("qsgd", {}),
    ("qsgd", {"bucket_size": 2**31 - 1, "levels": 1}),
    ("qsgd", {"coding": "elias"}),
    ("terngrad", {"clip": 0.0}),
    ("onebit", {}),
    ("onebit", {"bucket_size": None}),
    ("natural", {}),
    ("natural_dithering", {}),
    ("nuqsgd", {}),
    ("int8", {"scheme": "symmetric", "bits": 4}),
    ("dynamic8", {}),
    ("fp8", {}),
    ("eden", {}),
    ("thc", {}),
    ("intsgd", {}),
    ("quantile_sketch", {"bins": 4}),
    ("sign", {}),
    ("sign_norm", {}),
    ("topk", {"ratio": 5 * FEW}),
    ("topk", {"ratio": 5 * FEW, "indices": "bitmap", "values": "qsgd"}),
    ("gtopk", {"ratio": FEW, "indices": "int32"}),
    ("randomk", {"ratio": 0.01}),
    ("block_randomk", {"ratio": 0.01}),
    ("thresholdv", {"indices": "delta"}),
    ("adaptive_threshold", {}),
    ("gaussiank", {"ratio": FEW}),
    ("dgc", {"ratio": FEW, "sample_ratio": 0.01}),
    ("redsync_trimmed", {"ratio": FEW}),
    ("redsync_threshold", {"ratio": FEW}),
    ("sidco", {"ratio": FEW}),
    ("atomo", {"ratio": FEW}),
    ("bf16", {}),
]


def available() -> int:
    """Bytes of memory that this machine can still give."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    found = torch.from_numpy(np.zeros(COUNT, np.float32))  # pages that are only read are all the same one
    found[FIRST:] = draw_gaussian((TAIL,))
    return found


@pytest.fixture(scope="module")
def out() -> Iterator[torch.Tensor]:
    """Float32 as many as `x`; up to the last whole piece before FIRST the same PIECE bytes over and over."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]]
    protection, fixed = mmap.PROT_READ | mmap.PROT_WRITE, 0x10
    failed = ctypes.c_void_p(-1).value
    start = libc.mmap(None, 4 * COUNT, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert start != failed, os.strerror(ctypes.get_errno())
    shared = os.memfd_create("piece")
    os.ftruncate(shared, PIECE)
    for offset in range(0, 4 * FIRST, PIECE):
        assert libc.mmap(start + offset, PIECE, protection, mmap.MAP_SHARED | fixed, shared, 0) != failed
    os.close(shared)
    yield torch.from_numpy(np.ctypeslib.as_array((ctypes.c_float * COUNT).from_address(start)))
    libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(4 * COUNT))


@pytest.mark.parametrize("method", METHODS, ids=format_case)
def test_elements_beyond_two_to_the_31_arrive(
    method: tuple[str, dict[str, Any]], x: torch.Tensor, out: torch.Tensor
) -> None:
    compressor = build(method[0], **method[1])
    size = compressor.payload_size(x.shape)
    if available() < SPARE + (size or 0):
        pytest.skip("too little memory")
    end, before = out[FIRST:], out[: PIECE // 4]
    end.zero_()
    before.zero_()
    one = make_key(1)
    if isinstance(compressor, BlockRandomK):  # a key whose run goes over the end
        one = next(
            make_key(step)
            for step in range(10**4)
            if compressor.start(COUNT, make_key(step).share()) > FIRST - 2 * TAIL
        )
    payload = compressor.compress(x, one)
    assert size is None or len(payload) == size
    compressor.decompress_add(payload, out, one)
    check(compressor, x[FIRST:], end, before)


def check(compressor: Compressor, sent: torch.Tensor, end: torch.Tensor, before: torch.Tensor) -> None:
    if compressor.name == "bf16":
        assert torch.equal(end, sent.bfloat16().float())
    likeness = float(torch.nn.functional.cosine_similarity(end.double(), sent.double(), dim=0))
    kept = float((end != 0).sum()) / TAIL
    # what is kept by chance alone is as much of the energy as of the elements
    assert likeness > (0.5 * kept**0.5 if compressor.shared_draws else 0.15), (likeness, kept)
    assert kept > 0.0
    if compressor.name not in ("sign", "sign_norm", "onebit"):  # with which zeros become something else
        assert not before.any()
