"""The wheel and the sdist have all that runs need, and an unpacked wheel sweeps from any directory."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sweep.provenance import code_snapshot
from tests.conftest import ROOT
from tests.gradsweep.cli.conftest import write_script

ROOMS = (*code_snapshot.ROOMS, "hydra_plugins")
CONF = "hydra_plugins/gradsweep/conf"
DISTRIBUTION = re.compile(r"gradsweep-[^/]+\.dist-info/")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, f'build_{sys.argv[1]}')(sys.argv[2]))"


@dataclasses.dataclass(frozen=True)
class Built:
    """The packages that setuptools makes of a copy of the checkout."""

    files: frozenset[str]
    """Of the checkout, without those that git ignores."""
    wheel: Path
    sdist: Path
    editable: Path


def build(kind: str, project: Path, target: Path) -> Path:
    """Build a wheel, sdist or editable of a project, as pip does, into `target`; return its path."""
    target.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", "-c", BUILD, kind, str(target)],
        cwd=project,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


def copy_checkout(project: Path) -> frozenset[str]:
    """Copy what a package is built of into `project`; return the names of the files."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = frozenset(name for name in listed if name and not name.startswith(("docs/", "benchmarks/")))
    for name in files:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, project / name)
    return files


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("package")
    project = folder / "checkout"
    files = copy_checkout(project)
    editable = build("editable", project, folder / "editable")  # first, as what it leaves must do the others no harm
    return Built(files, build("wheel", project, folder), build("sdist", project, folder), editable)


def list_installed(files: frozenset[str]) -> set[str]:
    """Return the names in a wheel of what is to be installed."""
    code = {name for name in files if name.split("/")[0] in ROOMS or name == "multirun.py"}
    return code | {f"{CONF}/{name.removeprefix('conf/')}" for name in files if name.startswith("conf/")}


@pytest.mark.thorough
def test_the_wheel_has_the_packages_and_the_configs(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
        assert {name for name in names if not DISTRIBUTION.match(name)} == list_installed(built.files)
        (points,) = (name for name in names if name.endswith("/entry_points.txt"))
        assert "gradsweep = gradsweep.cli.__main__:main" in wheel.read(points).decode()
    assert f"{CONF}/config.yaml" in names and "reports/page/report.html" in names  # that the lists are not empty


@pytest.mark.thorough
def test_the_sdist_builds_the_same_wheel(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
        sdist.extractall(tmp_path, filter="data")
    needed = {name for name in built.files if name.split("/")[0] in (*ROOMS, "conf")}
    assert needed | {"pyproject.toml", "setup.py", "multirun.py", "LICENSE", "constraints.txt"} <= names
    assert not [name for name in names if name.startswith("tests/")]
    (project,) = tmp_path.iterdir()
    again = build("wheel", project, tmp_path / "again")
    with zipfile.ZipFile(built.wheel) as first, zipfile.ZipFile(again) as second:
        contents = [
            {name: wheel.read(name) for name in wheel.namelist() if not name.endswith("/RECORD")}
            for wheel in (first, second)
        ]
    assert contents[0] == contents[1]


def test_an_editable_install_is_one_path(built: Built) -> None:
    with zipfile.ZipFile(built.editable) as editable:
        names = [name for name in editable.namelist() if not DISTRIBUTION.match(name)]
        assert names == [name for name in names if name.endswith(".pth")] and len(names) == 1
        (path,) = editable.read(names[0]).decode().split()
    assert Path(path) == built.wheel.parent / "checkout" and not (Path(path) / CONF).exists()


@dataclasses.dataclass(frozen=True)
class Installed:
    """An unpacked wheel, with the script of its command."""

    site: Path
    cwd: Path
    """An empty directory in a checkout of something else."""
    run: Callable[..., tuple[int, str, str]]


@pytest.fixture
def installed(built: Built, tmp_path: Path) -> Installed:
    site, cwd = tmp_path / "site-packages", tmp_path / "a directory"
    with zipfile.ZipFile(built.wheel) as wheel:
        wheel.extractall(site)
    script = write_script(tmp_path / "bin")
    cwd.mkdir()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)

    def run(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [str(script), *words],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(site)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
        )
        return done.returncode, done.stdout, done.stderr

    return Installed(site, cwd, run)


@pytest.mark.thorough
def test_an_unpacked_wheel_finds_its_configs(installed: Installed) -> None:
    code, out, err = installed.run("compressor=svd", "workers=3", "--cfg", "job")
    assert (code, err) == (0, "") and yaml.safe_load(out)["compressor"]["name"] == "svd"
    code, out, err = installed.run("nothing/here=svd")
    groups = [path for path in (ROOT / "conf").iterdir() if path.is_dir() and path.name != "hydra"]
    assert code == 2 and f"one of the {len(groups) + 2} that" in err, err  # hydra/launcher and hydra/sweeper
    remark = "a value takes"
    assert remark in (ROOT / "conf/compressor/qsgd.yaml").read_text()
    assert remark in installed.run("compressors", "show", "qsgd")[1]
    assert str(installed.site / CONF) in installed.run("--info", "searchpath")[1]
    code, out, err = installed.run("-m", "compressor=qsgd,none", "workers=2", "sweep.dry_run=true")
    assert code == 0 and "compressor=qsgd" in out, err
    assert list(installed.cwd.iterdir()) == []
