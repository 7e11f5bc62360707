"""Progressive resizing: what a model is shown when, how long epochs are then, and what cannot be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gradsweep.errors import UsageError
from tests.trainers.configs import compose_config
from tests.trainers.start_ranks import run_ranks
from trainers import data, models
from trainers.config import run_config
from trainers.config.epochs import Epochs
from trainers.data import imagenet
from trainers.data.__main__ import prepare_runs
from trainers.models.inputs import explain_refusal
from trainers.optimizers import schedules
from trainers.options import models as model_options
from trainers.options import schedules as schedule_options
from trainers.rules.resolve import resolve

IMAGES = 1_281_167
GROWING = [
    {"epoch": 0, "size": 128},
    {"epoch": 14, "size": 224, "batch": 224},
    {"epoch": 32, "size": 288, "batch": 128},
]
SMALL: dict[str, Any] = {"name": "synthetic", "height": 12, "width": 12, "train": 10, "test": 7, "classes": 10}


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=4), st.integers(1, 40))
def test_steps_and_epochs(lengths: list[tuple[int, int]], max_steps: int) -> None:
    """Against a list of the epoch of every step."""
    first, epoch_of_step = [0], []
    for epochs, per_epoch in lengths:
        epoch_of_step += [first[-1] + number for number in range(epochs) for _ in range(per_epoch)]
        first.append(first[-1] + epochs)
    starts = [(epoch, per_epoch) for epoch, (_, per_epoch) in zip(first, lengths, strict=False)]
    found = Epochs.from_lengths(starts, first[-1])
    assert found.steps == len(epoch_of_step) and found.length == first[-1]
    assert [found.count_done(step) for step in range(1, found.steps + 1)] == epoch_of_step
    for epoch in range(first[-1]):
        begins = epoch_of_step.index(epoch)
        assert found.count_steps_until(epoch) == begins and found.count_passed(begins) == epoch
        assert found.count_steps_until(epoch + 0.5) == begins + epoch_of_step.count(epoch) / 2
        assert found.count_passed(begins + 0.5) == pytest.approx(epoch + 0.5 / epoch_of_step.count(epoch))
    assert Epochs.from_lengths(starts, first[-1], max_steps) == dataclasses.replace(
        found, steps=min(found.steps, max_steps)
    )


def of_the_study(**changes: Any) -> run_config.RunConfig:
    knots = [[0, 1], [5, 2], [5, 1], [14, 1], [14, 0.4375], [32, 0.4375], [32, 0.0025]]
    changes = {"schedule": {"name": "piecewise", "knots": knots}, "epochs": 35, "phases": GROWING, **changes}
    return run_config.parse(
        compose_config(workers=8, batch={"size": 512, "per": "worker"}, optimizer={"lr": 1.0}, **changes)
    )


def test_steps_and_rates_of_the_layer_wise_study() -> None:
    run = of_the_study()
    lengths = run.compute_epochs(IMAGES)
    assert [(one.epoch, one.steps, one.per_epoch) for one in lengths.stretches] == [
        (0, 0, 313),
        (14, 14 * 313, 715),
        (32, 14 * 313 + 18 * 715, 1252),
    ]
    assert lengths.steps == 14 * 313 + 18 * 715 + 3 * 1252 == 21_008
    rate = schedules.build(run, lengths).rate
    expected = {1: 1 + 1 / 1565, 1565: 2.0, 1566: 1.0, 4382: 1.0, 4383: 0.4375, 17_252: 0.4375, 17_253: 0.0025}
    assert {step: rate(step) for step in expected} == pytest.approx(expected, rel=1e-12)
    assert of_the_study(max_steps=5000).compute_epochs(IMAGES).steps == 5000


def test_schedules_count_epochs_of_whatever_length() -> None:
    lengths = Epochs.from_lengths([(0, 2), (2, 5), (3, 1)], 6)  # 4, 5 and 3 steps

    def factors(options: Any) -> list[float]:
        schedule = schedules.Schedule(options, 1.0, lengths)
        return [schedule.factor(step) for step in range(1, lengths.steps + 1)]

    milestones = schedule_options.MultiStep(milestones=[1, 2.5, 4], factor=0.5)
    assert factors(milestones) == [1.0] * 2 + [0.5] * 5 + [0.25] * 3 + [0.125] * 2
    assert factors(schedule_options.Constant(warmup_epochs=3))[:10] == pytest.approx([*(np.arange(1, 10) / 9), 1.0])
    stairs = schedule_options.Constant(warmup_epochs=3, warmup_per="epoch")
    assert factors(stairs) == pytest.approx([1 / 3] * 2 + [2 / 3] * 2 + [1.0] * 8)
    longer = schedule_options.Constant(warmup_epochs=9, warmup_per="epoch")  # half of the run is two epochs and a bit
    assert factors(longer) == pytest.approx([0.5] * 2 + [1.0] * 10)
    by_epoch = factors(schedule_options.Cosine(warmup_epochs=0, per="epoch"))
    every = [(1 + np.cos(np.pi * epoch / 6)) / 2 for epoch in range(6)]
    assert by_epoch == pytest.approx(np.repeat(every, [2, 2, 5, 1, 1, 1]).tolist())
    ended = factors(schedule_options.Cosine(warmup_epochs=2, t_max=1))
    assert ended[4:] == pytest.approx([(1 + np.cos(np.pi * i / 5)) / 2 for i in range(5)] + [0] * 3)
    phases = [{"epoch": 0, "lr": 1.0}, {"epoch": 3, "lr": 0.5}]
    assert factors(schedule_options.Regime(phases=phases)) == [1.0] * 9 + [0.5] * 3


def feeds(root: Path, workers: int = 2, **changes: Any) -> list[Any]:
    given = {"dataset": SMALL, "batch": {"size": 4}, "data": {"root": str(root)}, "epochs": 5, **changes}
    run = run_config.parse(compose_config(workers=workers, **given))
    return [data.build_feed(run, worker, workers) for worker in range(workers)]


PHASES = [{"epoch": 0, "size": 8}, {"epoch": 2, "batch": 3}, {"epoch": 3, "size": 16, "batch": 5}]


def test_what_is_seen_in_each_phase(tmp_path: Path) -> None:
    both = feeds(tmp_path, phases=PHASES)
    assert both[0].shape == (3, 8, 8) and both[0].shapes == [(3, 8, 8), (3, 8, 8), (3, 16, 16)]
    seen = {}
    for epoch in (1, 2, 3, 4, 5, 3, 1):  # also backwards: an epoch is a function of its number
        steps = list(zip(*(feed.read_epoch(epoch) for feed in both), strict=True))
        size = 8 if epoch < 4 else 16
        assert {part.inputs.shape[1:] for step in steps for part in step} == {(3, size, size)}
        assert all({part.total for part in step} == {sum(len(part.labels) for part in step)} for step in steps)
        labels = [torch.cat([part.labels for part in step]).tolist() for step in steps]
        assert sorted(sum(labels, [])) == list(range(10)), "every image once"
        assert seen.setdefault(epoch, labels) == labels
        for feed, mine in zip(both, zip(*steps, strict=True), strict=True):
            later = list(feed.read_epoch(epoch, 1))
            assert all(torch.equal(one.inputs, two.inputs) for one, two in zip(mine[1:], later, strict=True))
        tested = [part for feed in both for part in feed.read_test_set(epoch)]
        assert {inputs.shape[1:] for inputs, _ in tested} == {(3, size, size)}
        assert sorted(torch.cat([labels for _, labels in tested]).tolist()) == list(range(7))
        whole = torch.cat([inputs for inputs, _ in both[1].read_test_set(epoch, whole=True)])
        assert torch.equal(whole, torch.cat([inputs for inputs, _ in tested]))
    sizes = {epoch: [len(step) for step in labels] for epoch, labels in seen.items()}
    assert sizes == {1: [4, 4, 2], 2: [4, 4, 2], 3: [3, 3, 3, 1], 4: [5, 5], 5: [5, 5]}
    assert seen[1] != seen[2] and seen[4] != seen[5]


def test_images_are_resized_after_they_were_augmented(tmp_path: Path) -> None:
    flipped = {**SMALL, "flip": True, "crop_padding": 2}
    (plain,) = feeds(tmp_path, 1, dataset=flipped)
    (grown,) = feeds(tmp_path, 1, dataset=flipped, phases=[{"epoch": 1, "size": 20}])
    assert grown.shapes == [(3, 12, 12), (3, 20, 20)]
    for epoch in (1, 2):
        for one, other in zip(plain.read_epoch(epoch), grown.read_epoch(epoch), strict=True):
            expected = one.inputs if epoch == 1 else torch.nn.functional.interpolate(one.inputs, 20, mode="bilinear")
            assert torch.equal(other.inputs, expected) and torch.equal(other.labels, one.labels)


def test_workers_keep_their_images_through_all_phases(tmp_path: Path) -> None:
    both = feeds(tmp_path, phases=PHASES, partition={"scheme": "dirichlet", "alpha": 0.5})
    for feed in both:
        mine = [sorted(torch.cat([one.labels for one in feed.read_epoch(epoch)]).tolist()) for epoch in (1, 3, 4)]
        assert mine[0] == mine[1] == mine[2]


def test_a_worker_without_an_image_has_none_of_the_size(tmp_path: Path) -> None:
    everyone = feeds(tmp_path, 4, phases=[{"epoch": 0, "size": 16}])
    empty = [batch.inputs.shape for feed in everyone for batch in feed.read_epoch(1) if not len(batch.labels)]
    assert empty == [(0, 3, 16, 16)] * 2


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes; test images of four shapes."""
    root = tmp_path_factory.mktemp("data")
    shapes = [(40, 40), (80, 40), (40, 80), (60, 40)]
    for part, count in (("train", 8), ("val", 12)):
        for number in range(count):
            folder = root / "imagenet" / part / f"n{number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            width, height = shapes[number % 4]
            pixels = np.arange(width * height * 3).reshape(height, width, 3) * (number + 3) % 251
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number:02}.png")
    return root


def of_files(tree: Path, workers: int = 1, loaders: int = 0, **changes: Any) -> list[Any]:
    given = {"size": 16, "resize": 20, **changes.pop("dataset", {})}
    dataset = {"name": "imagenet", **given}
    return feeds(tree, workers, dataset=dataset, data={"root": str(tree), "loaders": loaders}, **changes)


def test_images_of_files_are_decoded_in_the_size_of_the_phase(tree: Path) -> None:
    (feed,) = of_files(tree, phases=[{"epoch": 1, "size": 32, "scale": 1.0}, {"epoch": 2, "batch": 2, "scale": 0.1}])
    assert feed.shapes == [(3, 16, 16), (3, 32, 32), (3, 32, 32)]
    for epoch, same in ((1, {}), (2, {"size": 32, "resize": 40, "scale": 1.0}), (3, {"size": 32, "resize": 40})):
        scale = {"scale": 0.1} if epoch == 3 else {}
        (alone,) = of_files(tree, dataset={**same, **scale}, batch={"size": 2 if epoch == 3 else 4})
        for mine, other in zip(feed.read_epoch(epoch), alone.read_epoch(epoch), strict=True):
            assert torch.equal(mine.inputs, other.inputs)
        for (mine, _), (other, _) in zip(feed.read_test_set(epoch), alone.read_test_set(), strict=True):
            assert torch.equal(mine, other)


@pytest.mark.thorough
def test_loaders_of_an_earlier_phase_end(tree: Path) -> None:
    (feed,) = of_files(tree, loaders=1, phases=[{"epoch": 1, "size": 24}])
    assert {batch.inputs.shape[-1] for batch in feed.read_epoch(1)} == {16}
    (process,) = feed._feed._loaders._loaders[False]._iterator._workers
    assert process.is_alive()
    assert {batch.inputs.shape[-1] for batch in feed.read_epoch(2)} == {24}
    process.join(120)
    assert process.exitcode == 0
    (process,) = feed._feed._loaders._loaders[False]._iterator._workers
    feed.close()
    process.join(120)
    assert process.exitcode == 0


def test_rectangles_have_the_mean_shape_of_those_that_are_together() -> None:
    ratios = np.array([1.0, 2.0, 0.5, 1.5, 1.0, 0.52])
    batches, shapes = imagenet.find_rectangles(ratios, 64, 2)
    assert [batch.tolist() for batch in batches] == [[2, 5], [0, 4], [3, 1]]
    assert shapes.tolist() == [[64, 64], [64, 112], [120, 64], [64, 112], [64, 64], [120, 64]]
    assert imagenet.find_rectangles(np.array([0.98, 1.02]), 20, 1)[1].tolist() == [[20, 20]] * 2, "not below the size"


def test_rectangular_images_are_tested_once_each(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagenet, "TEST_BATCH", 3)
    expected = [(3, 32, 16), (3, 16, 16), (3, 16, 24), (3, 16, 32)]
    for workers in (1, 3):
        tested = [
            part for feed in of_files(tree, workers, dataset={"rectangular": True}) for part in feed.read_test_set()
        ]
        assert [inputs.shape[1:] for inputs, _ in tested] == expected and all(len(labels) == 3 for _, labels in tested)
        assert sorted(torch.cat([labels for _, labels in tested]).tolist()) == [0] * 6 + [1] * 6
        (*_, last) = of_files(tree, workers, dataset={"rectangular": True})
        assert [inputs.shape[1:] for inputs, _ in last.read_test_set(whole=True)] == expected
    later = [{"epoch": 1, "rectangular": True}, {"epoch": 2, "rectangular": False}]
    (feed,) = of_files(tree, phases=later)
    assert [{len(set(inputs.shape[2:])) for inputs, _ in feed.read_test_set(epoch)} for epoch in (1, 2, 3)] == [
        {1},
        {1, 2},
        {1},
    ]


EVERY = [
    *(cls() for cls in model_options.MODELS.values() if issubclass(cls, model_options.ImageModel)),
    *(model_options.VGG(depth=11, head=head) for head in ("hidden", "imagenet")),
    model_options.AlexNet(variant="large"),
    model_options.DenseNet(depth=121, blocks=4, growth=8),
    model_options.Torchvision(arch="vit_b_32"),
]


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_which_models_take_another_size_than_they_were_built_for(options: Any) -> None:
    if options == model_options.Torchvision():
        options = model_options.Torchvision(arch="resnet18")
    model = models.build(options, (3, 32, 32), 10)
    assert (explain_refusal(model, (3, 48, 48)) is not None) == options.one_size
    assert model.training


def test_a_model_is_shown_the_later_sizes_before_the_first_step() -> None:
    model = models.build(model_options.Torchvision(arch="squeezenet1_1"), (3, 64, 64), 10)
    models.require_takes(model, (3, 32, 32), "from epoch 3 on")
    with pytest.raises(UsageError, match=r"^phases: size=8 from epoch 3 on: valid are sizes that the model takes, wh"):
        models.require_takes(model, (3, 8, 8), "from epoch 3 on")


RESNET = {"model": "resnet", "epochs": 4}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"phases": [{"epoch": 2, "size": 8}, {"epoch": 1, "size": 9}]}, "valid is a list of {epoch, size, batch,"),
        ({"phases": [{"epoch": 1, "size": 8}, {"epoch": 1, "batch": 9}]}, "valid is a list of {epoch, size, batch,"),
        ({"phases": [{"epoch": 0, "batch": 8}]}, "batch.size from 1 up and not at epoch 0"),
        ({"phases": [{"epoch": 1, "size": 7}]}, "image side in pixels from 8"),
        ({"phases": [{"epoch": 1, "pixels": 8}]}, "phases=[{'epoch': 1, 'pixels': 8}]: valid is a list of {epoch,"),
        ({"phases": [{"size": 8}]}, "phases=[{'size': 8}]: valid is a list of {epoch, size,"),
        ({"phases": [{"epoch": 1, "rectangular": 1}]}, "rectangular true or false"),
        ({"phases": 8}, "phases=8: valid is a list of"),
        (
            {"phases": [{"epoch": 4, "size": 8}]},
            "phases: epoch=4: valid is an integer up to 3, as the run has epochs=4",
        ),
        (
            {"phases": [{"epoch": 1, "batch": 1}]},
            "phases: batch=1 from epoch 1 on: valid are at least 2 samples of all",
        ),
        (
            {"phases": [{"epoch": 1, "batch": 7}], "batch": {"accumulate": 4}},
            "workers together: workers=2 times batch.accumulate=4",
        ),
        (
            {"phases": [{"epoch": 1, "size": 8}], "model": "resnet18"},
            "size=8 from epoch 1 on: valid is an integer from 16",
        ),
        ({"phases": [{"epoch": 1, "size": 8}], "model": "mlp"}, "of several sizes with model=mlp: it is built for the"),
        ({"phases": [{"epoch": 1, "size": 20}], "model": "lenet"}, "valid are phases of one size"),
        (
            {"phases": [{"epoch": 0, "size": 8}], "model": {"name": "resnet", "input_size": 32}},
            "phases with size and model.input_size=32: all images would have that size again",
        ),
        (
            {"phases": [{"epoch": 1, "batch": 9}], "model": "lstm", "dataset": "synthetic_text"},
            "phases with dataset=synthetic_text: streams of text",
        ),
        (
            {"phases": [{"epoch": 0, "size": 9}], "model": "logistic", "dataset": "rcv1"},
            "phases with size and dataset=rcv1: features have no size",
        ),
        (
            {"phases": [{"epoch": 1, "batch": 9}], "scaling": {"rule": "linear", "by": "batch"}},
            "phases with batch and scaling.by=batch: the rate would be scaled for the first batch",
        ),
        (
            {"dataset": {"name": "imagenet", "rectangular": True}, "model": "lenet"},
            "rectangular images with model=lenet: it is built for the size",
        ),
        (
            {"dataset": "imagenet", "model": "lenet", "phases": [{"epoch": 1, "rectangular": True}]},
            "rectangular images with model=lenet: it is built for the size",
        ),
    ],
)
def test_phases_that_cannot_be_end_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(compose_config(**{**RESNET, **changes}))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"phases": GROWING, "epochs": 33},
        {"phases": [{"epoch": 0, "size": 28}], "model": "lenet"},
        {"phases": [{"epoch": 1, "batch": 9}], "model": "mlp"},
        {"phases": [{"epoch": 1, "scale": 0.5, "rectangular": True}]},
        {"phases": [{"epoch": 1, "batch": 9}], "scaling": {"rule": "linear", "by": "degree"}},
    ],
)
def test_phases_that_can_be(changes: dict[str, Any]) -> None:
    assert resolve(compose_config(**{**RESNET, **changes}))["phases"] == changes["phases"]


def test_the_launcher_holds_all_phases_against_the_data(tmp_path: Path) -> None:
    def prepared(*phases: dict[str, Any], **changes: Any) -> None:
        given = {"dataset": SMALL, "batch": {"size": 4}, "data": {"root": str(tmp_path)}, **RESNET, **changes}
        prepare_runs([resolve(compose_config(phases=list(phases), **given))])

    prepared({"epoch": 1, "size": 16, "batch": 11})
    with pytest.raises(
        UsageError, match=r"model.input_size=null: valid is an integer from 16 up: model=resnet18 takes"
    ):
        prepared({"epoch": 1, "size": 16}, model="resnet18")  # the first epoch has images of 12 x 12
    prepared({"epoch": 0, "size": 16}, model="resnet18")
    late = {"optimizer": "onebit_adam", "max_steps": None}
    for steps, fits in ((13, True), (14, False)):  # 3 steps, then 3 times 4
        changes = {**late, "optimizer": {"name": "onebit_adam", "freeze_steps": steps}}
        if fits:
            prepared({"epoch": 1, "batch": 3}, **changes)
        else:
            with pytest.raises(UsageError, match="freeze_steps=15"):
                prepared({"epoch": 1, "batch": 3}, **{**late, "optimizer": {"name": "onebit_adam", "freeze_steps": 15}})


@pytest.mark.thorough
@pytest.mark.mpi
def test_runs_are_trained_through_their_phases_and_go_on_in_each_of_them() -> None:
    run_ranks(2, "resumed", module="tests.trainers.ranks.phases")
