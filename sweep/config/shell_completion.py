"""Completion by the shell where Hydra's ends: after a comma, and without what nobody should type."""

from __future__ import annotations

from hydra.plugins.completion_plugin import CompletionPlugin

from sweep.config import schema

_query = CompletionPlugin._query


def patch() -> None:
    """Have Hydra complete so."""
    CompletionPlugin._query = _query_list  # type: ignore[method-assign]


def _query_list(self: CompletionPlugin, config_name: str | None, line: str) -> list[str]:
    """All that the last word may become; of `compressor=qsgd,to` what stands before the last comma stays."""
    before, space, word = line.rpartition(" ")
    key, equals, values = word.partition("=")
    done, comma, begun = values.rpartition(",")
    if not equals or not comma or done.startswith(("[", "{", '"', "'")):
        return _proper(_query(self, config_name, line))
    others = _proper(_query(self, config_name, f"{before}{space}{key}={begun}"))
    names = [found.partition("=")[2] for found in others if found.startswith(f"{key}=")]
    typed = done.split(",")
    return [f"{key}={done},{name}" for name in names if name.startswith(begun) and name not in typed]


def _proper(words: list[str]) -> list[str]:
    """Without the types of a config, which are groups to Hydra only, and launchers of other packages."""
    kept = [word for word in words if not word.startswith("schema")]
    mark = f"{schema.LAUNCHER}="
    launchers = [word.removeprefix(mark) for word in kept if word.startswith(mark)]
    foreign = {mark + name for name in launchers} - {mark + name for name in schema.select_own_launchers(launchers)}
    return [word for word in kept if word not in foreign]
