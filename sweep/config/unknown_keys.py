"""Explain unknown keys: the similar keys that may be meant, and the choices of a group that have such a key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from gradsweep.errors import LISTED_BY
from gradsweep.options.config_keys import paths
from gradsweep.options.hints import did_you_mean, find_nearest, one_of
from gradsweep.source_tree import CONF
from sweep.config.schema import LAUNCHER, MEMBERS
from sweep.settings.launcher import OPTIONS

_LAUNCHER = LAUNCHER.replace("/", ".")
_ELSEWHERE = {
    "learning_rate": "lr",
    "wd": "weight_decay",
    "num_workers": "workers",
    "n_workers": "workers",
    "world_size": "workers",
    "nproc": "workers",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "steps": "max_steps",
    "num_steps": "max_steps",
    "random_seed": "seed",
}
"""Our keys by their names in other programs."""

_HYDRAS = (LAUNCHER, "hydra/sweeper")
_HYDRA = "python multirun.py --cfg hydra"
_SHOWN = 3  # choices that have a key


def explain_unknown(key: str, parent: Any, typed: str) -> str:
    """Explain an unknown key in the section `parent` of a config: name a similar key, and the valid keys.

    Args:
        typed: the key of the override that has it, such as `ddp.hook` for the unknown `ddp`.
    """
    if "/" in key:
        keys = list_groups()
        return f"unknown group; {did_you_mean(key, keys)}valid is {one_of(keys, LISTED_BY)}"
    section, _, name = key.rpartition(".")
    members = _find_members(section)
    keys = [str(each) for each in parent if each != "hydra" and not (members and each in ("name", "_target_"))]
    if not section and parent._get_root().get("trainer", {}).get("name") == "script":
        own = f"script.{typed.rpartition('.')[2]}"
        return f"unknown key; {did_you_mean(key, keys)}valid is a key in a group of the script, as {own}"
    name_key = "cluster" if section == _LAUNCHER else "name"
    chosen = f"{section.replace('.', '/')}={parent.get(name_key)}" if members else ""
    if having := _name_choices(section, name):
        return f"unknown key of {chosen}; {having}"
    lists = f"python multirun.py {chosen} --help" if chosen else LISTED_BY if section != "hydra" else _HYDRA
    valid = f"valid is {one_of(keys, lists, 'keys')}" if keys else ""
    if OmegaConf.get_type(parent) is dict:  # the mapping has no type that lists its keys
        valid = f"{valid}, or a new one with + before it" if keys else "valid is a new one with + before it"
    of_group = did_you_mean(typed, _list_keys(parent)) if typed.startswith(f"{key}.") and not section else ""
    meant = of_group or _suggest(key, section, keys, parent, members)
    if typed.startswith(f"{key}.") and not section and not meant:
        valid += ", or with trainer=script a key of the script's own"
    hint = f"{meant}{valid}" or "it has no options"
    return f"unknown key{f' of {chosen}' if chosen else ''}; {hint.rstrip(' ;')}"


def _suggest(key: str, section: str, keys: list[str], parent: Any, members: Mapping[str, type]) -> str:
    """Return a hint at a similar key: of the section, of its other choices, or of the whole config."""
    name = key.rpartition(".")[2]
    ours = _ELSEWHERE.get(name.lower(), name)
    above = f"{section}." if section else ""
    if section and (meant := did_you_mean(above + ours, [above + each for each in keys])):
        return meant
    others = {field for cls in members.values() for field in _list_fields(cls)}
    if near := find_nearest(ours, others):
        return f"did you mean {above}{near[0]}? {_name_choices(section, near[0])}; "
    return did_you_mean(key if ours == name and not section else ours, _list_keys(parent))


def _list_keys(parent: Any) -> list[str]:
    """List all keys of a config and of all its possible choices."""
    root = parent._get_root()
    plain = OmegaConf.to_container(root, resolve=False) if isinstance(root, DictConfig) else {}
    assert isinstance(plain, dict)
    plain.pop("hydra", None)
    names = [str(path) for path in paths({str(key): value for key, value in plain.items()})]
    for group, members in MEMBERS.items():
        names += [f"{group}.{field}" for cls in members.values() for field in _list_fields(cls)]
    names += [f"{_LAUNCHER}.{field}" for cls in OPTIONS.values() for field in _list_fields(cls)]
    return [name for name in dict.fromkeys(names) if not name.endswith(".name") or name == "sweep.name"]


def _find_members(section: str) -> Mapping[str, type]:
    """Return the members of a group by name; empty if the section is no group."""
    return OPTIONS if section == _LAUNCHER else MEMBERS.get(section, {})


def _list_fields(cls: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(cls) if field.init]


def _name_choices(section: str, name: str) -> str:
    """Return a phrase with the choices of a group that have a key, shortest names first; empty without any."""
    having = [member for member, cls in _find_members(section).items() if name in _list_fields(cls)]
    having.sort(key=lambda member: (len(member), member))
    if not having:
        return ""
    shown, more = having[:_SHOWN], len(having) - _SHOWN
    last = [f"{more} more"] if more > 0 else [shown.pop()] if len(shown) > 1 else []
    words = " and ".join([", ".join(shown), *last])
    return f"{section.replace('.', '/')}={words} {'have' if len(having) > 1 else 'has'} {name}"


def list_groups() -> list[str]:
    """List the groups of conf/, and the groups of Hydra that we let users choose from."""
    return [*sorted(path.name for path in CONF.glob("*") if path.is_dir() and path.name != "hydra"), *_HYDRAS]


def list_names(group: str) -> list[str]:
    """List the names that conf/ has for a group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))
