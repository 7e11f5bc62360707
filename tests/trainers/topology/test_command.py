"""`python -m trainers.topology`: what it prints, draws and refuses."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

import compressors
from tests.conftest import ROOT
from trainers.options.topologies import TOPOLOGIES, Edges, NoTopology
from trainers.topology import build, picture
from trainers.topology.__main__ import main

pytestmark = pytest.mark.usefixtures("no_terminal")

WORKERS = {"expander": 17, "social": 32}


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    """What is printed of one topology: the first line by the name "head", the others by what stands in front."""
    assert main(words) == 0
    head, _, *others = capsys.readouterr().out.splitlines()
    return {"head": head.rstrip(), **dict(re.split(r" {2,}", line.strip(), maxsplit=1) for line in others)}


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[list[str]]:
    """The cells of a table, without its heading and heads, and the lines below it."""
    assert main(words) == 0
    return [re.split(r" {2,}", line.rstrip()) for line in capsys.readouterr().out.splitlines()[3:]]


def test_facts_of_a_ring(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, "ring", "--workers", "16")
    name, options = re.split(r" {2,}", found["head"])
    assert (name, options) == ("ring", "16 workers: topology.weights=uniform, topology.lazy=false")
    assert (found["symmetric"], found["doubly stochastic"], found["spectral gap"]) == ("yes", "yes", "0.0507")
    assert found["steps to 0.001"].startswith("133 ")
    assert found["degree"].startswith("2: ")
    assert found["messages"] == "2 a worker and step, 32 of all together"
    assert "bytes" not in found


def test_options_are_those_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, "torus", "topology.rows=2", "topology.lazy=true", "--workers", "8")
    assert "topology.lazy=true" in found["head"] and "topology.rows=2" in found["head"]
    assert found["degree"].startswith("3: ")
    found = lines(capsys, "edges", "topology.links=0 1;1 2;2 0;0 2", "topology.directed=true", "--workers", "3")
    assert (found["symmetric"], found["doubly stochastic"]) == ("no", "no: with algorithm=sgp only")
    found = lines(capsys, "edges", "topology.links=0 1", "--workers", "2", "--parameters", "10")
    assert found["bytes"].startswith("40 a worker and step")


def test_options_may_stand_between_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, "torus", "--workers", "8", "topology.rows=2", "--parameters", "10", "topology.lazy=true")
    assert "topology.lazy=true" in found["head"] and "topology.rows=2" in found["head"]


COMMANDS = (["trainers.topology", "ring"], ["trainers.consensus", "ring", "--iterations", "1", "--stepsize", "1"])


@pytest.mark.thorough
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_nobody_to_read(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `head` does
    words = [sys.executable, "-m", *command]
    ended = subprocess.run(words, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (2, f"python -m {command[0]}: standard output is closed\n")


def test_bytes_are_the_messages_of_a_compressor(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, "star", "--workers", "4", "--parameters", "1000", "--compressor", "sign_norm")
    size = compressors.build("sign_norm").payload_size((1000,))
    assert size is not None
    assert found["bytes"] == (
        f"{round(1.5 * size)} a worker and step: {size} a message (1000 parameters, compressor=sign_norm)"
    )
    found = lines(capsys, "ring", "--parameters", "1e3", "--compressor", "topk,ratio=0.1")
    bound = compressors.build("topk", ratio=0.1).payload_bound((1000,))
    assert found["bytes"].startswith(f"at most {2 * bound} a worker and step: {bound} a message")


@pytest.mark.parametrize("name", compressors.registry())
def test_every_compressor_has_a_size(capsys: pytest.CaptureFixture[str], name: str) -> None:
    told = lines(capsys, "ring", "--parameters", "4096", "--compressor", name)["bytes"]
    most = compressors.build(name).payload_bound((4096,))
    assert 0 < int(re.findall(r"\d+", told)[1]) <= most


def test_a_table_of_all_that_there_are_for_so_many_workers(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row[0]: row[1:] for row in rows(capsys, "--workers", "32", "--parameters", "100")}
    assert found["ring"] == ["uniform", "2", "0.0128", "2", "536", "1072", "800"]
    assert found["social"][:3] == ["local_degree", "14", "0.0903"]
    assert found["one_peer_exponential"] == ["uniform", "1", "1.0000", "1", "5", "5", "400"]
    refused = [name for name in found if name.startswith("topology=")]
    assert refused == [
        "topology=expander with workers=32: valid is a prime: 31 or 37",
        "topology=margulis with workers=32: valid is a square: 25 or 36",
    ]
    assert {name for name in found if name not in refused} == set(TOPOLOGIES) - {
        "none",
        "edges",
        "expander",
        "margulis",
    }


def test_a_table_of_those_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "hypercube", "ring", "topology.lazy=true", "--workers", "8")
    assert [row[0] for row in found] == ["hypercube", "ring"]
    assert found[0][3] == "0.2500"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rong"], "topology=rong: did you mean ring. valid is one of .*"),
        (["none"], "topology=none: valid is one of ring"),
        (["torus", "--workers", "7"], "a prime makes no grid; valid is workers=6 or 8"),
        (["ring", "torus", "topology.rows=4"], "topology.rows=4: valid is one of the keys weights, lazy"),
        (["torus", "topology.rows=x"], "topology.rows=x: valid is an integer from 1 to 4096 or null"),
        (["ring", "topology.lazy=maybe"], "topology.lazy=maybe: valid is true or false"),
        (["ring", "lazy=true", "topology.lazy=true"], "topology.lazy: valid is once"),
        (["topology.lazy=true"], "topology.lazy: valid is with a topology: ring, "),
        (["edges"], "topology.file=: valid is a text file"),
        (["edges", "topology.file=/no/such"], "No such file or directory"),
        (["ring", "--compressor", "topk"], "--compressor: valid is together with --parameters"),
        (
            ["ring", "--compressor", "tupk", "--parameters", "9"],
            "--compressor=tupk: did you mean topk. valid is one .*",
        ),
        (["ring", "--picture", "ring.gif"], "--picture=ring.gif: valid is a file that ends in .png, .svg, .pdf"),
        (["ring", "--picture", "/no/such/ring.png"], "valid is a file that can be written: No such file or directory"),
        (["r\x1b[2Jng"], r"topology='r\\x1b\[2Jng': valid is one of"),
    ],
)
def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.startswith("python -m trainers.topology: ") and told.count("\n") == 1
    assert re.search(message, told)


@pytest.mark.parametrize(
    "words", [["--workers", "0"], ["--workers", "4097"], ["--workers", "x"], ["--parameters", "0"]]
)
def test_a_number_out_of_range_is_one_line(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ring", *words])
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_facts_load_no_matplotlib_and_rules_no_networkx() -> None:
    code = (
        "import sys, trainers.topology.__main__ as m; m.main(['ring']); assert 'matplotlib' not in sys.modules\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    code = (
        "import sys; from trainers.topology import validity as rules; from trainers.options import topologies as t\n"
        "for cls in t.TOPOLOGIES.values():\n"
        "    if cls not in (t.NoTopology, t.Edges):\n"
        "        try: rules.check(cls(), 16)\n"
        "        except Exception: pass\n"
        "assert not {'networkx', 'numpy'} & set(sys.modules), 'loaded'"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", [name for name, cls in TOPOLOGIES.items() if cls not in (NoTopology, Edges)])
def test_every_topology_can_be_drawn(tmp_path: Path, name: str) -> None:
    """Dots of a picture do not touch each other, and all of them are in it, with their numbers."""
    workers = WORKERS.get(name, 16)
    options = TOPOLOGIES[name]()
    file = tmp_path / "topology.svg"
    picture.draw([(options, build(options, workers))], file)
    text = file.read_text()
    numbers = re.findall(r"<text[^>]*>(\d+)</text>", text)
    assert sorted(map(int, numbers)) == list(range(workers))
    assert f"{name}, {workers} workers" in text and "gap " in text
    points = picture._place_workers(options, build(options, workers))
    apart = np.linalg.norm(points[:, None] - points[None], axis=2) + 9 * np.eye(workers)
    assert apart.min() > 2 * picture._compute_radius(points)
    assert np.abs(points).max() <= 1 + 1e-9


@pytest.mark.parametrize("name", ["ring", "chain", "torus", "hypercube", "star"])
def test_numbers_are_legible_up_to_64_workers(tmp_path: Path, name: str) -> None:
    options: Any = TOPOLOGIES[name]()
    file = tmp_path / "topology.svg"
    picture.draw([(options, build(options, 64))], file)
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: ([\d.]+)px[^>]*>\d+</text>", file.read_text())]
    assert len(sizes) == 64 and min(sizes) >= 5


def test_a_picture_is_the_same_bytes_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"{number}.{suffix}" for suffix in ("png", "svg") for number in (1, 2)]
    for file in files:
        assert main(["one_peer_exponential", "star", "--workers", "6", "--picture", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[2].read_bytes() == files[3].read_bytes()
    height, width = matplotlib.image.imread(files[0]).shape[:2]
    assert width > 1.5 * height  # two panels
    assert "step 3" in files[2].read_text()


def test_links_are_as_wide_as_what_they_carry_counts(tmp_path: Path) -> None:
    def widths(links: str) -> list[float]:
        options = Edges(links=links)
        picture.draw([(options, build(options, 3))], tmp_path / "a.svg")
        text = (tmp_path / "a.svg").read_text()
        links_part = text[text.index("LineCollection_1") : text.index("PatchCollection_1")]
        return [float(width) for width in re.findall(r"stroke-width: ([\d.]+)", links_part)]

    narrow, wide = sorted(widths("0 1 0.2;1 2 0.4"))
    assert wide == pytest.approx(2 * narrow)
