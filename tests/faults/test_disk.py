"""A full disk or inode table, a quota, a disk that fails or can only be read: what commands say, and how runs end.

Where it matters whether a file system does so, one is made, which only root may mount; else a call is made to fail.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gradsweep import failure_causes, run_directory
from gradsweep.disk import disk_errors as disks
from gradsweep.errors import UsageError
from gradsweep.run_directory import runs_of
from reports.__main__ import main as reports
from sweep.__main__ import main
from sweep.attempts import failures
from sweep.console.console import Output
from sweep.directory import requests
from sweep.driver.drive import Drive
from sweep.driver.request_handler import RequestHandler
from sweep.launch import conclude, opening
from sweep.provenance import code_snapshot
from tests.conftest import PLAYED, QUICK, ROOT, Program
from tests.faults.conftest import StandInOf, ranks
from tests.reports.fabricate import nine
from tests.sweep.fakes import SUCCEED, lay_out
from trainers.training.failure_cause import find_cause

pytestmark = pytest.mark.thorough

Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mount a tmpfs with options; skips where that is not allowed."""
    mounted = []

    def make(options: str) -> Path:
        place = tmp_path / "disk"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"needs a small file system of its own, which only root may mount: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield make
    for place in mounted:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.fixture
def quota(tmp_path: Path) -> Iterator[Mount]:
    """A directory with a quota, of a btrfs in a file; skips where that cannot be made."""
    disk, made = tmp_path / "disk", []

    def make(limit: str) -> Path:
        image, place = tmp_path / "image", disk / "limited"
        disk.mkdir()
        with image.open("wb") as file:
            file.truncate(200_000_000)
        for command in (
            f"mkfs.btrfs --quiet {shlex.quote(str(image))}",
            f"mount -o loop {shlex.quote(str(image))} {shlex.quote(str(disk))}",
            f"btrfs quota enable {shlex.quote(str(disk))}",
            f"btrfs subvolume create {shlex.quote(str(place))}",
            f"btrfs qgroup limit {limit} {shlex.quote(str(place))}",
        ):
            done = subprocess.run(command, shell=True, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"needs btrfs-progs, and root to mount: {done.stderr.strip()}")
            if command.startswith("mount"):
                made.append(disk)
        return place

    yield make
    for place in made:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


BEGUN = 'until grep -q running "$GRADSWEEP_ATTEMPT/../state.json"; do sleep 0.05; done; '
"""In a script: waits until its run is known to run. Where there is no room for that, it could not be started."""

FILL = {
    "size=3m": 'head -c 100000000 /dev/zero > "$4/../../fill"',
    "quota": 'head -c 100000000 /dev/zero > "$4/../../fill"',
    "nr_inodes=90": 'i=0; while touch "$4/../../fill-$i"; do i=$((i+1)); done; false',
}


@pytest.mark.parametrize("options", FILL)
def test_a_full_disk_fails_what_cannot_be_written_and_a_resume_computes_it(
    stand_in: StandInOf, mount: Mount, quota: Mount, options: str, tmp_path: Path
) -> None:
    """The first runs fill the disk while the sweep goes on; then somebody makes room."""
    disk = quota("3M") if options == "quota" else mount(options)
    fill = f"if [ ! -e {shlex.quote(str(tmp_path / 'room'))} ]; then {BEGUN}{FILL[options]} || exit 1; fi; "
    sweep = stand_in(fill + ranks(5, 0), points=6, directory=disk / "sweep", retries=1)
    sweep.temporary = tmp_path / "tmp"
    sweep.temporary.mkdir()
    sweep.environment["TMPDIR"] = str(sweep.temporary)
    code, out = sweep.finish()
    assert code == 1 and "Traceback" not in out
    trouble = disks.TROUBLE[errno.EDQUOT if options == "quota" else errno.ENOSPC]
    assert f"({failure_causes.DISK}: the MPI launcher exited with 1; {trouble})" in out
    assert "retry 1 of 1" in out
    assert not any(run.result() for run in sweep.runs)

    for path in (disk / "sweep").glob("fill*"):
        path.unlink()
    (tmp_path / "room").touch()
    code, out = sweep.finish()
    assert code == 0, out
    for run in sweep.runs:
        assert run.status() == run_directory.DONE and run.path("completed").read_text() == "once\n"
        assert not list(run.directory.glob(".*"))


def test_logs_go_on_when_there_is_room_again(stand_in: StandInOf, mount: Mount) -> None:
    """Ranks that talk meanwhile neither wait nor end."""
    disk = mount("size=3m")
    script = (
        'echo begun; while [ ! -s "$GRADSWEEP_ATTEMPT/stdout.log" ]; do sleep 0.05; done; '
        f"{BEGUN}"
        'head -c 100000000 /dev/zero > "$4/../../fill"; head -c 100000 /dev/zero | tr "\\0" x; '
        'sleep 2; rm "$4/../../fill"; sleep 1; echo; echo room; '
    )
    sweep = stand_in(script + ranks(1, 0), directory=disk / "sweep")
    code, out = sweep.finish()
    assert code == 0, out
    text = (sweep.run.attempt(1) / run_directory.STDOUT).read_text()
    assert text.startswith("begun\n") and text.endswith("\nroom\n") and "bytes could not be written]" in text


@pytest.mark.mpi
def test_a_training_on_a_full_disk(start: Callable[..., Program], mount: Mount, digits: Path) -> None:
    """Ranks of torch, whose own reasons find no room either."""
    disk = mount("size=3m")
    grid = (
        "-m",
        f"hydra.sweep.dir={disk}/sweep",
        *QUICK,
        "seed=1,2",
        "workers=2",
        "sweep.snapshot=false",
        f"data.root={digits}",
    )
    fill = f'{BEGUN}head -c 100000000 /dev/zero > {disk}/fill; exec "$0" "$@"'
    mpi = f"mpi.command=[sh,-c,'{fill}',mpirun,--oversubscribe,-n,'{{workers}}']"
    code, out, err = start(*grid, mpi, "sweep.retries=0", without=PLAYED).end(240)
    assert code == 1 and "Traceback (most recent call last)" not in err
    for run in runs_of(disk / "sweep"):
        assert run.result() is None
    assert f"({failure_causes.DISK}: " in out


def test_a_disk_that_can_only_be_read(start: Callable[..., Program], mount: Mount) -> None:
    disk = mount("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    code, out, err = start("-m", f"hydra.sweep.dir={disk}/sweep", *QUICK, without=PLAYED).end(240)
    assert (code, out) == (2, "")
    assert err == f"disk: {disk}/sweep: Read-only file system; valid is a directory that can be written\n"


def fill(disk: Path) -> Path:
    """Leave no room on a disk; returns the file to remove."""
    path = disk / "fill"
    with pytest.raises(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return path


def command(*words: str, out: Path | None = None) -> tuple[int, str, str]:
    """`python -m` with these words: exit status, stdout, stderr."""
    with (out or Path(os.devnull)).open("w") as file:
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            stdout=subprocess.PIPE if out is None else file,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    return done.returncode, done.stdout or "", done.stderr


FULL = "disk: {}: No space left on device; make room there, and give the command again\n"


def test_steering_a_sweep_on_a_full_disk_is_a_line(
    mount: Mount, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = mount("size=1m")
    sweep = disk / "sweep"
    runs = lay_out(sweep, [SUCCEED] * 2, snapshot=False)
    filled = fill(disk)
    code, out, err = command("sweep", "cancel", str(sweep))
    assert (code, out) == (2, "") and err == FULL.format(runs[0].path(run_directory.STATE))
    monkeypatch.setattr("sweep.commands.resume.prepare_data", lambda configs: None)
    assert main(["resume", str(sweep), "--quiet"]) == 2
    assert capsys.readouterr() == ("", FULL.format(sweep / run_directory.SWEEP))
    filled.unlink()
    monkeypatch.setattr(opening, "calibrate", dict)
    monkeypatch.setattr(conclude, "write_report", lambda directory, verbosity: True)
    assert main(["resume", str(sweep), "--quiet"]) == 0
    assert [run.status() for run in runs] == [run_directory.DONE] * 2


def test_data_that_find_no_room_are_a_line(mount: Mount) -> None:
    """numpy's own write to a file says only how much was written."""
    disk = mount("size=64k")
    code, out, err = command("trainers.data", "--root", str(disk), "digits")
    assert (code, out) == (2, "") and re.fullmatch(f"disk: {disk}/prepared/.digits.*.npy: No space left .*\n", err)


def test_reports_on_a_full_disk_are_a_line(mount: Mount) -> None:
    disk = mount("size=2m")
    sweep = nine(disk / "sweep")
    fill(disk)
    for words in ((str(sweep), "--no-plots"), (str(sweep),), ("export", "tensorboard", str(sweep))):
        code, _, err = command("reports", *words)
        assert code == 1 and err.startswith(f"reports: disk: {sweep}/") and err.count("\n") == 1
        assert "No space left on device; make room there" in err


@pytest.mark.parametrize(
    "words",
    ["sweep status {}", "sweep watch {}", "reports list {}", "compressors list", "trainers.topology ring --workers 4"],
)
def test_output_that_cannot_be_written_is_a_line(tmp_path: Path, words: str) -> None:
    lay_out(tmp_path / "sweep", [SUCCEED])
    code, _, err = command(*words.format(tmp_path / "sweep").split(), out=Path("/dev/full"))
    assert "Traceback" not in err and "Exception ignored" not in err
    if "watch" in words:  # goes on without
        assert code == 1
    else:
        assert code and "standard output: No space left on device" in err and err.count("\n") == 1


@pytest.fixture(params=disks.TROUBLE, ids=errno.errorcode.get)
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """No file reaches the disk any more, for one of all reasons; returns it."""
    number = request.param

    def fsync(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    return f"{os.strerror(number)}; "


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Laid out before anything breaks, if it comes first."""
    lay_out(tmp_path / "sweep", [SUCCEED] * 2, snapshot=False)
    return tmp_path / "sweep"


@pytest.mark.parametrize(("verb", "file"), [("cancel", "runs/seed=0-.*/state.json"), ("resume", run_directory.SWEEP)])
def test_what_steers_a_sweep_says_why_a_file_cannot_be_written(
    sweep: Path,
    broken: str,
    verb: str,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sweep.commands.resume.prepare_data", lambda configs: None)
    assert main([verb, str(sweep)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and re.fullmatch(f"disk: {sweep}/{file}: {broken}.*\n", err)


def test_a_report_says_why_it_cannot_be_written(
    tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fsync = os.fsync
    monkeypatch.undo()
    sweep = nine(tmp_path / "sweep")
    monkeypatch.setattr(os, "fsync", fsync)
    assert reports([str(sweep), "--no-plots", "--quiet"]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"reports: disk: {sweep}/") and broken in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EIO", "EROFS"])
def test_a_sweep_that_cannot_be_laid_out_is_a_line(start: Callable[..., Program], tmp_path: Path, name: str) -> None:
    paths = os.pathsep.join(map(str, (ROOT / "tests/faults/broken", ROOT)))
    grid = ("-m", "hydra.sweep.dir=sweep", *QUICK, "seed=1,2")
    code, out, err = start(*grid, without=PLAYED, BROKEN_FSYNC=name, PYTHONPATH=paths).end()
    assert (code, out) == (2, "")
    assert re.fullmatch(f"disk: sweep/runs.json: {os.strerror(getattr(errno, name))}; .*\n", err)


def test_a_launcher_outlives_a_request_that_it_cannot_write_down(
    sweep: Path, broken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"directory": sweep, "console": Output(), "stopped": False}
    drive = SimpleNamespace(**given, list_active=dict, ask_to_end=lambda runs, reason: None)
    heed = RequestHandler(cast(Drive, drive))
    (sweep / requests.FOLDER).mkdir()
    asked = {"kind": requests.CANCEL, "runs": None, "by": "a test"}
    path = sweep / requests.FOLDER / "1.json"
    path.write_text(json.dumps(asked))
    heed()
    assert not path.exists()
    assert re.search(f"disk: {sweep}/runs/.*: {broken}", capsys.readouterr().out)


@pytest.mark.parametrize("number", disks.TROUBLE)
def test_a_rank_tells_of_a_disk_that_cannot_be_written(number: int) -> None:
    """However deep: torch's writer and the checkpoint's have errors of their own."""
    error = OSError(number, os.strerror(number))
    assert find_cause(error) == failure_causes.DISK
    assert find_cause(RuntimeError(f"unexpected pos: {os.strerror(number)}")) == failure_causes.DISK
    try:
        try:
            raise error
        except OSError:
            raise ValueError("while saving")  # noqa: B904
    except ValueError as second:
        assert find_cause(second) == failure_causes.DISK


def test_a_snapshot_without_room_names_where_it_was_to_go(mount: Mount, tmp_path: Path) -> None:
    disk, code = mount("size=256k"), tmp_path / "code"
    (code / "sweep").mkdir(parents=True)
    (code / "sweep" / "large.py").write_bytes(bytes(1_000_000))
    expected = rf"^sweep.snapshot=true: {disk}/.code/.*/large.py: No space left on device; valid is .*$"
    with pytest.raises(UsageError, match=expected):
        code_snapshot.take(code_snapshot.read(code), disk / ".code")
    assert not list((disk / ".code").glob(".*/"))  # nothing half is left


def test_what_finds_no_room_to_start_has_failed_for_the_disk() -> None:
    for number in (*disks.TROUBLE, errno.ENOENT):
        cause = failure_causes.DISK if number in disks.TROUBLE else failure_causes.START
        assert failures.explain_start_error(OSError(number, os.strerror(number)))[1] == cause


def test_an_attempt_that_says_nothing_has_failed_for_the_disk_where_that_fails(tmp_path: Path, broken: str) -> None:
    reason, cause = failures.explain_exit(tmp_path, 1)
    assert cause == failure_causes.DISK and reason.startswith("the MPI launcher exited with 1; ")


def test_a_disk_is_full_when_nothing_can_be_added(mount: Mount, tmp_path: Path) -> None:
    disk = mount("size=1m")
    assert failures.find_disk_trouble(disk) is None is failures.find_disk_trouble(tmp_path / "nowhere")
    (disk / "file").write_bytes(bytes(1_000_000))
    assert failures.find_disk_trouble(disk) == "no space is left on the disk"
    shutil.rmtree(disk, ignore_errors=True)
