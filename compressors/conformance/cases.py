"""List what the conformance suite runs: every registered compressor, with its defaults and with variants.

A new method is tested with its defaults as soon as it is registered; options that change what is
computed earn a line in VARIANTS. With --compressor only the methods that it names are tested.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import itertools
import math
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from compressors import Compressor, Key, build, registry
from compressors.commands.method_specs import parse_all
from compressors.conformance.options import chosen
from compressors.unit_state import Stateful

Test = Callable[..., None]

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "powersgd": [
        {"rank": 1, "warm_start": False},
        {"rank": 4, "iterations": 2, "warm_start": False, "min_compression_rate": 1.0, "orthogonalisation": "qr"},
        {"start_step": 2, "error": "local"},
        {"rank": 3, "epsilon": 1e-8},
    ],
    "batched_powersgd": [
        {"rank": 1, "warm_start": False},
        {"rank": 4, "orthogonalisation": "qr", "min_compression_rate": 1.0},
    ],
    "acp_sgd": [{"rank": 1}, {"rank": 3, "min_compression_rate": 1.0}],
    "dion": [{"rank": 3}, {"rank_fraction": 1.0, "mu": 0.5}, {"rank_fraction": 1 / 16}],
    "int8": [
        {"stochastic": True},
        {"scheme": "symmetric"},
        {"scheme": "symmetric", "stochastic": True, "bits": 4, "bucket_size": 100},
        {"bits": 2, "stochastic": True, "bucket_size": 3000},
        {"bits": 5, "bucket_size": 1},
        {"bits": 3, "bucket_size": None, "stochastic": True},
        {"bits": 1, "bucket_size": 64},
        {"bits": 1, "stochastic": True},
    ],
    "dynamic8": [{"bucket_size": 100}, {"bucket_size": None}],
    "eden": [{"bits": 1}, {"bits": 2, "block_size": 16, "scale": "least_error"}, {"bits": 3, "block_size": 256}],
    "thc": [
        {"sums": False},
        {"bits": 3, "granularity": 16, "block_size": 256},
        {"bits": 2, "granularity": 10, "overflow": 0.001, "block_size": 16, "sums": False},
        {"bits": 1, "granularity": 2},
        {"bits": 6, "granularity": 70, "overflow": 0.5},
    ],
    "fp8": [
        {"format": "e5m2", "bucket_size": 100},
        {"stochastic": True, "bucket_size": None},
        {"format": "e5m2", "stochastic": True},
    ],
    "sign": [{"aggregate": "mean"}],
    "sign_norm": [{"scale": "l2"}, {"zeros": "plus"}, {"scale": "l2", "zeros": "plus"}],
    "signum": [{"beta": 0.5}],
    "intsgd": [{"bits": 32}],
    "quantile_sketch": [{"bins": 2}, {"bins": 19}],
    "statistical": [{"bits": 2}, {"bits": 4, "sigmas": 2.5}],
    "qsgd": [
        {"levels": 1, "norm": "l2"},
        {"levels": 3, "bucket_size": 100},
        {"levels": 127, "bucket_size": 3000, "norm": "l2"},
        {"levels": 2000, "bucket_size": 1},
        {"coding": "elias"},
        {"coding": "elias", "levels": 1, "norm": "l2", "bucket_size": 100},
        {"coding": "elias", "levels": 2000, "bucket_size": 2**31 - 1},
        {"levels": 7, "bucket_size": None},
        {"coding": "elias", "levels": 40, "bucket_size": None},
        {"levels": 3, "norm": "l2", "unbiased": False},
        {"coding": "elias", "levels": 1, "norm": "l2", "bucket_size": None, "unbiased": False},
    ],
    "terngrad": [
        {"clip": 0},
        {"clip": 0, "bucket_size": 100, "share_scale": True},
        {"clip": 1.5, "bucket_size": 3000},
        {"bucket_size": 1},
    ],
    "onebit": [{"bucket_size": None}, {"bucket_size": 100}, {"bucket_size": 1}],
    "natural": [{"bucket_size": 100}],
    "natural_dithering": [
        {"levels": 1},
        {"levels": 3, "norm": "max", "bucket_size": 100},
        {"levels": 127},
    ],
    "nuqsgd": [{"levels": 2, "bucket_size": 100}, {"levels": 14, "norm": "max", "bucket_size": None}],
    "svd": [
        {"rank": 1},
        {"budget": 2.5},
        {"budget": 0.4},
    ],
    "qsvd": [
        {"rank": 1, "levels": 127},
        {"scheme": "terngrad", "bucket_size": 100},
        {"budget": 0.4, "levels": 1, "bucket_size": None, "norm": "l2"},
    ],
    "atomo": [
        {"ratio": 0.5, "indices": "delta"},
        {"budget": 3.5, "indices": "int32"},
        {"ratio": 1.0},
        {"ratio": 0.1, "indices": "bitmap"},
    ],
    "truncated_svd": [{"rank": 1}, {"rank": 9}],
    "topk": [
        {"ratio": 0.1, "values": "fp16", "indices": "int32"},
        {"ratio": 0.3, "values": "mean", "count": "floor_plus_one"},
        {"ratio": 0.2, "values": "qsgd", "indices": "delta"},
        {"ratio": 0.2, "values": "qsgd", "values_options": {"levels": 3, "coding": "elias"}},
        {"ratio": 0.2, "values": "terngrad", "values_options": {"clip": 0.0, "bucket_size": 5}},
        {"ratio": 0.05, "indices": "bitmap", "count": "at_least_one_floor"},
        {"ratio": 0.02, "count": "drop_ratio"},
        {"ratio": 0.9, "mean": "senders"},
        {"ratio": 0.9, "mean": "senders", "values": "fp16"},
    ],
    "chunk_topk": [
        {"k": 3, "block": 8, "indices": "packed"},
        {"k": 2, "block": 16, "values": "fp16", "indices": "delta"},
        {"k": 5, "block": 4, "values": "statistical", "values_options": {"bits": 2}, "indices": "packed"},
        {"k": 7, "block": 5, "values": "onebit", "values_options": {"bucket_size": None}, "cut": "flat"},
        {"k": 1, "block": 32, "indices": "bitmap"},
        {"k": 50, "block": 8, "mean": "senders"},
    ],
    "demo": [
        {"k": 3, "block": 8, "indices": "packed"},
        {"k": 5, "block": 4, "values": "statistical", "values_options": {"bits": 4}},
        {"k": 4, "block": 16, "signs": True},
        {"k": 2, "block": 8, "signs": True, "indices": "packed"},
        {"k": 50, "block": 8, "mean": "senders"},
    ],
    "gtopk": [
        {"ratio": 0.1, "indices": "int32"},
        {"ratio": 0.1, "values": "fp16"},
        {"ratio": 0.4, "count": "floor_plus_one"},
    ],
    "randomk": [
        {"ratio": 0.25, "unbiased": True},
        {"ratio": 0.7, "count": "floor_plus_one"},
        {"ratio": 0.5, "unbiased": True, "count": "drop_ratio"},
        {"ratio": 0.3, "values": "fp16"},
        {"ratio": 0.3, "values": "fp16", "unbiased": True},
    ],
    "block_randomk": [
        {"ratio": 0.25, "unbiased": True},
        {"ratio": 0.3, "values": "fp16"},
        {"ratio": 0.7, "count": "floor_plus_one"},
    ],
    "thresholdv": [
        {"threshold": 1.0},
        {"threshold": 0.3, "values": "mean", "indices": "bitmap"},
    ],
    "adaptive_threshold": [
        {"indices": "int32"},
        {"values": "mean"},
    ],
    "gaussiank": [
        {"ratio": 0.05},
        {"ratio": 0.3, "corrections": 0, "values": "fp16"},
        {"ratio": 1.0},
    ],
    "dgc": [
        {"ratio": 0.05, "sample_ratio": 0.1},
        {"ratio": 0.05, "sample_ratio": 0.1, "resample": False, "upper_bound": 1.05, "lower_bound": 0.95},
        {"ratio": 0.1, "strided_sample": False, "max_adaptation_iterations": 0, "count": "at_least_one_floor"},
        {"ratio": 0.2, "values": "mean"},
    ],
    "redsync_trimmed": [
        {"ratio": 0.02},
        {"ratio": 0.01, "values": "mean"},
    ],
    "redsync_threshold": [
        {"ratio": 0.05, "reuse": 2, "precision": 0.001},
        {"ratio": 0.05, "accept": "half", "reuse": 4},
        {"ratio": 0.05, "values": "mean", "reuse": 3},
    ],
    "sidco": [
        {"ratio": 0.05, "adapt_every": 1},
        {"ratio": 0.05, "adapt_every": 1, "adapt": "paper"},
        {"ratio": 0.01, "stages": 3, "distribution": "gpareto", "adapt_every": None},
        {"ratio": 0.02, "stages": 2, "distribution": "gamma_gpareto", "first_ratio": 0.5},
        {"ratio": 0.6, "distribution": "gamma_gpareto", "values": "fp16"},
    ],
}

FORGETFUL: dict[str, list[dict[str, Any]]] = {
    "powersgd": [{"warm_start": False}],
    "batched_powersgd": [{"warm_start": False}],
    "thc": [{}],
    "sidco": [{"adapt_every": None}, {"ratio": 0.6}],  # above `first_ratio` there is always one stage
}
"""Options of methods with a state with which nothing that they send depends on it."""

SHAPES: list[tuple[int, ...]] = [
    (),
    (0,),
    (1,),
    (7,),
    (513,),
    (3, 0, 2),
    (1, 1),
    (1, 9),
    (9, 1),
    (33, 47),
    (97, 30),
    (17, 5, 3, 3),
]

MATRIX = (24, 40)


def format_case(case: tuple[str, dict[str, Any]]) -> str:
    """Return the name of a case: the method and its options."""
    name, options = case
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


def list_cases() -> list[tuple[str, dict[str, Any]]]:
    """List the methods to test, each with its options: those that --compressor names, or all with their variants."""
    if chosen:
        return [(each.name, {key: getattr(each, key) for key in list_options(each)}) for each in parse_all(chosen)]
    return [(name, options) for name in registry() for options in [{}, *VARIANTS.get(name, [])]]


def list_options(compressor: Compressor) -> list[str]:
    """List the options of a compressor that differ from the defaults."""
    default = type(compressor)()
    names = [field.name for field in dataclasses.fields(compressor) if field.init]
    return [name for name in names if getattr(compressor, name) != getattr(default, name)]


CASES = list_cases()

METHODS = list(dict.fromkeys(name for name, _ in CASES))
"""The names of the methods to test."""


def every_compressor(test: Test) -> Test:
    """Run a test for every method: its defaults and variants in turn, each with a new compressor.

    A case for every variant would be 6,000 cases, which cost more to collect and to report than to run. All variants
    run whatever becomes of the others; the failure names those that failed, and their tracebacks are printed.
    """

    @functools.wraps(test)
    def run_variants(method: str, **fixtures: Any) -> None:
        failures: dict[str, Exception] = {}
        skips: list[BaseException] = []
        cases = [case for case in CASES if case[0] == method]
        for name, options in cases:
            with contextlib.ExitStack() as stack:
                if "monkeypatch" in fixtures:
                    fixtures["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
                try:
                    test(compressor=build(name, **options), **fixtures)
                except pytest.skip.Exception as skip:
                    skips.append(skip)
                except Exception as error:
                    failures[format_case((name, options))] = error
        if failures:
            for name, failure in failures.items():
                print(f"{name}:", *traceback.format_exception(failure), sep="\n")
            raise AssertionError(f"{', '.join(failures)}: {next(iter(failures.values()))}")
        if len(skips) == len(cases):
            raise skips[0]

    signature = inspect.signature(test)
    parameters = [
        parameter.replace(name="method", annotation=str) if name == "compressor" else parameter
        for name, parameter in signature.parameters.items()
    ]
    run_variants.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    for name in [name for name in vars(run_variants) if "hypothesis" in name]:
        delattr(run_variants, name)  # pytest does not call the hypothesis test, which stands within
    return pytest.mark.parametrize("method", sorted(METHODS))(run_variants)


def in_turn(**values: Sequence[Any]) -> Callable[[Test], Test]:
    """Run a test for every combination of values of these arguments, each with a compressor that has no state.

    As tests of their own these would be ten thousand more. The line that was printed last says what has failed.
    """

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def all_in_turn(compressor: Compressor, **fixtures: Any) -> None:
            for combination in itertools.product(*values.values()):
                one = dict(zip(values, combination, strict=True))
                print(one)
                test(compressor=renew(compressor), **fixtures, **one)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in values]
        all_in_turn.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return all_in_turn

    return decorate


every_shape = in_turn(shape=SHAPES)


def renew(compressor: Compressor) -> Compressor:
    """Return the same method with the same options, without the state."""
    return dataclasses.replace(compressor)


def depends_on_past(compressor: Compressor) -> bool:
    """Tell whether what a compressor sends depends on earlier steps."""
    without = FORGETFUL.get(compressor.name, [])
    return isinstance(compressor, Stateful) and not any(
        all(getattr(compressor, name) == value for name, value in options.items()) for options in without
    )


def draw_gaussian(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def make_one_hot(shape: tuple[int, ...]) -> torch.Tensor:
    x = torch.zeros(shape)
    x.view(-1)[x.numel() // 2] = -3.0
    return x


def make_key(step: int = 0, *, seed: int = 0, worker: int = 0, unit: int = 0) -> Key:
    return Key(seed, worker, step, unit)


def find_largest_deviation(samples: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest |z| over the columns of `samples` (draws, statistics) against their `expected` means.

    Columns that vary by no more than the rounding of float32 are left to the caller.
    """
    samples, expected = samples.double(), expected.double()
    spread = samples.std(0)
    varies = spread > 1e-5 * samples.abs().mean()
    z = (samples.mean(0) - expected) / spread * math.sqrt(len(samples))
    return float(z[varies].abs().max()) if varies.any() else 0.0


def compute_critical_z(tests: int, error: float = 1e-6) -> float:
    """Return |z| that `tests` true hypotheses together exceed with the probability `error` (Bonferroni)."""
    return -float(torch.special.ndtri(torch.tensor(error / tests / 2, dtype=torch.float64)))
