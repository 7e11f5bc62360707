"""Data sets by name; read by trainers/data.

`kind` is the kind of a model's input: `images` (channels, height, width), `text` (token ids, with a label at every
position), `features` (a vector), or `custom`, which shows when the data are read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from typing import Any, ClassVar

from gradsweep.options.parameters import (
    Checked,
    InvalidParameter,
    boolean,
    choice,
    integer,
    is_number,
    mapping,
    number,
    sequence,
)
from trainers.options import own_code
from trainers.options.phases import Phase


def _is_level(value: object) -> bool:
    return is_number(value, 0, 1)


@dataclasses.dataclass(frozen=True)
class Dataset(Checked):
    """The base of data sets of plug-ins: `build(root, download)` returns a `trainers.data.store.Prepared`."""

    kind: ClassVar[str]


@dataclasses.dataclass(frozen=True)
class Images(Dataset):
    """The base of data sets with images in memory as uint8, with the options of their augmentation.

    Training images are augmented in this order: pad by `crop_padding` and crop a random window of the original size,
    flip horizontally with probability 1/2, normalise by (x - mean) / std, and set a random square of `cutout` pixels
    inside the image to 0, the mean. Test images are only normalised.
    """

    kind: ClassVar[str] = "images"

    crop_padding: int = integer(0, low=0, high=1024)
    padding_mode: str = choice("reflect", "reflect", "constant")
    padding_fill: int = integer(0, low=0, high=255)
    flip: bool = boolean(False)
    cutout: int = integer(0, low=0, high=1024)
    mean: list[float] = sequence("a list of numbers from 0 to 1, one for each channel, or empty", _is_level)
    std: list[float] = sequence(
        "a list of numbers above 0, up to 1, one for each channel, or empty", lambda value: _is_level(value) and value
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.mean) != len(self.std):
            raise InvalidParameter("std", self.std, f"a list as long as mean, which has {len(self.mean)}")


@dataclasses.dataclass(frozen=True)
class Digits(Images):
    """The 1,797 handwritten 8x8 digits bundled with scikit-learn; 1,437 to train, 360 to test."""


@dataclasses.dataclass(frozen=True)
class Cifar10(Images):
    """CIFAR-10 (Krizhevsky, 2009) from the user's own copy of cifar-10-batches-py."""

    crop_padding: int = integer(4, low=0, high=1024)
    flip: bool = boolean(True)


@dataclasses.dataclass(frozen=True)
class Cifar100(Cifar10):
    """CIFAR-100 (Krizhevsky, 2009) with its 100 fine labels, from the user's own copy of cifar-100-python."""


@dataclasses.dataclass(frozen=True)
class SVHN(Images):
    """Street view house numbers, cropped (Netzer et al., 2011): 73,257 to train, 26,032 to test, 3x32x32."""


@dataclasses.dataclass(frozen=True)
class MNIST(Images):
    """MNIST (LeCun et al., 1998): 60,000 to train, 10,000 to test, 1x28x28."""


@dataclasses.dataclass(frozen=True)
class FashionMNIST(Images):
    """Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017), in MNIST's format and size."""


@dataclasses.dataclass(frozen=True)
class STL10(Images):
    """STL-10 (Coates, Ng and Lee, AISTATS 2011), the labelled images: 5,000 to train, 8,000 to test, 3x96x96."""

    crop_padding: int = integer(12, low=0, high=1024)
    flip: bool = boolean(True)


@dataclasses.dataclass(frozen=True)
class Synthetic(Images):
    """Generated images: a coarse random pattern for each class, with noise. Any size, and learnable.

    Args:
        noise: a pixel's largest deviation from its class's pattern, in levels of 255.
    """

    channels: int = integer(3, low=1, high=64)
    height: int = integer(32, low=1, high=1024)
    width: int = integer(32, low=1, high=1024)
    classes: int = integer(10, low=2, high=100_000)
    train: int = integer(10_000, low=1)
    test: int = integer(2_000, low=1)
    noise: int = integer(96, low=0, high=255)


@dataclasses.dataclass(frozen=True)
class ImageNet(Checked):
    """ImageNet, or any images in `folder`/train/CLASS/*.JPEG and `folder`/val/CLASS/*.JPEG, decoded when needed.

    Training images: a random crop with at least the share `scale` of the area, resized to `size`, randomly flipped
    (Szegedy et al., 2015). Test images: the shorter side is resized to `resize`, and a centre crop is taken (He et al.,
    2016). It is a square, or with `rectangular` it has the mean aspect ratio of images of similar shape.
    """

    kind: ClassVar[str] = "images"

    folder: str = "imagenet"
    size: int = integer(224, low=8, high=4096)
    resize: int = integer(256, low=8, high=4096)
    scale: float = number(0.08, 0.0, 1.0, above=True)
    flip: bool = boolean(True)
    rectangular: bool = boolean(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resize < self.size:
            raise InvalidParameter("resize", self.resize, f"an integer from {self.size} (size) up")

    def adapt_to(self, phase: Phase) -> ImageNet:
        """Return the options in a phase of a run; the margin around the middle grows with the size."""
        size = self.size if phase.size is None else phase.size
        return dataclasses.replace(
            self,
            size=size,
            resize=round(self.resize * size / self.size),
            scale=self.scale if phase.scale is None else phase.scale,
            rectangular=self.rectangular if phase.rectangular is None else phase.rectangular,
        )


@dataclasses.dataclass(frozen=True)
class Text(Dataset):
    """The base of texts; `evaluate` chooses the held-out part for tests.

    `order`: `streams` cuts the text into one stream for each sample of a batch, and each step reads the next `bptt`
    tokens of every stream; `windows` reads `bptt` tokens from random places, which are a function of seed, epoch and
    step, and tests with the consecutive pieces of the held-out part, or with `test_windows` of them at equal distances.
    """

    kind: ClassVar[str] = "text"

    bptt: int = integer(35, low=1, high=100_000)
    evaluate: str = choice("test", "test", "valid")
    order: str = choice("streams", "streams", "windows")
    test_windows: int | None = integer(None, low=1, optional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.test_windows is not None and self.order != "windows":
            raise InvalidParameter("test_windows", self.test_windows, "null with dataset.order=streams")


TOKENS = ("words", "characters", "bytes", "gpt2")
"""Tokens of a text: words between blanks, characters, bytes of UTF-8, or those of GPT-2 (by tiktoken)."""


@dataclasses.dataclass(frozen=True)
class WikiText2(Text):
    """WikiText-2 (Merity et al., ICLR 2017), in wikitext-2/wiki.{train,valid,test}.tokens: 33,278 different words."""


@dataclasses.dataclass(frozen=True)
class PennTreebank(Text):
    """Penn Treebank as prepared by Mikolov et al. (2010), in ptb/ptb.{train,valid,test}.txt: 10,000 different words."""


@dataclasses.dataclass(frozen=True)
class TextFiles(Text):
    """Any text: train.txt, valid.txt and test.txt in `folder`."""

    folder: str = "text"
    tokens: str = choice("words", *TOKENS)


@dataclasses.dataclass(frozen=True)
class WholeText(Text):
    """The base of texts of one piece, of which the last tenth is the test set."""

    bptt: int = integer(64, low=1, high=100_000)
    evaluate: str = choice("test", "test")
    order: str = choice("windows", "streams", "windows")
    tokens: str = choice("characters", *TOKENS)


@dataclasses.dataclass(frozen=True)
class PyDoc(WholeText):
    """The reference of the language Python, half a million characters of English: `pydoc_data.topics` of this Python.

    Each version of Python has another text. `sha256` is that of the text as UTF-8; None is replaced by the one of the
    Python that starts the run, before the run has its signature.
    """

    sha256: str | None = None


@dataclasses.dataclass(frozen=True)
class TinyShakespeare(WholeText):
    """Tiny Shakespeare (Karpathy, char-rnn, 2015): 1,115,394 characters, 65 different, in tinyshakespeare/input.txt."""


@dataclasses.dataclass(frozen=True)
class SyntheticText(Text):
    """Generated text, a Markov chain of order two: after any two tokens, one of `branches` tokens follows, each half as
    likely as the previous one. It has `train` tokens for training, and `test` tokens in each of two held-out parts."""

    vocabulary: int = integer(32, low=2, high=4096)
    branches: int = integer(4, low=1, high=16)
    train: int = integer(200_000, low=2)
    test: int = integer(20_000, low=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.branches > self.vocabulary:
            raise InvalidParameter("branches", self.branches, f"an integer up to {self.vocabulary} (vocabulary)")


@dataclasses.dataclass(frozen=True)
class Epsilon(Checked):
    """epsilon of the PASCAL challenge 2008, from LIBSVM's page: 400,000 to train, 100,000 to test, 2,000 features."""

    kind: ClassVar[str] = "features"


@dataclasses.dataclass(frozen=True)
class RCV1(Checked):
    """RCV1 (Lewis et al., JMLR 2004), binary, from LIBSVM's page: 20,242 to train, 677,399 to test, 47,236 features."""

    kind: ClassVar[str] = "features"


@dataclasses.dataclass(frozen=True)
class LibSVM(Checked):
    """Any files in LIBSVM's format. Without a file `test`, a random share `test_share` of `train` is the test set.

    Args:
        features: length of a sample; null: the largest index in the training file.
        dense: store all values, instead of only those that are not zero.
    """

    kind: ClassVar[str] = "features"

    train: str = "train.svm"
    test: str | None = None
    test_share: float = number(0.2, 0.0, 1.0, above=True, below=True)
    features: int | None = integer(None, low=1, high=2**31 - 1, optional=True)
    dense: bool = boolean(False)


@dataclasses.dataclass(frozen=True)
class Custom(Checked):
    """The user's own data: what `target(**args)` returns, a training and a test set.

    Both are map-style data sets of torch, or both are pairs (inputs, targets) of arrays or tensors.

    Args:
        collate: a target, which makes a batch of a list of samples; null: torch's default_collate.
        classes: width of the model's output; null: 1 + the largest label.
    """

    kind: ClassVar[str] = "custom"

    target: str = own_code.target()
    args: dict[str, Any] = mapping(own_code.ARGS)
    collate: str | None = own_code.target(None)
    classes: int | None = integer(None, low=2, optional=True)


DATASETS: dict[str, type[Any]] = {
    "digits": Digits,
    "cifar10": Cifar10,
    "cifar100": Cifar100,
    "svhn": SVHN,
    "mnist": MNIST,
    "fashion_mnist": FashionMNIST,
    "stl10": STL10,
    "synthetic": Synthetic,
    "imagenet": ImageNet,
    "wikitext2": WikiText2,
    "ptb": PennTreebank,
    "text": TextFiles,
    "synthetic_text": SyntheticText,
    "pydoc": PyDoc,
    "tinyshakespeare": TinyShakespeare,
    "epsilon": Epsilon,
    "rcv1": RCV1,
    "libsvm": LibSVM,
    "custom": Custom,
}

WHILE_TRAINING = frozenset(
    {field.name for cls in (Images, Text) for field in dataclasses.fields(cls)}
    | {"size", "resize", "scale", "rectangular"}
)
"""Options that say how samples are shown: the prepared arrays don't depend on them."""


def name_prepared_arrays(name: str, options: Any) -> str:
    """Return the name of a data set's prepared arrays; it contains all options on which the arrays depend."""
    words = [
        f"{field.name}={getattr(options, field.name)}"
        for field in dataclasses.fields(options)
        if field.name not in WHILE_TRAINING
    ]
    return ",".join([name, *(_make_safe(word) for word in words)])


def _make_safe(word: str) -> str:
    """Return a word without characters unfit for file names; a hash follows if it was changed or cut."""
    text = re.sub(r"[^A-Za-z0-9._=-]", "_", word)
    if text == word and len(text) <= 40:
        return text
    return f"{text[:40]}-{hashlib.sha256(word.encode()).hexdigest()[:8]}"
