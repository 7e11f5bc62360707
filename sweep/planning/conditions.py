"""Conditions on the config of a point, for sweep.exclude and sweep.include: "workers > 4 and compressor == svd".

The syntax is a small part of Python's. Expressions are parsed by Python, but never evaluated by it.

    workers, model.depth            the value of a key; a group (compressor) stands for the name of its member
    4, 0.5, "text", [2, 4], true, null
    svd, bf16                       a word that is no key is text, where it is compared with a text or a group
    == != < <= > >= in, not in      may be chained: 2 <= workers < 8
    and, or, not, + - * / // %

A comparison is false if the point does not have its key, as compressor.levels for a compressor without levels; so is
one that asks whether null is less or greater than a value.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from gradsweep.errors import LISTED_BY, UsageError
from gradsweep.options.config_keys import look_up, paths
from gradsweep.options.hints import did_you_mean, one_of

LONGEST = 1000

_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_COMPUTED: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_WORDS = {"true": True, "false": False, "null": None}
_UNDERSTOOD = "comparisons of keys with values, and, or, not, in, + - * / // %"


class _Missing:
    """The value of a key that a config does not have."""


MISSING = _Missing()


class Condition:
    """One expression of `sweep.exclude` or `sweep.include`.

    Args:
        setting: the key that has the expression, for error messages.
        text: the expression.
        configs: the configs of all points; each key in the expression must exist in some of them.
        members: the names of the members of each group.

    Raises:
        UsageError: the text is no expression, or names a key that no point has; the message gives the column.
    """

    def __init__(
        self, setting: str, text: str, configs: Sequence[Mapping[str, Any]], members: Mapping[str, Collection[str]]
    ) -> None:
        self.setting, self.text, self.members = setting, text, members
        self._text = text.strip()
        self._known: dict[str, list[Any]] = {}  # values of keys among the points
        self._configs = configs
        try:
            if len(text) > LONGEST:
                raise UsageError(f"{setting}: an expression of {len(text)} characters; valid is up to {LONGEST}")
            tree = ast.parse(self._text, mode="eval")
            self._test = self._compile_truth(tree.body)
        except SyntaxError as error:
            raise UsageError(
                f"{setting}={text!r}: column {error.offset or len(self._text) + 1}: {error.msg}; valid is {_UNDERSTOOD}"
            ) from error
        except (ValueError, RecursionError, MemoryError) as error:  # a null byte, or nested too deeply
            raise UsageError(f"{setting}={text!r}: {error or 'nested too deeply'}; valid is {_UNDERSTOOD}") from error
        del self._configs, self._known

    def holds(self, config: Mapping[str, Any]) -> bool:
        """Tell whether the condition is true for a config.

        Raises:
            UsageError: it compares values without an order, or computes with values that are no numbers.
        """
        value = self._test(config)
        return value is True

    def _build_error(self, node: ast.AST, what: str) -> UsageError:
        start = len(self._text.encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore")) + 1
        return UsageError(f"{self.setting}={self.text!r}: column {start}: {what}")

    def _compile_truth(self, node: ast.expr) -> Callable[[Mapping[str, Any]], Any]:
        """Return a function that maps a config to the truth of an expression; MISSING counts as false."""
        if isinstance(node, ast.BoolOp):
            parts = [self._compile_truth(each) for each in node.values]
            combine = all if isinstance(node.op, ast.And) else any
            return lambda config: combine(part(config) is True for part in parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._compile_truth(node.operand)
            return lambda config: inner(config) is not True
        if isinstance(node, ast.Compare):
            return self._compile_comparison(node)
        value = self._compile_value(node)

        def truth(config: Mapping[str, Any]) -> Any:
            found = value(config)
            if found is not MISSING and not isinstance(found, bool):
                raise self._build_error(
                    node, f"{found!r} is neither true nor false; valid is to compare it, as in workers > 4"
                )
            return found

        return truth

    def _compile_comparison(self, node: ast.Compare) -> Callable[[Mapping[str, Any]], bool]:
        operands = [node.left, *node.comparators]
        keys = [path for operand in operands if (path := self._find_path(operand)) and self._list_values(path)]
        values = [self._compile_value(operand, beside=keys) for operand in operands]
        tests = []
        for operation in node.ops:
            tests.append(_COMPARED.get(type(operation)))
        for operation, right, test in zip(node.ops, node.comparators, tests, strict=True):
            if test is None:
                raise self._build_error(node, "`is` is not understood; valid is ==")
            if isinstance(operation, (ast.In, ast.NotIn)) and not isinstance(right, (ast.List, ast.Tuple, ast.Set)):
                path = self._find_path(right)
                if not path or not any(isinstance(value, list) for value in self._list_values(path)):
                    raise self._build_error(right, "is no list; valid behind `in` is a list, such as [2, 4]")

        def compare(config: Mapping[str, Any]) -> bool:
            found = [value(config) for value in values]
            if any(value is MISSING for value in found):
                return False
            for operation, test, one, other in zip(node.ops, tests, found, found[1:], strict=False):
                assert test is not None
                if isinstance(operation, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) and (one is None or other is None):
                    return False
                try:
                    if not test(one, other):
                        return False
                except TypeError:
                    raise self._build_error(node, f"{one!r} and {other!r} cannot be compared so") from None
            return True

        return compare

    def _compile_value(self, node: ast.expr, beside: Sequence[str] = ()) -> Callable[[Mapping[str, Any]], Any]:
        """Return a function that maps a config to an operand's value; it is compared with the keys `beside`."""
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            items = [self._compile_value(item, beside) for item in node.elts]
            return lambda config: [item(config) for item in items]
        if isinstance(node, ast.Constant):
            if not isinstance(node.value, (str, int, float, bool, type(None))):
                raise self._build_error(
                    node, f"{node.value!r} is not understood; valid is a number, a text, true, false, null"
                )
            if isinstance(node.value, str):
                self._check_member(node, node.value, beside)
            return lambda config: node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            signed = operator.neg if isinstance(node.op, ast.USub) else operator.pos
            return self._compile_arithmetic(node, signed, self._compile_value(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
            sides = self._compile_value(node.left), self._compile_value(node.right)
            return self._compile_arithmetic(node, _COMPUTED[type(node.op)], *sides)
        if isinstance(node, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            return self._compile_truth(node)
        path = self._find_path(node)
        if path is None:
            raise self._build_error(node, f"{type(node).__name__} is not understood; valid is {_UNDERSTOOD}")
        if path in _WORDS:
            return lambda config: _WORDS[path]
        if any(isinstance(value, Mapping) for value in self._list_values(path)):
            raise self._build_error(
                node, f"{path} is a section; valid is one of its keys, such as {path}.{self._find_first_key(path)}"
            )
        if not self._list_values(path):
            if not any(isinstance(value, str) for key in beside for value in self._list_values(key)):
                raise self._build_unknown_key_error(node, path)
            self._check_member(node, path, beside)
            return lambda config: path
        return lambda config: _look_up_value(config, path)

    def _compile_arithmetic(
        self, node: ast.expr, operation: Callable[..., Any], *sides: Callable[[Mapping[str, Any]], Any]
    ) -> Callable[[Mapping[str, Any]], Any]:
        def compute(config: Mapping[str, Any]) -> Any:
            numbers = [side(config) for side in sides]
            if any(number is MISSING for number in numbers):
                return MISSING
            for number in numbers:
                if isinstance(number, bool) or not isinstance(number, (int, float)):
                    raise self._build_error(node, f"{number!r} is no number; valid is to compute with numbers")
            try:
                return operation(*numbers)
            except (ZeroDivisionError, OverflowError) as error:
                raise self._build_error(node, str(error)) from None

        return compute

    def _find_path(self, node: ast.expr) -> str | None:
        """Return the dotted name that a syntax node has; None for other nodes."""
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            parent = self._find_path(node.value)
            return None if parent is None else f"{parent}.{node.attr}"
        return None

    def _list_values(self, path: str) -> list[Any]:
        """Return the values that the points have for a key."""
        if path not in self._known:
            found = (_look_up_value(config, path) for config in self._configs)
            self._known[path] = list({repr(value): value for value in found if value is not MISSING}.values())
        return self._known[path]

    def _find_first_key(self, path: str) -> str:
        return next((str(key) for config in self._configs for key in _look_up_section(config, path)), "...")

    def _check_member(self, node: ast.AST, word: str, beside: Sequence[str]) -> None:
        for key in beside:
            known = list(self.members.get(key, ()))
            if known and word not in known:
                valid = f"{did_you_mean(word, known)}valid is {one_of(sorted(known), LISTED_BY)}"
                raise self._build_error(node, f"{word} is no name of a {key}; {valid}")

    def _build_unknown_key_error(self, node: ast.AST, path: str) -> UsageError:
        parent, _, name = path.rpartition(".")
        while parent and not self._list_values(parent):
            parent, _, name = parent.rpartition(".")
        sections = [_look_up_section(config, parent) for config in self._configs]
        known = list(dict.fromkeys(str(key) for section in sections for key in section))
        if not known:
            return self._build_error(node, f"{path}: unknown key; valid is {parent} itself, which is no section")
        inside = f" of {parent}" if parent else ""
        whole = [f"{parent}.{key}" for key in known] if parent else list(dict.fromkeys(chain(*map(paths, sections))))
        meant = did_you_mean(path, whole)
        return self._build_error(
            node, f"{path}: unknown key; {meant}valid{inside} is {one_of(known, LISTED_BY, 'keys')}"
        )


def _look_up_section(config: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    section = look_up(config, path) if path else config
    return section if isinstance(section, Mapping) else {}


def _look_up_value(config: Mapping[str, Any], path: str) -> Any:
    """Return the value at a path; for a group, the name of its member."""
    value = look_up(config, path, MISSING)
    return value["name"] if isinstance(value, Mapping) and "name" in value else value


class PointFilter:
    """Applies `sweep.include` and `sweep.exclude` to the points of a grid.

    A point stays if any expression of `include` holds, or `include` is empty, and no expression of `exclude` holds.

    Raises:
        UsageError: an expression is wrong.
    """

    def __init__(
        self,
        include: Sequence[str],
        exclude: Sequence[str],
        configs: Sequence[Mapping[str, Any]],
        members: Mapping[str, Collection[str]],
    ) -> None:
        self.include = [Condition("sweep.include", text, configs, members) for text in include]
        self.exclude = [Condition("sweep.exclude", text, configs, members) for text in exclude]

    def explain_exclusion(self, config: Mapping[str, Any]) -> str | None:
        """Return the setting that excludes this point, in words; None if the point stays."""
        for each in self.exclude:
            if each.holds(config):
                return f"sweep.exclude: {each.text}"
        if self.include and not any([each.holds(config) for each in self.include]):
            return "sweep.include: " + " or ".join(each.text for each in self.include)
        return None
