"""Averaging consensus: what the spectral gap predicts, what is conserved, and what compression makes of it."""

from __future__ import annotations

import csv
import math
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compressors import InvalidParameter
from compressors.commands import method_specs
from compressors.kernels import backend
from gradsweep.errors import UsageError
from trainers.consensus import __main__ as command
from trainers.consensus import stepsize_tuning
from trainers.consensus.simulate import SCHEMES, Channel, Course, Gossip, draw_start_vectors, run
from trainers.consensus.stepsize_tuning import STEPSIZES, choose_shape, tune_stepsize
from trainers.options.topologies import TOPOLOGIES
from trainers.topology import build
from trainers.topology.mixing import Mixing

pytestmark = pytest.mark.usefixtures("one_thread", "no_terminal")

D = 300


def mixing_of(name: str, workers: int) -> Mixing:
    return build(TOPOLOGIES[name](), workers)


def gossip(
    scheme: str,
    topology: str = "ring",
    workers: int = 8,
    compressor: str = "none",
    stepsize: float = 1.0,
    shapes: tuple[tuple[int, ...], ...] = ((D,),),
) -> Gossip:
    channel = Channel(method_specs.parse(compressor), shapes, workers, 0)
    start = draw_start_vectors(workers, channel.dimension, 0)
    return SCHEMES[scheme](start, mixing_of(topology, workers), channel, stepsize)


def share(course: Course) -> float:
    return float(course.errors[-1] / course.errors[0])


@pytest.mark.parametrize("stepsize", [1.0, 0.3])
@pytest.mark.parametrize(("topology", "workers"), [("ring", 16), ("torus", 16), ("hypercube", 8), ("chain", 5)])
def test_exact_gossip_contracts_as_the_gap_predicts(topology: str, workers: int, stepsize: float) -> None:
    course = run(gossip("exact", topology, workers, stepsize=stepsize), 300)
    predicted = 1 - mixing_of(topology, workers).damp(stepsize).gap
    assert 1 - course.factor == pytest.approx(1 - predicted, rel=0.02)


def test_one_period_of_one_peer_exponential_is_the_mean() -> None:
    assert run(gossip("exact", "one_peer_exponential"), 3).errors[-1] < 1e-28


@pytest.mark.parametrize("scheme", ["exact", "q2", "choco", "deep_squeeze"])
@pytest.mark.parametrize("compressor", ["topk,ratio=0.05", "qsgd"])
def test_the_mean_is_conserved(scheme: str, compressor: str) -> None:
    here = gossip(scheme, workers=4, compressor=compressor, stepsize=0.05)
    mean = here.x.mean(0)
    run(here, 40)
    torch.testing.assert_close(here.x.mean(0), mean, rtol=0, atol=1e-12)


def test_q1_loses_the_mean() -> None:
    here = gossip("q1", workers=4, compressor="topk,ratio=0.1", stepsize=0.05)
    mean = here.x.mean(0)
    run(here, 40)
    assert (here.x.mean(0) - mean).norm() > 0.1 * mean.norm()


@pytest.mark.parametrize(("compressor", "stepsize", "iterations"), [("topk,ratio=0.02", 0.038, 600), ("qsgd", 0.7, 40)])
def test_choco_converges_linearly_where_plain_gossip_stalls(compressor: str, stepsize: float, iterations: int) -> None:
    choco = run(gossip("choco", "ring", 5, compressor, stepsize), iterations)
    assert share(choco) < 1e-6
    assert choco.errors[-1] / choco.errors[iterations // 2] < 1e-3  # does not slow down
    for plain in ("q1", "q2"):
        assert share(run(gossip(plain, "ring", 5, compressor, stepsize), iterations)) > 1e-4


@pytest.mark.parametrize("other", ["choco", "q1", "q2", "deep_squeeze"])
def test_without_compression_all_are_exact_gossip(other: str) -> None:
    exact, here = gossip("exact", stepsize=0.6), gossip(other, stepsize=0.6)
    for step in range(1, 31):
        exact.step(step)
        here.step(step)
        torch.testing.assert_close(here.x, exact.x, rtol=0, atol=1e-6)


def test_choco_is_exact_gossip_of_its_estimates() -> None:
    """The memory-efficient form keeps s = W xh without any worker having the others' xh."""
    here = gossip("choco", "torus", 9, "topk,ratio=0.1", 0.1)
    run(here, 50)
    weights = torch.from_numpy(np.array(here.mixing.get_matrix(1)))
    torch.testing.assert_close(here.sums, weights @ here.estimates, rtol=0, atol=1e-10)  # type: ignore[attr-defined]
    assert here.compute_estimate_error() == pytest.approx(float((here.x - here.estimates).square().sum()))  # type: ignore[attr-defined]


def test_what_is_compressed_and_how_much_is_sent() -> None:
    """Units are compressed one by one, each worker draws its own numbers, and bits count every neighbour."""
    course = run(gossip("q2", workers=5, compressor="qsgd", shapes=((100,), (20, 10))), 3)
    qsgd = method_specs.parse("qsgd")
    sizes = [qsgd.payload_size(shape) for shape in ((100,), (20, 10))]
    message = sum(-(-size // 4) * 4 for size in sizes if size is not None)
    assert course.bits.tolist() == [0, 16 * message, 32 * message, 48 * message]
    channel = Channel(qsgd, [(50,), (50,)], 2, 0)
    sent = channel(draw_start_vectors(1, 50, 1).repeat(2, 2), 1).view(4, 50)
    assert all(not torch.equal(sent[one], sent[other]) for one in range(4) for other in range(one))


def test_what_diverges_ends() -> None:
    course = run(gossip("choco", compressor="randomk,ratio=0.01,unbiased=true"), 300)
    assert course.diverged and math.isinf(course.errors[-1]) and course.factor == math.inf
    assert np.isfinite(course.errors[:3]).all()


@pytest.mark.parametrize("name", ["exponential", "one_peer_exponential"])
def test_estimates_want_one_symmetric_graph(name: str) -> None:
    with pytest.raises(ValueError, match="a symmetric W, the same in every step"):
        gossip("choco", name)


# The search for a stepsize


def remaining(scheme: str, mixing: Mixing, compressor: str, stepsize: float, iterations: int) -> float:
    channel = Channel(method_specs.parse(compressor), [(100,)], mixing.workers, 0)
    start = draw_start_vectors(mixing.workers, 100, 0).float()
    course = run(SCHEMES[scheme](start, mixing, channel, stepsize), iterations)
    return float(mixing.workers * course.errors[-1] + course.estimate_errors[-1])


@pytest.mark.parametrize(
    ("topology", "workers", "compressor"),
    [("ring", 5, "topk,ratio=0.2"), ("complete", 3, "topk,ratio=0.1"), ("hypercube", 4, "sign_norm")],
)
def test_the_search_finds_about_the_best(topology: str, workers: int, compressor: str) -> None:
    """Of the candidates, each of which goes all the way here, the best is beside it, and the others are far."""
    mixing = mixing_of(topology, workers)
    found = STEPSIZES.index(tune_stepsize(None, mixing, method_specs.parse(compressor), [(100,)], 0))
    scores = [remaining("choco", mixing, compressor, stepsize, 80) for stepsize in STEPSIZES[9:]]
    assert abs(9 + scores.index(min(scores)) - found) <= 1
    assert min(scores) < 0.1 * sorted(scores)[5]


def test_the_search_looks_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSqueeze stays in a distance that grows with the stepsize: who is ahead on the way is too large."""
    monkeypatch.setattr(stepsize_tuning, "ROUNDS", ((10, 10), (20, 7), (40, 5), (150, 1)))
    mixing, compressor = mixing_of("chain", 3), "topk,ratio=0.2"
    found = STEPSIZES.index(tune_stepsize(None, mixing, method_specs.parse(compressor), [(100,)], 0, "deep_squeeze"))
    scores = [remaining("deep_squeeze", mixing, compressor, stepsize, 150) for stepsize in STEPSIZES[7:15]]
    assert abs(7 + scores.index(min(scores)) - found) <= 1
    early = [remaining("deep_squeeze", mixing, compressor, stepsize, 20) for stepsize in STEPSIZES[7:15]]
    assert early.index(min(early)) > scores.index(min(scores))


def test_the_largest_is_found_where_compression_hardly_matters() -> None:
    assert tune_stepsize(None, mixing_of("ring", 8), method_specs.parse("none"), [(D,)], 0) == 1.0
    assert tune_stepsize(None, Mixing((np.eye(1),)), method_specs.parse("topk"), [(D,)], 0) == 1.0


class Meeting:
    """Ranks as threads, which meet in allgather."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier, self.said = size, threading.Barrier(size), [None] * size

    def found(self, *arguments: Any) -> list[float]:
        """What each rank's search gives."""
        answers = [math.nan] * self.size

        def search(rank: int) -> None:
            answers[rank] = tune_stepsize(Rank(self, rank), *arguments)

        threads = [threading.Thread(target=search, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers


class Rank:
    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting, self.rank, self.size = meeting, rank, meeting.size

    def allgather(self, sendobj: Any) -> list[Any]:
        self.meeting.said[self.rank] = sendobj
        self.meeting.barrier.wait(120)
        everything = list(self.meeting.said)
        self.meeting.barrier.wait(120)
        return everything


def test_the_search_is_the_same_however_many_share_it() -> None:
    arguments = (mixing_of("ring", 4), method_specs.parse("topk,ratio=0.5"), [(100,)], 3)
    alone = tune_stepsize(None, *arguments)
    assert 0.01 < alone <= 1
    for size in (3, 24):
        assert Meeting(size).found(*arguments) == [alone] * size


def test_the_search_is_in_main_memory_whatever_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_find_fault", lambda kernels: None)  # as on a machine with a GPU
    monkeypatch.setattr(backend, "_chosen", "triton")
    with pytest.raises(InvalidParameter):
        run(gossip("q2", compressor="qsgd"), 1)
    assert tune_stepsize(None, mixing_of("complete", 3), method_specs.parse("qsgd"), [(D,)], 0) > 0.5


def test_where_nothing_converges_the_search_says_so() -> None:
    with pytest.raises(UsageError, match=r"^algorithm.consensus_stepsize=tune: valid is a number: .*randomk none from"):
        tune_stepsize(None, mixing_of("ring", 4), method_specs.parse("randomk,ratio=0.01,unbiased=true"), [(D,)], 0)


def test_what_the_search_is_made_with() -> None:
    model = [(64,), (64, 3, 3, 3), (512, 512, 3, 3), (256, 512), (0,)]
    assert choose_shape(method_specs.parse("topk,ratio=0.01"), model) == (2000,)
    assert choose_shape(method_specs.parse("topk,ratio=0.00025"), model) == (4000,)
    assert choose_shape(method_specs.parse("qsgd,bucket_size=null,norm=l2"), model) == (8000,)
    rows, columns = choose_shape(method_specs.parse("svd,rank=2"), model)
    assert rows < columns and 7000 < rows * columns <= 8000
    assert choose_shape(method_specs.parse("topk"), [(30,), (3,)]) == (30,)
    assert choose_shape(method_specs.parse("topk"), []) == (1,)


# The command


def test_the_command_prints_draws_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = "ring --workers 9 --compressor qsgd --dimension 200 --iterations 60 --scheme exact,choco,q2"
    assert command.main([*told.split(), "--picture", str(tmp_path / "a.png"), "--csv", str(tmp_path / "a.csv")]) == 0
    head, names, _, exact, choco, plain, _ = capsys.readouterr().out.splitlines()
    assert head == "ring of 9 workers: spectral gap 0.156; 200 elements, compressor=qsgd"
    assert names.split()[:2] == ["scheme", "stepsize"]
    assert exact.split()[:6] == ["exact", "1", "x", "0.8440", "x", "0.8440"]
    assert choco.split()[1] == "1" and float(choco.split()[-2]) < 45  # the search's answer, and steps
    assert plain.split()[0] == "q2" and plain.split()[-2:] == ["-", "-"]
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert len(rows) == 3 * 61 and float(rows[60]["error"]) < 1e-6 * float(rows[0]["error"])


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("ring --stepsize 0", "--stepsize 0: valid is a stepsize .a number above 0 up to 1, or tune."),
        (
            "ring --scheme q3",
            "--scheme q3: valid is a list .with commas, of exact, q1, q2, choco, deep_squeeze, each once.",
        ),
        ("exponential --workers 8", "--scheme=choco: valid is with a topology that has a symmetric W, the same .*"),
        ("ring --compressor sign", "--compressor=sign: valid is a compressor that one worker can use without .*"),
        ("ring --compressor powersgd", "--compressor=powersgd: valid is a compressor that one worker can .*"),
        ("ring --compressor tpk", "--compressor=tpk: did you mean topk. valid is one of .*"),
        ("ring chain", "topology=ring chain: valid is one topology"),
        ("torus --workers 7", "topology=torus with workers=7: .*"),
        ("ring --picture a.txt", "--picture=a.txt: valid is a file that ends in .png, .svg, .pdf"),
        (
            "ring --workers 3 --scheme exact --iterations 2 --csv no/where.csv",
            "--csv=no/where.csv: valid is a file that can be written: No such file or directory",
        ),
    ],
)
def test_what_cannot_be_is_one_line(told: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = command.main(told.split())
    except SystemExit as error:
        status = error.code
    assert status == 2
    assert re.fullmatch(f"python -m trainers.consensus: {said}\n", capsys.readouterr().err)
