"""Every key of a config typed wrong in every manner: one line that names it, and no fault of the program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from gradsweep.options.config_keys import paths
from sweep.config import arguments, schema
from sweep.config.arguments import refuse_misread
from sweep.config.composer import build_plain_config
from sweep.config.error_messages import explain
from sweep.config.grid import refuse_duplicates
from sweep.config.syntax_errors import find
from sweep.launch.session import Session
from sweep.settings.launcher import parse_options
from sweep.settings.sweep import parse_settings
from tests.conftest import ROOT
from trainers.config.groups import GROUPS
from trainers.config.run_config import RunConfig
from trainers.rules.resolve import resolve

pytestmark = pytest.mark.thorough

Typed = Callable[..., str | None]

WRONG = (
    *(
        "{key}='x",
        "{key}=[1",
        "{key}=1,2",
        "{key}=ä",
        "{key}==1",
        "{key}=1=2",
        "{key}=(",
        "{key}=range(a)",
        "{key}=2,,4",
    ),
    *("{key}", "{key}x=1", "{key}.x=1", "/{key}=1", "{key}=${{no}}", "{key}=1 {key}=2"),
)
"""Manners that no key can bear."""
DOUBTFUL = (
    *(
        "{key}=",
        "{key}=null",
        "{key}=some.thing",
        "{key}=[1,[2]]",
        "{key}={{a:1}}",
        "{key}=inf",
        "{key}=nan",
        "{key}=-1",
    ),
    *("{key}=1e400", "+{key}=1", "~{key}", "++{key}.y=1"),
)
"""Manners that suit some keys."""
OPEN = ("mpi.environment", "hydra.launcher")
"""Sections that take new keys."""


@pytest.fixture(scope="module")
def typed() -> Iterator[Typed]:
    """What a command line is told: None where it is accepted."""
    schema.register(RunConfig, GROUPS)
    schema.register_resolvers(Session().choose_directory)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3", job_name="multirun"):
        loader = GlobalHydra.instance().config_loader()

        def check(*words: str) -> str | None:
            ordered: Sequence[str] = words
            try:
                ordered = arguments.put_overrides_first(arguments.quote_for_hydra(words))
                refuse_duplicates(ordered)
                refuse_misread(ordered)
                config = loader.load_configuration("config", list(ordered), RunMode.RUN)
                HydraConfig.instance().set_config(config)
                point = build_plain_config(config, config.hydra.launcher)
                parse_settings(point)
                parse_options(point["launcher"])
                resolve(point)
            except Exception as error:
                line = explain(error, ordered)
                if line is None:
                    raise  # a fault of the program
                return line
            return None

        check.keys = _keys(loader)  # type: ignore[attr-defined]
        yield check


def _keys(loader: Any) -> list[str]:
    config = OmegaConf.to_container(loader.load_configuration("config", [], RunMode.RUN), resolve=False)
    assert isinstance(config, dict)
    launcher = config.pop("hydra")["launcher"]
    known = [*paths({str(key): value for key, value in config.items()}), *(f"hydra.launcher.{key}" for key in launcher)]
    return [key for key in known if key != "hydra.launcher._target_" and key != "experiment"]


def _names(line: str, key: str) -> bool:
    """Whether a line says what it is about: the key, or of model.name the model."""
    return any(part in line for part in (key, key.rpartition(".")[2], key.rpartition(".")[0] or key))


@pytest.mark.parametrize("part", range(3))
def test_a_key_typed_wrong_is_one_line_that_names_it(typed: Typed, part: int) -> None:
    keys: list[str] = typed.keys  # type: ignore[attr-defined]
    assert len(keys) > 140
    for key, manner in list(zip(keys, itertools.cycle(WRONG), strict=False))[part::3]:
        words = manner.format(key=key).split(" ")
        line = typed(*words)
        if key.startswith(OPEN) and manner in ("{key}x=1",):
            continue
        assert line is not None, words
        assert "\n" not in line and _names(line, key), (words, line)
        assert "=" not in words[0] or words[0].partition("=")[2] in line, (words, line)


@pytest.mark.parametrize("part", range(3))
def test_a_key_with_a_value_that_may_not_suit_it_is_one_line_at_most(typed: Typed, part: int) -> None:
    keys: list[str] = typed.keys  # type: ignore[attr-defined]
    for key, manner in list(zip(keys, itertools.cycle(DOUBTFUL), strict=False))[part::3]:
        line = typed(word := manner.format(key=key))
        assert line is None or ("\n" not in line and _names(line, key)), (word, line)


@pytest.mark.parametrize("group", sorted(path.name for path in (ROOT / "conf").iterdir() if path.is_dir()))
def test_a_wrong_choice_is_one_line(typed: Typed, group: str) -> None:
    group = "hydra/launcher" if group == "hydra" else group
    for value in ("no_such_name", "null", "3", "[1,[2]]", "a,b", "${no}"):
        line = typed(f"{group}={value}")
        assert line is not None and line.startswith(f"{group}={value}: ") and "\n" not in line, line


@pytest.mark.parametrize(
    ("word", "where"),
    [
        ("workers=2,,4", "character 11: a value is missing before this comma"),
        ("workers=,2", "character 9: a value is missing before this comma"),
        ("workers=2,4,", "character 12: a value is missing after this comma"),
        ("gpus=[0,]", "character 8: a value is missing after this comma"),
        ("workers=range(5", "character 14: this ( is not closed"),
        ("workers=5)", "character 10: this ) closes nothing"),
        ("gpus=[0,(1]", "character 11: this ] closes nothing"),
        ("sweep.name='a", "character 12: this ' is not closed"),
        ("sweep.name=größe", "character 14: ö cannot stand here"),
        ("workers==2", "character 9: = cannot stand here"),
        ("workers=2;3", "character 10: ; cannot stand here"),
        (r"data.root=a\,b", ""),
        ("data.root='a,,b'", ""),
        ("gpus=[]", ""),
        ("workers=", ""),
        ("batch={size:3,per:worker}", ""),
    ],
)
def test_the_character_at_which_a_word_goes_wrong(word: str, where: str) -> None:
    assert find(word) == where
