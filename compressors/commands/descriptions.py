"""Describe the promises of methods and the bytes of their payloads in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compressors.base import Compressor, Cooperative, Law, count_elements
from compressors.unit_state import Stateful

CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
"""Values that are neither numbers nor words, by the words that are typed for them."""


def get_family(method: type[Compressor]) -> str:
    """Return the family of a method: the name of the folder with its code; of a file of the user, its name."""
    return method.__module__.rpartition(".")[0].rpartition(".")[2] or method.__module__


def format_other_names(method: type[Compressor]) -> str:
    """Return the aliases of a method, and its presets with the options that they stand for."""
    stand_for = [f"{name} ({format_options(options)})" for name, options in method.presets.items()]
    return ", ".join([*method.aliases, *stand_for])


def format_options(options: Mapping[str, Any]) -> str:
    """Return options as they are typed after a method's name; options in a mapping as `option.key`."""
    flat: dict[str, Any] = {}
    for option, value in options.items():
        flat.update(
            {f"{option}.{key}": one for key, one in value.items()} if isinstance(value, Mapping) else {option: value}
        )
    return ",".join(f"{option}={format_value(value)}" for option, value in flat.items())


def format_value(value: object) -> str:
    """Return a value as it is typed on a command line."""
    return next((word for word, meant in CONSTANTS.items() if value is meant), str(value))


def format_number(value: float) -> str:
    """Return a number with three significant digits; whole numbers up to a million without an exponent."""
    if 1000 <= abs(value) < 1e6:
        return f"{value:.0f}"
    return f"{value:.3g}"


def format_law(promise: Law, is_lossless: bool = False) -> str:
    """Return the text of a law with its constants."""
    if is_lossless:
        return "exact"
    parts = ["unbiased"] if promise.unbiased else []
    for name in ("omega", "delta", "kappa"):
        constant = getattr(promise, name)
        if constant is not None:
            parts.append(f"{name} {format_number(constant)}")
    return ", ".join(parts) or "none"


def format_traits(compressor: Compressor) -> str:
    """Return in words what a method requires of the workers, and what it allows them."""
    traits = {
        f"sums as {compressor.sum_dtype}": compressor.sum_dtype is not None,
        "rounds": isinstance(compressor, Cooperative),
        "state": isinstance(compressor, Stateful),
        "layers": compressor.needs_matrix,
        "no scale": compressor.scale_free,
        "same draws on all workers": compressor.shared_draws,
        "same rotation on all workers": compressor.shared_rotation,
        "needs movement": compressor.needs_movement,
        "follows the mean": compressor.follows_mean,
    }
    return ", ".join(trait for trait, applies in traits.items() if applies)


def format_payload_size(compressor: Compressor, shape: Sequence[int]) -> str:
    """Return the number of bytes of a payload for a tensor of `shape` as text, or their maximum."""
    size = compressor.payload_size(shape)
    return str(size) if size is not None else f"at most {compressor.payload_bound(shape)}"


def format_bits(compressor: Compressor, shape: Sequence[int], measured: float | None = None) -> str:
    """Return the bits per element as text, with a ~ if the size had to be `measured` on a payload."""
    size = compressor.payload_size(shape)
    if size is not None:
        return format_number(8 * size / count_elements(shape))
    return "varies" if measured is None else f"~{format_number(8 * measured / count_elements(shape))}"
