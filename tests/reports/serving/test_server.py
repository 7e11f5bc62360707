"""`python -m reports serve`: what is served, to whom, and what never; over real sockets."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gradsweep import run_directory
from reports.__main__ import main
from reports.serving.rendering import Page, Renderer
from reports.serving.server import Server
from tests.conftest import ROOT
from tests.reports import fabricate

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SECRET = b"not for anybody"
HOSTILE = '"><script>alert(1)<|script> ü,= %2e%2e.txt'


class Asked:
    """What a server has answered."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()


class Client:
    """Sends what it is told to, as it is: no path is tidied up."""

    def __init__(self, port: int) -> None:
        self.port = port

    def __call__(self, target: str, method: str = "GET", host: str | None = "127.0.0.1", **headers: str) -> Asked:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.closing(connection):
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": host, **headers}.items():
                if value is not None:
                    connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            return Asked(connection.getresponse())

    def raw(self, data: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: connection.recv(65536), b""))
            except OSError:  # the server has had enough of it
                return b""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep with a secret beside it, and in it ways that lead there."""
    (tmp_path / "secret").write_bytes(SECRET)
    sweep = fabricate.sweep(tmp_path / "sweep", [fabricate.config("none", 2)])
    (run,) = (sweep / run_directory.RUNS).iterdir()
    (run / "attempt-1" / run_directory.STDOUT).write_bytes(b"<script>alert(1)</script> \xff\n")
    (run / HOSTILE).write_text("odd")
    (run / ".hidden").write_bytes(SECRET)
    (run / "link").symlink_to(tmp_path / "secret")
    (run / "up").symlink_to(tmp_path)
    (sweep / run_directory.RUNS / "linked").symlink_to(tmp_path)
    (sweep / "tables").mkdir()
    (sweep / "tables/accuracy.csv").write_text("a,b\n")
    (sweep / "plots").symlink_to(tmp_path)
    (sweep / ".lock").write_bytes(SECRET)
    os.mkfifo(run / "fifo")
    return sweep


@pytest.fixture
def renderer() -> Renderer:
    """With a page, though its thread does not run."""
    renderer = Renderer(lambda: True, lambda: True, lambda: "", 1.0)
    renderer.page = Page.from_text("<p>the page")
    return renderer


@pytest.fixture
def client(sweep: Path, renderer: Renderer) -> Iterator[Client]:
    server = Server("127.0.0.1", 0, sweep, renderer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Client(server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def run(sweep: Path) -> str:
    """The target of the run's directory."""
    (name,) = (path.name for path in (sweep / run_directory.RUNS).iterdir() if not path.is_symlink())
    return f"/runs/{urllib.parse.quote(name)}/"


def test_the_page_is_served_zipped_and_only_when_it_is_new(client: Client, renderer: Renderer) -> None:
    found = client("/report.html")
    assert (found.status, found.body) == (200, b"<p>the page") and found.headers["Content-Encoding"] is None
    zipped = client("/report.html", Accept_Encoding="br, gzip")
    assert gzip.decompress(zipped.body) == found.body and zipped.headers["Content-Encoding"] == "gzip"
    again = client("/report.html", If_None_Match=found.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    assert json.loads(client("/state.json").body) == {
        "version": renderer.page and renderer.page.version,
        "active": True,
        "problem": "",
    }
    renderer.page = None
    assert client("/report.html").status == 503 and json.loads(client("/state.json").body)["version"] is None


def test_what_follows_the_page_is_allowed_only_what_it_needs(client: Client) -> None:
    shell = client("/")
    assert shell.status == 200 and b'<script src="follow.js"' in shell.body
    assert client("/follow.js").headers["Content-Type"].startswith("text/javascript")
    assert client("/follow.css").headers["Content-Type"].startswith("text/css")
    policy = shell.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert "frame-ancestors 'self'" in client("/report.html").headers["Content-Security-Policy"]


def test_files_of_runs_are_text(client: Client, run: str) -> None:
    log = client(f"{run}attempt-1/stdout.log")
    assert (log.status, log.body) == (200, b"<script>alert(1)</script> \xff\n")
    assert (
        log.headers["Content-Type"] == "text/plain; charset=utf-8"
        and "sandbox" in log.headers["Content-Security-Policy"]
    )
    assert log.headers["X-Content-Type-Options"] == "nosniff" and log.headers["Content-Length"] == str(len(log.body))
    assert client(run + urllib.parse.quote(HOSTILE)).body == b"odd"
    assert client("/tables/accuracy.csv").headers["Content-Type"] == "text/csv; charset=utf-8"


def test_a_runs_directory_is_listed_with_names_as_text(client: Client, run: str) -> None:
    listing = client(run)
    assert listing.status == 200 and listing.headers["Content-Type"].startswith("text/html")
    text = listing.body.decode()
    assert "<script>" not in text and "&quot;&gt;&lt;script&gt;" in text
    links = re.findall(r'href="\./([^"]+)"', text)
    assert {"attempt-1/", "config.yaml", "state.json", urllib.parse.quote(HOSTILE)} <= set(links)
    assert not {"link", "up", "up/", "fifo", ".hidden"} & set(links)
    moved = client(run.rstrip("/"))
    assert (moved.status, moved.headers["Location"]) == (301, run)


@pytest.mark.parametrize(
    "target",
    [
        "/../secret",
        "/%2e%2e/secret",
        "/runs/../../secret",
        "/runs/%2e%2e/%2e%2e/secret",
        "/runs/..%2f..%2fsecret",
        "/runs/%252e%252e/secret",
        "/runs/linked/secret",
        "/plots/secret",
        "/tables/../../secret",
        "/tables/%2e%2e%2fsecret",
        "/tables//../secret",
        "//secret",
        "//runs//{run}/config.yaml",
        "/runs/{run}/link",
        "/runs/{run}/up/secret",
        "/runs/{run}/up/",
        "/runs/{run}/.hidden",
        "/runs/{run}/config.yaml/",
        "/runs/{run}/config.yaml%00.txt",
        "/runs/{run}/%00",
        "/runs/{run}/fifo",
        "/runs/{run}/nothing",
        "/runs/{run}/{secret}",
        "{secret}",
        "/{secret}",
        "http://127.0.0.1/report.html",
        "/runs/",
        "/runs",
        "/tables/",
        "/tables",
        "/plots/",
        "/.lock",
        "/sweep.yaml",
        "/runs/" + "a/" * 5000,
        "/runs/" + "a" * 5000,
        "*",
        "/\\..\\secret",
        "/%ff%fe",
    ],
)
def test_nothing_else_is_served(target: str, client: Client, run: str, tmp_path: Path) -> None:
    places = {"run": run.split("/")[2], "secret": str(tmp_path / "secret")}
    asked = target.format(**places)
    for found in (client(asked), client(asked, "HEAD")):
        assert found.status == 404 and SECRET not in found.body
    assert found.body == b""


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:8000", 200),
        ("192.0.2.7", 200),
        (socket.gethostname(), 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:8000", 403),
        ("evil.example@127.0.0.1x", 403),
        ("[::1", 403),
        ("", 403),
        (None, 403),
    ],
)
def test_a_page_of_another_site_cannot_ask(host: str | None, status: int, client: Client) -> None:
    for target in ("/", "/report.html", "/state.json", "/tables/accuracy.csv"):
        assert client(target, host=host).status == status
    assert client("/", "HEAD", host).status == status


def test_two_hosts_are_none(client: Client) -> None:
    head = b"GET /state.json HTTP/1.0\r\nHost: 127.0.0.1\r\n"
    assert b" 200 " in client.raw(head + b"\r\n").splitlines()[0]
    assert b" 403 " in client.raw(head + b"Host: evil.example\r\n\r\n").splitlines()[0]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "MKCOL"])
def test_nothing_can_be_changed(method: str, client: Client, sweep: Path) -> None:
    before = sorted(sweep.rglob("*"))
    found = client("/tables/accuracy.csv", method)
    assert found.status == (501 if method == "MKCOL" else 405) and b"a,b" not in found.body
    assert sorted(sweep.rglob("*")) == before


def test_head_has_the_headers_of_get(client: Client, run: str) -> None:
    for target in ("/", "/report.html", "/state.json", run, f"{run}config.yaml"):
        got, head = client(target), client(target, "HEAD")
        assert head.body == b"" and head.status == got.status == 200
        assert head.headers["Content-Length"] == got.headers["Content-Length"] == str(len(got.body))


def test_nonsense_and_silence_do_not_end_the_server(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    for data in (
        b"",
        b"\x00\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.0\r\n" + b"a" * 99999,
    ):
        client.raw(data)
    assert client("/").status == 200 and "Traceback" not in capfd.readouterr().err


def test_many_may_come_at_once(sweep: Path, renderer: Renderer) -> None:
    """As many as a browser opens, while nobody answers: none is put off, which costs it seconds."""
    with contextlib.ExitStack() as stack:
        server = Server("127.0.0.1", 0, sweep, renderer)
        stack.callback(server.server_close)
        for _ in range(40):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=0.5))


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_page_is_made_anew_only_when_something_changed(capsys: pytest.CaptureFixture[str]) -> None:
    looks = iter([True, False, True, True])
    made: list[str] = []

    def render() -> str:
        made.append("x")
        if len(made) == 2:
            raise ValueError("torn\nfile")
        return f"page {len(made)}"

    asked: list[bool] = []
    renderer = Renderer(lambda: (asked.append(True), next(looks, False))[1], lambda: False, render, 0.001)
    renderer.start()
    until(lambda: len(asked) > 5)
    renderer.end()
    renderer.join()
    assert len(made) == 3 and renderer.page and renderer.page.plain == b"page 3" and renderer.problem == ""
    assert capsys.readouterr().err == "reports: the page could not be made: ValueError: torn file\n"


def test_a_page_that_cannot_be_made_leaves_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    texts = iter(["first"])
    renderer = Renderer(lambda: True, lambda: False, lambda: next(texts), 0.001)
    renderer.start()
    until(lambda: renderer.problem)
    renderer.end()
    renderer.join()
    assert renderer.page and renderer.page.plain == b"first" and renderer.get_state()["problem"] == "StopIteration:"
    assert capsys.readouterr().err.count("\n") == 1, "the same is said once"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Client, Path]]:
    """The real thing, on a sweep of two runs."""
    sweep = fabricate.sweep(
        tmp_path / "2026-11-20/10-00-00", [fabricate.config("none", 2), fabricate.config("qsgd", 4)]
    )
    command = [sys.executable, "-m", "reports", "serve", str(sweep), "--port", "0", "--interval", "0.1"]
    # As a shell's foreground job has it, whatever this process was started with.
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = re.match(r"http://127\.0\.0\.1:(\d+)/ follows .*; Ctrl-C ends it\n", line)
        assert port, line
        yield process, Client(int(port[1])), sweep
    finally:
        process.kill()
        process.communicate()


def version(client: Client) -> str | None:
    return json.loads(client("/state.json").body)["version"]


@pytest.mark.thorough
def test_a_sweep_is_followed(serving: tuple[subprocess.Popen[str], Client, Path]) -> None:
    _, client, sweep = serving
    before = sorted(sweep.rglob("*"))
    until(lambda: version(client))
    first = version(client)
    assert b"compressor=qsgd,workers=8" not in client("/report.html").body
    fabricate.run(sweep, fabricate.config("qsgd", 8))
    until(lambda: version(client) != first and b"compressor=qsgd,workers=8" in client("/report.html").body)
    assert [path for path in before if not path.exists()] == []
    assert not (sweep / "report.html").exists() and not (sweep / "summary.csv").exists(), "it only reads"


def test_a_port_in_use_is_one_line(nine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(nine), "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(rf"reports: --host 127\.0\.0\.1 --port {port}: Address already in use; valid is .*\n", error)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--port", "70000"], "--port 70000: valid is an integer from 0 to 65535"),
        (["--port", "abc"], "--port abc: valid is an integer from 0 to 65535"),
        (
            ["--host", "192.0.2.1", "--port", "0"],
            r"--host 192\.0\.2\.1 --port 0: .*; valid is an address of this machine",
        ),
        (["--interval", "0"], "--interval 0: valid is a number of seconds from 0.1 to 3600"),
        (["--host", "no.such.host.invalid"], "--host no.such.host.invalid: .*; valid is an address of this machine"),
    ],
)
def test_wrong_options(options: list[str], line: str, nine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(nine), *options]) == 2
    assert re.fullmatch(f"reports: {line}\n", capsys.readouterr().err)


@pytest.mark.thorough
def test_a_browser_follows_and_keeps_what_its_reader_chose(
    browser: Browser, serving: tuple[subprocess.Popen[str], Client, Path]
) -> None:
    _, client, sweep = serving
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    try:
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(f"http://127.0.0.1:{client.port}/")
        report = page.frame_locator("#report")
        report.locator("html[data-ready]").wait_for()
        report.locator("#filter-text").fill("workers=2")
        report.get_by_role("button", name="Plot only these").click()
        accuracy = report.locator("[data-plot=accuracy]")
        accuracy.get_by_label("Against", exact=True).select_option("training time")
        head = report.locator("table.runs th[aria-sort]", has_text="accuracy").first
        head.locator("button").click()
        report.locator("table.runs button.open", has_text="none").focus()
        frame = next(frame for frame in page.frames if frame.url.endswith("/report.html"))
        frame.evaluate("scrollTo(0, 200)")
        fabricate.run(sweep, fabricate.config("topk", 2), run_directory.FAILED, "boom")
        fabricate.run(sweep, fabricate.config("svd", 4))
        report.get_by_text(re.compile("^2 of 4 runs")).wait_for()
        assert report.locator("#filter-text").input_value() == "workers=2"
        assert head.get_attribute("aria-sort") == "descending"
        assert accuracy.get_by_label("Against", exact=True).input_value() == "time_s"
        drawn = accuracy.locator(".legend button").evaluate_all(
            "buttons => buttons.map(button => button.dataset.label)"
        )
        assert drawn == ["none", "topk"], "not svd"
        assert frame.evaluate("document.activeElement.textContent") == "none", "the focus is where it was"
        assert frame.evaluate("scrollY") == 200 and "Gradsweep" in page.title()
        assert page.get_by_role("status").inner_text() == "Nobody is running the sweep."
        report.locator("table.runs tbody button").first.click()
        report.locator("dialog a", has_text="config.yaml").click()
        frame.wait_for_url("**/config.yaml")
        report.get_by_text("workers: 2").wait_for()
        assert said == []
    finally:
        context.close()


def test_ctrl_c_ends_it(serving: tuple[subprocess.Popen[str], Client, Path]) -> None:
    process, *_ = serving
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
