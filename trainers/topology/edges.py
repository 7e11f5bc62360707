"""Links of workers from a file: two numbers a line, from 0, and optionally a weight; `#` begins a comment.

    0 1         # without weights, topology.weights says them
    1 2
    2 0

Of a graph with directions, a line is a link from its first worker to its second, and the weight is how much of the
first one's parameters the second gets.
"""

from __future__ import annotations

import math
import re
import stat
from pathlib import Path
from typing import Any

from gradsweep.errors import UsageError, bad_value
from gradsweep.options.parameters import show
from trainers.options.topologies import Edges

Links = dict[tuple[int, int], float | None]
"""From whom to whom, and the weight where the file has them; without directions, the smaller number first."""

_MOST_BYTES = 16 * 2**20  # four thousand workers, all linked to hundreds: whoever names another file by mistake is told
_NUMBER = re.compile(r"[0-9]{1,9}")


def read(path: str) -> str:
    """Return the content of a file of links, without comments, as lines separated by semicolons: `Edges.links`.

    Raises:
        UsageError: there is no such file, it is a pipe, or it is no text.
    """
    valid = "a text file with two numbers of workers a line, from 0, and optionally a weight"
    if not path:
        raise bad_value("topology.file", path, valid)
    try:
        if stat.S_ISFIFO(Path(path).stat().st_mode):  # to open a pipe would wait for whoever writes to it
            raise bad_value("topology.file", path, f"{valid}: this is a pipe")
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise bad_value("topology.file", path, f"{valid}: {error.strerror}") from error
    except (UnicodeDecodeError, ValueError) as error:
        raise bad_value("topology.file", path, f"{valid}: this is no text") from error
    if len(data) > _MOST_BYTES:
        raise bad_value("topology.file", path, f"{valid}: this has more than {_MOST_BYTES} bytes")
    return ";".join(_clean_line(line) for line in text.splitlines())


def build_graph(options: Edges, workers: int) -> Any:
    """Return the graph of a run, which connects all workers: a networkx.Graph or DiGraph.

    Raises:
        UsageError: one line with the position in the file, its content there and what is valid.
    """
    import networkx  # by who has such a file only

    found = networkx.DiGraph() if options.directed else networkx.Graph()
    found.add_nodes_from(range(workers))
    for (first, second), weight in _parse(options, workers).items():
        found.add_edge(first, second, **({} if weight is None else {"weight": weight}))
    ways = [("be reached from", networkx.descendants(found, 0))]
    if options.directed:
        ways.append(("reach", networkx.ancestors(found, 0)))
    for words, others in ways:
        for worker in range(1, workers):
            if worker not in others:
                raise UsageError(
                    f"{_name_source(options)} with workers={workers}: worker {worker} cannot {words} worker 0; valid "
                    "are links that connect all workers"
                )
    _check_sums(options, found)
    return found


def _clean_line(line: str) -> str:
    return " ".join(line.partition("#")[0].replace(",", " ").split())


def _name_source(options: Edges) -> str:
    return f"topology.file={show(options.file)}" if options.file else "topology.links"


def _parse(options: Edges, workers: int) -> Links:
    source, found, lines = _name_source(options), Links(), dict[tuple[int, int], int]()
    for number, line in enumerate((options.links or read(options.file)).split(";"), 1):
        words = _clean_line(line).split()
        if not words:
            continue
        here = f"{source}, line {number}: {show(' '.join(words))}"
        if len(words) not in (2, 3) or not all(_NUMBER.fullmatch(word) for word in words[:2]):
            raise UsageError(f"{here}: valid is two numbers of workers, from 0, and optionally a weight")
        first, second = int(words[0]), int(words[1])
        if max(first, second) >= workers:
            raise UsageError(f"{here}: valid with workers={workers} is a number from 0 to {workers - 1}")
        if first == second:
            raise UsageError(f"{here}: valid is a link of two workers; what is left to 1 is a worker's own weight")
        weight = _parse_weight(words[2], here) if len(words) == 3 else None
        link = (first, second) if options.directed else (min(first, second), max(first, second))
        if link in found and found[link] != weight:
            raise UsageError(f"{here}: valid is the weight that line {lines[link]} gives this link, or another link")
        if lines and (weight is None) != (next(iter(found.values())) is None):
            raise UsageError(f"{here}: valid is a weight in every line, or in none")
        found[link] = weight
        lines.setdefault(link, number)
    weighted = any(weight is not None for weight in found.values())
    if weighted and options.weights != "uniform":
        raise UsageError(
            f"topology.weights={options.weights} with {source}: it has its own; valid is topology.weights=uniform"
        )
    return found


def _parse_weight(word: str, here: str) -> float:
    try:
        weight = float(word)
    except ValueError:
        weight = math.nan
    if not 0 < weight <= 1:
        raise UsageError(f"{here}: valid is a weight above 0 and up to 1")
    return weight


def _check_sums(options: Edges, graph: Any) -> None:
    """Refuse weights if those of the links that leave a worker add up to more than 1."""
    for worker in graph:
        given = math.fsum(link.get("weight", 0.0) for link in graph[worker].values())
        if given > 1 + 1e-12:
            raise UsageError(
                f"{_name_source(options)}: the weights of worker {worker} make {given:.12g}; valid is a sum up to 1, "
                "and the rest is its own weight"
            )
