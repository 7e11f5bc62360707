"""Lay out the runs of a sweep: find swept and constant keys, and name the rows.

Runs that differ only in their seed are repetitions of one experiment: they are one cell, which
`label`, `keys` and `workers` name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from reports.analysis.defaults import DECIDED_LATER, load_defaults
from reports.reading.columns import is_config_key
from reports.reading.text import format_setting, join_words, make_sort_key

AXES = ["compressor", "workers"]
BASELINE, SGD = "none", "sgd"  # the compressor and the algorithm that others are compared with
SEED = "seed"
TRAINER, SCRIPT = "trainer", "script"
ALGORITHM, TOPOLOGY, EXCHANGE = "algorithm", "topology", "exchange"
NO_TOPOLOGY = "none"  # the topology of an algorithm that is not decentralised
TOLD = ("algorithm", "model", "dataset", "epochs", "max_steps", "batch.size", SEED, TRAINER)
"""The keys that captions name also if their values are the defaults."""
_HYPER = "compressor."
_FEW = 8  # most labels that may contain a topology


def is_method_key(key: str) -> bool:
    """Tell whether a key configures how workers agree on a model (`algorithm.order`), and not what they compute."""
    return key.partition(".")[0] in (ALGORITHM, TOPOLOGY)


@dataclasses.dataclass(frozen=True)
class Grid:
    """The runs of one sweep in the order of its tables.

    Attributes:
        runs: as in `Report.runs`, sorted, with two more columns. `label` is the compressor with those of its
            hyper-parameters that were swept (`qsgd levels=7`). `cell` is a number, counted in the order of the tables;
            runs with the same number differ only in their seed.
        keys: the other swept keys; together with `label` and `workers` they name exactly one cell.
        hyper: the swept hyper-parameters of compressors, by which the labels of one compressor differ.
        seeds: the seeds of all runs, in order; empty if no config has a seed.
        constants: the config keys with the same value in all runs.
        specific: by compressor, the keys that are not constant, but the same in all its runs.
        entangled: the remaining keys, whose values follow from those of the swept keys.
        typed: the keys that the user has set; None: not known.
    """

    runs: pd.DataFrame
    keys: tuple[str, ...]
    hyper: tuple[str, ...]
    seeds: tuple[Any, ...]
    constants: Mapping[str, Any]
    specific: Mapping[str, Mapping[str, Any]]
    entangled: tuple[str, ...]
    typed: tuple[str, ...] | None = None

    @property
    def labels(self) -> list[str]:
        return list(self.runs["label"].unique())

    @property
    def workers(self) -> list[Any]:
        """The numbers of workers, ascending."""
        return sorted(self.runs["workers"].unique(), key=make_sort_key)

    @property
    def is_of_scripts(self) -> bool:
        """Whether programs of the user have trained all runs (trainer=script)."""
        return TRAINER in self.runs and all(format_setting(name) == SCRIPT for name in self.runs[TRAINER])

    @property
    def by_method(self) -> Grid:
        """The same grid, labelled for plots with a colour for each label: `sgd`, `choco topk`, `choco/ring topk`.

        A swept algorithm becomes a part of the label, and is no longer a key; so does the topology if few labels
        result. The compressor `none` is not named beside an algorithm. Runs of scripts are labelled by what was swept
        of the script's keys, if few labels result.
        """
        if self.is_of_scripts and self.keys and self._relabel(self.keys).runs["label"].nunique() <= _FEW:
            return self._relabel(self.keys)
        told = [key for key in (ALGORITHM, TOPOLOGY) if key in self.keys]
        if TOPOLOGY in told and self._relabel(told).runs["label"].nunique() > _FEW:
            told.remove(TOPOLOGY)
        return self._relabel(told) if told else self

    def _relabel(self, told: Sequence[str]) -> Grid:
        labels = []
        for label, *values in zip(self.runs["label"], *(self.runs[key] for key in told), strict=True):
            texts = [text for text in map(format_setting, values) if text not in (NO_TOPOLOGY, "")]
            words = ["/".join(texts), "" if texts and label == BASELINE else label]
            labels.append(" ".join(filter(None, words)))
        keys = tuple(key for key in self.keys if key not in told)
        return dataclasses.replace(self, runs=self.runs.assign(label=labels), keys=keys)

    @property
    def run_keys(self) -> tuple[str, ...]:
        """The keys that name a run besides `label` and `workers`: `keys`, and the seed if there are several."""
        return (*self.keys, SEED) if len(self.seeds) > 1 else self.keys

    @property
    def caption(self) -> str:
        """The settings that all runs share, no row or column shows, and a reader has to know: `TOLD`, and what differs
        from its default; without a known default, what was typed.
        """
        defaults = load_defaults(self.constants)

        def is_told(key: str, value: Any) -> bool:
            default = defaults.get(key)
            if key in TOLD or format_setting(value) == default:
                return key in TOLD
            is_known = default is not None and default not in DECIDED_LATER
            return is_known or self.typed is None or key in self.typed

        return self._describe({key: value for key, value in self.constants.items() if is_told(key, value)})

    @property
    def settings(self) -> str:
        """All settings that all runs share and that no row or column shows."""
        return self._describe(self.constants)

    def _describe(self, constants: Mapping[str, Any]) -> str:
        parts = [_format_settings(constants)]
        if len(self.seeds) > 1:
            parts.append(f"seeds {join_words([format_setting(seed) or 'null' for seed in self.seeds])}")
        if self.entangled:
            parts.append(f"set by what was swept: {', '.join(self.entangled)}")
        return "; ".join(filter(None, parts))

    @property
    def options(self) -> dict[str, str]:
        """Further settings that all runs of a compressor share, as a text for each compressor."""
        texts = {name: _format_settings(values) for name, values in self.specific.items()}
        return {name: text for name, text in texts.items() if text}


def lay_out_runs(runs: pd.DataFrame, swept: Sequence[str] = (), typed: Sequence[str] | None = None) -> Grid:
    """Find the keys whose values distinguish the runs of a sweep, and the keys with constant values.

    Args:
        runs: `Report.runs` of one sweep.
        swept: the keys the user swept, as far as they are known. More are added until no two runs
            are in one row, so that nothing is averaged silently.
        typed: the keys of all overrides, of which captions name those without a known default; None: all of these.
    """
    runs = runs.reindex(columns=list(dict.fromkeys([*runs.columns, *AXES])))
    config = list(filter(is_config_key, runs.columns))
    named = [*AXES, SEED] if SEED in config else AXES
    swept = list(dict.fromkeys(map(_normalise_key, swept)))
    distinct = runs[config].nunique(dropna=False)
    keys = [key for key in swept if key in config and key not in named and distinct[key] > 1]
    others = [key for key in keys if key != EXCHANGE]
    if not _find_differing(runs, ["compressor", *others], [EXCHANGE] if EXCHANGE in keys else []):
        keys = others  # exchange=auto,tuned: each compressor has the exchange that suits it
    # Groups first: a key that differs only because the model differs needs no row of its own.
    groups = set(config)
    inner = [key for key in config if any(above in groups for above in _list_parents(key))]
    outer = [key for key in config if key not in inner]
    for candidates in (outer, inner):
        varying = [key for key in candidates if distinct[key] > 1 and key not in [*named, *keys]]
        keys += _find_differing(runs, [*named, *keys], varying)
        if SEED in config and SEED not in swept:
            keys += _find_swept_with_seed(runs, [*AXES, *keys], [key for key in varying if key not in keys])
    for last in ("sweep", "run"):
        if runs.duplicated([*named, *keys]).any() and runs[last].nunique() > 1:
            keys.append(last)
    hyper = [key for key in keys if key.startswith(_HYPER)]
    keys = [key for key in keys if key not in hyper]
    runs = runs.assign(label=_make_labels(runs, hyper))

    fixed = [key for key in config if key not in [*AXES, *keys, *hyper]]
    seeds = tuple(sorted(runs[SEED].unique(), key=make_sort_key)) if SEED in config else ()
    constants = {key: runs[key].iloc[0] for key in fixed if distinct[key] == 1 and not key.startswith(_HYPER)}
    if constants.get(TRAINER) == SGD:  # as nearly always
        del constants[TRAINER]
    varying = [key for key in fixed if key not in [*constants, SEED]]
    specific = {
        format_setting(name): {
            key: group[key].iloc[0] for key in [*hyper, *varying] if group[key].nunique(dropna=False) == 1
        }
        for name, group in runs.groupby("compressor", dropna=False)
    }
    entangled = tuple(key for key in varying if not all(key in values for values in specific.values()))

    places = zip(
        (format_setting(name) != BASELINE for name in runs["compressor"]),  # it is unknown for a damaged config
        *(map(_choose_order(key), runs[key]) for key in ["compressor", *hyper, *keys, *named[1:]]),
        strict=True,
    )
    positions = [position for _, position in sorted((place, position) for position, place in enumerate(places))]
    runs = runs.iloc[positions].reset_index(drop=True)
    runs["cell"] = runs.groupby([*AXES, *hyper, *keys], dropna=False, sort=False).ngroup()
    set_keys = None if typed is None else tuple(dict.fromkeys(map(_normalise_key, typed)))
    return Grid(runs, tuple(keys), tuple(hyper), seeds, constants, specific, entangled, set_keys)


def find_centralised(runs: pd.DataFrame) -> pd.Series:
    """Tell which runs have no topology (centralised training), if others have one; others are compared with them."""
    if TOPOLOGY not in runs:
        return pd.Series(False, runs.index)
    found = pd.Series([format_setting(topology) == NO_TOPOLOGY for topology in runs[TOPOLOGY]], runs.index, dtype=bool)
    return found & (not found.all())


def _choose_order(key: str) -> Callable[[Any], Any]:
    """Return the sort key for the values of a config key; among algorithms, SGD comes first."""
    return make_sort_key if key != ALGORITHM else lambda value: (format_setting(value) != SGD, make_sort_key(value))


def _list_parents(key: str) -> list[str]:
    """Return the sections around a key: `a` and `a.b` for `a.b.c`."""
    return [key[:place] for place, letter in enumerate(key) if letter == "."]


def _normalise_key(key: str) -> str:
    """Return the key of a Hydra override in the form of the columns of `Report.runs`."""
    return key.lstrip("+~").removesuffix(".name")


def _find_differing(runs: pd.DataFrame, by: list[str], candidates: list[str]) -> list[str]:
    """Return the candidate keys that have several values among runs with equal values of the keys `by`."""
    if not runs.duplicated(by).any():
        return []
    values = runs.groupby(by, dropna=False, sort=False)[candidates].nunique(dropna=False)
    return [key for key in candidates if (values[key] > 1).any()]


def _find_swept_with_seed(runs: pd.DataFrame, by: list[str], candidates: list[str]) -> list[str]:
    """Return the candidate keys that vary among runs equal in the keys `by`, but have fewer values than there are
    seeds.

    If nobody says that the seed was swept, the user has more likely swept such a key, with a seed drawn for each run.
    """
    if not runs.duplicated(by).any():
        return []
    groups = runs.groupby(by, dropna=False, sort=False)
    seeds, values = groups[SEED].nunique(dropna=False), groups[candidates].nunique(dropna=False)
    return [key for key in candidates if ((values[key] > 1) & (values[key] < seeds)).any()]


def _make_labels(runs: pd.DataFrame, hyper: Sequence[str]) -> list[str]:
    """Return the label of each run: its compressor, with those options that distinguish it from its other variants."""
    labels: dict[Any, str] = {}
    for name, group in runs.groupby("compressor", dropna=False):
        telling = [key for key in hyper if group[key].nunique(dropna=False) > 1]
        for index, *values in zip(group.index, *(group[key] for key in telling), strict=True):
            texts = {
                key.removeprefix(_HYPER): format_setting(value) for key, value in zip(telling, values, strict=True)
            }
            words = [format_setting(name) or "unknown", *(f"{key}={text}" for key, text in texts.items() if text)]
            labels[index] = " ".join(words)
    return [labels[index] for index in runs.index]


def _format_settings(values: Mapping[str, Any]) -> str:
    """Return settings as a text, without empty values: `workers=4, model=wideresnet (depth=10, widen=1), batch
    (size=128)`.
    """
    shown = {key.removeprefix(_HYPER): format_setting(value) for key, value in values.items()}
    shown = {key: text for key, text in shown.items() if text not in ("", "[]", "{}")}
    groups: dict[str, list[str]] = {}
    for key, text in shown.items():
        group, _, name = key.partition(".")
        inner = groups.setdefault(group, [])
        if name:
            inner.append(f"{name}={text}")
    heads = {group: f"{group}={shown[group]}" if group in shown else group for group in groups}
    return ", ".join(
        f"{heads[group]} ({', '.join(inner)})" if inner else heads[group] for group, inner in groups.items()
    )
