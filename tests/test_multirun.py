"""The command line as a user types it."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import compressors
from gradsweep import csv_columns, files, run_directory
from gradsweep.cli.version import version
from gradsweep.run_directory import runs_of
from tests.conftest import PLAYED, QUICK, ROOT, Program, read_presets
from trainers.config.groups import GROUPS
from trainers.config.run_config import SECTIONS

Multirun = Callable[..., tuple[int, str, str]]


def test_bad_input_as_a_user_types_it(multirun: Multirun) -> None:
    assert multirun("workers=0") == (2, "", "workers=0: valid is an integer from 1 to 4096\n")


@pytest.mark.parametrize("key", ["hydra.run.dir", "-m hydra.sweep.dir"])
def test_a_refused_command_leaves_the_directories_that_were_there(multirun: Multirun, tmp_path: Path, key: str) -> None:
    (tmp_path / "mine").mkdir()
    assert multirun(*f"{key}=mine/of/runs workers=0".split())[0] == 2
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_strangers_sweep_is_gone_on_with_only_if_it_is_trusted(multirun: Multirun, tmp_path: Path) -> None:
    (tmp_path / "rank.sh").write_text("""echo '{"status": "done"}' > "$5/result.json"\n""")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/sweep.yaml").write_text("format: 1\n")
    os.chown(tmp_path / "theirs", 12345, -1)
    command = ["-m", "sweep.resume=theirs", *QUICK, "workers=1", 'mpi.command=[sh,rank.sh,"{workers}"]']
    code, out, err = multirun(*command, without=PLAYED)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("theirs: belongs to uid 12345, ") and "--trust" in err
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["sweep.yaml"]
    code, out, err = multirun("--trust", *command, without=PLAYED)
    assert (code, err) == (0, "") and [run.status() for run in runs_of(tmp_path / "theirs")] == [run_directory.DONE]


def test_help_names_the_groups(multirun: Multirun) -> None:
    code, out, err = multirun("--help")
    assert code == 0 and not err
    assert (
        re.search(r"\ncompressor: [^:]*\bqsgd, [^:]*\bsvd\b", out)
        and "multirun.py -m compressor=qsgd,svd,none workers=2,4,8" in out
        and re.search(r"--quiet .*--json .*\n.*--trust ", out)
    )


def test_help_has_every_option_with_the_comment_of_its_file(multirun: Multirun) -> None:
    code, out, err = multirun("--help")
    written = (ROOT / "conf/config.yaml").read_text()
    options = written[written.index("\nworkers: 2 ") + 1 : written.index("\nhydra:")]
    assert code == 0 and options in out  # as they stand there, comments and all
    assert "optimizer=sgd:\n" in out and "  lr: 0.1                       # base learning rate, " in out
    assert "schema" not in out and "hydra/launcher: local, slurm\n" in out
    for group, members in GROUPS.items():
        names = {*members, *(path.stem for path in (ROOT / "conf" / group).glob("*.yaml"))}
        listed = re.search(rf"\n{group}: (.*?)\n\w", out, re.DOTALL)
        assert listed is not None and names <= set(re.findall(r"\w+", listed[1])), group
    words = " ".join(out.split())
    assert "top_k (topk)" in words and "vgg11 (vgg depth=11)" in words and "wrn_40_4 (wideresnet depth=40" in words


@pytest.mark.parametrize(
    ("arguments", "lines", "absent"),
    [
        (["compressor=topk"], ["compressor=topk:", "  ratio: 0.01  .*# part of the elements that is kept, .*"], "lr:"),
        (["compressor=none"], ["compressor=none:"], "lr:"),
        (
            ["compressor=dgc_topk", "compressor.ratio=0.5"],
            ["compressor=dgc_topk, which is topk ratio=0.001 count=floor_plus_one:", "  ratio: 0.5  .*# part .*"],
            "lr:",
        ),
        (["model=vgg11"], ["model=vgg11, which is vgg depth=11:", "  depth: 11   .*# 11, 13, 16 or 19"], "lr:"),
        (["experiment=quick"], ["experiment=quick:", "  epochs: 2", "model=mlp:", "  width: 128 .*"], "lr:"),
        (["hydra/launcher=slurm"], ["hydra/launcher=slurm:", "  partition: null .*# .*site's default.*"], "lr:"),
        (["-m", "optimizer=sgd,adam"], ["optimizer=sgd:", "optimizer=adam:", "  lr: 0.1 .*"], "ratio:"),
        (["workers=7"], ["workers: 7 .*# MPI ranks; each is one model replica", "compressor: .*"], "schema"),
    ],
)
def test_help_of_a_choice_has_its_options(
    multirun: Multirun, arguments: list[str], lines: list[str], absent: str
) -> None:
    code, out, err = multirun(*arguments, "--help")
    assert (code, err) == (0, "") and absent not in out
    for line in lines:
        assert re.search(f"^{line}$", out, re.MULTILINE), (line, out)


def test_version_is_ours(multirun: Multirun) -> None:
    code, out, err = multirun("--version")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"gradsweep \S+, Python 3\.\S+, torch \S+, Hydra 1\.\S+, mpi4py \S+\n", out)


@pytest.mark.parametrize("module", ["sweep", "reports", "compressors"])
def test_version_of_every_command_is_the_same_and_loads_none_of_it(module: str) -> None:
    code = f"import runpy, sys; sys.argv = ['x', '--version']\ntry: runpy.run_module('{module}', run_name='__main__')"
    code += "\nexcept SystemExit as ended: print(ended.code, {'torch', 'hydra', 'mpi4py'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == f"{version()}\n0 set()\n", done.stderr


def test_cfg_job_is_a_config_with_every_default(multirun: Multirun) -> None:
    code, out, err = multirun("--cfg", "job", "compressor=qsgd", "workers=3")
    config = yaml.safe_load(out)
    assert (config["workers"], config["compressor"]) == (
        3,
        {"name": "qsgd", **dataclasses.asdict(compressors.build("qsgd"))},
    )
    for section, cls in SECTIONS.items():
        assert config[section] == dataclasses.asdict(cls()), section


@pytest.mark.parametrize("word", ["compressor.values_options.levels=3", "+compressor.values_options={levels:3}"])
def test_what_is_in_a_mapping_can_be_given(multirun: Multirun, word: str) -> None:
    code, out, err = multirun("--cfg", "job", "compressor=topk", "compressor.values=qsgd", word)
    assert (code, err) == (0, "") and yaml.safe_load(out)["compressor"]["values_options"] == {"levels": 3}


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("compressor=qsg", ["compressor=qsgd"]),
        ("-m compressor=qsgd,top", ["compressor=qsgd,top_k", "compressor=qsgd,topk"]),
        (
            "-m optimizer=sgd,adam,",
            [
                f"optimizer=sgd,adam,{name}"
                for name in [
                    "adamw",
                    "adamw_gpt",
                    "dgc_sgd",
                    "dion",
                    "distributed_lion",
                    "lamb",
                    "lars",
                    "lion",
                    "muon",
                    "onebit_adam",
                    "onebit_lamb",
                    "signum",
                    "torch",
                    "zero_one_adam",
                ]
            ],
        ),
        ("-m workers=2,", []),
        ("hydra/launcher=", ["hydra/launcher=local", "hydra/launcher=slurm"]),
        ("sche", ["schedule.", "schedule="]),
        ("schem", []),
    ],
)
def test_tab_completion(line: str, completed: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "multirun.py", "--shell-completion", "query=bash"],
        env={"COMP_LINE": f"python multirun.py {line}", "COMP_POINT": "99", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == completed, done.stderr


@pytest.mark.skipif(" " in str(ROOT), reason="Hydra's completion in bash cannot have a space in the program's path")
def test_tab_completion_in_a_shell() -> None:
    script = """
eval "$(python multirun.py -sc install=bash)"
COMP_LINE='python multirun.py -m compressor=qsgd,top' COMP_POINT=99 COMP_CWORD=3
hydra_bash_completion
printf '%s\\n' "${COMPREPLY[@]}"
"""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env={"PATH": path}, capture_output=True, text=True)
    assert done.stdout.split() == ["compressor=qsgd,top_k", "compressor=qsgd,topk"], done.stderr


def test_the_yaml_of_a_part_has_its_defaults() -> None:
    """A default stands in the class, for Python, and in the YAML, for people: it must be the same."""
    for group, members in GROUPS.items():
        aliases = compressors.aliases() if group == "compressor" else {}
        presets = compressors.presets() if group == "compressor" else read_presets(group)
        assert {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")} == {*members, *aliases, *presets}
        for alias, name in aliases.items():
            text = (ROOT / "conf" / group / f"{alias}.yaml").read_text()
            assert text.startswith("# ") and yaml.safe_load(text) == {"defaults": [name, "_self_"]}, alias
        for preset, (name, options) in presets.items():
            text = (ROOT / "conf" / group / f"{preset}.yaml").read_text()
            assert text.startswith("# ") and yaml.safe_load(text) == {"defaults": [name, "_self_"], **options}, preset
            members[name](**options)  # in range
        for name, cls in members.items():
            text = (ROOT / "conf" / group / f"{name}.yaml").read_text()
            written = {key: value for key, value in yaml.safe_load(text).items() if key != "defaults"}
            default = cls()
            fields = {field.name: getattr(default, field.name) for field in dataclasses.fields(cls) if field.init}
            assert written == fields, (group, name)
            assert text.startswith("# "), (group, name)


@pytest.mark.parametrize(
    ("directory", "value"), [("output/a", "output/a"), ("p(1), é", "'p(1), é'"), ("it's", r"'it\'s'")]
)
def test_the_command_to_go_on_is_quoted_for_hydra(
    directory: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from sweep.launch.session import Session

    monkeypatch.chdir(tmp_path)
    session = Session()
    command = session.build_resume_command(tmp_path / directory)
    assert shlex.split(command)[1:] == ["-m", "sweep", "resume", directory]
    session.is_growing = True  # a sweeper that has not said all its points yet
    word = shlex.split(session.build_resume_command(tmp_path / directory))[-1]
    assert word == f"sweep.resume={value}"
    assert OverridesParser.create().parse_override(word).value() == directory


@pytest.mark.thorough
@pytest.mark.mpi
def test_two_runs_in_the_same_second_and_values_taken_out(
    start: Callable[..., Program], tmp_path: Path, digits: Path
) -> None:
    command = ("experiment=quick", "max_steps=1", "workers=1", "~mpi.environment.OMPI_MCA_coll", f"data.root={digits}")
    both = [start(*command, *more, without=PLAYED) for more in (["hydra.job.chdir=false"], [])]
    for program in both:
        code, out, err = program.end(120)
        assert code == 0, out + err
    assert len(list(tmp_path.glob("output/*/*/runs/*/result.json"))) == 2


@pytest.mark.thorough
@pytest.mark.mpi
def test_a_sweep_goes_on_when_nobody_reads_its_output(tmp_path: Path, digits: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "tests/without.py"),
        "data",
        "-m",
        f"data.root={digits}",
        "hydra.sweep.dir=sweep",
        *QUICK,
        "seed=1,2",
        "workers=1",
    ]
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(command)} | head -1; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [run.status() for run in runs_of(tmp_path / "sweep")] == [run_directory.DONE] * 2


@pytest.mark.mpi
def test_an_empty_directory_of_the_users_is_left_alone(multirun: Multirun, tmp_path: Path) -> None:
    (tmp_path / "empty/sub").mkdir(parents=True)
    code, out, err = multirun("-m", "sweep.resume=empty/sub", "workers=1,2")
    assert code == 2 and list((tmp_path / "empty/sub").iterdir()) == []


@pytest.mark.mpi
def test_one_run(multirun: Multirun, tmp_path: Path) -> None:
    code, out, err = multirun(*QUICK, "compressor=svd", "workers=2")
    assert code == 0, out + err
    (sweep,) = tmp_path.glob("output/*/*/sweep.yaml")
    (run,) = runs_of(sweep.parent)
    assert run.name.startswith("experiment=quick,max_steps=6,epochs=1,compressor=svd,workers=2-")
    assert yaml.safe_load(run.path(run_directory.CONFIG).read_text())["exchange"]["name"] == "allgather"
    result = run.result()
    assert result is not None and result["status"] == run_directory.DONE and result["steps"] == 6
    rows = list(csv.DictReader(run.path(run_directory.STEPS).open()))
    assert tuple(rows[0]) == csv_columns.STEP_COLUMNS and len(rows) == 6
    assert float(rows[0]["compression_error"]) > 0 and rows[1]["compression_error"] == ""
    assert all(float(row["step_s"]) >= sum(float(row[f"{phase}_s"]) for phase in csv_columns.PHASES) for row in rows)
    (epoch,) = csv.DictReader(run.path(run_directory.EPOCHS).open())
    assert tuple(epoch) == csv_columns.EPOCH_COLUMNS
    assert float(epoch["sent_bytes"]) == pytest.approx(sum(float(row["sent_bytes"]) for row in rows))
    assert (sweep.parent / "report.html").is_file()


@pytest.mark.mpi
def test_a_sweep_its_files_and_its_resume(multirun: Multirun, tmp_path: Path, digits: Path) -> None:
    """In one world, which starts torch once; each run has the network between its own ranks measured."""
    packed = ("sweep.pack=true", "network=real", f"data.root={digits}")
    grid = ("-m", *packed, *QUICK, "compressor=qsgd,none,none", "workers=1,2", "seed=3")
    code, out, err = multirun(*grid, without=("data",))
    assert code == 0, out + err
    (sweep,) = (path.parent for path in tmp_path.glob("output/*/*/sweep.yaml"))
    runs = runs_of(sweep)
    assert sorted(run.name.rpartition("-")[0] for run in runs) == [
        f"compressor={name},workers={w}" for name in ("none", "qsgd") for w in (1, 2)
    ]  # equal points run once
    assert [run.status() for run in runs] == [run_directory.DONE] * 4
    for run in runs:
        network = (run.result() or {})["network"]
        assert network == files.read_json(run.attempt(1) / run_directory.NETWORK)
        assert (network["measured"] is None) == ("workers=1" in run.name)
    described = yaml.safe_load((sweep / run_directory.SWEEP).read_text())
    assert described["swept"] == ["compressor", "workers"] and "compressor=qsgd" in described["overrides"]
    assert described["command"].endswith("compressor=qsgd,none,none workers=1,2 seed=3")
    assert described["packages"]["torch"] and described["cpu"]["cores"] and "Open MPI" in described["mpi"]
    assert len(list(csv.DictReader((sweep / run_directory.SUMMARY).open()))) == 4
    assert len(list(csv.DictReader((sweep.parent / run_directory.SUMMARY).open()))) == 4
    assert sorted(path.suffix for path in (sweep / "plots").iterdir()).count(".png") >= 4
    assert str(Path(out.rstrip().splitlines()[-1])).endswith("report.html")

    finished = {run.directory: run.path(run_directory.RESULT).stat().st_mtime_ns for run in runs}
    runs[0].path(run_directory.STATE).write_text(json.dumps({**runs[0].state(), "status": run_directory.FAILED}))
    runs[0].path(run_directory.RESULT).unlink()
    # the grid has grown meanwhile
    code, out, err = multirun(*grid[:-1], "seed=3,4", "sweep.resume=last", without=PLAYED)
    assert code == 0, out + err
    assert "5 of 8 runs to do" in out
    assert {run.status() for run in runs_of(sweep)} == {run_directory.DONE} and len(runs_of(sweep)) == 8
    again = {run.directory: run.path(run_directory.RESULT).stat().st_mtime_ns for run in runs[1:]}
    assert again.items() <= finished.items()
    assert yaml.safe_load((sweep / run_directory.SWEEP).read_text())["swept"] == ["compressor", "workers", "seed"]

    code, out, err = multirun(*grid[:-1], "seed=3,4", "sweep.resume=last", without=PLAYED)
    assert code == 0 and "0 of 8 runs to do" in out


@pytest.mark.thorough
@pytest.mark.mpi
def test_the_same_seed_gives_the_same_bits(multirun: Multirun, tmp_path: Path, digits: Path) -> None:
    """Whether each run has processes of its own or all are trained in the same ones."""

    def losses(sweep: str, *more: str) -> dict[str, list[str]]:
        grid = ("-m", f"hydra.sweep.dir={sweep}", "compressor=qsgd,svd", "workers=2", "max_steps=15", *more)
        code, out, err = multirun(*grid, f"data.root={digits}", without=PLAYED)
        assert code == 0, out + err
        return {
            run.name: [row["loss"] for row in csv.DictReader(run.path(run_directory.STEPS).open())]
            for run in runs_of(tmp_path / sweep)
        }

    first, second = losses("a"), losses("b", "sweep.pack=true")
    assert first == second
    assert len(first) == 2 and all(len(values) == 15 for values in first.values())
    assert len({tuple(values) for values in first.values()}) == 2
