"""Find the user's own code that a config names: models, data sets, tasks and optimizers (`KEYS`).

A target is `package.module:name`, `package.module:Class.method`, `./path/file.py:name`, or with dots only, such as
`torch.optim.Adagrad`. Modules and files are looked for in the directory in which the command was typed; in ranks, in
the directories of `USER_CODE`. Nothing is imported before `import_target` is called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import keyword
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from gradsweep.errors import UsageError, bad_value
from gradsweep.options.hints import did_you_mean
from gradsweep.source_tree import ROOT

KEYS = ("model.target", "dataset.target", "dataset.collate", "task.target", "optimizer.target")
"""The keys of a config that hold targets."""

USER_CODE = "GRADSWEEP_USER_CODE"
"""Environment variable: directories with the user's code, separated by os.pathsep, in place of the current one."""

FORMS = "package.module:name, package.module:Class.method, ./path/file.py:name or package.module.name"


@dataclasses.dataclass(frozen=True)
class Target:
    """A target taken apart; `module` is None if `file` is given."""

    text: str
    module: str | None
    """With dots, such as `my_package.nets`."""
    file: PurePosixPath | None
    """A Python file, relative to the directory in which the command was typed."""
    path: tuple[str, ...]
    """Attributes from the module to the object: (`build`,), or (`Class`, `method`)."""

    @property
    def name(self) -> str:
        """The name of the object itself."""
        return self.path[-1]

    @property
    def code(self) -> str:
        """The module or file, as the user wrote it."""
        return f"./{self.file}" if self.module is None else self.module


def parse_target(key: str, text: object) -> Target:
    """Take a target apart, without importing anything.

    Args:
        key: of the config, such as `model.target`.

    Raises:
        UsageError: the text has none of the forms.
    """
    if not isinstance(text, str):
        raise bad_value(key, text, FORMS)
    where, colon, attributes = text.rpartition(":")
    if not colon:
        where, _, attributes = text.rpartition(".")
    path = tuple(attributes.split("."))
    if not all(map(_is_name, path)) or (where.endswith(".py") and not colon):
        raise bad_value(key, text, FORMS)
    return Target(text, *parse_code(key, text, where, FORMS), path)


def parse_code(key: str, text: str, where: str, forms: str) -> tuple[str | None, PurePosixPath | None]:
    """Return the module or the file that the part `where` of a text names, and None for the other.

    Raises:
        UsageError: it is neither; `forms` says what is valid.
    """
    if where.endswith(".py"):
        file = PurePosixPath(where)
        if not file.is_absolute() and ".." not in file.parts and _is_name(file.stem):
            return None, file
        raise bad_value(
            key, text, "a file below the directory in which the command is typed, with the name of a module"
        )
    if not all(map(_is_name, where.split("."))):
        raise bad_value(key, text, forms)
    return where, None


def _is_name(word: str) -> bool:
    return word.isidentifier() and not keyword.iskeyword(word)


def list_directories() -> tuple[Path, ...]:
    """Return the directories with the user's code: those of `USER_CODE`, else the current one."""
    given = os.environ.get(USER_CODE)
    return tuple(Path(part) for part in given.split(os.pathsep) if part) if given else (Path.cwd(),)


def search_from(*directories: Path) -> None:
    """Put directories with the user's code at the front of sys.path, each of them once."""
    for directory in reversed(directories):
        place = str(directory.resolve())
        if place not in sys.path:
            sys.path.insert(0, place)


def import_target(key: str, text: object) -> Callable[..., Any]:
    """Import the module of a target and return the object in it, which can be called.

    Raises:
        UsageError: there is no such module or name, the module raises an error, or the object cannot be called.
    """
    target = parse_target(key, text)
    found: Any = import_module(key, target)
    for depth, attribute in enumerate(target.path):
        try:
            found = getattr(found, attribute)
        except AttributeError:
            here = ".".join((target.code, *target.path[:depth]))
            known = [name for name in dir(found) if not name.startswith("_")]
            meant = did_you_mean(attribute, known)
            raise bad_value(key, text, f"a name that is in it: {here} has no {attribute}", meant) from None
    if not callable(found):
        raise bad_value(key, text, f"a function or class: {target.name} is of type {type(found).__name__}")
    return found


def import_module(key: str, target: Target) -> ModuleType:
    """Import the module or file of a target.

    Raises:
        UsageError: there is none, or it raises an error.
    """
    directories = list_directories()
    search_from(*directories)
    importlib.invalidate_caches()
    try:
        if target.file is not None:
            return _import_file(key, target, directories)
        assert target.module is not None
        return importlib.import_module(target.module)
    except UsageError:
        raise
    except ModuleNotFoundError as error:
        if target.module is not None and error.name and f"{target.module}.".startswith(f"{error.name}."):
            shown = ", ".join(map(str, directories))
            valid = f"a module that Python finds, also in {shown}: there is no module {error.name}"
            raise bad_value(key, target.text, valid) from None
        raise _report_import(key, target, error) from error
    except (Exception, SystemExit) as error:
        raise _report_import(key, target, error) from error


def _report_import(key: str, target: Target, error: BaseException) -> UsageError:
    valid = f"a module that can be imported: {target.code} raises {describe_error(error)}"
    return bad_value(key, target.text, valid)


def _import_file(key: str, target: Target, directories: tuple[Path, ...]) -> ModuleType:
    """Import a file under the name of its stem; modules beside it are found, too."""
    assert target.file is not None
    path = next((path for place in directories if (path := (place / target.file).resolve()).is_file()), None)
    if path is None:
        raise bad_value(key, target.text, f"a file that exists; there is none in {', '.join(map(str, directories))}")
    name = target.file.stem
    if (loaded := sys.modules.get(name)) is not None:
        if (file := getattr(loaded, "__file__", None)) is not None and Path(file).resolve() == path:
            return loaded
        valid = f"a file whose name is no module's: {name} is already {file or 'a module of Python'}"
        raise bad_value(key, target.text, valid)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def call_target(
    key: str, text: object, args: Mapping[str, Any], *first: Any, offered: Mapping[str, Any] | None = None
) -> Any:
    """Import a target, call it with arguments by name, and return what it returns.

    Args:
        key: of the target; `args` are then those of the same section, such as `model.args`.
        first: arguments in front of them, by position.
        offered: more arguments, each given only to a target that has a parameter of this name, which `args` lack.

    Raises:
        UsageError: as `import_target`; the arguments do not fit the target, or it raises an error.
    """
    called = import_target(key, text)
    try:
        parameters = dict(list(inspect.signature(called).parameters.items())[len(first) :])
    except (TypeError, ValueError):  # some of C have none
        given = dict(args)
    else:
        given = {name: value for name, value in (offered or {}).items() if name in parameters} | dict(args)
        check_arguments(f"{key.rpartition('.')[0]}.args", text, parameters, given)
    try:
        return called(*first, **given)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise bad_value(key, text, f"a target that can be called with its args: {describe_error(error)}") from error


def check_arguments(
    key: str, text: object, parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]
) -> None:
    """Check that a target can be called with arguments by name.

    Args:
        key: of the arguments, such as `model.args`.

    Raises:
        UsageError: an argument is unknown, or one is missing.
    """
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [name for name, one in parameters.items() if one.kind in by_name]
    if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        for name, value in given.items():
            if name not in known:
                valid = f"the parameters of {text}: {', '.join(known) or 'none'}"
                raise bad_value(f"{key}.{name}", value, valid, did_you_mean(name, known))
    missing = [name for name in known if parameters[name].default is inspect.Parameter.empty and name not in given]
    if missing:
        raise UsageError(f"{key}.{missing[0]}: missing; {text} needs {', '.join(missing)}")


@contextlib.contextmanager
def name_errors(subject: str, valid: str = "") -> Iterator[None]:
    """Turn an exception of the user's code in the block into a UsageError of one line.

    Args:
        subject: what raises it, such as `model.target=my_package.nets:build`.

    Raises:
        UsageError: there is an exception.
    """
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        ending = f"; valid is {valid}" if valid else ""
        raise UsageError(f"{subject} raises {describe_error(error)}{ending}") from error


def describe_error(error: BaseException) -> str:
    """Return an exception in one line, with the file and line of the user's code that led to it."""
    text = " ".join(str(error).split())
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}..."
    every = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    frames = [frame for frame in every if not _is_library(frame.filename)] or every  # of an installed package
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{f': {text}' if text else ''}{where}"


def _is_library(file: str) -> bool:
    """Tell whether a file belongs to Python or to an installed package."""
    return file.startswith(_list_libraries())


@functools.cache
def _list_libraries() -> tuple[str, ...]:
    import sysconfig  # 10 ms, for errors only

    return tuple({sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "purelib", "platlib")})


_PACKAGES = ("compressors", "gradsweep", "reports", "sweep", "trainers")
_OURS = ("<frozen importlib.", *(f"{ROOT / package}{os.sep}" for package in _PACKAGES))
_SHOWN = 300  # characters of an exception's text
