"""Choose colours and markers, the same in every plot of every sweep.

The first colours are those of Okabe and Ito (https: jfly.uni-koeln.de/color/), which people with any common colour
vision tell apart; markers and hatches repeat the distinction for prints in grey, and where there are more labels than
colours.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Sequence
from pathlib import Path

STYLE = Path(__file__).parent / "gradsweep.mplstyle"

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
INDIGO, WINE, OLIVE, BROWN, VIOLET, PINE = "#332288", "#882255", "#999933", "#7F5800", "#7A5FD3", "#005740"

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

# For backdrops, and for bars with a name beside them: so many could not be told apart by colour.
BACKDROP, BAR = "#D6D6D6", "#8FB3D1"

# Yellow lines are too light on white paper; black is the baseline's.
_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INDIGO, WINE, OLIVE, BROWN, VIOLET, PINE)
_MARKERS = ("o", "s", "^", "D", "v", "P", "h", "p")
BASELINES = ("none", "sgd")
"""The labels, drawn in black, that others are compared with: a compressor, or if algorithms were swept an algorithm."""
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


def choose_looks(labels: Sequence[str]) -> dict[str, Look]:
    """Return the look of each label (`qsgd`, `qsgd levels=7`), from the name of its compressor.

    Variants of one compressor share its colour, from dark to light, and differ in their marker. A known compressor has
    the same colour in every plot. Where algorithms were swept, a label begins with its algorithm (`choco topk`). A
    compressor with the baseline's algorithm (`sgd topk`) has its own colour. So has a compressor with another algorithm
    if there are few labels; else it has the colour of the algorithm.
    """
    variants: dict[str, list[str]] = {}
    for label in labels:
        first, *rest = label.split(" ")
        compressor = rest[0] if rest and "=" not in rest[0] else ""
        if compressor and first in BASELINES:
            name = compressor
        elif compressor and len(labels) <= len(_MARKERS):
            name = f"{first} {compressor}"
        else:
            name = first
        variants.setdefault(name, []).append(label)
    places = _choose_colours([name for name in variants if name not in BASELINES])
    looks = {
        label: _make_look(places.get(name), position, len(members))
        for name, members in variants.items()
        for position, label in enumerate(members)
    }
    return {label: looks[label] for label in labels}


def _choose_colours(names: Sequence[str]) -> dict[str, int]:
    """Return the colour of each name, as a number in `_COLOURS` or beyond its end."""
    places = {name: _KNOWN.index(name) for name in names if name in _KNOWN}
    count = len(_COLOURS)
    for name in names:
        if name in places:
            continue
        # The colour of an unknown name is derived from its letters, so that it is the same in every sweep; if it is
        # taken, the next free one follows.
        wanted = zlib.crc32(name.encode())
        taken = {place % count for place in places.values()}
        free = (place for place in range(wanted, wanted + count) if place % count not in taken)
        places[name] = next(free, wanted)
    return places


def _make_look(place: int | None, position: int, count: int) -> Look:
    """Return the look of a compressor's variant, number `position` of `count`; `place` is None for the baseline."""
    if place is None:
        colour, first = BLACK, 0
    else:
        colour = _COLOURS[place % len(_COLOURS)]
        first = 1 + place // len(_COLOURS) + place % len(_COLOURS)
    return Look(_lighten(colour, 0.45 * position / max(count - 1, 1)), _MARKERS[(first + position) % len(_MARKERS)])


def _lighten(colour: str, share: float) -> str:
    """Return the colour mixed with this share of white."""
    parts = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02X}" for part in parts)
