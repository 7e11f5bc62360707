"""A cache for Hydra's config files, so that each is read once instead of once for each composed config.

Gain: see `hydra_patches.map_choices_on_demand`.
"""

from __future__ import annotations

import copy
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig

from sweep.config.hydra_patches import has_shape


def cache_config_files(loader: ConfigLoader) -> ConfigLoader:
    """Return a loader like `loader` that reads each config file once; return `loader` if this Hydra does not fit."""
    if type(loader) is not ConfigLoaderImpl or type(loader.repository) is not ConfigRepository or not _has_members():
        return loader
    copied = _Loader.__new__(_Loader)
    vars(copied).update(vars(loader), repository=CachedRepository(loader.repository))
    return copied


def _has_members() -> bool:
    return has_shape(ConfigRepository, "_find_object_source", ("self", "config_path", "object_type")) and has_shape(
        ConfigLoaderImpl, "_embed_result_config", ("ret", "package_override")
    )


class CachedRepository(ConfigRepository):
    """Hydra's repository of config files with a cache: files must not change or appear while it exists.

    Args:
        repository: Hydra's own, with a config search path that does not change any more.
    """

    def __init__(self, repository: ConfigRepository) -> None:
        self.sources = repository.sources
        self._results: dict[str, ConfigResult | None] = {}
        self._places: dict[tuple[str, ObjectType | None], Any] = {}

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path not in self._results:
            self._results[config_path] = super().load_config(config_path)
        result = self._results[config_path]
        if result is None or (isinstance(result.config, DictConfig) and "hydra" in result.config):
            return copy.deepcopy(result)  # Hydra takes that section out where it checks a config against a type
        return copy.copy(result)  # its config is copied when it is put into another, see _Loader

    def _find_object_source(self, config_path: str, object_type: ObjectType | None) -> Any:
        if (config_path, object_type) not in self._places:
            self._places[config_path, object_type] = super()._find_object_source(config_path, object_type)
        return self._places[config_path, object_type]

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        super().initialize_sources(config_search_path)
        self._results, self._places = {}, {}

    def __deepcopy__(self, memo: dict[int, Any]) -> CachedRepository:
        """Return a copy for a composition, which shares the cache until the copy gets another search path."""
        copied = copy.copy(self)
        copied.sources = list(self.sources)
        return copied


class _Loader(ConfigLoaderImpl):
    """Hydra's loader with a repository that caches its results."""

    @staticmethod
    def _embed_result_config(ret: ConfigResult, package_override: str | None) -> ConfigResult:
        """Put a config into its package (Hydra's term); copy one without a package, as Hydra would change the cache."""
        result = ConfigLoaderImpl._embed_result_config(ret, package_override)
        return copy.deepcopy(ret) if result is ret else result
