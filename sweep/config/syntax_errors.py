"""Find where and why an override violates Hydra's grammar."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from antlr4 import CommonTokenStream, InputStream
from antlr4.error.ErrorListener import ErrorListener
from hydra.grammar.gen.OverrideLexer import OverrideLexer
from hydra.grammar.gen.OverrideParser import OverrideParser

_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_GOES_ON = (",", "=", "[", "{", "(", ":")


def find(word: str) -> str:
    """Return the position (from 1) of the syntax error in a word, and its explanation; empty if none is found."""
    place, why = next(_find_in_structure(word), None) or _find_by_grammar(word) or (None, "")
    return "" if place is None else f"character {place + 1}: {why}"


def find_torn_words(words: Sequence[str], word: str) -> list[str]:
    """Return the words into which spaces have split an override, such as `workers=2,` and `4`; else only `word`."""
    if word not in words:
        return [word]
    first = last = list(words).index(word)
    while first > 0 and _belong(words[first - 1], words[first]):
        first -= 1
    while last + 1 < len(words) and _belong(words[last], words[last + 1]):
        last += 1
    return list(words[first : last + 1])


def _belong(first: str, second: str) -> bool:
    if first.startswith("-") or second.startswith("-"):
        return False
    return second[0:1] in (",", "=") or ("=" not in second and (first.endswith(_GOES_ON) or not first))


def _find_in_structure(word: str) -> Iterator[tuple[int, str]]:
    """Yield errors in quotes, brackets and commas."""
    start = word.find("=") + 1
    opened: list[tuple[str, int]] = []
    before, skipped = ",", False  # the last character but spaces; whether this one is escaped
    quote: tuple[str, int] | None = None
    comma = start
    for place, letter in enumerate(word[start:], start=start):
        if skipped or letter == "\\":
            skipped = not skipped
        elif quote is not None:
            quote = None if letter == quote[0] else quote
        elif letter in "\"'" and before in ",([{:=":
            quote = letter, place
        elif letter in _CLOSED_BY:
            opened.append((letter, place))
        elif letter in _CLOSED_BY.values():
            if not opened or _CLOSED_BY[opened[-1][0]] != letter:
                yield place, f"this {letter} closes nothing"
                return
            if before == ",":
                yield comma, "a value is missing after this comma"
            opened.pop()
        elif letter == ",":
            if before in ",([{" and place > start or place == start:
                yield place, "a value is missing before this comma"
            comma = place
        if not letter.isspace():
            before = letter
    if quote is not None:
        yield quote[1], f"this {quote[0]} is not closed"
    elif opened:
        yield opened[-1][1], f"this {opened[-1][0]} is not closed"
    elif before == "," and comma > start:
        yield comma, "a value is missing after this comma"


class _Stop(Exception):
    pass


class _First(ErrorListener):
    """The position of the first error."""

    place: int | None = None

    def syntaxError(self, recognizer: Any, symbol: Any, line: Any, column: int, *_: Any) -> None:  # noqa: N802
        self.place = column
        raise _Stop


def _find_by_grammar(word: str) -> tuple[int, str] | None:
    listener = _First()
    lexer = OverrideLexer(InputStream(word))
    parser = OverrideParser(CommonTokenStream(lexer))
    for part in (lexer, parser):
        part.removeErrorListeners()
        part.addErrorListener(listener)
    with suppress(_Stop):
        parser.override()
    if listener.place is None:
        return None
    at = word[listener.place : listener.place + 1]
    return listener.place, f"{at if at.isprintable() else ascii(at)} cannot stand here" if at else "more is missing"
