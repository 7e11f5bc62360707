"""A page that follows a sweep, for a browser: http://127.0.0.1:8000/. Ctrl-C ends it.

It is for reading only, and holds the report and the files of the runs, nothing else. Whoever reaches HOST:PORT can read
them: other than 127.0.0.1, the default, only if that is wanted. From another machine: ssh -L 8000:127.0.0.1:8000."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import socket

from gradsweep.cli import arguments
from gradsweep.errors import UsageError
from gradsweep.text import one_line
from reports.commands import follow
from sweep.status import find

PORT = 8000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="DIR", nargs="?", default="last", help="a sweep")
    parser.add_argument("--port", type=_parse_port, default=PORT, help="0: any that is free; default: %(default)s")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s)")
    arguments.add_interval(parser, follow.INTERVAL_S)


def _parse_port(text: str) -> int:
    with contextlib.suppress(ValueError):
        if 0 <= (port := int(text)) <= 65535:
            return port
    raise UsageError(f"--port {text}: valid is an integer from 0 to 65535")


def run(options: argparse.Namespace) -> int:
    directory, words = find.find_sweep([options.words])
    if words:
        raise UsageError(f"{options.words}: no sweep; valid is the directory of a sweep")
    arguments.check_interval(options.interval)
    # These load pandas, which the answers above do without.
    from reports.building.sweep_report import read_report, render_report
    from reports.serving.rendering import Renderer
    from reports.serving.server import Server

    followed = follow.SweepFollower(lambda: [directory])
    renderer = Renderer(
        has_changed=lambda: bool(followed.find_changes()),
        is_active=lambda: followed.is_active,
        render=lambda: render_report(read_report([directory], directory)),
        interval_s=options.interval,
    )
    try:
        server = Server(options.host, options.port, directory, renderer)
    except socket.gaierror as error:
        raise UsageError(f"--host {options.host}: {error.strerror}; valid is an address of this machine") from error
    except OSError as error:
        place = f"--host {options.host} --port {options.port}"
        is_elsewhere = error.errno == errno.EADDRNOTAVAIL
        valid = "an address of this machine" if is_elsewhere else "another port, or 0 for any that is free"
        raise UsageError(f"{place}: {error.strerror}; valid is {valid}") from error
    host = f"[{server.server_name}]" if ":" in server.server_name else server.server_name
    try:
        print(
            f"http://{host}:{server.server_port}/ follows {one_line(os.path.relpath(directory))}; Ctrl-C ends it",
            flush=True,
        )
        renderer.start()
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        renderer.end()
        server.server_close()
    return 0
