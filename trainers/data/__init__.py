"""Data sets: prepared once by the launcher, mapped by every rank, cut into shards."""

from __future__ import annotations

from pathlib import Path

from sweep.run import UsageError
from trainers.config import RunConfig, name_of
from trainers.data import store
from trainers.data.feeds import Feed


def prepare(name: str, root: Path, download: bool = False) -> Path:
    """Make the arrays of data set `name` ready under `root`; quick where they are.

    Raises:
        UsageError: the user's files are missing or damaged, or `root` cannot be written.
    """
    from trainers.data import cifar10, digits

    builders = {"digits": digits.build, "cifar10": lambda: cifar10.build(root, download)}
    try:
        return store.ensure(root, name, builders[name])
    except OSError as error:
        if error.filename is None:  # of the network, where a download was asked for
            raise UsageError(f"dataset={name}: {error}") from error
        raise UsageError(
            f"data.root={root}: {error.strerror}: {error.filename}; valid is a directory that can be written"
        ) from error


def load(name: str, root: Path) -> store.Arrays:
    """Map the prepared arrays of data set `name`, preparing them where nobody has."""
    path = store.directory(root, name)
    return store.load(path if store.damage(path, thorough=False) is None else prepare(name, root))


def feed(config: RunConfig, worker: int, workers: int) -> Feed:
    """The data of a run for one of its workers."""
    from trainers.data.batches import Shard

    arrays = load(name_of(config.dataset), Path(config.data.root))
    return Shard(arrays, config.global_batch, config.seed, worker, workers)
