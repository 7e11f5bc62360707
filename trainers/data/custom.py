"""The user's own data (`dataset=custom`): calls its target, checks what it returns, and builds a feed of it."""

from __future__ import annotations

import copy
import dataclasses
import json
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import IterableDataset, default_collate

from gradsweep.errors import bad_value
from gradsweep.targets import call_target, describe_error, import_target
from trainers.config.run_config import RunConfig
from trainers.data.arrays import Arrays
from trainers.data.feeds import Feed
from trainers.data.own_arrays import ArrayFeed, build_arrays, is_array, is_pair
from trainers.data.own_feed import SampleFeed
from trainers.data.own_samples import COLLATE, TARGET, TEST, TRAINING, OwnSets, refuse, seed_generators
from trainers.options.datasets import Custom

VALID = (
    "a target that returns two data sets, training and test: map-style ones of torch, or pairs (inputs, targets) of "
    "arrays"
)

_in_use: weakref.WeakValueDictionary[str, Arrays | OwnSets] = weakref.WeakValueDictionary()


def load(options: Custom) -> Arrays | OwnSets:
    """Return what the user's target returns; it is called unless that is still in use for the same options, as in a
    race.

    Raises:
        UsageError: the target cannot be called, or returns something else.
    """
    name = json.dumps(dataclasses.asdict(options), sort_keys=True, default=repr)
    loaded = _in_use.get(name)
    if loaded is None:
        loaded = _in_use[name] = _load(options)
    return loaded


def _load(options: Custom) -> Arrays | OwnSets:
    collate: Callable[[list[Any]], Any] = default_collate
    if options.collate is not None:
        collate = import_target(COLLATE, options.collate)
    with seed_generators(0):  # a split that the target draws is the same in all ranks and runs
        found = call_target(TARGET, options.target, copy.deepcopy(options.args))
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        size = f" of {len(found)}" if isinstance(found, (tuple, list)) else ""
        raise refuse(options, f"{VALID}; it returns a {type(found).__name__}{size}")
    train, test = found
    if is_pair(train) and is_pair(test):
        if options.collate is not None:
            raise bad_value(COLLATE, options.collate, "null with a target that returns arrays")
        return build_arrays(options, train, test)
    _check_data_set(options, TRAINING, train)
    _check_data_set(options, TEST, test)
    return OwnSets(options, train, test, collate)


def _check_data_set(options: Custom, name: str, part: Any) -> None:
    kind = type(part).__name__
    if isinstance(part, IterableDataset) or (hasattr(part, "__iter__") and not hasattr(part, "__getitem__")):
        fault = f"{name} is a {kind}, which can only be iterated, so that its samples have no order to draw"
        raise refuse(options, f"{VALID}; {fault}")
    if is_array(part) or isinstance(part, (tuple, Mapping)) or not hasattr(part, "__getitem__"):
        raise refuse(options, f"{VALID}; {name} is a {kind}")
    try:
        count = len(part)
    except Exception as error:
        raise refuse(options, f"data sets with a length: that of {name} raises {describe_error(error)}") from error
    if count < 1:
        raise refuse(options, f"data sets with one sample or more: {name} has {count}")


def build_feed(config: RunConfig, worker: int, workers: int) -> Feed:
    """Return the feed of one worker for the user's own data.

    Raises:
        UsageError: the data cannot be used, or an option does not fit them.
    """
    loaded = load(config.dataset)
    if isinstance(loaded, Arrays):
        return ArrayFeed(loaded, config, worker, workers)
    return SampleFeed(loaded, config, worker, workers)
