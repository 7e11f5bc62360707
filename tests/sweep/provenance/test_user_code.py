"""The code of the user that a config names: which files are copied, and what is recorded of the rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradsweep import plugins
from gradsweep.errors import UsageError
from gradsweep.targets import USER_CODE
from sweep.provenance import user_code
from sweep.provenance.user_code import UserCode
from tests.plugin_distribution import lay_out


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory in which the command is typed."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv(USER_CODE, raising=False)
    caches = (user_code._find, plugins.read_entry_points)
    for cached in caches:
        cached.cache_clear()
    yield folder
    for cached in caches:
        cached.cache_clear()


def write(**texts: str) -> None:
    for name, text in texts.items():
        path = Path(name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def find(**config: Any) -> UserCode:
    user_code._find.cache_clear()
    found = user_code.find(config)
    assert found is not None
    return found


def files(code: UserCode) -> list[str]:
    return [name for each in code.codes for name in each.files]


def test_a_config_without_code_of_the_user_has_none() -> None:
    assert user_code.find({"model": {"name": "mlp"}, "plugins": [], "compressor": {"name": "qsgd"}}) is None


def test_the_file_and_what_it_imports_is_copied_and_nothing_else() -> None:
    write(mine="import json, helper\ndef f():\n    from package import part", helper="import deeper")
    write(deeper="", other="")
    write(package__part="", package__data__more="", left_out__part="")
    Path("package/table.csv").write_text("1,2\n")
    code = find(plugins=["./mine.py"])
    assert files(code) == [
        "deeper.py",
        "helper.py",
        "mine.py",
        "package/data/more.py",
        "package/part.py",
        "package/table.csv",
    ]
    assert code.distributions == ()
    assert code.describe()["code"] == ["deeper.py", "helper.py", "mine.py", "package"]


def test_a_file_in_a_folder_finds_what_is_beside_it() -> None:
    write(code__mine="import helper, root", code__helper="", root="", helper2="")
    assert files(find(plugins=["./code/mine.py"])) == ["code/helper.py", "code/mine.py", "root.py"]


@pytest.mark.parametrize(
    "config",
    [
        {"model": {"name": "custom", "target": "package.nets:build"}},
        {"dataset": {"name": "custom", "target": "package.nets.build"}},
        {"plugins": ["package.nets"]},
    ],
)
def test_targets_bring_their_whole_package(config: dict[str, Any]) -> None:
    write(package__nets="from . import layers", package__layers="", other="")
    Path("package/__init__.py").touch()
    assert files(find(**config)) == ["package/__init__.py", "package/layers.py", "package/nets.py"]


def test_the_digest_is_that_of_the_content() -> None:
    write(mine="import helper", helper="a = 1", other="")
    before = find(plugins=["./mine.py"])
    write(other="b = 1")
    assert find(plugins=["./mine.py"]).describe() == before.describe()
    write(helper="a = 2")
    assert find(plugins=["./mine.py"]).digest != before.digest


def test_files_that_git_ignores_are_left_out(here: Path) -> None:
    write(package__nets="", package__big="")
    Path(".gitignore").write_text("big.py\n")
    assert os.spawnlp(os.P_WAIT, "git", "git", "init", "-q") == 0
    assert files(find(plugins=["package.nets"])) == ["package/nets.py"]


def test_gradsweeps_own_packages_and_those_of_others_are_not_copied(tmp_path: Path) -> None:
    write(mine="import compressors, torch, yaml, multirun", compressors__other="", multirun="")
    code = find(plugins=["./mine.py"], optimizer={"target": "collections.OrderedDict"})
    assert files(code) == ["mine.py"] and code.distributions == ()


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"plugins": ["./mine.py"]}, "plugins=./mine.py: valid is code that exists: there is none in {here}; another"),
        (
            {"model": {"target": "no_such.nets:f"}},
            "model.target=no_such.nets:f: valid is code that exists: there is none",
        ),
    ],
)
def test_code_that_is_not_there_is_named(config: dict[str, Any], line: str, here: Path) -> None:
    with pytest.raises(UsageError) as error:
        user_code.find(config)
    assert str(error.value).startswith(line.format(here=here)) and USER_CODE in str(error.value)


def test_a_package_of_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    write(package__nets="#" * (2 << 20))
    monkeypatch.setattr(user_code, "MOST_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="package: the package has 2 MiB, which a snapshot would copy; valid is"):
        user_code.find({"plugins": ["package.nets"]})


def test_of_a_distribution_name_version_and_hash_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    package = lay_out(site)
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    by_module = find(plugins=["my_plugin.more"])
    (one,) = by_module.distributions
    assert (one["name"], one["version"]) == ("my-plugin", "1.2") and not by_module.codes
    plugins.read_entry_points.cache_clear()
    chosen = {"policy": {"patterns": [{"match": "a", "compressor": {"name": "chunk_top"}}]}}
    assert find(**chosen).describe() == by_module.describe()
    assert user_code.find({"compressor": {"name": "qsgd"}}) is None
    (package / "methods.py").write_text("changed = True", encoding="utf-8")
    assert find(**chosen).digest != by_module.digest
    monkeypatch.setattr(user_code, "MOST_HASHED_BYTES", 0)  # of large ones, the list of files
    (site / "my_plugin-1.2.dist-info" / "RECORD").write_text("my_plugin/methods.py,sha256=1,2\n", encoding="utf-8")
    large = find(**chosen)
    (package / "methods.py").write_text("changed = False", encoding="utf-8")
    assert find(**chosen).digest == large.digest


def test_the_copy_is_named_by_the_variable_and_kept_whole(tmp_path: Path, here: Path) -> None:
    write(mine="import helper", helper="a = 1")
    code = find(plugins=["./mine.py"])
    assert user_code.take([code], None) == {USER_CODE: str(here)}
    (place,) = user_code.take([code, code], tmp_path / ".code").values()
    assert sorted(path.name for path in Path(place).glob("*.py")) == ["helper.py", "mine.py"]
    write(helper="a = 2")
    assert (Path(place) / "helper.py").read_text() == "a = 1"
    (other,) = user_code.take([find(plugins=["./mine.py"])], tmp_path / ".code").values()
    assert other != place and (Path(other) / "helper.py").read_text() == "a = 2"
    both = user_code.take([code, find(plugins=["./mine.py"])], tmp_path / ".code")
    assert both[USER_CODE].split(os.pathsep) == [place, other]
