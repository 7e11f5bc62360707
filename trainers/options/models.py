"""Models by name; built by trainers/models, a module a family.

The inputs that a model accepts are here, too, so that they are known without torch: `takes`, and for images `smallest`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from gradsweep.options.hints import did_you_mean, one_of
from gradsweep.options.parameters import Checked, InvalidParameter, boolean, choice, integer, mapping, number
from trainers.options import torchvision_names
from trainers.options.own_code import ARGS, target

ARCHS_LISTED_BY = "python -m trainers.options.torchvision_names"


@dataclasses.dataclass(frozen=True)
class Model(Checked):
    """The base of all models' options.

    Models of plug-ins have `build(shape, classes)`: it returns an nn.Module for samples of this shape.
    """

    takes: ClassVar[tuple[str, ...]] = ("images", "features")
    """Kinds of data: `images` (channels, height, width), `features` (a vector), `text` (numbers of words)."""

    @property
    def one_size(self) -> bool:
        """Whether the model takes only inputs of the size that it was built for."""
        return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageModel(Model):
    """A model of images, which it resizes to `input_size` x `input_size` pixels if they have another size."""

    takes: ClassVar[tuple[str, ...]] = ("images",)
    least: ClassVar[int] = 8

    input_size: int | None = integer(None, low=1, high=4096, optional=True)

    @property
    def smallest(self) -> int:
        """The smallest allowed shorter side of an image in pixels.

        In smaller images the last batch normalisation would see a single pixel, so that the model could not learn from
        a batch of one image."""
        return self.least

    @property
    def one_size(self) -> bool:
        return False


@dataclasses.dataclass(frozen=True)
class WideResNet(ImageModel):
    """Wide residual network WRN-depth-widen with pre-activation blocks (Zagoruyko and Komodakis, BMVC 2016)."""

    depth: int = integer(10, low=10)
    widen: int = integer(1, low=1)
    dropout: float = number(0.0, 0.0, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.depth - 4) % 6:
            raise InvalidParameter("depth", self.depth, "6 n + 4 for a whole n: 10, 16, 22, 28, 34, 40, ...")


@dataclasses.dataclass(frozen=True)
class ResNet(ImageModel):
    """ResNet with three groups of (depth - 2) / 6 blocks of 16, 32, 64 channels (He et al., CVPR 2016, section 4.2)."""

    depth: int = integer(20, low=8)
    shortcut: str = choice("A", "A", "B")
    block: str = choice("basic", "basic", "bottleneck")
    zero_init_residual: bool = boolean(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.depth - 2) % 6:
            raise InvalidParameter("depth", self.depth, "6 n + 2 for a whole n: 8, 14, 20, 32, 44, 56, 110, ...")


@dataclasses.dataclass(frozen=True)
class FourGroups(ImageModel):
    """The base of ResNets with four groups of blocks (He et al., CVPR 2016, table 1), for small images.

    The stem is a 3x3 convolution without pooling.
    """

    least: ClassVar[int] = 16
    bottleneck: ClassVar[bool] = False
    blocks: ClassVar[tuple[int, ...]] = ()

    zero_init_residual: bool = boolean(False)


@dataclasses.dataclass(frozen=True)
class ResNet18(FourGroups):
    """ResNet-18 (He et al., CVPR 2016) for small images."""

    blocks: ClassVar[tuple[int, ...]] = (2, 2, 2, 2)


@dataclasses.dataclass(frozen=True)
class ResNet34(FourGroups):
    """ResNet-34 (He et al., CVPR 2016) for small images."""

    blocks: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)


@dataclasses.dataclass(frozen=True)
class ResNet50(FourGroups):
    """ResNet-50 with bottleneck blocks (He et al., CVPR 2016) for small images."""

    bottleneck: ClassVar[bool] = True
    blocks: ClassVar[tuple[int, ...]] = (3, 4, 6, 3)


@dataclasses.dataclass(frozen=True)
class SENet18(ImageModel):
    """SENet-18: 18 layers in pre-activation blocks with squeeze and excitation (Hu et al., CVPR 2018)."""

    least: ClassVar[int] = 16


@dataclasses.dataclass(frozen=True)
class ResNet9(ImageModel):
    """ResNet-9 of DAWNBench (Page, 2018; cifar10-fast): eight convolutions, and outputs multiplied by `scale`."""

    least: ClassVar[int] = 16

    scale: float = number(0.125, 0.0, above=True)


@dataclasses.dataclass(frozen=True)
class AlexNet(ImageModel):
    """The AlexNets of the layer-wise study (Dutta et al., AAAI 2020): `dawn` in the style of ResNet-9, and `large` with
    hidden layers of 4096."""

    least: ClassVar[int] = 16

    variant: str = choice("dawn", "dawn", "large")

    @property
    def one_size(self) -> bool:
        return self.variant == "large"


@dataclasses.dataclass(frozen=True)
class VGG(ImageModel):
    """VGG with 11, 13, 16 or 19 layers (Simonyan and Zisserman, ICLR 2015), for small images.

    `head`: `linear`, a linear classifier; `hidden`, two hidden layers of 512 before it (ChocoSGD); `imagenet`, two
    hidden layers of 4096 on 7x7 pixels (the layer-wise study).
    """

    least: ClassVar[int] = 32

    depth: int = integer(16, low=11, high=19)
    head: str = choice("linear", "linear", "hidden", "imagenet")
    batch_norm: bool = boolean(True)
    dropout: float = number(0.5, 0.0, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth not in (11, 13, 16, 19):
            raise InvalidParameter("depth", self.depth, "one of 11, 13, 16, 19")


DENSE_BLOCKS: dict[int, tuple[int, ...]] = {
    121: (6, 12, 24, 16),
    161: (6, 12, 36, 24),
    169: (6, 12, 32, 32),
    201: (6, 12, 48, 32),
}
"""Layers of the four dense blocks of the networks for ImageNet, by depth (Huang et al., table 1)."""


@dataclasses.dataclass(frozen=True)
class DenseNet(ImageModel):
    """DenseNet (Huang et al., CVPR 2017): in a dense block, each layer's input is the output of all layers before it.

    `blocks`: 3 equal blocks with (depth - 4) / 3 convolutions each, where a bottleneck layer has two; or 4 blocks as in
    DENSE_BLOCKS. `stem`: channels of the first convolution; null: as in the paper, twice `growth` with bottlenecks, and
    16 without.
    """

    depth: int = integer(100, low=7)
    growth: int = integer(12, low=1)
    blocks: int = integer(3, low=3, high=4)
    bottleneck: bool = boolean(True)
    compression: float = number(0.5, 0.0, 1.0, above=True)
    stem: int | None = integer(None, low=1, optional=True)
    dropout: float = number(0.0, 0.0, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.blocks == 4:
            if not self.bottleneck:
                raise InvalidParameter("bottleneck", False, "true with blocks=4, whose layers are bottlenecks")
            if self.depth not in DENSE_BLOCKS:
                raise InvalidParameter("depth", self.depth, f"one of {', '.join(map(str, DENSE_BLOCKS))} with blocks=4")
        elif (self.depth - 4) % (6 if self.bottleneck else 3):
            valid = "6 n + 4 for a whole n: 10, ..., 100, 190, 250, or 3 n + 4 with bottleneck=false"
            raise InvalidParameter("depth", self.depth, valid if self.bottleneck else "3 n + 4 for a whole n: 40, 100")

    @property
    def smallest(self) -> int:
        return 8 if self.blocks == 3 else 16

    @property
    def layers(self) -> tuple[int, ...]:
        """The number of layers of each block."""
        if self.blocks == 4:
            return DENSE_BLOCKS[self.depth]
        return ((self.depth - 4) // (6 if self.bottleneck else 3),) * 3


@dataclasses.dataclass(frozen=True)
class MobileNetV2(ImageModel):
    """MobileNetV2 (Sandler et al., CVPR 2018) with smaller strides for small images."""

    least: ClassVar[int] = 16


@dataclasses.dataclass(frozen=True)
class GoogLeNet(ImageModel):
    """GoogLeNet (Szegedy et al., CVPR 2015) with batch normalisation and a 3x3 stem for small images."""


@dataclasses.dataclass(frozen=True)
class LeNet(ImageModel):
    """LeNet (LeCun et al., 1998): `five`, LeNet-5 with ReLU and max pooling; `atomo`, the wider one of ATOMO's code."""

    least: ClassVar[int] = 16

    variant: str = choice("five", "five", "atomo")

    @property
    def one_size(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class FC(ImageModel):
    """ATOMO's network with fully connected layers of 800 and 500 units; `sigmoid`: on the outputs, as in its code."""

    least: ClassVar[int] = 1

    sigmoid: bool = boolean(True)

    @property
    def one_size(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class MLP(Model):
    """A multi-layer perceptron with ReLU, without batch normalisation, which depends on how workers share a batch."""

    width: int = integer(128, low=1)
    layers: int = integer(2, low=1)


@dataclasses.dataclass(frozen=True)
class Logistic(Model):
    """Logistic regression, a convex problem: one logit for two classes, otherwise multinomial."""

    bias: bool = boolean(True)


@dataclasses.dataclass(frozen=True)
class LSTM(Model):
    """An LSTM language model (Zaremba et al., 2014).

    `tied`: the input and output layers share the word vectors (Press and Wolf, 2017).
    """

    takes: ClassVar[tuple[str, ...]] = ("text",)

    hidden: int = integer(650, low=1)
    layers: int = integer(3, low=1)
    dropout: float = number(0.4, 0.0, 0.99)
    tied: bool = boolean(True)


@dataclasses.dataclass(frozen=True)
class GPT(Model):
    """A transformer language model with pre-normalised blocks (GPT-2, Radford et al., 2019; Llama, 2023).

    `context`: the largest number of tokens of an input, for learned positions; None: that of the data set.
    `inner`: the width of the layer inside a block; None: 4 `width`, of SwiGLU 8/3 `width`, up to a multiple of 64.
    """

    takes: ClassVar[tuple[str, ...]] = ("text",)

    layers: int = integer(6, low=1)
    heads: int = integer(6, low=1)
    width: int = integer(384, low=2)
    context: int | None = integer(None, low=1, optional=True)
    inner: int | None = integer(None, low=1, optional=True)
    norm: str = choice("layer", "layer", "rms")
    positions: str = choice("learned", "learned", "rotary")
    activation: str = choice("gelu", "gelu", "swiglu")
    bias: bool = boolean(False)
    tied: bool = boolean(True)
    dropout: float = number(0.0, 0.0, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            valid = f"a divisor of model.width={self.width}, as every head has a part of the width"
            raise InvalidParameter("heads", self.heads, valid)
        if self.positions == "rotary" and self.width // self.heads % 2:
            valid = "learned where a head has an odd width: rotary positions turn pairs"
            raise InvalidParameter("positions", self.positions, valid)

    @property
    def inner_width(self) -> int:
        """The width of the layer inside a block."""
        if self.inner is not None:
            return self.inner
        return 4 * self.width if self.activation == "gelu" else -(-8 * self.width // 3 // 64) * 64


_ZERO_INIT = ("resnet", "resnext", "wide_resnet")
BUILT_FOR_A_SIZE = ("vit_", "maxvit")
"""How names of torchvision's models begin that are given the size of the images when they are built."""


@dataclasses.dataclass(frozen=True)
class Torchvision(ImageModel):
    """A classifier of torchvision by its name there, untrained, with an output for each class of the data set."""

    least: ClassVar[int] = 1  # which sizes work depends on `arch`: it is tried with one image

    arch: str = "resnet50"
    zero_init_residual: bool = boolean(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = torchvision_names.list_classifiers()
        if known and self.arch not in known:
            raise InvalidParameter("arch", self.arch, one_of(known, ARCHS_LISTED_BY), did_you_mean(self.arch, known))
        if self.zero_init_residual and not self.arch.startswith(_ZERO_INIT):
            valid = "false, or true with an arch that begins with " + ", ".join(_ZERO_INIT)
            raise InvalidParameter("zero_init_residual", True, valid)

    @property
    def one_size(self) -> bool:
        return self.arch.startswith(BUILT_FOR_A_SIZE)


@dataclasses.dataclass(frozen=True)
class Custom(Model):
    """The model that an own function or class returns (docs/guide/your-own.md)."""

    takes: ClassVar[tuple[str, ...]] = ("images", "features", "text", "integers", "several")

    target: str = target()
    args: dict[str, Any] = mapping(ARGS)

    @property
    def one_size(self) -> bool:
        return False


MODELS: dict[str, type[Model]] = {
    "wideresnet": WideResNet,
    "resnet": ResNet,
    "resnet18": ResNet18,
    "resnet34": ResNet34,
    "resnet50": ResNet50,
    "senet18": SENet18,
    "resnet9": ResNet9,
    "alexnet": AlexNet,
    "vgg": VGG,
    "densenet": DenseNet,
    "mobilenetv2": MobileNetV2,
    "googlenet": GoogLeNet,
    "lenet": LeNet,
    "fc": FC,
    "mlp": MLP,
    "logistic": Logistic,
    "lstm": LSTM,
    "gpt": GPT,
    "torchvision": Torchvision,
    "custom": Custom,
}
