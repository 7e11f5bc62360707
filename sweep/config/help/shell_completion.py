"""Shell completion: completes lists after each comma, and omits words that a user should not type."""

from __future__ import annotations

from collections.abc import Callable

from sweep.config import schema


def complete(query: Callable[[str], list[str]], line: str) -> list[str]:
    """Return all possible completions of a line's last word, from Hydra's completions of the line (`query`).

    `compressor=qsgd,to` keeps what is before the last comma.
    """
    before, space, word = line.rpartition(" ")
    key, equals, values = word.partition("=")
    done, comma, begun = values.rpartition(",")
    if not equals or not comma or done.startswith(("[", "{", '"', "'")):
        return _drop_foreign(query(line))
    others = _drop_foreign(query(f"{before}{space}{key}={begun}"))
    names = [other.partition("=")[2] for other in others if other.startswith(f"{key}=")]
    typed = done.split(",")
    return [f"{key}={done},{name}" for name in names if name.startswith(begun) and name not in typed]


def _drop_foreign(words: list[str]) -> list[str]:
    """Remove our registered types, which Hydra takes for config groups, and launchers of other packages."""
    kept = [word for word in words if not word.startswith("schema")]
    mark = f"{schema.LAUNCHER}="
    launchers = [word.removeprefix(mark) for word in kept if word.startswith(mark)]
    foreign = {mark + name for name in launchers} - {mark + name for name in schema.select_own_launchers(launchers)}
    return [word for word in kept if word not in foreign]
