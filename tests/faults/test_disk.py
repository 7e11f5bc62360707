"""A full disk, a full inode table, a disk that can only be read, a quota: small file systems, mounted by root."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweep import failures, snapshot
from sweep import run as names
from sweep.run import UsageError, runs_of
from tests.conftest import PLAYED, QUICK, Program
from tests.faults.conftest import StandInOf, ranks
from trainers.causes import cause_of

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
    assert f"({failures.DISK}: the MPI launcher exited with 1; no space is left on the disk)" in out
    assert "retry 1 of 1" in out
    assert not any(run.result() for run in sweep.runs)

    for path in (disk / "sweep").glob("fill*"):
        path.unlink()
    (tmp_path / "room").touch()
    code, out = sweep.finish()
    assert code == 0, out
    for run in sweep.runs:
        assert run.status() == names.DONE and run.path("completed").read_text() == "once\n"
        assert not list(run.directory.glob(".*"))


def test_logs_go_on_when_there_is_room_again(stand_in: StandInOf, mount: Mount) -> None:
    """Ranks that talk meanwhile neither wait nor end."""
    disk = mount("size=3m")
    script = (
        'echo begun; while [ ! -s "$GRADSWEEP_ATTEMPT/stdout.log" ]; do sleep 0.05; done; '
        f"{BEGUN}"
        'head -c 100000000 /dev/zero > "$4/../../fill"; head -c 100000 /dev/zero | tr "\\0" x; '
        'sleep 0.5; rm "$4/../../fill"; sleep 0.2; echo; echo room; '
    )
    sweep = stand_in(script + ranks(1, 0), directory=disk / "sweep")
    code, out = sweep.finish()
    assert code == 0, out
    text = (sweep.run.attempt(1) / names.STDOUT).read_text()
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
    assert f"({failures.DISK}: " in out


def test_a_disk_that_can_only_be_read(start: Callable[..., Program], mount: Mount) -> None:
    disk = mount("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    code, out, err = start("-m", f"hydra.sweep.dir={disk}/sweep", *QUICK, without=PLAYED).end(240)
    assert (code, out) == (2, "")
    assert err == f"hydra.sweep.dir={disk}/sweep: Read-only file system; valid is a directory that can be written\n"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_rank_tells_of_a_full_disk_and_of_a_quota(number: int) -> None:
    """However deep: torch's writer and the checkpoint's have errors of their own."""
    error = OSError(number, os.strerror(number))
    assert cause_of(error) == failures.DISK
    assert cause_of(RuntimeError(f"unexpected pos: {os.strerror(number)}")) == failures.DISK
    try:
        try:
            raise error
        except OSError:
            raise ValueError("while saving")  # noqa: B904
    except ValueError as second:
        assert cause_of(second) == failures.DISK


def test_a_snapshot_without_room_names_where_it_was_to_go(mount: Mount, tmp_path: Path) -> None:
    disk, code = mount("size=256k"), tmp_path / "code"
    (code / "sweep").mkdir(parents=True)
    (code / "sweep" / "large.py").write_bytes(bytes(1_000_000))
    expected = rf"^sweep.snapshot=true: {disk}/.code/.*/large.py: No space left on device; valid is .*$"
    with pytest.raises(UsageError, match=expected):
        snapshot.take(snapshot.read(code), disk / ".code")
    assert not list((disk / ".code").glob(".*/"))  # nothing half is left


def test_what_finds_no_room_to_start_has_failed_for_the_disk() -> None:
    full, missing = (OSError(number, os.strerror(number)) for number in (errno.EDQUOT, errno.ENOENT))
    assert failures.of_start(full)[1] == failures.DISK and failures.of_start(missing)[1] == failures.START


def test_a_disk_is_full_when_nothing_can_be_added(mount: Mount, tmp_path: Path) -> None:
    disk = mount("size=1m")
    assert not failures.is_full(disk) and not failures.is_full(tmp_path / "nowhere")
    (disk / "file").write_bytes(bytes(1_000_000))
    assert failures.is_full(disk)
    shutil.rmtree(disk, ignore_errors=True)
