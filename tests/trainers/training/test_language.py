"""Language models against what is known of a text, on real ranks."""

from __future__ import annotations

import pytest

from tests.trainers.start_ranks import run_ranks


@pytest.mark.mpi
def test_a_gpt_learns_a_generated_text_but_is_not_better_than_its_entropy() -> None:
    run_ranks(2, "least_loss", module="tests.trainers.ranks.language")
