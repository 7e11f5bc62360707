"""Read samples of the user's own data sets, put them together into batches, and check these.

A data set may draw random numbers, for augmentation: before each sample is read, the global generators of torch, numpy
and Python get a seed that is a function of the run's seed, the epoch and the sample. So a sample is the same on any
worker, in any loader process and after a resume.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from gradsweep.errors import UsageError, bad_value
from gradsweep.targets import describe_error, import_target
from trainers.data import draws
from trainers.data.feeds import IGNORED
from trainers.data.loaders import Places
from trainers.options.datasets import Custom
from trainers.tasks.nested import list_tensors, map_tensors

TARGET, COLLATE = "dataset.target", "dataset.collate"
TRAINING, TEST = "the training set", "the test set"
LABELS = ("labels", "label", "targets", "target")
"""Names of the labels in a batch that is a dict; the rest of it are inputs."""
SEEDS = 2**32
"""All that numpy's global generator takes."""


@contextlib.contextmanager
def seed_generators(seed: int | None = None) -> Iterator[None]:
    """Within the block, the global generators of torch (CPU), numpy and Python may be seeded; then they are restored.

    Args:
        seed: seeds them at the beginning.
    """
    states = torch.default_generator.get_state(), np.random.get_state(), random.getstate()
    try:
        if seed is not None:
            set_seed(seed)
        yield
    finally:
        torch.default_generator.set_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


def set_seed(seed: int) -> None:
    """Seed the global generators of torch (CPU), numpy and Python with a number below `SEEDS`."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


class _Code:
    """Imports the user's modules where it is unpickled, before anything that is defined in them."""

    def __init__(self, targets: Mapping[str, str]) -> None:
        self.targets = targets

    def __reduce__(self) -> tuple[Any, ...]:
        return _import_code, (self.targets,)


def _import_code(targets: Mapping[str, str]) -> _Code:
    for key, text in targets.items():
        import_target(key, text)
    return _Code(targets)


@dataclasses.dataclass(frozen=True)
class OwnSets:
    """The user's own map-style data sets, and the function that makes a batch of a list of samples."""

    options: Custom
    train: Any
    test: Any
    collate: Callable[[list[Any]], Any]


class Samples:
    """The samples of the user's training and test set, read a batch at a time.

    Args:
        seed: of the run.
        classes: if not 0, integer labels must be below it, or IGNORED.
    """

    def __init__(self, sets: OwnSets, seed: int, classes: int = 0) -> None:
        given = {TARGET: sets.options.target, COLLATE: sets.options.collate}
        self._code = _Code({key: text for key, text in given.items() if text})  # pickled first
        self.sets, self.seed, self.classes = sets, seed, classes
        self._seeds: tuple[int, np.ndarray] = (-1, np.empty(0))

    def read(self, places: Places) -> tuple[Any, Any] | UsageError | None:
        """Return inputs and labels of a batch; None without samples; an error, with which a process goes on, or why the
        samples cannot be used."""
        epoch, rows = places
        if not len(rows):
            return None
        with seed_generators():
            try:
                inputs, labels = split_batch(self.sets.options, self._collate(self._read_samples(epoch, rows), epoch))
                inputs, labels = convert_inputs(inputs), convert_labels(labels)
                self._check(inputs, labels, epoch, rows)
            except UsageError as error:
                if error.__cause__ is not None:
                    traceback.print_exception(error.__cause__)
                    error.__cause__ = None
                return error.with_traceback(None)
        return inputs, labels

    def read_now(self, places: Places) -> tuple[Any, Any]:
        """Return inputs and labels of a batch with samples.

        Raises:
            UsageError: the samples cannot be used.
        """
        batch = self.read(places)
        if isinstance(batch, UsageError):
            raise batch
        assert batch is not None
        return batch

    def _read_samples(self, epoch: int, rows: np.ndarray) -> list[Any]:
        part, seeds = self.sets.train if epoch else self.sets.test, self._draw_seeds(epoch)
        samples = []
        for row in rows.tolist():
            set_seed(int(seeds[row]))
            try:
                samples.append(part[row])
            except MemoryError:
                raise
            except Exception as error:
                fault = f"sample {row} of {_name_part(epoch)} raises {describe_error(error)}"
                raise self._refuse(f"data whose samples can be read: {fault}") from error
        return samples

    def _draw_seeds(self, epoch: int) -> np.ndarray:
        """Return the seeds of all samples in an epoch, or with 0 of all test samples, (N,)."""
        if self._seeds[0] != epoch:
            generator = draws.create_generator(self.seed, epoch, draws.SAMPLES)
            count = len(self.sets.train if epoch else self.sets.test)
            self._seeds = epoch, generator.randint(0, SEEDS, count, dtype=np.uint32)
        return self._seeds[1]

    def _collate(self, samples: list[Any], epoch: int) -> Any:
        try:
            return self.sets.collate(samples)
        except MemoryError:
            raise
        except Exception as error:
            given = self.sets.options.collate
            if given is not None:
                valid = f"a function that makes a batch of a list of samples: it raises {describe_error(error)}"
                raise bad_value(COLLATE, given, f"{valid} for samples of {_name_part(epoch)}") from error
            fault = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            valid = "tensors, arrays and numbers of equal shapes in all samples, or dataset.collate=my_module:function"
            raise self._refuse(f"{valid} for others; {_name_part(epoch)}: {fault}") from error

    def _check(self, inputs: Any, labels: Any, epoch: int, rows: np.ndarray) -> None:
        """Check that a batch has as many samples as `rows`, finite numbers, and labels within the classes."""
        for name, tensors in (("inputs", inputs), ("targets", labels)):
            for tensor in list_tensors(tensors):
                if not tensor.dim() or len(tensor) != len(rows):
                    shape = "x".join(map(str, tensor.shape)) or "no dimension"
                    valid = f"{name} whose first dimension counts samples, here {len(rows)}: they have {shape}"
                    raise self._refuse(valid, collate=True)
                if (bad := find_not_finite(tensor)) is not None:
                    fault = f"{name} of sample {rows[bad]} of {_name_part(epoch)} have nan or inf"
                    raise self._refuse(f"finite numbers: {fault}")
        if self.classes and isinstance(labels, torch.Tensor) and not labels.is_floating_point():
            wrong = ((labels < 0) | (labels >= self.classes)) & (labels != IGNORED)
            if wrong.any():
                bad = int(wrong.flatten(1).any(1).nonzero()[0]) if wrong.dim() > 1 else int(wrong.nonzero()[0])
                fault = f"sample {rows[bad]} of {_name_part(epoch)} has {int(labels[wrong][0])}"
                raise self._refuse(f"labels from 0 to {self.classes - 1} (dataset.classes={self.classes}): {fault}")

    def _refuse(self, valid: str, *, collate: bool = False) -> UsageError:
        """Return the error that the user's data are not valid; `collate`: it may be their collate function's fault."""
        return refuse(self.sets.options, valid, collate=collate)


def refuse(options: Custom, valid: str, *, collate: bool = False) -> UsageError:
    """Return the error that the user's data are not `valid`; `collate`: blame their collate function if there is
    one."""
    if collate and options.collate is not None:
        return bad_value(COLLATE, options.collate, valid)
    return bad_value(TARGET, options.target, valid)


def _name_part(epoch: int) -> str:
    return TRAINING if epoch else TEST


def split_batch(options: Custom, batch: Any) -> tuple[Any, Any]:
    """Split what a collate function returns into inputs and labels.

    A tuple's last entry are the labels. A dict's are named as in LABELS, and the rest are the inputs.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(batch, Mapping):
        name = next((name for name in LABELS if name in batch), None)
        if name is None or len(batch) < 2:
            valid = (
                f"dicts with inputs and one of {', '.join(LABELS)}: they have {', '.join(map(str, batch)) or 'none'}"
            )
            raise refuse(options, valid, collate=True)
        inputs: Any = {key: value for key, value in batch.items() if key != name}
        labels = batch[name]
    elif isinstance(batch, (tuple, list)) and len(batch) >= 2:
        *several, labels = batch
        inputs = several[0] if len(several) == 1 else tuple(several)
    else:
        given = f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, (tuple, list)) else "")
        raise refuse(options, f"samples (inputs, target), or dicts: a batch is {given}", collate=True)
    return _find_tensors(options, "inputs", inputs), _find_tensors(options, "targets", labels)


def _find_tensors(options: Custom, name: str, value: Any) -> Any:
    """Return the same structure of tuples, dicts and tensors.

    Raises:
        UsageError: there is something else in it.
    """
    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise refuse(options, f"{name} of real numbers or integers, not {value.dtype}", collate=True)
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return torch.from_numpy(value)
    if isinstance(value, Mapping) and value:
        return {key: _find_tensors(options, name, item) for key, item in value.items()}
    if isinstance(value, (tuple, list)) and value and not isinstance(value[0], str):
        return tuple(_find_tensors(options, name, item) for item in value)
    given = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
    if isinstance(value, (tuple, list)):
        given += f" of {type(value[0]).__name__}" if value else " without entries"
    raise refuse(
        options, f"{name} that are tensors in each batch, or tuples or dicts of tensors: there is {given}", collate=True
    )


def convert_inputs(inputs: Any) -> Any:
    """Return inputs with all real numbers in float32."""
    return map_tensors(lambda tensor: tensor.float() if tensor.is_floating_point() else tensor, inputs)


def convert_labels(labels: Any) -> Any:
    """Return labels in float32 or int64."""
    return map_tensors(lambda tensor: tensor.float() if tensor.is_floating_point() else tensor.long(), labels)


def find_not_finite(tensor: torch.Tensor) -> int | None:
    """Return the number of the first sample with a nan or inf; None if all numbers are finite."""
    # sum first: it reads the tensor once, and allocates nothing
    if not tensor.is_floating_point() or bool(torch.isfinite(tensor.sum())):
        return None
    bad = ~torch.isfinite(tensor.reshape(len(tensor), -1)).all(1)
    return int(bad.nonzero()[0]) if bool(bad.any()) else None
