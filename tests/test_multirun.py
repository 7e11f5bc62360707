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
from compressors.commands.method_specs import default
from gradsweep import csv_columns, files, run_directory
from gradsweep.run_directory import runs_of
from gradsweep.version import version
from tests.conftest import PLAYED, QUICK, ROOT, Program, written_presets
from trainers.config.groups import GROUPS
from trainers.config.run_config import SECTIONS

Multirun = Callable[..., tuple[int, str, str]]


BAD_INPUT = [
    ("workers=0", "workers=0: valid is an integer from 1 to 4096"),
    ("workers=two", "workers=two: valid is an integer from 1 to 4096"),
    ("-m workers=2,two", "workers=2,two: valid is an integer from 1 to 4096"),
    ("compressor=foo", "compressor=foo: valid is one of the [0-9]+ that `python multirun.py --help` lists"),
    ("-m compressor=qsgd,fooo", "compressor=fooo: valid is one of the [0-9]+ that `python multirun.py --help` lists"),
    ("compressor=qsdg", "compressor=qsdg: did you mean qsgd. valid is one of the .*"),
    ("workers=1 optimizer=null", "optimizer=null: valid is one of the names that `python multirun.py --help` lists"),
    ("compressor=null", "compressor=null: valid is one of the names that `python multirun.py --help` lists"),
    ("-m compressor=none,3", "compressor=none,3: valid is one of the names that .*"),
    ("+compressor=qsgd", ".compressor=qsgd: one is chosen already; valid is compressor=qsgd"),
    (
        "compressor.ratio=0.1",
        "compressor.ratio=0.1: unknown key of compressor=none; compressor=.*topk, .* and [0-9]+ more have ratio",
    ),
    (
        "compressor.raito=0.1",
        "compressor.raito=0.1: unknown key of compressor=none; did you mean compressor.ratio. compressor=.* have ratio",
    ),
    ("compressor.lr=0.1", "compressor.lr=0.1: unknown key of compressor=none; did you mean optimizer.lr."),
    ("compressor.foo=0.1", "compressor.foo=0.1: unknown key of compressor=none; it has no options"),
    ("compressor.levels=0", "compressor.levels=0: unknown key of compressor=none; compressor=qsgd, .* have levels"),
    ("compressor=qsgd compressor.levels=three", "compressor.levels=three: valid is an integer from 1 to 32767"),
    ("compressor=topk compressor.values=qsdg", "compressor.values=qsdg: did you mean qsgd. valid is fp32, .*"),
    ("'policy.patterns=[{match: a, compressor: {name: qsdg}}]'", ".*name=qsdg: did you mean qsgd. valid is one of .*"),
    ("optimizer.lr=inf", "optimizer.lr=inf: valid is a finite number from 0.0 up"),
    ("optimizer.lr=nan", "optimizer.lr=nan: valid is a finite number from 0.0 up"),
    (
        "lr=0.1",
        "lr=0.1: unknown key; did you mean optimizer.lr. valid is one of the .* that `python multirun.py --help` lists",
    ),
    ("learning_rate=0.1", "learning_rate=0.1: unknown key; did you mean optimizer.lr. valid is .*"),
    ("batch_size=64", "batch_size=64: unknown key; did you mean batch.size. valid is .*"),
    ("optim.lr=1", "optim.lr=1: unknown key; did you mean optimizer. valid is .*"),
    ("batch.size.x=3", "batch.size.x=3: unknown key; batch.size has no keys, and is an integer from 1 up"),
    ("'batch={siez:3}'", "batch={siez:3}: batch.siez: unknown key; did you mean batch.size. valid is one of size, .*"),
    ("hydra/lancher=slurm", "hydra/lancher=slurm: unknown group; did you mean hydra/launcher. valid is .*"),
    (
        "hydra.launcher.partition=gpu",
        "hydra.launcher.partition=gpu: unknown key of hydra/launcher=local; hydra/launcher=slurm has partition",
    ),
    ("-m workers=2, 4", "workers=2, 4: spaces make 2 words of it; valid is one: workers=2,4"),
    ("workers = 2 seed=1", "workers = 2: spaces make 3 words of it; valid is one: workers=2"),
    ("gpus=[0, 1]", r"gpus=\[0, 1\]: spaces make 2 words of it; valid is in quotes: 'gpus=\[0, 1\]'"),
    ("-m workers=2,,4", "workers=2,,4: .* character 11: a value is missing before this comma; valid is .*: 2,4"),
    ("-m workers=2,4,", "workers=2,4,: .* character 12: a value is missing after this comma; valid is .*"),
    ("'workers=range(5'", r"workers=range.5: .* character 14: this \( is not closed; valid is an integer .*"),
    ("'gpus=[0'", r"gpus=.0: .* character 6: this \[ is not closed; valid is a list of numbers of GPUs, from 0 up"),
    ("'workers=2;3'", "workers=2;3: .* character 10: ; cannot stand here; valid is an integer from 1 to 4096"),
    (
        "workers=2,4",
        "workers=2,4: several values; valid is one value, or -m for a sweep of them: python multirun.py -m workers=2,4",
    ),
    (
        "gpus=0,1",
        r"gpus=0,1: several values; valid is a list in brackets, 'gpus=\[0,1\]', or -m for a sweep of them: .*",
    ),
    ("gpus=[0,a]", r"gpus=\[0,a\]: valid is a list of numbers of GPUs, from 0 up"),
    ("gpus.x=1", "gpus.x=1: .*"),
    ("workers=${no}", "workers=..no.: Interpolation key 'no' not found"),
    ("~workers", "workers: missing from the config"),
    ("~sweep", "~sweep: Interpolation key 'sweep.resume' not found"),
    ("sweep.resume=${no}", "sweep.resume=..no.: Interpolation key 'no' not found"),
    ("~compressor", "~compressor: a run has to have it; valid is one of its group"),
    ("~optimizer.lr", "~optimizer.lr: a run has to have it; valid is a finite number from 0.0 up"),
    ("~nothing", "~nothing: unknown key; .*"),
    ("+workers=3", ".workers=3: is there already; valid is workers=3"),
    ("hydra.launcher.cluster=[a]", r"hydra.launcher.cluster=\['a'\]: valid is one of local, slurm"),
    ("kernels=nubma", "kernels=nubma: did you mean numba. valid is one of auto, numba, triton, torch"),
    ("sweep.retries=three", "sweep.retries=three: valid is an integer from 0 up"),
    ("compressor=qsgd compressor.levels=0", "compressor.levels=0: valid is an integer from 1 to 32767"),
    ("compressor=svd compressor.rank=0", "compressor.rank=0: valid is an integer from 1 up"),
    (
        "compressor=topk compressor.values=qsgd compressor.values_options.levels=0",
        "compressor.values_options.levels=0: valid is an integer from 1 to 32767",
    ),
    (
        "compressor=topk compressor.values=qsgd +compressor.values_options.lev=1",
        "compressor.values_options.lev=1: did you mean levels. valid is one of the keys levels, .*",
    ),
    (
        "compressor=topk compressor.values_options={levels:3}",
        "compressor.values_options={'levels': 3}: valid is empty with values=fp32",
    ),
    ("compressor=topk compressor.values_options=3", "compressor.values_options=3: valid is a mapping with .*"),
    ("wrokers=2", "wrokers=2: unknown key; did you mean workers. valid is one of the .*"),
    ("+foo=1", "foo=1: unknown key; valid is one of the .*"),
    (
        "model.dept=10",
        "model.dept=10: unknown key of model=wideresnet; did you mean model.depth. valid is one of input_size, .*",
    ),
    ("model.depth=12", "model.depth=12: valid is 6 n . 4 .*"),
    ("epochs=-1", "epochs=-1: valid is an integer from 1 up"),
    ("epochs=${nothing}", ".*epochs.*"),
    ("optimizer.nesterov=perhaps", "optimizer.nesterov=perhaps: valid is true or false"),
    ("batch.size=1", "batch.size=1: valid is at least workers=2.*"),
    ("dataset=cifar10", "dataset=cifar10: not found: data_batch_1.*data/cifar-10-batches-py; valid is .*"),
    ("mpi.command=[no-mpirun]", "mpi.command=no-mpirun: not found .*"),
    ("mpi.command=[sh]", "mpi.command=sh: valid is a command with {workers} .*"),
    ("hydra.run.dir=/proc/no", "hydra.sweep.dir=/proc/no: .*; valid is a directory that can be written"),
    ("-m hydra.sweep.dir=/proc/no", "hydra.sweep.dir=/proc/no: .*; valid is a directory that can be written"),
    ("sweep.resume=nowhere", "sweep.resume=nowhere: there is no sweep in .*"),
    ("sweep.resume=last", "sweep.resume=last: there is no sweep in .*"),
    ("sweep.name=../up", "sweep.name=../up: valid is .*"),
    ("sweep.metric=acuracy", "sweep.metric=acuracy: did you mean accuracy. valid is one of accuracy, .*"),
    ("sweep.prune=mean", "sweep.prune=mean: valid is median or null"),
    ("sweep.on_end=[no-such-program,x]", r"sweep.on_end=\[no-such-program,x\]: valid is a program that exists, .*"),
    ("sweep.on_end=[[a],b]", r"sweep.on_end=\[\['a'\], 'b'\]: valid is a list of words without NUL"),
    ("mpi.command=[sh,[a]]", r"mpi.command=\['sh', \['a'\]\]: valid is a list of words without NUL"),
    ("hydra/launcher=basic", "hydra/launcher=basic: valid is one of local, slurm"),
    ("-m hydra/launcher=basic seed=1,2", "hydra/launcher=basic: valid is one of local, slurm"),
    ("-m hydra/launcher=locl", "hydra/launcher=locl: did you mean local. valid is one of local, slurm"),
    ("-m hydra/sweeper=tpe", "hydra/sweeper=tpe: valid is one of basic, grid.*; optuna needs `pip install .*`"),
    ("sweep.max_parallel=0", "sweep.max_parallel=0: valid is an integer from 1 up or null"),
    ("sweep.share_cores=perhaps", "sweep.share_cores=perhaps: valid is true or false"),
    (
        "hydra.launcher.cores=0",
        "hydra.launcher.cores=0: valid is null, a number from 1 to .*, or a list of cores out of .*",
    ),
    ("hydra.launcher.cores=0-1,0-1", ".*hydra.launcher.cores.*"),
    (
        "-m hydra.launcher.cores=${workers} workers=1,2",
        "hydra.launcher.cores(: cannot be swept|=2: valid is null, .*); valid is one value for all runs of a sweep",
    ),
    ("hydra.launcher.gpus=[x]", "hydra.launcher.gpus=.'x'.: valid is null or a list of numbers or UUIDs of GPUs, .*"),
    ("hydra.launcher.gpus_per_worker=-1", "hydra.launcher.gpus_per_worker=-1: valid is an integer from 0 up or null"),
    (
        "device=auto hydra.launcher.gpus_per_worker=1000",
        "hydra.launcher.gpus_per_worker=1000: workers=2 want 2000 GPUs of .*; valid is fewer workers, .*",
    ),
    ("hydra.launcher.account=2024_08 hydra/launcher=slurm", ".*it is the number 202408; as a text: .*"),
    (
        "hydra/launcher=slurm hydra.launcher.cluster=local",
        ".*cluster=local: valid is slurm with hydra/launcher=slurm; .*",
    ),
    ("-m hydra.launcher=slurm", "hydra.launcher=slurm: valid is hydra/launcher=NAME to choose one, .*"),
    ("hydra.launcher=null", "hydra.launcher=null: valid is hydra/launcher=NAME .*, hydra.launcher.KEY=VALUE .*"),
    ("-m hydra.sweeper=optuna", "hydra.sweeper=optuna: valid is hydra/sweeper=NAME to choose one, .*"),
    ("-m hydra.sweeper.params=workers", "hydra.sweeper.params=workers: valid is a mapping of keys to their values, .*"),
    ("sweep.retries=null", "sweep.retries=null: valid is an integer from 0 up"),
    ("sweep.metric=null", "sweep.metric=null: valid is one of accuracy, .*"),
    ("hydra.launcher.cluster=moon", "hydra.launcher.cluster=moon: valid is one of local, slurm"),
    (
        "compressor=qsgd exchange=allreduce",
        "compressor=qsgd with exchange=allreduce.*valid is exchange=allgather.*",
    ),
    ("compressor=svd exchange.granularity=model", "compressor=svd with .*valid is exchange.granularity=layer"),
    ("-m seed=range(0)", "the grid has no points: .*"),
    ("+sweep.foo=1", "sweep.foo: unknown key; valid is one of the 27 keys that .*"),
    ("mpi.environment.A=b", "mpi.environment.A.*: unknown key; valid is one of OMPI_.*, or a new one with . before it"),
    ("hydra.job.env_set.A=b", "hydra.job.env_set.A.*: unknown key; valid is a new one with . before it"),
    ("sweep.wait=perhaps", "sweep.wait=perhaps: valid is true or false"),
    ("-m workers=0 sweep.wait=false", "workers=0: valid is an integer from 1 to 4096"),
    (
        "workers=1 --jsn seed=2",
        "--jsn: unknown; did you mean --json. valid is key=value, --quiet, --json, .* and the flags of --hydra-help",
    ),
    ("seed=1 -m workers=0,0", "workers=0: valid is an integer from 1 to 4096"),
    ("seed=2 seed=1,3", r"seed=2 and seed=1,3: give seed twice; valid is to give it once, .* \(seed=2,1,3\)"),
    ("-m workers=1 +workers=2,3", r"workers=1 and .workers=2,3: give workers twice; .*"),
    ("-m workers=1,2 sweep.zip=[[workers,sed]]", r"sweep.zip=..workers,sed..: sed is no key of this grid; .*workers"),
    (
        "-m workers=1,2 'sweep.exclude=[\"wrokers > 2\"]'",
        ".*: column 1: wrokers: unknown key; did you mean workers. .*",
    ),
    ("sweep.include=3", "sweep.include=3: valid is a list of expressions, .*"),
    ("-m workers=1,2 'sweep.include=[\"workers > 2\"]'", "sweep.include: workers > 2: takes out all 2 points; .*"),
    ("-m optimizer.lr=interval(0,1)", r"optimizer.lr=interval.0,1.: valid is, in a grid, values such as .*"),
    ("-m workers=1,2 hydra/sweeper=basic sweep.dry_run=true", "sweep.dry_run=True: valid is for grids only, .*"),
    (
        "-m workers=1,2 hydra/sweeper=basic sweep.wait=false",
        "sweep.wait=false: valid is true with a sweeper that goes by results, or hydra/sweeper=grid",
    ),
    ("sweep.name=größe", "sweep.name=größe: .* character 14: ö cannot stand here; valid is up to 81 of A-Z, a-z, .*"),
    ("'sweep.name=\"größe\"'", "sweep.name=größe: valid is up to 81 of A-Z, a-z, 0-9, '.', '_' and '-', .*"),
    ("data.root=ünï", "data.root=ünï: not in Hydra's grammar, character 11: .* quotes, .*: 'data.root=\"ünï\"'"),
    ("-m workers=1,2 'data.root=$(x)'", r"data.root=\$\(x\): not in Hydra's grammar, .*: 'data.root=\"\$\(x\)\"'"),
    ('workers=1 "data.root=a\'b"', "data.root=a'b: not in Hydra's grammar, .*: 'data.root=\"a'.*'b\"'"),
    ("'sweep.exclude=[workers > 2]'", r"sweep.exclude=\[workers > 2\]: .* character 24: > .*; valid is a list .*: .*"),
    ("wörkers=1", "wörkers=1: not in Hydra's grammar; valid is key=value, with a key of letters, .*"),
    ("workers", "workers: valid is key=value"),
    ("sweep.max_failures=0.5", "sweep.max_failures=0.5: valid is an integer from 1 up or null"),
    ("sweep.backoff_s=soon", "sweep.backoff_s=soon: valid is a finite number from 0 up"),
    ("sweep.on_end=notify-send", r"sweep.on_end=notify-send: valid is a list, such as \[a,b\]"),
    ("sweep.on_end=[echo,null]", r"sweep.on_end=\[echo,null\]: valid is a list of texts; null in quotes is one: .*"),
    ("sweep.on_end={a:b}", r"sweep.on_end=\{a:b\}: valid is a list, such as \[a,b\]"),
    ("sweep.name=[a]", r"sweep.name=\[a\]: valid is up to 81 of .*"),
    ("-m 'sweep.prune={a:1}'", r"sweep.prune=\{a:1\}: valid is a text"),
    ("sweep=3", r"sweep=3: valid is a mapping, such as \{key:value\}"),
    ("mpi.environment=3", r"mpi.environment=3: valid is a mapping, such as \{NAME:text\}"),
    ("workers=choice\\(\\)", r"workers=choice\(\): empty choice is not legal"),
    ("-m sweep.name=a,b", "sweep.name: cannot be swept; valid is one value for all runs of a sweep"),
    ("topology=torus", "topology=torus: valid is together with algorithm=dpsgd,.*; here algorithm=sgd"),
    ("-m topology=ring,torus algorithm=sgd,local_sgd", "topology=ring: valid is together with algorithm=dpsgd,.*"),
    ("algorithm=choco workers=1", "workers=1 with algorithm=choco: a worker has nobody to .*; valid is workers=2 .*"),
    ("sweep.zip=[[workers,seed]]", r"sweep.zip=\[\[workers,seed\]\]: valid is left out of a single run; with -m .*"),
    ("sweep.prune=median", "sweep.prune=median: (valid is left out of a single run; .*|needs Optuna .*)"),
    ("hydra/sweeper=basic", "hydra/sweeper=basic: valid is left out of a single run; with -m it is for a grid"),
    (
        "schedule=multistep schedule.milestones=[]",
        r"schedule.milestones=\[\]: valid is a list of one number or more, .*",
    ),
    (
        "compressor=sidco compressor.stages=5 compressor.max_stages=3",
        "compressor.stages=5: valid is an integer up to max_stages=3",
    ),
    ("compressor=powersgd compressor.start_step=21 max_steps=20", "compressor.start_step=21: valid .* steps .20."),
    ("compressor=powersgd compressor.start_step=97", "compressor.start_step=97: valid is an integer up to .* .96."),
    ("-m seed=1,2 hydra.run.dir=here", "hydra.run.dir=here: valid is hydra.sweep.dir with -m"),
    ("hydra.sweep.subdir=here", "hydra.sweep.subdir=here: valid is left out: runs are in runs/ of hydra.sweep.dir"),
]

TYPED = """
import json, os, runpy, sys
import hydra.main, hydra.utils, hydra_plugins.gradsweep
import sweep.config.schema, sweep.launch.execute, trainers.config.run_config
from hydra.core.plugins import Plugins
from sweep.config import hydra_patches
Plugins.instance()
hydra_patches._ask_mode = lambda *_, **__: None
program = sys.argv[1]
for directory, arguments in json.load(sys.stdin):
    if os.fork():
        code = os.waitstatus_to_exitcode(os.wait()[1])
        open(f"{directory}/code", "w").write(str(code))
        continue
    os.chdir(directory)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")
    os._exit(99)
"""


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """BAD_INPUT, typed one after the other: exit status, output and errors are files in a directory for each.

    Forked where all that takes long to load is loaded, which is more than half of what they cost. That nobody gives
    hydra.mode is taken for granted: Hydra composes the whole of a config to find out, and then again.
    """
    found = {arguments: tmp_path_factory.mktemp("typed") for arguments, _ in BAD_INPUT}
    done = subprocess.run(
        [sys.executable, "-c", TYPED, str(ROOT / "multirun.py")],
        cwd=ROOT,
        input=json.dumps([(str(directory), shlex.split(arguments)) for arguments, directory in found.items()]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return found


@pytest.mark.parametrize(("arguments", "line"), BAD_INPUT)
def test_bad_input_is_one_line_and_exit_status_2(typed: dict[str, Path], arguments: str, line: str) -> None:
    code, out, err = ((typed[arguments] / name).read_text() for name in ("code", "out", "err"))
    assert (code, out) == ("2", "")
    assert re.fullmatch(line + "\n", err), err
    assert {path.name for path in typed[arguments].iterdir()} <= {"code", "out", "err", "data"}  # prepared data stays


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
    assert "optimizer=sgd:\n" in out and "  lr: 0.1                       # base rate; " in out
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
        (["compressor=topk"], ["compressor=topk:", "  ratio: 0.01  .*# of the elements that are kept, .*"], "lr:"),
        (["compressor=none"], ["compressor=none:"], "lr:"),
        (
            ["compressor=dgc_topk", "compressor.ratio=0.5"],
            ["compressor=dgc_topk, which is topk ratio=0.001 count=floor_plus_one:", "  ratio: 0.5  .*# of the .*"],
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
            [f"optimizer=sgd,adam,{name}" for name in ["adamw", "dgc_sgd", "lars", "onebit_adam", "signum"]],
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
        presets = compressors.presets() if group == "compressor" else written_presets(group)
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
            fields = {field.name: default(field) for field in dataclasses.fields(cls) if field.init}
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
