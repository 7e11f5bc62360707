"""Try a run's own code before anything starts: model, task and optimizer, with two samples of the data set."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from gradsweep.errors import UsageError
from gradsweep.options.hints import did_you_mean
from gradsweep.targets import import_target, name_errors
from trainers import models, tasks
from trainers.config.groups import get_name
from trainers.config.run_config import RunConfig
from trainers.data.feeds import Feed
from trainers.gradients.flat import find_kinds
from trainers.options import models as model_options
from trainers.options import optimizers as optimizer_options
from trainers.options import tasks as task_options
from trainers.tasks.base import Task
from trainers.tasks.classification import Classification, Language, check_outputs
from trainers.tasks.custom import Custom
from trainers.tasks.nested import count_rows, map_tensors
from trainers.tasks.regression import Regression, match_shapes

_SAMPLES = 2  # batch normalisation cannot train on one


def try_own_code(run: RunConfig, feed: Feed) -> tuple[str, ...]:
    """Return the names of a run's metrics, after its own model, task and optimizer have been tried.

    A model is built and called on the meta device, whose tensors have only shapes. It is built on the CPU if that
    fails, and for an own task, which needs values. Nothing is tried if nothing is the user's own.

    Raises:
        UsageError: the code cannot be used; the line names its key and the reason.
    """
    task = tasks.build(run.task, feed.kind, feed.task, feed.characters_per_token)
    names = task_options.Regression.metrics if isinstance(task, Regression) else task_options.Classification.metrics
    if isinstance(task, Language):
        names = task_options.Language.metrics
    if (
        isinstance(run.model, model_options.Custom)
        or run.dataset.kind == "custom"
        or not isinstance(task, Classification)
    ):
        names = _try_model(run, feed, task) or names
    if isinstance(run.optimizer, optimizer_options.Torch):
        from trainers.optimizers.torch_optimizer import try_out

        try_out(
            run.optimizer, [tuple(each.shape) for each in _build_anywhere(run, feed).parameters() if each.requires_grad]
        )
    if run.optimizer.groups or isinstance(run.optimizer, optimizer_options.Muon):
        from trainers.optimizers import groups

        groups.check(run.optimizer, find_kinds(_build_anywhere(run, feed)))
    return names


def check_metric(metric: str, names: tuple[str, ...], run: RunConfig) -> None:
    """Check that the runs have the metric of `sweep.metric`, which comes from their task.

    Raises:
        UsageError: the task of a run has no such metric.
    """
    known = (*names, *(f"best_{name}" for name in names if name == "accuracy"))
    if metric not in known:
        valid = f"one of {', '.join(known) or 'loss'} of task={get_name(run.task)}, or another number of result.json"
        raise UsageError(f"sweep.metric={metric}: {did_you_mean(metric, known)}valid is {valid}")


def _build(run: RunConfig, feed: Feed, device: str) -> torch.nn.Module:
    if isinstance(run.model, model_options.Custom):
        import_target("model.target", run.model.target)  # first, so that the module's own tensors are real
    torch.manual_seed(run.seed)
    with torch.device(device):
        return models.build(run.model, feed.shape, feed.classes, least=1)


def _build_anywhere(run: RunConfig, feed: Feed) -> torch.nn.Module:
    """Return a run's model, on the meta device if possible."""
    try:
        return _build(run, feed, "meta")
    except Exception:  # some code needs values
        return _build(run, feed, "cpu")


def _try_model(run: RunConfig, feed: Feed, task: Task) -> tuple[str, ...]:
    """Call the model and the task with samples; return the names of an own task's metrics, else nothing.

    Raises:
        UsageError: the model or the task raises an error, or its output does not suit the task.
    """
    inputs, targets = feed.read_sample(_SAMPLES)
    outputs: list[Any] = []
    if not isinstance(task, Custom):
        with contextlib.suppress(Exception):  # some code needs values
            outputs = _call(_build(run, feed, "meta"), map_tensors(lambda each: each.to("meta"), inputs))
    if not outputs:
        model = _build(run, feed, "cpu")
        given = map_tensors(lambda each: tuple(each.shape), inputs)
        valid = f"a model that takes the inputs of dataset={get_name(run.dataset)}, here {given}"
        with name_errors(_describe_model(run), valid):
            outputs = _call(model, inputs)
    return _check(run, feed, task, outputs, targets)


def _call(model: torch.nn.Module, inputs: Any) -> list[Any]:
    """Return what a model returns in training and in evaluation, with floating-point tensors as float32."""
    outputs = []
    for training in (True, False):
        model.train(training and count_rows(inputs) > 1)
        with torch.set_grad_enabled(training):
            returned = model(inputs)
        outputs.append(map_tensors(lambda each: each.float() if each.is_floating_point() else each, returned))
    return outputs


def _describe_model(run: RunConfig) -> str:
    return models.describe_own(run.model) or f"model={get_name(run.model)}"


def _check(run: RunConfig, feed: Feed, task: Task, outputs: list[Any], targets: Any) -> tuple[str, ...]:
    """Check outputs in training and in evaluation; return the names of an own task's metrics, else nothing."""
    for each in outputs:
        if isinstance(task, Classification):
            check_outputs(each, targets, feed.classes, _describe_model(run))
        elif isinstance(task, Regression):
            match_shapes(each, targets, _describe_model(run))
    if not isinstance(task, Custom):
        return ()
    loss = task.sum_losses(outputs[0], targets)
    with torch.no_grad():
        sums = task.judge(outputs[1], targets)
    if not loss.requires_grad:
        raise UsageError(f"{task.key}: loss does not depend on the outputs by operations that have gradients")
    return tuple(name for name in sums if name != "loss")
