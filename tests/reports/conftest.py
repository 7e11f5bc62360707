from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gradsweep import run_directory
from reports.building.sweep_report import PLOTS, BuiltReport, build_report, render_report
from reports.plots.picture import Picture
from tests.reports import fabricate

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(autouse=True)
def everywhere(no_terminal: None) -> None:
    """Most of these tests look at what is printed."""


@pytest.fixture(scope="session")
def nine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The main job, all done. Read only."""
    return fabricate.nine(tmp_path_factory.mktemp("output") / "2026-11-20" / "14-03-22")


HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture(scope="session")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> BuiltReport:
    """A sweep of which little went well, and its report. Read only.

    none: 2 and 4 workers done, 8 pending; qsgd: 2 done, 4 running, 8 no such run; svd: 2 failed, 4
    diverged, 8 done without result or rows; one compressor with a hostile name, with 2 workers only.
    """
    grid = [fabricate.config("none", 2), fabricate.config("none", 4), fabricate.config("qsgd", 2)]
    command = f"python multirun.py -m '+note={HOSTILE}'"
    sweep = fabricate.sweep(tmp_path_factory.mktemp("output") / "2026-11-20" / "trouble", grid, command=command)
    fabricate.run(sweep, fabricate.config("none", 8), run_directory.PENDING)
    fabricate.run(sweep, fabricate.config("qsgd", 4), run_directory.RUNNING)
    failed = fabricate.run(
        sweep, fabricate.config("svd", 2), run_directory.FAILED, f"rank 1 died: {HOSTILE}\nsecond line"
    )
    log = b"\x1b[31mTraceback\x1b[0m caf\xe9 \xff\n" + HOSTILE.encode() + b"\nRuntimeError: boom\n"
    (failed / "attempt-1" / run_directory.STDERR).write_bytes(log)
    fabricate.run(sweep, fabricate.config("svd", 4), run_directory.DIVERGED, "loss is nan at step 61")
    vague = fabricate.run(sweep, fabricate.config("svd", 8))
    for name in (run_directory.RESULT, run_directory.EPOCHS, run_directory.STEPS):
        (vague / name).unlink()
    fabricate.run(sweep, fabricate.config(HOSTILE, 2), name='x="><script>alert(2)<|script>')
    (fabricate.run(sweep, fabricate.config("svd", 16)) / run_directory.CONFIG).unlink()
    return build_report(sweep, pictures=())


def png(width: int = 700, height: int = 10) -> bytes:
    """A grey picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + bytes([128]) * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def illustrate(built: BuiltReport, alt: str = "A picture that took no time to draw") -> Path:
    """Write a report's page with a picture in every section; those of `reports.plots` take seconds."""
    plots = built.directory / PLOTS
    plots.mkdir()
    pictures = [
        Picture(name, name.capitalize(), alt)
        for name in ("throughput", "accuracy_epoch", "compression_error_step", "breakdown", "heatmap_accuracy")
    ]
    for picture in pictures:
        picture.get_path(plots).write_bytes(png())
    built.page.write_text(render_report(built, {one.get_path(plots): one for one in pictures}), encoding="utf-8")
    return built.page


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium or Chrome, one for all tests; skips where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api")
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")))
    path = next(found, None)
    if path is None:
        pytest.skip("neither chromium nor google-chrome is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
