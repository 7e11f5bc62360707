"""An optimizer of its own for each group of tensors."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradsweep.errors import UsageError, bad_value
from trainers.config.groups import get_name
from trainers.gradients.flat import Flat
from trainers.optimizers.base import Optimizer
from trainers.options.optimizers import EMBEDDINGS, VECTORS, Dion, Group, Muon


def assign(groups: Sequence[Group], kinds: Mapping[str, str]) -> list[Group | None]:
    """Return the group of each tensor: the first to which it belongs; None: it has the optimizer of the rest.

    Args:
        kinds: the kind of each tensor, by its name.

    Raises:
        UsageError: an entry finds no tensor, or only tensors that an earlier entry has found.
    """
    found = [next((group for group in groups if group.has(name, kind)), None) for name, kind in kinds.items()]
    for group in groups:
        if not any(group is each for each in found):
            taken = any(group.has(name, kind) for name, kind in kinds.items())
            listed = [f"{name} ({kind})" for name, kind in kinds.items()]
            shown = ", ".join([*listed[:4], *(["..."] if len(listed) > 4 else [])])
            further = " that no entry before it finds" if taken else ""
            raise bad_value("optimizer.groups", group, f"kinds and a regular expression of a tensor{further}: {shown}")
    return found


def check(config: Any, kinds: Mapping[str, str]) -> None:
    """Refuse an optimizer that cannot be used for a model whose tensors have these names and kinds.

    Raises:
        UsageError: an entry of `optimizer.groups` finds no tensor, nothing is left for the rest, or an optimizer cannot
            update its tensors.
    """
    chosen = assign(config.build_groups(), kinds)
    if None not in chosen:
        valid = "groups that leave it a tensor, or another optimizer"
        raise UsageError(f"optimizer={get_name(config)}: optimizer.groups leave it no tensor; valid is {valid}")
    for (name, kind), group in zip(kinds.items(), chosen, strict=True):
        optimizer = config if group is None else group.optimizer
        if isinstance(optimizer, (Muon, Dion)) and kind in (VECTORS, EMBEDDINGS):
            named = get_name(optimizer)
            whose = f"optimizer={named}" if group is None else f"{named} of optimizer.groups={group}"
            what = "a vector" if kind == VECTORS else "an embedding"
            valid = f"an entry of optimizer.groups before it that gives {kind} to another optimizer"
            raise UsageError(
                f"{whose} with {name}: it is {what}, and {named.capitalize()} updates matrices; valid is {valid}"
            )


class Groups(Optimizer):
    """The optimizers of `optimizer.groups` and that of the rest, each with its own tensors of the flat buffers.

    Neighbouring tensors of a group share an optimizer object, which works on a slice of the buffers; the others of the
    group are objects of their own. All rates change by the same factor. Values that a schedule sets (`adjust`) are
    those of the rest.

    Args:
        build_part: builds an optimizer from its options, for a part of the buffers.
    """

    def __init__(self, flat: Flat, config: Any, build_part: Callable[[Any, Flat], Optimizer]) -> None:
        self.flat, self.config = flat, config
        self.momentum, self.weight_decay = (getattr(config, key, 0.0) for key in ("momentum", "weight_decay"))
        rest = dataclasses.replace(config, groups=[])
        chosen = assign(config.build_groups(), flat.kinds)
        self._parts: list[tuple[Optimizer, float | None]] = []  # with its rate; None: that of the rest
        first = 0
        for _, run in itertools.groupby(chosen, key=id):
            last = first + len(list(run))
            member = chosen[first]
            part = build_part(rest if member is None else member.optimizer, flat.cut(first, last))
            self._parts.append((part, None if member is None else member.optimizer.lr))
            first = last

    def adjust(self, *, momentum: float | None = None, weight_decay: float | None = None) -> None:
        super().adjust(momentum=momentum, weight_decay=weight_decay)
        for part, rate in self._parts:
            if rate is None:
                part.adjust(momentum=momentum, weight_decay=weight_decay)

    def step(self, lr: float) -> None:
        factor = lr / self.config.lr
        for part, rate in self._parts:
            part.step(lr if rate is None else rate * factor)

    def state_dict(self) -> dict[str, Any]:
        return {str(number): part.state_dict() for number, (part, _) in enumerate(self._parts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        before = self.state_dict()
        if not isinstance(state, Mapping) or set(state) != set(before):
            raise ValueError(f"{len(before)} optimizers of optimizer.groups keep a state each, but were given others")
        try:
            self._load(state)
        except ValueError:
            self._load(before)
            raise

    def _load(self, state: Mapping[str, Any]) -> None:
        for number, (part, _) in enumerate(self._parts):
            part.load_state_dict(state[str(number)])
