"""What methods promise and how many bytes they need, in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compressors.base import Compressor, Cooperative, Law, element_count

CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
"""What is typed for values that are neither numbers nor words."""


def family(method: type[Compressor]) -> str:
    """Return the family of a method: the folder that it stands in."""
    return method.__module__.rpartition(".")[0].rpartition(".")[2]


def other_names(method: type[Compressor]) -> str:
    """Return aliases, and presets with the options that they stand for."""
    stand_for = [f"{name} ({options_of(options)})" for name, options in method.presets.items()]
    return ", ".join([*method.aliases, *stand_for])


def options_of(options: Mapping[str, Any]) -> str:
    """Return options as they are typed behind a name; what is in a mapping as `option.key`."""
    flat: dict[str, Any] = {}
    for option, value in options.items():
        flat.update(
            {f"{option}.{key}": one for key, one in value.items()} if isinstance(value, Mapping) else {option: value}
        )
    return ",".join(f"{option}={written(value)}" for option, value in flat.items())


def written(value: object) -> str:
    """Return a value as it is typed."""
    return next((word for word, meant in CONSTANTS.items() if value is meant), str(value))


def number(value: float) -> str:
    """Return three significant digits; whole numbers up to a million without an exponent."""
    if 1000 <= abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:.3g}"


def law(promise: Law, is_lossless: bool = False) -> str:
    """Return a law with its constants."""
    if is_lossless:
        return "exact"
    parts = ["unbiased"] if promise.unbiased else []
    for name in ("omega", "delta", "kappa"):
        constant = getattr(promise, name)
        if constant is not None:
            parts.append(f"{name} {number(constant)}")
    return ", ".join(parts) or "none"


def traits(compressor: Compressor) -> str:
    """Return what a method needs of its users, or lets them do."""
    found = []
    if compressor.sum_dtype is not None:
        found.append(f"sums as {compressor.sum_dtype}")
    if isinstance(compressor, Cooperative):
        found.append("rounds")
    if type(compressor).state_dict is not Compressor.state_dict:
        found.append("state")
    for name, words in (
        ("needs_matrix", "layers"),
        ("scale_free", "no scale"),
        ("shared_draws", "same draws on all workers"),
        ("needs_movement", "needs movement"),
    ):
        if getattr(compressor, name):
            found.append(words)
    return ", ".join(found)


def payload(compressor: Compressor, shape: Sequence[int]) -> str:
    """Return the bytes of a payload for a tensor of `shape`, or the most that it can have."""
    size = compressor.payload_size(shape)
    return str(size) if size is not None else f"at most {compressor.payload_bound(shape)}"


def bits(compressor: Compressor, shape: Sequence[int], measured: float | None = None) -> str:
    """Return bits per element as declared; with a ~ where `measured`, the bytes of a payload, had to be taken."""
    size = compressor.payload_size(shape)
    if size is not None:
        return number(8 * size / element_count(shape))
    return "varies" if measured is None else f"~{number(8 * measured / element_count(shape))}"
