"""Leases of cores and GPUs: nothing is double-booked, nobody is left waiting for ever, nothing outlives its holder."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradsweep.errors import UsageError
from sweep.executors import slots as module
from sweep.executors.lock_directory import VARIABLE, LockDirectory, find_default_path
from sweep.executors.slots import LockedSlots
from sweep.system.lease import Lease
from tests.conftest import PLAYED, QUICK, Program, eventually

FOUR = [0, 1, 2, 3]
Open = Callable[..., LockedSlots]


@pytest.fixture
def open_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Each call is another sweep; a lock of one keeps the others out also within one process."""
    monkeypatch.setattr(module, "RETRY_S", (0.0, 0.0))
    opened: list[LockedSlots] = []

    def begin(cores: list[int] = FOUR, **options: object) -> LockedSlots:
        opened.append(LockedSlots(cores, place=tmp_path / "slots", **options))  # type: ignore[arg-type]
        return opened[-1]

    yield begin
    for slots in opened:
        slots.close()


def leased(slots: LockedSlots, *wanted: int) -> Lease:
    lease = slots.lease(*wanted)
    assert lease is not None
    return lease


def elsewhere(place: Path, code: str) -> subprocess.Popen[str]:
    """Python in another process, with `slots` of the same four cores; what it prints last is `ready`."""
    imports = (
        "import os, sys, time, subprocess; from pathlib import Path; from sweep.executors.slots import LockedSlots"
    )
    lines = f"{imports}\n{code}".replace("SLOTS", f"LockedSlots({FOUR}, place=Path({str(place)!r}), sweep='theirs')")
    process = subprocess.Popen([sys.executable, "-c", lines], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


HOLD = """
slots = SLOTS
lease = slots.lease(2)
print("ready", flush=True)
time.sleep(1000)
"""


def test_cores_are_leased_to_one_run_at_a_time(open_slots: Open) -> None:
    slots = open_slots([3, 1, 2])
    first = leased(slots, 2)
    assert first.cores == (1, 2)
    assert slots.lease(2) is None and slots.available == (1, 0)
    assert leased(slots, 1).cores == (3,)
    slots.release(first)
    assert slots.leased_cores == [3]
    assert leased(slots, 2).cores == (1, 2)


def test_a_run_larger_than_the_machine_gets_all_of_it(open_slots: Open) -> None:
    slots = open_slots([0, 1])
    assert leased(slots, 8).cores == (0, 1)
    assert slots.lease(1) is None


def test_two_sweeps_never_have_the_same_core(open_slots: Open) -> None:
    one, other = open_slots(), open_slots([2, 3, 4])
    assert leased(one, 3).cores == (0, 1, 2)
    assert leased(other, 2).cores == (3, 4)
    assert one.lease(1) is None and other.lease(1) is None


def test_gpus_are_slots_too(open_slots: Open) -> None:
    one, other = open_slots(gpus=["0", "MIG-a"]), open_slots(gpus=["0", "MIG-a", "2"])
    first = leased(one, 1, 1)
    assert first.gpus == ("0",) and first.cores == (0,)
    second = leased(other, 1, 2)
    assert second.gpus == ("MIG-a", "2") and second.cores == (1,)
    assert one.lease(1, 1) is None and one.leased_cores == [0], "no core is held by what waits for a GPU"
    assert one.available == (2, 0)
    other.release(second)
    assert leased(one, 1, 1).gpus == ("MIG-a",)


def test_all_or_nothing(open_slots: Open) -> None:
    """Two sweeps that each had half of what they want would wait for ever."""
    one, other = open_slots(), open_slots()
    half, rest = leased(one, 2), leased(other, 2)
    assert one.lease(4) is None and other.lease(4) is None
    one.release(half)
    assert one.lease(4) is None and other.lease(4) is None
    other.release(rest)
    assert other.lease(4) is None, "who has waited longer is first"
    whole = leased(one, 4)
    one.release(whole)
    assert leased(other, 4).cores == (0, 1, 2, 3)


def test_a_large_run_gets_its_cores_though_another_sweep_starts_small_ones_all_the_time(open_slots: Open) -> None:
    large, small = open_slots(), open_slots()
    running = [leased(small, 1) for _ in range(4)]
    assert large.lease(3) is None
    for round_, ends in enumerate(running):
        small.release(ends)
        again = small.lease(1)
        assert again is None or round_ == 3, "it would have taken what the large one waits for"
    assert leased(large, 3).cores == (0, 1, 2)


def test_nor_does_a_run_that_overtakes_its_own_queue_take_what_another_sweep_waits_for(open_slots: Open) -> None:
    one, other = open_slots(), open_slots()
    first = leased(one, 3)
    assert one.lease(4) is None, "one waits longer than the other"
    assert other.lease(2) is None
    assert one.lease(1, first=False) is None
    one.release(first)
    assert other.lease(2) is None
    one.withdraw_ticket()
    assert leased(other, 2).cores == (0, 1)


def test_what_no_older_one_needs_may_be_taken(open_slots: Open) -> None:
    older, younger = open_slots([0, 1]), open_slots()
    third = open_slots()
    has = leased(third, 1)
    assert has.cores == (0,)
    assert older.lease(2) is None
    assert leased(younger, 2).cores == (2, 3), "the older one could not use these"
    assert younger.lease(1) is None
    third.release(has)
    assert leased(older, 2).cores == (0, 1)


def test_more_than_the_older_one_needs_may_be_taken(open_slots: Open) -> None:
    older, younger, third = open_slots(), open_slots(), open_slots()
    has = leased(third, 4)
    assert older.lease(1) is None
    third.release(has)
    assert leased(younger, 3).cores == (1, 2, 3)
    assert leased(older, 1).cores == (0,)


def test_a_run_that_gives_up_is_waited_for_no_longer(open_slots: Open, tmp_path: Path) -> None:
    older, younger = open_slots(), open_slots()
    has = leased(younger, 1)
    assert older.lease(4) is None and younger.lease(1) is None
    older.withdraw_ticket()
    assert leased(younger, 1)
    younger.release(has)
    assert not list((tmp_path / "slots").glob("ticket-*"))


def test_a_limit_of_its_own_keeps_nobody_waiting(open_slots: Open) -> None:
    modest, other = open_slots(most=2), open_slots()
    assert modest.total == 2
    leased(modest, 8)
    assert modest.lease(1) is None
    assert leased(other, 2).cores == (2, 3)


def test_a_killed_process_holds_nothing(open_slots: Open, tmp_path: Path) -> None:
    slots = open_slots()
    process = elsewhere(tmp_path / "slots", HOLD)
    try:
        assert slots.lease(3) is None and slots.available == (2, 0)
        assert slots.list_others() == [f"pid {process.pid} (theirs)"]
    finally:
        process.kill()
        process.wait()
    assert leased(slots, 3).cores == (0, 1, 2)


def test_the_ticket_of_a_killed_process_is_thrown_away(open_slots: Open, tmp_path: Path) -> None:
    slots = open_slots()
    has = leased(slots, 1)
    process = elsewhere(tmp_path / "slots", HOLD.replace("lease(2)", "lease(4)"))
    try:
        assert slots.lease(1) is None
        assert slots.list_others() == [f"pid {process.pid} (theirs)"], "who has waited longer is waited for as well"
    finally:
        process.kill()
        process.wait()
    assert leased(slots, 1)
    slots.release(has)
    assert leased(slots, 3)


def test_cores_stay_leased_while_what_runs_on_them_outlives_the_launcher(open_slots: Open, tmp_path: Path) -> None:
    slots = open_slots()
    code = """
slots = SLOTS
lease = slots.lease(2)
child = subprocess.Popen(["sleep", "1000"], pass_fds=lease.descriptors)
Path(PLACE, "child").write_text(str(child.pid))
print("ready", flush=True)
time.sleep(1000)
""".replace("PLACE", repr(str(tmp_path)))
    process = elsewhere(tmp_path / "slots", code)
    child = int((tmp_path / "child").read_text())
    try:
        process.kill()
        process.wait()
        assert slots.lease(3) is None and slots.available == (2, 0)
    finally:
        os.kill(child, signal.SIGKILL)
    eventually(lambda: slots.lease(3))


def test_a_stopped_process_stops_nobody_else(open_slots: Open, tmp_path: Path) -> None:
    """It may have been stopped (Ctrl-Z) while it was the only one that could take locks: nobody hangs."""
    locks = LockDirectory(tmp_path / "slots")
    slots = open_slots()
    with locks.hold_master() as alone:
        assert alone
        assert slots.lease(1) is None and slots.list_others() == []
    assert leased(slots, 1)


WORKER = """
import random
draw = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else os.getpid())
slots = SLOTS
print("ready", flush=True)
deadline, leases, count = time.monotonic() + 1.5, [], 0
while time.monotonic() < deadline or leases:
    if leases and (draw.random() < 0.5 or time.monotonic() >= deadline):
        lease = leases.pop(draw.randrange(len(leases)))
        for core in lease.cores:
            os.rmdir(Path(PLACE, f"using-{core}"))
        slots.release(lease)
    elif (lease := slots.lease(draw.choice([1, 1, 2, 4]), first=draw.random() < 0.8)) is not None:
        for core in lease.cores:
            os.mkdir(Path(PLACE, f"using-{core}"))  # fails if somebody else is there
        leases.append(lease)
        count += 1
    time.sleep(0.001 * draw.random())
assert count > 3, count
"""


def test_many_processes_at_random(tmp_path: Path) -> None:
    code = WORKER.replace("PLACE", repr(str(tmp_path)))
    processes = [elsewhere(tmp_path / "slots", code) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert not list(tmp_path.glob("using-*"))


def test_shared_cores_are_waited_for_by_nobody_and_seen_by_all(open_slots: Open) -> None:
    fair, sharing = open_slots(), open_slots(share_cores=True)
    run = leased(fair, 4)
    assert not fair.is_disturbed(run)
    one, two = leased(sharing, 8), leased(sharing, 8)
    assert one.is_shared and one.cores == (0, 1, 2, 3) and not run.is_shared
    assert sharing.leased_cores == []
    assert fair.is_disturbed(run)
    sharing.release(one)
    assert fair.is_disturbed(run)
    sharing.release(two)
    assert not fair.is_disturbed(run)


def test_only_runs_on_the_shared_cores_are_disturbed(open_slots: Open) -> None:
    fair, sharing = open_slots(), open_slots([2, 3], share_cores=True)
    first, second = leased(fair, 2), leased(fair, 2)
    leased(sharing, 1)
    assert not fair.is_disturbed(first) and fair.is_disturbed(second)


def test_gpus_of_runs_that_share_cores_are_their_own(open_slots: Open) -> None:
    one, other = open_slots(gpus=["0"], share_cores=True), open_slots(gpus=["0"], share_cores=True)
    assert leased(one, 1, 1).gpus == ("0",)
    assert other.lease(1, 1) is None
    assert other.lease(1, 0) is not None


@pytest.mark.parametrize("kind", ["link", "file", "open", "missing parent"])
def test_a_directory_that_others_could_change_is_refused(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "slots"
    if kind == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "real")
    elif kind == "file":
        place.touch()
    elif kind == "open":
        place.mkdir()
        place.chmod(0o777)
    else:
        place = tmp_path / "no" / "slots"
    with pytest.raises(UsageError, match=f"^{VARIABLE}={place}: .*valid is a directory of your own") as raised:
        LockedSlots([0], place=place)
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir(mode=0o700)
    os.chown(tmp_path / "slots", 12345, 12345)
    with pytest.raises(UsageError, match="belongs to another user"):
        LockedSlots([0], place=tmp_path / "slots")


def test_a_link_in_place_of_a_lock_is_not_followed(open_slots: Open, tmp_path: Path) -> None:
    slots = open_slots()
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "slots" / "core-0").symlink_to(tmp_path / "victim")
    assert leased(slots, 1).cores == (1,)
    assert (tmp_path / "victim").read_text() == "precious"


def test_the_usual_place_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert find_default_path().name == f"gradsweep-slots-{os.geteuid()}"
    assert tmp_path not in find_default_path().parents, "sweeps with different TMPDIR share the machine, too"


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_a_removed_directory_is_made_again_with_what_is_leased(open_slots: Open, tmp_path: Path, looks: int) -> None:
    """By somebody who cleans /tmp: what runs keeps its cores."""
    slots = open_slots()
    lease = leased(slots, 3)
    for path in (tmp_path / "slots").iterdir():
        path.unlink()
    (tmp_path / "slots").rmdir()
    if looks == 1:
        assert not slots.is_disturbed(lease)
    if looks == 2:
        assert slots.list_others() == []
    assert leased(slots, 1).cores == (3,)
    assert open_slots().lease(1) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"core": 3, "gpu": {}}', "\x00" * 100])
def test_whatever_is_in_the_files_of_others(open_slots: Open, tmp_path: Path, text: str) -> None:
    slots, other = open_slots(), open_slots()
    leased(other, 4)
    assert other.lease(4) is None
    for path in (tmp_path / "slots").iterdir():
        path.write_text(text)
    assert slots.lease(1) is None
    assert all(each.startswith("pid ") for each in slots.list_others())


def test_looks_at_other_sweeps_are_rare(open_slots: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits for hours is polled many times a second."""
    slots, other = open_slots(), open_slots()
    leased(other, 4)
    monkeypatch.setattr(module, "RETRY_S", (1000.0, 1000.0))
    assert slots.lease(1) is None
    looked = []
    monkeypatch.setattr(slots._locks, "take", lambda *names, **options: looked.append(names))
    for _ in range(100):
        assert slots.lease(1) is None
    assert not looked


def test_random_leases_of_two_sweeps_end(open_slots: Open) -> None:
    """Whatever the order: everything that is asked for is had in the end, the oldest wish first."""
    draw = random.Random(3)
    sweeps = [open_slots(), open_slots()]
    queues = [[draw.randint(1, 4) for _ in range(30)] for _ in sweeps]
    running: list[tuple[LockedSlots, Lease]] = []
    for _ in range(10_000):
        place = draw.randrange(2)
        if queues[place] and (lease := sweeps[place].lease(queues[place][0])) is not None:
            queues[place].pop(0)
            running.append((sweeps[place], lease))
        cores = [core for _, lease in running for core in lease.cores]
        assert len(cores) == len(set(cores)) <= 4
        if running and draw.random() < 0.3:
            slots, lease = running.pop(draw.randrange(len(running)))
            slots.release(lease)
        if not any(queues):
            break
    assert not any(queues)


RANK = """#!/bin/sh
for last; do :; done
echo '{"status": "done", "accuracy": 0.5}' > "$last/result.json"
"""


def test_a_command_says_whom_it_waits_for_and_goes_on(start: Callable[..., Program], tmp_path: Path) -> None:
    script = tmp_path / "rank.sh"
    script.write_text(RANK)
    script.chmod(0o755)
    others = LockedSlots(sweep="/their/sweep")
    whole = leased(others, len(others.cores))
    program = start(*QUICK, f'mpi.command=[{script},"{{workers}}"]', "workers=1", "hydra.run.dir=mine", without=PLAYED)
    try:
        assert program.process.stdout is not None
        told = next(line for line in program.process.stdout if "waits for" in line)
        assert told == f"waits for pid {os.getpid()} (/their/sweep) to free cores\n"
        assert not list((tmp_path / "mine").glob("runs/*/attempt-*"))
    finally:
        others.release(whole)
    assert program.end()[0] == 0
    (state,) = [path.read_text() for path in (tmp_path / "mine").glob("runs/*/state.json")]
    assert '"oversubscribed": false' in state and '"shared_cores": false' in state
