"""Groups of tensors with optimizers of their own; Muon and Lion against their rules written plainly."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

from gradsweep.errors import UsageError
from gradsweep.options.parameters import InvalidParameter
from trainers import optimizers
from trainers.gradients.flat import Flat, find_kinds
from trainers.optimizers import groups
from trainers.optimizers.muon import compute_scale, orthogonalise
from trainers.options import optimizers as options

REST = {"kinds": ["embeddings", "head", "vectors"], "optimizer": {"name": "adam", "lr": 0.003, "decoupled": True}}
MUON = {"kinds": ["matrices"], "optimizer": {"name": "muon", "weight_decay": 0.1}}


class Language(nn.Module):
    """A language model without attention; its output layer may share the weight of the embedding."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.head = nn.Linear(6, 11, bias=False)  # registered first: a tied weight has this name
        self.embedding = nn.Embedding(11, 6)
        self.up, self.norm, self.down = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 6, bias=False)
        self.last = nn.Linear(6, 11, bias=False)
        if tied:
            self.head.weight = self.last.weight = self.embedding.weight


def build_flat(tied: bool = True) -> Flat:
    torch.manual_seed(0)
    return Flat(Language(tied))


def train(flat: Flat, optimizer: Any, steps: int, begin: int = 0) -> None:
    for step in range(begin, begin + steps):
        generator = torch.Generator().manual_seed(step)
        flat.gradients.copy_(torch.randn(len(flat), generator=generator))
        optimizer.step(0.02 / (step + 1))


def test_kinds_of_tensors() -> None:
    inner = {"up.weight": "matrices", "up.bias": "vectors", "norm.weight": "vectors", "norm.bias": "vectors"}
    inner["down.weight"] = "matrices"
    assert find_kinds(Language(tied=True)) == {"head.weight": "embeddings", **inner}
    found = {"head.weight": "matrices", "embedding.weight": "embeddings", **inner, "last.weight": "head"}
    assert find_kinds(Language(tied=False)) == found
    functional = nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 8))  # its output may be a product with the embedding
    assert find_kinds(functional)["1.weight"] == "matrices"
    image = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 10))
    assert list(find_kinds(image).values()) == ["matrices", "vectors", "head", "vectors"]


def test_every_group_is_updated_by_its_own_optimizer() -> None:
    config = options.Muon(weight_decay=0.1, groups=[REST])
    flat = build_flat()
    train(flat, optimizers.build(config, flat), 5)
    swapped = build_flat()
    main = options.Adam(lr=0.003, decoupled=True, groups=[MUON])
    ours = optimizers.build(main, swapped)
    for step in range(5):  # the rate of a group changes by the same factor: the same numbers, if the rest is the other
        swapped.gradients.copy_(torch.randn(len(flat), generator=torch.Generator().manual_seed(step)))
        ours.step(0.003 / (step + 1))
    torch.testing.assert_close(flat.values, swapped.values)

    alone = build_flat()
    adam = optimizers.build(options.Adam(lr=0.003, decoupled=True), alone)
    parameters = dict(alone.named)
    momentum = {name: torch.zeros_like(parameters[name]) for name in ("up.weight", "down.weight")}
    expected = {name: parameters[name].detach().clone() for name in momentum}
    for step in range(5):
        alone.gradients.copy_(torch.randn(len(flat), generator=torch.Generator().manual_seed(step)))
        for name, x in expected.items():
            g, m = parameters[name].grad, momentum[name]
            assert g is not None
            m.copy_(0.95 * m + 0.05 * g)
            moved = orthogonalise(0.05 * g + 0.95 * m, 5)
            lr = 0.02 / (step + 1)
            x.mul_(1 - lr * 0.1).sub_(lr * max(1.0, x.shape[0] / x.shape[1]) ** 0.5 * moved)
        adam.step(0.003 / (step + 1))
    for (name, found), (_, theirs) in zip(flat.named, alone.named, strict=True):
        torch.testing.assert_close(found.data, expected.get(name, theirs.data))


def test_groups_go_on_from_a_state_to_the_bit() -> None:
    config = options.Muon(groups=[REST, {"match": "^up", "optimizer": {"name": "sgd"}}])
    flat, other = build_flat(), build_flat()
    optimizer, resumed = optimizers.build(config, flat), optimizers.build(config, other)
    train(flat, optimizer, 3)
    other.values.copy_(flat.values)
    state = optimizer.state_dict()
    resumed.load_state_dict(state)
    train(flat, optimizer, 2, begin=3)
    train(other, resumed, 2, begin=3)
    assert torch.equal(flat.values, other.values)
    before = resumed.state_dict()
    for wrong in ({}, None, {**state, "1": {}}):
        with pytest.raises(ValueError, match="keep"):
            resumed.load_state_dict(wrong)  # type: ignore[arg-type]
    train(flat, optimizer, 1, begin=5)
    resumed.load_state_dict(before)
    train(other, resumed, 1, begin=5)
    assert torch.equal(flat.values, other.values)


@pytest.mark.parametrize(
    ("shape", "low", "high", "cosine"),
    [((64, 48), 0.682, 1.134, 0.985), ((384, 384), 0.0, 1.20, 0.982), ((1536, 384), 0.755, 1.134, 0.990)],
)
def test_five_iterations_nearly_orthogonalise(shape: tuple[int, int], low: float, high: float, cosine: float) -> None:
    matrix = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    found, polar = orthogonalise(matrix, 5), u @ v
    singular = torch.linalg.svdvals(found)
    assert low * 0.98 <= float(singular.min()) and float(singular.max()) <= high * 1.02
    assert float((found * polar).sum() / (found.norm() * polar.norm())) == pytest.approx(cosine, abs=0.004)


def test_scales_of_muon() -> None:
    assert [compute_scale("original", *shape) for shape in ((8, 2), (2, 8))] == [2.0, 1.0]
    assert [compute_scale("spectral", *shape) for shape in ((8, 2), (2, 8))] == [2.0, 0.5]
    assert compute_scale("match_rms_adamw", 2, 100) == pytest.approx(2.0)


def test_lion_is_its_rule() -> None:
    flat = build_flat()
    optimizer = optimizers.build(options.Lion(weight_decay=0.3), flat)
    x, m = flat.values.clone(), torch.zeros(len(flat))
    for step in range(4):
        g = torch.randn(len(flat), generator=torch.Generator().manual_seed(step))
        flat.gradients.copy_(g)
        optimizer.step(0.01)
        x -= 0.01 * (torch.sign(0.9 * m + 0.1 * g) + 0.3 * x)
        m = 0.99 * m + 0.01 * g
    torch.testing.assert_close(flat.values, x)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            options.Muon(groups=[]),
            "optimizer=muon with head.weight: it is an embedding, and Muon updates matrices; valid is",
        ),
        (
            options.Dion(groups=[]),
            "optimizer=dion with head.weight: it is an embedding, and Dion updates matrices; valid is",
        ),
        (
            options.Adam(groups=[{"match": "norm", "optimizer": {"name": "muon"}}]),
            "muon of optimizer.groups={match: norm} with norm.weight: it is a vector, and Muon updates matrices; valid",
        ),
        (
            options.Adam(groups=[{"match": "attention", "optimizer": {"name": "muon"}}]),
            "optimizer.groups={match: attention}: valid is kinds and a regular expression of a tensor: head.",
        ),
        (
            options.Adam(groups=[MUON, {"match": "up.weight", "optimizer": {"name": "lion"}}]),
            "optimizer.groups={match: up.weight}: valid is kinds and a regular expression of a tensor that no entry",
        ),
        (options.Adam(groups=[REST, MUON]), "optimizer=adam: optimizer.groups leave it no tensor; valid is groups"),
    ],
)
def test_groups_that_do_not_suit_a_model_are_one_line(config: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        groups.check(config, build_flat().kinds)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"groups": [{"kinds": ["biases"], "optimizer": {"name": "sgd"}}]}, "groups=[{'kinds': ['biases'], "),
        ({"groups": [{"optimizer": {"name": "sgd"}}]}, "groups=[{'optimizer': {'name': 'sgd'}}]: valid is a list of"),
        ({"groups": [{"match": "(", "optimizer": {"name": "sgd"}}]}, "groups.match=(: valid is a regular expression"),
        (
            {"groups": [{"match": "up", "optimizer": {"name": "mouon"}}]},
            "groups.optimizer.name=mouon: did you mean muon? valid is one of sgd, signum",
        ),
        (
            {"groups": [{"match": "up", "optimizer": {"name": "dion"}}]},
            "groups.optimizer.name=dion: valid is one of sgd, signum, adam, lars, lamb, lion, muon, torch",
        ),
        (
            {"groups": [{"match": "up", "optimizer": {"name": "muon", "momentum": 1.0}}]},
            "groups.optimizer.momentum=1.0: valid is a number from 0.0 to 0.9999",
        ),
        ({"groups": [REST], "lr": 0.0}, "lr=0.0: valid is a number above 0 with groups"),
    ],
)
def test_groups_without_the_form_of_one_are_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=re.escape(message)):
        options.Adam(**values)
