"""Check that a model accepts the samples of a data set, without torch and without building the model."""

from __future__ import annotations

from typing import Any

from gradsweep.errors import UsageError, bad_value
from trainers.config.groups import get_name
from trainers.options.models import GPT, MODELS, Custom, ImageModel, Model


def check_fits(config: Any, shape: tuple[int, ...], classes: int, kind: str | None = None, *, least: int = 2) -> None:
    """Refuse a model that does not suit a data set.

    Args:
        config: the model's options.
        shape: of a sample of the data set.
        classes: of the data set, or its vocabulary; of a regression, the numbers of a target.
        kind: of the data set (`Feed.kind`); None: guess by the shape, which features and text have alike.
        least: number of classes; 1 of a regression.

    Raises:
        UsageError: one line with the key, what the data set has and what is valid.
    """
    if not isinstance(config, Model):
        raise TypeError(f"{config!r} is no model")
    if isinstance(config, Custom):
        return  # it is tried with samples
    name = get_name(config)
    if classes < least:
        raise UsageError(f"model={name} with {classes} classes in the data set: valid is a data set with 2 or more")
    kinds = {kind} if kind is not None else {"images"} if len(shape) == 3 else {"features", "text"}
    if not kinds & set(config.takes):
        others = ", ".join(other for other, cls in MODELS.items() if kinds & set(cls.takes))
        given = f"{' or '.join(sorted(kinds))} of {'x'.join(map(str, shape))}" if shape else "several inputs a sample"
        raise UsageError(f"model={name} takes {' or '.join(config.takes)}, the data set has {given}: valid is {others}")
    if isinstance(config, ImageModel):
        _check_size(name, config, shape)
    if isinstance(config, GPT) and config.context is not None and shape[0] > config.context:
        raise bad_value("dataset.bptt", shape[0], f"up to {config.context} with model.context={config.context}")


def _check_size(name: str, config: ImageModel, shape: tuple[int, ...]) -> None:
    size = config.input_size if config.input_size is not None else min(shape[1:])
    if size < config.smallest:
        given = f"the data set's have {shape[1]}x{shape[2]}" if config.input_size is None else "they are resized to it"
        raise bad_value(
            "model.input_size",
            config.input_size,
            f"an integer from {config.smallest} up: model={name} takes images from {config.smallest}x"
            f"{config.smallest} pixels, and {given}",
        )
