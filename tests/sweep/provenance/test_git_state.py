"""What git says of the code, in a repository that the test makes."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.provenance import git_state

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Runs git in a repository with one commit; what users and machines have configured does not count."""
    for variable in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(variable, os.devnull)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    def run(*words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        return subprocess.run(
            ("git", *who, *words), cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    run("init", "--quiet", "--initial-branch=trunk")
    (tmp_path / "code.py").write_text("one = 1\n")
    (tmp_path / ".gitignore").write_text("*.log\n")
    run("add", ".")
    run("commit", "--quiet", "--message=first")
    return run


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_clean_checkout(git: Git, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("ignored")
    assert git_state.describe(tmp_path) == {
        "commit": git("rev-parse", "HEAD"),
        "branch": "trunk",
        "dirty": [],
        "diff": "",
        "diff_cut": False,
        "diff_sha256": None,
        "untracked": {},
        "untracked_cut": 0,
    }


def test_what_was_changed_stands_there_and_what_is_new_by_its_hash(git: Git, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("one = 2\n")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "a b.py").write_bytes(b"secret = 5\n")
    (tmp_path / os.fsdecode(b"\xff.py")).write_bytes(b"")
    found = git_state.describe(tmp_path)
    assert found is not None and found["dirty"][0] == " M code.py" and "?? new/" in found["dirty"]
    assert "-one = 1\n+one = 2\n" in found["diff"] and "secret" not in found["diff"]
    assert found["diff_sha256"] == sha256(found["diff"].encode()) and not found["diff_cut"]
    assert found["untracked"] == {"new/a b.py": sha256(b"secret = 5\n"), r"\xff.py": sha256(b"")}


def test_a_staged_change_is_a_change(git: Git, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("one = 3\n")
    git("add", "code.py")
    found = git_state.describe(tmp_path)
    assert found is not None and found["dirty"] == ["M  code.py"] and "+one = 3" in found["diff"]


def test_a_diff_that_is_cut_says_so_and_the_hash_is_of_all_of_it(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code.py").write_text("one = 2\n" * 100)
    whole = git_state.describe(tmp_path)
    assert whole is not None and not whole["diff_cut"]
    monkeypatch.setattr(git_state, "LONGEST_DIFF", 50)
    cut = git_state.describe(tmp_path)
    assert cut is not None and cut["diff_cut"] and cut["diff"] == whole["diff"][:50]
    assert cut["diff_sha256"] == whole["diff_sha256"]
    monkeypatch.setattr(git_state, "LONGEST_DIFF", len(whole["diff"]))
    assert git_state.describe(tmp_path) == whole


def test_not_more_is_read_than_can_be_afforded(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("a", 10), ("b", 100), ("c", 10), ("d", 1)):
        (tmp_path / name).write_bytes(b"x" * size)
    monkeypatch.setattr(git_state, "MOST_FILES", 3)
    monkeypatch.setattr(git_state, "MOST_BYTES", 20)
    found = git_state.describe(tmp_path)
    assert found is not None and found["untracked_cut"] == 1
    assert found["untracked"] == {"a": sha256(b"x" * 10), "b": None, "c": sha256(b"x" * 10)}


def test_a_link_to_nowhere_and_a_pipe_are_not_read(git: Git, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    found = git_state.describe(tmp_path)
    assert found is not None and found["untracked"]["link"] is None and found["untracked"].get("pipe") is None


def test_what_the_user_has_set_for_diffs_does_not_matter(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "code.py").write_text("one = 2\n")
    plain = git_state.describe(tmp_path)
    git("config", "color.ui", "always")
    git("config", "diff.external", "false")
    assert git_state.describe(tmp_path) == plain


def test_no_checkout(git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert git_state.describe(tmp_path) is not None
    (tmp_path / ".git").rename(tmp_path / "away")
    assert git_state.describe(tmp_path) is None
    (tmp_path / "away").rename(tmp_path / ".git")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state.describe(tmp_path) is None
