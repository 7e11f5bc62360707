"""Algorithms and optimizers on real ranks: laws, states, and runs from beginning to end."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from gradsweep.errors import UsageError
from gradsweep.options.parameters import InvalidParameter
from tests.trainers.configs import compose_config
from tests.trainers.start_ranks import run_ranks
from trainers.algorithms.fragments import cut_fragments
from trainers.config import run_config as configs
from trainers.gradients.flat import Unit
from trainers.options.algorithms import LocalSGD
from trainers.rules import training
from trainers.rules.resolve import resolve

MODULE = "tests.trainers.ranks.algorithms"


@pytest.mark.mpi
def test_laws_states_and_whole_runs_on_two_ranks(tmp_path: Path) -> None:
    run_ranks(2, "of_two", str(tmp_path), module=MODULE)


@pytest.mark.mpi
def test_laws_on_three_ranks() -> None:
    run_ranks(3, "of_three", module=MODULE)


@pytest.mark.mpi
@pytest.mark.parametrize("test", ["dion", "distributed_lion"])
def test_on_one_rank(test: str) -> None:
    run_ranks(1, test, module=MODULE)


LOCAL = {"algorithm": "local_sgd"}
RADIAL = {"algorithm": {"name": "local_sgd", "average": "radial_directional"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {**LOCAL, "optimizer": {"name": "onebit_adam"}},
            "algorithm=local_sgd with optimizer=onebit_adam: the optimizer exchanges mom",
        ),
        (
            {**LOCAL, "compressor": "sign"},
            "algorithm=local_sgd with compressor=sign: what workers send is applied with its magnitude, which dir",
        ),
        (
            {"algorithm": {**RADIAL["algorithm"], "delay": 1}, "exchange": {"name": "allreduce", "overlap": True}},
            "algorithm.average=radial_directional with exchange.overlap=True: all workers wait for the mean lengths",
        ),
        (
            {**RADIAL, "memory": "residual"},
            "algorithm.average=radial_directional with memory=residual: the memory would keep errors of directions",
        ),
        (
            {**RADIAL, "compressor": "topk"},
            "algorithm.average=radial_directional with compressor=topk: the few elements of a mean direction would get",
        ),
        (
            {**LOCAL, "memory": "dgc", "optimizer": "dgc_sgd"},
            "algorithm=local_sgd with memory=dgc: the changes of parameters have mom",
        ),
        (
            {**LOCAL, "clip": {"local_norm": 1.0}},
            "algorithm=local_sgd with clip.local_norm=1.0: workers send no gradients",
        ),
        (
            {**LOCAL, "batch_norm": "synchronised"},
            "algorithm=local_sgd with batch_norm=synchronised: the workers' models differ",
        ),
        (
            {**LOCAL, "max_steps": 7},
            "algorithm.steps=8: valid is an integer up to 7, or nothing would be averaged in 7 steps",
        ),
        (
            {"algorithm": {"name": "local_sgd", "delay": 3}, "max_steps": 10},
            "algorithm.steps=8: valid is an integer up to 7, or nothing would be averaged in 10 steps with",
        ),
        (
            {"algorithm": {"name": "local_sgd", "fragments": 2}, "exchange": "hierarchical"},
            "algorithm.fragments=2 algorithm.delay=0 with exchange=hierarchical: it exchanges the whole model at once",
        ),
        (
            {**LOCAL, "exchange": {"name": "allreduce", "overlap": True}},
            "algorithm.delay=0 with exchange.overlap=True: workers wait for the result",
        ),
        (
            {"algorithm": {"name": "local_sgd", "delay": 1}, "compressor": "intsgd"},
            "algorithm.fragments=1 algorithm.delay=1 algorithm.mixing=0.0 with compressor=intsgd: it looks at the mov",
        ),
        (
            {"algorithm": {"name": "local_sgd", "mixing": 0.5}, "compressor": "intsgd"},
            "algorithm.fragments=1 algorithm.delay=0 algorithm.mixing=0.5 with compressor=intsgd: it looks at the mov",
        ),
        (
            {**RADIAL, "exchange": {"name": "allreduce", "granularity": "model"}},
            "algorithm.average=radial_directional with exchange.granularity=model: it averages the changes of",
        ),
        (
            {"algorithm": {"name": "local_sgd", "from_step": 9}, "max_steps": 8},
            "algorithm.from_step=9: valid is an integer up to the number of steps (8)",
        ),
        (
            {"algorithm": {"name": "local_sgd", "from_step": 9}, "memory": "residual", "compressor": "topk"},
            "algorithm.from_step=9 with memory=residual: it keeps a part of gradients, which is no part of the "
            "changes of parameters; valid is memory=none or scaled_residual, or policy.start_step=9",
        ),
        (
            {"algorithm": {"name": "local_sgd", "from_step": 9}, "memory": "ef21", "compressor": "topk"},
            "algorithm.from_step=9 with memory=ef21",
        ),
        (
            {"algorithm": {"name": "local_sgd", "from_step": 9}, "memory": "loco", "compressor": "qsgd"},
            "algorithm.from_step=9 with memory=loco: it keeps a part of gradients",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(compose_config(**changes))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_what_goes_together_is_not_refused() -> None:
    post = {"algorithm": {"name": "local_sgd", "from_step": 9}, "compressor": "topk"}
    resolve(compose_config(**post, memory="residual", policy={"start_step": 9}))
    resolve(compose_config(**post, memory="scaled_residual"))
    resolve(compose_config(**LOCAL, max_steps=8, memory="ef21", compressor="topk"))


def test_a_run_that_is_too_short_is_refused_when_its_length_is_known() -> None:
    run = configs.parse(compose_config(algorithm={"name": "local_sgd", "steps": 500}))
    training.check_length(run, 8000)  # 8 epochs of 63 steps
    with pytest.raises(UsageError, match="algorithm.steps=500: valid is an integer up to 96, or nothing"):
        training.check_length(run, 1437)


def test_a_choice_that_comes_after_the_last_exchange_of_local_steps_is_refused() -> None:
    """The workers exchange after every 30 of 96 steps: three times."""
    options = {"option": "ratio", "values": [0.01, 0.1], "interval": 3}
    local = {"algorithm": {"name": "local_sgd", "steps": 30}, "compressor": "topk", "policy": {"lgreco": options}}
    with pytest.raises(UsageError, match=r"lgreco.interval=3: valid is an integer below the number of exchanges \(3\)"):
        training.check_length(configs.parse(compose_config(**local)), 1437)
    options["interval"] = 2
    training.check_length(configs.parse(compose_config(**local)), 1437)


def test_a_compressor_that_would_never_begin_is_refused_when_the_length_is_known() -> None:
    late = {"name": "powersgd", "start_step": 97}
    run = configs.parse(compose_config(compressor=late))
    training.check_length(run, 8000)
    with pytest.raises(UsageError, match=r"^compressor.start_step=97: valid is an integer up to the number of steps"):
        training.check_length(run, 1437)  # 8 epochs of 12 steps
    resolve(compose_config(compressor=late, max_steps=97))
    with pytest.raises(UsageError, match=r"^compressor.start_step=97: .* number of steps \(20\)"):
        resolve(compose_config(compressor=late, max_steps=20))
    one = configs.parse(compose_config(policy={"patterns": [{"match": "weight", "compressor": late}]}))
    with pytest.raises(UsageError, match=r"^policy.patterns: powersgd.start_step=97: valid is an integer up to"):
        training.check_length(one, 1437)


def test_nesterov_outside_needs_momentum() -> None:
    with pytest.raises(InvalidParameter, match="^outer_nesterov=True: valid is false where outer_momentum is 0"):
        LocalSGD(outer_nesterov=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 30, "fragments": 7}, "steps=30: valid is a multiple of algorithm.fragments=7, such as 28 or 35"),
        ({"steps": 3, "fragments": 4}, "steps=3: valid is a multiple of algorithm.fragments=4, such as 4"),
        ({"steps": 30, "fragments": 3, "delay": 10}, "delay=10: valid is an integer from 0 to 9, below the 10 steps"),
        (
            {"steps": 8, "delay": 9},
            "delay=9: valid is an integer from 0 to 7, below the 8 .*; or 8, which delays",
        ),
    ],
)
def test_fragments_and_delay_fit_the_steps(options: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        LocalSGD(**options)


@pytest.mark.parametrize("seed", range(20))
def test_fragments_have_about_the_same_size(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice([1, 10, 100, 1000]) for _ in range(draw.randint(5, 40))]
    units = [Unit(i, str(i), torch.empty(size), torch.empty(size)) for i, size in enumerate(sizes)]
    for count in range(1, len(units) + 1):
        fragments = cut_fragments(units, count)
        assert [unit for fragment in fragments for unit in fragment.units] == units and all(f.units for f in fragments)
        assert max(f.place.stop - f.place.start for f in fragments) <= sum(sizes) / count + max(sizes)
        assert fragments[-1].place.stop == sum(sizes)
    with pytest.raises(UsageError, match=rf"algorithm.fragments={len(units) + 1}: valid is .* to {len(units)}, "):
        cut_fragments(units, len(units) + 1)
