"""Augment training images, a whole batch at once, and normalise all images."""

from __future__ import annotations

import numpy as np
import torch

from gradsweep.errors import bad_value
from trainers.data import draws
from trainers.options.datasets import Images


def pad(images: np.ndarray, size: int, mode: str, fill: int) -> np.ndarray:
    """Return images (n, C, H, W) with `size` more pixels on each side: mirrored at the border pixels, or of level
    `fill`."""
    n, channels, height, width = images.shape
    shape = (n, channels, height + 2 * size, width + 2 * size)
    # numpy's own pad takes three times as long
    padded = np.full(shape, fill, dtype=images.dtype) if mode == "constant" else np.empty(shape, dtype=images.dtype)
    padded[:, :, size : size + height, size : size + width] = images
    if mode == "constant":
        return padded
    inside = padded[:, :, :, size : size + width]
    for step in range(1, size + 1):
        inside[:, :, size - step] = inside[:, :, size + step]
        inside[:, :, size + height - 1 + step] = inside[:, :, size + height - 1 - step]
    padded[..., :size] = padded[..., 2 * size : size : -1]
    padded[..., size + width :] = padded[..., size + width - 2 : width - 2 : -1]
    return padded


def cut_windows(images: np.ndarray, top: np.ndarray, left: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return a copy (n, C, height, width) of the window of each image (n, C, H, W) that begins at its `top`, `left`."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (height, width), axis=(2, 3))
    cropped: np.ndarray = windows[np.arange(len(images)), :, top, left]
    return cropped


def clear(images: np.ndarray, top: np.ndarray, left: np.ndarray, size: int) -> None:
    """Set a square of each image (n, C, H, W) to zero, in place."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (size, size), axis=(2, 3), writeable=True)
    windows[np.arange(len(images)), :, top, left] = 0


class Augment:
    """Converts uint8 images to float32 with the augmentation in the data set's options.

    The random numbers for a sample are a function of the seed, the epoch and the sample's number; they do not depend on
    its batch or its worker.

    Args:
        options: of the data set.
        shape: channels, height and width of an image.
        mean, std: of the training set, per channel in levels from 0 to 255; used if the options give none.
        samples: in the training set.

    Raises:
        UsageError: an option does not fit the images.
    """

    def __init__(
        self,
        options: Images,
        shape: tuple[int, ...],
        mean: tuple[float, ...],
        std: tuple[float, ...],
        samples: int,
        seed: int,
    ) -> None:
        channels, self.height, self.width = shape
        shorter = min(self.height, self.width)
        if options.padding_mode == "reflect" and options.crop_padding >= shorter:
            raise bad_value(
                "dataset.crop_padding",
                options.crop_padding,
                f"an integer up to {shorter - 1} with padding_mode=reflect and images of {self.height}x{self.width}",
            )
        if options.cutout > shorter:
            raise bad_value(
                "dataset.cutout", options.cutout, f"an integer up to {shorter}: images have {self.height}x{self.width}"
            )
        if options.mean and len(options.mean) != channels:
            raise bad_value("dataset.mean", list(options.mean), f"a list of {channels}, one number for each channel")
        self.options, self.samples, self.seed = options, samples, seed
        if options.mean:
            mean, std = (tuple(255 * value for value in values) for values in (options.mean, options.std))
        self.shift = torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1)
        self.scale = 1 / torch.tensor(std, dtype=torch.float32).view(-1, 1, 1)
        self._drawn: tuple[int, dict[int, np.ndarray]] | None = None

    def __call__(self, images: np.ndarray, rows: np.ndarray, epoch: int) -> torch.Tensor:
        """Return images (n, C, H, W), which have the numbers `rows` in the training set, augmented for an epoch."""
        options, draw = self.options, self._draw(epoch)
        if options.crop_padding:
            padded = pad(images, options.crop_padding, options.padding_mode, options.padding_fill)
            top, left = draw[draws.CROP_TOP][rows], draw[draws.CROP_LEFT][rows]
            images = cut_windows(padded, top, left, self.height, self.width)
        if options.flip:
            mirrored = draw[draws.FLIP][rows].astype(bool)
            if not options.crop_padding:
                images = np.array(images)
            images[mirrored] = images[mirrored][..., ::-1]
        normalised = self.normalise(images)
        if options.cutout:
            top, left = draw[draws.CUTOUT_TOP][rows], draw[draws.CUTOUT_LEFT][rows]
            clear(normalised.numpy(), top, left, options.cutout)
        return normalised

    def normalise(self, images: np.ndarray) -> torch.Tensor:
        """Return images (n, C, H, W) normalised, without augmentation."""
        return torch.from_numpy(images.astype(np.float32)).sub_(self.shift).mul_(self.scale)

    def _draw(self, epoch: int) -> dict[int, np.ndarray]:
        """Draw all random numbers of an epoch for all samples, which takes a few milliseconds."""
        if self._drawn is None or self._drawn[0] != epoch:
            options = self.options
            ends: dict[int, int] = {}
            if options.crop_padding:
                ends |= dict.fromkeys((draws.CROP_TOP, draws.CROP_LEFT), 2 * options.crop_padding + 1)
            if options.flip:
                ends[draws.FLIP] = 2
            if options.cutout:
                ends[draws.CUTOUT_TOP] = self.height - options.cutout + 1
                ends[draws.CUTOUT_LEFT] = self.width - options.cutout + 1
            self._drawn = (
                epoch,
                {
                    purpose: draws.create_generator(self.seed, epoch, purpose).randint(0, end, self.samples)
                    for purpose, end in ends.items()
                },
            )
        return self._drawn[1]


class Plain:
    """A replacement of `Augment` for other data, which leaves them unchanged: real numbers as float32, or integers."""

    def __call__(self, samples: np.ndarray, rows: np.ndarray, epoch: int) -> torch.Tensor:
        return self.normalise(samples)

    def normalise(self, samples: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.array(samples, dtype=np.int64 if samples.dtype.kind in "iu" else np.float32))
