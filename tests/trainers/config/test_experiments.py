"""The published set-ups: what they are made of, what they send, how their learning rate goes, and that they run."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.trainers.start_ranks import run_ranks
from trainers.config.run_config import parse
from trainers.optimizers import schedules

CIFAR, IMAGENET, EPSILON = ((3, 32, 32), 10), ((3, 224, 224), 1000), ((2000,), 2)
TEXT = ((64,), 65)
SMALL = {
    "quick",
    "digits_scaling",
    "choco_digits",
    "decentralised_digits",
    "sgd_resnet20_digits",
    "choco_resnet20_digits",
}
"""On digits, with nothing published."""
EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf/experiment").glob("*.yaml"))
PROGRAM = "tests.trainers.ranks.experiments"

COMPOSE = """
import json, shlex, sys
import hydra
from omegaconf import OmegaConf
from hydra.core.global_hydra import GlobalHydra
from sweep.config import schema
from sweep.launch.session import Session
from sweep.config.cached_repository import cache_config_files
from trainers.config.groups import GROUPS
from trainers.config.run_config import RunConfig
from trainers.rules.resolve import resolve
schema.register(RunConfig, GROUPS)
schema.register_resolvers(Session().choose_directory)
with hydra.initialize_config_dir(version_base="1.3", config_dir=sys.argv[1]):
    main = GlobalHydra.instance().hydra
    main.config_loader = cache_config_files(main.config_loader)
    for line in sys.stdin:
        print(json.dumps(resolve(OmegaConf.to_container(hydra.compose("config", shlex.split(line))))))
"""


def composed(commands: list[str]) -> list[dict[str, Any]]:
    """The resolved configs of command lines."""
    done = subprocess.run(
        [sys.executable, "-c", COMPOSE, str(ROOT / "conf")],
        cwd=ROOT,
        input="\n".join(commands),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def published() -> dict[str, dict[str, Any]]:
    """Every experiment as it stands."""
    return dict(zip(EXPERIMENTS, composed([f"experiment={name}" for name in EXPERIMENTS]), strict=True))


def test_the_header_names_source_figures_and_differences() -> None:
    for name in EXPERIMENTS:
        lines = (ROOT / f"conf/experiment/{name}.yaml").read_text().splitlines()
        assert lines[0] == "# @package _global_"
        header = "\n".join(line for line in lines if line.startswith("#"))
        if "experiment=dgc_resnet50_imagenet with" in header or name in SMALL:
            continue  # a variant of one that has them
        for word in ("# Source: ", "# Published: ", "# Same: ", "# Differs: ", f"experiment={name}"):
            assert word in header, (name, word)


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize("part", [0, 1])
def test_every_experiment_runs_to_its_end(part: int, tmp_path: Path, published: dict[str, dict[str, Any]]) -> None:
    """With few images of the published size, so that all models fit; past the warm-up of a ratio where there is one.

    Of ResNets for CIFAR, which are built as published elsewhere, fewer layers will do.
    """
    chosen = EXPERIMENTS[part::2]
    images = "workers=2 dataset=synthetic dataset.train=8 dataset.test=4"
    text = "workers=2 dataset=synthetic_text dataset.order=windows dataset.bptt=8 dataset.train=200 dataset.test=100"
    commands = []
    for name in chosen:
        epochs = 6 if name.startswith("dgc") and name != "dgc_resnet50_imagenet" else 2
        size = 4 if published[name]["batch"]["per"] == "worker" else 8
        grows = "phases=[{epoch:0,size:32},{epoch:1,size:48,batch:2}]" if name == "layerwise_resnet50_imagenet" else ""
        shallow = "model.depth=8" if re.search("resnet(20|110)", name) else ""
        small = (
            f"{text} model.layers=1 schedule.warmup_steps=1" if published[name]["model"]["name"] == "gpt" else images
        )
        if published[name]["algorithm"]["name"] in ("local_sgd", "noloco"):  # past the first averaging of all fragments
            small, epochs = f"{small} algorithm.steps=6", 8
        length = f"epochs={epochs} max_steps={epochs} {grows}"
        commands.append(f"experiment={name} data.root={tmp_path} {small} batch.size={size} {length} {shallow}")
    configs = dict(zip(chosen, composed(commands), strict=True))
    file = tmp_path / "configs.json"
    file.write_text(json.dumps(configs))
    run_ranks(3, "train", str(file), module=PROGRAM)  # two workers, and where there is one a server


def mib_per_epoch(payload: float, shapes: list[list[int]]) -> float:
    """Of 24 steps, as PowerSGD's tables count."""
    return 24 * payload / 2**20


def beside_thousandths(payload: float, shapes: list[list[int]]) -> float:
    """Bytes beside two of value and four of position for each of ceil(n / 1000) elements of a matrix, and vectors."""
    matrices = [math.prod(shape) for shape in shapes if len(shape) > 1]
    vectors = [math.prod(shape) for shape in shapes if len(shape) <= 1]
    return payload - 4 * sum(vectors) - 6 * sum(math.ceil(n / 1000) for n in matrices)


def of_pairs(payload: float, shapes: list[list[int]]) -> float:
    """Part of what a float32 value and position for each of int(n / 1000) + 1 elements of every tensor would take."""
    return payload / (8 * sum(math.prod(shape) // 1000 + 1 for shape in shapes))


def whole(payload: float, shapes: list[list[int]]) -> float:
    return payload


MESSAGES: list[tuple[str, Any, int, Callable[[float, list[list[int]]], float], float, float]] = [
    # command, image and classes, parameters, what is looked at, between, and
    ("leansgd_wrn compressor=none", CIFAR, 77_850, whole, 4 * 77_850, 4 * 77_850),
    ("leansgd_speed compressor=none", CIFAR, 466_714, whole, 4 * 466_714, 4 * 466_714),
    ("leansgd_speed compressor=none model.depth=100", CIFAR, 1_536_090, whole, 4 * 1_536_090, 4 * 1_536_090),
    ("layerwise_resnet9 compressor=none", CIFAR, 6_573_120, whole, 4 * 6_573_120, 4 * 6_573_120),
    ("layerwise_resnet50_imagenet compressor=none", IMAGENET, 25_557_032, whole, 4 * 25_557_032, 4 * 25_557_032),
    ("layerwise_alexnet compressor=none", CIFAR, 2_255_296, whole, 4 * 2_255_296, 4 * 2_255_296),
    ("layerwise_alexnet compressor=none model=alexnet1", CIFAR, 23_272_266, whole, 4 * 23_272_266, 4 * 23_272_266),
    ("powersgd_resnet18 compressor=none memory=none", CIFAR, 11_173_962, mib_per_epoch, 1023.0, 1023.1),
    ("powersgd_resnet18 compressor.rank=1", CIFAR, 11_173_962, mib_per_epoch, 3.5, 4.5),
    ("powersgd_resnet18 compressor.rank=2", CIFAR, 11_173_962, mib_per_epoch, 7.5, 8.5),
    ("powersgd_resnet18 compressor.rank=4", CIFAR, 11_173_962, mib_per_epoch, 13.5, 14.5),
    ("atomo_resnet18 compressor=none", CIFAR, 11_173_962, whole, 4 * 11_173_962, 4 * 11_173_962),
    ("gpt_char_cpu", TEXT, 804_096, whole, 4 * 804_096, 4 * 804_096),
    # 8 columns and rows of matrices with 8,577 columns and rows in all, and 9 vectors of 128 elements
    ("powersgd_gpt", TEXT, 804_096, whole, 4 * (8 * 8_577 + 9 * 128), 4 * (8 * 8_577 + 9 * 128)),
    ("diloco_gpt", TEXT, 804_096, whole, 4 * 804_096, 4 * 804_096),
    ("muloco_gpt", TEXT, 804_096, whole, 4 * 804_096, 4 * 804_096),
    # four bits an element, and a norm for each of 27 tensors
    ("streaming_diloco_gpt", TEXT, 804_096, whole, 402_048, 402_300),
    # 194 blocks of 64 x 64 and 10 of 13 x 64, of each 64 elements in 14 bits, and 9 vectors of 128 elements
    ("sparseloco_gpt", TEXT, 804_096, whole, 204 * 112, 204 * 112 + 9 * 128),
    # of each block 32 coefficients, with positions in less than 12 bits each
    ("demo_gpt", TEXT, 804_096, whole, 204 * 32 * 4, 204 * 32 * 5.5 + 9 * 128 * 4),
    ("noloco_gpt", TEXT, 804_096, whole, 4 * 804_096, 4 * 804_096),
    ("sparta_gpt", TEXT, 804_096, whole, 4 * 4_020, 4 * 4_047),
    ("gpt_char", ((256,), 65), 10_745_088, whole, 4 * 10_745_088, 4 * 10_745_088),
    ("grace_resnet20 compressor=none", CIFAR, 269_722, whole, 4 * 269_722, 4 * 269_722),
    ("grace_resnet20 compressor.ratio=0.01", CIFAR, 269_722, whole, 14_400, 14_800),
    ("layerwise_resnet9 compressor.ratio=0.01", CIFAR, 6_573_120, whole, 325_000, 335_000),
    ("dgc_convnet", CIFAR, 853_018, of_pairs, 0.5, 1.0),
    ("dpsgd_resnet20_ring", CIFAR, 272_474, whole, 4 * 272_474, 4 * 272_474),
    # a bit an element, or 16, and a norm for each of 65 tensors
    ("choco_resnet20_ring", CIFAR, 272_474, whole, 34_320, 34_400),
    ("deep_squeeze_resnet20_ring", CIFAR, 272_474, whole, 34_320, 34_400),
    ("dcd_resnet20_ring", CIFAR, 272_474, whole, 545_208, 545_300),
    ("ecd_resnet20_ring", CIFAR, 272_474, whole, 545_208, 545_300),
    ("dpsgd_logistic", EPSILON, 2_000, whole, 8_000, 8_000),
    ("choco_logistic", EPSILON, 2_000, whole, 80, 120),
    # a header, alignment and, as sizes differ, four bytes about each payload
    ("dgc_resnet20", CIFAR, 269_722, beside_thousandths, 0, 59 * 16),
    ("dgc_resnet110", CIFAR, 1_727_962, beside_thousandths, 0, 329 * 16),
    # 0.8 k at least, by a threshold from a sample
    ("dgc_resnet50_imagenet compressor=dgc_fp16", IMAGENET, 25_557_032, beside_thousandths, -30_700, 161 * 16),
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.mpi
def test_parameters_and_bytes_are_the_published_ones(tmp_path: Path) -> None:
    configs = composed([f"experiment={command}" for command, *_ in MESSAGES])
    file = tmp_path / "configs.json"
    file.write_text(json.dumps({row[0]: (config, *row[1]) for row, config in zip(MESSAGES, configs, strict=True)}))
    run_ranks(1, "measure", str(file), module=PROGRAM)
    found = json.loads(file.read_text())
    for command, _, parameters, look, low, high in MESSAGES:
        one = found[command]
        assert one["parameters"] == parameters, command
        figure = look(one["payload_bytes"], one["shapes"])
        assert low <= figure <= high, (command, figure)


def rates(config: dict[str, Any], per_epoch: int) -> Callable[[float], float]:
    """The learning rate by epochs that have passed; the first has so many steps."""
    run = parse(config)
    lengths = run.compute_epochs(per_epoch * run.global_batch)
    schedule = schedules.build(run, lengths)
    return lambda epochs: schedule.rate(int(lengths.count_steps_until(epochs)) + 1)


DGC_FACTORS = (0.125, 0.3, 0.475, 0.65, 0.825, 1.0)

RATES: dict[str, tuple[int, dict[float, float]]] = {
    "leansgd_wrn": (49, {0: 0.1, 2.9: 0.1, 3: 0.097, 6: 0.09409, 199: 0.1 * 0.97**66}),
    "leansgd_speed": (49, {0: 0.1, 1.9: 0.1}),
    "layerwise_resnet9": (49, {2.49: 0.2, 4.99: 0.4, 14.49: 0.2, 23.99: 0.0}),
    "layerwise_alexnet": (49, {2.49: 0.2, 4.99: 0.4, 14.49: 0.2, 23.99: 0.0}),
    "layerwise_resnet50_imagenet": (
        313,
        {0: 1.0, 2.5: 1.5, 4.99: 2.0, 5: 1.0, 13.99: 1.0, 14: 0.4375, 16: 0.04375, 27: 0.004375, 32: 0.0025},
    ),
    "dgc_convnet": (
        196,
        {0: 0.1 * 2**0.5, 80.9: 0.1 * 2**0.5, 81: 0.01 * 2**0.5, 122: 0.001 * 2**0.5, 163: 0.001 * 2**0.5},
    ),
    "dgc_resnet20": (
        49,
        {**{e: 0.8 * f for e, f in enumerate(DGC_FACTORS)}, 2.5: 0.45, 102.5: 0.4, 199: 0.8 * 6.4896e-5},
    ),
    "dgc_resnet110": (49, {**{e: 0.8 * f for e, f in enumerate(DGC_FACTORS)}, 2.5: 0.45, 102.5: 0.4}),
    "dgc_resnet50_imagenet": (1252, {0: 0.0125, 2.5: 0.20625, 5: 0.4, 29.9: 0.4, 30: 0.04, 60: 0.004, 80: 0.0004}),
    "powersgd_resnet18": (25, {0: 0.1, 2.52: 0.856, 5: 1.6, 149: 1.6, 150: 0.16, 250: 0.016}),
    "atomo_resnet18": (25, {0: 0.1, 199: 0.1}),
    "gpt_char_cpu": (500, {0.098: 5e-4, 0.2: 1e-3, 2.1: 5.5e-4, 3.998: 1e-4}),
    **{
        f"{name}_gpt": (500, {0.098: rate / 2, 0.2: rate, 2.09: 0.55 * rate, 3.998: rate / 10})
        for name, rate in {
            **dict.fromkeys(("powersgd", "diloco", "streaming_diloco", "sparseloco", "noloco", "sparta"), 1e-3),
            **{"muloco": 0.03, "demo": 4e-4},
        }.items()
    },
    "gpt_char": (50, {0.98: 5e-4, 2: 1e-3, 51: 5.5e-4, 99.98: 1e-4}),
    "grace_resnet20": (391, {0: 0.1, 82: 0.01, 123: 0.001}),
    **{
        f"{name}_resnet20_ring": (25, {0: 0.1, 2.5: 0.35, 5: 0.6, 149.9: 0.6, 150: 0.06, 225: 0.006})
        for name in ("dpsgd", "choco", "deep_squeeze", "dcd", "ecd")
    },
    **{f"{name}_logistic": (44_445, {0: 20.0, 1: 4e4 / 46_445, 9: 4e4 / 402_005}) for name in ("dpsgd", "choco")},
}


@pytest.mark.parametrize("name", RATES)
def test_the_learning_rate_goes_as_published(name: str, published: dict[str, dict[str, Any]]) -> None:
    per_epoch, points = RATES[name]
    rate = rates(published[name], per_epoch)
    for epochs, expected in points.items():
        assert rate(epochs) == pytest.approx(expected, rel=0.01, abs=1e-6), (epochs, rate(epochs))


def test_every_experiment_has_a_rate_and_a_message_that_are_tested() -> None:
    variants = {*SMALL, "dgc_resnet50_imagenet_wm5", "dgc_resnet50_imagenet_wm5o"}
    assert set(RATES) | variants == set(EXPERIMENTS)
    assert {row[0].split()[0] for row in MESSAGES} | variants == set(EXPERIMENTS)


def test_the_page_of_experiments_has_them_all() -> None:
    page = (ROOT / "docs/guide/experiments.md").read_text(encoding="utf-8")
    assert all(f"experiment={name}" in page for name in EXPERIMENTS)


ARGUMENTS = """
arch optimizer avg_model experiment data pin_memory batch_size base_batch_size num_workers eval_freq
num_epochs partition_data reshuffle_per_epoch stop_criteria n_mpi_process n_sub_process world on_cuda use_ipc
comm_device lr lr_scaleup lr_scaleup_factor lr_warmup lr_warmup_epochs lr_schedule_scheme lr_change_epochs
lr_decay weight_decay use_nesterov momentum_factor comm_op choco_consenus_stepsize compress_ratio
quantize_level is_biased hostfile graph_topology track_time display_tracked_time python_path mpi_path
evaluate_avg
"""
"""Of the command in ChocoSGD's README."""


TOGETHER = {
    **dict.fromkeys(("compressor", "memory", "exchange", "policy", "optimizer"), "algorithm"),
    "dataset": "model",
}
"""Sections that go with some choices in others only."""


def shared(commands: list[str]) -> list[str]:
    """Fewer command lines of the same words: each has several of the given ones, which speak of different things."""
    lines: list[tuple[set[str], list[str]]] = []
    for command in commands:
        sections = {re.split(r"[.=]", word.lstrip("+'"))[0] for word in command.split()}
        about = {TOGETHER.get(section, section) for section in sections}
        for taken, words in lines:
            if not taken & about:
                taken |= about
                words.append(command)
                break
        else:
            lines.append((about, [command]))
    return [" ".join(words) for _, words in lines]


@pytest.mark.thorough
def test_chocosgds_arguments_are_commands_here() -> None:
    page = (ROOT / "docs/reference/chocosgd.md").read_text(encoding="utf-8")
    table = page.split("<!-- chocosgd: begin -->")[1].split("<!-- chocosgd: end -->")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if "`" in line]
    named = {name for row in rows for name in re.findall(r"`(\w+)(?:=[^`]*)?`", row[0])}
    assert not set(ARGUMENTS.split()) - named
    assert all(re.fullmatch("-|`[^`]+`", row[1]) for row in rows), rows
    page = page.replace("device=cuda", "device=auto")  # here may be no GPU
    given = [row[1].strip("`").replace("device=cuda", "device=auto") for row in rows if row[1] != "-"]
    alone = re.compile(r"\b(schedule|optimizer|experiment)=")
    commands = [one for one in given if alone.search(one)]
    commands += [
        f"experiment=choco_resnet20_ring {one}" for one in shared([one for one in given if one not in commands])
    ]
    spelled = page.split("sets the same keys one by one:")[1].split("python multirun.py")[1].split("\n\n")[0]
    *_, short, long = composed([*commands, "experiment=choco_resnet20_ring", spelled.replace("\\\n", " ")])
    short |= {"gpus": [0] * 16, "sweep": {**short["sweep"], "name": "demo"}}
    assert long == {**short, "exchange": {**short["exchange"], "overlap": True}}
