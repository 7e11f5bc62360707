"""Suggest what a mistyped word may mean, and what is valid: one wording for every command and every config.

did you mean qsgd? valid is one of the 69 that `python -m compressors list` lists
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

MANY = 12
"""Names that a line spells out at most, where a command lists them."""

_SHOWN = 3  # names that are equally near
_MOST_TYPOS = 3
_SEPARATORS = re.compile(r"[-_./ ]")


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return a hint such as "did you mean qsgd? ", to put before the valid words; empty if no word is similar."""
    near = find_nearest(word, known) if isinstance(word, str) else []
    return f"did you mean {' or '.join(near)}? " if near else ""


def one_of(known: Collection[str], listed_by: str, what: str = "") -> str:
    """Return the valid words for a message: all of them, or if they are many, the command that lists them."""
    if len(known) <= MANY:
        return f"one of {', '.join(known)}"
    return f"one of the {len(known)} {f'{what} ' if what else ''}that `{listed_by}` lists"


def find_nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return the valid names nearest to a word: several if they are equally near, none if all are too far.

    From the nearest on, a name is near if it equals the word but for capitals and separators; if its last dotted part
    is the word (lr for optimizer.lr); if they differ by at most one typo for every three letters, where two swapped
    letters are one typo; if it begins with the word.
    """
    names, typed = list(dict.fromkeys(known)), _fold(word)
    same = [name for name in names if _fold(name) == typed]
    ends = [name for name in names if _fold(name.rpartition(".")[2]) == typed]
    if found := same or ends:
        return found[:_SHOWN]
    away = {name: least for name in names if (least := _typos(word.lower(), name.lower())) is not None}
    if away:
        return [name for name in away if away[name] == min(away.values())][:_SHOWN]
    begun = [name for name in names if len(typed) >= 3 and name.lower().startswith(word.lower())]
    begun = [name for name in begun if "." not in name[len(word) :]]
    return begun if len(begun) <= _SHOWN else []


def _typos(word: str, name: str) -> int | None:
    """Count the typos between two dotted words, leaving out sections that both have; None: too many."""
    while "." in word and word.partition(".")[0] == name.partition(".")[0]:
        word, name = word.partition(".")[2], name.partition(".")[2]
    most = min(max(1, len(word) // 3), _MOST_TYPOS, len(word) - 1)
    if abs(len(word) - len(name)) > most:
        return None
    count = distance(_fold(word), _fold(name))
    return count if count <= most else None


def _fold(name: str) -> str:
    return _SEPARATORS.sub("_", name.lower())


def distance(one: str, other: str) -> int:
    """Return how many typos are between two words: letters that are left out, added, wrong, or swapped with the next.

    The optimal string alignment distance (Damerau, CACM 1964).
    """
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        row = [i]
        for j, beside in enumerate(other, start=1):
            least = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != beside))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == beside:
                least = min(least, before[j - 2] + 1)
            row.append(least)
        before, last = last, row
    return last[-1]
