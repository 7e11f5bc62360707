"""Plug-ins: which classes join a group, and the line for each that cannot."""

from __future__ import annotations

import importlib
import sys
from collections import ChainMap
from collections.abc import Iterator
from pathlib import Path

import pytest

from compressors import Compressor, registry
from compressors.memories import REGISTRY
from gradsweep import plugins
from gradsweep.errors import UsageError
from gradsweep.plugins import Members
from tests.plugin_distribution import CHUNK_TOP, ENTRY_POINTS, NAMES, PERCEPTRON, lay_out

PLAIN = CHUNK_TOP.replace("chunk_top", "mine_top")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty directory in which commands are typed, and no plug-ins; what a test imports is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRADSWEEP_USER_CODE", raising=False)
    for name, value in (("_members", {}), ("_loaded", []), ("NAMES", {})):
        monkeypatch.setattr(plugins, name, value)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("mine", "one", "two", "package", "my_plugin")
    ]:
        del sys.modules[name]


@pytest.fixture
def own(empty: None, monkeypatch: pytest.MonkeyPatch) -> Members:
    """A group of compressors of this test alone, without entry points."""
    monkeypatch.setattr(plugins, "read_entry_points", lambda: ())
    return Members("compressor", registry().ours, Compressor)


def write(text: str, name: str = "mine") -> str:
    Path(f"{name}.py").write_text(text, encoding="utf-8")
    importlib.invalidate_caches()
    return f"./{name}.py"


def test_a_file_joins(own: Members) -> None:
    plugins.load([write(PLAIN)])
    assert own["mine_top"]().chunk == 100
    assert list(own) == [*registry().ours, "mine_top"] and len(own) == len(registry().ours) + 1
    assert {own["mine_top"]: "mine_top"} == plugins.NAMES
    plugins.load(["./mine.py"])  # again
    assert list(own.joined) == ["mine_top"]


def test_a_module_joins_a_group_that_is_made_later(own: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("package").mkdir()
    write(PLAIN, "package/mine")
    plugins.load(["package.mine"])
    again = Members("compressor", {}, Compressor)
    assert list(again) == ["mine_top"]


def test_bases_and_imported_classes_do_not_join(own: Members) -> None:
    base = PLAIN.replace('name: ClassVar[str] = "mine_top"', "").replace("class ChunkTop", "class _Base")
    derived = '\n\n@dataclasses.dataclass(frozen=True)\nclass Own(_Base):\n    name: ClassVar[str] = "own"\n'
    plugins.load([write(base + derived)])
    assert list(own.joined) == ["own"]


CLASS = "class ChunkTop(Sparsifier)"
NAME = 'name: ClassVar[str] = "mine_top"'
WRONG = {
    "no file": (None, "a file that exists; there is none in {here}"),
    "raise": ("raise", "a module that can be imported: ./mine.py raises"),
    "raises": (f"{PLAIN}\n1 / 0\n", "can be imported: ./mine.py raises ZeroDivisionError: division by zero (mine.py:"),
    "syntax": ("def f(:\n", "a module that can be imported: ./mine.py raises SyntaxError"),
    "no class": (
        "def build():\n    return 3\n",
        "no class in it belongs to a group of the config",
    ),
    "no name": (PLAIN.replace(NAME, ""), "ChunkTop has no name of its own; valid is name: ClassVar[str] = a word"),
    "name": (PLAIN.replace("mine_top", "a,b"), "ChunkTop has the name 'a,b'; valid is name: ClassVar[str] = a word"),
    "ours": (
        PLAIN.replace("mine_top", "topk"),
        "the name topk of ChunkTop is taken by Gradsweep's own compressor=topk",
    ),
    "alias": (PLAIN.replace("mine_top", "top_k"), "is taken by Gradsweep's own compressor=top_k; valid is another"),
    "twice": (
        PLAIN + PLAIN[PLAIN.index("@data") :].replace(CLASS, "class Other(Sparsifier)"),
        "2 classes are named mine_top; valid is",
    ),
    "lacks": (
        PLAIN.replace("import Sparsifier", "import Sparsifier\nfrom compressors import Compressor").replace(
            "(Sparsifier)", "(Compressor)"
        ),
        "ChunkTop lacks compress, decompress_add, law, payload_bound; valid is a class with all that "
        "compressors.base.Compressor asks for",
    ),
    "no dataclass": (PLAIN.replace("@dataclasses.dataclass(frozen=True)", ""), "ChunkTop is no frozen dataclass"),
    "no default": (
        PLAIN.replace("frozen=True)", "frozen=True, kw_only=True)").replace("= integer(100, low=1)", ""),
        "ChunkTop has no default for chunk; valid is a default for every option",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_in_one_line(own: Members, case: str) -> None:
    text, expected = WRONG[case]
    if text is not None:
        write(text)
    with pytest.raises(UsageError) as error:
        plugins.load(["./mine.py"])
    line = str(error.value)
    assert line.startswith("plugins=./mine.py: ") and "\n" not in line
    assert expected.format(here=Path.cwd()) in line
    assert not own.joined and not plugins.NAMES


@pytest.mark.parametrize("text", ["../mine.py", "/tmp/mine.py", "my mine", "mine.", 3, None])
def test_what_names_no_code_is_refused(own: Members, text: object) -> None:
    with pytest.raises(UsageError, match="^plugins=.*: valid is a file"):
        plugins.load([text])


def test_two_plugins_cannot_have_the_same_name(own: Members) -> None:
    plugins.load([write(PLAIN, "one")])
    with pytest.raises(UsageError, match="^plugins=./two.py: the name mine_top of ChunkTop is taken by one:ChunkTop"):
        plugins.load([write(PLAIN, "two")])


# Distributions


@pytest.fixture
def site(empty: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for distributions, which is on sys.path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    for cached in (plugins.read_entry_points, plugins.list_conf_directories):
        cached.cache_clear()
    yield folder
    for cached in (plugins.read_entry_points, plugins.list_conf_directories):
        cached.cache_clear()


def test_a_distribution_joins_by_its_entry_points(site: Path) -> None:
    lay_out(site)
    own = Members("compressor", registry().ours, Compressor)
    assert own["topk"] is registry().ours["topk"] and "my_plugin" not in sys.modules  # nothing was read for it
    assert own["chunk_top"].__module__ == "my_plugin.methods"
    assert [str(point).partition(" = ")[0] for point in plugins.read_entry_points()][:1] == [
        "my-plugin 1.2: entry point chunk_top"
    ]
    assert plugins.list_broken() == []
    assert plugins.list_conf_directories() == (site / "my_plugin" / "conf",)
    assert plugins.find_yaml("compressor", "chunk_top") == site / "my_plugin/conf/compressor/chunk_top.yaml"
    assert plugins.find_yaml("compressor", "other") is None


BROKEN = {
    "my_plugin.nothing:ChunkTop": "cannot be imported: ModuleNotFoundError: No module named 'my_plugin.nothing'",
    "my_plugin.methods:Nothing": "cannot be imported: AttributeError: module 'my_plugin.methods' has no attribute",
    "my_plugin.nets:Perceptron": "Perceptron is no compressor; valid is a subclass of compressors.base.Compressor",
    "my_plugin.methods:integer": "a function is no compressor; valid is a subclass of compressors.base.Compressor",
}


@pytest.mark.parametrize("value", BROKEN)
def test_a_broken_distribution_is_left_out_and_named_where_it_is_chosen(site: Path, value: str) -> None:
    lay_out(site, {"gradsweep.compressors": {"chunk_top": value, "other": "my_plugin.methods:ChunkTop"}})
    own = Members("compressor", registry().ours, Compressor)
    assert list(own) == list(registry().ours)
    with pytest.raises(UsageError) as error:
        own["chunk_top"]
    line = str(error.value)
    assert line.startswith(f"my-plugin 1.2: entry point chunk_top = {value} of gradsweep.compressors: ")
    assert BROKEN[value] in line and "\n" not in line
    assert "ChunkTop has the name chunk_top; valid is the name of its entry point" in str(own.broken["other"])
    assert plugins.list_broken() == [line, str(own.broken["other"])]
    with pytest.raises(KeyError):
        own["no_such_name"]


def test_a_distribution_cannot_take_a_name_of_ours(site: Path) -> None:
    package = lay_out(site, {"gradsweep.compressors": {"topk": "my_plugin.methods:ChunkTop"}})
    (package / "methods.py").write_text(CHUNK_TOP.replace("chunk_top", "topk"), encoding="utf-8")
    own = Members("compressor", registry().ours, Compressor)
    assert own["topk"] is registry().ours["topk"] and list(own) == list(registry().ours)
    (line,) = plugins.list_broken()
    assert line.endswith("the name topk of ChunkTop is taken by Gradsweep's own compressor=topk; valid is another name")


def test_a_folder_that_is_not_there_is_named(site: Path) -> None:
    lay_out(site, {"gradsweep.conf": {"my_plugin": "my_plugin.configs"}})
    assert plugins.list_conf_directories() == ()
    (line,) = plugins.list_broken()
    assert line.startswith(
        "my-plugin 1.2: entry point my_plugin = my_plugin.configs of gradsweep.conf: there is no such"
    )


def test_every_group_that_can_be_joined_has_members() -> None:
    from trainers.config.groups import GROUPS
    from trainers.config.groups import NAMES as NAMES_OF_GROUPS

    members = {group for group, of in GROUPS.items() if isinstance(of, Members)}
    assert members == set(plugins.GROUPS) == set(NAMES)
    assert set(ENTRY_POINTS) == {*plugins.GROUPS.values(), plugins.CONF}
    assert GROUPS["memory"] is REGISTRY and isinstance(NAMES_OF_GROUPS, ChainMap)
    assert "perceptron" in PERCEPTRON


def test_the_page_names_every_group() -> None:
    from tests.plugin_distribution import GUIDE

    text = (GUIDE / "plugins.md").read_text(encoding="utf-8")
    for group, entry_points in plugins.GROUPS.items():
        assert f"| {group} | `{entry_points}` |" in text
