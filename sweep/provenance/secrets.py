"""Hide secrets, which are recognised by their names, and refuse them in options that are written to a sweep's files.

Ranks need no such options: they inherit the secrets in the command's environment.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from gradsweep.errors import UsageError
from gradsweep.options import config_keys

_ANYWHERE = "token|secret|password|passwd|passphrase|credential|apikey|authorization"
_ALONE = "key|pass|auth"
_SECRET = re.compile(rf"(?:{_ANYWHERE}|(?<![a-z])(?:{_ALONE}))s?(?![a-z])", re.IGNORECASE)
_NO_SECRET = re.compile(r"[_-](?:file|path|dir)$", re.IGNORECASE)  # the name of a file with a secret
_GIVEN = re.compile(
    r"(?<![\w.-])(?P<name>[\w.-]+)(?P<sign>\s*[=:]\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s,\[\]{}\"'=][^\s,\[\]{}\"']*)"
)
HIDDEN = "***"


def is_secret(name: str) -> bool:
    """Tell whether this is the name of a secret: WANDB_API_KEY and db-password are, TOKENIZERS_PARALLELISM is not."""
    return _SECRET.search(name) is not None and _NO_SECRET.search(name) is None


def hide(text: str) -> str:
    """Return a text without the values of secrets, such as abc in `X_TOKEN=abc` and `X_TOKEN: abc`.

    A value that the shell is to compute (`X_TOKEN=$(cat file)`) is not secret.
    """

    def hide_value(match: re.Match[str]) -> str:
        is_public = not is_secret(match["name"]) or match["value"].strip("\"'").startswith(("$", "`"))
        return match[0] if is_public or match["value"] == HIDDEN else match["name"] + match["sign"] + HIDDEN

    return _GIVEN.sub(hide_value, text)


@functools.lru_cache(maxsize=4096)  # the points of a grid have most words in common
def hide_in_word(word: str) -> str:
    """Return a word of a command line without secrets, such as the value of `+mpi.environment.X_TOKEN=...`."""
    name, sign, value = word.partition("=")
    if re.fullmatch(r"[\w.@/~+-]+", name) and is_secret(name):
        return name + sign + (value and HIDDEN)
    return hide(word)


def refuse_names(key: str, names: Iterable[str]) -> None:
    """Raise UsageError if an environment variable has the name of a secret."""
    for name in filter(is_secret, names):
        raise UsageError(
            f"{key}.{name}={HIDDEN}: a secret, by its name, that would stand in the sweep's files; valid is to leave "
            f"it out and to set {name} in the environment of this command, which the ranks inherit"
        )


def refuse_texts(key: str, texts: Iterable[object]) -> None:
    """Raise UsageError if a text contains a secret, such as `X_TOKEN=abc`."""
    for text in texts:
        if isinstance(text, str) and (shown := hide(text)) != text:
            shown = shown if shown.isprintable() else repr(shown)
            raise UsageError(
                f"{key}={shown}: a secret, by its name, that would stand in the sweep's files; valid is one that is "
                f"read from the environment of this command, or from a file"
            )


def refuse_in_script(config: Mapping[str, Any]) -> None:
    """Raise UsageError if the command of a script, or a key of its own, contains a secret.

    Args:
        config: resolved, of a run with trainer=script.
    """
    refuse_texts("trainer.command", config["trainer"]["command"])
    for key, value in config_keys.flatten({key: value for key, value in config.items() if key != "mpi"}).items():
        group, _, name = key.rpartition(".")
        if isinstance(value, str):
            refuse_names(group, [name])
