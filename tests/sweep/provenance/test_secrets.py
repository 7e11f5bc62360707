"""Secrets are told by their names, and are in no file of a sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gradsweep import files, run_directory
from gradsweep.errors import UsageError
from gradsweep.run_directory import runs_of
from sweep.directory import run_identity
from sweep.provenance import secrets
from sweep.settings.mpi import MpiSettings
from sweep.settings.slurm_launcher import SlurmOptions
from sweep.settings.sweep import SweepSettings
from tests.conftest import ROOT

SECRET = "hunter2hunter2"  # noqa: S105
Multirun = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    "name",
    ["WANDB_API_KEY", "X_TOKEN", "MYTOKEN", "tokens", "db-password", "AWS_SECRET_ACCESS_KEY", "APIKEY", "ssh_key"]
    + ["credentials", "MLFLOW_TRACKING_PASSWORD", "DB_PASS", "HTTP_AUTH", "mpi.environment.X_TOKEN", "--token"],
)
def test_names_of_secrets(name: str) -> None:
    assert secrets.is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["TOKENIZERS_PARALLELISM", "MONKEY", "KEYBOARD", "OMPI_MCA_btl", "author", "bypass", "PASSES", "compressor"]
    + ["TOKEN_FILE", "ssh_key_path", "optimizer.lr", "measure_every"],
)
def test_names_of_what_is_none(name: str) -> None:
    assert not secrets.is_secret(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("X_TOKEN=abc", "X_TOKEN=***"),
        ("export A_KEY='a b c' B=1", "export A_KEY=*** B=1"),
        ('export A_KEY="a b"', "export A_KEY=***"),
        ("{X_TOKEN: abc, B: 1}", "{X_TOKEN: ***, B: 1}"),
        ("ALL,A_KEY=abc,B=1", "ALL,A_KEY=***,B=1"),
        ("--token=abc", "--token=***"),
        ("a=1 X_TOKEN = abc", "a=1 X_TOKEN = ***"),
        ("export A_KEY=$(cat ~/.key)", "export A_KEY=$(cat ~/.key)"),
        ('export A_KEY="$OTHER"', 'export A_KEY="$OTHER"'),
        ("A_KEY=`pass show a`", "A_KEY=`pass show a`"),
        ("source ~/.keys", "source ~/.keys"),
        ("[[optimizer.lr,workers]]", "[[optimizer.lr,workers]]"),
        ("X_TOKEN=***", "X_TOKEN=***"),
        ("TOKENIZERS_PARALLELISM=false", "TOKENIZERS_PARALLELISM=false"),
    ],
)
def test_a_text_loses_what_it_gives_by_name(text: str, shown: str) -> None:
    assert secrets.hide(text) == shown


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("+mpi.environment.X_TOKEN=a b,c", "+mpi.environment.X_TOKEN=***"),
        ("hydra.job.env_set={X_TOKEN:abc}", "hydra.job.env_set={X_TOKEN:***}"),
        ("~mpi.environment.X_TOKEN", "~mpi.environment.X_TOKEN"),
        ("mpi.environment.X_TOKEN=", "mpi.environment.X_TOKEN="),
        ("compressor=qsgd,none", "compressor=qsgd,none"),
    ],
)
def test_an_override_loses_all_of_its_value(word: str, shown: str) -> None:
    assert secrets.hide_in_word(word) == shown


def test_the_overrides_of_a_run_have_none() -> None:
    (point,) = run_identity.name_points([{}], [{"compressor": "qsgd", "hydra.job.env_set.X_TOKEN": SECRET}])
    assert point.overrides == ("compressor=qsgd", "hydra.job.env_set.X_TOKEN=***")


def test_a_long_text_takes_no_time() -> None:
    text = "a" * 200_000 + "key" * 1000
    assert secrets.hide(text) == text


@pytest.mark.parametrize(
    ("check", "key"),
    [
        (lambda: MpiSettings(["sh"], {"A": "1", "X_TOKEN": SECRET}).check(), "mpi.environment.X_TOKEN=***: "),
        (lambda: MpiSettings(["sh"], {"A": f"X_TOKEN={SECRET}"}).check(), "mpi.environment.A=X_TOKEN=***: "),
        (lambda: MpiSettings(["mpirun", "-x", f"X_KEY={SECRET}"]).check(), "mpi.command=X_KEY=***: "),
        (lambda: SweepSettings(on_end=["echo", f"--token={SECRET}"]).check(), "sweep.on_end=--token=***: "),
        (lambda: SlurmOptions.parse({"setup": [f"export X_KEY={SECRET}"]}), "hydra.launcher.setup=export X_KEY=***: "),
        (lambda: SlurmOptions.parse({"export": f"ALL,X_KEY={SECRET}"}), "hydra.launcher.export=ALL,X_KEY=***: "),
    ],
)
def test_what_would_be_written_is_refused_in_a_line_without_it(check: Callable[[], object], key: str) -> None:
    with pytest.raises(UsageError) as refused:
        check()
    line = str(refused.value)
    assert line.startswith(key) and "valid is" in line and SECRET not in line and "\n" not in line


def test_what_a_shell_looks_up_is_not_refused() -> None:
    SlurmOptions.parse({"setup": ["export X_KEY=$(cat ~/.key)", "source ~/.secrets"], "export": "ALL,X_KEY"})
    MpiSettings(["mpirun", "-x", "X_KEY"], {"TOKENIZERS_PARALLELISM": "false", "TOKEN_FILE": "/a"}).check()


@pytest.mark.parametrize(
    "override",
    [
        f"+mpi.environment.X_TOKEN={SECRET}",
        f"sweep.on_end=[echo,'--token={SECRET}']",
        f"+hydra.job.env_set.X_TOKEN={SECRET}",
    ],
)
def test_a_command_with_a_secret_leaves_nothing(multirun: Multirun, tmp_path: Path, override: str) -> None:
    code, out, err = multirun("-m", "experiment=quick", "workers=1,2", "hydra.sweep.dir=s", override)
    assert code == 2 and err.count("\n") == 1 and "a secret, by its name" in err, out + err
    assert SECRET not in out + err and not (tmp_path / "s").exists()


def test_a_secret_of_the_environment_gets_to_the_ranks_and_into_no_file(multirun: Multirun, tmp_path: Path) -> None:
    """Also one that Hydra sets for a single run: then it is typed, but belongs to no config of a run."""
    rank = tmp_path / "rank"
    rank.write_text(
        "#!/bin/sh\nfor last; do :; done\n"
        f'[ "$X_TOKEN" = {SECRET}1 ] && [ "$Y_TOKEN" = {SECRET}2 ] || exit 3\n'
        'echo \'{"status": "done", "accuracy": 0.5}\' > "$last/result.json"\n'
    )
    rank.chmod(0o755)
    typed = (f'mpi.command=["{rank}","{{workers}}"]', "experiment=quick", "workers=1", "hydra.sweep.dir=s")
    code, out, err = multirun(*typed, f"+hydra.job.env_set.Y_TOKEN={SECRET}2", without=["data"], X_TOKEN=f"{SECRET}1")
    assert code == 0, out + err
    (run,) = runs_of(tmp_path / "s")
    command = files.read_json(run.attempt(1) / run_directory.PROVENANCE)["command"]  # type: ignore[index]
    assert "Y_TOKEN=***" in command and str(ROOT / "multirun.py") in command
    written = [path for path in (tmp_path / "s").rglob("*") if path.is_file() and ".code" not in path.parts]
    assert run.path(run_directory.STATE) in written and tmp_path / "s" / run_directory.SWEEP in written
    held = [path for path in written if SECRET.encode() in _without_the_diff(path)]
    assert not held


def _without_the_diff(path: Path) -> bytes:
    """What a file says; of sweep.yaml not the difference to the commit, in which this very file may stand."""
    said = path.read_bytes()
    if path.name not in (run_directory.SWEEP, "report.html"):
        return said
    return said.replace(f'SECRET = "{SECRET}"'.encode(), b"").replace(f'SECRET = \\"{SECRET}\\"'.encode(), b"")
