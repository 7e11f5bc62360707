"""Batches to measure with: random ones, or those of the config's data set."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import torch

from trainers import data, tasks
from trainers.advise.request import Request
from trainers.config.run_config import RunConfig
from trainers.data.feeds import Batch
from trainers.options import tasks as options
from trainers.tasks.base import Task

COUNT = 2
"""Batches, and so gradients: methods that compare steps see a change."""


class Samples(NamedTuple):
    """Batches of one worker, with the shape of a sample, the classes, and the task."""

    batches: list[Batch]
    shape: tuple[int, ...]
    classes: int
    task: Task


def make_samples(request: Request, config: RunConfig) -> Samples:
    """Return batches for one of the config's workers.

    Raises:
        UsageError: the data set cannot be used.
    """
    if request.shape is None:
        return _read_samples(config)
    size, shape = config.batch.size, request.shape
    generator = torch.Generator().manual_seed(config.seed)
    is_real = isinstance(config.task, options.Regression)
    task = tasks.build(config.task, "images", "regression" if is_real else "classification")
    batches = []
    for _ in range(COUNT):
        inputs = torch.randn(size, *shape, generator=generator)
        labels: Any = torch.randint(request.classes, (size,), generator=generator)
        if is_real:
            labels = torch.randn(size, request.classes, generator=generator)
        batches.append(Batch(inputs, labels, size * config.workers))
    return Samples(batches, shape, request.classes, task)


def _read_samples(config: RunConfig) -> Samples:
    feed = data.build_feed(config, 0, config.workers)
    try:
        batches = list(itertools.islice(feed.read_epoch(1), COUNT))
        batches = list(itertools.islice(itertools.cycle(batches), COUNT))
    finally:
        feed.close()
    return Samples(batches, feed.shape, feed.classes, tasks.build(config.task, feed.kind, feed.task))
