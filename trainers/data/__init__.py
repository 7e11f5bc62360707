"""Data sets: prepared once by the launcher, mapped by every rank, cut into shards."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsweep.disk import disk_errors
from gradsweep.errors import UsageError
from gradsweep.targets import describe_error
from trainers.config.groups import get_name
from trainers.config.run_config import RunConfig
from trainers.data import arrays, store
from trainers.data.feeds import Feed
from trainers.options import datasets as options_of

if TYPE_CHECKING:
    from trainers.data.arrays import Arrays

SOURCES: dict[type, str] = {
    options_of.Digits: "digits",
    options_of.Cifar10: "published",
    options_of.Cifar100: "published",
    options_of.SVHN: "published",
    options_of.MNIST: "published",
    options_of.FashionMNIST: "published",
    options_of.STL10: "published",
    options_of.Synthetic: "synthetic",
    options_of.ImageNet: "imagenet",
    options_of.WikiText2: "text",
    options_of.PennTreebank: "text",
    options_of.TextFiles: "text",
    options_of.SyntheticText: "text",
    options_of.PyDoc: "text",
    options_of.TinyShakespeare: "text",
    options_of.Epsilon: "libsvm",
    options_of.RCV1: "libsvm",
    options_of.LibSVM: "libsvm",
}
"""The module whose `build(options, root, download)` makes a data set's arrays, by its options; the user's own data
(`custom`) are not made."""


def prepare(dataset: Any, root: Path, download: bool = False) -> Path:
    """Prepare the arrays of a data set under `root`; returns quickly if they are there.

    Args:
        dataset: one of the dataclasses of trainers.options.datasets.

    Raises:
        UsageError: the user's files are missing or damaged, or `root` cannot be written.
    """
    name = get_name(dataset)

    def build() -> store.Prepared:
        if hasattr(dataset, "build"):
            return _build_plugin(dataset, root, download)
        module = importlib.import_module(f"trainers.data.{SOURCES[type(dataset)]}")
        built: store.Prepared = module.build(dataset, root, download)
        return built

    try:
        return store.ensure(root, options_of.name_prepared_arrays(name, dataset), build)
    except OSError as error:
        if (line := disk_errors.describe(error)) is not None:
            raise UsageError(line) from error
        if error.filename is None:  # of the network, where a download was asked for
            raise UsageError(f"dataset={name}: {' '.join(str(error).split())}") from error
        raise UsageError(
            f"data.root={root}: {error.strerror}: {error.filename}; valid is a directory that can be written"
        ) from error


def _build_plugin(dataset: Any, root: Path, download: bool) -> store.Prepared:
    """Make the arrays of a plug-in's data set; they are made again when the file of its class has changed.

    Raises:
        UsageError: it raises an error, or returns something else.
    """
    try:
        built = dataset.build(root, download)
    except (UsageError, OSError):
        raise
    except Exception as error:
        raise UsageError(f"dataset={get_name(dataset)}: its build raises {describe_error(error)}") from error
    if not isinstance(built, store.Prepared):
        valid = "what trainers.data.arrays.Arrays.to_prepared returns"
        raise UsageError(f"dataset={get_name(dataset)}: its build returns a {type(built).__name__}; valid is {valid}")
    source = inspect.getsourcefile(type(dataset))
    return dataclasses.replace(built, sources=[*built.sources, *([Path(source)] if source else [])])


def map_arrays(dataset: Any, root: Path) -> store.Prepared:
    """Map the prepared arrays of a data set into memory, and prepare them first if necessary."""
    path = store.find_directory(root, options_of.name_prepared_arrays(get_name(dataset), dataset))
    return store.load(path if store.find_damage(path, thorough=False) is None else prepare(dataset, root))


def load(dataset: Any, root: Path) -> Arrays:
    """Return the arrays of a data set of separate samples, images or features."""
    return arrays.from_prepared(map_arrays(dataset, root))


def build_feed(config: RunConfig, worker: int, workers: int) -> Feed:
    """Return the feed of one worker of a run.

    Raises:
        UsageError: the data set is too small, or an option does not fit it.
    """
    if config.phases:
        from trainers.data.phases import Phased

        return Phased(config, lambda within: build_feed(within, worker, workers))
    dataset, root = config.dataset, Path(config.data.root)
    if isinstance(dataset, options_of.Custom):
        from trainers.data import custom

        return custom.build_feed(config, worker, workers)
    if dataset.kind == "text":
        return _build_text_feed(config, map_arrays(dataset, root), worker, workers)
    if isinstance(dataset, options_of.ImageNet):
        from trainers.data.imagenet import FolderFeed

        return FolderFeed(
            dataset,
            map_arrays(dataset, root),
            root / dataset.folder,
            config.global_batch,
            config.seed,
            worker,
            workers,
            config.partition,
            config.data.loaders,
        )
    from trainers.data.batches import Shard

    images = dataset if isinstance(dataset, options_of.Images) else None
    return Shard(load(dataset, root), config.global_batch, config.seed, worker, workers, images, config.partition)


def _build_text_feed(config: RunConfig, prepared: store.Prepared, worker: int, workers: int) -> Feed:
    from trainers.data.streams import TextFeed
    from trainers.data.windows import WindowFeed

    dataset, facts = config.dataset, prepared.facts
    train, test, classes = prepared.arrays["train"], prepared.arrays[dataset.evaluate], facts["classes"]
    feed: TextFeed | WindowFeed
    if dataset.order == "windows":
        feed = WindowFeed(
            train,
            test,
            classes,
            dataset.bptt,
            config.global_batch,
            config.seed,
            worker,
            workers,
            dataset.test_windows,
            config.batch.accumulate,
        )
    else:
        feed = TextFeed(train, test, classes, dataset.bptt, config.global_batch, worker, workers)
    feed.characters_per_token = facts.get("characters_per_token", {}).get(dataset.evaluate)
    feed.least_loss = facts.get("least_loss", {}).get(dataset.evaluate)
    return feed
