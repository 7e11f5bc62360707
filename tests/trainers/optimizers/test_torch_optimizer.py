"""optimizer=torch: the updates are torch's to the bit, its state survives, and one line says what cannot be used."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from gradsweep.errors import UsageError
from gradsweep.options.parameters import InvalidParameter
from tests.trainers.optimizers.test_optimizers import SHAPES, flat_of, flattened, give, tensors_of
from trainers import optimizers
from trainers.optimizers.torch_optimizer import TorchOptimizer, try_out
from trainers.options import optimizers as options

METHODS: dict[str, dict[str, Any]] = {
    "Adagrad": {"lr_decay": 0.1},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "SGD": {"momentum": 0.9, "nesterov": True},
    "AdamW": {"betas": [0.8, 0.9], "amsgrad": True},
    "Rprop": {},
    "Adam": {"fused": True},
    "Adafactor": {},
    "NAdam": {"weight_decay": 0.1},
}


def config_of(name: str, **args: Any) -> options.Torch:
    return options.Torch(f"torch.optim.{name}", 0.05, args)


def take_steps(optimizer: TorchOptimizer, steps: range) -> None:
    for step in steps:
        give(optimizer.flat, step)
        optimizer.step(0.1 / (step + 1))


@pytest.mark.parametrize("name", METHODS)
def test_updates_and_state_are_torchs_to_the_bit(name: str) -> None:
    config = config_of(name, **METHODS[name])
    parameters = [torch.nn.Parameter(tensor) for tensor in tensors_of(0)]
    theirs = getattr(torch.optim, name)(parameters, lr=0.05, **METHODS[name])
    for step in range(6):
        for parameter, gradient in zip(parameters, tensors_of(100 + step), strict=True):
            parameter.grad = gradient
        theirs.param_groups[0]["lr"] = 0.1 / (step + 1)
        theirs.step()
    expected = flattened([parameter.detach() for parameter in parameters])

    first = optimizers.build(config, flat_of(*tensors_of(0)))
    assert isinstance(first, TorchOptimizer)
    take_steps(first, range(3))
    file = io.BytesIO()
    torch.save(first.state_dict(), file)  # as a checkpoint does
    file.seek(0)
    second = optimizers.build(config, flat_of(*tensors_of(0)))
    assert isinstance(second, TorchOptimizer)
    second.flat.values.copy_(first.flat.values)
    second.load_state_dict(torch.load(file, weights_only=True))
    take_steps(first, range(3, 6))
    take_steps(second, range(3, 6))
    assert torch.equal(first.flat.values, expected) and torch.equal(second.flat.values, expected)
    assert first.kept["state"] is first.optimizer.state and second.kept["state"] is second.optimizer.state


def test_the_state_is_a_copy() -> None:
    optimizer = TorchOptimizer(flat_of(*tensors_of(0)), config_of("Adagrad"))
    take_steps(optimizer, range(2))
    state = optimizer.state_dict()
    before = [entry["sum"].clone() for entry in state["state"].values()]
    take_steps(optimizer, range(2, 4))
    assert all(torch.equal(entry["sum"], old) for entry, old in zip(state["state"].values(), before, strict=True))


@pytest.mark.parametrize("state", [{}, None, {"state": {}, "param_groups": []}, {"state": 5, "param_groups": [{}]}])
def test_the_state_of_another_optimizer_is_refused(state: Any) -> None:
    optimizer = TorchOptimizer(flat_of(*tensors_of(0)), config_of("Adagrad"))
    with pytest.raises(ValueError, match="."):
        optimizer.load_state_dict(state)


def test_schedules_set_the_rate_only() -> None:
    optimizer = TorchOptimizer(flat_of(*tensors_of(0)), config_of("SGD", momentum=0.9))
    optimizer.adjust(momentum=0.0, weight_decay=0.0)
    assert optimizer.optimizer.param_groups[0]["momentum"] == 0.9
    with pytest.raises(InvalidParameter, match="args.lr=0.1: valid is optimizer.lr, which the schedule multiplies"):
        config_of("SGD", lr=0.1)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            config_of("Adagard"),
            "optimizer.target=torch.optim.Adagard: did you mean Adagrad? valid is a name that is in it",
        ),
        (
            config_of("Adam", beta=0.9),
            "optimizer.args.beta=0.9: did you mean betas? valid is the parameters of torch.op",
        ),
        (
            config_of("SGD", nesterov=True),
            "optimizer.target=torch.optim.SGD: valid is a target that can be called with its",
        ),
        (config_of("LBFGS"), "raises TypeError: LBFGS.step() missing 1 required positional argument: 'closure'"),
        (options.Torch("torch.nn.ParameterList"), "optimizer.args.lr=0.01: valid is the parameters of"),
        (
            options.Torch("tests.trainers.optimizers.test_torch_optimizer:make_list"),
            "returns a list; valid is a torch.optim",
        ),
        (
            options.Torch("tests.trainers.optimizers.test_torch_optimizer:Odd"),
            "valid is an optimizer whose steps need no closure, and whose state has only tensors, numbers and strings",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_used_is_one_line(config: options.Torch, message: str) -> None:
    with pytest.raises(UsageError) as error:
        try_out(config, [*SHAPES, *SHAPES])
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", METHODS)
def test_optimizers_of_torch_pass(name: str) -> None:
    try_out(config_of(name, **METHODS[name]), list(SHAPES))


def make_list(parameters: Any, lr: float) -> list[Any]:
    return list(parameters)


class Odd(torch.optim.SGD):
    """Its state holds an object that no checkpoint can."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.state[self.param_groups[0]["params"][0]]["odd"] = io.StringIO("x")
