"""On a GPU, a step waits for the device only if its method's definition needs that."""

from __future__ import annotations

import pytest
import torch

from compressors import flags
from compressors.commands.bench_timing import Gradients, Worker
from compressors.commands.method_specs import parse
from compressors.random_key import Key

WITHOUT_WAITS = (
    *("none", "fp16", "bf16", "sign", "signum", "sign_norm", "sign_norm,scale=l2", "qsgd", "qsgd,norm=l2", "terngrad"),
    *("int8", "fp8", "dynamic8", "onebit", "natural", "natural_dithering", "nuqsgd"),
)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["powersgd", "powersgd,rank=4", "batched_powersgd", "acp_sgd", "dion"])
def test_low_rank_steps_never_wait(method: str) -> None:
    """But the first, in which Q is drawn on the host, and the shapes are sent to the GPU."""
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    worker = Worker(parse(method), Gradients([(240, 400), (240, 400), (7,), (512, 64, 3, 3)], "cuda"))
    for step in range(5):  # both gradients before the first that must not wait
        torch.cuda.set_sync_debug_mode("error" if step > 2 else "default")
        try:
            worker.encode()
            worker.decode_and_finish()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert worker.gradients.mean.isfinite().all()


@pytest.mark.gpu
@pytest.mark.parametrize("method", WITHOUT_WAITS)
def test_these_methods_never_wait(method: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    compressor = parse(method)
    x, mean = torch.randn(100_000, device="cuda"), torch.zeros(100_000, device="cuda")
    message = torch.zeros(compressor.payload_bound(x.shape), dtype=torch.uint8, device="cuda")
    for step in (1, 2):  # the first compiles
        key = Key(0, 0, step, 0)
        with flags.read_together():
            torch.cuda.set_sync_debug_mode("error" if step == 2 else "default")
            try:
                payload = compressor.compress(x, key, message)
                with flags.unread():
                    compressor.decompress_add(payload, mean, key, 0.25)
                compressor.decompress_add(payload, mean, key, 0.3)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    assert mean.isfinite().all()
