"""Indices and lengths in numba's kernels have 64 bits: read from their source, for every kernel and its helpers.

In numba .size, range() and Python's integers are int64, and so is an operation with one of them. Bits of an index can
be lost only where something that it is made of was cast to int32 or uint32, is an element of such an array, or came in
as such an argument. So this follows casts, annotations and assignments; `test_beyond_32_bits` tries it out.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from compressors.kernels import cpu
from compressors.kernels.cpu import onebit

FILES = sorted(Path(cpu.__file__).parent.glob("[a-z]*.py"))
NARROW = ("np.int32", "np.uint32")
NARROW_ARRAYS = ("Int32s", "Uint32s")
WIDE = ("np.int64", "np.uint64", "int", "min", "max", "abs")
ALLOWED = {
    "part[index] >> _HIGH",  # 16 bits: a cell of the sketch's histogram
    "below[index]",  # 8 bits: a level of thc
    "size >> shift & (1 << width) - 1",  # 11 bits: a digit of a magnitude
    "np.int64((first << _31 | second) % size)",  # 63 bits, made of two draws
}


class Function:
    """What has 32 bits in one kernel or helper."""

    def __init__(self, node: ast.FunctionDef, module: ModuleType, returns: dict[str, str]) -> None:
        self.node, self.module, self.returns = node, module, returns
        self.annotations = {arg.arg: ast.unparse(arg.annotation) for arg in node.args.args if arg.annotation}
        self.assigned: dict[str, list[ast.expr]] = {}
        for child in ast.walk(node):
            if isinstance(child, (ast.Assign, ast.AugAssign)):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        self.assigned.setdefault(target.id, []).append(child.value)
                    elif isinstance(target, ast.Tuple):
                        several = child.value.elts if isinstance(child.value, ast.Tuple) else None
                        for name, value in zip(target.elts, several or [child.value] * len(target.elts), strict=True):
                            if isinstance(name, ast.Name):
                                self.assigned.setdefault(name.id, []).append(value)
        self._open: set[str] = set()

    def is_narrow(self, node: ast.expr) -> bool:
        """The expression is an integer of 32 bits, or made of one."""
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.BinOp):
            return self.is_narrow(node.left) or self.is_narrow(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.is_narrow(node.operand)
        if isinstance(node, ast.IfExp):
            return self.is_narrow(node.body) or self.is_narrow(node.orelse)
        if isinstance(node, ast.Subscript):
            return not isinstance(node.slice, (ast.Slice, ast.Tuple)) and self.is_narrow_array(node.value)
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in NARROW or any(narrow in self.returns.get(name, "") for narrow in NARROW):
                return True
            return name in WIDE and any(self.is_narrow(argument) for argument in node.args)
        return False

    def is_narrow_array(self, node: ast.expr) -> bool:
        """The expression is an array of such integers."""
        if isinstance(node, ast.Name):
            annotation = self.annotations.get(node.id, "")
            if annotation:
                return annotation in NARROW_ARRAYS
            return self._any(node.id, self.is_narrow_array)
        if isinstance(node, ast.Subscript):
            return isinstance(node.slice, ast.Slice) and self.is_narrow_array(node.value)
        return isinstance(node, ast.Call) and any(ast.unparse(argument) in NARROW for argument in node.args)

    def _name(self, name: str) -> bool:
        if name in self.annotations:
            return self.annotations[name] in NARROW
        if name in self.assigned:
            return self._any(name, self.is_narrow)
        return isinstance(getattr(self.module, name, None), (np.int32, np.uint32))

    def _any(self, name: str, test: Callable[[ast.expr], bool]) -> bool:
        """Of everything that is assigned to `name`; what refers to itself says nothing."""
        if name in self._open:
            return False
        self._open.add(name)
        found = any(test(value) for value in self.assigned.get(name, []))
        self._open.discard(name)
        return found

    def wrong(self) -> list[str]:
        """The indices, and the bounds of ranges and of slices, that have 32 bits."""
        used: list[ast.expr] = []
        for child in ast.walk(ast.Module(self.node.body, [])):
            if isinstance(child, ast.Subscript):
                parts = child.slice.elts if isinstance(child.slice, ast.Tuple) else [child.slice]
                for part in parts:
                    bounds = [part.lower, part.upper, part.step] if isinstance(part, ast.Slice) else [part]
                    used += [bound for bound in bounds if bound is not None]
            elif isinstance(child, ast.Call) and ast.unparse(child.func) in ("range", "np.empty", "np.zeros"):
                used += child.args if ast.unparse(child.func) == "range" else child.args[:1]
        return [ast.unparse(one) for one in used if self.is_narrow(one) and ast.unparse(one) not in ALLOWED]


def functions(source: str, module: ModuleType, returns: dict[str, str]) -> list[Function]:
    """The kernels and helpers of a module."""
    return [
        Function(node, module, returns)
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    ]


@functools.cache
def returned() -> dict[str, str]:
    """What each helper returns."""
    nodes = [node for file in FILES for node in ast.parse(file.read_text()).body]
    return {
        node.name: ast.unparse(node.returns) for node in nodes if isinstance(node, ast.FunctionDef) and node.returns
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_indices_have_64_bits(file: Path) -> None:
    module = importlib.import_module(f"{cpu.__name__}.{file.stem}")
    for function in functions(file.read_text(), module, returned()):
        assert not function.wrong(), function.node.name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_whole_numbers_are_compiled_as_64_bits(file: Path) -> None:
    """What the annotations call int is int64 in the signature that numba compiles, or a bool."""
    for node in ast.parse(file.read_text()).body:
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        for decorator in decorators:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "kernel":
                for signature in map(ast.literal_eval, decorator.args):
                    types = re.findall(r"\w+(?:\[[^\]]*\])?", signature[signature.rindex("(") :])
                    assert len(types) == len(node.args.args), node.name
                    for argument, compiled in zip(node.args.args, types, strict=True):
                        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
                        if annotation == "int":
                            assert compiled == "int64", (node.name, argument.arg)


@pytest.mark.parametrize(
    "change",
    [
        ("start = number * bucket", "start = np.int32(number * bucket)"),
        ("start = number * bucket", "start = np.int64(np.int32(number) * bucket)"),
        ("for number in range(buckets)", "for number in range(np.uint32(buckets))"),
        ("payload[position + index]", "payload[np.uint32(position) + index]"),
        ("x[first:last]", "x[first:np.int32(last)]"),
    ],
    ids=str,
)
def test_an_index_of_32_bits_is_found(change: tuple[str, str]) -> None:
    source = Path(onebit.__file__).read_text()
    assert not any(one.wrong() for one in functions(source, onebit, returned()))
    assert change[0] in source
    assert any(one.wrong() for one in functions(source.replace(*change), onebit, returned()))
