"""Averaging consensus as in figures 2 and 3 of Koloskova, Stich and Jaggi, ICML 2019, and what the stepsizes are.

    python benchmarks/consensus.py                       # minutes; draws docs/images/consensus.png
    python benchmarks/consensus.py --iterations 1000 --picture quick.png
    python benchmarks/consensus.py --stepsizes docs/images/stepsizes.png

The first picture: a ring of 25 workers with 2,000 elements each. Plain gossip has the unbiased form of qsgd, as in the
paper, and CHOCO-Gossip the one whose error is always smaller than the vector. Of randomk, all workers draw the same
elements; in the paper each draws its own. What is drawn follows from seed 0.

The second, in place of it: what is left of the error after 200 steps of CHOCO-Gossip of 16 workers, with half of
the stepsizes that the search of consensus_stepsize=tune tries.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.measuring import make_parser  # noqa: E402
from compressors import Compressor  # noqa: E402
from compressors.commands import method_specs  # noqa: E402
from trainers.config.groups import get_name  # noqa: E402
from trainers.consensus import picture  # noqa: E402
from trainers.consensus.simulate import SCHEMES, Channel, Course, draw_start_vectors, run  # noqa: E402
from trainers.consensus.stepsize_tuning import STEPSIZES, tune_stepsize  # noqa: E402
from trainers.options.topologies import Ring, Torus  # noqa: E402
from trainers.topology import build  # noqa: E402
from trainers.topology.mixing import Mixing  # noqa: E402

WORKERS, DIMENSION, SEED = 25, 2000, 0
STALLED = 1000
"""Iterations after which plain gossip has long stopped to come closer: its lines end."""
SMALLER, SHORTER = 16, 200
"""Workers and iterations of the picture of stepsizes."""
COMPARED = {
    "exact gossip": ("exact", "none"),
    "sign_norm": ("choco", "sign_norm"),
    "topk, 10 %": ("choco", "topk,ratio=0.1"),
    "topk, 1 %": ("choco", "topk,ratio=0.01"),
}
NAMES = {"exact": "exact gossip", "q1": "plain, Q1", "q2": "plain, Q2", "choco": "CHOCO-Gossip"}
SETTINGS = (  # title, compressor of plain gossip, that of CHOCO, share of the iterations
    (
        "qsgd, 256 levels",
        "qsgd,levels=256,norm=l2,bucket_size=null",
        "qsgd,levels=256,norm=l2,bucket_size=null,unbiased=false",
        0.25,
    ),
    ("topk, 1 %", "topk,ratio=0.01", "topk,ratio=0.01", 1.0),
    ("randomk, 1 %", "randomk,ratio=0.01", "randomk,ratio=0.01", 1.0),
)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--iterations", type=int, default=3000, help="of sparse messages; a quarter of others")
    parser.add_argument("--picture", type=Path, default=ROOT / "docs/images/consensus.png")
    parser.add_argument("--stepsizes", type=Path, help="draw what the stepsize does, in place of the other picture")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.stepsizes:
        picture.draw_remainders([_measure_remainders(topology) for topology in (Ring(), Torus())], given.stepsizes)
    else:
        _draw_courses(given)


def _measure_remainders(topology: Any) -> picture.Remainders:
    mixing, stepsizes, lines = build(topology, SMALLER), STEPSIZES[1::2], {}
    for name, (scheme, text) in COMPARED.items():
        left = [_measure_remainder(scheme, mixing, method_specs.parse(text), stepsize) for stepsize in stepsizes]
        print(f"{get_name(topology)}: {name}: {', '.join(f'{share:.2g}' for share in left)}", flush=True)
        lines[name] = stepsizes, left
    return picture.Remainders(f"{get_name(topology)} of {SMALLER}, gap {mixing.gap:.3g}", SHORTER, lines)


def _measure_remainder(scheme: str, mixing: Mixing, compressor: Compressor, stepsize: float) -> float:
    """Return the part of the error that is left; NaN where there is more than at the start."""
    start = draw_start_vectors(SMALLER, DIMENSION, SEED)
    channel = Channel(compressor, [(DIMENSION,)], SMALLER, SEED)
    errors = run(SCHEMES[scheme](start, mixing, channel, stepsize), SHORTER).errors
    share = float(errors[-1] / errors[0])
    return share if share < 1 else math.nan


def _draw_courses(given: argparse.Namespace) -> None:
    panels = []
    for title, plain, contracting, share in SETTINGS:
        lines = {}
        for scheme, name in NAMES.items():
            text = contracting if scheme == "choco" else plain
            iterations = min(round(share * given.iterations), STALLED if scheme in ("q1", "q2") else sys.maxsize)
            stepsize, course = _run_scheme(scheme, text, iterations)
            lines[scheme] = f"{name}, γ = {stepsize:.2g}", course
            end = "diverges" if course.diverged else f"{course.errors[-1] / course.errors[0]:.1e} of the start"
            print(f"{title}: {name}, stepsize {stepsize:g}: distance x {course.factor:.5f} a step, {end}", flush=True)
        panels.append(picture.Panel(f"{title}: ring of {WORKERS}", lines, 1e-14 if share < 1 else 1e-6))
    given.picture.parent.mkdir(parents=True, exist_ok=True)
    picture.draw(panels, given.picture)


def _run_scheme(scheme: str, text: str, iterations: int) -> tuple[float, Course]:
    """Return the stepsize of a scheme with a compressor, and its course."""
    mixing, compressor = build(Ring(), WORKERS), method_specs.parse(text)
    stepsize = tune_stepsize(None, mixing, compressor, [(DIMENSION,)], SEED) if scheme == "choco" else 1.0
    start = draw_start_vectors(WORKERS, DIMENSION, SEED)
    channel = Channel(compressor, [(DIMENSION,)], WORKERS, SEED)
    return stepsize, run(SCHEMES[scheme](start, mixing, channel, stepsize), iterations)


if __name__ == "__main__":
    main()
