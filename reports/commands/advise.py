"""Which compressors are worth it for a model, a number of workers and a network, without a sweep.

    python -m reports advise my_package.nets:build --batch 32 --shape 3,224,224 --workers 16 --network 10gbit
    python -m reports advise model=resnet50 dataset=cifar10 --workers 8 --network ethernet_1g
    python -m reports advise SWEEP_DIR --workers 64

A model is measured on this machine for about a minute: forward, backward, update, and encoding and decoding of all
compressors. The cost model of `python -m reports scaling` predicts the rest. For a sweep's directory nothing is
measured: its finished runs tell. docs/guide/advise.md tells how far it can be trusted."""

from __future__ import annotations

import argparse
import datetime
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsweep import run_directory
from gradsweep.cli.arguments import make_integer_type
from gradsweep.cli.command_names import adapt_commands
from gradsweep.cli.tables import print_line
from gradsweep.errors import UsageError, bad_value
from gradsweep.files import read_json
from gradsweep.targets import parse_target
from gradsweep.yaml_files import read_mapping
from reports.commands import baseline_options, table_options
from reports.commands.build import format_path
from reports.commands.table_options import FORMATS_BY_DEFAULT
from reports.reading.json_values import as_mapping
from reports.tables.file_formats import TABLES

if TYPE_CHECKING:
    from reports.advise.advice import AdviceList
    from reports.scaling.measured.links import Links  # these load numpy, which --help does without

_NETWORK, _BATCH, _CLASSES = "10gbit", 32, 10
_LARGEST = 2**20
_MOST_DIMENSIONS, _MOST_ELEMENTS = 4, 10**9
_LONGEST_S = 3600.0
_MOST_CONFIRMED = 3
_KEYS_OF_OPTIONS = {"workers": "--workers", "network": "--network"}
"""Keys and groups of a config that are never given, each with the option in their place."""
_REPLACED = ("workers", "network", "race")
"""Keys and groups of a sweep's command that the sweep which confirms an advice has otherwise."""
_PLACE = Path("output", "advise")
_KEYS_BESIDE_OPTIONS = {"batch.size": "batch", "device": "device"}
"""Keys of a config that may be given, or the option instead."""
_MOST = 10**9
_parse_count = make_integer_type(f"integer from 1 to {_MOST}", 1, _MOST)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        metavar="WORD",
        nargs="+",
        help="a target (my_package.nets:build), KEY=VALUE..., or a sweep's directory",
    )
    parser.add_argument("--workers", metavar="N", type=_parse_count, required=True, help="from 2 up")
    parser.add_argument(
        "--network",
        metavar="N",
        help=f"as of python -m reports scaling: 25gbit, ethernet_1g, infiniband; default: {_NETWORK}",
    )
    parser.add_argument("--latency", metavar="TIME", help="one way, of this network: 50us")
    parser.add_argument(
        "--probe", metavar="FILE", type=Path, help="network.json of `python -m sweep probe`, or a run's"
    )
    parser.add_argument(
        "--batch", metavar="N", type=_parse_count, help=f"samples of a worker in a step; default: {_BATCH}"
    )
    parser.add_argument(
        "--shape", metavar="N,N", help="of a sample of random data: 3,224,224; else dataset=... is read"
    )
    parser.add_argument(
        "--classes", metavar="N", type=_parse_count, help=f"of random data: width of the output; default: {_CLASSES}"
    )
    parser.add_argument("--methods", metavar="M,M", help="compressors to measure; default: all")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where torch sees a GPU")
    parser.add_argument("--seconds", metavar="S", type=float, default=60.0, help="of measuring; default: %(default)g")
    parser.add_argument(
        "--into", metavar="DIR", type=Path, help=f"where it goes; default: {_PLACE}/DATE, or SWEEP/advise"
    )
    parser.add_argument(
        "--format", metavar="F,F", default=FORMATS_BY_DEFAULT, help=f"of {', '.join(TABLES)}; default: %(default)s"
    )
    parser.add_argument("--quiet", action="store_true", help="print only where it is")


def run(options: argparse.Namespace) -> int:
    formats = table_options.parse_words("--format", options.format, TABLES)
    if not 2 <= options.workers <= _LARGEST:
        raise UsageError(
            f"--workers {options.workers}: valid is an integer from 2 to {_LARGEST}; one alone sends nothing"
        )
    links = _parse_network(options)
    directories = [Path(word) for word in options.words if "=" not in word and Path(word).is_dir()]
    if directories and len(directories) < len(options.words):
        raise UsageError(f"{directories[0]}: is a directory; valid is directories of sweeps, or a model, not both")
    if directories:
        _refuse_measuring(options)
        found, place, command = _advise_by_runs(options, directories, links)
        commands = [command] * len(found)
    else:
        found, place, words = _advise_by_measuring(options, links)
        commands = [_suggest_sweep(one, options, words) for one in found]
    for number, one in enumerate(found):
        _write(one, place / str(number + 1) if len(found) > 1 else place, formats, commands[number], options.quiet)
    print(format_path(place), flush=True)
    return 0


def _parse_network(options: argparse.Namespace) -> Links:
    from reports.scaling.measured.links import parse_networks

    if options.probe is not None and options.network is not None:
        raise UsageError(f"--network {options.network}: valid is one of --network and --probe")
    typed = options.network if options.network is not None else "" if options.probe is not None else _NETWORK
    found = parse_networks(typed, options.latency, options.probe)
    if len(found) != 1:
        raise bad_value("--network", typed, "one network, such as 10gbit")
    return found[0]


def _refuse_measuring(options: argparse.Namespace) -> None:
    for name in ("shape", "batch", "classes", "device", "methods"):
        if getattr(options, name):
            raise UsageError(f"--{name} {getattr(options, name)}: valid with a model; of a sweep its runs are used")


def _advise_by_runs(
    options: argparse.Namespace, directories: Sequence[Path], links: Links
) -> tuple[list[AdviceList], Path, str]:
    from reports.advise.advice import advise_by_runs
    from reports.commands.scaling import fit_predictor

    predictor, sweeps = fit_predictor(directories)
    found = [advise_by_runs(predictor, name, options.workers, links) for name in predictor.measurements.workloads]
    one = options.into is None and len(sweeps) == 1
    place = sweeps[0] / "advise" if one else baseline_options.choose_directory(options.into, sweeps)
    return found, place, _suggest_more_runs(sweeps[0], options) if len(sweeps) == 1 else ""


def _suggest_more_runs(sweep: Path, options: argparse.Namespace) -> str:
    """Return the command of a sweep with these workers in races on this network; empty if the command is not known."""
    try:
        words = shlex.split(str(read_mapping(sweep / run_directory.SWEEP).get("command") or ""))
    except (OSError, ValueError):  # somebody has damaged it
        return ""
    kept = [word for word in words if not _is_replaced(word)]
    return shlex.join([*kept, f"workers={options.workers}", *_list_network(options.probe), "race=only"]) if kept else ""


def _is_replaced(word: str) -> bool:
    key, is_override, _ = word.partition("=")
    return bool(is_override) and (key.partition(".")[0] in _REPLACED or key == "hydra.sweep.dir")


def _advise_by_measuring(options: argparse.Namespace, links: Links) -> tuple[list[AdviceList], Path, list[str]]:
    from reports.advise import measuring
    from reports.advise.advice import advise
    from reports.advise.measured import read_measured
    from reports.advise.predict import Forecast

    words = _list_config_words(options)
    shape = None if options.shape is None else _parse_shape(options.shape)
    if shape is None and options.classes is not None:
        raise UsageError(f"--classes {options.classes}: valid with --shape; the data set has its own")
    if not 0 < options.seconds <= _LONGEST_S:
        raise UsageError(f"--seconds {options.seconds:g}: valid is a number above 0, up to {_LONGEST_S:g}")
    methods = [] if options.methods is None else options.methods.split(",")
    if "" in methods:
        raise UsageError(f"--methods {options.methods}: valid is names of compressors, such as qsgd,topk")
    config = measuring.compose(words)
    if shape is None and not any(word.startswith("dataset=") for word in words):
        raise UsageError("--shape: missing; valid is the shape of a sample, such as 3,224,224, or dataset=NAME")
    batch = dict(config.get("batch", {}))
    size = options.batch or (_BATCH if not any(word.startswith("batch.size=") for word in words) else batch["size"])
    request: dict[str, Any] = {
        "config": {
            **config,
            "batch": {**batch, "size": size, "per": "worker"},
            "device": options.device or config["device"],
        },
        "shape": shape,
        "classes": options.classes or _CLASSES,
        "seconds": options.seconds,
        "methods": methods,
        "memory": config["memory"]["name"] if any(word.startswith("memory=") for word in words) else "",
    }
    place = options.into or _PLACE / datetime.datetime.now().strftime("%Y-%m-%d-%H-%M-%S")
    place.mkdir(parents=True, exist_ok=True)
    measured = read_measured(measuring.measure(request, place, quiet=options.quiet))
    refused = [f"not measured: {name}: {reason}" for name, reason in measured.refused.items()]
    model = " ".join(word for word in words if word.startswith("model"))
    subject = f"{model}: {measured.parameters:,} parameters, batch {size} a worker, {measured.machine}"
    return [advise(Forecast(measured), options.workers, links, refused, subject)], place, words


def _list_config_words(options: argparse.Namespace) -> list[str]:
    """Return the overrides of a config, with a target as model=custom.

    Raises:
        UsageError: a word is neither an override nor a target, there are several targets, or something is given twice.
    """
    words = list(options.words)
    targets = [word for word in words if "=" not in word]
    if len(targets) > 1:
        raise UsageError(f"{targets[1]}: valid is one target, KEY=VALUE words, or directories of sweeps that exist")
    others = [word for word in words if "=" in word]
    keys = [word.partition("=")[0].lstrip("+") for word in others]
    for number, key in enumerate(keys):
        if key in keys[:number]:
            raise UsageError(f"{others[number]}: {key} is given twice; valid is one value")
        if (root := key.partition(".")[0]) in _KEYS_OF_OPTIONS:
            raise UsageError(f"{others[number]}: valid is {_KEYS_OF_OPTIONS[root]} in place of {root}=...")
        if (option := _KEYS_BESIDE_OPTIONS.get(key)) and getattr(options, option) is not None:
            raise UsageError(f"{others[number]}: valid is left out with --{option} {getattr(options, option)}")
        if targets and key in ("model", "model.target"):
            raise UsageError(f"{others[number]}: valid is left out with the target {targets[0]}")
    if not targets:
        return others
    if not {":", "."} & set(targets[0]):
        raise UsageError(
            f"{targets[0]}: valid is my_package.nets:build, KEY=VALUE..., or a sweep's directory that exists"
        )
    parse_target("model.target", targets[0])
    return ["model=custom", f"model.target={targets[0]}", *others]


def _parse_shape(typed: str) -> list[int]:
    words = typed.split(",")
    valid = f"1 to {_MOST_DIMENSIONS} integers from 1 up, such as 3,224,224"
    if not 1 <= len(words) <= _MOST_DIMENSIONS or not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--shape {typed}: valid is {valid}")
    shape, elements = [int(word) for word in words], 1
    for size in shape:
        elements *= size
    if elements > _MOST_ELEMENTS:
        raise UsageError(f"--shape {typed}: valid is {valid}, with at most {_MOST_ELEMENTS} elements")
    return shape


def _suggest_sweep(found: AdviceList, options: argparse.Namespace, words: Sequence[str]) -> str:
    """Return the command of the sweep that confirms an advice, by races on the network itself."""
    chosen = (found.worthy or found.others)[:_MOST_CONFIRMED]
    if not chosen:
        return ""
    data = []
    if options.shape is not None and not any(word.startswith("dataset=") for word in words):
        data = _suggest_data(_parse_shape(options.shape), options.classes or _CLASSES)
    batch = [f"batch.size={options.batch or _BATCH}"] if not any(w.startswith("batch.size=") for w in words) else []
    device = [f"device={options.device}"] if options.device else []
    chosen_otherwise = ("compressor", "memory", "batch.per", *(["device"] if device else []))
    kept = [word for word in words if word.partition("=")[0] not in chosen_otherwise]
    grid = [
        f"compressor={','.join(['none', *(one.method for one in chosen)])}",
        f"memory={','.join(['none', *(one.memory for one in chosen)])}",
        "sweep.zip=[[compressor,memory]]",
    ]
    rest = [f"workers={found.workers}", "batch.per=worker", *batch, *device, *_list_network(options.probe), "race=only"]
    return adapt_commands(f"python multirun.py -m {shlex.join([*kept, *data, *grid, *rest])}")


def _list_network(probe: Path | None) -> list[str]:
    """Return the words that choose the network of a sweep: a real one, or that which was emulated for the probe."""
    network = as_mapping((read_json(probe) or {}).get("network")) if probe else {}
    words = [f"network.{key}={network[key]}" for key in ("bandwidth", "latency", "loss") if network.get(key)]
    return ["network=emulated", *words] if words else ["network=real"]


def _suggest_data(shape: Sequence[int], classes: int) -> list[str]:
    if len(shape) == 3:
        sizes = [f"dataset.{name}={size}" for name, size in zip(("channels", "height", "width"), shape, strict=True)]
        return ["dataset=synthetic", *sizes, f"dataset.classes={classes}"]
    return ["dataset=custom", "dataset.target=YOUR_MODULE:YOUR_DATA"]


def _write(found: AdviceList, place: Path, formats: Sequence[str], command: str, quiet: bool) -> None:
    from reports.advise import output
    from reports.tables import terminal

    table = output.write(found, place, formats, command)
    if quiet:
        return
    print_line(found.headline, "bold")
    for line, look in ((found.about_accuracy, ""), (found.subject, "dim"), (found.warning, "yellow")):
        if line:
            print_line(line, look)
    terminal.print_tables([output.shorten(table)])
    if command:
        print_line(f"\n{output.CONFIRM}", "bold")
        print(command, flush=True)  # not broken into lines, to be copied
    print_line("")
    for note in table.notes:
        print_line(note, "dim")
