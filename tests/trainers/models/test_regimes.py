"""Optimisation regimes of the models."""

from __future__ import annotations

import pytest

from trainers.models.regimes import find_regime
from trainers.options import models as options


def test_a_regime_is_what_the_sources_say() -> None:
    """Of RedSync's fork of convNet.pytorch, and of that itself; epochs are counted from 0."""
    rates = {
        "resnet": {0: 0.1, 81: 0.01, 122: 0.001, 164: 1e-4},
        "mobilenetv2": {0: 0.1, 60: 0.01, 120: 0.001, 180: 1e-4},
        "vgg": {0: 0.004, 100: 0.0004},
        "wideresnet": {0: 0.1, 60: 0.02, 120: 0.004, 140: 1e-4},
        "alexnet": {0: 0.01, 10: 0.005, 15: 0.001, 20: 0.0005, 25: 0.0001},
        "lenet": {0: 0.1, 81: 0.01, 122: 0.001, 164: 1e-4},
    }
    for name, expected in rates.items():
        phases = find_regime(options.MODELS[name](), "cifar10")
        assert phases is not None and {phase.epoch: phase.lr for phase in phases} == expected, name
    first, *later = find_regime(options.ResNet(), "cifar100") or ()
    assert (first.momentum, first.weight_decay) == (0.9, 1e-4)
    assert all(phase.momentum is None and phase.weight_decay is None for phase in later)
    assert [phase.weight_decay for phase in find_regime(options.AlexNet(), "cifar10") or ()] == [
        5e-4,
        None,
        0.0,
        None,
        None,
    ]


def test_a_regime_goes_by_the_data_set() -> None:
    imagenet = {0: 0.1, 30: 0.01, 60: 0.001, 90: 1e-4}
    for config, dataset in (
        (options.ResNet18(), "imagenet"),
        (options.Torchvision(), "imagenet"),
        (options.Torchvision(arch="vgg16_bn"), "digits"),
    ):
        assert {phase.epoch: phase.lr for phase in find_regime(config, dataset) or ()} == imagenet
    assert find_regime(options.ResNet18(), "digits") == find_regime(options.ResNet(110), "cifar10")
    for nothing in (options.LSTM(), options.Logistic(), options.DenseNet(), options.Torchvision(arch="vit_b_16")):
        assert find_regime(nothing, "imagenet") is None


@pytest.mark.parametrize("name", options.MODELS)
def test_phases_begin_with_all_that_they_need_and_follow_each_other(name: str) -> None:
    phases = find_regime(options.MODELS[name](), "cifar10")
    if phases is not None:
        epochs = [phase.epoch for phase in phases]
        assert epochs[0] == 0 and epochs == sorted(set(epochs)) and phases[0].lr is not None
