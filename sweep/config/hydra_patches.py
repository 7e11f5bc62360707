"""What Hydra and OmegaConf do more often, or more slowly, than a command line should have to wait for."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import omegaconf
import yaml
from hydra._internal import defaults_list
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import InputDefault
from omegaconf import grammar_parser
from omegaconf._utils import get_yaml_loader

CParser: Any = yaml.cyaml.__dict__["CParser"] if yaml.__with_libyaml__ else None

_ask_mode = Hydra.get_mode
_map_choices = defaults_list._create_interpolation_map


def patch() -> None:
    """Have Hydra do the same in less time, in this process."""
    _share_config_store()
    _read_yaml_in_c()
    Hydra.get_mode = _mode  # type: ignore[method-assign]
    defaults_list._create_interpolation_map = _map_where_wanted  # type: ignore[assignment]
    for module in (omegaconf.base, omegaconf._utils):
        module.parse = _parse_once  # type: ignore[attr-defined]


def _mode(self: Hydra, config_name: str | None, overrides: list[str]) -> Any:
    """hydra.mode, for which Hydra composes the whole config, only to do it again: -m says it already.

    Returns:
        None where nothing but the command line decides: with -m.
    """
    typed = {"-m", "--multirun"}.intersection(sys.argv[1:])
    return None if typed else _ask_mode(self, config_name, overrides)


def _map_where_wanted(overrides: Any, defaults: Sequence[InputDefault], self_added: bool) -> Any:
    """All choices as a config, for the interpolations of a defaults list: most have none, and nobody asks for it."""
    if not any(default.is_interpolation() for default in defaults):
        return None
    return _map_choices(overrides, list(defaults), self_added)


_parse_once = functools.lru_cache(maxsize=4096)(grammar_parser.parse)
"""Interpolations are the same in all points; who resolves one only reads its tree."""


def _share_config_store() -> None:
    """Keep Hydra from copying all registered types for every look at a group and every point of a grid.

    It copies its repository in order not to change it while it resolves the search path; the store of
    types in it is a singleton, only ever read then, and hands out copies itself. More than half of
    the time of `--help` and of composing a point goes into that copy.
    """
    ConfigStore.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]


def _read_yaml_in_c() -> None:
    """Have OmegaConf read YAML as it does, but for the parser: libyaml's, where PyYAML was built with it.

    A third of the time of composing goes into parsing the files of conf/ in Python.
    """
    if CParser is None:
        return
    loader = type("Loader", (CParser, get_yaml_loader()), {"__init__": _begin})
    omegaconf._utils.get_yaml_loader = lambda: loader


def _begin(self: Any, stream: Any) -> None:
    CParser.__init__(self, stream)
    yaml.constructor.SafeConstructor.__init__(self)
    yaml.resolver.Resolver.__init__(self)
