"""The options of `hydra/launcher=slurm`, their checks, and the request to sbatch that results from them."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from gradsweep.errors import UsageError, bad_value
from gradsweep.options.hints import one_of
from gradsweep.options.parameters import InvalidParameter, Valid, check, integer, sequence
from sweep.provenance import secrets

if TYPE_CHECKING:
    from sweep.settings.sweep import SweepSettings

OURS = (
    *("array", "chdir", "cluster", "error", "job-name", "ntasks", "open-mode", "output", "parsable"),
    *("requeue", "no-requeue", "signal", "test-only", "wait", "wrap"),
)
"""Options of sbatch that are refused, because the launcher sets or forbids them itself."""

LISTED_BY = "python multirun.py hydra/launcher=slurm --help"

LOCATION_KEYS = ("partition", "constraint", "nodelist", "nodes", "cpus", "gpus_per_node", "gres", "exclusive")
"""Options that say on which nodes a run is computed, and how much of them it has."""

SAME = {"cpus-per-task": "cpus"}
"""An option of sbatch that has a key of another name."""

EXCLUSIVE = ("user", "mcs")
"""The values of --exclusive that say with whom a job may share its nodes."""

ADDITIONAL = "a long option of sbatch without --, such as reservation, that has no key of its own"
NODES = "names of nodes, such as n[1-3],n7"

LONGEST = 366 * 24 * 60
"""Minutes; SLURM misreads times that are far longer."""

EARLY_S = 60
"""SLURM may send the signal before a time limit so much earlier than asked for."""


def _option(default: Any, words: str, test: Callable[[Any], bool]) -> Any:
    """Return a dataclass field with this default; `test` accepts other valid values, which `words` describes."""

    def passes(value: Any) -> bool:
        return (default is None and value is None) or test(value)

    return dataclasses.field(default=default, metadata={"valid": Valid(words, passes)})


def _name(words: str = "a name") -> Any:
    return _option(None, f"{words}, or null", _is_name)


def _is_printable(value: object) -> bool:
    """Tell whether a value is a single line, because a line break would end the #SBATCH line of a batch script."""
    return isinstance(value, (str, int, float)) and str(value) != "" and str(value).isprintable()


def _is_name(value: object) -> bool:
    """Tell whether a value is a text or an integer: a float is refused, as Hydra reads an account 1e5 as 100000.0."""
    return _is_printable(value) and not isinstance(value, (bool, float))


def _is_amount(value: object) -> bool:
    return _is_name(value) and re.fullmatch(r"0*[1-9]\d*[KMGT]?", str(value)) is not None


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")


@dataclasses.dataclass(frozen=True)
class SlurmOptions:
    """The options of `hydra/launcher=slurm`; each may depend on the run's config, as in
    `nodes=${ceil:${workers},8}`."""

    partition: str | None = _name()
    account: str | None = _name()
    qos: str | None = _name()
    constraint: str | None = _name("features of nodes, such as a100&nvme")
    nodes: int = integer(1, low=1)
    cpus: int | None = integer(None, low=1, optional=True)
    gpus_per_node: int | None = integer(None, low=0, optional=True)
    gres: str | None = _name("generic resources, such as gpu:a100:2")
    mem_gb: float | None = _option(  # --mem=0 is all
        None,
        "a number of gigabytes a node from 0.001 up, or null",
        lambda value: _is_positive(value) and value >= 0.001,
    )
    mem_per_cpu: str | None = _option(None, "an amount such as 2G or 500M, or null", _is_amount)
    time: int = integer(60, low=1)
    exclude: str | None = _name(NODES)
    nodelist: str | None = _name(NODES)
    exclusive: bool | str = _option(
        False,
        f"true, false, or one of {', '.join(EXCLUSIVE)}",
        lambda value: isinstance(value, bool) or value in EXCLUSIVE,
    )
    array_parallelism: int | None = integer(None, low=1, optional=True)
    setup: list[str] = sequence("a list of lines of shell", lambda line: isinstance(line, str))
    modules: list[str] = sequence(
        "a list of names for `module load`", lambda module: isinstance(module, str) and _is_printable(module)
    )
    signal_delay_s: int | None = integer(None, low=1, optional=True)
    requeues: int = integer(10, low=0)
    allocations: int = integer(1, low=1)
    side_by_side: int = integer(1, low=1)
    poll_s: float = _option(30.0, "a number of seconds above 0", _is_positive)
    additional: dict[str, Any] = dataclasses.field(default_factory=dict)

    PER_SWEEP: ClassVar[tuple[str, ...]] = ("poll_s",)
    """Options that must be equal for all points of a sweep."""
    IS_LOCAL: ClassVar[bool] = False

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> SlurmOptions:
        """Return the options of a config's section `launcher` without `cluster`; unknown keys are options of sbatch.

        Raises:
            UsageError: a value out of range.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        own = {key: value for key, value in given.items() if key in known}
        additional = own.pop("additional", None)
        if not isinstance(additional, (Mapping, type(None))):
            raise bad_value("hydra.launcher.additional", additional, f"a mapping; its keys are each {ADDITIONAL}")
        rest = {key: value for key, value in given.items() if key not in known}
        options = cls(**own, additional={**(additional or {}), **rest})
        options.check()
        return options

    def check(self) -> None:
        """Raise UsageError for a value out of range."""
        try:
            check(self)
        except InvalidParameter as error:
            raise _bad_value(error.name, error.value, error.valid) from error
        if self.time > LONGEST:
            raise _bad_value("time", self.time, f"up to {LONGEST} minutes, which is a year")
        if self.mem_gb is not None and self.mem_per_cpu is not None:
            raise _bad_value("mem_per_cpu", self.mem_per_cpu, f"null with hydra.launcher.mem_gb={self.mem_gb}")
        if self.signal_delay_s is not None and self.signal_delay_s > 65535:
            raise _bad_value("signal_delay_s", self.signal_delay_s, "an integer from 1 to 65535, or null")
        if 60 * self.time <= self.delay_s + EARLY_S:
            least = (self.delay_s + EARLY_S) // 60 + 1
            why = f"with hydra.launcher.signal_delay_s={self.delay_s}, which SLURM keeps to the minute"
            raise _bad_value("time", self.time, f"from {least} minutes up {why}; else a run is sent away as it begins")
        secrets.refuse_texts("hydra.launcher.setup", self.setup)
        for key, value in self.additional.items():
            self._check_additional(key, value)
            secrets.refuse_texts(f"hydra.launcher.{key}", [value])

    def _check_additional(self, key: Any, value: Any) -> None:
        if not (isinstance(key, str) and re.fullmatch(r"[a-z][a-z0-9_-]*", key)):
            raise _bad_value(str(key), value, f"{ADDITIONAL}; or {one_of(list_keys(), LISTED_BY, 'keys')}")
        option = key.replace("_", "-")
        if option in OURS:
            raise _bad_value(key, value, "not to be set: the launcher needs it itself")
        if (own := SAME.get(option, option.replace("-", "_"))) in list_keys():
            raise _bad_value(key, value, f"hydra.launcher.{own} instead, which says the same")
        if isinstance(value, (list, dict)) or value is None or not _is_printable(value):
            raise _bad_value(key, value, "text, a number, true or false")

    def check_sweep(self, settings: SweepSettings) -> None:
        """Check the options against the settings of the sweep.

        Raises:
            UsageError: they exclude each other.
        """
        for key in ("allocations", "side_by_side"):
            if not settings.pack and getattr(self, key) != 1:
                raise _bad_value(key, getattr(self, key), "1 without sweep.pack=true: a job is for one run")
        if self.nodes > 1 and self.side_by_side > 1:  # they would be spread over the nodes otherwise than alone
            raise _bad_value("side_by_side", self.side_by_side, f"1 with hydra.launcher.nodes={self.nodes}")
        if settings.share_cores:
            valid = "false with hydra/launcher=slurm: which cores a job has is up to SLURM"
            raise bad_value("sweep.share_cores", settings.share_cores, valid)
        if settings.max_parallel is not None:
            valid = (
                "null with hydra/launcher=slurm: how many run is up to SLURM, or to hydra.launcher.array_parallelism"
            )
            raise bad_value("sweep.max_parallel", settings.max_parallel, valid)
        for key, off in (("fail_fast", False), ("max_failures", None), ("prune", None), ("on_end", None)):
            value = getattr(settings, key)
            if not settings.wait and value not in (off, []):
                valid = (
                    f"{'null' if off is None else 'false'} with sweep.wait=false on SLURM, where nobody waits to do it"
                )
                raise bad_value(f"sweep.{key}", value, valid)

    def describe_location(self) -> dict[str, Any]:
        """Return the run's location for its provenance: `cluster`, and the requested properties of its nodes."""
        return {"cluster": "slurm", **{key: getattr(self, key) for key in LOCATION_KEYS}}

    def count_gpus(self, config: Mapping[str, Any]) -> int:
        """Return 0: SLURM gives a job the GPUs of gpus_per_node or gres, so none are leased."""
        return 0

    @property
    def delay_s(self) -> int:
        """The seconds before the time limit at which a run is asked to save; by default 90, or fewer for a short
        limit."""
        return min(90, 15 * self.time) if self.signal_delay_s is None else self.signal_delay_s

    def build_request(self, ranks: int, threads: int, room: int = 1) -> dict[str, Any]:
        """Return the request to sbatch as parameters of submitit's SlurmExecutor; equal requests share a job array.

        Args:
            ranks: the number of the run's ranks.
            threads: the number of cores of a rank if `cpus` is null.
            room: how many such runs the job must be able to train at the same time.

        Raises:
            UsageError: `nodes` is larger than `ranks`.
        """
        if self.nodes > ranks:
            raise _bad_value("nodes", self.nodes, f"at most the number of ranks, {ranks}")
        # the lists have been checked: modules are quoted names, and the setup is the user's own shell
        setup = [*(f"module load {shlex.quote(module)} || exit 1" for module in self.modules), *self.setup]
        asked = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "nodes": self.nodes,
            "cpus_per_task": self.cpus or threads,
            "gpus_per_node": self.gpus_per_node,
            "gres": self.gres,
            "mem": None if self.mem_gb is None else f"{round(self.mem_gb * 1024)}M",
            "mem_per_cpu": None if self.mem_per_cpu is None else str(self.mem_per_cpu),
            "time": self.time,
            "exclude": self.exclude,
            "nodelist": self.nodelist,
            "exclusive": self.exclusive or None,
            "array_parallelism": self.array_parallelism,
            "setup": setup,
        }
        additional = {key.replace("_", "-"): value for key, value in self.additional.items() if value is not False}
        return {
            **{key: value for key, value in asked.items() if value is not None},
            "additional_parameters": {"ntasks": room * ranks, "signal": f"B:USR2@{self.delay_s}", **additional},
        }


def parse_slurm_options(launcher: Mapping[str, Any]) -> SlurmOptions:
    """Return the options of a config's section `launcher` whose cluster is slurm."""
    return SlurmOptions.parse({key: value for key, value in launcher.items() if key != "cluster"})


def list_keys() -> list[str]:
    """Return the keys of hydra/launcher=slurm."""
    return ["cluster", *(field.name for field in dataclasses.fields(SlurmOptions))]


def _bad_value(key: str, value: object, valid: str) -> UsageError:
    shown = repr(value) if isinstance(value, str) and not value.isprintable() else value  # an error is one line
    return bad_value(f"hydra.launcher.{key}", shown, valid)
