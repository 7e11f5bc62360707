"""Models: published numbers of parameters, what they compute, and which data they take."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradsweep.errors import UsageError
from tests.conftest import ROOT, read_presets
from trainers import models
from trainers.models.fitting import check_fits
from trainers.options import models as options
from trainers.options.torchvision_names import list_classifiers
from trainers.tasks.classification import flatten_scores

pytestmark = pytest.mark.usefixtures("one_thread")

CIFAR, MNIST, TEXT, IMAGENET = (3, 32, 32), (1, 28, 28), (35,), (3, 224, 224)

PRESETS = read_presets("model")


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
@pytest.mark.parametrize("name", [name for name in options.MODELS if name != "custom"])
def test_every_model_learns_from_the_smallest_images(name: str, channels: int) -> None:
    """Forward and backward in training mode, with a single sample in the batch where there are three channels."""
    config, n = small(name), 1 if channels == 3 else 3
    inputs, shape = samples(config, n, channels)
    model = models.build(config, shape, 7)
    assert model.training
    outputs, labels = flatten_scores(
        model(inputs), torch.randint(0, 7, (n, *inputs.shape[1:]) if len(shape) == 1 else (n,))
    )
    assert outputs.shape == (len(labels), 7)
    F.cross_entropy(outputs, labels).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and bool(torch.isfinite(gradient).all()) for gradient in gradients)
    assert any(bool(gradient.any()) for gradient in gradients if gradient is not None)


@pytest.mark.parametrize(
    "name", [name for name, cls in options.MODELS.items() if cls.takes != ("text",) and name != "custom"]
)
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


def test_the_names_of_torchvision_are_all_there_are() -> None:
    from trainers.models.torchvision_import import import_torchvision

    zoo = import_torchvision().models
    assert list(list_classifiers()) == sorted(zoo.list_models(module=zoo))


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
    with pytest.raises(UsageError) as error:  # the same before anything starts
        models.try_out(config, shape, classes)
    assert "\n" not in str(error.value) and (message in str(error.value) or "features of 2000" in str(error.value))


def test_a_model_that_cannot_be_built_without_numbers_passes() -> None:
    """RegNet draws its first weights by copying numbers; nothing is said about its images then."""
    regnet = options.Torchvision(arch="regnet_y_400mf")
    models.try_out(regnet, CIFAR, 10)
    models.try_out(options.Torchvision(arch="resnet18"), CIFAR, 10)
    with pytest.raises(NotImplementedError), torch.device("meta"):
        models.build(regnet, CIFAR, 10)


def test_the_command_that_errors_name_lists_the_classifiers_of_torchvision() -> None:
    command = [sys.executable, *options.ARCHS_LISTED_BY.split()[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "resnet50" in done.stdout.split(), done.stderr


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
        ("torchvision", {"arch": "resnet5"}, "arch=resnet5: did you mean resnet50? valid is one of the "),
        ("torchvision", {"arch": "alexnet", "zero_init_residual": True}, "zero_init_residual=True: valid is false, or"),
        ("alexnet", {"input_size": 0}, "input_size=0: valid is an integer from 1 to 4096 or null"),
    ],
)
def test_options_out_of_range_are_one_line(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="valid is") as error:
        options.MODELS[name](**changes)
    assert message in str(error.value)


def test_what_fits_is_known_without_torch() -> None:
    """A launcher may ask before it starts anything."""
    code = (
        "import sys; from trainers.models.fitting import check_fits; from trainers.models.regimes import find_regime; "
        "from trainers.options.models import ResNet18, Torchvision; check_fits(ResNet18(), (3, 32, 32), 10); "
        "Torchvision(arch='resnet18'); find_regime(ResNet18(), 'cifar10'); "
        "print({'torch', 'torchvision', 'numpy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_every_model_takes_the_data_it_says() -> None:
    for name, cls in options.MODELS.items():
        shape = TEXT if cls.takes == ("text",) else CIFAR
        check_fits(small(name), shape, 10)
    with pytest.raises(
        UsageError, match="model=mlp takes images or features, the data set has text of 35: valid is lstm, gpt, custom$"
    ):
        check_fits(options.MLP(), TEXT, 10, "text")
    check_fits(options.MLP(), TEXT, 10, "features")


@pytest.mark.parametrize("preset", [preset for preset, (name, _) in PRESETS.items() if name != "gpt"])
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
    page = (ROOT / "docs/reference/models.md").read_text(encoding="utf-8")
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
