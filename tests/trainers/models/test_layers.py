"""What the models compute, held against their sources' layers and against torchvision's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from trainers import models
from trainers.models.resnet import Basic, Bottleneck, PaddedShortcut
from trainers.models.senet import Block as SEBlock
from trainers.options import models as options

pytestmark = pytest.mark.usefixtures("one_thread")

CIFAR, MNIST, IMAGENET = (3, 32, 32), (1, 28, 28), (3, 224, 224)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


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
    from trainers.models.torchvision_import import import_torchvision

    model = models.build(options.DenseNet(121, 4, blocks=4), CIFAR, 10).eval()
    theirs = (
        import_torchvision().models.DenseNet(growth_rate=4, block_config=(6, 12, 24, 16), num_init_features=8).eval()
    )
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
