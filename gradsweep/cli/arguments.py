"""The parser of `python -m` commands: it answers a wrong command in one line and has the option --version."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn

from gradsweep.cli.command_names import adapt_columns, adapt_commands
from gradsweep.errors import UsageError
from gradsweep.options.hints import did_you_mean, one_of


def make_integer_type(words: str, low: int, high: int | None = None) -> Callable[[str], int]:
    """Return a parser of integers from `low` to `high`, which accepts 1_000 and 1e6 too."""

    def parse(text: str) -> int:
        value = float(text)
        if not value.is_integer() or value < low or (high is not None and value > high):
            raise ValueError(text)
        return int(value)

    parse.__name__ = words  # in the line of an error
    return parse


parse_positive = make_integer_type("positive integer", 1)
parse_draws = make_integer_type("integer from 30 up", 30)  # fewer say nothing of their own spread
parse_elements = make_integer_type(f"integer from 1 to {10**12}", 1, 10**12)
parse_threads = make_integer_type("integer from 1 to 1024", 1, 1024)


def parse_probability(text: str) -> float:
    """Parse a number above 0 and below 1."""
    value = float(text)
    if not 0 < value < 1:
        raise ValueError(text)
    return value


parse_probability.__name__ = "probability"


def add_interval(parser: argparse.ArgumentParser, default_s: float) -> None:
    """Add the option --interval of commands that follow a sweep."""
    parser.add_argument(
        "--interval", type=float, default=default_s, metavar="S", help="seconds between two looks (%(default)g)"
    )


def check_interval(seconds: float) -> None:
    """Raise UsageError for an --interval that is too short or too long."""
    if not 0.1 <= seconds <= 3600:
        raise UsageError(f"--interval {seconds:g}: valid is a number of seconds from 0.1 to 3600")


_KINDS = {"int": "integer", "float": "number"}
"""Types of Python in words."""


class Parser(argparse.ArgumentParser):
    """A parser that answers a wrong command with one line and exit status 2, and a mistyped word with a hint.

    Its help and its lines name commands as the user has typed them.
    """

    def __init__(self, prog: str | None = None, **options: Any) -> None:
        super().__init__(None if prog is None else adapt_commands(prog), **options)

    def format_help(self) -> str:
        return adapt_columns(super().format_help())

    def error(self, message: str) -> NoReturn:
        self.exit(2, adapt_commands(f"{self.prog}: {self._add_hint(message)}\n"))

    def _add_hint(self, message: str) -> str:
        options = [option for action in self._actions for option in action.option_strings]
        unknown, is_unknown = re.subn(r"^unrecognized arguments: ", "", message)
        if is_unknown:
            word = next((word for word in unknown.split() if word.startswith("-")), "").partition("=")[0]
            known = [option for option in options if option.startswith("--")]
            meant = did_you_mean(word, known) if word else ""
            return f"{word or unknown}: unknown; {meant}valid is {one_of(known, f'{self.prog} --help', 'options')}"
        given = re.match(r"argument (?P<name>.+): invalid (?P<kind>.+) value: (?P<word>.+)$", message, re.DOTALL)
        if given is not None:
            kind = _KINDS.get(given["kind"], given["kind"])
            article = "an" if kind[0] in "aeiou" else "a"
            return f"{given['name']} {ascii(given['word'][1:-1])[1:-1]}: valid is {article} {kind}"
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
    """A parser of a subcommand, whose errors show the subcommand's own usage."""

    def parse_known_args(self, *given: Any, **more: Any) -> Any:
        arguments, rest = super().parse_known_args(*given, **more)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return arguments, rest


class Version(argparse.Action):
    """The action of --version: prints the versions and ends the program."""

    def __init__(self, option_strings: list[str], dest: str, **given: Any) -> None:
        super().__init__(
            option_strings, argparse.SUPPRESS, nargs=0, help="print what is installed", default=argparse.SUPPRESS
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from gradsweep.cli.version import version

        print(version())
        parser.exit()
