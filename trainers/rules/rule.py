"""Rules on options that do not go together; a rule's check, error line and line in the docs come from one object.

    Rule(has("algorithm", "local_sgd"), given("clip.local_norm"),
         why="workers send no gradients", instead="clip.norm, here for each worker's gradient")

refuses a run in which both hold, with

    algorithm=local_sgd with clip.local_norm=1.0: workers send no gradients; valid is clip.norm, here ...
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gradsweep.errors import UsageError
from trainers.config.groups import NAMES

_MISSING = object()
_FIELD = re.compile(r"\{([\w.]+)(=?)\}")


def read(run: Any, key: str, default: Any = None) -> Any:
    """Return the value of a dotted key: for a group such as `compressor` its name, for a missing option `default`.

    Args:
        run: a RunConfig, something with the same attributes, or a resolved config.
    """
    value = run
    for step in key.split("."):
        value = value.get(step, _MISSING) if isinstance(value, Mapping) else getattr(value, step, _MISSING)
    if value is _MISSING:
        return default
    return value.get("name", value) if isinstance(value, Mapping) else NAMES.get(type(value), value)


def _fill(text: str, run: Any) -> str:
    """Replace {key} by the option's value, and {key=} by key=value, or by nothing if the run lacks the option."""

    def show(field: re.Match[str]) -> str:
        value = read(run, field[1], _MISSING)
        if value is _MISSING:
            return ""
        return (f"{field[1]}=" if field[2] else "") + (word(value) if isinstance(run, Mapping) else str(value))

    return _FIELD.sub(show, text)


def word(value: Any) -> str:
    """Return a value as it is typed in a command, such as `null` or `true`."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@dataclasses.dataclass(frozen=True)
class Condition:
    """A condition on some options of a run.

    Args:
        words: the condition in words for the docs.
        test: tells whether a run meets the condition.
        shown: text for the error line, with {key} for the run's value of an option and {key=} for key=value; None:
            `words`.
    """

    words: str
    test: Callable[[Any], bool]
    shown: str | None = None

    def __and__(self, other: Condition) -> Condition:
        """Return the condition that both conditions hold."""
        shown = " and ".join(filter(None, (one.words if one.shown is None else one.shown for one in (self, other))))
        return Condition(f"{self.words} and {other.words}", lambda run: bool(self.test(run) and other.test(run)), shown)

    def show(self, run: Any) -> str:
        """Return the text for an error line on a run that meets the condition."""
        return self.words if self.shown is None else _fill(self.shown, run)


def has(key: str, *values: Any, shown: str | None = None) -> Condition:
    """Return the condition that an option has one of some values; the value of a group is the chosen name."""
    listed = " or ".join(map(word, values))
    return Condition(f"{key}={listed}", lambda run: read(run, key) in values, f"{{{key}=}}" if shown is None else shown)


def has_other(key: str, value: str) -> Condition:
    """Return the condition that a group such as `compressor` has another choice than `value`."""
    return Condition(f"another {key} than {value}", lambda run: read(run, key) != value, f"{{{key}=}}")


def has_above(key: str, bound: int, shown: str | None = None) -> Condition:
    """Return the condition that an option is above a bound."""
    return Condition(
        f"{key} above {bound}", lambda run: read(run, key, bound) > bound, f"{{{key}=}}" if shown is None else shown
    )


def given(key: str) -> Condition:
    """Return the condition that an option is not null."""
    return Condition(key, lambda run: read(run, key) is not None, f"{{{key}=}}")


ACCORDION = Condition("policy.accordion", lambda run: run.policy.accordion.option is not None)
LGRECO = Condition("policy.lgreco", lambda run: run.policy.lgreco.option is not None)


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule: two conditions that must not both hold.

    Args:
        when, forbids: the conditions, in the order of the error line.
        why: the reason, if it is not obvious.
        instead: what is valid instead, with {key} for the run's value of an option.
        verb: `is`, or `are` if `instead` names several things.
    """

    when: Condition
    forbids: Condition
    why: str
    instead: str
    verb: str = "is"

    def is_broken(self, run: Any) -> bool:
        """Tell whether both conditions hold for a run."""
        return bool(self.when.test(run) and self.forbids.test(run))

    def explain(self, run: Any) -> str:
        """Return the error line on a run that breaks the rule."""
        reason = _fill(self._reason, run)
        return f"{self.when.show(run)} with {self.forbids.show(run)}: {reason}"

    def describe(self) -> tuple[str, str, str]:
        """Return what the rule refuses, why, and what is valid instead, as words for the documentation."""
        refused = f"{self.when.words} with {self.forbids.words}"
        return refused, _FIELD.sub(r"\1", self.why), _FIELD.sub(r"\1", self.instead)

    @property
    def _reason(self) -> str:
        valid = f"valid {self.verb} {self.instead}"
        return f"{self.why}; {valid}" if self.why else valid


def refuse(run: Any, rules: Iterable[Rule]) -> None:
    """Refuse a run that breaks a rule.

    Raises:
        UsageError: one line on the first broken rule: the combination, the reason and what would work.
    """
    for rule in rules:
        if rule.is_broken(run):
            raise UsageError(rule.explain(run))
