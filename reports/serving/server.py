"""Serve reports over HTTP: read-only, and only to requests whose Host header is an address or a name of this machine.

A page of another site can make a browser call this server by a name that resolves to it (DNS rebinding). Such a name is
in the Host header, and the request is refused.
"""

from __future__ import annotations

import http.server
import ipaddress
import json
import os
import socket
import socketserver
import sys
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from reports.building.sweep_report import PAGE
from reports.serving import files
from reports.serving.rendering import Renderer

_SHELL = Path(__file__).parent
_SHELL_FILES = {
    "/": ("follow.html", "text/html; charset=utf-8"),
    "/follow.js": ("follow.js", "text/javascript; charset=utf-8"),
    "/follow.css": ("follow.css", "text/css; charset=utf-8"),
}
STATE = "/state.json"
_FRAMED = "frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
SHELL_POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; {_FRAMED}"
)
PAGE_POLICY = _FRAMED  # besides the page's own, which names its scripts
FILE_POLICY = f"default-src 'none'; style-src 'unsafe-inline'; img-src 'self'; sandbox; {_FRAMED}"
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_DOWNLOADED = ("application/pdf", "application/vnd.apache.parquet")


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Serves the report of one sweep until it is shut down.

    Args:
        host, port: the address to listen at; port 0: any free port.
        root: the sweep's directory.
        renderer: the thread that keeps the page up to date.

    Raises:
        OSError: there is no such address, or the port is in use.
    """

    daemon_threads = True
    request_queue_size = 128  # waiting connections; with fewer, a browser would wait for seconds

    def __init__(self, host: str, port: int, root: Path, renderer: Renderer) -> None:
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self.names = {"localhost", host.lower(), socket.gethostname().lower()}
        self.root, self.renderer = root, renderer
        super().__init__((host, port), Handler)

    def server_bind(self) -> None:
        """Bind the port without HTTPServer's query to the name server, which can take a minute."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # the client has gone
            print(f"reports: a request failed: {type(error).__name__}: {error}", file=sys.stderr)

    def is_ours(self, host: str | None) -> bool:
        """Tell whether a Host header names this server: any address, or a name of this machine."""
        name = urllib.parse.urlsplit(f"//{host}").hostname if host else None
        try:
            return name in self.names or bool(ipaddress.ip_address(name or ""))
        except ValueError:
            return False


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one HTTP request."""

    server: Server
    timeout = 30.0  # seconds, of silence
    server_version, sys_version = "gradsweep", ""

    def do_GET(self) -> None:
        try:
            hosts = self.headers.get_all("Host") or []
            is_ours = len(hosts) == 1 and self.server.is_ours(hosts[0])
        except ValueError:  # brackets without an address in them
            is_ours = False
        if not is_ours:
            self._refuse(HTTPStatus.FORBIDDEN, "the Host header does not name this server")
        elif (path := self.path.partition("?")[0]) in _SHELL_FILES:
            name, kind = _SHELL_FILES[path]
            self._answer((_SHELL / name).read_bytes(), kind, SHELL_POLICY)
        elif path == STATE:
            state = json.dumps(self.server.renderer.get_state()).encode()
            self._answer(state, "application/json", FILE_POLICY)
        elif path == f"/{PAGE}":
            self._send_page()
        else:
            self._send_file()

    do_HEAD = do_GET

    def _refuse_method(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "valid is GET or HEAD", Allow="GET, HEAD")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse_method

    def _send_page(self) -> None:
        page = self.server.renderer.page
        if page is None:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the first report is being made", **{"Retry-After": "2"})
            return
        more, body = {"ETag": f'"{page.version}"', "Vary": "Accept-Encoding"}, page.plain
        if self.headers.get("If-None-Match") == more["ETag"]:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self._send_headers(more)
            return
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            more, body = {**more, "Content-Encoding": "gzip"}, page.zipped
        self._answer(body, "text/html; charset=utf-8", PAGE_POLICY, more)

    def _send_file(self) -> None:
        names = files.parse_target(self.path)
        try:
            if names is None:
                raise FileNotFoundError
            try:
                with files.open_file(self.server.root, names) as descriptor:
                    self._send_opened(names, descriptor)
            except FileNotFoundError:
                with files.open_file(self.server.root, (*names, "")):  # a directory, named without its slash
                    place = "/".join(urllib.parse.quote(os.fsencode(name)) for name in names)
                    self._refuse(HTTPStatus.MOVED_PERMANENTLY, "a directory", Location=f"/{place}/")
        except OSError:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such file, or it is not served")

    def _send_opened(self, names: tuple[str, ...], descriptor: int) -> None:
        if not names[-1]:
            self._answer(files.render_listing(descriptor, names), "text/html; charset=utf-8", FILE_POLICY)
            return
        kind = files.choose_media_type(names)
        size = os.fstat(descriptor).st_size
        self.send_response(HTTPStatus.OK)
        more = {"Content-Disposition": "attachment"} if kind in _DOWNLOADED else {}
        self._send_headers(
            {"Content-Type": kind, "Content-Length": str(size), "Content-Security-Policy": FILE_POLICY, **more}
        )
        if self.command != "HEAD":
            with open(descriptor, "rb", closefd=False) as file:
                self._copy(file, size)

    def _copy(self, file: Any, size: int) -> None:
        """Send the announced number of bytes of a file to which a run may be writing."""
        while size > 0 and (data := file.read(min(size, 1 << 16))):
            self.wfile.write(data)
            size -= len(data)

    def _answer(self, body: bytes, kind: str, policy: str, more: Mapping[str, str] | None = None) -> None:
        self._send(HTTPStatus.OK, body, kind, policy, more or {})

    def _refuse(self, status: HTTPStatus, why: str, **more: str) -> None:
        self._send(status, f"{why}\n".encode(), files.TEXT, FILE_POLICY, more)

    def _send(self, status: HTTPStatus, body: bytes, kind: str, policy: str, more: Mapping[str, str]) -> None:
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Content-Security-Policy": policy}
        self.send_response(status)
        self._send_headers({**headers, **more})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_headers(self, headers: Mapping[str, str]) -> None:
        for name, value in {**_ALWAYS, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
