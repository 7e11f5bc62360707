"""Models: published numbers of parameters, what they compute, and which data they take."""

from __future__ import annotations

import dataclasses
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sweep.run import UsageError
from tests.conftest import ROOT
from trainers import models
from trainers.models.fitting import check_fits
from trainers.models.regimes import regime
from trainers.models.resnet import Basic, Bottleneck, PaddedShortcut
from trainers.models.senet import Block as SEBlock
from trainers.options import models as options
from trainers.options.model_presets import PRESETS
from trainers.options.torchvision_names import classifiers
from trainers.replica import scores

CIFAR, MNIST, TEXT, IMAGENET = (3, 32, 32), (1, 28, 28), (35,), (3, 224, 224)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small work is not shared among threads, which would wait for each other where processors are scarce."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small(name: str) -> Any:
    """A member of the group, as small as its options let it be."""
    changes: dict[str, dict[str, Any]] = {
        "densenet": {"depth": 10},
        "lstm": {"hidden": 8, "layers": 2},
        "torchvision": {"arch": "squeezenet1_1", "input_size": 32},
        "vgg": {"depth": 11},
    }
    return options.MODELS[name](**changes.get(name, {}))


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


PUBLISHED = [
    (options.WideResNet(10, 1), CIFAR, 10, 77_850, None),
    (options.WideResNet(16, 1), CIFAR, 10, 175_066, None),
    (options.WideResNet(28, 1), CIFAR, 10, 369_498, None),
    (options.WideResNet(34, 1), CIFAR, 10, 466_714, None),
    (options.WideResNet(94, 1), CIFAR, 10, 1_438_874, None),
    (options.WideResNet(100, 1), CIFAR, 10, 1_536_090, None),
    (options.WideResNet(142, 1), CIFAR, 10, 2_216_602, None),
    (options.WideResNet(40, 4), CIFAR, 10, 8_949_210, None),
    (options.WideResNet(40, 4), CIFAR, 100, 8_972_340, None),
    (options.WideResNet(16, 8), CIFAR, 10, 10_961_370, None),
    (options.WideResNet(28, 4), CIFAR, 10, 5_849_050, None),
    (options.WideResNet(52, 4), CIFAR, 10, 12_049_370, None),
    (options.WideResNet(28, 10), CIFAR, 10, 36_479_194, None),
    (options.WideResNet(28, 10), CIFAR, 100, 36_536_884, None),
    (options.ResNet(20), CIFAR, 10, 269_722, 59),
    (options.ResNet(20, "B"), CIFAR, 10, 272_474, 65),
    (options.ResNet(32, "B"), CIFAR, 10, 466_906, None),
    (options.ResNet(44, "B"), CIFAR, 10, 661_338, None),
    (options.ResNet(56), CIFAR, 10, 853_018, None),
    (options.ResNet(56, "B"), CIFAR, 10, 855_770, None),
    (options.ResNet(110), CIFAR, 10, 1_727_962, None),
    (options.ResNet(110, "B"), CIFAR, 10, 1_730_714, None),
    (options.ResNet(110, "B", "bottleneck"), CIFAR, 10, 1_704_154, None),
    (options.ResNet18(), CIFAR, 10, 11_173_962, 62),
    (options.ResNet34(), CIFAR, 10, 21_282_122, None),
    (options.ResNet50(), CIFAR, 10, 23_520_842, None),
    (options.SENet18(), CIFAR, 10, 11_260_354, None),
    (options.ResNet9(), CIFAR, 10, 6_573_120, 25),
    (options.AlexNet(), CIFAR, 10, 2_255_296, None),
    (options.AlexNet("large"), CIFAR, 10, 23_272_266, None),
    (options.VGG(), CIFAR, 10, 14_728_266, None),
    (options.VGG(11, "hidden", batch_norm=False), CIFAR, 10, 9_750_922, None),
    (options.VGG(16, "hidden", batch_norm=False), CIFAR, 10, 15_245_130, None),
    (options.VGG(19, "hidden", batch_norm=False), CIFAR, 10, 20_554_826, None),
    (options.VGG(16, "imagenet", batch_norm=False), CIFAR, 10, 134_301_514, None),
    (options.DenseNet(), CIFAR, 10, 769_162, None),
    (options.DenseNet(190, 40), CIFAR, 10, 25_624_430, None),
    (options.DenseNet(121, 32, blocks=4), CIFAR, 10, 6_956_298, None),
    (options.DenseNet(121, 12, blocks=4), CIFAR, 10, 1_000_618, None),
    # the paper's "1.0M", and what ChocoSGD's code makes of it, which compresses without bottlenecks, too
    (options.DenseNet(40, bottleneck=False, compression=1.0), CIFAR, 10, 1_019_722, None),
    (options.DenseNet(40, bottleneck=False, stem=24), CIFAR, 10, 599_050, None),
    (options.MobileNetV2(), CIFAR, 10, 2_296_922, None),
    (options.GoogLeNet(), CIFAR, 10, 6_166_250, None),
    (options.LeNet(), CIFAR, 10, 62_006, None),
    (options.LeNet(input_size=32), MNIST, 10, 61_706, None),
    (options.LeNet("atomo"), MNIST, 10, 431_080, None),
    (options.FC(), MNIST, 10, 1_033_510, None),
    (options.Logistic(), (2000,), 2, 2001, 2),
    (options.Logistic(bias=False), (2000,), 2, 2000, 1),
    (options.Logistic(), MNIST, 10, 7850, 2),
    (options.LSTM(), TEXT, 28_869, 28_949_319, None),
    (options.LSTM(tied=False), TEXT, 28_869, 28_949_319 + 28_869 * 650, None),
    (options.Torchvision(arch="resnet18"), IMAGENET, 1000, 11_689_512, None),
    (options.Torchvision(), IMAGENET, 1000, 25_557_032, None),
    (options.Torchvision(arch="vgg16"), IMAGENET, 1000, 138_357_544, None),
    (options.Torchvision(arch="vgg16_bn"), IMAGENET, 1000, 138_365_992, None),
    (options.Torchvision(arch="vgg19"), IMAGENET, 1000, 143_667_240, None),
    (options.Torchvision(arch="alexnet"), IMAGENET, 1000, 61_100_840, None),
]


@pytest.mark.parametrize(("config", "shape", "classes", "parameters", "tensors"), PUBLISHED, ids=lambda x: str(x))
def test_models_have_the_published_number_of_parameters(
    config: Any, shape: tuple[int, ...], classes: int, parameters: int, tensors: int | None
) -> None:
    with torch.device("meta"):
        model = models.build(config, shape, classes)
    assert count(model) == parameters
    assert tensors is None or len(list(model.parameters())) == tensors


@pytest.mark.parametrize(
    ("config", "matrices", "vectors"),
    [
        (options.ResNet(20), 268_336, 1_386),
        (options.ResNet(20, "B"), 270_896, 1_578),
        (options.ResNet(110), 1_719_856, 8_106),
        (options.ResNet9(), 6_568_640, 4_480),
        (options.ResNet18(), 11_164_352, 9_610),
    ],
    ids=str,
)
def test_what_is_compressed_and_what_is_not_is_as_published(config: Any, matrices: int, vectors: int) -> None:
    with torch.device("meta"):
        parameters = list(models.build(config, CIFAR, 10).parameters())
    assert sum(one.numel() for one in parameters if one.dim() > 1) == matrices
    assert sum(one.numel() for one in parameters if one.dim() <= 1) == vectors


def samples(config: Any, n: int, channels: int = 3, size: int | None = None) -> tuple[torch.Tensor, tuple[int, ...]]:
    """n samples that a model takes, images of its smallest size, and the shape of one."""
    if config.takes == ("text",):
        return torch.randint(0, 7, (n, 5)), (5,)
    size = size or getattr(config, "smallest", 8)
    return torch.randn(n, channels, size, size), (channels, size, size)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", options.MODELS)
def test_every_model_learns_from_the_smallest_images(name: str, channels: int) -> None:
    """Forward and backward in training mode, with a single sample in the batch where there are three channels."""
    config, n = small(name), 1 if channels == 3 else 3
    inputs, shape = samples(config, n, channels)
    model = models.build(config, shape, 7)
    assert model.training
    outputs, labels = scores(model(inputs), torch.randint(0, 7, (n, *inputs.shape[1:]) if len(shape) == 1 else (n,)))
    assert outputs.shape == (len(labels), 7)
    F.cross_entropy(outputs, labels).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and bool(torch.isfinite(gradient).all()) for gradient in gradients)
    assert any(bool(gradient.any()) for gradient in gradients if gradient is not None)


@pytest.mark.parametrize("name", [name for name, cls in options.MODELS.items() if cls.takes != ("text",)])
def test_evaluation_judges_each_sample_by_itself_and_changes_nothing(name: str) -> None:
    config = small(name)
    inputs, shape = samples(config, 3)
    model = models.build(config, shape, 7).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        together, alone = model(inputs), torch.cat([model(one[None]) for one in inputs])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize(
    "config",
    [
        options.WideResNet(10, 1, 0.5),
        options.DenseNet(10, dropout=0.5),
        options.VGG(11, "hidden"),
        options.AlexNet("large"),
    ],
    ids=str,
)
def test_dropout_is_drawn_in_training_only(config: Any) -> None:
    inputs, shape = samples(config, 2, size=32)
    model = models.build(config, shape, 7)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.0  # so that two passes differ by dropout only
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))


def test_no_dropout_draws_nothing_from_the_global_generator() -> None:
    inputs, shape = samples(options.WideResNet(), 2)
    model = models.build(options.WideResNet(), shape, 7)
    before = torch.get_rng_state()
    model(inputs)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("config", [options.ResNet(20), options.MLP(), options.LeNet(), options.DenseNet(10)], ids=str)
def test_equal_seeds_give_equal_models(config: Any) -> None:
    built = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        built.append(nn.utils.parameters_to_vector(models.build(config, CIFAR, 10).parameters()))
    assert torch.equal(built[0], built[1]) and not torch.equal(built[0], built[2])


def test_shortcut_a_keeps_every_other_pixel_and_adds_channels_of_zeros() -> None:
    x = torch.randn(2, 3, 5, 4)
    out = PaddedShortcut(3, 5, 2)(x)
    assert out.shape == (2, 5, 3, 2)
    assert torch.equal(out[:, :3], x[:, :, ::2, ::2]) and not out[:, 3:].any()
    same = torch.cat((x[:, :, ::2, ::2], torch.zeros(2, 2, 3, 2)), 1)
    assert torch.equal(out, same)


def test_he_normal_has_the_fan_of_the_output() -> None:
    torch.manual_seed(0)
    model = models.build(options.ResNet(20), CIFAR, 10)
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    (wider,) = (module for module in convolutions if (module.in_channels, module.out_channels) == (32, 64))
    assert float(wider.weight.detach().std()) == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)


@pytest.mark.parametrize(
    "config", [options.ResNet(20), options.ResNet18(), options.ResNet(20, "B", "bottleneck")], ids=str
)
def test_a_zeroed_block_is_its_shortcut(config: Any) -> None:
    model = models.build(dataclasses.replace(config, zero_init_residual=True), CIFAR, 10).eval()
    blocks = [module for module in model.modules() if isinstance(module, (Basic, Bottleneck))]
    assert all(not block.last_norm.weight.any() and block.norm1.weight.all() for block in blocks)
    width = blocks[1].conv1.in_channels
    x = torch.rand(2, width, 8, 8)
    assert blocks[1].shortcut is None and torch.equal(blocks[1](x), x)
    plain = models.build(config, CIFAR, 10)
    assert all(block.last_norm.weight.all() for block in plain.modules() if isinstance(block, (Basic, Bottleneck)))


def test_squeeze_and_excitation_weigh_the_channels_of_each_image() -> None:
    block = SEBlock(16, 32, 2).eval()
    x = torch.randn(3, 16, 6, 6)
    with torch.no_grad():
        block.squeeze.weight.mul_(9)
        block.squeeze.bias.fill_(9.0)
        block.excite.weight.mul_(9)
        active = F.relu(block.norm1(x))
        branch = block.conv2(F.relu(block.norm2(block.conv1(active))))
        assert block.squeeze.out_channels == 32 // 16
        hidden = F.relu(branch.mean((2, 3)) @ block.squeeze.weight.flatten(1).T + block.squeeze.bias)
        weights = torch.sigmoid(hidden @ block.excite.weight.flatten(1).T + block.excite.bias)
        assert float(weights.std(0).max()) > 0.01
        torch.testing.assert_close(block(x), branch * weights[:, :, None, None] + block.shortcut(active))


def test_resnet9_is_the_graph_of_cifar10_fast() -> None:
    model = models.build(options.ResNet9(scale=0.5), CIFAR, 10).eval()
    assert isinstance(model, nn.Sequential)
    x = torch.randn(2, *CIFAR)

    def layer(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        conv, norm, _ = block
        return F.relu(F.batch_norm(F.conv2d(x, conv.weight, padding=1), norm.running_mean, norm.running_var))

    prep, one, _, residual1, two, _, three, _, residual3, scaled = model
    out = F.max_pool2d(layer(one, layer(prep, x)), 2)
    out = out + layer(residual1.branch[1], layer(residual1.branch[0], out))
    out = F.max_pool2d(layer(two, out), 2)
    out = F.max_pool2d(layer(three, out), 2)
    out = out + layer(residual3.branch[1], layer(residual3.branch[0], out))
    expected = F.max_pool2d(out, 4).flatten(1) @ scaled.linear.weight.T * 0.5
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(
    ("ours", "arch"), [(options.ResNet18(), "resnet18"), (options.ResNet50(), "resnet50")], ids=str
)
def test_four_groups_compute_what_torchvisions_do_behind_their_stem(ours: Any, arch: str) -> None:
    model = models.build(ours, CIFAR, 10).eval()
    theirs = models.build(options.Torchvision(arch=arch), CIFAR, 10).eval()
    groups = nn.Sequential(theirs.layer1, theirs.layer2, theirs.layer3, theirs.layer4)
    # theirs defines a shortcut behind the branch of its block, too: the order of the tensors is the same
    with torch.no_grad():
        for mine, other in zip(model.blocks.parameters(), groups.parameters(), strict=True):
            mine.copy_(other)
        x = torch.randn(2, 64, 8, 8)
        torch.testing.assert_close(model.blocks(x), groups(x))


def test_dense_blocks_compute_what_torchvisions_do_behind_their_stem() -> None:
    from trainers.vision import torchvision

    model = models.build(options.DenseNet(121, 4, blocks=4), CIFAR, 10).eval()
    theirs = torchvision().models.DenseNet(growth_rate=4, block_config=(6, 12, 24, 16), num_init_features=8).eval()
    mine, other = model.features[1:-1], theirs.features[4:]
    with torch.no_grad():
        for to, of in zip(mine.parameters(), other.parameters(), strict=True):
            to.copy_(of.uniform_(-1, 1))
        x = torch.randn(2, 8, 16, 16)
        torch.testing.assert_close(mine(x), other(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("variant", "arch"), [("imagenet", "vgg13"), ("linear", "vgg16_bn")])
def test_vgg_has_torchvisions_convolutions(variant: str, arch: str) -> None:
    with torch.device("meta"):
        config = options.VGG(int(arch[3:5]), variant, batch_norm=arch.endswith("bn"))
        model = models.build(config, IMAGENET, 1000)
        theirs = models.build(options.Torchvision(arch=arch), IMAGENET, 1000)
    assert [str(module) for module in model[0]] == [str(module) for module in theirs.features]
    if variant == "imagenet":
        mine = [str(module) for module in model[1] if not isinstance(module, (nn.AdaptiveAvgPool2d, nn.Flatten))]
        assert mine == [str(module) for module in theirs.classifier]


def test_the_initial_weights_of_vgg_are_those_of_its_heads_source(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[tuple[int, ...], tuple[float, ...]]] = []
    monkeypatch.setattr(nn.init, "normal_", lambda tensor, *options: drawn.append((tuple(tensor.shape), options)))
    with torch.device("meta"):
        models.build(options.VGG(11, "imagenet"), CIFAR, 10)
        assert drawn == [(shape, (0.0, 0.01)) for shape in ((4096, 25088), (4096, 4096), (10, 4096))]
        models.build(options.VGG(11, "hidden"), CIFAR, 10)
    assert len(drawn) == 3


def test_plain_networks_are_the_layers_of_their_sources() -> None:
    def kinds(config: Any, shape: tuple[int, ...]) -> str:
        names = {"Conv2d": "C", "MaxPool2d": "P", "ReLU": "r", "Flatten": "f", "Linear": "L", "Dropout": "d"}
        leaves = [module for module in models.build(config, shape, 10).modules() if not list(module.children())]
        return "".join(names.get(type(module).__name__, "?") for module in leaves)

    assert kinds(options.LeNet(), CIFAR) == "CrPCrPfLrLrL"
    assert kinds(options.LeNet("atomo"), MNIST) == "CPrCPrfLL"
    assert kinds(options.FC(False), MNIST) == "fLrLrL"
    with torch.device("meta"):
        assert kinds(options.AlexNet("large"), CIFAR) == "CrPCrPCrCrCrPfdLrdLrL"
        assert kinds(options.AlexNet(), CIFAR) == "C?rPC?rPC?rC?rC?rPL"
    assert float(models.build(options.FC(), MNIST, 10)(torch.randn(4, *MNIST)).detach().min()) > 0
    assert float(models.build(options.FC(False), MNIST, 10)(torch.randn(99, *MNIST)).detach().min()) < 0


def test_two_classes_have_the_logistic_loss() -> None:
    model = models.build(options.Logistic(), (5,), 2)
    x, labels = torch.randn(8, 5, dtype=torch.float64), torch.randint(0, 2, (8,))
    model.double()
    assert float(F.cross_entropy(model(x), labels).detach()) == pytest.approx(0.6931471805599453)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    z = F.linear(x, *model.parameters()).squeeze(1)
    expected = torch.log1p(torch.exp(-(2 * labels - 1) * z)).mean()
    torch.testing.assert_close(F.cross_entropy(model(x), labels), expected)
    assert torch.equal(model(x).argmax(1), (z > 0).long())


def test_many_classes_are_multinomial() -> None:
    model = models.build(options.Logistic(False), (2, 3), 4)
    assert model(torch.randn(8, 2, 3)).shape == (8, 4) and count(model) == 24


class TestLanguageModel:
    """What is carried from batch to batch."""

    words = functools.partial(torch.randint, 0, 11)

    def model(self, **changes: Any) -> Any:
        return models.build(options.LSTM(**{"hidden": 6, "layers": 2, "dropout": 0.0, **changes}), (5,), 11)

    def test_two_halves_are_the_whole(self) -> None:
        model, text = self.model(), self.words((3, 10))
        whole = model(text)
        model.forget()
        torch.testing.assert_close(torch.cat((model(text[:, :4]), model(text[:, 4:])), 1), whole)
        assert not torch.allclose(model(text[:, :4]), whole[:, :4])  # it goes on, and does not begin

    def test_no_gradient_flows_into_the_batch_before(self) -> None:
        model, text = self.model(), self.words((3, 8))
        model(text[:, :4])
        second = model(text[:, 4:])
        second.sum().backward()
        gradient = model.lstm.weight_hh_l0.grad.clone()
        model.zero_grad()
        model.forget()
        model(text).narrow(1, 4, 4).sum().backward()
        assert not torch.allclose(gradient, model.lstm.weight_hh_l0.grad)
        assert not any(state.requires_grad for state in model.carried().values())

    @pytest.mark.parametrize("begin", ["forget", "train", "eval"])
    def test_a_beginning_forgets(self, begin: str) -> None:
        model, text = self.model(), self.words((3, 5))
        first = model(text)
        assert model.carried()
        getattr(model, begin)()
        assert not model.carried()
        assert torch.equal(model(text), first)

    def test_another_number_of_streams_begins_afresh(self) -> None:
        model, text = self.model(), self.words((4, 5))
        model(text)
        smaller = model(text[:3])
        model.forget()
        assert torch.equal(model(text[:3]), smaller)

    def test_what_is_carried_is_all_that_another_needs_to_go_on(self) -> None:
        model, text = self.model(), self.words((3, 8))
        model(text[:, :4])
        carried, state = model.carried(), model.state_dict()
        expected = model(text[:, 4:])
        other = self.model()
        other.load_state_dict(state)
        other.train()
        other.carry(carried)
        assert torch.equal(other(text[:, 4:]), expected)
        other.carry({})
        assert not other.carried()

    def test_it_is_a_copy(self) -> None:
        model = self.model()
        model(self.words((3, 4)))
        carried = model.carried()
        model.carry(carried)
        before = model.carried()["hidden"]
        carried["hidden"].zero_()
        assert torch.equal(model.carried()["hidden"], before) and before.any()
        for state in model.carried().values():
            state.zero_()
        assert all(bool(state.any()) for state in model.carried().values())

    def test_it_is_no_buffer_for_buffers_are_averaged_over_the_workers(self) -> None:
        model = self.model()
        model(self.words((3, 4)))
        assert not list(model.buffers()) and not any("hidden" in key for key in model.state_dict())

    def test_it_goes_on_under_autocast_and_after_it(self) -> None:
        model, text = self.model(), self.words((3, 4))
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.isfinite(model(text)).all() and model.carried()
            model.carry({key: value.bfloat16() for key, value in model.carried().items()})
            model(text)
        model.carry({key: value.bfloat16() for key, value in model.carried().items()})
        assert model(text).dtype == torch.float32

    def test_words_in_and_out_share_their_vectors(self) -> None:
        tied, untied = self.model(), self.model(tied=False)
        assert tied.decoder.weight is tied.embedding.weight
        assert count(untied) - count(tied) == 11 * 6
        for model in (tied, untied):
            assert float(model.embedding.weight.detach().abs().max()) <= 0.1 and not model.decoder.bias.any()

    def test_dropout_is_on_vectors_between_layers_and_on_outputs(self) -> None:
        model, text = self.model(hidden=32, dropout=0.5), self.words((3, 5))
        seen: dict[str, torch.Tensor] = {}
        for name, part in (("vectors", model.lstm), ("outputs", model.decoder)):
            part.register_forward_pre_hook(lambda _, inputs, name=name: seen.update({name: inputs[0]}))
        model(text)
        assert all(0.3 < float((one == 0).float().mean()) < 0.7 for one in seen.values()) and len(seen) == 2
        assert model.lstm.dropout == 0.5 and self.model(layers=1, dropout=0.5).lstm.dropout == 0.0
        model.eval()
        model(text)
        assert all(bool(one.all()) for one in seen.values())


@pytest.mark.parametrize(("size", "given"), [(32, 8), (16, 32), (32, None)])
def test_images_are_resized_before_the_first_layer(size: int, given: int | None) -> None:
    shape = (1, given or 9, given or 7)
    config = options.LeNet(input_size=size)
    torch.manual_seed(0)
    model = models.build(config, shape, 10)
    torch.manual_seed(0)
    plain = models.build(options.LeNet(), (1, size, size), 10)
    assert list(model.state_dict()) == list(plain.state_dict())  # no layer around it
    x = torch.randn(2, *shape)
    resized = F.interpolate(x, (size, size), mode="bilinear", align_corners=False)
    assert torch.equal(model(x), plain(resized))


def test_images_of_that_size_are_left_alone() -> None:
    model = models.build(options.LeNet(input_size=32), CIFAR, 10)
    assert not model._forward_pre_hooks
    x = torch.randn(2, *CIFAR)
    resizing = models.build(options.LeNet(input_size=32), (3, 8, 8), 10)
    (hook,) = resizing._forward_pre_hooks.values()
    assert hook(resizing, (x,))[0] is x


def test_torchvision_gets_grey_images_in_three_channels() -> None:
    torch.manual_seed(0)
    grey = models.build(options.Torchvision(arch="squeezenet1_1", input_size=32), (1, 8, 8), 10).eval()
    torch.manual_seed(0)
    colour = models.build(options.Torchvision(arch="squeezenet1_1", input_size=32), (3, 8, 8), 10).eval()
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(grey(x), colour(x.expand(-1, 3, -1, -1)))


def test_the_names_of_torchvision_are_all_there_are() -> None:
    from trainers.vision import torchvision

    zoo = torchvision().models
    assert list(classifiers()) == sorted(zoo.list_models(module=zoo))


def test_torchvisions_own_zero_init() -> None:
    with_it = models.build(options.Torchvision(arch="resnet18", zero_init_residual=True), CIFAR, 10)
    without = models.build(options.Torchvision(arch="resnet18"), CIFAR, 10)
    assert not with_it.layer1[0].bn2.weight.any() and without.layer1[0].bn2.weight.all()


@pytest.mark.parametrize("arch", ["googlenet", "inception_v3"])
def test_no_auxiliary_classifiers(arch: str) -> None:
    """They would make the output in training a tuple."""
    with torch.device("meta"):
        model = models.build(options.Torchvision(arch=arch), (3, 299, 299), 10)
        assert model.training and model(torch.zeros(2, 3, 299, 299)).shape == (2, 10)


@pytest.mark.parametrize(
    ("config", "shape", "classes", "message"),
    [
        (
            options.ResNet18(),
            (1, 8, 8),
            10,
            "model.input_size=null: valid is an integer from 16 up: model=resnet18 takes images from 16x16 pixels, and "
            "the data set's have 8x8",
        ),
        (options.VGG(input_size=16), CIFAR, 10, "model.input_size=16: valid is an integer from 32 up: model=vgg takes"),
        (options.DenseNet(121, blocks=4), (3, 9, 32), 10, "from 16 up: model=densenet takes images from 16x16"),
        (
            options.ResNet9(),
            (2000,),
            2,
            "model=resnet9 takes images, the data set has features or text of 2000: valid is mlp, logistic, lstm",
        ),
        (
            options.LSTM(),
            (1, 8, 8),
            10,
            "model=lstm takes text, the data set has images of 1x8x8: valid is wideresnet, resnet, resnet18, ",
        ),
        (options.Logistic(), (1, 8, 8), 1, "model=logistic with 1 classes in the data set: valid is a data set with 2"),
        (
            options.Torchvision(arch="alexnet"),
            CIFAR,
            10,
            "model.input_size=null: valid is a larger one, such as 224: mo",
        ),
        (options.Torchvision(arch="vit_b_16", input_size=50), CIFAR, 10, "model.input_size=50: valid is a larger one"),
        (options.Torchvision(), (4, 32, 32), 10, "model.arch=resnet50 with images of 4 channels: valid are 1 and 3"),
    ],
    ids=str,
)
def test_data_that_does_not_fit_is_one_line(config: Any, shape: tuple[int, ...], classes: int, message: str) -> None:
    with pytest.raises(UsageError) as error:
        models.build(config, shape, classes)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("wideresnet", {"depth": 12}, "depth=12: valid is 6 n + 4"),
        ("resnet", {"depth": 18}, "depth=18: valid is 6 n + 2 for a whole n: 8, 14, 20, 32"),
        ("resnet", {"shortcut": "C"}, "shortcut=C: valid is one of A, B"),
        ("vgg", {"depth": 12}, "depth=12: valid is one of 11, 13, 16, 19"),
        ("densenet", {"depth": 99}, "depth=99: valid is 6 n + 4"),
        ("densenet", {"depth": 42, "bottleneck": False}, "depth=42: valid is 3 n + 4"),
        ("densenet", {"depth": 100, "blocks": 4}, "depth=100: valid is one of 121, 161, 169, 201 with blocks=4"),
        ("densenet", {"depth": 121, "blocks": 4, "bottleneck": False}, "bottleneck=False: valid is true with blocks=4"),
        ("torchvision", {"arch": "resnet5"}, "arch=resnet5: valid is a classifier of torchvision, such as resnet50"),
        ("torchvision", {"arch": "alexnet", "zero_init_residual": True}, "zero_init_residual=True: valid is false, or"),
        ("alexnet", {"input_size": 0}, "input_size=0: valid is an integer from 1 to 4096 or null"),
    ],
)
def test_options_out_of_range_are_one_line(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="valid is") as error:
        options.MODELS[name](**changes)
    assert message in str(error.value)


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
        phases = regime(options.MODELS[name](), "cifar10")
        assert phases is not None and {phase.epoch: phase.lr for phase in phases} == expected, name
    first, *later = regime(options.ResNet(), "cifar100") or ()
    assert (first.momentum, first.weight_decay) == (0.9, 1e-4)
    assert all(phase.momentum is None and phase.weight_decay is None for phase in later)
    assert [phase.weight_decay for phase in regime(options.AlexNet(), "cifar10") or ()] == [5e-4, None, 0.0, None, None]


def test_a_regime_goes_by_the_data_set() -> None:
    imagenet = {0: 0.1, 30: 0.01, 60: 0.001, 90: 1e-4}
    for config, dataset in (
        (options.ResNet18(), "imagenet"),
        (options.Torchvision(), "imagenet"),
        (options.Torchvision(arch="vgg16_bn"), "digits"),
    ):
        assert {phase.epoch: phase.lr for phase in regime(config, dataset) or ()} == imagenet
    assert regime(options.ResNet18(), "digits") == regime(options.ResNet(110), "cifar10")
    for nothing in (options.LSTM(), options.Logistic(), options.DenseNet(), options.Torchvision(arch="vit_b_16")):
        assert regime(nothing, "imagenet") is None


@pytest.mark.parametrize("name", options.MODELS)
def test_phases_begin_with_all_that_they_need_and_follow_each_other(name: str) -> None:
    phases = regime(options.MODELS[name](), "cifar10")
    if phases is not None:
        epochs = [phase.epoch for phase in phases]
        assert epochs[0] == 0 and epochs == sorted(set(epochs)) and phases[0].lr is not None


def test_what_fits_is_known_without_torch() -> None:
    """A launcher may ask before it starts anything."""
    code = (
        "import sys; from trainers.models.fitting import check_fits; from trainers.models.regimes import regime; "
        "from trainers.options.models import ResNet18, Torchvision; check_fits(ResNet18(), (3, 32, 32), 10); "
        "Torchvision(arch='resnet18'); regime(ResNet18(), 'cifar10'); "
        "print({'torch', 'torchvision', 'numpy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_model_takes_the_data_it_says() -> None:
    for name, cls in options.MODELS.items():
        shape = TEXT if cls.takes == ("text",) else CIFAR
        check_fits(small(name), shape, 10)
    with pytest.raises(
        UsageError, match="model=mlp takes images or features, the data set has text of 35: valid is lstm$"
    ):
        check_fits(options.MLP(), TEXT, 10, "text")
    check_fits(options.MLP(), TEXT, 10, "features")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_the_parameters_that_its_yaml_names(preset: str) -> None:
    """The YAML's comment says how many there are on CIFAR-10, CIFAR-100 or MNIST."""
    head = (ROOT / "conf" / "model" / f"{preset}.yaml").read_text().splitlines()[0]
    numbers = re.findall(r"\d{1,3}(?:,\d{3})+", head)
    name, changes = PRESETS[preset]
    with torch.device("meta"):
        model = models.build(
            options.MODELS[name](**changes), MNIST if "MNIST" in head else CIFAR, 100 if "CIFAR-100" in head else 10
        )
    assert not numbers or f"{count(model):,}" == numbers[0]
    assert numbers or preset in ("vgg11", "vgg13", "vgg19")


def test_the_page_of_models_has_them_all_with_their_numbers_of_parameters() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [
        row.strip("|").split("|") for row in page.split("## Image sizes")[0].splitlines() if re.match(r"\| `\w+`", row)
    ]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == sorted([*options.MODELS, *PRESETS])
    known = {parameters for _, _, _, parameters, _ in PUBLISHED}
    comments = [(ROOT / "conf" / "model" / f"{preset}.yaml").read_text() for preset in PRESETS]
    known |= {int(number.replace(",", "")) for text in comments for number in re.findall(r"\d{1,3}(?:,\d{3})+", text)}
    for row in rows:
        for number in re.findall(r"\d{1,3}(?:,\d{3})+", row[1].split("(")[0]):
            assert int(number.replace(",", "")) in known, row
        (name, *_) = re.findall(r"`(\w+)`", row[0])
        kind, changes = PRESETS.get(name, (name, {}))
        config = options.MODELS[kind](**changes)
        if (size := re.match(r" (\d+)x", row[2])) is not None:
            assert config.smallest == int(size[1]), row


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (options.DenseNet(121, 2, blocks=4), (16, 16)),
        (options.LeNet(), (17, 35)),
        (options.LeNet("atomo"), (16, 19)),
        (options.AlexNet("large"), (17, 34)),
        (options.AlexNet(), (20, 16)),
        (options.FC(), (1, 3)),
        (options.VGG(11, "hidden"), (33, 64)),
        (options.ResNet(8), (9, 8)),
    ],
    ids=str,
)
def test_images_need_not_be_square_or_of_even_size(config: Any, size: tuple[int, int]) -> None:
    x = torch.randn(1, 2, *size)
    model = models.build(config, (2, *size), 3)
    model(x).sum().backward()
    assert model(x).shape == (1, 3)
