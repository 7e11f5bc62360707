"""sweep.on_end: arguments instead of a shell, and nothing that it does can harm the sweep."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gradsweep.errors import UsageError
from gradsweep.run_directory import EVENTS, Run
from sweep.console import on_end
from sweep.console.console import Verbosity
from sweep.directory.run_state import write_state
from sweep.launch.sweep_events import SweepEvents
from sweep.settings.sweep import SweepSettings
from tests.conftest import eventually

SHOW = (
    "import json, os, sys; json.dump([sys.argv[2:], {k: v for k, v in os.environ.items() if k.startswith('GRADSWEEP_')"
    "}], open(sys.argv[1], 'w'))"
)
FACTS = {"directory": "/a b/{status}", "status": "failed", "done": 3, "failed": 1, "exit_status": 1}


def test_placeholders_and_variables(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    words = ["{directory}", "$(touch x); {done}+{failed}={exit_status}", "{status}{status}", "{other} {{}}"]
    assert on_end.run_on_end([sys.executable, "-c", SHOW, str(seen), *words], FACTS) is None
    arguments, variables = json.loads(seen.read_text())
    # once: what a directory is called is not looked through again
    assert arguments == ["/a b/{status}", "$(touch x); 3+1=1", "failedfailed", "{other} {{}}"]
    assert variables.items() >= {
        ("GRADSWEEP_SWEEP", "/a b/{status}"),
        ("GRADSWEEP_STATUS", "failed"),
        ("GRADSWEEP_DONE", "3"),
        ("GRADSWEEP_FAILED", "1"),
        ("GRADSWEEP_EXIT_STATUS", "1"),
    }


def test_what_goes_wrong_is_a_line(tmp_path: Path) -> None:
    assert "exited with 3" in str(on_end.run_on_end(["sh", "-c", "exit 3"], FACTS))
    assert "could not be started" in str(on_end.run_on_end([str(tmp_path / "none")], FACTS))


def test_a_program_that_yaml_takes_for_a_truth_is_to_be_quoted() -> None:
    with pytest.raises(UsageError, match=r"^sweep.on_end=.False,x.: .* called false stands in quotes: .'false'.$"):
        on_end.check_command(["False", "x"])


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_end, "LIMIT_S", 0.3)
    pids = tmp_path / "pids"
    assert "was ended" in str(on_end.run_on_end(["sh", "-c", f"sleep 1000 & echo $! > {pids}; wait"], FACTS))
    stat = Path(f"/proc/{pids.read_text().strip()}/stat")
    eventually(lambda: not stat.exists() or stat.read_text().split()[2] == "Z")


@pytest.mark.parametrize(
    "command", [["no-such-program"], ["/etc/passwd", "x"], [""], ["echo", "a\0b"], [["echo"], "b"]]
)
def test_a_program_that_is_not_there_is_found_before_the_start(command: list[Any]) -> None:
    with pytest.raises(UsageError, match="^sweep.on_end=.*: valid is "):
        SweepSettings(on_end=command).check()
    SweepSettings(on_end=[]).check()
    SweepSettings(on_end=["sh"]).check()


def test_the_end_of_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    runs = [Run(tmp_path / name) for name in "abc"]
    for run, status in zip(runs, ("done", "failed", "pruned"), strict=True):
        run.directory.mkdir()
        write_state(run, status=status)
    command = ["sh", "-c", "echo $0 $GRADSWEEP_DONE; exit 5", "{status} {failed} {exit_status}"]
    closing = SweepEvents(tmp_path, SweepSettings(on_end=command), Verbosity(json=True))
    closing.end([*runs, runs[0]], 1)
    closing.end(runs, 0)  # a second time: nothing
    out, err = capfd.readouterr()
    assert err.splitlines()[:1] == ["failed 1 1 2"] and "exited with 5" in err and len(err.splitlines()) == 2
    events = [json.loads(line) for line in out.splitlines()]
    assert out == (tmp_path / EVENTS).read_text()
    assert [event["event"] for event in events] == ["sweep_started", "sweep_ended"]
    assert events[1]["counts"] == {"done": 1, "failed": 1, "pruned": 1} and events[1]["exit_status"] == 1
    assert closing.summarise(runs).split(": ")[1].startswith("1 done, 1 failed, 1 pruned")
