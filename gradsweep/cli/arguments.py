"""The parser of `python -m` commands: a wrong one is answered in one line, and --version prints ours."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from gradsweep.options.hints import did_you_mean, one_of

_MOST_THREADS, _MOST_ELEMENTS = 1024, 10**12


def parse_positive(text: str) -> int:
    """Parse an integer from 1 up, with 1_000 and 1e6 for large ones."""
    value = float(text)
    if value < 1 or not value.is_integer():
        raise ValueError(text)
    return int(value)


def parse_draws(text: str) -> int:
    """Parse an integer from 30 up: fewer draws say nothing of their own spread."""
    value = parse_positive(text)
    if value < 30:
        raise ValueError(text)
    return value


def parse_probability(text: str) -> float:
    """Parse a number above 0 and below 1."""
    value = float(text)
    if not 0 < value < 1:
        raise ValueError(text)
    return value


def parse_elements(text: str) -> int:
    """Parse a number of elements that a tensor may have."""
    value = parse_positive(text)
    if value > _MOST_ELEMENTS:
        raise ValueError(text)
    return value


def parse_threads(text: str) -> int:
    """Parse a number of threads that a machine may have."""
    value = parse_positive(text)
    if value > _MOST_THREADS:
        raise ValueError(text)
    return value


parse_positive.__name__ = "positive integer"  # how argparse calls them in "invalid ... value"
parse_draws.__name__ = "integer from 30 up"
parse_elements.__name__ = f"integer from 1 to {_MOST_ELEMENTS}"
parse_threads.__name__ = f"integer from 1 to {_MOST_THREADS}"
parse_probability.__name__ = "probability"


class Parser(argparse.ArgumentParser):
    """Answers a wrong command with one line and exit status 2; a mistyped option, or one of few words, with a hint."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {self._add_hint(message)}\n")

    def _add_hint(self, message: str) -> str:
        options = [option for action in self._actions for option in action.option_strings]
        unknown, is_unknown = re.subn(r"^unrecognized arguments: ", "", message)
        if is_unknown:
            word = next((word for word in unknown.split() if word.startswith("-")), "").partition("=")[0]
            known = [option for option in options if option.startswith("--")]
            meant = did_you_mean(word, known) if word else ""
            return f"{word or unknown}: unknown; {meant}valid is {one_of(known, f'{self.prog} --help', 'options')}"
        wrong = re.match(r"argument (?P<name>.+): invalid choice: '(?P<word>.*)' \(", message, re.DOTALL)
        for action in self._actions if wrong else ():
            names = (action.metavar, action.dest, "/".join(action.option_strings))
            if wrong is not None and action.choices is not None and wrong["name"] in names:
                known = list(map(str, action.choices))
                valid = one_of(known, f"{self.prog} --help")
                word, meant = ascii(wrong["word"])[1:-1], did_you_mean(wrong["word"], known)
                return f"{wrong['name']} {word}: {meant}valid is {valid}"
        return message


class Command(Parser):
    """Parse the arguments of a subcommand, which refuses what it does not know itself, with its own usage."""

    def parse_known_args(self, *given: Any, **more: Any) -> Any:
        found, rest = super().parse_known_args(*given, **more)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return found, rest


class Version(argparse.Action):
    """--version."""

    def __init__(self, option_strings: list[str], dest: str, **given: Any) -> None:
        super().__init__(
            option_strings, argparse.SUPPRESS, nargs=0, help="print what is installed", default=argparse.SUPPRESS
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from gradsweep.cli.version import version

        print(version())
        parser.exit()
