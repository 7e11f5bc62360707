"""Hooks of torch's own data parallelism have the numbers of our exchanges, on real ranks over gloo."""

from __future__ import annotations

import pytest

from tests.trainers.start_ranks import run_ranks

MODULE = "tests.trainers.ranks.hooks"

LAYERS = "none fp16 bf16 qsgd topk terngrad intsgd powersgd acp_sgd dion sign adaptive_threshold"
BUCKETS = "none fp16 qsgd topk intsgd terngrad sign sidco batched_powersgd"


@pytest.mark.thorough
@pytest.mark.mpi
def test_numbers_and_bytes_are_those_of_mpi() -> None:
    """To the bit with two workers, whether layers or buckets are compressed, whose memories DDP cuts anew."""
    words = "require_mpi layer residual auto topk powersgd + require_mpi bucket residual auto qsgd + resume + kinds"
    run_ranks(2, *words.split(), module=MODULE)


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize("workers", [2, 4])
def test_numbers_of_all_kinds_are_those_of_mpi(workers: int) -> None:
    words = [
        f"require_mpi layer none auto {LAYERS}",
        "require_mpi layer residual auto topk qsgd powersgd gtopk sign_norm",
        "require_mpi layer scaled_residual auto topk",
        "require_mpi layer ef21 auto topk",
        "require_mpi layer dgc auto topk",
        "require_mpi layer none allgather none intsgd qsgd",
        f"require_mpi bucket none auto {BUCKETS}",
        "require_mpi bucket residual auto topk qsgd",
        "require_mpi bucket scaled_residual auto topk",
        "require_mpi bucket ef21 auto topk",
        "require_mpi layer none sharded none qsgd topk sign",
        "require_mpi layer residual sharded topk qsgd adaptive_threshold",
        "require_mpi bucket none sharded qsgd",
        *(["subgroups", "resume"] if workers == 4 else []),
    ]
    run_ranks(workers, *" + ".join(words).split(), module=MODULE)


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize(("workers", "words"), [(2, "shards"), (4, "shards + nodes")])
def test_fsdp2_has_the_mean_of_what_was_sent(workers: int, words: str) -> None:
    run_ranks(workers, *words.split(), module=MODULE)
