"""The help of multirun.py: config groups, aliases, and options with their comments from conf/.

Each option shows its composed value: `compressor=topk --help` shows the options of compressor=topk, and --help those of
the default choices.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.hydra import Hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from gradsweep import yaml_files
from gradsweep.cli.command_names import adapt_columns
from gradsweep.options.config_keys import look_up
from gradsweep.plugins import Members
from sweep.config import schema

WIDTH = 120
_SHOWN_OF_HYDRA = (schema.LAUNCHER, "hydra/sweeper")
_OPTION = re.compile(r"(?P<indent> *)(?P<key>\w+):(?P<value>[^#]*?)(?P<rest>\s*(?:\s#.*)?)$")


def print_help(hydra: Hydra, config_name: str | None, args_parser: Any, args: Any) -> None:
    """Print the help for the command line; replaces Hydra.app_help."""
    mode = RunMode.MULTIRUN if args.multirun else RunMode.RUN
    config = hydra.compose_config(config_name, args.overrides, mode, with_log_configuration=True)
    HydraConfig.instance().set_config(config)
    usual = hydra.compose_config(config_name, [], mode) if args.overrides else config
    print(adapt_columns(compose_help(hydra, config, usual, args.overrides)), end="")


def compose_help(hydra: Hydra, config: DictConfig, usual: DictConfig, typed: Sequence[str]) -> str:
    """Return the whole help; if groups are chosen on the command line, only the options of these choices."""
    words = {group.lstrip("+"): value for group, _, value in (word.partition("=") for word in typed)}
    folders = [Path(source.path) for source in config.hydra.runtime.config_sources if source.schema == "file"]
    choices = {str(group): str(name) for group, name in config.hydra.runtime.choices.items() if name is not None}
    before = usual.hydra.runtime.choices
    chosen = {group: name for group, name in choices.items() if group in words or before.get(group) != name}
    chosen = {group: name for group, name in chosen.items() if _is_ours(group)}
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    values = {str(key): value for key, value in plain.items()}
    pages = [_Page(folders, group, name, values) for group, name in (chosen or choices).items() if _is_ours(group)]
    pages = [each for page in pages for each in page.split_names(words.get(page.group, ""))]
    if chosen:
        lines = [line for page in pages for line in (*page.format_lines(), "")]
        return "\n".join([*lines, "python multirun.py --help shows the rest."]) + "\n"
    head = [
        "",
        *_list_groups(hydra, folders),
        "",
        "Options (KEY=VALUE, such as batch.size=256), with their values here:",
        "",
    ]
    whole = _Page(folders, "", "config", values).format_lines()
    own = [line for page in pages if page.has_options for line in ("", *page.format_lines())]
    settings = config.hydra.help
    return "\n".join([settings.header.rstrip(), *head, *whole, *own, "", settings.footer.rstrip()]) + "\n"


def _is_ours(group: str) -> bool:
    return group in _SHOWN_OF_HYDRA or group.partition("/")[0] not in ("hydra", "schema")


def _list_groups(hydra: Hydra, folders: Sequence[Path]) -> Iterator[str]:
    """Yield lines with the names in each group, its aliases and their meanings."""
    yield "Groups (GROUP=NAME; `python multirun.py GROUP=NAME --help` shows the options of NAME):"
    yield ""
    for group in sorted(hydra.list_all_config_groups()):
        if not _is_ours(group):
            continue
        names = sorted(hydra.config_loader.get_group_options(group))
        names = schema.select_own_launchers(names) if group == schema.LAUNCHER else names
        others = {name: meant for name in names if (meant := _find_meaning(_find_file(folders, group, name)))}
        yield from _wrap(f"{group}: {', '.join(name for name in names if name not in others)}")
        if others:
            yield from _wrap("    also " + ", ".join(f"{name} ({meant})" for name, meant in others.items()), "    ")


def _wrap(line: str, indent: str = "") -> list[str]:
    return textwrap.wrap(line, WIDTH, subsequent_indent=f"{indent}    ", break_long_words=False, break_on_hyphens=False)


def _find_meaning(path: Path | None) -> str:
    """Return the meaning of an alias's file in a group, such as `topk` or `topk ratio=0.001`; empty for other files."""
    base = _find_base(path)
    options = [f"{key}={_dump_in_line(value)}" for key, value in _read(path).items() if key != "defaults"]
    return " ".join([base, *options]) if base else ""


def _find_base(path: Path | None) -> str:
    """Return the name for which an alias's file stands (in the same group); empty if the file is no alias."""
    first = (_read(path).get("defaults") or [""])[0]
    if not isinstance(first, str) or first.startswith("/") or _is_global(path):
        return ""
    return first.replace("_self_", "")


def _is_global(path: Path | None) -> bool:
    """Tell whether the content of a file belongs to the whole config instead of the section of its group."""
    return path is not None and path.read_text(encoding="utf-8").startswith("# @package _global_")


def _dump_in_line(value: Any) -> str:
    """Return a value as YAML in one line."""
    written = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return written.removesuffix("\n").removesuffix("\n...")


def _find_file(folders: Sequence[Path], group: str, name: str) -> Path | None:
    return next((path for folder in folders if (path := folder / group / f"{name}.yaml").is_file()), None)


def _read(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    content = yaml.load(path.read_text(encoding="utf-8"), yaml_files.Loader)
    return content if isinstance(content, dict) else {}


@dataclasses.dataclass(frozen=True)
class _Page:
    """The help on one file of conf/: its comments, and its options with their values in a config."""

    folders: Sequence[Path]
    group: str
    name: str
    values: Mapping[str, Any]

    def split_names(self, typed: str) -> list[_Page]:
        """Return a page for each name in a list such as `qsgd,svd`, with its file's values; else this page."""
        names = typed.split(",") if "," in typed else []
        return [dataclasses.replace(self, name=name, values={}) for name in names] or [self]

    @property
    def has_options(self) -> bool:
        lines = self._read_lines(self._find_origin()) or self._describe_class()
        return any(_OPTION.match(line) for line in lines)

    def format_lines(self) -> list[str]:
        """Return the lines of the page; for an alias also its meaning."""
        shown = self._format_options(self._find_origin()) or self._describe_class()
        if not self.group:
            return shown
        own = _find_file(self.folders, self.group, self.name)
        what = f"{self.group}={self.name}"
        meant = _find_meaning(own)
        comments = [] if own is None or not meant else self._read_lines(own, comments=True)
        title = f"{what}, which is {meant}:" if meant else f"{what}:"
        body = [*comments, *shown] or ["# --cfg hydra prints its options" if "/" in self.group else "# no options"]
        return [title, *(f"  {line}" for line in body)]

    def _find_origin(self) -> Path | None:
        """Return the file in which the options are defined; for an alias, that of the method."""
        name = self.name
        for _ in range(10):
            path = _find_file(self.folders, self.group, name)
            if not (base := _find_base(path)):
                return path
            name = base
        return None

    def _describe_class(self) -> list[str]:
        """Return a line for each option of a plug-in's class, which need not have a file."""
        members = schema.MEMBERS.get(self.group)
        if not isinstance(members, Members) or self.name not in members.joined:
            return []
        lines = []
        for field in dataclasses.fields(members[self.name]):
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            value = look_up(self.values, f"{self.group}.{field.name}", default)
            words = getattr(field.metadata.get("valid"), "words", "")
            lines.append(f"{f'{field.name}: {_dump_in_line(value)}':<29} {words and f'# {words}'}".rstrip())
        return lines

    def _read_lines(self, path: Path | None, comments: bool = False) -> list[str]:
        """Return the lines of a file without its defaults and Hydra's keys, or only the comments at its beginning."""
        if path is None:
            return []
        kept, skipping = [], False
        for line in path.read_text(encoding="utf-8").splitlines():
            if line[:1] not in ("", " ", "#"):
                skipping = re.match(r"(defaults|hydra|_target_):", line) is not None
                if comments:
                    break
            if not skipping and not line.startswith("# @package"):
                kept.append(line)
        if not self.group:  # the comments above the first option are for readers of the file
            kept = kept[next((number for number, line in enumerate(kept) if _OPTION.match(line)), 0) :]
        while kept and not kept[-1]:
            kept.pop()
        return kept

    def _format_options(self, path: Path | None) -> list[str]:
        above: list[tuple[int, str]] = []
        lines = []
        section = "" if _is_global(path) else self.group.replace("/", ".")
        written = _read(path)
        for line in self._read_lines(path):
            option = _OPTION.match(line)
            if option is None or line.lstrip().startswith("#"):
                lines.append(line)
                continue
            depth = len(option["indent"])
            above = [*(each for each in above if each[0] < depth), (depth, option["key"])]
            key = ".".join(name for _, name in above)
            inside = look_up(written, key)
            value = look_up(self.values, f"{section}.{key}" if section else key, inside)
            if isinstance(inside, Mapping) or value == inside:
                lines.append(line)
            else:
                room = len(option["value"]) - 1 + len(option["rest"]) - len(option["rest"].lstrip())
                text = f"{_dump_in_line(value):<{room}}{option['rest'].lstrip()}"
                lines.append(f"{option['indent']}{option['key']}: {text}".rstrip())
        return lines
