"""What algorithms do over the steps of a run: `mpirun -n W python -m tests.trainers.ranks.algorithms NAME`."""

from __future__ import annotations

import copy
import csv
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

from compressors import Key
from compressors.low_rank.linear_algebra.factors import draw
from tests.trainers.arrays import random_arrays
from tests.trainers.configs import compose_config
from tests.trainers.ranks.exchange import main
from trainers import data
from trainers.algorithms.local_sgd import LocalSGD
from trainers.config import run_config as configs
from trainers.config.epochs import Epochs, Stretch
from trainers.config.run_config import RunConfig
from trainers.data.batches import Shard
from trainers.data.feeds import Batch, Feed
from trainers.devices.stopwatch import Stopwatch
from trainers.exchange.base import Traffic
from trainers.gradients.flat import Unit
from trainers.optimizers import schedules
from trainers.optimizers.sgd import SGD
from trainers.options.datasets import Digits
from trainers.replica.replica import DifferentWeights, Replica
from trainers.rules.resolve import resolve
from trainers.tasks.base import Scores
from trainers.training import assembly, loop

COMM = MPI.COMM_WORLD
STEPS = 24  # of three epochs

PLAIN = {"momentum": 0.0, "nesterov": False}
LOCAL = {"name": "local_sgd", "steps": 4}


def run_of(**changes: Any) -> RunConfig:
    changes = {"model": {"width": 33}, "epochs": 3, "batch": {"size": 48}, "workers": COMM.size, **changes}
    return configs.parse(resolve(compose_config(**changes)))


class Run:
    """A run without its loop: its steps can be taken one by one."""

    def __init__(self, **changes: Any) -> None:
        self.config = run_of(**changes)
        self.feed = Shard(random_arrays(7 * 48 + 5, 40), 48, 3, COMM.rank, COMM.size)
        self.replica, self.watch = Replica(self.config, self.feed.shape, 10, COMM), Stopwatch()
        self.algorithm = assembly.build_algorithm(self.config, COMM, self.replica, self.watch)
        self.schedule = schedules.build(self.config, Epochs(STEPS, (Stretch(0, 0, self.feed.plan.steps),)))
        self.batches = [batch for epoch in (1, 2, 3) for batch in self.feed.read_epoch(epoch)]
        self.values, self.gradients = self.replica.flat.values, self.replica.flat.gradients

    def begin(self, step: int) -> float:
        """Everything up to the gradient; returns the learning rate."""
        lr = self.schedule.rate(step)
        self.algorithm.setup.optimizer.adjust(**self.schedule.settings(step))
        self.algorithm.begin(step, self.schedule.epochs.count_done(step) + 1, lr, measure=step % 5 == 1)
        self.replica.compute_gradient(self.batches[step - 1], self.watch)
        return lr

    def steps(self, first: int, last: int) -> list[Traffic]:
        found = []
        for step in range(first, last + 1):
            self.begin(step)
            found.append(self.algorithm.finish())
        return found


def everyone(values: torch.Tensor) -> torch.Tensor:
    found = np.empty((COMM.size, values.numel()), dtype=np.float32)
    COMM.Allgather(values.numpy(), found)
    return torch.from_numpy(found)


def alike(values: torch.Tensor) -> bool:
    found = everyone(values)
    return bool((found == found[0]).all())


def close(one: torch.Tensor, other: torch.Tensor, tolerance: float = 1e-5) -> None:
    error = float((one - other).abs().max() / other.abs().max())
    assert error < tolerance, error


def same(one: Any, other: Any) -> bool:
    """Whether two states are equal to the bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and set(one) == set(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def one_local_step_is_synchronous() -> None:
    for optimizer in (PLAIN, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01, "decay_1d": False}):
        local = Run(algorithm={"name": "local_sgd", "steps": 1}, optimizer=optimizer)
        synchronous = Run(optimizer=optimizer)
        before = local.values.clone()
        for step in range(1, STEPS + 1):
            local.steps(step, step)
            synchronous.steps(step, step)
            assert alike(local.values)
        close(local.values, synchronous.values)
        assert float((local.values - before).abs().max()) > 0.01


def averaging() -> None:
    """Bits are alike after an averaging, it is the mean, and nothing travels in between."""
    many = {"compressor": ["none", "qsgd", "topk", "onebit", "intsgd", "powersgd"], "memory": "residual"}
    for compressor in many["compressor"]:
        memory = "none" if compressor in ("none", "qsgd", "intsgd") else "residual"
        run = Run(algorithm=LOCAL, compressor=compressor, memory=memory)
        for step in range(1, 13):
            lr = run.begin(step)
            if step % 4 == 0 and compressor == "none":
                run.algorithm.setup.optimizer.step(lr)
                mean = everyone(run.values).mean(0)
                run.gradients.zero_()  # the step is done: now it must be nothing more than the mean
                run.algorithm.setup.optimizer.step = lambda lr: None  # type: ignore[method-assign]
                traffic = run.algorithm.finish()
                del run.algorithm.setup.optimizer.step
                close(run.values, mean, 1e-6)
                assert traffic.payload_bytes == 4 * len(run.values)
            else:
                traffic = run.algorithm.finish()
            averaged = step % 4 == 0
            assert (traffic.sent_bytes > 0) == (traffic.payload_bytes > 0) == averaged
            assert alike(run.values) == averaged, (compressor, step)
            # steps 1, 6 and 11 are to be measured: what is measured is the next averaging
            assert (traffic.compression_error is not None) == averaged
        if averaged:
            run.replica.require_same("test")
        run.steps(13, 13)
        try:
            run.replica.require_same("test")
        except DifferentWeights:
            continue
        raise AssertionError("the workers have the same parameters after a local step")


def outer_optimizer() -> None:
    """DiLoCo's outer step against its rule: Nesterov's momentum on the mean of x - x_i."""
    outer = {"outer_lr": 0.7, "outer_momentum": 0.9, "outer_nesterov": True}
    run = Run(algorithm={"name": "local_sgd", "steps": 2, **outer}, optimizer={**PLAIN, "weight_decay": 0.0})
    x, momentum = run.values.clone(), torch.zeros_like(run.values)
    for step in range(1, 13):
        lr = run.begin(step)
        mine = run.values - lr * run.gradients
        run.algorithm.finish()
        if step % 2 == 0:
            difference = x - everyone(mine).mean(0)
            momentum = 0.9 * momentum + difference
            x = x - 0.7 * (difference + 0.9 * momentum)
            close(run.values, x)
            x = run.values.clone()
        else:
            close(run.values, mine, 1e-6)
            assert not alike(run.values)


def post_local() -> None:
    """To the bit synchronous before `from_step`, the first averaging `steps` steps later."""
    run, synchronous = Run(algorithm={**LOCAL, "from_step": 7}), Run()
    assert run.steps(1, 6) == synchronous.steps(1, 6)
    assert torch.equal(run.values, synchronous.values)
    sent = [traffic.payload_bytes > 0 for traffic in run.steps(7, 16)]
    assert sent == [False, False, False, True] * 2 + [False, False] and not alike(run.values)


STREAMING = {"outer_lr": 0.7, "outer_momentum": 0.9, "outer_nesterov": True}
STREAMS: list[dict[str, Any]] = [
    {"steps": 4, "fragments": 2, "delay": 0, "mixing": 0.0},
    {"steps": 4, "fragments": 4, "delay": 0, "mixing": 0.5},
    {"steps": 6, "fragments": 2, "delay": 2, "mixing": 0.0},
    {"steps": 6, "fragments": 3, "delay": 1, "mixing": 0.5},
    {"steps": 4, "fragments": 1, "delay": 3, "mixing": 0.25},
    {"steps": 3, "fragments": 1, "delay": 3, "mixing": 0.0},  # delayed rounds
    {"steps": 3, "fragments": 1, "delay": 3, "mixing": 0.5},
]


def streaming() -> None:
    """Fragments, delay and mixing against the rule in plain torch, with and without a thread for messages."""
    for options in STREAMS:
        for overlap in (False, True) if options["delay"] else (False,):
            algorithm = {"name": "local_sgd", **STREAMING, **options}
            run = Run(
                algorithm=algorithm,
                optimizer={**PLAIN, "weight_decay": 0.0},
                exchange={"name": "auto", "overlap": overlap},
                batch_norm="local",
            )
            assert isinstance(run.algorithm, LocalSGD)
            follow_stream(run, options)
            run.algorithm.setup.exchange.close()


def follow_stream(run: Run, options: dict[str, Any]) -> None:
    steps, fragments, delay, mixing = (options[key] for key in ("steps", "fragments", "delay", "mixing"))
    places = [fragment.place for fragment in run.algorithm._fragments]
    assert [place.start for place in places] == [0, *(place.stop for place in places[:-1])]
    x, mine, momentum = run.values.clone(), run.values.clone(), torch.zeros_like(run.values)
    waiting: dict[int, tuple[int, torch.Tensor]] = {}  # by the step of its use: fragment and change
    sent: list[bool] = []
    for step in range(1, STEPS + 1):
        lr = run.begin(step)
        mine = mine - lr * run.gradients
        traffic = run.algorithm.finish()
        sent.append(traffic.payload_bytes > 0)
        change = None
        if step % (steps // fragments) == 0:
            fragment = step % steps // (steps // fragments)
            change = everyone((x - mine)[places[fragment]].contiguous()).mean(0)
            waiting[step + delay] = fragment, change
        if step in waiting and (delay or change is not None):
            used, mean = waiting.pop(step)
            place = places[used]
            momentum[place] = 0.9 * momentum[place] + mean
            x[place] = x[place] - 0.7 * (mean + 0.9 * momentum[place])
            mine[place] = mixing * mine[place] + (1 - mixing) * x[place]
        elif step == steps == delay:  # the first of the delayed rounds: there is no result yet
            mine = mixing * mine + (1 - mixing) * x
        close(run.values, mine)
        mine = run.values.clone()
    begun = list(range(steps // fragments, STEPS + 1, steps // fragments))
    in_background = run.algorithm.setup.exchange.collectives.in_background
    late = delay if in_background else 0
    assert [step for step, any_sent in enumerate(sent, 1) if any_sent] == [s + late for s in begun if s + late <= STEPS]


def schedule_of_fragments() -> None:
    """The worked example of MaxText: 12 steps and 4 fragments; fragments 1, 2, 3, 0 after steps 3, 6, 9, 12."""
    run = Run(algorithm={"name": "local_sgd", "steps": 12, "fragments": 4, "delay": 1})
    seen = []
    for step in range(1, STEPS + 1):
        before = [run.algorithm._anchor[fragment.place].clone() for fragment in run.algorithm._fragments]
        run.steps(step, step)
        for number, fragment in enumerate(run.algorithm._fragments):
            if not torch.equal(run.algorithm._anchor[fragment.place], before[number]):
                seen.append((step, number))
    assert seen == [(4, 1), (7, 2), (10, 3), (13, 0), (16, 1), (19, 2), (22, 3)]


def radial_directional() -> None:
    """The mean length of each tensor's change, along the mean of its directions."""
    algorithm = {"name": "local_sgd", "steps": 2, "average": "radial_directional"}
    run = Run(algorithm=algorithm, optimizer={**PLAIN, "weight_decay": 0.0}, batch_norm="local")
    for step in range(1, 7):
        before = run.values.clone()
        lr = run.begin(step)
        mine = run.values - lr * run.gradients
        run.algorithm.finish()
        if step % 2:
            x = before
            continue
        for unit, place in ((unit, find_place(run, unit)) for unit in run.algorithm.setup.units):
            changes = everyone((x - mine)[place].contiguous())
            lengths = changes.norm(dim=1, keepdim=True)
            direction = (changes / lengths).mean(0)
            close(run.values[place], x[place] - lengths.mean() * direction / direction.norm())
            assert unit.values.numel() == place.stop - place.start


def find_place(run: Run, unit: Unit) -> slice:
    start = unit.gradient.storage_offset()
    return slice(start, start + unit.gradient.numel())


def evaluation() -> None:
    """Of the mean of the workers, which disturbs nothing."""
    run, undisturbed = Run(algorithm=LOCAL), Run(algorithm=LOCAL)
    for step in range(1, 11):
        run.steps(step, step)
        undisturbed.steps(step, step)
        before, mean = run.values.clone(), everyone(run.values).mean(0)
        with run.algorithm.use_evaluation_parameters():
            assert alike(run.values)
            close(run.values, mean, 1e-6)
            judged = run.replica.evaluate(run.feed)
        assert COMM.allgather(judged) == [judged] * COMM.size
        assert torch.equal(run.values, before)
        try:
            with run.algorithm.use_evaluation_parameters():
                raise KeyError
        except KeyError:
            assert torch.equal(run.values, before)
        run.replica.model.train()
    assert torch.equal(run.values, undisturbed.values)


ONEBIT = {"name": "onebit_adam", "freeze_steps": 9, "lr": 1e-3}
ZERO_ONE = {"name": "zero_one_adam", "variance_rounds": 2, "freeze_steps": 9, "local_doubling": 2, "local_steps": 3}
GOING_ON: list[dict[str, Any]] = [
    {"algorithm": {**LOCAL, "outer_momentum": 0.5}, "compressor": "topk", "memory": "residual"},
    {"algorithm": {**LOCAL, "from_step": 10}, "compressor": "topk", "memory": "scaled_residual", "optimizer": "adam"},
    {"algorithm": LOCAL, "optimizer": "lars", "compressor": "intsgd"},
    {"algorithm": {**LOCAL, "fragments": 2, "delay": 1, "mixing": 0.5, "outer_momentum": 0.5}}
    | {"compressor": "topk", "memory": "residual", "exchange": {"name": "auto", "overlap": True}},
    {"algorithm": {"name": "local_sgd", "steps": 3, "delay": 3, "average": "radial_directional"}},
    {"optimizer": ONEBIT, "compressor": "onebit", "memory": "residual"},
    {"optimizer": "distributed_lion", "compressor": "sign"},
    {"optimizer": {**ONEBIT, "name": "onebit_lamb"}, "compressor": "sign_norm", "memory": "residual"}
    | {"exchange": {"name": "sharded", "granularity": "model"}},
    {"optimizer": ZERO_ONE, "compressor": "sign_norm", "memory": "residual", "exchange": "sharded"},
    {"optimizer": ZERO_ONE, "compressor": "sign_norm", "memory": "residual"}
    | {"exchange": {"name": "allgather", "overlap": True}},
    {"optimizer": "dgc_sgd", "compressor": "topk", "memory": "dgc"},
    {"optimizer": "signum", "clip": {"norm": 0.5, "local_norm": 1.0}},
    {"schedule": {"name": "regime", "phases": [{"epoch": 0, "lr": 0.1}, {"epoch": 1, "momentum": 0.5}]}}
    | {"optimizer": PLAIN},
]


def going_on() -> None:
    """A copy that is given the state goes on to the bit, from before and within every stage."""
    for changes in GOING_ON:
        first = Run(**changes)
        traffic, saved = [], {}
        for step in range(1, 18):
            traffic += first.steps(step, step)
            if step in (3, 9, 11):
                saved[step] = copy.deepcopy((first.values, first.algorithm.state_dict()))
        for stop, (values, state) in saved.items():
            second = Run(**changes)
            second.values.copy_(values)
            second.algorithm.load_state_dict(state)
            assert second.steps(stop + 1, 17) == traffic[stop:], (changes, stop)
            assert torch.equal(second.values, first.values), (changes, stop)
            assert same(second.algorithm.state_dict(), first.algorithm.state_dict()), (changes, stop)


def refused() -> None:
    """What is no state of local SGD; nothing has been changed then."""
    run = Run(algorithm=LOCAL)
    run.steps(1, 2)
    state = run.algorithm.state_dict()
    run.steps(3, 3)
    now = run.algorithm.state_dict()
    wrong: list[Any] = [
        {},
        None,
        {**state, "local": 4},
        {**state, "local": True},
        {**state, "anchor": torch.zeros(3)},
        {**state, "outer": {"momentum": torch.zeros(3)}},
        Run().algorithm.state_dict(),
    ]
    for given in wrong:
        try:
            run.algorithm.load_state_dict(given)
        except ValueError:
            assert same(run.algorithm.state_dict(), now)
            continue
        raise AssertionError(f"{given!r} was taken")


def onebit_adam() -> None:
    """With an exact exchange the plain rule on the mean gradient; compressed, workers stay alike and send little."""
    config = {**ONEBIT, "beta1": 0.8, "beta2": 0.9, "eps": 1e-3}
    run = Run(optimizer=config, schedule={"name": "cosine", "warmup_epochs": 0.5})
    w, m, v = run.values.clone(), torch.zeros_like(run.values), torch.zeros_like(run.values)
    for step in range(1, STEPS + 1):
        lr = run.begin(step)
        g = everyone(run.gradients).mean(0)
        run.algorithm.finish()
        m = 0.8 * m + 0.2 * g
        v = 0.9 * v + 0.1 * g * g if step <= 9 else v
        m = torch.where(v == 0, 0.0, m) if step > 9 else m
        w = w - lr * m / (v.sqrt() + 1e-3)
        close(run.values, w)
        w = run.values.clone()
    compressed = Run(optimizer=ONEBIT, compressor="onebit", memory="residual")
    sizes = [traffic.payload_bytes for traffic in compressed.steps(1, 14)]
    assert alike(compressed.values)
    assert sizes[:9] == [4 * len(compressed.values)] * 9 and max(sizes[9:]) < len(compressed.values) / 4


def zero_one_adam() -> None:
    """Its rule with an exact exchange; and compressed, what each round sends, and what the memory has."""
    plan = {"variance_rounds": 3, "freeze_steps": 9, "local_doubling": 4, "local_steps": 3}
    options = {
        "name": "zero_one_adam",
        "lr": 1e-3,
        "beta1": 0.8,
        "beta2": 0.9,
        "eps": 1e-3,
        "weight_decay": 0.1,
        **plan,
    }
    dense, skipped = {1, 2, 3, 4, 6, 8}, {15, 17, 19, 20, 22, 23}
    run = Run(optimizer=options, schedule={"name": "cosine", "warmup_epochs": 0.5})
    count, w, x = len(run.values), run.values.clone(), run.values.clone()
    m, v, rates = torch.zeros(count), torch.zeros(count), 0.0
    for step in range(1, STEPS + 1):
        lr = run.begin(step)
        g = run.gradients.clone() if step > 9 else everyone(run.gradients).mean(0)
        sent = run.algorithm.finish().payload_bytes
        v = 0.9 * v + 0.1 * g * g if step in dense else v
        m = torch.where(v == 0, 0.0, 0.8 * m + 0.2 * g)
        w = (1 - lr * 0.1) * w - lr * m / (v.sqrt() + 1e-3)
        if step > 9:
            x, rates = (1 - lr * 0.1) * x, rates + lr
        if step > 9 and step not in skipped:
            total = everyone((x - w) * (v.sqrt() + 1e-3)).mean(0)
            m, w, rates = total / rates, x - total / (v.sqrt() + 1e-3), 0.0
        x = w.clone() if step <= 9 or step not in skipped else x
        close(run.values, w)
        assert sent == (0 if step in skipped else 4 * count)
        assert alike(run.values) == (step not in skipped or COMM.size == 1)
        with run.algorithm.use_evaluation_parameters():
            assert alike(run.values)
    compressed = Run(
        optimizer=options,
        compressor={"name": "sign_norm", "scale": "l2", "zeros": "plus"},
        memory="residual",
        exchange={"name": "sharded", "second": "same"},
    )
    exchange = compressed.algorithm.setup.exchange
    for step in range(1, STEPS + 1):
        before = compressed.algorithm.measure_withheld()
        compressed.begin(step)
        assert compressed.algorithm.measure_withheld() == (0.0 if step == 10 else before)
        if step == 10:
            assert exchange.second.memory.norm() == 0.0  # type: ignore[attr-defined]
        sent = compressed.algorithm.finish().payload_bytes
        after = compressed.algorithm.measure_withheld()
        if step in dense:
            assert sent == 4 * count and after == before
        elif step in skipped:
            assert sent == 0 and after == before
        else:
            assert 0 < sent < count / 4 and after != before
            assert alike(compressed.values)


def distributed_lion() -> None:
    """Its rule with own momenta; a bit an element, up and down; a tie is 0, or a coin where an owner sends the vote."""
    options = {"name": "distributed_lion", "lr": 1e-2, "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.1}
    for aggregate, second in (("vote", None), ("mean", "none"), ("vote", "same")):
        exchange = {"name": "allgather"} if second is None else {"name": "sharded", "second": second}
        run = Run(
            optimizer=options,
            compressor={"name": "sign", "aggregate": aggregate},
            exchange={**exchange, "granularity": "model"},
        )
        count, w, m, ties = len(run.values), run.values.clone(), torch.zeros(COMM.size, len(run.values)), 0
        for step in range(1, STEPS + 1):
            lr = run.begin(step)
            g = everyone(run.gradients)
            traffic = run.algorithm.finish()
            c, m = 0.8 * m + 0.2 * g, 0.95 * m + 0.05 * g
            votes, told = c.sign().sum(0), (c.abs() > 1e-9).all(0)  # a 0 votes by a coin
            moved = ((1 - lr * 0.1) * w - run.values) / lr
            tied = told & (votes == 0)
            ties += int(tied.sum())
            expected = votes.sign() if aggregate == "vote" else votes / COMM.size
            if second == "same":
                expected[tied] = moved[tied].sign()
            close(moved[told], expected[told], 1e-3)
            assert traffic.payload_bytes <= count / 8 + 8 * COMM.size  # shards end at whole words
            each = COMM.size - 1  # messages to the others, of the whole or of a shard and back
            bits = each if second is None else each / COMM.size * (1 + (1 if second == "same" else 32))
            assert abs(8 * traffic.sent_bytes - bits * count) < 0.05 * count
            w = run.values.clone()
        assert alike(run.values) and (ties > 0) == (COMM.size % 2 == 0)
        assert alike(run.algorithm.setup.optimizer.kept["momentum"]) == (COMM.size == 1)


def dion() -> None:
    """Its rule in float64, for some ranks; what its groups have is AdamW's, and is sent as it is."""
    for fraction in (0.25, 1.0):
        run = Run(
            optimizer="dion", compressor={"name": "dion", "rank_fraction": fraction, "mu": 0.9}, memory="residual"
        )
        seed, matrices, others = run.algorithm.setup.exchange.seed, {}, []
        for unit in run.algorithm.setup.units:
            if run.replica.flat.kinds[unit.name] == "matrices":
                short = min(unit.gradient.shape)
                q = draw(torch.empty(math.ceil(fraction * short), short), Key(seed, 0, 1, unit.index)).T.double()
                matrices[unit.index] = [torch.zeros(unit.gradient.shape).double()] * COMM.size, q
            else:
                others.append(find_place(run, unit))
        assert len(matrices) == 2 and len(others) == 4
        x, m, v = run.values.double(), torch.zeros(len(run.values)).double(), torch.zeros(len(run.values)).double()
        for step in range(1, STEPS + 1):
            lr = run.begin(step)
            every = everyone(run.gradients).double()
            sent = run.algorithm.finish().payload_bytes
            g = every.mean(0)
            m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g**2
            moved = (1e-3 / 0.02) * (m / (1 - 0.9**step)) / ((v / (1 - 0.95**step)).sqrt() + 1e-8)
            expected = sum(4 * (place.stop - place.start) for place in others)
            for unit in run.algorithm.setup.units:
                if unit.index not in matrices:
                    continue
                place, (rows, columns) = find_place(run, unit), unit.gradient.shape
                momenta, q = matrices[unit.index]
                momenta = [mine + g.view(rows, columns) for mine, g in zip(momenta, every[:, place], strict=True)]
                tall = [mine if rows >= columns else mine.T for mine in momenta]
                p, _ = torch.linalg.qr(sum(mine @ q for mine in tall))
                r = sum(mine.T @ p for mine in tall) / COMM.size
                gone, q = 0.1 * p @ r.T, r / (r.norm(dim=0) + 1e-8)
                matrices[unit.index] = [mine - (gone if rows >= columns else gone.T) for mine in momenta], q
                direction = p @ q.T if rows >= columns else q @ p.T
                moved[place] = (rows / columns) ** 0.5 * direction.reshape(-1) + 0.01 * x[place]
                expected += 4 * min(rows * columns, q.shape[1] * (rows + columns))
            x = x - lr * moved
            assert sent == expected
            close(run.values, x, 1e-4)
        assert alike(run.values)


def dgc_sgd() -> None:
    """With memory=dgc and everything sent, SGD with that momentum: weight decay has it here, the gradient there."""
    for nesterov in (False, True):
        options = {"momentum": 0.8, "nesterov": nesterov, "weight_decay": 0.02}
        memory = {"name": "dgc", "momentum": 0.8, "nesterov": nesterov}
        ours = Run(optimizer={"name": "dgc_sgd", **options}, memory=memory)
        plain = Run(optimizer=options)
        ours.steps(1, STEPS)
        plain.steps(1, STEPS)
        close(ours.values, plain.values)


def clipping() -> None:
    """Bounds of the mean after the exchange, of what a worker sends before it, and of every local step."""
    run = Run(optimizer={**PLAIN, "weight_decay": 0.0}, clip={"norm": 0.01})
    before = run.values.clone()
    lr = run.begin(1)
    run.algorithm.finish()
    assert abs(float((run.values - before).norm()) - 0.01 * lr) < 1e-6
    run = Run(optimizer={**PLAIN, "weight_decay": 0.0}, clip={"norm": 0.01}, algorithm=LOCAL)
    before = run.values.clone()
    lr = run.begin(1)
    run.algorithm.finish()  # a local step, along a worker's own gradient
    assert abs(float((run.values - before).norm()) - 0.01 * lr) < 1e-6 and (COMM.size == 1 or not alike(run.values))
    run = Run(optimizer={**PLAIN, "weight_decay": 0.0}, clip={"local_norm": 0.01})
    before = run.values.clone()
    lr = run.begin(1)
    mean = everyone(run.gradients * (0.01 / run.gradients.norm())).mean(0)
    run.algorithm.finish()
    torch.testing.assert_close(run.values, before - lr * mean, rtol=1e-5, atol=1e-8)


def accumulation() -> None:
    """A share in pieces has the gradient, the loss and the accuracy of a share in one."""
    whole, parts = Run(), Run(batch={"size": 48, "accumulate": 3})
    for batch in whole.batches[:8]:
        first = whole.replica.compute_gradient(batch, whole.watch).read()
        second = parts.replica.compute_gradient(batch, parts.watch).read()
        close(parts.gradients, whole.gradients, 1e-6)
        assert abs(first[0] - second[0]) < 1e-6 and abs(first[1] - second[1]) < 1e-12
    seen: list[int] = []
    parts.replica.model.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    batch = whole.batches[0]
    parts.replica.compute_gradient(batch, parts.watch)
    assert len(seen) == 3 and sum(seen) == len(batch.labels) and max(seen) - min(seen) <= 1
    seen.clear()
    parts.replica.compute_gradient(Batch(batch.inputs[:2], batch.labels[:2], 48), parts.watch)
    assert seen == [1, 1]
    parts.replica.compute_gradient(Batch(batch.inputs[:0], batch.labels[:0], 48), parts.watch)
    assert not parts.gradients.any()


def whole_runs(folder: str) -> None:
    """Runs from beginning to end, with what only the loop does: schedules that observe, regimes, evaluations."""
    data.load(Digits(), Path(folder))
    evaluate = Replica.evaluate

    def judged(replica: Replica, feed: Feed, epoch: int = 1) -> Scores:
        replica.require_same("the parameters that are judged")
        return evaluate(replica, feed, epoch)

    Replica.evaluate = judged  # type: ignore[method-assign]
    taken: list[tuple[float, float]] = []
    step = SGD.step

    def noted(optimizer: SGD, lr: float) -> None:
        taken.append((optimizer.momentum, optimizer.weight_decay))
        step(optimizer, lr)

    SGD.step = noted  # type: ignore[method-assign]
    phases = [{"epoch": 0, "lr": 0.1, "momentum": 0.9}, {"epoch": 1, "lr": 0.02, "weight_decay": 0.01}]
    runs: dict[str, dict[str, Any]] = {
        "local": {"algorithm": LOCAL, "compressor": "qsgd", "optimizer": {"name": "adam", "decoupled": True}},
        "plateau": {"schedule": {"name": "plateau", "patience": 0, "threshold": 0.999, "factor": 0.5}},
        "regime": {"schedule": {"name": "regime", "phases": phases}, "optimizer": PLAIN, "scaling": {"rule": "linear"}},
        "lars": {"optimizer": "lars", "batch": {"size": 256, "accumulate": 2}, "clip": {"value": 0.1}},
        "onebit": {"optimizer": ONEBIT, "compressor": "sign_norm", "memory": "residual"},
        "lamb": {"optimizer": {**ONEBIT, "name": "onebit_lamb", "lr": 0.03}, "compressor": "sign_norm"}
        | {"memory": "residual"},
        "zero_one": {"optimizer": ZERO_ONE, "compressor": "sign_norm", "memory": "residual"},
    }
    for name, changes in runs.items():
        config = run_of(**{"batch": {"size": 256}, "data": {"root": folder}, **changes})
        config = dataclasses.replace(config, max_steps=15)
        directory = Path(folder, name)
        directory.mkdir(exist_ok=True)
        taken.clear()
        result = loop.train(config, COMM, directory)
        assert result["status"] == "done" and result["steps"] == 15 and result["accuracy"] > 0.2, (name, result)
        if COMM.rank:
            continue
        with open(directory / "steps.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        rates = [float(row["lr"]) for row in rows]
        if name == "local":
            assert [float(row["payload_bytes"]) > 0 for row in rows] == ([False] * 3 + [True]) * 3 + [False] * 3
        if name == "plateau":
            assert rates == [0.1] * 12 + [0.05] * 3  # the second evaluation is not better by a factor of 1000
        if name == "regime":
            assert rates == [0.1 * COMM.size] * 6 + [0.02 * COMM.size] * 9
            assert taken == [(0.9, 5e-4)] * 6 + [(0.9, 0.01)] * 9


def of_two(folder: str) -> None:
    for test in (
        averaging,
        post_local,
        streaming,
        distributed_lion,
        zero_one_adam,
        going_on,
        refused,
        dgc_sgd,
        clipping,
        accumulation,
    ):
        test()
    whole_runs(folder)


def of_three() -> None:
    outer = (one_local_step_is_synchronous, outer_optimizer, streaming, schedule_of_fragments, radial_directional)
    for test in (*outer, evaluation, onebit_adam, zero_one_adam, distributed_lion, dion, accumulation):
        test()


if __name__ == "__main__":
    main(globals())
