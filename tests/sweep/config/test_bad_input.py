"""Commands that cannot work: each is one line, exit status 2, and leaves no file."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.thorough

BAD_INPUT = [
    ("workers=0", "workers=0: valid is an integer from 1 to 4096"),
    ("workers=two", "workers=two: valid is an integer from 1 to 4096"),
    ("-m workers=2,two", "workers=2,two: valid is an integer from 1 to 4096"),
    ("compressor=foo", "compressor=foo: valid is one of the [0-9]+ that `python multirun.py --help` lists"),
    ("-m compressor=qsgd,fooo", "compressor=fooo: valid is one of the [0-9]+ that `python multirun.py --help` lists"),
    ("compressor=qsdg", "compressor=qsdg: did you mean qsgd. valid is one of the .*"),
    ("workers=1 optimizer=null", "optimizer=null: valid is one of the [0-9]+ that `python multirun.py --help` lists"),
    ("compressor=null", "compressor=null: valid is one of the [0-9]+ that `python multirun.py --help` lists"),
    ("-m compressor=none,3", "compressor=none,3: valid is one of the [0-9]+ that .*"),
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
    ("+sweep.foo=1", "sweep.foo: unknown key; valid is one of the 29 keys that .*"),
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
    ("algorithm=choco workers=1", "workers=1 with algorithm=choco: a worker alone has no .*; valid is workers=2 .*"),
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
import gc, json, os, runpy, sys
import hydra.main, hydra.utils, hydra_plugins.gradsweep
import sweep.config.schema, sweep.launch.execute, trainers.config.run_config
from hydra.core.plugins import Plugins
from hydra._internal.hydra import Hydra
Plugins.instance()
Hydra.get_mode = lambda self, config_name, overrides: None
gc.disable()  # a third of the time of a short process
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


PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_bad_input_is_one_line_and_exit_status_2(tmp_path: Path, part: int) -> None:
    """Commands are typed one after the other, forked where all that takes long to load is loaded.

    Loading is more than half of their cost. hydra.mode is not asked for: Hydra composes a whole config to find out.
    """
    cases = BAD_INPUT[part::PARTS]
    directories = [tmp_path / str(number) for number in range(len(cases))]
    for directory in directories:
        directory.mkdir()
    typed = [shlex.split(arguments) for arguments, _ in cases]
    done = subprocess.run(
        [sys.executable, "-c", TYPED, str(ROOT / "multirun.py")],
        cwd=ROOT,
        input=json.dumps(list(zip(map(str, directories), typed, strict=True))),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    wrong = []
    for directory, (arguments, line) in zip(directories, cases, strict=True):
        code, out, err = ((directory / name).read_text() for name in ("code", "out", "err"))
        left = {path.name for path in directory.iterdir()} - {"code", "out", "err", "data"}  # prepared data stays
        if (code, out) != ("2", "") or not re.fullmatch(line + "\n", err) or left:
            wrong.append(f"{arguments}: exit status {code}, leaves {sorted(left)}: {out}{err}")
    assert not wrong, "\n".join(wrong)
