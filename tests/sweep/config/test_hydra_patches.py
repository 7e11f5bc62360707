"""What spares Hydra work changes nothing of what it does, and is left out where Hydra is not as expected."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import omegaconf
import pytest
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from hydra.plugins.completion_plugin import CompletionPlugin
from hydra.types import RunMode

from sweep.config import hydra_patches
from tests.conftest import ROOT

SPEEDUPS = {speed_up.__name__: speed_up for speed_up in hydra_patches.SPEEDUPS}
OFF = ("none", *SPEEDUPS, "store_on_demand", "cache_config_files", "all")

COMPOSE = """
import json, os, sys
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from sweep.config import composer, hydra_patches, schema
from sweep.launch.session import Session
from trainers.config.groups import GROUPS
from trainers.config.run_config import RunConfig

speedups = hydra_patches.SPEEDUPS
points = [["compressor=qsgd", "seed=1"], ["compressor=qsgd", "seed=2"], ["experiment=quick", "workers=3"]]
for off in sys.argv[2:]:
    sys.stdout.flush()
    if (child := os.fork()) != 0:
        os.waitpid(child, 0)
        continue
    hydra_patches.SPEEDUPS = [each for each in speedups if off not in ("all", each.__name__)]
    if off in ("store_on_demand", "all"):
        hydra_patches._NODE = ()
    if off in ("cache_config_files", "all"):
        composer.cache_config_files = lambda loader: loader
    schema.register(RunConfig, GROUPS)
    schema.register_resolvers(Session().choose_directory)
    with initialize_config_dir(sys.argv[1], version_base="1.3", job_name="multirun"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("config", [], RunMode.MULTIRUN)
        print(json.dumps([off, composer.Composer(loader, master).compose(points)]), flush=True)
    os._exit(0)
"""
"""Composes in a process for each patch that is turned off."""


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    command = [sys.executable, "-c", COMPOSE, str(ROOT / "conf"), *OFF]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return {off: json.dumps(configs) for off, configs in map(json.loads, done.stdout.splitlines())}


@pytest.mark.thorough
@pytest.mark.parametrize("off", OFF[1:])
def test_without_a_patch_the_same_is_composed(off: str, composed: dict[str, str]) -> None:
    assert composed[off] == composed["none"]


MEMBERS: dict[Callable[[], bool], tuple[Any, str]] = {
    hydra_patches.read_yaml_in_c: (omegaconf._utils, "get_yaml_loader"),
    hydra_patches.take_mode_from_flag: (Hydra, "get_mode"),
    hydra_patches.map_choices_on_demand: (defaults_list, "_create_interpolation_map"),
    hydra_patches.parse_interpolations_once: (omegaconf.base, "parse"),
    lambda: hydra_patches.replace_help(lambda *_: None): (Hydra, "app_help"),
    lambda: hydra_patches.replace_completion(lambda query, line: []): (CompletionPlugin, "_query"),
    lambda: hydra_patches.share_config_store(): (ConfigStore, "load"),
}


def test_all_apply_to_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for patch, (owner, name) in MEMBERS.items():
        monkeypatch.setattr(owner, name, getattr(owner, name))
        assert patch() and patch()


@pytest.mark.parametrize("patch", list(MEMBERS)[:-1], ids=lambda patch: MEMBERS[patch][1])
def test_a_member_of_another_shape_stays(patch: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name = MEMBERS[patch]

    def changed(another: object) -> None:
        """As a later version of the library may have it."""

    monkeypatch.setattr(owner, name, changed)
    assert not patch() and getattr(owner, name) is changed
    monkeypatch.delattr(owner, name)
    assert not patch() and not hasattr(owner, name)


def test_a_yaml_loader_of_another_kind_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(omegaconf._utils, "get_yaml_loader", lambda: object)
    hydra_patches.read_yaml_in_c()
    assert omegaconf._utils.get_yaml_loader() is object


def test_a_repository_of_another_shape_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    from sweep.config.cached_repository import cache_config_files

    loader: Any = ConfigLoaderImpl.__new__(ConfigLoaderImpl)
    loader.repository = object()
    assert cache_config_files(loader) is loader


@pytest.mark.parametrize(
    ("words", "mode"),
    [(["-m"], None), (["seed=1,2", "--multirun"], None), (["seed=1"], RunMode.RUN), ([], RunMode.RUN)],
)
def test_hydra_is_asked_for_its_mode_where_no_flag_tells(
    words: list[str], mode: RunMode | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get_mode(self: Hydra, config_name: str | None, overrides: list[str]) -> RunMode:
        return RunMode.RUN

    monkeypatch.setattr(Hydra, "get_mode", get_mode)
    monkeypatch.setattr(sys, "argv", ["multirun.py", *words])
    assert hydra_patches.take_mode_from_flag()
    assert Hydra.get_mode(object.__new__(Hydra), "config", []) == mode
