"""The user's own code by name: forms, what is found, and one line for what is not."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from gradsweep import targets
from gradsweep.errors import UsageError

KEY = "model.target"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Write files into the directory in which the command is typed; what is imported is forgotten after the test."""
    loaded, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(targets.USER_CODE, raising=False)

    def write(name: str, text: str) -> None:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - loaded:
        del sys.modules[name]


def refused(text: Any, key: str = KEY) -> str:
    with pytest.raises(UsageError) as error:
        targets.import_target(key, text)
    assert "\n" not in str(error.value) and str(error.value).startswith(f"{key}={text}: ".split("\n")[0])
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "module", "file", "path"),
    [
        ("mine.nets:build", "mine.nets", None, ("build",)),
        ("mine:Net.small", "mine", None, ("Net", "small")),
        ("./mine.py:build", None, "mine.py", ("build",)),
        ("code/mine.py:Net.small", None, "code/mine.py", ("Net", "small")),
        ("torch.optim.Adagrad", "torch.optim", None, ("Adagrad",)),
    ],
)
def test_forms(text: str, module: str | None, file: str | None, path: tuple[str, ...]) -> None:
    target = targets.parse_target(KEY, text)
    assert (target.module, target.path, target.name) == (module, path, path[-1])
    assert target.file == (None if file is None else PurePosixPath(file))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mine",
        ":build",
        "mine:",
        "mine.:build",
        "mine:build()",
        "my-net:build",
        "mine:lambda",
        "mine:1",
        None,
        5,
        "a b:c",
    ],
)
def test_other_forms_are_refused(text: Any) -> None:
    with pytest.raises(UsageError, match=f"^{KEY}=.*: valid is package.module:name, "):
        targets.parse_target(KEY, text)


@pytest.mark.parametrize("text", ["/tmp/mine.py:build", "../mine.py:build", "./my-net.py:build", "./class.py:build"])
def test_files_are_below_the_directory(text: str) -> None:
    with pytest.raises(UsageError, match="valid is a file below the directory in which the command is typed"):
        targets.parse_target(KEY, text)


def test_modules_and_files_are_found(here: Callable[[str, str], None]) -> None:
    here("mine/__init__.py", "")
    here("mine/nets.py", "class Net:\n    @classmethod\n    def small(cls): return cls, 1\n\ndef build(): return 2\n")
    here("code/beside.py", "FIVE = 5\n")
    here("code/single.py", "from beside import FIVE\ndef build(): return FIVE\n")
    assert targets.import_target(KEY, "mine.nets:build")() == 2
    assert targets.import_target(KEY, "mine.nets.build")() == 2
    assert targets.import_target(KEY, "mine.nets:Net.small")()[1] == 1
    assert targets.import_target(KEY, "./code/single.py:build")() == 5
    assert targets.import_target(KEY, "code/single.py:build") is sys.modules["single"].build
    assert sys.path.count(str(Path.cwd().resolve())) == 1


def test_ranks_search_the_copy(here: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    here("copied.py", "def build(): return 'from here'\n")
    here("snapshot/one/copied.py", "def build(): return 'from the copy'\n")
    here("snapshot/two/other.py", "def build(): return 'another'\n")
    monkeypatch.setenv(targets.USER_CODE, os.pathsep.join(["snapshot/one", "snapshot/two"]))
    assert targets.import_target(KEY, "copied:build")() == "from the copy"
    assert targets.import_target(KEY, "./other.py:build")() == "another"


def test_what_cannot_be_imported_is_one_line(here: Callable[[str, str], None]) -> None:
    here("raising.py", "import math\n\nmath.sqrt(\n    -1\n)\n")
    here("leaving.py", "raise SystemExit(3)\n")
    here("spoilt.py", "def build(:\n")
    here("lacking.py", "import not_there_at_all\n")
    here("fine.py", "def build(): ...\nSEVEN = 7\n")
    assert "there is no module nowhere" in refused("nowhere.nets:build")
    assert "there is no module fine.nets" in refused("fine.nets:build") or "fine" in refused("fine.nets:build")
    assert "raising raises ValueError: " in refused("raising:build") and "(raising.py:3)" in refused("raising:build")
    assert "leaving raises SystemExit: 3 (leaving.py:1)" in refused("leaving:build")
    assert "./spoilt.py raises SyntaxError: " in refused("./spoilt.py:build")
    assert "lacking raises ModuleNotFoundError: No module named 'not_there_at_all' (lacking.py:1)" in refused(
        "lacking:b"
    )
    assert "did you mean build? valid is a name that is in it: fine has no biuld" in refused("fine:biuld")
    assert "valid is a function or class: SEVEN is of type int" in refused("fine:SEVEN")
    assert "there is none in" in refused("./missing.py:build")
    here("json.py", "def build(): ...\n")
    assert "valid is a file whose name is no module's: json is already" in refused("./json.py:build")


def test_a_file_that_failed_is_tried_again(here: Callable[[str, str], None]) -> None:
    here("again.py", "raise ValueError('first')\n")
    assert "first" in refused("./again.py:build")
    here("again.py", "# another size\ndef build(): return 1\n")
    assert targets.import_target(KEY, "./again.py:build")() == 1


def called(text: str, args: dict[str, Any], *first: Any, **given: Any) -> str:
    with pytest.raises(UsageError) as error:
        targets.call_target(KEY, text, args, *first, **given)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_calls(here: Callable[[str, str], None]) -> None:
    here(
        "calls.py",
        """
        def build(width, depth=2, *, shape=None): return width, depth, shape
        def some(**args): return args
        def wrong(width): raise RuntimeError("two\\nlines")
        def deep(width): return wrong(width)
        """,
    )
    offered = {"shape": (1, 2), "classes": 10}
    assert targets.call_target(KEY, "calls:build", {"width": 3}, offered=offered) == (3, 2, (1, 2))
    assert targets.call_target(KEY, "calls:build", {"width": 3, "shape": 4}, offered=offered) == (3, 2, 4)
    assert targets.call_target(KEY, "calls:build", {"depth": 5}, 1) == (1, 5, None)
    assert targets.call_target(KEY, "calls:some", {"a": 1}, offered=offered) == {"a": 1}
    assert called("calls:build", {}) == "model.args.width: missing; calls:build needs width"
    assert called("calls:build", {"wdith": 1}) == (
        "model.args.wdith=1: did you mean width? valid is the parameters of calls:build: width, depth, shape"
    )
    assert "valid is the parameters of calls:build: depth, shape" in called("calls:build", {"width": 1}, 1)
    assert called("calls:wrong", {"width": 1}).endswith("with its args: RuntimeError: two lines (calls.py:4)")
    assert called("calls:deep", {"width": 1}).endswith("(calls.py:4)")


def test_errors_are_shown_in_part(here: Callable[[str, str], None]) -> None:
    here("long.py", "def build(): raise ValueError('x' * 10_000)\n")
    assert len(called("long:build", {})) < 500


def test_the_place_of_an_error_is_in_the_users_code(here: Callable[[str, str], None]) -> None:
    here("deep.py", "from gradsweep.options.hints import one_of\n\n\ndef build():\n    return one_of(None, '')\n")
    build = targets.import_target(KEY, "deep:build")
    with pytest.raises(UsageError) as error, targets.name_errors("model.target=deep:build", "b"):
        build()
    raised = "TypeError: object of type 'NoneType' has no len() (deep.py:5)"
    assert str(error.value) == f"model.target=deep:build raises {raised}; valid is b"
