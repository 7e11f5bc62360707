"""Helpers of all benchmarks: run and time commands, and put figures into the tables of a page."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gradsweep import run_directory
from gradsweep.cli import markdown_sections
from sweep import emulation
from sweep.settings.mpi import MpiSettings, choose_transport
from sweep.system.job_environment import AS_ROOT, build_job_environment

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = [sys.executable, str(ROOT / "multirun.py")]

BUSY = "while True: sum(range(100_000))"

Table = Callable[[argparse.Namespace], Iterator[Sequence[str]]]
"""Yields the rows of a table for the arguments of a command, headings first."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A figure and its limit.

    Args:
        limit: the figure is to be at most this.
        more: other figures of the same measurement, such as CPU time.
    """

    what: str
    value: float
    unit: str = "s"
    limit: float | None = None
    more: str = ""

    @property
    def seen(self) -> str:
        return f"{_format_figure(self.value, self.unit)}{', ' if self.more else ''}{self.more}"

    @property
    def limit_text(self) -> str:
        if self.limit is None:
            return ""
        return f"{_format_figure(self.limit, self.unit)} at most{'' if self.value <= self.limit else ': missed'}"


def _format_figure(value: float, unit: str) -> str:
    """Return a figure with about three digits."""
    digits = 0 if unit == "MB" or value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    text = f"{value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}{' ' if unit else ''}{unit}"


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose --help begins with a docstring."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_page_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the tables between the comments in this page")


def print_findings(findings: Iterable[Finding], prefix: str = "") -> list[list[str]]:
    """Print each finding as soon as it is there; return the rows of a table of all."""
    rows = []
    for finding in findings:
        what = f"{prefix}: " if prefix else ""
        limit = finding.limit_text and f"; asked: {finding.limit_text}"
        print(f"{what}{finding.what}: {finding.seen}{limit}", flush=True)
        rows.append([f"`{prefix}`: {finding.what}" if prefix else finding.what, finding.seen, finding.limit_text])
    return rows


def fill_with_findings(page: Path | None, part: str, rows: list[list[str]]) -> None:
    """Put the rows of `print_findings` into the part of a page, if there is a page."""
    if page is not None:
        lines = [["what", "seen", "asked"], ["---"] * 3, *rows]
        markdown_sections.fill(page, part, "\n".join(f"| {' | '.join(line)} |" for line in lines))


def print_tables(
    parser: argparse.ArgumentParser, part: str, tables: Mapping[str, Table], given: Sequence[str] | None = None
) -> None:
    """Print the tables that a command names, or all, row by row; with --into, also put them into the part of a page."""
    parser.add_argument("tables", nargs="*", choices=[*tables, []], help="all of them by default")
    add_page_option(parser)
    arguments = parser.parse_args(given)
    texts = []
    for name in arguments.tables or tables:
        lines: list[str] = []
        for row in tables[name](arguments):
            lines.append(f"| {' | '.join(row)} |")
            print(lines[-1], flush=True)
            if len(lines) == 1:
                lines.append("|" + "---|" * len(row))
        texts.append("\n".join(lines))
    if arguments.into:
        markdown_sections.fill(arguments.into, part, "\n\n".join(texts))


@contextlib.contextmanager
def load_hydra() -> Iterator[None]:
    """Within the block, let hydra.compose compose configs of conf/."""
    from hydra import initialize_config_dir

    from sweep.config import schema
    from sweep.launch.session import Session
    from trainers.config.groups import GROUPS
    from trainers.config.run_config import RunConfig

    schema.register(RunConfig, GROUPS)
    schema.register_resolvers(Session().choose_directory)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3", job_name="multirun"):
        yield


def quote_list(words: Iterable[str]) -> str:
    """Return a list as an override takes it, whatever is in its words."""
    return "[" + ",".join('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words) + "]"


def run_python(code: str, *words: object) -> str:
    """Run a program that is given as text from the repository's folder; return its output."""
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


@dataclasses.dataclass(frozen=True)
class Timed:
    """A command that succeeded: seconds, CPU seconds with those of its children, peak in MB, output."""

    seconds: float
    cpu: float
    peak_mb: float
    out: str

    @property
    def more(self) -> str:
        return f"cpu {self.cpu:.1f} s, peak {self.peak_mb:.0f} MB"


def time_command(command: Sequence[str], folder: Path, **variables: str) -> Timed:
    """Run a command in `folder`, with environment variables besides ours.

    Raises:
        SystemExit: it failed; with its output.
    """
    began = time.perf_counter()
    variables = {**os.environ, **AS_ROOT, **variables}
    with (folder / "out").open("w+b") as out:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode(errors="replace")
    if process.returncode:
        raise SystemExit(f"failed: {' '.join(command)}\n{text}")
    return Timed(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, text)


@contextlib.contextmanager
def keep_busy(loops: int, cores: Collection[int] | None = None, code: str = BUSY) -> Iterator[None]:
    """Run so many programs with busy loops beside the block, on these cores; None: on any."""
    programs = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(loops)]
    try:
        for program in programs:
            os.sched_setaffinity(program.pid, os.sched_getaffinity(0) if cores is None else cores)
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def measure_children_cpu() -> float:
    """Return the CPU seconds of all ended children of this process so far."""
    times = os.times()
    return times.children_user + times.children_system


def read_memory(pid: int | str = "self", file: str = "status") -> dict[str, int]:
    """Return the bytes that /proc reports for a process by field, such as VmHWM or, of `smaps_rollup`, Pss.

    Raises:
        OSError: the process has ended.
    """
    lines = map(str.split, Path(f"/proc/{pid}/{file}").read_text().splitlines())
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if words[-1:] == ["kB"]}


def run_on_emulated_hosts(bandwidth: str, latency: str, hosts: int, words: Sequence[str], scratch: str) -> None:
    """Run a command with a rank on each of so many emulated hosts; emulation.json comes to be in `scratch`."""
    network: dict[str, Any] = {"name": "emulated", "bandwidth": bandwidth, "latency": latency, "loss": 0.0}
    network |= {"workers_per_host": 1, "hosts": {}}
    mpi = MpiSettings(**choose_transport(yaml.safe_load((ROOT / "conf/mpi/openmpi.yaml").read_text()), "local"))
    mpirun = [word.replace("{workers}", str(hosts)) for word in mpi.resolve_command()]
    environment = build_job_environment({**mpi.variables, run_directory.ATTEMPT_VARIABLE: scratch}, None, scratch)
    command = emulation.build_command(network, hosts, 1, [*mpirun, *words])
    subprocess.run(command, env=environment, cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
