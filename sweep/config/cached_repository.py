"""Config files that Hydra reads once instead of once a composition."""

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


class Remembering(ConfigRepository):
    """A repository whose files are taken not to change any more, nor to appear.

    Args:
        repository: Hydra's own, of a config search path that is settled.
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

    def __deepcopy__(self, memo: dict[int, Any]) -> Remembering:
        """For a composition, which may give its copy another search path: until then they share what they remember."""
        copied = copy.copy(self)
        copied.sources = list(self.sources)
        return copied


class _Loader(ConfigLoaderImpl):
    """Hydra's, for a repository that keeps what it has handed out."""

    @staticmethod
    def _embed_result_config(ret: ConfigResult, package_override: str | None) -> ConfigResult:
        """Put a config at its place. What has none, as it belongs at the top, Hydra would take apart as it is."""
        result = ConfigLoaderImpl._embed_result_config(ret, package_override)
        return copy.deepcopy(ret) if result is ret else result


def remembering(loader: ConfigLoader) -> ConfigLoader:
    """A loader like this one that reads each config file once."""
    if type(loader) is not ConfigLoaderImpl or not isinstance(loader.repository, ConfigRepository):
        return loader
    copied = _Loader.__new__(_Loader)
    vars(copied).update(vars(loader), repository=Remembering(loader.repository))
    return copied
