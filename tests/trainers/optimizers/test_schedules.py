"""The learning rate at stated steps: of the rules, and of the set-ups that were published with them."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
import torch

from gradsweep.errors import UsageError
from gradsweep.options.parameters import InvalidParameter
from tests.trainers.configs import compose_config
from trainers.config import groups
from trainers.config import run_config as configs
from trainers.config.epochs import Epochs, Stretch
from trainers.optimizers import schedules
from trainers.optimizers.schedules import Schedule
from trainers.options import schedules as options
from trainers.options.sections import Scaling
from trainers.rules.resolve import resolve
from trainers.topology import count_contributors


def equal_epochs(steps: int, per_epoch: int) -> Epochs:
    return Epochs(steps, (Stretch(0, 0, per_epoch),))


def factors(config: options.Schedule, steps: int, per_epoch: int) -> list[float]:
    schedule = Schedule(config, 1.0, equal_epochs(steps, per_epoch))
    return [schedule.factor(step) for step in range(1, steps + 1)]


def test_cosine_with_warm_up() -> None:
    found = factors(options.Cosine(warmup_epochs=1), 30, 10)
    assert found[:10] == pytest.approx([i / 10 for i in range(1, 11)])
    assert found[10] == 1.0
    assert found[20] == pytest.approx(0.5)
    assert 0 < found[-1] < 0.01
    assert found[10:] == sorted(found[10:], reverse=True)


def test_cosine_ends_at_its_floor_after_a_warm_up_in_steps() -> None:
    """nanoGPT's character set-up: 100 steps of warm-up, then from 1e-3 to 1e-4."""
    found = factors(options.Cosine(warmup_steps=100, final=0.1), 5000, 500)
    assert found[:100] == pytest.approx([i / 100 for i in range(1, 101)])
    assert found[100] == 1.0
    assert found[2550] == pytest.approx(0.55)
    assert found[-1] == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize(("shape", "half"), [("linear", 0.55), ("cosine", 0.55), ("sqrt", 0.1 + 0.9 * (1 - 0.5**0.5))])
def test_wsd_is_stable_until_its_decay(shape: str, half: float) -> None:
    found = factors(options.WSD(warmup_steps=10, decay=0.2, shape=shape, final=0.1), 100, 7)
    assert found[9:81] == [1.0] * 72
    assert found[90] == pytest.approx(half)
    assert found[80:] == sorted(found[80:], reverse=True)
    assert found[-1] >= 0.1
    assert factors(options.WSD(decay=0.0), 10, 10) == [1.0] * 10


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"warmup_steps": 20}, "schedule.warmup_steps=20: valid is an integer below the number of steps (20)"),
        ({"name": "wsd", "warmup_steps": 5, "decay": 0.8}, "schedule.decay=0.8: valid is at most 0.75, the part of"),
        ({"final": 1.5}, "schedule.final=1.5: valid is a number from 0.0 to 1.0 or null"),
        ({"warmup_steps": 5, "warmup_per": "epoch"}, "schedule.warmup_per=epoch: valid is step with warmup_steps"),
    ],
)
def test_parts_of_a_schedule_that_do_not_fit_into_the_run(section: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        resolve(compose_config(schedule={"name": "cosine", **section}, max_steps=20))


def test_constant_with_fractional_warm_up() -> None:
    found = factors(options.Constant(warmup_epochs=0.5), 9, 4)
    assert [found[0], found[1], found[2], found[8]] == [0.5, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("epochs", [1, 100])
def test_a_warm_up_that_would_not_end_in_the_run_takes_half_of_it(epochs: int) -> None:
    found = factors(options.Cosine(warmup_epochs=epochs), 10, 10)
    assert found[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    assert found[5:] == pytest.approx([0.5 * (1 + math.cos(math.pi * i / 5)) for i in range(5)])
    assert factors(options.Cosine(warmup_epochs=epochs), 1, 10) == [1.0]
    by_epoch = factors(options.Constant(warmup_epochs=100, warmup_per="epoch"), 20, 4)
    assert by_epoch == pytest.approx([0.5] * 4 + [1.0] * 16)


def test_a_warm_up_that_ends_in_the_run_is_as_long_as_it_was_asked_for() -> None:
    found = factors(options.Constant(warmup_epochs=9), 100, 10)
    assert found[:90] == pytest.approx([i / 90 for i in range(1, 91)])


def test_a_warm_up_from_a_factor_ends_where_the_schedule_goes_on() -> None:
    found = factors(options.Constant(warmup_epochs=2, warmup_from=0.25), 12, 3)
    assert found[:7] == pytest.approx([0.25 + 0.75 * i / 6 for i in range(7)])
    stairs = factors(options.Constant(warmup_epochs=2, warmup_from=0.25, warmup_per="epoch"), 12, 3)
    assert stairs == pytest.approx([0.25] * 3 + [0.625] * 3 + [1.0] * 6)
    assert factors(options.Constant(warmup_epochs=2, warmup_per="epoch"), 9, 3)[::3] == [0.5, 1.0, 1.0]


def test_multistep_drops_at_the_first_step_after_so_many_epochs() -> None:
    found = factors(options.MultiStep(milestones=[1, 2.5], factor=0.5), 40, 10)
    assert found == [1.0] * 10 + [0.5] * 15 + [0.25] * 15
    assert factors(options.MultiStep(), 40, 10) == pytest.approx([1.0] * 20 + [0.1] * 10 + [0.01] * 10)


def test_milestones_and_knots_after_the_end_are_never_reached() -> None:
    assert factors(options.MultiStep(milestones=[150, 225]), 6, 3) == [1.0] * 6
    assert factors(options.Piecewise(knots=[[0, 1], [10, 0]]), 4, 2) == pytest.approx([0.95, 0.9, 0.85, 0.8])


def test_piecewise_is_level_outside_and_jumps_between_two_knots_at_one_epoch() -> None:
    config = options.Piecewise(knots=[[1, 1], [2, 3], [2, 0.5], [3, 0.25]], per="epoch")
    assert factors(config, 5, 1) == [1.0, 1.0, 0.5, 0.25, 0.25]
    by_step = factors(options.Piecewise(knots=[[1, 1], [2, 3], [2, 0.5], [3, 0.25]]), 8, 2)
    assert by_step == [1.0, 1.0, 2.0, 3.0, 0.375, 0.25, 0.25, 0.25]  # the first step after the jump has jumped
    assert schedules.interpolate([[0, 7]], 3) == 7
    standard = factors(options.Piecewise(), 240, 10)
    assert (standard[49], standard[239]) == (1.0, 0.0) and standard[24] == pytest.approx(0.5)


def test_onecycle_is_up_down_and_further_down() -> None:
    found = factors(options.OneCycle(low=0.1, final=0.01, cycle_epochs=8), 100, 10)
    assert [found[i - 1] for i in (20, 40, 60, 80, 90, 100)] == pytest.approx([0.55, 1, 0.55, 0.1, 0.055, 0.01])
    assert factors(options.OneCycle(low=0.1, cycle_epochs=50), 10, 1)[4::5] == pytest.approx([1.0, 0.1])


def test_convex_decay_counts_what_is_done() -> None:
    found = factors(options.ConvexDecay(mu=2, shift=3), 4, 2)
    assert found == pytest.approx([1 / 6, 1 / 8, 1 / 10, 1 / 12])
    assert factors(options.ConvexDecay(mu=2, shift=3, per="epoch"), 4, 2) == pytest.approx([1 / 6, 1 / 6, 1 / 8, 1 / 8])
    parts = factors(options.ConvexDecay(mu=2, shift=3, per="fraction"), 4, 2)
    assert parts == pytest.approx([1 / 6, 1 / 7, 1 / 8, 1 / 9])


def test_cosine_per_epoch_and_with_an_end_of_its_own() -> None:
    stairs = factors(options.Cosine(warmup_epochs=0, per="epoch"), 8, 2)
    half = 0.5 * (1 + math.cos(math.pi / 4))
    assert stairs == pytest.approx([1, 1, half, half, 0.5, 0.5, 1 - half, 1 - half])
    assert factors(options.Cosine(warmup_epochs=0, t_max=2), 12, 3)[6:] == pytest.approx([0] * 6)


def test_plateau_is_torchs() -> None:
    losses = [1.0, 0.9, 0.9, 0.89999, 0.95, 0.9, 0.8, 0.81, 0.8, 0.79995, 0.9, 0.9, math.nan, 1, 1, 1, 1]
    config = options.Plateau(factor=0.3, patience=2, minimum=0.02)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=2, min_lr=0.02, eps=0.0)
    ours = Schedule(config, 1.0, equal_epochs(100, 1))
    drops = set()
    for epoch, loss in enumerate(losses, 1):
        assert ours.rate(epoch) == pytest.approx(optimizer.param_groups[0]["lr"]), epoch
        theirs.step(loss)
        again = Schedule(config, 1.0, equal_epochs(100, 1))
        again.load_state_dict(ours.state_dict())
        ours = again
        ours.observe(loss)
        drops.add(ours.rate(epoch))
    assert len(drops) == 5 and min(drops) == 0.02


def test_a_state_of_another_schedule_is_refused() -> None:
    plateau, cosine = (Schedule(one(), 1.0, equal_epochs(9, 3)) for one in (options.Plateau, options.Cosine))
    assert cosine.state_dict() == {}
    cosine.load_state_dict({})
    for schedule, state in (
        (cosine, plateau.state_dict()),
        (plateau, {}),
        (plateau, {**plateau.state_dict(), "bad": 1.5}),
    ):
        with pytest.raises(ValueError, match="a schedule keeps"):
            schedule.load_state_dict(state)


def test_a_regime_sets_what_a_phase_names_until_another_does() -> None:
    phases = [
        {"epoch": 0, "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
        {"epoch": 2, "lr": 0.01, "momentum": None},
        {"epoch": 3, "weight_decay": 0},
    ]
    schedule = Schedule(options.Regime(phases=phases), 123.0, equal_epochs(8, 2), scale=2.0)
    assert [schedule.rate(step) for step in range(1, 9)] == pytest.approx([0.2] * 4 + [0.02] * 4)
    assert schedule.settings(4) == {"momentum": 0.9, "weight_decay": 1e-4} == schedule.settings(5)
    assert schedule.settings(7) == {"momentum": 0.9, "weight_decay": 0.0}
    assert Schedule(options.Constant(), 1.0, equal_epochs(8, 2)).settings(1) == {}


DGC = {
    "schedule": {"name": "cosine", "warmup_epochs": 5.0, "warmup_per": "epoch", "t_max": 195.0, "per": "epoch"},
    "optimizer": {"lr": 0.1, "weight_decay": 1e-4},
    "scaling": {"rule": "linear", "warmup_from_base": True},
    "batch": {"size": 128, "per": "worker"},
    "epochs": 200,
}
RESNET_CIFAR = [
    {"epoch": 0, "lr": 0.1},
    {"epoch": 81, "lr": 0.01},
    {"epoch": 122, "lr": 0.001},
    {"epoch": 164, "lr": 1e-4},
]
WIDE_RESNET = [
    {"epoch": 0, "lr": 0.1},
    {"epoch": 60, "lr": 0.02},
    {"epoch": 120, "lr": 0.004},
    {"epoch": 140, "lr": 1e-4},
]
ROOT2 = math.sqrt(2)


def feifeibear(phases: Any, batch: int = 64) -> dict[str, Any]:
    """lr * sqrt(batch * N / 128), of 164 epochs."""
    return {
        "schedule": {"name": "regime", "phases": phases},
        "scaling": {"rule": "sqrt", "by": "batch", "base_batch": 128},
        "batch": {"size": batch, "per": "worker"},
        "epochs": 164,
    }


def choco(milestones: list[int], epochs: int, **schedule: Any) -> dict[str, Any]:
    return {"schedule": {"name": "multistep", "milestones": milestones, **schedule}, "epochs": epochs}


PUBLISHED: list[tuple[str, dict[str, Any], int, int, dict[float, float]]] = [
    # what, the config, workers, steps per epoch, and the rate in the first step after so many epochs
    (
        "DGC ResNet-20, 8 GPUs",
        DGC,
        8,
        49,
        {0: 0.1, 1: 0.24, 2: 0.38, 3: 0.52, 4: 0.66, 5: 0.8, 102.5: 0.4 * (1 + math.cos(97 * math.pi / 195))}
        | {199: 0.4 * (1 + math.cos(194 * math.pi / 195))},
    ),
    (
        "DGC within an epoch of the warm-up",
        {**DGC, "schedule": {**DGC["schedule"], "warmup_per": "step"}},
        8,
        50,
        {1.5: 0.31},
    ),
    (
        "DGC ResNet-50, ImageNet, 32 GPUs",
        {
            **choco([30, 60, 80], 90, warmup_epochs=5.0, warmup_per="epoch"),
            "optimizer": {"lr": 0.0125},
            "scaling": {"rule": "linear", "warmup_from_base": True},
        },
        32,
        1251,
        {0: 0.0125, 1: 0.09, 5: 0.4, 29: 0.4, 30: 0.04, 60: 0.004, 80: 0.0004},
    ),
    (
        "DAWNBench, CIFAR-10",
        {
            "schedule": {"name": "piecewise", "knots": [[0, 0], [5, 0.4], [24, 0]]},
            "optimizer": {"lr": 1.0},
            "epochs": 24,
        },
        1,
        98,
        {0: 0.4 / 5 / 98, 2.5: 0.2 + 0.4 / 5 / 98, 5: 0.4 - 0.4 / 19 / 98, 14.5: 0.2 - 0.4 / 19 / 98},
    ),
    (
        "layer-wise, random-k: 40 epochs",
        {
            "schedule": {"name": "piecewise", "knots": [[0, 0], [5, 0.4], [40, 0]], "per": "epoch"},
            "optimizer": {"lr": 1.0},
        }
        | {"epochs": 40},
        4,
        98,
        {0: 0.0, 1: 0.08, 5: 0.4, 22.5: 0.4 * 18 / 35, 39: 0.4 / 35},
    ),
    (
        "feifeibear ResNet, CIFAR-10, 4 GPUs",
        feifeibear(RESNET_CIFAR),
        4,
        10,
        {0: 0.1 * ROOT2, 80.9: 0.1 * ROOT2, 81: 0.01 * ROOT2},
    ),
    ("feifeibear ResNet, later", feifeibear(RESNET_CIFAR), 2, 10, {121.9: 0.01, 122: 0.001, 163: 0.001}),
    ("feifeibear SGD, 256", feifeibear(RESNET_CIFAR, 256), 4, 10, {0: 0.1 * math.sqrt(8)}),
    ("feifeibear wide ResNet", feifeibear(WIDE_RESNET), 2, 10, {59: 0.1, 60: 0.02, 120: 0.004, 140: 1e-4}),
    (
        "feifeibear VGG-16",
        feifeibear([{"epoch": 0, "lr": 0.004}, {"epoch": 100, "lr": 0.0004}]),
        8,
        10,
        {0: 0.008, 100: 0.0008},
    ),
    (
        "feifeibear MobileNetV2",
        {**feifeibear([]), "schedule": {"name": "multistep", "milestones": [60, 120, 180]}, "epochs": 200},
        2,
        10,
        {0: 0.1, 60: 0.01, 120: 0.001, 180: 1e-4},
    ),
    ("ImageNet ResNet, convNet.pytorch", choco([30, 60, 90], 95), 1, 10, {29: 0.1, 30: 0.01, 60: 0.001, 90: 1e-4}),
    (
        "ChocoSGD ResNet-20",
        {**choco([150, 225], 300, warmup_epochs=5.0), "scaling": {"rule": "linear", "warmup_from_base": True}},
        8,
        40,
        {0: 0.1, 2.5: 0.45, 5: 0.8, 149: 0.8, 150: 0.08, 225: 0.008},
    ),
    ("ChocoSGD ResNet-50, ImageNet", choco([30, 60, 80], 90), 1, 10, {29: 0.1, 30: 0.01, 60: 0.001, 80: 1e-4}),
    (
        "PowerSGD ResNet-18, 16 workers",
        {**choco([150, 250], 300, warmup_epochs=5.0), "scaling": {"rule": "linear", "warmup_from_base": True}},
        16,
        24,
        {0: 0.1, 5: 1.6, 150: 0.16, 250: 0.016},
    ),
]


@pytest.mark.parametrize(
    ("changes", "workers", "per_epoch", "rates"), [row[1:] for row in PUBLISHED], ids=[r[0] for r in PUBLISHED]
)
def test_published_rates(changes: dict[str, Any], workers: int, per_epoch: int, rates: dict[float, float]) -> None:
    run = configs.parse(resolve(compose_config(**changes, workers=workers)))
    schedule = schedules.build(run, equal_epochs(run.epochs * per_epoch, per_epoch))
    found = {epoch: schedule.rate(round(epoch * per_epoch) + 1) for epoch in rates}
    assert found == pytest.approx(rates, rel=1e-9)


def test_dgc_warm_up_factors() -> None:
    run = configs.parse(compose_config(**DGC, workers=8))
    schedule = schedules.build(run, equal_epochs(200 * 10, 10))
    assert [schedule.factor(10 * epoch + 1) for epoch in range(6)] == pytest.approx([0.125, 0.3, 0.475, 0.65, 0.825, 1])


def scaled(exchange: str | dict[str, Any], by: str) -> float:
    run = configs.parse(compose_config(workers=16, exchange=exchange, scaling={"rule": "linear", "by": by}))
    return schedules.build(run, equal_epochs(100, 10)).rate(1)


def test_the_degree_is_of_how_many_workers_what_they_send_is_averaged() -> None:
    """ChocoSGD scales by the graph; where all exchange with all it is complete, and each has all as neighbours."""
    for name, options_of in groups.GROUPS["exchange"].items():
        assert options_of().count_contributors(16) == 16, name
        assert scaled(name, "degree") == scaled(name, "workers") == pytest.approx(1.6)
    server = {"name": "parameter_server", "placement": "dedicated"}
    assert scaled({**server, "backup": 4}, "degree") == pytest.approx(1.2)
    assert scaled({**server, "mode": "asynchronous"}, "degree") == pytest.approx(0.1)
    assert scaled({**server, "mode": "asynchronous"}, "workers") == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("topology", "largest"),
    [("ring", 3), ("complete", 16), ("torus", 5), ("star", 16), ("hypercube", 5), ("one_peer_exponential", 2)],
)
def test_among_neighbours_the_degree_is_how_many_there_are_and_oneself(topology: str, largest: int) -> None:
    """lr_scaleup_factor=graph of ChocoSGD's command line; with base_batch_size as its code has it, by=neighbourhood."""
    changes = {"algorithm": "dpsgd", "topology": topology, "batch": {"size": 128, "per": "worker"}, "workers": 16}
    for by, times in (("degree", largest), ("neighbourhood", 2 * largest), ("workers", 16), ("batch", 32)):
        scaling = {"rule": "linear", "by": by, "base_batch": 64}
        run = configs.parse(resolve(compose_config(**changes, scaling=scaling)))
        assert count_contributors(run) == largest
        assert schedules.build(run, equal_epochs(100, 10)).rate(1) == pytest.approx(0.1 * times), by


def test_scaling() -> None:
    rules = ("none", "linear", "sqrt")
    assert [Scaling(rule).compute_factor(16, 9, 512) for rule in rules] == [1, 16, 4]
    assert [Scaling(rule, by="degree").compute_factor(16, 9, 512) for rule in rules] == [1, 9, 3]
    assert [Scaling(rule, by="batch").compute_factor(16, 9, 512) for rule in rules] == [1, 4, 2]
    assert [Scaling(rule, by="neighbourhood").compute_factor(16, 4, 2048) for rule in rules] == [1, 4, 2]
    assert [Scaling(rule, by="neighbourhood").compute_factor(16, 16, 512) for rule in rules] == [
        1,
        4,
        2,
    ]  # of all: by batch
    shrunk = compose_config(scaling={"rule": "linear", "by": "batch", "warmup_from_base": True}, batch={"size": 32})
    shrunk["schedule"]["warmup_epochs"] = 1.0
    schedule = schedules.build(configs.parse(shrunk), equal_epochs(100, 10))
    assert {schedule.rate(step) for step in (1, 5, 50)} == {0.025}  # nothing rises where the rate was scaled down


@pytest.mark.parametrize(
    ("cls", "values", "name"),
    [
        (options.Piecewise, {"knots": [[0, 0], [5, 1], [3, 0]]}, "knots"),
        (options.Piecewise, {"knots": [[0, -1]]}, "knots"),
        (options.Piecewise, {"knots": [[0, 1, 2]]}, "knots"),
        (options.MultiStep, {"milestones": [3, 3]}, "milestones"),
        (options.MultiStep, {"milestones": [0, 3]}, "milestones"),
        (options.Constant, {"warmup_epochs": 1.5, "warmup_per": "epoch"}, "warmup_epochs"),
        (options.ConvexDecay, {"shift": 0}, "shift"),
        (options.Regime, {"phases": [{"epoch": 1, "lr": 0.1}]}, "phases"),
        (options.Regime, {"phases": [{"epoch": 0}]}, "phases"),
        (options.Regime, {"phases": [{"epoch": 0, "lr": 1}, {"epoch": 0, "lr": 1}]}, "phases"),
        (options.Regime, {"phases": [{"epoch": 0, "lr": 1, "nesterov": True}]}, "phases"),
        (options.Regime, {"phases": [{"epoch": 0, "lr": 1, "momentum": 1}]}, "phases"),
        (options.Cosine, {"t_max": 0}, "t_max"),
    ],
)
def test_what_is_no_schedule_is_refused(cls: type, values: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"^{name}="):
        cls(**values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"schedule": {"name": "regime", "phases": [{"epoch": 0, "lr": 0.1, "momentum": 0.5}]}, "optimizer": "adam"},
            "momentum=0.5 in schedule.phases with optimizer=adam, which has none; valid is phases without momentum",
        ),
        (
            {
                "schedule": {"name": "regime", "phases": [{"epoch": 0, "lr": 0.1, "momentum": 0.5}]},
                "optimizer": {"momentum": 0.0, "nesterov": False},
                "memory": "dgc",
            },
            "momentum=0.5 in schedule.phases with memory=dgc: the memory has the momentum",
        ),
        (
            {"schedule": "regime", "model": "logistic"},
            "schedule=regime: model=logistic brings no regime for dataset=digits; valid is schedule.pha",
        ),
        ({"scaling": {"warmup_from_base": True}}, "scaling.warmup_from_base=True: valid is false with rule=none"),
        ({"scaling": {"warmup_from_base": True, "rule": "sqrt"}}, "valid is false where the schedule has no warm-up"),
        (
            {
                "scaling": {"warmup_from_base": True, "rule": "sqrt"},
                "schedule": {"warmup_epochs": 1.0, "warmup_from": 0.1},
            },
            "schedule.warmup_from=0.1: valid is null with scaling.warmup_from_base=true",
        ),
        (
            {"schedule": {"name": "piecewise", "knots": [[2, 0], [1, 0]]}},
            "schedule.knots=[[2, 0], [1, 0]]: valid is a list",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(compose_config(**changes))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_model_brings_its_regime_as_far_as_the_optimizer_has_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass(frozen=True)
    class Phase:
        epoch: int
        lr: float | None = None
        momentum: float | None = None
        weight_decay: float | None = None

    brought = {"digits": (Phase(0, 0.1, 0.9, 1e-4), Phase(5, 0.01))}
    monkeypatch.setattr("trainers.rules.resolve.find_regime", lambda model, dataset: brought.get(dataset))

    def phases(**changes: Any) -> Any:
        return resolve(compose_config(schedule="regime", **changes))["schedule"]["phases"]

    later = {"epoch": 5, "lr": 0.01}
    assert phases() == [{"epoch": 0, "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}, later]
    assert phases(optimizer="adam") == [{"epoch": 0, "lr": 0.1, "weight_decay": 1e-4}, later]
    without = {"momentum": 0.0, "nesterov": False}
    assert phases(optimizer=without, memory="dgc") == [{"epoch": 0, "lr": 0.1, "weight_decay": 1e-4}, later]
    assert phases(optimizer="dgc_sgd", memory="dgc")[0]["momentum"] == 0.9
    with pytest.raises(UsageError, match="dataset=cifar10"):
        phases(dataset="cifar10")
