"""A worker's replica of the model: gradients of batches, and evaluation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from compressors import unit_state
from gradsweep.errors import UsageError, get_first_line
from gradsweep.targets import describe_error
from trainers import models, tasks
from trainers.config.run_config import RunConfig
from trainers.data.feeds import Batch, Feed
from trainers.devices.generators import get_generators, set_generators
from trainers.devices.stopwatch import Stopwatch
from trainers.gradients.flat import Flat
from trainers.replica import batch_norm
from trainers.replica.hidden_state import HiddenState
from trainers.replica.precision import LossScaler, autocast
from trainers.tasks.base import Scores, Sums, Task
from trainers.tasks.nested import list_tensors, map_tensors, split_rows

if TYPE_CHECKING:
    from mpi4py import MPI

_CPU = torch.device("cpu")


class DifferentWeights(RuntimeError):
    """The workers do not have the same parameters."""


class Shares:
    """This worker's shares of the mean loss and accuracy of a batch: their sums over the workers are the means.

    They are added up on the device. Only `read` waits for it: between backward and the end of a step nothing else needs
    them.

    Args:
        total: the rows of all workers.
    """

    def __init__(self, total: float) -> None:
        self.total = total
        self._losses: list[torch.Tensor] = []
        self._correct: list[float | torch.Tensor] = []

    def add(self, loss: torch.Tensor, correct: float | torch.Tensor) -> None:
        """Add the loss and the number of correct labels of a piece of the batch."""
        self._losses.append(loss)
        self._correct.append(correct)

    def read(self) -> tuple[float, float]:
        """Return the shares of the loss and of the accuracy; the latter is NaN if the task has no accuracy."""
        return sum(map(float, self._losses)), sum(map(float, self._correct)) / self.total


class Replica:
    """The model of a worker with its flat buffers; all workers start with the same parameters.

    Initial weights are drawn on the CPU, so that they do not depend on the device.

    Args:
        task: by default the config's for its data set.

    Raises:
        DifferentWeights: the workers did not start from the same parameters.
        UsageError: the model cannot take the images of the data set, or of a later phase.
    """

    def __init__(
        self,
        config: RunConfig,
        shape: tuple[int, ...],
        classes: int,
        comm: MPI.Comm,
        device: torch.device = _CPU,
        task: Task | None = None,
    ) -> None:
        self.comm, self.config, self.device = comm, config, device
        self.task = tasks.build(config.task, config.dataset.kind) if task is None else task
        torch.manual_seed(config.seed)
        self.model = models.build(config.model, shape, classes, 1)  # trainers.data checks classes by the task
        for phase in config.completed_phases[1:]:
            if phase.size is not None:
                models.require_takes(self.model, (shape[0], phase.size, phase.size), f"from epoch {phase.epoch} on")
        self.normalising: batch_norm.NormalisationGroup | None = None
        if config.batch_norm == "synchronised" and comm.size > 1:
            self.normalising = batch_norm.NormalisationGroup(comm)
            self.model = batch_norm.synchronise(self.model, self.normalising)
        self.model.to(device).train()
        self.flat = Flat(self.model)
        self.scaler = LossScaler(config.loss_scale) if config.precision == "fp16" else None
        # not `model.compile()`, which would leave an nn.Sequential as it is: it skips forwards of torch's own modules
        self._called: Callable[[Any], Any] = torch.compile(self.model) if config.compile else self.model
        self.require_same("the initial weights")
        torch.manual_seed(config.seed + 1 + comm.rank)  # dropout differs between workers

    def compute_gradient(
        self, batch: Batch, watch: Stopwatch, on_last_backward: Callable[[], None] | None = None
    ) -> Shares:
        """Compute the gradient of this worker's part of the batch into the flat gradient buffer.

        It is scaled by workers / batch.total, so that the mean over the workers is the gradient of the global batch,
        also if the workers' parts differ in size. It is computed in `batch.accumulate` pieces, whose gradients backward
        adds up in the flat buffer. With precision=fp16 it is multiplied by the loss scale until `check_usable` divides
        by it.

        Args:
            on_last_backward: called before the last backward; not called with a loss scale, which must be divided out
                before gradients are sent.

        Returns:
            This worker's shares of the mean loss and accuracy, which are read when the step is complete.
        """
        shares = Shares(batch.total)
        if not batch.rows:
            with watch("backward"):
                self.flat.gradients.zero_()
                self._join_normalisation(batch.inputs, self.config.batch.accumulate)
            return shares
        scale = self.comm.size if self.scaler is None else self.comm.size * self.scaler.scale
        pieces = split_batch(batch, self.config.batch.accumulate)
        self._join_normalisation(batch.inputs, self.config.batch.accumulate - len(pieces))
        hidden = HiddenState(self.model, len(pieces), batch.rows)
        for number, (inputs, targets) in enumerate(pieces, 1):
            with watch("data"):
                inputs, targets = self._move_to_device(inputs, targets)
            with watch("forward"):
                hidden.begin()
                outputs = self._compute_outputs(inputs)
                hidden.end()
                loss = self.task.sum_losses(outputs, targets) / batch.total
            with watch("backward"):
                if number == 1:
                    self.flat.gradients.zero_()
                if number == len(pieces) and on_last_backward is not None and self.scaler is None:
                    on_last_backward()
                (loss * scale).backward()
                shares.add(loss.detach(), self.task.count_correct(outputs, targets))
        return shares

    @property
    def owes_measurement(self) -> bool:
        """Whether the last step was to measure the compression error but was skipped, so that the next one does."""
        return self.scaler is not None and self.scaler.unmeasured

    def check_usable(self, watch: Stopwatch, measured: bool = False) -> bool:
        """Tell whether the gradients of all workers are finite; all workers call it after every `compute_gradient`.

        Only fp16 needs this: it divides the gradient by the loss scale. If the gradient of one worker has overflowed,
        no worker can use the step.

        Args:
            measured: the compression error is measured in this step.

        Raises:
            ScaleExhausted: the gradient overflows although the loss scale is at its minimum.
        """
        if self.scaler is None:
            return True
        with watch("backward"):
            finite = self.scaler.unscale(self.flat.gradients)
        with watch("communicate"):
            usable = self.scaler.agree(finite, self.comm)
        self.scaler.unmeasured = measured and not usable
        return usable

    def _move_to_device(self, inputs: Any, labels: Any) -> tuple[Any, Any]:
        """Move a batch to the device, with the memory layout that the model expects."""
        return map_tensors(self._move_inputs, inputs), map_tensors(self._move, labels)

    def _move(self, tensor: torch.Tensor) -> torch.Tensor:
        """Move a tensor to the device; to a GPU without a wait, from memory that the GPU reads by itself."""
        if self.device.type == "cuda" and tensor.device.type == "cpu" and not tensor.is_pinned():
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def _move_inputs(self, inputs: torch.Tensor) -> torch.Tensor:
        inputs = self._move(inputs)
        if self.config.channels_last and inputs.dim() == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        return inputs

    def _compute_outputs(self, inputs: Any) -> Any:
        """Return what the model returns, with its floating-point tensors as float32."""
        try:
            with autocast(self.config.precision, self.device):
                outputs = self._called(inputs)
        except UsageError:
            raise
        except Exception as error:
            if isinstance(error, ValueError) and "more than 1 value per channel" in str(error):
                raise UsageError(
                    f"batch.size={self.config.batch.size}: a worker's part of a batch is one sample, which batch "
                    f"normalisation cannot normalise where a channel is one number; valid is one that leaves every "
                    f"worker two, in the last batch of an epoch too, or batch_norm=synchronised, or larger images"
                ) from error
            if self.config.compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                valid = "valid is false for this model on this machine"
                raise UsageError(f"compile=true: {get_first_line(error)}; {valid}") from error
            if (own := models.describe_own(self.config.model)) is not None:
                valid = "valid is a model that takes every batch of the data set"
                raise UsageError(f"{own} raises {describe_error(error)}; {valid}") from error
            raise
        return map_tensors(_to_float32, outputs)

    def _join_normalisation(self, inputs: Any, times: int) -> None:
        """Take part `times` times in the sums of synchronised batch normalisation, without samples or gradients."""
        if self.normalising is None:
            return
        sample = map_tensors(lambda each: each.new_zeros((1, *each.shape[1:])), inputs)
        for _ in range(times):
            with self.normalising.exclude_samples():
                outputs = list_tensors(self._compute_outputs(map_tensors(self._move_inputs, sample)))
                reached = [each for each in outputs if each.requires_grad]
                torch.autograd.backward(reached, [torch.zeros_like(each) for each in reached])

    def take_extra_bytes(self) -> float:
        """Return the bytes that this worker has sent since the last call in addition to gradients: for synchronised
        batch normalisation and agreements on fp16 overflows."""
        sent = 0.0
        for sender in (self.normalising, self.scaler):
            if sender is not None:
                sent, sender.sent_bytes = sent + sender.sent_bytes, 0.0
        return sent

    @torch.no_grad()
    def evaluate(self, feed: Feed, epoch: int = 1) -> Scores:
        """Return loss and metrics over the test set after an epoch; each worker evaluates a part of the test set.

        With batch_norm=averaged, the running statistics of batch normalisation, which each worker computes from its own
        batches, are first averaged over the workers, so that all evaluate the same model. With batch_norm=local, each
        worker uses its own statistics; with batch_norm=synchronised, they are the same already.

        Raises:
            UsageError: the outputs do not suit the task, or its metrics have other names on other workers.
        """
        if self.config.batch_norm == "averaged":
            self._average_buffers()
        return self.task.summarise(self._add_up(self._judge(feed.read_test_set(epoch))))

    @torch.no_grad()
    def evaluate_alone(self, feed: Feed, epoch: int = 1) -> Scores:
        """Return loss and metrics of this worker's own model over the whole test set, without other workers."""
        sums = self._judge(feed.read_test_set(epoch, whole=True))
        assert sums is not None, "the test set is empty"
        return self.task.summarise(sums)

    @contextlib.contextmanager
    def keep_buffers(self) -> Iterator[None]:
        """Restore the model's buffers after the block."""
        before = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        try:
            yield
        finally:
            for buffer, value in before:
                buffer.copy_(value)

    def _judge(self, batches: Iterable[tuple[Any, Any]]) -> Sums | None:
        """Return the sums of the task over these batches; None if there are none."""
        self.model.eval()
        sums: Sums | None = None
        for batch in batches:
            inputs, targets = self._move_to_device(*batch)
            sums = self.task.add(sums, self.task.judge(self._compute_outputs(inputs), targets))
        self.model.train()
        return sums

    def _add_up(self, mine: Sums | None) -> Sums:
        """Add up the sums of all workers; some may have none. All workers call this."""
        if names := self.task.fixed:
            sums = np.zeros(len(names)) if mine is None else np.array([float(mine[name]) for name in names])
            total = np.empty_like(sums)
            self.comm.Allreduce(sums, total)
            return dict(zip(names, total, strict=True))
        everyone: Sums | None = None
        for sums_of_one in self.comm.allgather(mine):
            everyone = everyone if sums_of_one is None else self.task.add(everyone, sums_of_one, "worker")
        assert everyone is not None, "the test set is empty"
        return everyone

    def _average_buffers(self) -> None:
        buffers = [buffer for buffer in self.model.buffers() if buffer.is_floating_point()]
        if not buffers or self.comm.size == 1:
            return
        mine = torch.cat([buffer.flatten() for buffer in buffers]).cpu().numpy()
        total = np.empty_like(mine)
        self.comm.Allreduce(mine, total)
        mean = torch.from_numpy(total).div_(self.comm.size)
        for buffer, values in zip(buffers, mean.split([buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(values.view_as(buffer))

    def require_same(self, what: str) -> None:
        """Check that all workers have the same parameters; `what` names them in the error.

        Raises:
            DifferentWeights: the parameters are not the same to the bit.
        """
        mine = np.frombuffer(self.flat.digest(), dtype=np.uint8)
        everyone = np.empty((self.comm.size, len(mine)), dtype=np.uint8)
        self.comm.Allgather(mine, everyone)
        different = [worker for worker in range(self.comm.size) if (everyone[worker] != everyone[0]).any()]
        if different:
            raise DifferentWeights(f"{what} of workers {different} differ from those of worker 0")

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of this worker's state other than its parameters, between two steps.

        It has `buffers`, those of the model (running statistics, which differ between workers); `scaler`, the loss
        scale (empty without fp16); `carried`, the hidden state of a model with methods `copy_carried` and `carry`; and
        `rng`, the states of torch's generators, which dropout uses.
        """
        model: Any = self.model
        carried = model.copy_carried() if hasattr(model, "copy_carried") else {}
        return {
            "buffers": {name: buffer.clone() for name, buffer in self.model.named_buffers()},
            "scaler": {} if self.scaler is None else self.scaler.state_dict(),
            "carried": {name: tensor.clone() for name, tensor in carried.items()},
            "rng": get_generators(self.device),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `state_dict` has returned; parameters are not part of it.

        Raises:
            ValueError: it is the state of another model, precision or kind of device; nothing has been changed.
        """
        unit_state.require_keys("a replica", state, ("buffers", "scaler", "carried", "rng"))
        buffers = dict(self.model.named_buffers())
        unit_state.require_alike("a model's buffers", state["buffers"], buffers)
        if bool(state["scaler"]) != (self.scaler is not None):
            raise ValueError(f"the state of a loss scaler with precision={self.config.precision}: only fp16 has one")
        if ("cuda" in state["rng"]) != (self.device.type == "cuda"):
            raise ValueError(f"the state of torch's generators is not one of {self.device.type}")
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        for name, buffer in buffers.items():
            buffer.copy_(state["buffers"][name])
        model: Any = self.model
        if hasattr(model, "carry"):
            model.carry({name: tensor.to(self.device, copy=True) for name, tensor in state["carried"].items()})
        set_generators(state["rng"], self.device)


def split_batch(batch: Batch, count: int) -> list[tuple[Any, Any]]:
    """Split a batch into `count` pieces of inputs and labels of similar size; fewer pieces if there are fewer
    samples."""
    count = min(count, batch.rows)
    return list(zip(split_rows(batch.inputs, count), split_rows(batch.labels, count), strict=True))


def _to_float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor
