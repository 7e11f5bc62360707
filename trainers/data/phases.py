"""The feed of a run in which the size of images or of batches changes with the epoch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from gradsweep.errors import UsageError
from trainers.config.groups import get_name
from trainers.data.batches import TEST_ELEMENTS
from trainers.data.feeds import Batch, Feed
from trainers.models.inputs import resize
from trainers.options.datasets import ImageNet
from trainers.options.phases import Phase

if TYPE_CHECKING:
    from trainers.config.run_config import RunConfig


class Phased(Feed):
    """A feed that reads every epoch from the feed of its phase: the same batches as if the phase were the whole run.

    Images in memory are resized (bilinear) after their augmentation; image files are decoded to the size of the phase.

    Args:
        of: builds the feed of a run without phases.

    Raises:
        UsageError: what `of` raises, or the samples are no images but have a size in a phase.
    """

    def __init__(self, config: RunConfig, of: Callable[[RunConfig], Feed]) -> None:
        self.config, self.of = config, of
        self.resizes = not isinstance(config.dataset, ImageNet)
        self._phase = config.completed_phases[0]
        self._feed = of(config.adapt_to(self._phase))
        self.kind, self.task = self._feed.kind, self._feed.task
        self.classes, self.samples = self._feed.classes, self._feed.samples
        if self.kind != "images" and any(phase.size is not None for phase in config.completed_phases):
            raise UsageError(
                f"phases: the samples of dataset={get_name(config.dataset)} are no images; valid are phases without "
                f"size"
            )
        self._shapes = [self._find_shape(phase) for phase in config.completed_phases]
        self.shape = self._shapes[0]

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return self._shapes

    def read_epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        phase, feed = self._enter_phase(epoch)
        for batch in feed.read_epoch(epoch, start):
            yield dataclasses.replace(batch, inputs=self._show(batch.inputs, phase))

    def read_test_set(self, epoch: int = 1, *, whole: bool = False) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        phase, feed = self._enter_phase(epoch)
        most = max(1, TEST_ELEMENTS // math.prod(self._find_shape(phase)))  # images may have become larger
        if phase.size is None:
            yield from feed.read_test_set(epoch, whole=whole)
            return
        for inputs, labels in feed.read_test_set(epoch, whole=whole):
            for some, theirs in zip(inputs.split(most), labels.split(most), strict=True):
                yield self._show(some, phase), theirs

    def try_out(self) -> None:
        self._feed.try_out()

    def close(self) -> None:
        self._feed.close()

    def _enter_phase(self, epoch: int) -> tuple[Phase, Feed]:
        """Return the phase of an epoch (from 1) and its feed; close the feed of another phase."""
        phase = next(candidate for candidate in reversed(self.config.completed_phases) if candidate.epoch < epoch)
        if phase != self._phase:
            self._feed.close()
            self._phase, self._feed = phase, self.of(self.config.adapt_to(phase))
        return self._phase, self._feed

    def _find_shape(self, phase: Phase) -> tuple[int, ...]:
        """Return the shape of a sample; without a resize, that of the first phase's feed."""
        shape = self._feed.shape
        return shape if phase.size is None else (shape[0], phase.size, phase.size)

    def _show(self, inputs: torch.Tensor, phase: Phase) -> torch.Tensor:
        return inputs if phase.size is None or not self.resizes else resize(inputs, phase.size)
