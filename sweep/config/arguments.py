"""Prepare the command line's arguments for Hydra's parsers."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from hydra._internal.utils import get_args_parser

from gradsweep import plugins
from gradsweep.errors import UsageError, bad_value
from gradsweep.options.hints import did_you_mean, find_nearest
from sweep.config.override_grammar import parse
from sweep.console import flags
from sweep.settings.slurm_launcher import SlurmOptions

_NUMBER = re.compile(r"[+-]?[\d._eE+-]*\d[\d._eE+-]*")
_OTHER = r"[+-]?(?:[\d._eE+-]*\d[\d._eE+-]*|inf|nan)|true|false"  # Hydra takes it for a number or a boolean
_OTHERS = re.compile(
    r"""(?P<kept>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\$\{[^}]*\})|(?<=[\[,:])(?P<gap>\s*)"""
    rf"(?P<text>{_OTHER})(?=\s*[,\]}}])",
    re.IGNORECASE,
)
_TEXT = re.compile(r"sweep\.(?:name|resume)|mpi\.environment\.\w+")
_TEXTS = ("sweep.on_end", "mpi.command", "mpi.environment", "trainer.command")

_SCRIPT = re.compile(r"\+{0,2}trainer=(?:.*,)?script(?:,.*)?")
_OF_GROUP = re.compile(r"([A-Za-z_]\w*)(?:(?:\.\w+)+=|=\{)")

_MULTIRUN = {"-m", "--multirun"}

_CHOSEN = ("hydra.launcher", "hydra.sweeper")
"""Groups whose options stand under the same name with a dot."""


def quote_for_hydra(words: Sequence[str]) -> list[str]:
    """Add what Hydra's grammar requires: quotes around texts like 1e3 and ${ceil:${workers},8}, ++ before free keys."""
    nested = r"^([^=\s]+=)(\$\{[^{}\"']*(?:\$\{[^{}\"']*\}[^{}\"']*)+\})$"
    free = r"^(?=hydra\.launcher\.additional(\.|=\{))"
    return [quote_text(re.sub(free, "++", re.sub(nested, r'\1"\2"', word))) for word in words]


def open_script_groups(words: Sequence[str], known: Collection[str]) -> list[str]:
    """Put ++ before keys of a script's own groups (`ddp.hook=fp16`) if the command has trainer=script.

    A key stays as it is, for Hydra to refuse it, if its group is similar to one of ours.

    Args:
        known: our keys and groups.
    """
    if not any(_SCRIPT.fullmatch(word) for word in words):
        return list(words)
    groups = {match[1] for word in words if (match := _OF_GROUP.match(word)) is not None}
    own = {group for group in groups if group not in (*known, "hydra") and not find_nearest(group, known)}
    return [f"++{word}" if (match := _OF_GROUP.match(word)) and match[1] in own else word for word in words]


def find_plugins(words: Sequence[str]) -> list[str]:
    """Return the files and modules that the words of a command name by plugins=[...].

    Raises:
        UsageError: the value is no list of texts.
    """
    found: list[str] = []
    for word in words:
        key, equals, value = word.lstrip("+").partition("=")
        if equals and key == plugins.KEY and (parsed := parse(f"{key}={value}")) is not None:
            texts = None if parsed.is_sweep_override() else parsed.value()
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise bad_value(key, value, f"one list for all runs, such as [./mine.py]; an item is {plugins.FORMS}")
            found += map(str, texts)
    return found


def find_config_folders(words: Sequence[str]) -> list[Path]:
    """Return the folders that the words of a command name by hydra.searchpath=[...]."""
    folders: list[Path] = []
    for word in words:
        key, equals, value = word.lstrip("+").partition("=")
        if equals and key == "hydra.searchpath" and (parsed := parse(f"{key}={value}")) is not None:
            texts = parsed.value()
            folders += [Path(str(text).removeprefix("file://")) for text in (texts if isinstance(texts, list) else [])]
    return folders


def put_overrides_first(words: Sequence[str]) -> list[str]:
    """Return words with all overrides before all flags, since Hydra's parser refuses flags between overrides.

    Raises:
        UsageError: a flag is unknown, or has a wrong value.
    """
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
        get_args_parser().parse_args(list(words))
        return list(words)
    usage = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage):
            overrides = list(get_args_parser().parse_intermixed_args(list(words)).overrides)
    except SystemExit:  # argparse has printed its usage in several lines
        why = usage.getvalue().strip().rpartition("error: ")[2]
        unknown = why.removeprefix("unrecognized arguments: ")
        if unknown != why:
            typed = [word for word in unknown.split() if word.startswith("-")]  # it names words behind them, too
            valid = "key=value, --quiet, --json, --trust, --version and the flags of --hydra-help"
            options = [option for action in get_args_parser()._actions for option in action.option_strings]
            long = [option for option in (*flags.ALL, *options) if option.startswith("--")]
            meant = did_you_mean(typed[0], long) if typed else ""
            why = f"{' '.join(typed) or unknown}: unknown; {meant}valid is {valid}"
        raise UsageError(why) from None
    left = list(words)
    for override in overrides:
        left.remove(override)
    return [*overrides, *left]


def leave_to_points(words: Sequence[str], groups: Collection[str]) -> list[str]:
    """Make a sweep of one value of a key in a group that is swept: `model=gpt,lstm model.layers=2`.

    Hydra sets all other keys in the config of the whole sweep, too, where `model` is the default, which may lack them.
    A swept experiment may change any group.

    Args:
        groups: those that have options.
    """
    if _MULTIRUN.isdisjoint(words):
        return list(words)
    parsed = {word: parse(word) for word in words if "=" in word and not word.startswith("-")}
    swept = {str(each.key_or_group) for each in parsed.values() if each is not None and each.is_sweep_override()}
    changed = set(groups) if "experiment" in swept else swept.intersection(groups)

    def leave(word: str) -> str:
        override, (key, _, value) = parsed.get(word), word.partition("=")
        is_left = override is not None and not override.is_sweep_override() and not override.is_delete()
        section, dot, _ = key.lstrip("+").partition(".")
        return f"{key}=choice({value})" if is_left and dot and value and section in changed else word

    return [leave(word) for word in words]


def quote_text(word: str) -> str:
    """Put quotes around those parts of a text that Hydra would not read as text: true, 1e3, 007.

    Arguments of programs and variables of their environment are such texts: `true` is not `True` there.
    """
    key, equals, value = word.partition("=")
    name = key.lstrip("+")
    if _TEXT.fullmatch(name) and re.fullmatch(_OTHER, value, re.IGNORECASE):
        return f'{key}="{value}"'
    if name in _TEXTS:
        return key + equals + _OTHERS.sub(lambda match: match["kept"] or f'{match["gap"]}"{match["text"]}"', value)
    return word


def refuse_misread(words: Sequence[str]) -> None:
    """Refuse a launcher's option whose text Hydra would read as a number, as in account=2024_08 (202408).

    Raises:
        UsageError: there is such an option, or a launcher is chosen by hydra.launcher=NAME; the message says what to
            type.
    """
    for word in words:
        key, equals, value = word.lstrip("+").partition("=")
        if equals and key in _CHOSEN and not value.startswith("{"):
            group = key.replace(".", "/")
            raise UsageError(f"{word}: valid is {group}=NAME to choose one, {key}.KEY=VALUE for its options")
        if not (equals and key.startswith("hydra.launcher.") and _NUMBER.fullmatch(value)) or _is_numeric(key):
            continue
        parsed = parse(f"{key}={value}")
        read = None if parsed is None else parsed.value()
        if isinstance(read, (int, float)) and str(read) != value:
            quoted = shlex.quote(f'{key}="{value}"')
            raise UsageError(f"{key}={value}: without quotes it is the number {read}; as a text: {quoted}")


def _is_numeric(key: str) -> bool:
    """Tell whether a key of the launcher takes a number."""
    name = key.rpartition(".")[2]
    kinds = {field.name: str(field.type) for field in dataclasses.fields(SlurmOptions)}
    return kinds.get(name, "").startswith(("int", "float"))
