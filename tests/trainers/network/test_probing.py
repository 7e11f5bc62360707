"""What a probe measures, and how its ranks agree on that."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainers.start_ranks import OPENMPI, run_ranks
from trainers.network import collective_times
from trainers.network.clocks import is_crowded
from trainers.network.collective_times import Timing
from trainers.network.piecewise_fit import Line


@pytest.mark.mpi
@pytest.mark.parametrize("workers", [2, 3])
def test_the_collectives_of_training_are_probed(workers: int) -> None:
    functions = "operations + left_out + no_time + clock + probe 3 4096"
    run_ranks(workers, *functions.split(), module="tests.trainers.ranks.probing")


def test_the_algorithm_is_the_one_that_training_is_given() -> None:
    given = OPENMPI.variables
    assert (
        collective_times.read_algorithm("allreduce", given)
        == collective_times.read_algorithm("allgather", given)
        == "ring"
    )
    assert (
        collective_times.read_algorithm("bcast", given) is None
        and collective_times.read_algorithm("alltoall", given) is None
    )
    assert collective_times.read_algorithm("allreduce", {**given, "OMPI_MCA_coll_tuned_use_dynamic_rules": "0"}) is None
    named = {**given, "OMPI_MCA_coll_tuned_bcast_algorithm": "binomial"}
    assert collective_times.read_algorithm("bcast", named) == "binomial"
    assert collective_times.read_algorithm("allreduce", {}) is None


def test_a_median_of_more_repeats_is_surer() -> None:
    few, many = (Timing(4, 1.0, 0.9, 1.1, repeats) for repeats in (4, 16))
    assert few.error == 2 * many.error == pytest.approx(1.25 * 0.2 / 1.35 / 2)


def test_repeats_that_began_apart_do_not_count() -> None:
    apart = np.array([9.0, 1, 8, 2, 7, 3, 6, 4])
    assert sorted(collective_times.find_most_together(apart)) == [1, 3, 5, 7]
    assert (
        len(collective_times.find_most_together(np.ones(3))) == 3
        and len(collective_times.find_most_together(np.ones(1))) == 1
    )


def test_lines_are_told_in_bytes() -> None:
    points = [Timing(4 * 2**power, 1.0, 1.0, 1.0, 3) for power in range(8)]
    lines = [Line(0, 3, 1.0, 0.0, 0.01), Line(4, 7, 0.5, 1e-3, 0.02, (5,))]
    assert collective_times.find_switch_points(lines, points) == [45]  # between 32 and 64
    assert collective_times.describe_line(lines[1], points, "ring") == {
        "from_bytes": 64,
        "to_bytes": 512,
        "alpha_s": 0.5,
        "beta_s_per_byte": 1e-3,
        "residual": 0.02,
        "outliers": [128],
        "algorithm": "ring",
    }


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        ([{0}, {1}], False),  # pinned, each to its own
        ([{0}, {0}], True),
        ([{0, 1}, {0, 1}], False),
        ([{0, 1}, {0, 1}, {0, 1}], True),
        ([{0}, {1}, {0, 1}], True),
    ],
)
def test_ranks_that_share_a_core_are_crowded(cores: list[set[int]], expected: bool) -> None:
    assert is_crowded([("a", frozenset(each)) for each in cores]) == expected
    assert not is_crowded([(str(number), frozenset(each)) for number, each in enumerate(cores)]), (
        "machines of their own"
    )
