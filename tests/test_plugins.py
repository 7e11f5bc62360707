"""docs/guide/plugins.md: classes of a file and of an installed distribution, from the command line to the ranks."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gradsweep.run_directory import Run, runs_of
from gradsweep.targets import USER_CODE
from tests.conftest import QUICK, ROOT
from tests.plugin_distribution import CHUNK_TOP, NAMES, PERCEPTRON, lay_out, read_block

pytestmark = pytest.mark.thorough

FILE = "plugins=[./mine.py]"
SMALL = (*QUICK, "memory=residual", "race=off", "workers=2")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with mine.py, and nothing else."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "mine.py").write_text(f"{CHUNK_TOP}\n\n{PERCEPTRON}", encoding="utf-8")
    return folder


def run(folder: Path, *words: str, site: Path | None = None, expected: int = 0) -> tuple[str, str]:
    """stdout and stderr of a Python command in `folder`."""
    paths = [str(ROOT), *([str(site)] if site else [])]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", USER_CODE)}
    environment |= {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == expected, done.stdout[-5000:] + done.stderr[-3000:]
    return done.stdout, done.stderr


def sweep(folder: Path, *words: str, site: Path | None = None, name: str = "s", expected: int = 0) -> list[Run]:
    """The runs of a sweep in folder/name; `words` go before those of SMALL."""
    given = {word.partition("=")[0] for word in words}
    usual = [word for word in SMALL if word.partition("=")[0] not in given]
    program = [str(ROOT / "tests/without.py"), "report", "-m", f"hydra.sweep.dir={name}"]
    run(folder, *program, *usual, *words, site=site, expected=expected)
    return list(runs_of(folder / name))


def provenance(one: Run) -> dict[str, object]:
    return dict(json.loads((one.attempt(one.contributors()[-1]) / "provenance.json").read_text()))


def code_of(one: Run) -> Path:
    """Where the ranks of a run have found the user's code."""
    return Path(str(provenance(one)["environment"][USER_CODE]))  # type: ignore[index]


# The page


def test_the_page_works_as_it_stands(here: Path) -> None:
    (here / "mine.py").write_text(CHUNK_TOP, encoding="utf-8")
    commands = [line for line in read_block("plugins.md", "sh").splitlines() if line]
    assert len(commands) == 5
    outputs = []
    for command in commands:
        _, *words = [str(ROOT / word) if word == "multirun.py" else word for word in shlex.split(command)]
        more: tuple[str, ...] = ()
        if "multirun.py" in command:
            more = QUICK
        elif " bench " in command:
            more = ("--repeats", "1")
        elif "pytest" in command:
            more = ("-q", "-p", "no:cacheprovider", "-k", "promises or corruption or laws")
        outputs.append(run(here, *words, *more)[0])
    assert "neighbours of which one is kept" not in outputs[0] and "ChunkTop" not in outputs[0]
    assert outputs[0].startswith("chunk_top") and "an integer from 1 up" in outputs[0]
    assert "WRONG" not in outputs[1] and outputs[1].count("ok") >= 2
    assert "chunk_top" in outputs[2] and "topk" in outputs[2]
    assert int(re.findall(r"(\d+) passed", outputs[3])[0]) > 30
    assert "done" in outputs[4]


# A file


def test_a_file_is_a_choice_with_its_options(here: Path) -> None:
    program = str(ROOT / "multirun.py")
    assert "chunk: 7" in run(here, program, FILE, "compressor=chunk_top", "compressor.chunk=7", "--cfg", "job")[0]
    shown = run(here, program, FILE, "compressor=chunk_top", "model=perceptron", "--help")[0]
    assert "compressor=chunk_top:" in shown and re.search(r"chunk: 100 +# an integer from 1 up", shown)
    assert "model=perceptron:" in shown and "width: 32" in shown
    listed = run(here, "-m", "compressors", "list", "chunk_top", "topk", "--plugins", "./mine.py")[0]
    assert "chunk_top" in listed and "mine" in listed


LINES = {
    ("compressor=chunk_to",): "compressor=chunk_to: did you mean chunk_top? valid is one of the ",
    ("compressor=chunk_top", "compressor.chunk=0"): "compressor.chunk=0: valid is an integer from 1 up\n",
    (
        "compressor=chunk_top",
        "compressor.chunks=2",
    ): "compressor.chunks=2: unknown key of compressor=chunk_top; did you ",
    ("model=perceptron", "dataset=synthetic_text"): "model=perceptron with dataset=synthetic_text: the model takes ",
    ("plugins=./mine.py",): "plugins=./mine.py: valid is one list for all runs, such as [./mine.py]; an item is a file",
    ("plugins=[./other.py]",): "plugins=./other.py: valid is a file that exists; there is none in ",
}


@pytest.mark.parametrize("words", LINES)
def test_errors_are_one_line(here: Path, words: tuple[str, ...]) -> None:
    typed = words if words[0].startswith("plugins") else (FILE, *words)
    out, err = run(here, str(ROOT / "multirun.py"), *typed, expected=2)
    assert err.startswith(LINES[words]) and err.count("\n") == 1 and not out
    assert sorted(path.name for path in here.iterdir() if path.name != "__pycache__") == ["mine.py"]


@pytest.mark.mpi
def test_runs_start_from_a_copy_of_the_code_and_are_reused_with_the_same(here: Path) -> None:
    (here / "mine.py").write_text(f"{(here / 'mine.py').read_text()}\nimport helper\n", encoding="utf-8")
    (here / "helper.py").write_text("a = 1\n", encoding="utf-8")
    (here / "secret.txt").write_text("not to be copied\n", encoding="utf-8")
    words = (FILE, "compressor=chunk_top", "model=perceptron")
    first = sweep(here, *words)
    assert {one.status() for one in first} == {"done"} and len(first) == 1
    copy = code_of(first[0])
    assert copy.parent == here / "s" / ".code" and sorted(path.name for path in copy.glob("*.*")) == [
        "helper.py",
        "mine.py",
    ]
    recorded = provenance(first[0])["user_code"]
    assert recorded["code"] == ["helper.py", "mine.py"] and recorded["distributions"] == []  # type: ignore[index]
    # the same code is reused, changed code is not
    for name, text, reused in (("t", "a = 1\n", True), ("u", "a = 2\n", False)):
        (here / "helper.py").write_text(text, encoding="utf-8")
        again = sweep(here, *words, "sweep.reuse=true", name=name)
        assert {"reused_from" in one.state() for one in again} == {reused}
    table = run(here, "-m", "reports", "s")[0]
    assert "chunk_top" in table


@pytest.mark.mpi
def test_a_resume_from_another_directory_finds_the_code(here: Path, tmp_path: Path) -> None:
    broken = here / "helper.py"
    (here / "mine.py").write_text(
        f"{(here / 'mine.py').read_text()}\nimport helper\nhelper.check()\n", encoding="utf-8"
    )
    broken.write_text("import os\ndef check():\n    assert 'GRADSWEEP_ATTEMPT' not in os.environ, 'in a rank'\n")
    (one,) = sweep(here, FILE, "compressor=chunk_top", expected=1)
    assert one.status() == "failed" and "in a rank" in str(one.state()["reason"])
    broken.write_text("def check():\n    pass\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run(elsewhere, "-m", "sweep", "resume", str(here / "s"))
    assert one.status() == "done" and code_of(one).parent == here / "s" / ".code"
    (here / "mine.py").unlink()
    (two,) = sweep(here, "compressor=none", "seed=1", name="t")
    assert USER_CODE not in provenance(two)["environment"]  # type: ignore[operator]


@pytest.mark.mpi
@pytest.mark.parametrize("words", [("sweep.pack=true", "sweep.wait=false"), ("sweep.snapshot=false",), ("race=only",)])
def test_all_ways_to_run_find_the_code(here: Path, words: tuple[str, ...]) -> None:
    runs = sweep(here, FILE, "compressor=chunk_top,none", "model=perceptron", "race.seconds=2", *words)
    if "sweep.wait=false" in words:
        run(here, "-m", "sweep", "watch", "s")
    if "race=only" in words:
        ratios = [json.loads(path.read_text()) for path in (here / "s" / "races").glob("*/ratios.json")]
        assert ratios and all(len(heat["runs"]) == 2 for one in ratios for heat in one["heats"])
    else:
        assert {one.status() for one in runs} == {"done"}
        assert code_of(runs[0]) == (here if "sweep.snapshot=false" in words else code_of(runs[1]))


# A distribution


@pytest.mark.mpi
def test_a_distribution_joins_every_group(here: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    lay_out(site)
    (here / "mine.py").unlink()
    assert "neighbours of which one is kept" in run(here, "-m", "compressors", "show", "chunk_top", site=site)[0]
    shown = run(here, str(ROOT / "multirun.py"), "compressor=chunk_top", "--help", site=site)[0]
    assert "chunk: 100                    # neighbours of which one is kept" in shown
    plain = [f"{group}={name}" for group, name in NAMES.items() if group not in ("topology", "memory")]
    (one,) = sweep(here, *plain, "memory=forgetting", "epochs=2", "max_steps=null", site=site)
    assert one.status() == "done"
    recorded = provenance(one)["user_code"]["distributions"]  # type: ignore[index]
    assert [(each["name"], each["version"]) for each in recorded] == [("my-plugin", "1.2")]
    result = json.loads((one.directory / "result.json").read_text())
    assert result["status"] == "done"
    (two,) = sweep(here, "algorithm=dpsgd", "topology=wheel", "memory=none", site=site, name="t")
    assert two.status() == "done"
    refused = ("compressor=fp16", "exchange=gathering")
    line = "compressor=fp16 with exchange=gathering: it gathers no sums; valid is exchange=allreduce\n"
    assert run(here, str(ROOT / "multirun.py"), *refused, site=site, expected=2)[1] == line


def test_a_broken_distribution_does_not_stop_what_does_not_need_it(here: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    package = lay_out(site)
    (package / "methods.py").write_text("import no_such_module\n", encoding="utf-8")
    begin = (
        "my-plugin 1.2: entry point chunk_top = my_plugin.methods:ChunkTop of gradsweep.compressors: cannot be imported"
    )
    program = str(ROOT / "multirun.py")
    out, err = run(here, program, "compressor=topk", "--cfg", "job", site=site)
    assert "name: topk" in out and err.startswith(f"left out: {begin}") and err.count("\n") == 1
    _, err = run(here, program, "compressor=chunk_top", site=site, expected=2)
    assert err.splitlines()[-1].startswith(begin)
    _, err = run(here, "-m", "compressors", "show", "chunk_top", site=site, expected=2)
    assert err.startswith(f"python -m compressors: {begin}") and err.count("\n") == 1


def test_completion_knows_plug_ins(here: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    lay_out(site)
    for line, path, expected in (
        ("multirun.py model=perc", str(site), "model=perceptron"),
        (f"multirun.py {FILE} compressor=chunk_", "", "compressor=chunk_top"),
    ):
        environment = {"COMP_LINE": f"python {line}", "COMP_POINT": str(len(line) + 7), "COMP_CWORD": "2"}
        done = subprocess.run(
            [sys.executable, str(ROOT / "multirun.py"), "-sc", "query=bash"],
            cwd=here,
            env={**os.environ, **environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert expected in done.stdout.split(), done.stdout + done.stderr
