"""Who has which colour: the same in every plot of every sweep.

Colours are those of Okabe and Ito (https://jfly.uni-koeln.de/color/), which people with any common
colour vision tell apart; markers and hatches say the same once more for prints in grey.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from pathlib import Path

STYLE = Path(__file__).parent / "gradsweep.mplstyle"

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"

PHASES = {
    "data": "#BBBBBB",
    "forward": SKY,
    "backward": BLUE,
    "encode": YELLOW,
    "communicate": VERMILLION,
    "decode": ORANGE,
    "update": GREEN,
    "other": "#FFFFFF",
}

# Where colours could not tell so many apart: those that are compared with, and bars that have a name beside them.
BACKDROP, BAR = "#D6D6D6", "#8FB3D1"

# Yellow lines are too light on white paper; black is the baseline's.
_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
_MARKERS = ("o", "s", "^", "D", "v", "P", "h", "p")
_KNOWN = (
    "qsgd",
    "svd",
    "topk",
    "powersgd",
    "terngrad",
    "randomk",
    "fp16",
    "sign",
    "natural",
    "onebit",
    "dgc",
    "signum",
)


@dataclasses.dataclass(frozen=True)
class Look:
    colour: str
    marker: str


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """The look of each label (`qsgd`, `qsgd levels=7`), from the name of its compressor.

    Variants of one compressor share its colour, from dark to light, and differ in their marker.
    """
    variants: dict[str, list[str]] = {}
    for label in labels:
        variants.setdefault(label.partition(" ")[0], []).append(label)
    return {
        label: _variant(name, position, len(members))
        for name, members in variants.items()
        for position, label in enumerate(members)
    }


def _variant(name: str, position: int, count: int) -> Look:
    if name == "none":
        colour, first = BLACK, 0
    else:
        # A name that is not known here still has one colour everywhere: it follows from its letters.
        place = _KNOWN.index(name) if name in _KNOWN else zlib.crc32(name.encode())
        colour = _COLOURS[place % len(_COLOURS)]
        first = 1 + place // len(_COLOURS) + place % len(_COLOURS)
    return Look(_lighter(colour, 0.45 * position / max(count - 1, 1)), _MARKERS[(first + position) % len(_MARKERS)])


def _lighter(colour: str, share: float) -> str:
    """The colour mixed with white."""
    parts = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02X}" for part in parts)
