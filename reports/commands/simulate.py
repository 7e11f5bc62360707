"""Simulate steps of training with up to thousands of workers, of a network and times that are typed.

    python -m reports simulate --workers 2..1024 --exchange ring,gossip_ring,server --network 10gbit \\
        --bytes 44MB --compute 100ms --stragglers 0.1

docs/design/simulator.md tells what is simulated, and how far it can be trusted."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradsweep.errors import UsageError, bad_value
from gradsweep.options import units
from reports.commands import table_options
from reports.commands.table_options import FORMATS_BY_DEFAULT
from reports.tables.file_formats import TABLES

if TYPE_CHECKING:
    from reports.scaling.output.simulated import SimulatedSteps, SimulationSettings  # loads numpy: too slow for --help

_EXCHANGES = (
    "ring",
    "doubling",
    "rabenseifner",
    "allgather",
    "hierarchical",
    "server",
    "asynchronous",
    "gossip_ring",
    "gossip_torus",
    "gossip_exponential",
    "gossip_one_peer",
)
_INNER, _STALENESS = "infiniband", 4  # defaults
_DENSE = ("hierarchical", "server", "asynchronous")
"""Exchanges that also send uncompressed bytes."""
_LONGEST_S = 3600.0
_LARGEST = 1e13
_MOST_WORKERS = 16384
_SMALLEST_PART = "1KiB"
_TIMES = {
    "compute": "of a gradient, in the mean",
    "encode": "before the exchange",
    "decode": "of one payload, after it",
    "update": "of the parameters",
}
_RANGES = (
    ("stragglers", 0, 3),
    ("oversubscription", 1, 1000),
    ("per_node", 1, 1024),
    ("staleness", 0, 1000),
    ("seed", 0, 2**63),
    ("steps", 1, 10_000),
    ("slow", 0, 1000),
)
"""Options with the lowest and the highest valid number."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", metavar="N", default="2..1024", help="2..1024 (default), or 2,4,96")
    parser.add_argument(
        "--exchange", metavar="E,E", default="ring", help=f"of {', '.join(_EXCHANGES)}; default: %(default)s"
    )
    parser.add_argument(
        "--network", metavar="N,N", default="10gbit", help="as of python -m reports scaling; default: %(default)s"
    )
    parser.add_argument("--latency", metavar="TIME", help="one way, of all these networks: 50us")
    parser.add_argument("--bytes", metavar="SIZE", default="44MB", help="of a worker's message; default: %(default)s")
    parser.add_argument(
        "--dense", metavar="SIZE", help="of sums within nodes and answers of servers; default: as --bytes"
    )
    for name, what in _TIMES.items():
        default = "100ms" if name == "compute" else "0s"
        parser.add_argument(f"--{name}", metavar="TIME", default=default, help=f"{what}; default: %(default)s")
    parser.add_argument(
        "--stragglers",
        metavar="S",
        type=float,
        default=0.1,
        help="standard deviation of the logarithm of the times to compute; default: %(default)s",
    )
    parser.add_argument("--slow", metavar="TIMES", type=float, help="worker 0 takes so many times as long, always")
    nodes = parser.add_argument_group("nodes")
    nodes.add_argument("--per-node", metavar="N", type=int, default=1, help="workers of a node; default: %(default)s")
    nodes.add_argument(
        "--inner", metavar="NETWORK", default=_INNER, help="within nodes, as --network; default: %(default)s"
    )
    nodes.add_argument(
        "--oversubscription",
        metavar="F",
        type=float,
        default=1.0,
        help="the nodes' bandwidths over the core's; default: 1",
    )
    more = parser.add_argument_group("more")
    more.add_argument(
        "--part",
        metavar="SIZE",
        help="longer messages of collectives are cut; none: they are whole; default: as training",
    )
    more.add_argument(
        "--eager",
        metavar="SIZE",
        help="longer messages are announced first; none: no message; default: as Open MPI on TCP",
    )
    more.add_argument(
        "--staleness", metavar="N", type=int, default=_STALENESS, help="of asynchronous; default: %(default)s"
    )
    more.add_argument("--steps", metavar="N", type=int, help="default: 10 to 100, more with few workers")
    more.add_argument("--seed", metavar="N", type=int, default=0, help="of the times; default: %(default)s")
    more.add_argument("--into", metavar="DIR", type=Path, help="write the table and a picture there, too")
    more.add_argument(
        "--format", metavar="F,F", default=FORMATS_BY_DEFAULT, help=f"of {', '.join(TABLES)}; default: %(default)s"
    )


def run(options: argparse.Namespace) -> int:
    exchanges = table_options.parse_words("--exchange", options.exchange, _EXCHANGES)
    formats = table_options.parse_words("--format", options.format, TABLES)
    _check_together(options, exchanges)
    asked = _parse_settings(options)
    from reports.scaling.measured.links import parse_networks, parse_workers
    from reports.scaling.output import simulated
    from reports.scaling.simulator.exchanges import EXCHANGES
    from reports.tables import terminal
    from reports.tables.formats import save_table

    links = parse_networks(options.network, options.latency, None)
    counts = parse_workers(options.workers)
    if not links:
        raise bad_value("--network", options.network, "one network or more, such as 10gbit")
    if counts[-1] > _MOST_WORKERS:
        raise bad_value("--workers", options.workers, f"numbers up to {_MOST_WORKERS}")
    if any(EXCHANGES[exchange].is_asynchronous for exchange in exchanges):
        _check_gradient_count(asked, counts)
    found = []
    for one in links:
        for exchange in exchanges:
            for workers in counts:
                if exchange == "hierarchical" and workers % min(options.per_node, workers):
                    raise UsageError(f"--workers {workers}: valid with hierarchical is a multiple of --per-node")
                found.append(simulated.simulate_exchange(asked, one, exchange, workers))
    table = simulated.build_table(found)
    if options.into is not None:
        options.into.mkdir(parents=True, exist_ok=True)
        save_table(table, options.into, formats)
        _draw(found, options.into)
    terminal.print_tables([table])
    return 0


def _check_together(options: argparse.Namespace, exchanges: Sequence[str]) -> None:
    """Refuse options that have no effect in combination with others.

    Raises:
        gradsweep.errors.UsageError: there is such an option; the message names the first.
    """
    for option, given, useful, valid in (
        ("--format", options.format != FORMATS_BY_DEFAULT, options.into is not None, "together with --into DIR"),
        ("--inner", options.inner != _INNER, options.per_node > 1, "together with --per-node above 1"),
        ("--staleness", options.staleness != _STALENESS, "asynchronous" in exchanges, "of --exchange asynchronous"),
        (
            "--dense",
            options.dense is not None,
            not set(_DENSE).isdisjoint(exchanges),
            f"of --exchange {', '.join(_DENSE)}",
        ),
    ):
        if given and not useful:
            raise bad_value(option, getattr(options, option.strip("-")), valid)


def _check_gradient_count(asked: SimulationSettings, counts: Sequence[int]) -> None:
    """Refuse a simulation of an asynchronous server with too many gradients, each of which is an event.

    Raises:
        gradsweep.errors.UsageError: one of the numbers of workers would send too many gradients.
    """
    from reports.scaling.output.simulated import MOST_PUSHES

    for workers in counts:
        if workers * (steps := asked.choose_steps(workers)) > MOST_PUSHES:
            raise UsageError(
                f"--workers {workers}: valid with asynchronous and {steps} steps is up to {MOST_PUSHES // steps}, or "
                f"--steps {MOST_PUSHES // workers} (a server takes {MOST_PUSHES:,} gradients at most)"
            )


def _draw(found: Sequence[SimulatedSteps], place: Path) -> None:
    from reports.plots.picture import Drawing
    from reports.scaling.output import simulated_picture

    with Drawing({simulated_picture.NAME: lambda: simulated_picture.plot_efficiency(found)}, place, ["png"]) as drawing:
        drawing.finish()


def _parse_settings(options: argparse.Namespace) -> SimulationSettings:
    """Return the settings that all simulations share.

    Raises:
        gradsweep.errors.UsageError: an option has an invalid value.
    """
    from reports.scaling.measured import traffic
    from reports.scaling.measured.links import parse_network

    times = {
        name: _parse_quantity(f"--{name}", getattr(options, name), units.seconds, _LONGEST_S, "100ms")
        for name in _TIMES
    }
    size = _parse_quantity("--bytes", options.bytes, units.byte_count, _LARGEST, "44MB")
    typed = options.bytes if options.dense is None else options.dense
    dense = _parse_quantity("--dense", typed, units.byte_count, _LARGEST, "44MB")
    part = _parse_part(options.part)
    eager = _parse_limit("--eager", options.eager, traffic.EAGER, "0B")
    for name, low, high in _RANGES:
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            raise bad_value(f"--{name.replace('_', '-')}", value, f"{low:,} to {high:,}")
    if times["compute"] + times["update"] <= 0:
        raise bad_value("--compute", options.compute, "a time above 0, or one of --update")
    from reports.scaling.output.simulated import SimulationSettings
    from reports.scaling.simulator import Compute
    from reports.scaling.simulator.exchanges import SimulatedTraining

    compute = Compute(times["compute"], options.stragglers, {} if options.slow is None else {0: options.slow})
    rest = times["encode"], times["decode"], times["update"]
    training = SimulatedTraining(compute, size, dense, *rest, staleness=options.staleness, part_bytes=part)
    inner = parse_network(options.inner)
    return SimulationSettings(
        training, options.per_node, inner, options.oversubscription, eager, steps=options.steps, seed=options.seed
    )


def _parse_part(text: str | None) -> Callable[[int], float]:
    """Return the limit of a part in bytes, as a function of the number of workers; by default it is as in training."""
    from reports.scaling.measured import traffic

    if text is None:
        return lambda workers: traffic.PART * traffic.compute_growth(workers)
    limit = _parse_limit("--part", text, math.inf, _SMALLEST_PART)
    return lambda workers: limit


def _parse_quantity(name: str, text: str, read: Callable[[object], float | None], most: float, example: str) -> float:
    value = read(text)
    if value is None or value > most:
        raise bad_value(name, text, f"a number with its unit, such as {example}")
    return value


def _parse_limit(name: str, text: str | None, usual: float, smallest: str) -> float:
    """Return a limit on message sizes in bytes: infinity for `none`, and `usual` if the option was not typed."""
    if text is None or text == "none":
        return usual if text is None else math.inf
    value = units.byte_count(text)
    if value is None or not (units.byte_count(smallest) or 0.0) <= value <= _LARGEST:
        raise bad_value(name, text, f"none, or a size with its unit from {smallest} to 10000GB, such as 64KiB")
    return value
