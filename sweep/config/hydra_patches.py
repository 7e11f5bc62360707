"""All patches of Hydra, OmegaConf and Optuna, with their reasons and measured gains.

A patch is applied only if the patched function exists with the expected parameters. Without the patch the library works
as well, but more slowly or with its own messages. `cached_repository.py` derives from two of Hydra's classes on the
same condition.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import yaml
from hydra.core.config_store import ConfigNode, ConfigStore
from omegaconf import OmegaConf

Function = Callable[..., Any]

_NODE = ("name", "node", "group", "package", "provider")


def share_config_store() -> bool:
    """Keep Hydra from copying all registered types each time it reads a group and for every point of a grid.

    Hydra copies its repository because it changes it while it resolves the search path. The store of types in the
    repository need not be copied: it is a singleton, which is only read then, and which returns copies.

    Gain: more than half of the time of `--help` and of composing a point by Hydra.
    """
    if "__deepcopy__" not in vars(ConfigStore) and ConfigStore.instance() is ConfigStore.instance():
        ConfigStore.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]
    return "__deepcopy__" in vars(ConfigStore)


def read_yaml_in_c() -> bool:
    """Have OmegaConf's YAML loader parse with libyaml, if PyYAML was built with it.

    Gain: a third of the time of composing, which the YAML parser in Python took for the files of conf/.
    """
    return yaml.__with_libyaml__ and _replace("omegaconf._utils", "get_yaml_loader", (), _make_yaml_loader_getter)


def _make_yaml_loader_getter(get_yaml_loader: Function) -> Function:
    parser: Any = yaml.cyaml.__dict__["CParser"]

    def begin(self: Any, stream: Any) -> None:
        parser.__init__(self, stream)
        yaml.constructor.SafeConstructor.__init__(self)
        yaml.resolver.Resolver.__init__(self)

    loader = get_yaml_loader()
    if not issubclass(loader, yaml.SafeLoader):
        return get_yaml_loader
    in_c = type("Loader", (parser, loader), {"__init__": begin})
    return lambda: in_c


def take_mode_from_flag() -> bool:
    """Keep Hydra from composing the whole config only to read hydra.mode if the flag -m decides the mode anyway.

    Gain: not measured apart.
    """

    def make(get_mode: Function) -> Function:
        def get_mode_without_flag(self: Any, config_name: str | None, overrides: list[str]) -> Any:
            typed = {"-m", "--multirun"}.intersection(sys.argv[1:])
            return None if typed else get_mode(self, config_name, overrides)

        return get_mode_without_flag

    return _replace("hydra._internal.hydra:Hydra", "get_mode", ("self", "config_name", "overrides"), make)


def map_choices_on_demand() -> bool:
    """Build the map of all choices only for a defaults list with interpolations: most have none.

    Gain, with `parse_interpolations_once` and cached_repository.py: composing a point of 1000 took 2.47 ms, and then
    1.73 ms (docs/design/benchmarks.md).
    """

    def make(create_map: Function) -> Function:
        def create_map_on_demand(overrides: Any, defaults: Sequence[Any], self_added: bool) -> Any:
            if not any(default.is_interpolation() for default in defaults):
                return None
            return create_map(overrides, list(defaults), self_added)

        return create_map_on_demand

    parameters = ("overrides", "defaults_list", "self_added")
    return _replace("hydra._internal.defaults_list", "_create_interpolation_map", parameters, make)


def parse_interpolations_once() -> bool:
    """Cache the trees of parsed interpolations, which all points share; OmegaConf only reads them.

    Gain: see `map_choices_on_demand`.
    """
    parameters = ("value", "parser_rule", "lexer_mode")
    make = functools.cache(functools.lru_cache(maxsize=4096))  # one cache for both modules
    return all([_replace(f"omegaconf.{module}", "parse", parameters, make) for module in ("base", "_utils")])


SPEEDUPS: tuple[Callable[[], bool], ...] = (
    share_config_store,
    read_yaml_in_c,
    take_mode_from_flag,
    map_choices_on_demand,
    parse_interpolations_once,
)
"""Patches that make Hydra and OmegaConf faster, with the same results; each returns whether it was applied."""


def store_on_demand(group: str, name: str, make: Callable[[], type]) -> None:
    """Register a type with Hydra by `make`, which is called at the first load: a command needs ten types of a hundred.

    Gain: not measured apart.
    """
    store = ConfigStore.instance()
    if tuple(field.name for field in dataclasses.fields(ConfigNode)) != _NODE or not hasattr(store, "repo"):
        store.store(group=group, name=name, node=make())
        return
    folder = store.repo
    for part in group.split("/"):
        folder = folder.setdefault(part, {})
    folder[f"{name}.yaml"] = _DeferredNode(f"{name}.yaml", group, make)


class _DeferredNode(ConfigNode):
    """A type in Hydra's store that is built at its first load."""

    def __init__(self, name: str, group: str, make: Callable[[], type]) -> None:
        self.name, self.group, self.package, self.provider = name, group, None, None
        self._make = make

    def __getattr__(self, key: str) -> Any:  # Python calls it for missing attributes only
        if key != "node":
            raise AttributeError(key)
        self.node = OmegaConf.structured(self._make())
        return self.node

    def __copy__(self) -> ConfigNode:
        return ConfigNode(self.name, self.node, self.group, self.package, self.provider)


def replace_help(print_help: Callable[[Any, str | None, Any, Any], None]) -> bool:
    """Replace Hydra.app_help by `print_help`."""
    parameters = ("self", "config_name", "args_parser", "args")
    return _replace("hydra._internal.hydra:Hydra", "app_help", parameters, lambda app_help: print_help)


def replace_completion(complete: Callable[[Callable[[str], list[str]], str], list[str]]) -> bool:
    """Replace Hydra's completions of a line by those that `complete` returns."""

    def make(query: Function) -> Function:
        return lambda self, config_name, line: complete(lambda text: query(self, config_name, text), line)

    parameters = ("self", "config_name", "line")
    return _replace("hydra.plugins.completion_plugin:CompletionPlugin", "_query", parameters, make)


def tolerate_last_failure() -> bool:
    """Let a search by Optuna's grid sampler end with a failed trial; call this when the sweeper has loaded Optuna.

    After the last point the sampler asks the study to stop, which is an error outside of `Study.optimize`. The sweeper
    expects that error after a value, not after a failure: which point comes last is random, and with a failed one the
    search would end before it writes its results.
    """

    def make(after_trial: Function) -> Function:
        def tolerate(*arguments: Any, **keywords: Any) -> None:
            with contextlib.suppress(RuntimeError):
                after_trial(*arguments, **keywords)

        return tolerate

    parameters = ("self", "study", "trial", "state", "values")
    return _replace("optuna.samplers:GridSampler", "after_trial", parameters, make)


def _replace(where: str, name: str, parameters: tuple[str, ...], make: Callable[[Function], Function]) -> bool:
    """Replace a library's function (`where` is module or module:Class) by `make` of it, if it has these parameters.

    Return whether it is replaced, now or by an earlier call.
    """
    module, _, cls = where.partition(":")
    try:
        owner: Any = importlib.import_module(module)
        owner = getattr(owner, cls) if cls else owner
    except (ImportError, AttributeError):
        return False
    if not has_shape(owner, name, parameters):
        return False
    original = getattr(owner, name)
    if not hasattr(original, "__wrapped__"):
        setattr(owner, name, functools.update_wrapper(make(original), original))
    return True


def has_shape(owner: Any, name: str, parameters: tuple[str, ...]) -> bool:
    """Tell whether a module or class has a function with this name and these parameters."""
    try:
        return tuple(inspect.signature(getattr(owner, name)).parameters) == parameters
    except (AttributeError, TypeError, ValueError):
        return False
