"""Races on real ranks: `mpirun -n W python -m tests.trainers.ranks.race NAME`."""

from __future__ import annotations

import csv
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from mpi4py import MPI

from gradsweep.csv_columns import PHASES, RACE_COLUMNS
from gradsweep.files import read_json, write_json
from gradsweep.options.exchange_setting import OPTIONS
from gradsweep.run_directory import CONFIG, RACE, RACE_PLAN, RATIOS, RESULT, STEPS, STOPPED, TUNED
from tests.trainers.configs import compose_config
from tests.trainers.ranks import checkpoint
from tests.trainers.ranks.checkpoint import COMM, folder
from tests.trainers.ranks.exchange import main
from trainers.config import run_config
from trainers.devices import core_time, memory, yardstick
from trainers.mpi import allreduce, control_variables, message_sizes, stopping
from trainers.options.exchanges import ALLREDUCES
from trainers.race import heat, race, tuning
from trainers.race.racer import Racer, find_first_step, has_room
from trainers.rules.resolve import resolve
from trainers.training import loop
from trainers.training.failure_cause import RunFailed
from trainers.training.rank import train_run

DROPOUT = {"name": "wideresnet", "depth": 10, "dropout": 0.5}
METHODS: dict[str, dict[str, Any]] = {
    "none": {"model": DROPOUT},
    "topk": {"compressor": {"name": "topk", "ratio": 0.1}, "memory": "residual", "model": DROPOUT},
    "powersgd": {"compressor": {"name": "powersgd", "rank": 2}, "memory": "residual", "exchange": {"overlap": True}},
    "local": {"algorithm": {"name": "local_sgd", "steps": 3}},
    "choco": {"algorithm": "choco", "compressor": {"name": "topk", "ratio": 0.2}},
}
TURNS = (1, 4, 2, 3)


def compose(name: str, **changes: Any) -> dict[str, Any]:
    given = {"batch": {"size": 32}, "epochs": 3, "warmup_steps": 0, "kernels": "torch" if name == "topk" else "auto"}
    return dict(resolve(compose_config(workers=COMM.size, **{**given, **METHODS[name], **changes})))


def take_steps(racer: Racer) -> None:
    for timed in TURNS:
        racer.take_block(timed)


def state(racer: Racer) -> bytes:
    """Parameters, the optimizer's state and the memory's, to the bit."""
    buffer: list[bytes] = []

    def collect(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            buffer.append(value.detach().cpu().numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value):
                collect(value[key])
        elif isinstance(value, (list, tuple)):
            for item in value:
                collect(item)

    collect(racer.worker.replica.flat.values)
    collect(racer.worker.algorithm.state_dict())
    return b"".join(buffer)


def alone() -> None:
    """What a run computes between others is what it computes alone, to the bit, beyond the end of the run, too."""
    expected = {}
    for name in METHODS:
        racer = Racer(run_config.parse(compose(name)), COMM)
        take_steps(racer)
        expected[name] = state(racer)
        racer.close()
    racers = {name: Racer(run_config.parse(compose(name)), COMM) for name in METHODS}  # memories are anew, too
    random = np.random.default_rng(7)
    for timed in TURNS:
        for place in random.permutation(len(racers)):
            torch.rand(3)  # what others draw does no harm
            means = list(racers.values())[place].take_block(timed)
            assert means.shape == (1 + len(PHASES),) and means[0] >= means[1:].sum() > 0
    for name, racer in racers.items():
        assert racer.step == sum(TURNS) + len(TURNS) and state(racer) == expected[name], name
        racer.close()


def lay_out(directory: Path, **runs: dict[str, Any]) -> Path:
    """The directory of a race of these configs, the first of which is the baseline."""
    place = directory / "races" / "race"
    if COMM.rank == 0:
        place.mkdir(parents=True)
        for name, config in runs.items():
            (directory / "runs" / name).mkdir(parents=True)
            (directory / "runs" / name / CONFIG).write_text(yaml.safe_dump(config))
        names = [f"../../runs/{name}" for name in runs]
        plan = {"runs": names, "seconds": 0.5, "precision": 1e-6, "seed": 3}
        write_json(place / RACE_PLAN, {**plan, "racers": {"none": ["none", "other"]}, "without": {"gone": "failed"}})
    COMM.Barrier()
    return place


def whole() -> None:
    """Rows, ratios and the result of a race; runs that cannot race are left out by name."""
    yardstick.EVERY_S, yardstick.MOST_COST = 0.0, 1e9
    with folder() as directory:
        configs = {name: compose(name) for name in ("none", "topk", "local")}
        backup = compose("none", exchange={"name": "parameter_server", "backup": 1}) if COMM.size > 2 else {}
        place = lay_out(directory, **configs, **({"backup": backup} if backup else {}))
        race.run_race(place, COMM)
        COMM.Barrier()
        ratios = read_json(place / RATIOS)
        with (place / RACE).open() as file:
            rows = list(csv.DictReader(file))
        assert ratios is not None and tuple(rows[0]) == RACE_COLUMNS
        transport = ratios["transport"]
        assert (transport["layer"], transport["over"], transport["faster"]) == ("ob1", ["shm"], [])
        assert transport["algorithms"]["allreduce"] == transport["algorithms"]["allgatherv"] == "ring"
        assert ratios["network"] is None, "there is none to be measured"
        sent = ratios["traffic"]
        assert list(sent) == ["none", "topk", "local"]
        samples = {COMM.size * each["samples"] for each in sent.values()}
        assert all(16 < each < 24 for each in samples), samples  # batches of an epoch: 32, and the rest
        assert sent["none"]["payload_bytes"] == 4 * sent["none"]["parameters"] > 5 * sent["topk"]["payload_bytes"]
        assert (
            sent["none"]["collectives_per_step"] == {"allreduce": 1}
            and "allgather" in sent["topk"]["collectives_per_step"]
        )
        assert 0 < sent["local"]["payload_bytes"] < 0.6 * sent["none"]["payload_bytes"], "every third step"
        (only,) = ratios["heats"]
        assert only["baseline"] == "none" and list(only["runs"]) == ["none", "topk", "local"]
        assert list(ratios["left_out"]) == (["gone", "backup"] if backup else ["gone"])
        assert ratios["racers"] == {"none": ["none", "other"]}, "readers need no plan.json"
        rounds = only["runs"]["none"]["blocks"]
        assert rounds >= heat.LEAST_ROUNDS and len(rows) == 3 * rounds
        for number in range(1, rounds + 1):
            turns = [row for row in rows if row["round"] == str(number)]
            assert sorted(row["turn"] for row in turns) == ["1", "2", "3"]
            assert {row["run"]: int(row["steps"]) % 3 for row in turns}["local"] == 0, "whole periods"
        logs = {name: [np.log(float(row["step_s"])) for row in rows if row["run"] == name] for name in only["runs"]}
        for name, figures in only["runs"].items():
            assert np.isclose(figures["step_s"], np.exp(np.mean(logs[name])))
            assert np.isclose(figures["ratio"], np.exp(np.mean(logs["none"]) - np.mean(logs[name])))
            assert figures["ratio_low"] <= figures["ratio"] <= figures["ratio_high"]
            assert sum(figures["phases_s"].values()) <= figures["step_s"] * (1 + 1e-9)
        assert [pair["runs"] for pair in only["pairs"]] == [["none", "topk"], ["none", "local"], ["topk", "local"]]
        found = only["yardstick"]
        assert found["readings"] > 1 and 0 < found["best_s"] <= found["slow_s"], "before the first round, and after it"
        assert found["best_s"] <= next(iter(found["by_host"].values())) <= found["median_s"]
        assert len(found["by_host"]) == 1 and 0 <= found["cores_of_others"] <= 1
        assert (read_json(place / RESULT) or {})["status"] == "done"


class Apart(MPI.Intracomm):
    """A communicator whose ranks are on hosts of their own, as those of an emulated network."""

    def Split_type(self, *arguments: Any, **named: Any) -> Any:
        return self.Split(self.rank)


def room() -> None:
    """Emulated hosts share the memory of their machine; other machines and other GPUs have their own."""
    cpu, size = torch.device("cpu"), 1e6
    comm = Apart(COMM)
    with pytest.MonkeyPatch.context() as patch:
        for spare, fits in ((0.9, False), (1.5, True)):
            patch.setattr(memory, "measure_free_bytes", lambda device, spare=spare: spare * COMM.size * size)
            assert has_room(comm, cpu, size) == has_room(COMM, cpu, size) == fits
        patch.setattr(memory, "measure_free_bytes", lambda device: 1.5 * size)
        assert not has_room(comm, cpu, size)
        with patch.context() as other:
            other.setattr(core_time, "read_kernel_id", lambda: f"machine {COMM.rank}")
            assert has_room(comm, cpu, size) and not has_room(comm, cpu, 2 * size)
        patch.setattr(memory, "identify_gpu", lambda device: f"GPU {COMM.rank}")
        assert has_room(COMM, cpu, size), "each rank has its own"


def short() -> None:
    """A heat that is over before the yardstick is due again reads it at its end, too."""
    every, yardstick.EVERY_S = yardstick.EVERY_S, 1e9
    try:
        with folder() as directory:
            place = lay_out(directory, none=compose("none"), topk=compose("topk"))
            race.run_race(place, COMM)
            COMM.Barrier()
            (only,) = (read_json(place / RATIOS) or {})["heats"]
            assert only["yardstick"]["readings"] == 2 and only["yardstick"]["cores_of_others"] is not None
    finally:
        yardstick.EVERY_S = every


def once() -> None:
    """The transport is found out once for all runs, and no figures are written twice."""
    asked, written = [], []
    describe, append = race.describe_transport, race.append_rows

    def count(config: Any, comm: Any) -> dict[str, Any] | None:
        asked.append(config)
        return describe(config, comm)

    def note(path: Path, columns: Any, rows: Any) -> None:
        written.append(len(rows))
        append(path, columns, rows)

    race.describe_transport, race.append_rows = count, note  # type: ignore[attr-defined]
    try:
        with folder() as directory:
            race.run_race(lay_out(directory, none=compose("none"), local=compose("local")), COMM)
    finally:
        race.describe_transport, race.append_rows = describe, append  # type: ignore[attr-defined]
    assert len(asked) == 1 and all(written) and bool(written) == (COMM.rank == 0), written


def solo() -> None:
    """A run alone has a throughput with its interval, and no ratio."""
    with folder() as directory:
        place = lay_out(directory, topk=compose("topk"))
        race.run_race(place, COMM)
        COMM.Barrier()
        ratios = read_json(place / RATIOS) or {}
        (only,) = ratios["heats"]
        figures = only["runs"]["topk"]
        assert ratios["finished"] and only["pairs"] == [] and figures["blocks"] >= heat.LEAST_ROUNDS
        assert figures["ratio"] is figures["ratio_low"] is figures["ratio_high"] is None
        assert figures["throughput_low"] < 1 / figures["step_s"] < figures["throughput_high"]
        half = (figures["throughput_high"] - figures["throughput_low"]) / 2
        assert np.isclose(figures["precision"], half * figures["step_s"])
        assert (read_json(place / RESULT) or {})["status"] == "done"


def heats() -> None:
    """Where memory has room for two runs there are two heats, and the baseline is in both; a run too large is left."""
    with folder() as directory:
        place = lay_out(directory, **{name: compose(name) for name in ("none", "topk", "local")})
        free, memory.measure_free_bytes = memory.measure_free_bytes, lambda device: rooms.pop(0)  # type: ignore
        try:
            rooms = [1e12, 0.0, 1e12]
            race.run_race(place, COMM)
            COMM.Barrier()
            names = [list(each["runs"]) for each in (read_json(place / RATIOS) or {})["heats"]]
            assert names == [["none", "topk"], ["none", "local"]]
            rooms = [0.0, 1e12]
            race.run_race(place, COMM)
            COMM.Barrier()
            ratios = read_json(place / RATIOS) or {}
            assert [list(each["runs"]) for each in ratios["heats"]] == [["none", "local"]]
            assert ratios["left_out"] == {"gone": "failed", "topk": "no memory for it beside none"}
        finally:
            memory.measure_free_bytes = free


def stop() -> None:
    """A signal to one rank ends the race of all; what was measured is kept, and there is no result."""
    with folder() as directory:
        place = lay_out(directory, **{name: compose(name) for name in ("none", "topk")})
        stopping.listen()
        if COMM.rank == 0:
            os.kill(os.getpid(), signal.SIGUSR1)
        os.environ["GRADSWEEP_ATTEMPT"] = str(place)
        race.run_race(place, COMM)
        stopping.forget()
        COMM.Barrier()
        ratios = read_json(place / RATIOS) or {}
        assert ratios["heats"][0]["runs"]["topk"]["blocks"] == 1 and not (place / RESULT).exists()
        assert (read_json(place / STOPPED) or {})["status"] == "preempted"


def stop_in_trial() -> None:
    """A signal to one rank during a trial ends run or race of all as preempted, and nothing of it is kept."""
    with folder() as directory:
        asking = compose("none", exchange={"tune": True})
        race_directory = lay_out(directory, none=asking, topk=compose("topk"))
        run_directory = directory / "runs" / "none"
        for place, work in (
            (race_directory, lambda: race.run_race(race_directory, COMM)),
            (run_directory, lambda: train_run(run_config.parse(asking), COMM, run_directory, tuning.tune_run)),
        ):
            stopping.listen()
            if COMM.rank == 0:
                os.kill(os.getpid(), signal.SIGUSR1)
            os.environ["GRADSWEEP_ATTEMPT"] = str(place)
            work()
            stopping.forget()
            COMM.Barrier()
            assert (read_json(place / STOPPED) or {})["status"] == "preempted"
            assert not any((place / name).exists() for name in (RATIOS, RESULT, TUNED, STEPS)), list(place.iterdir())


def closed() -> None:
    """A closed setting leaves no hooks on the parameters that it shared."""
    config = run_config.parse(compose("none"))
    first = Racer(config, COMM)
    parameters = [parameter for _, parameter in first.worker.replica.flat.named]

    def count() -> int:
        return sum(len(parameter._post_accumulate_grad_hooks or ()) for parameter in parameters)

    before = count()
    second = Racer(config, COMM, like=first)
    assert count() == 2 * before > 0
    second.close()
    assert count() == before
    first.close()


def failing() -> None:
    """A run that fails is named, for whoever starts the race again without it; what was measured before is kept."""
    with folder() as directory:
        place = lay_out(directory, none=compose("none"), topk=compose("topk"))
        if COMM.rank == 0:
            write_json(place / RATIOS, {"heats": ["earlier"]})
            (place / RACE).write_text("earlier\n")
        COMM.Barrier()

        def fail(racer: Racer, timed: int) -> np.ndarray:
            if racer.config.kernels == "torch":
                raise ZeroDivisionError("no")
            return take(racer, timed)

        take, Racer.take_block = Racer.take_block, fail  # type: ignore[method-assign, assignment]
        try:
            race.run_race(place, COMM)
        except RunFailed as error:
            assert error.run == "topk" and "ZeroDivisionError: no" in str(error) and not error.in_trial
        else:
            raise AssertionError("nothing has failed")
        finally:
            Racer.take_block = take  # type: ignore[method-assign]
        COMM.Barrier()
        with pytest.MonkeyPatch.context() as monkeypatch:
            if COMM.rank == 0:
                write_json(place / RACE_PLAN, {**(read_json(place / RACE_PLAN) or {}), "untuned": None})
            COMM.Barrier()
            monkeypatch.setattr(race, "find_setting", lambda *given: 1 / 0)
            with pytest.raises(RunFailed, match="^none: ") as caught:
                race.run_race(place, COMM)
            assert caught.value.in_trial
        assert read_json(place / RATIOS) == {"heats": ["earlier"]} and (place / RACE).read_text() == "earlier\n"


def lost() -> None:
    """A run whose loss is no number leaves the others to race."""
    with folder() as directory:
        config = compose("topk")
        config["optimizer"] = {**config["optimizer"], "lr": 1e30}
        place = lay_out(directory, none=compose("none"), topk=config, local=compose("local"))
        race.run_race(place, COMM)
        COMM.Barrier()
        ratios = read_json(place / RATIOS) or {}
        assert list(ratios["heats"][0]["runs"]) == ["none", "local"]
        assert ratios["left_out"]["topk"].startswith("the loss is not finite at step ")


def first_step() -> None:
    """A race begins where the policy, the phases and post-local SGD no longer change."""
    per_epoch = 10

    def find(**changes: Any) -> int:
        config = run_config.parse(dict(resolve(compose_config(workers=COMM.size, epochs=9, **changes))))
        return find_first_step(config, config.compute_epochs(per_epoch * config.global_batch))

    topk = {"compressor": {"name": "topk", "ratio": 0.1}}
    assert find() == 1 and find(policy={"start_step": 7}, **topk) == 7
    assert find(policy={"warmup": "exponential", "warmup_epochs": 4}, **topk) == 41
    assert find(policy={"warmup": "list", "warmup_ratios": [0.5, 0.2]}, **topk) == 21
    assert find(algorithm={"name": "local_sgd", "from_step": 25}) == 25
    assert find(compressor={"name": "powersgd", "start_step": 30}) == 30


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of parts of which a small model has several."""
    monkeypatch.setattr(message_sizes, "PART_BYTES", 2**9)
    monkeypatch.setattr(tuning, "PARTS_MIB", (2**10 / 2**20, 2**20 / 2**20, 64.0))


def trial_of_long_steps() -> None:
    """However long steps are, a trial tries overlap, the smallest and the largest parts, and all algorithms."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        small_parts(monkeypatch)
        monkeypatch.setattr(tuning, "LONGEST_S", 0.0)
        found = tuning.find_setting(run_config.parse(compose("none", exchange={"tune": True})), COMM, 0.0)
    assert found is not None
    tried = {tuple(each[key] for key in OPTIONS) for each in found["tried"]}
    ends = {(overlap, part, "ring") for overlap in (False, True) for part in (2**9 / 2**20, 1.0)}
    assert ends <= tried and len(tried) == len(ends) + len(ALLREDUCES) - 1
    assert {algorithm for _, _, algorithm in tried} == set(ALLREDUCES)


def trial() -> None:
    """A trial leaves no trace: with the setting that it finds, a run computes what it computes with it alone."""
    for name in ("none", "topk"):
        with folder() as directory, pytest.MonkeyPatch.context() as monkeypatch:
            small_parts(monkeypatch)
            config = run_config.parse(compose(name, exchange={"tune": True}))
            place = directory / "tuned"
            if COMM.rank == 0:
                place.mkdir()
                (directory / "alone").mkdir()
            COMM.Barrier()
            tuned = tuning.tune_run(config, COMM, place)
            assert tuned is not None
            COMM.Barrier()
            found = read_json(place / TUNED) or {}
            setting = {key: found[key] for key in OPTIONS}
            assert {key: getattr(tuned.exchange, key) for key in OPTIONS} == setting
            tried = [tuple(each[key] for key in OPTIONS) for each in found["tried"]]
            assert len(set(tried)) == len(tried) and tuple(setting.values()) in tried
            sums = ["ring"] if name == "none" else [None]
            parts = [2**9 / 2**20, 2**10 / 2**20, 1.0]
            assert {each for each in tried if each[2] == sums[0]} >= {
                (overlap, part, sums[0]) for overlap in (False, True) for part in parts
            }, tried
            assert all(each["step_s"] > 0 for each in found["tried"])
            result = loop.train(tuned, COMM, place)
            with_trial = checkpoint.weights()
            alone = run_config.parse(compose(name, exchange=setting))
            assert checkpoint.figures(loop.train(alone, COMM, directory / "alone")) == checkpoint.figures(result)
            assert checkpoint.weights() == with_trial
            checkpoint.require_equal(place, directory / "alone", name)


def kept_setting() -> None:
    """A later attempt of a run keeps the setting of the first; one that does not fit is found anew."""
    with folder() as directory:
        config = run_config.parse(compose("none", exchange={"tune": True}))
        given = {"overlap": True, "part_mib": 2.5, "allreduce": "rabenseifner", "tried": []}
        for content in (given, {**given, "allreduce": "other"}, {}):
            if COMM.rank == 0:
                write_json(directory / TUNED, content)
            COMM.Barrier()
            exchange = (tuning.tune_run(config, COMM, directory) or config).exchange
            kept = [getattr(exchange, key) for key in OPTIONS] == [True, 2.5, "rabenseifner"]
            assert kept == (content == given)
            COMM.Barrier()
        local = run_config.parse(compose("local", exchange={"tune": True}))  # whose messages cannot leave early
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(tuning._Trial, "_is_over", lambda trial: False)
            found = tuning.find_setting(local, COMM, 0.1) or {}
        assert {(each["overlap"], each["allreduce"]) for each in found["tried"]} == {
            (False, name) for name in ALLREDUCES
        }
        untuned = run_config.parse(compose("none"))
        assert tuning.tune_run(untuned, COMM, directory) is untuned


def unlike_ranks() -> None:
    """What one rank's MPI cannot do, none tries; and all have the same time, so that their blocks are as long."""
    seconds: list[float] = []

    class Noted(heat.Heat):
        def __init__(self, comm: Any, racers: Any, plan: Any, *others: Any, **more: Any) -> None:
            seconds.append(plan.seconds)
            super().__init__(comm, racers, plan, *others, **more)

    def refuse(variable: Any, value: int) -> None:
        raise LookupError("MPI_T: error 63")

    with pytest.MonkeyPatch.context() as monkeypatch:
        small_parts(monkeypatch)
        monkeypatch.setattr(heat, "Heat", Noted)
        if COMM.rank == COMM.size - 1:
            monkeypatch.setattr(MPI, "Query_thread", lambda: MPI.THREAD_SERIALIZED)
            monkeypatch.setattr(control_variables.ControlVariable, "write", refuse)
            monkeypatch.setattr(allreduce, "_find_variable", allreduce._find_variable.__wrapped__)  # not the cached
        found = tuning.find_setting(run_config.parse(compose("none")), COMM, 0.2 + COMM.rank) or {}
    assert len(found["tried"]) > 1
    assert {(each["overlap"], each["allreduce"]) for each in found["tried"]} == {(False, None)}
    assert all(each == seconds for each in COMM.allgather(seconds))


def tuned_baseline() -> None:
    """The baseline `none` races with the setting of its trial, and so do runs that ask for one; ratios.json says so."""
    with folder() as directory:
        asking = compose("topk", exchange={"tune": True})
        place = lay_out(directory, none=compose("none"), topk=asking)
        plan = read_json(place / RACE_PLAN) or {}
        built: dict[str, Any] = {}
        build, Racer.__init__ = Racer.__init__, None  # type: ignore[assignment, misc, method-assign]

        def note(racer: Racer, config: Any, comm: Any, **how: Any) -> None:
            build(racer, config, comm, **how)
            built[config.compressor.name] = config.exchange  # last, that of the heat

        Racer.__init__ = note  # type: ignore[assignment, method-assign]
        try:
            for untuned in (None, "race.tune=false"):
                if COMM.rank == 0:
                    write_json(place / RACE_PLAN, {**plan, "untuned": untuned})
                COMM.Barrier()
                race.run_race(place, COMM)
                COMM.Barrier()
                ratios = read_json(place / RATIOS) or {}
                assert list(ratios["heats"][0]["runs"]) == ["none", "topk"] and ratios["tuned_run"] == "none"
                said = {"topk": ratios["also_tuned"]["topk"]}
                if untuned is None:
                    said["none"] = ratios["tuned"]
                    assert "untuned" not in ratios and ratios["tuned"]["tried"]
                else:
                    as_configured = {"overlap": False, "part_mib": 1.0, "allreduce": "ring"}
                    assert ratios["untuned"] == {**as_configured, "why": untuned} and "tuned" not in ratios
                    assert (built["none"].overlap, built["none"].part_mib) == (False, None)
                for name, setting in said.items():
                    assert {key: getattr(built[name], key) for key in OPTIONS} == {key: setting[key] for key in OPTIONS}
        finally:
            Racer.__init__ = build  # type: ignore[method-assign]
        place = lay_out(directory / "other", choco=compose("choco"), topk=compose("topk"))
        race.run_race(place, COMM)
        COMM.Barrier()
        assert (read_json(place / RATIOS) or {})["untuned"] == {"why": "exchange=gossip: it has one setting only"}


FUNCTIONS = [
    *(alone, whole, room, short, once, solo, heats, stop, stop_in_trial, closed, failing, lost, first_step),
    *(trial, trial_of_long_steps, kept_setting, unlike_ranks, tuned_baseline),
]

if __name__ == "__main__":
    main({function.__name__: function for function in FUNCTIONS})
