"""Optimizers on flat buffers against torch's own, or against their rule written plainly."""

from __future__ import annotations

import collections
import math
from typing import Any

import pytest
import torch

from compressors import Key
from compressors.quantisation.signs import Sign
from gradsweep.errors import UsageError
from gradsweep.options.parameters import InvalidParameter
from tests.trainers.configs import compose_config
from trainers import optimizers
from trainers.config.groups import get_name
from trainers.gradients.clipping import Clipping
from trainers.gradients.flat import Flat
from trainers.optimizers.base import Optimizer, find_decaying
from trainers.options import optimizers as options
from trainers.options.sections import Clip
from trainers.rules.resolve import resolve

SHAPES = ((4, 5), (7,), (3, 2, 2), (3,), (1,), (6, 2), (1, 3))
COUNT = sum(math.prod(shape) for shape in SHAPES)


def flat_of(*tensors: torch.Tensor) -> Flat:
    return Flat(torch.nn.ParameterList([torch.nn.Parameter(tensor.clone()) for tensor in tensors]))


def tensors_of(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def flattened(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


def give(flat: Flat, seed: int) -> list[torch.Tensor]:
    """Fill the gradients; returns them tensor by tensor."""
    gradients = tensors_of(100 + seed)
    flat.gradients.copy_(flattened(gradients))
    return gradients


def trained(config: Any, steps: int = 5) -> tuple[Flat, Optimizer]:
    flat = flat_of(*tensors_of(0))
    optimizer = optimizers.build(config, flat)
    for step in range(steps):
        give(flat, step)
        for unit in flat.cut_units("layer", 1):
            optimizer.prepare(unit)
        optimizer.step(0.1 / (step + 1))
    return flat, optimizer


def groups(parameters: list[torch.nn.Parameter], config: Any) -> list[dict[str, Any]]:
    """The parameters with and those without weight decay, as torch's optimizers take them."""
    decays = [config.decay_1d or parameter.dim() > 1 for parameter in parameters]
    return [
        {
            "params": [parameter for parameter, given in zip(parameters, decays, strict=True) if given is which],
            "weight_decay": config.weight_decay if which else 0.0,
        }
        for which in (True, False)
        if which in decays
    ]


def theirs(config: Any, cls: type[torch.optim.Optimizer], steps: int = 5, **values: Any) -> torch.Tensor:
    parameters = [torch.nn.Parameter(tensor) for tensor in tensors_of(0)]
    optimizer = cls(groups(parameters, config), lr=0.1, **values)
    for step in range(steps):
        for parameter, gradient in zip(parameters, tensors_of(100 + step), strict=True):
            parameter.grad = gradient
        for group in optimizer.param_groups:
            group["lr"] = 0.1 / (step + 1)
        optimizer.step()
    return flattened([parameter.detach() for parameter in parameters])


def close(ours: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(ours, expected, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("decay_1d", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_equals_torch(momentum: float, nesterov: bool, weight_decay: float, decay_1d: bool) -> None:
    config = options.SGD(0.1, momentum, nesterov, weight_decay, decay_1d)
    close(trained(config)[0].values, theirs(config, torch.optim.SGD, momentum=momentum, nesterov=nesterov))


@pytest.mark.parametrize("decay_1d", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(("decoupled", "cls"), [(False, torch.optim.Adam), (True, torch.optim.AdamW)])
def test_adam_equals_torch(decoupled: bool, cls: type, weight_decay: float, decay_1d: bool) -> None:
    config = options.Adam(0.1, 0.8, 0.95, 1e-3, weight_decay, decoupled, decay_1d)
    close(trained(config)[0].values, theirs(config, cls, betas=(0.8, 0.95), eps=1e-3))


@pytest.mark.parametrize("decoupled", [True, False])
def test_signum_by_its_rule(decoupled: bool) -> None:
    config = options.Signum(0.1, 0.6, 0.05, decoupled)
    w, m = flattened(tensors_of(0)), torch.zeros(COUNT)
    for step in range(5):
        g, lr = flattened(tensors_of(100 + step)), 0.1 / (step + 1)
        m = 0.6 * m + 0.4 * (g if decoupled else g + 0.05 * w)
        w = w - lr * (m.sign() + (0.05 * w if decoupled else 0))
    close(trained(config)[0].values, w)


def test_signum_without_momentum_or_gradient() -> None:
    flat = flat_of(torch.tensor([1.0, -2.0, 3.0]))
    flat.gradients.copy_(torch.tensor([0.5, 0.0, -1e-20]))
    optimizers.build(options.Signum(momentum=0.0), flat).step(0.25)
    assert flat.values.tolist() == [0.75, -2.0, 3.25]


@pytest.mark.parametrize("decay_1d", [True, False])
def test_lars_by_its_rule(decay_1d: bool) -> None:
    config = options.LARS(momentum=0.7, trust=0.02, weight_decay=0.1, decay_1d=decay_1d)
    ws = tensors_of(0)
    vs = [torch.zeros_like(w) for w in ws]
    for step in range(5):
        for i, g in enumerate(tensors_of(100 + step)):
            w, rate, decay = ws[i], 1.0, 0.1 if decay_1d or ws[i].dim() > 1 else 0.0
            if w.dim() > 1:
                rate = float(0.02 * w.norm() / (g.norm() + 0.1 * w.norm()))
            vs[i] = 0.7 * vs[i] + 0.1 / (step + 1) * rate * (g + decay * w)
            ws[i] = w - vs[i]
    close(trained(config)[0].values, flattened(ws))


def test_lars_where_a_norm_is_zero() -> None:
    flat = flat_of(torch.zeros(2, 2), torch.ones(2, 2))
    flat.gradients[:4] = 1.0
    optimizers.build(options.LARS(weight_decay=0.5), flat).step(0.1)
    close(flat.values, torch.tensor([-0.1] * 4 + [0.95] * 4))


@pytest.mark.parametrize("decay_1d", [True, False])
@pytest.mark.parametrize("nesterov", [True, False])
def test_dgc_sgd_with_momentum_in_the_gradient_is_sgd(nesterov: bool, decay_1d: bool) -> None:
    """The gradient's momentum is added up outside, as memory=dgc does where everything is sent."""
    flat = flat_of(*tensors_of(0))
    ours = optimizers.build(options.DGCSGD(0.1, 0.9, nesterov, 0.1, decay_1d), flat)
    u = torch.zeros(len(flat))
    for step in range(5):
        g = flattened(give(flat, step))
        u = 0.9 * (u + g) if nesterov else 0.9 * u + g
        flat.gradients.copy_(u + g if nesterov else u)
        ours.step(0.1)
    expected = flat_of(*tensors_of(0))
    sgd = optimizers.build(options.SGD(0.1, 0.9, nesterov, 0.1, decay_1d), expected)
    for step in range(5):
        give(expected, step)
        sgd.step(0.1)
    torch.testing.assert_close(flat.values, expected.values, rtol=1e-5, atol=1e-6)


def test_dgc_sgd_decays_at_once_what_is_withheld() -> None:
    flat = flat_of(torch.tensor([2.0]))
    optimizer = optimizers.build(options.DGCSGD(momentum=0.5, weight_decay=0.1), flat)
    optimizer.step(1.0)
    assert float(flat.values) == pytest.approx(2 - 0.2)
    flat.gradients.zero_()
    optimizer.step(1.0)
    assert float(flat.values) == pytest.approx(1.8 - (0.5 * 0.2 + 0.18))


def test_onebit_adam_by_its_rule_over_two_workers() -> None:
    """Two workers whose momenta are averaged exactly; the variance is frozen after 3 of 6 steps."""
    config = options.OneBitAdam(0.1, 0.8, 0.9, 1e-2, 0.05, False, freeze_steps=3)
    flats = [flat_of(*tensors_of(0)) for _ in range(2)]
    ours = [optimizers.build(config, flat) for flat in flats]
    w, m, v = flattened(tensors_of(0)), torch.zeros(COUNT), torch.zeros(COUNT)
    decays = torch.cat([torch.full((math.prod(s),), float(len(s) > 1)) for s in SHAPES])
    for step in range(6):
        gradients = [flattened(tensors_of(100 + 10 * step + worker)) for worker in range(2)]
        for flat, optimizer, g in zip(flats, ours, gradients, strict=True):
            flat.gradients.copy_(g)
            for granularity, mib in (("layer", 1), ("bucket", 1e-4))[step % 2 :][:1]:
                for unit in flat.cut_units(granularity, mib):
                    optimizer.prepare(unit)
            local = g if step < 3 else 0.8 * m + 0.2 * g
            close(flat.gradients, local)
        mean = (flats[0].gradients + flats[1].gradients) / 2
        for flat, optimizer in zip(flats, ours, strict=True):
            flat.gradients.copy_(mean)
            optimizer.step(0.1)
        m = 0.8 * m + 0.2 * (gradients[0] + gradients[1]) / 2
        if step < 3:
            v = 0.9 * v + 0.1 * ((gradients[0] + gradients[1]) / 2) ** 2
        w = w - 0.1 * 0.05 * w * decays - 0.1 * m / (v.sqrt() + 1e-2)
        close(flats[0].values, w)
        assert torch.equal(flats[0].values, flats[1].values)


def test_what_never_had_a_gradient_is_not_moved_by_onebit_adam() -> None:
    flat = flat_of(torch.ones(1, 2))
    optimizer = optimizers.build(options.OneBitAdam(freeze_steps=1), flat)
    flat.gradients.copy_(torch.tensor([1.0, 0.0]))
    optimizer.step(0.01)
    flat.gradients.copy_(torch.tensor([0.5, 0.5]))  # as a sign with one scale would make it
    optimizer.step(0.01)
    assert float(flat.values[1]) == 1.0 and float(flat.values[0]) < 1.0


@pytest.mark.parametrize("decay_1d", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_lamb_by_its_rule(weight_decay: float, decay_1d: bool) -> None:
    config = options.LAMB(0.1, 0.8, 0.9, 1e-3, weight_decay, decay_1d, 0.4, 1.2)
    ws = tensors_of(0)
    ms, vs = [torch.zeros_like(w) for w in ws], [torch.zeros_like(w) for w in ws]
    clipped = set()
    for step in range(5):
        for i, g in enumerate(tensors_of(100 + step)):
            ms[i], vs[i] = 0.8 * ms[i] + 0.2 * g, 0.9 * vs[i] + 0.1 * g * g
            update = ms[i] / (vs[i].sqrt() + 1e-3)
            if decay_1d or ws[i].dim() > 1:
                update = update + weight_decay * ws[i]
            ratio = float(ws[i].norm() / update.norm())
            clipped.add((ratio < 0.4) - (ratio > 1.2))
            ws[i] = ws[i] - 0.1 / (step + 1) * min(max(ratio, 0.4), 1.2) * update
    assert clipped == {-1, 0, 1}
    close(trained(config)[0].values, flattened(ws))


def test_lamb_where_a_norm_is_zero() -> None:
    flat = flat_of(torch.zeros(2, 2), torch.ones(2, 2))
    flat.gradients[:4] = 1.0
    optimizers.build(options.LAMB(beta1=0.0, beta2=0.0, eps=1.0, weight_decay=0.0), flat).step(0.1)
    close(flat.values, torch.tensor([-0.05] * 4 + [1.0] * 4))


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("granularity", ["layer", "model"])
def test_onebit_lamb_by_its_rule_over_two_workers(granularity: str, weight_decay: float) -> None:
    """Two workers whose momenta are averaged exactly; the warm-up, which is LAMB, ends after 3 of 8 steps."""
    numbers = {"min_coefficient": 0.4, "max_coefficient": 1.2, "coefficient_beta": 0.6}
    bounds = {"min_factor": 0.8, "max_factor": 1.3, "factor_change": 0.2}
    config = options.OneBitLAMB(0.1, 0.8, 0.5, 1e-2, weight_decay, False, freeze_steps=3, **numbers, **bounds)
    flats = [flat_of(*tensors_of(0)) for _ in range(2)]
    ours = [optimizers.build(config, flat) for flat in flats]
    lamb_flat = flat_of(*tensors_of(0))
    lamb = optimizers.build(options.LAMB(0.1, 0.8, 0.5, 1e-2, weight_decay, False, 0.4, 1.2), lamb_flat)
    ws = [w.double() for w in tensors_of(0)]
    ms, vs, fresh = ([torch.zeros_like(w) for w in ws] for _ in range(3))
    averages, factors, scales = [0.0] * len(ws), [1.0] * len(ws), [1.0] * len(ws)
    bounded = set()
    for step, size in enumerate((1.0, 1.0, 1.0, 5.0, 5.0, 0.05, 0.05, 0.05)):
        gradients = [[size * g for g in tensors_of(100 + 10 * step + worker)] for worker in range(2)]
        for flat, optimizer, mine in zip(flats, ours, gradients, strict=True):
            flat.gradients.copy_(flattened(mine))
            for unit in flat.cut_units(granularity, 1):
                optimizer.prepare(unit)
            told = mine if step < 3 else [s * (0.8 * m + 0.2 * g) for s, m, g in zip(scales, ms, mine, strict=True)]
            close(flat.gradients, flattened(told).float())
        mean = (flats[0].gradients + flats[1].gradients) / 2
        for flat, optimizer in zip(flats, ours, strict=True):
            flat.gradients.copy_(mean)
            optimizer.step(0.1)
        if step < 3:
            lamb_flat.gradients.copy_(mean)
            lamb.step(0.1)
            assert torch.equal(lamb_flat.values, flats[0].values)
        for i in range(len(ws)):
            g = (gradients[0][i].double() + gradients[1][i].double()) / 2
            before, ms[i] = ms[i], 0.8 * ms[i] + 0.2 * g
            if step < 3:
                vs[i] = 0.5 * vs[i] + 0.5 * g * g
                fresh[i] = vs[i]
            else:
                implied = (ms[i] - 0.8 * before) / 0.2
                fresh[i] = 0.5 * fresh[i] + 0.5 * implied * implied
            plain = ms[i] / (vs[i].sqrt() + 1e-2)
            update = plain + weight_decay * ws[i] if ws[i].dim() > 1 else plain
            if step < 3:
                coefficient = min(max(float(ws[i].norm() / update.norm()), 0.4), 1.2)
                averages[i] = 0.6 * averages[i] + 0.4 * coefficient
            else:
                share = min(1.0, float(plain.norm() / update.norm()))
                wanted = share * float(((vs[i].sqrt() + 1e-2) / (fresh[i].sqrt() + 1e-2)).max()) + 1 - share
                last, factors[i] = factors[i], min(max(wanted, 0.8), 1.3)
                factors[i] = min(max(factors[i], last * 0.8), last * 1.2)
                bounded.add((wanted < 0.8) - (wanted > 1.3))
                bounded.add("change" if factors[i] in (last * 0.8, last * 1.2) else 0)
                coefficient = averages[i] * factors[i]
            ws[i] = ws[i] - 0.1 * coefficient * update
        close(flats[0].values, flattened(ws).float())
        assert torch.equal(flats[0].values, flats[1].values)
        if step == 2:
            magnitudes = [float(m.square().mean().sqrt()) for m in ms]
            scales = [sum(magnitudes) / len(magnitudes) / magnitude for magnitude in magnitudes]
            assert max(scales) > 1.5 * min(scales)
    assert {-1, 1, "change"} <= bounded


def test_onebit_lamb_without_coefficients_goes_on_after_its_warm_up() -> None:
    flat, optimizer = trained(options.OneBitLAMB(freeze_steps=2, min_coefficient=1.0, max_coefficient=1.0), 3)
    before = flat.values.clone()
    give(flat, 3)
    for unit in flat.cut_units("layer", 1):
        optimizer.prepare(unit)
    optimizer.step(0.1)
    assert not torch.equal(flat.values, before)


def test_what_never_had_a_gradient_is_not_moved_by_onebit_lamb() -> None:
    flat = flat_of(torch.ones(1, 2))
    optimizer = optimizers.build(options.OneBitLAMB(freeze_steps=1, weight_decay=0.0), flat)
    for received in ([1.0, 0.0], [0.5, 0.5]):
        flat.gradients.copy_(torch.tensor(received))
        optimizer.step(0.01)
    assert float(flat.values[1]) == 1.0 and float(flat.values[0]) < 1.0


@pytest.mark.parametrize(
    ("rules", "last", "expected"),
    [
        # kappa, freeze, doubling, most; dense, compressed and skipped rounds until the step
        ((16, 100_000, 32_678, 16), 16, (16, 0, 0)),
        ((16, 100_000, 32_678, 16), 48, (32, 16, 0)),
        ((16, 100_000, 32_678, 16), 112, (48, 64, 0)),
        ((16, 100_000, 32_678, 16), 100_000, (201, 99_799, 0)),  # 16 of each interval to 2,048, and 9 of 4,096
        ((16, 100_000, 32_678, 16), 132_678, (201, 99_799 + 32_678, 0)),
        ((16, 100_000, 32_678, 16), 165_356, (201, 99_799 + 32_678 + 16_339, 16_339)),
        ((16, 48, 64, 16), 48 + 5 * 64, (32, 16 + 64 + 32 + 16 + 8 + 4, 196)),
        ((16, 48, 64, 16), 48 + 6 * 64, (32, 16 + 64 + 32 + 16 + 8 + 4 + 4, 196 + 60)),
        ((3, 9, 4, 3), 9, (6, 3, 0)),  # 1, 2, 3; 4, 6, 8
        ((3, 9, 4, 3), 24, (6, 3 + 4 + 2 + 3, 6)),  # 10 to 13; 14, 16; 18, 21, 24
    ],
)
def test_rounds_of_zero_one_adam(rules: tuple[int, ...], last: int, expected: tuple[int, ...]) -> None:
    kappa, freeze, doubling, most = rules
    plan = options.ZeroOneAdam(variance_rounds=kappa, freeze_steps=freeze, local_doubling=doubling, local_steps=most)
    kinds = collections.Counter(plan.find_round(step) for step in range(1, last + 1))
    assert tuple(kinds[kind] for kind in (options.DENSE, options.COMPRESSED, options.SKIPPED)) == expected


def test_rounds_of_zero_one_adam_are_those_that_deepspeed_counts() -> None:
    """Its counters, written down step by step."""
    plan = options.ZeroOneAdam(variance_rounds=3, freeze_steps=70, local_doubling=5, local_steps=8)
    interval, counter, local, locals_done = 1, 0, 1, 0
    for step in range(1, 160):
        if step <= 70:
            expected = options.COMPRESSED if step % interval else options.DENSE
            if step % interval == 0:
                counter += 1
                if counter == 3:
                    counter, interval = 0, 2 * interval
        else:
            expected = options.SKIPPED if step % local else options.COMPRESSED
            locals_done += 1
            if locals_done == 5:
                locals_done, local = 0, min(8, 2 * local)
        assert plan.find_round(step) == expected, step


@pytest.mark.parametrize("aggregate", ["vote", "mean"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_distributed_lion_by_its_rule(workers: int, aggregate: str) -> None:
    """With as many workers, whose signs compressor=sign carries; of one worker it is Lion, to the bit."""
    config = options.DistributedLion(0.1, 0.8, 0.95, 0.05, False)
    flats = [flat_of(*tensors_of(0)) for _ in range(workers)]
    ours = [optimizers.build(config, flat) for flat in flats]
    sign = Sign(aggregate=aggregate)
    w, ms = flattened(tensors_of(0)), [torch.zeros(COUNT)] * workers
    decays = torch.cat([torch.full((math.prod(s),), float(len(s) > 1)) for s in SHAPES])
    tied = False
    for step in range(6):
        gradients = [flattened(tensors_of(100 + 10 * step + worker)) for worker in range(workers)]
        means = [torch.zeros_like(unit.gradient) for unit in flats[0].cut_units("layer", 1)]
        for worker, (flat, optimizer) in enumerate(zip(flats, ours, strict=True)):
            flat.gradients.copy_(gradients[worker])
            for unit in reversed(flat.cut_units("layer", 1)):
                optimizer.prepare(unit)
                key = Key(0, worker, step, unit.index)
                payload = sign.compress(unit.gradient, key)
                assert len(payload) == -(-(unit.gradient.numel() + 2) // 8)
                sign.decompress_add(payload, means[unit.index], key, 1 / workers)
        for flat, optimizer in zip(flats, ours, strict=True):
            for unit in flat.cut_units("layer", 1):
                unit.gradient.copy_(means[unit.index])
                sign.finish(unit.gradient, Key(0, 0, step, unit.index), workers)
            optimizer.step(0.1)
        votes = sum(torch.sign(0.8 * m + 0.2 * g) for m, g in zip(ms, gradients, strict=True))
        assert isinstance(votes, torch.Tensor)
        tied |= bool((votes == 0).any())
        ms = [0.95 * m + 0.05 * g for m, g in zip(ms, gradients, strict=True)]
        w = w - 0.1 * ((torch.sign(votes) if aggregate == "vote" else votes / workers) + 0.05 * w * decays)
        for flat, optimizer, m in zip(flats, ours, ms, strict=True):
            assert torch.equal(flat.values, flats[0].values)
            close(flat.values, w)
            close(optimizer.kept["momentum"], m)
    assert tied == (workers == 2)
    if workers == 1:
        lion_flat = flat_of(*tensors_of(0))
        lion = optimizers.build(options.Lion(0.1, 0.8, 0.95, 0.05, False), lion_flat)
        for step in range(6):
            lion_flat.gradients.copy_(flattened(tensors_of(100 + 10 * step)))
            lion.step(0.1)
        assert torch.equal(lion_flat.values, flats[0].values)


OWN = {name: cls for name, cls in options.OPTIMIZERS.items() if cls not in (options.Torch, options.Muon, options.Dion)}


@pytest.mark.parametrize("config", [cls() for cls in OWN.values()], ids=list(OWN))
def test_another_optimizer_goes_on_from_a_state_to_the_bit(config: Any) -> None:
    for steps in (3, 30):  # 1-bit Adam freezes in between
        flat, optimizer = trained(config, steps)
        copy = flat_of(*tensors_of(0))
        copy.values.copy_(flat.values)
        other = optimizers.build(config, copy)
        state = optimizer.state_dict()
        other.load_state_dict(state)
        for target, one in ((flat, optimizer), (copy, other)):
            for step in range(3):
                give(target, 77 + step)
                for unit in target.cut_units("layer", 1):
                    one.prepare(unit)
                one.step(0.05)
        assert torch.equal(flat.values, copy.values)
        assert all(torch.equal(one, other.kept[name]) for name, one in optimizer.kept.items())
        unused = optimizers.build(config, flat_of(*tensors_of(0)))
        assert any(not torch.equal(one, state[name]) for name, one in unused.kept.items())  # a state says something
        before = unused.state_dict()
        halves = {name: one.half() for name, one in state.items()}
        for wrong in ({}, {**state, "more": torch.zeros(1)}, halves, None):
            with pytest.raises(ValueError, match=f"^{get_name(config)} keeps"):
                unused.load_state_dict(wrong)  # type: ignore[arg-type]
        assert all(torch.equal(one, before[name]) for name, one in unused.kept.items())


def test_momentum_and_weight_decay_change_on_the_way() -> None:
    config = options.SGD(0.1, 0.0, False, 0.0)
    flat = flat_of(*tensors_of(0))
    ours = optimizers.build(config, flat)
    parameter = torch.nn.Parameter(flattened(tensors_of(0)))
    torchs = torch.optim.SGD([parameter], lr=0.1)
    for step in range(6):
        if step == 3:
            copy = flat_of(*tensors_of(0))
            copy.values.copy_(flat.values)
            resumed = optimizers.build(config, copy)
            resumed.load_state_dict(ours.state_dict())
            flat, ours = copy, resumed
        settings = {"momentum": 0.5, "weight_decay": 0.1} if step >= 1 else {}
        ours.adjust(**settings)
        torchs.param_groups[0].update(settings)
        parameter.grad = flattened(give(flat, step))
        torchs.step()
        ours.step(0.1)
        close(flat.values, parameter.detach())


def test_neighbours_that_decay_are_one_part() -> None:
    flat = flat_of(*tensors_of(0))
    assert find_decaying(flat, True) == [slice(0, COUNT)]
    assert find_decaying(flat, False) == [slice(0, 20), slice(27, 39), slice(43, 58)]


def test_clipping() -> None:
    gradients = torch.tensor([3.0, -4.0, 0.5])
    clipping = Clipping(Clip(norm=2.5, value=3.0, local_norm=100.0), gradients)
    clipping.clip_local()
    assert gradients.tolist() == [3.0, -4.0, 0.5] and clipping.needs_whole
    clipping.clip_final()
    before = torch.tensor([3.0, -3.0, 0.5])
    torch.testing.assert_close(gradients, before * 2.5 / before.norm())
    clipping = Clipping(Clip(local_norm=1.0), gradients)
    clipping.clip_local()
    assert float(gradients.norm()) == pytest.approx(1.0)
    clipping.clip_final()
    assert float(gradients.norm()) == pytest.approx(1.0) and not Clipping(Clip(norm=1.0), gradients).needs_whole


@pytest.mark.parametrize(
    ("cls", "values", "name"),
    [
        (options.Adam, {"beta1": 1.0}, "beta1"),
        (options.Adam, {"beta2": -0.1}, "beta2"),
        (options.OneBitAdam, {"freeze_steps": 0}, "freeze_steps"),
        (options.DGCSGD, {"nesterov": True, "momentum": 0.0}, "nesterov"),
        (options.LARS, {"trust": 0.0}, "trust"),
        (options.LAMB, {"min_coefficient": 2.0, "max_coefficient": 1.0}, "min_coefficient"),
        (options.OneBitLAMB, {"max_factor": 0.9}, "max_factor"),
    ],
)
def test_what_is_out_of_range_is_refused(cls: type, values: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"^{name}="):
        cls(**values)


GROUPED = {"optimizer": {"groups": [{"kinds": ["vectors"], "optimizer": {"name": "lion"}}]}}
DGC_SGD = {"optimizer": "dgc_sgd", "memory": "dgc"}
DION = {"optimizer": "dion", "compressor": "dion", "memory": "residual"}
D_LION = {"optimizer": "distributed_lion", "compressor": "sign"}
ZERO_ONE = {"optimizer": "zero_one_adam", "compressor": "sign_norm", "memory": "residual"}
ONEBIT = {"optimizer": {"name": "onebit_adam", "freeze_steps": 7}, "compressor": "onebit", "memory": "residual"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"optimizer": "dgc_sgd"},
            "optimizer=dgc_sgd with memory=none: the gradient would have no momentum; valid is mem",
        ),
        (
            {"optimizer": "adam", "memory": "dgc"},
            "memory=dgc with optimizer.beta1=0.9: the memory has the momentum; valid",
        ),
        ({"optimizer": "lars", "memory": "dgc"}, "memory=dgc with optimizer.momentum=0.9: the memory has the momentum"),
        (
            {**DGC_SGD, "memory": {"name": "dgc", "clip": 5.0}, "clip": {"local_norm": 1.0}},
            "clip.local_norm=1.0 with memory.clip=5.0: the same gradient would be clipped twice",
        ),
        (
            {**ONEBIT, "policy": {"start_step": 5}},
            "policy.start_step=5 with optimizer.freeze_steps=7: both say how long",
        ),
        ({**ONEBIT, "max_steps": 7}, "optimizer.freeze_steps=7: valid is an integer below the number of steps (7)"),
        (
            {**ONEBIT, "clip": {"norm": 1.0}},
            "clip.norm=1.0 with optimizer=onebit_adam: the exchanged values are momenta",
        ),
        (
            {**ONEBIT, "precision": "fp16"},
            "precision=fp16 with optimizer=onebit_adam: a step that overflows is left out",
        ),
        (
            {**ONEBIT, "optimizer": {**ONEBIT["optimizer"], **GROUPED["optimizer"]}},
            "optimizer=onebit_adam with optimizer.groups: what is exchanged is this optimizer's for all tensors",
        ),
        (
            {"optimizer": {**GROUPED["optimizer"], "momentum": 0.0, "nesterov": False}, "memory": "dgc"},
            "memory=dgc with optimizer.groups: the memory has the same momentum for all tensors",
        ),
        (
            {**DION, "compressor": "powersgd"},
            "optimizer=dion with compressor=powersgd: its steps are what compressor=dion exchanges; valid is comp",
        ),
        (
            {**DION, "optimizer": "muon"},
            "compressor=dion with optimizer=muon: the mean of what it sends is a step, not a gradient; valid is optim",
        ),
        (
            {"policy": {"patterns": [{"match": "w", "compressor": {"name": "dion"}}]}},
            "compressor=dion with optimizer=sgd: the mean of what it sends is a step",
        ),
        (
            {**DION, "memory": "scaled_residual"},
            "optimizer=dion with memory=scaled_residual: the residual is its momentum, which mu shrinks; valid is mem",
        ),
        (
            {**DION, "memory": {"name": "residual", "beta": 0.9}},
            "optimizer=dion with memory.beta=0.9: the residual is its momentum, which mu shrinks; valid is memory.beta",
        ),
        (
            {**DION, "policy": {"start_step": 5}},
            "optimizer=dion with policy.start_step=5: tensors that are sent in another way would step along plain grad",
        ),
        (
            {**DION, "policy": {"min_elements": 50}},
            "optimizer=dion with policy.min_elements=50: tensors that are sent in another way",
        ),
        (
            {**DION, "policy": {"patterns": [{"match": "w", "compressor": {"name": "none"}}]}},
            "optimizer=dion with policy.patterns: tensors that are sent in another way would step along plain "
            "gradients; valid is optimizer.groups",
        ),
        (
            {**DION, "clip": {"norm": 1.0}},
            "clip.norm=1.0 with optimizer=dion: the exchanged values are a step of a fixed length; valid is clip.local",
        ),
        ({**DION, "clip": {"value": 1.0}}, "clip.value=1.0 with optimizer=dion: the exchanged values are a step"),
        (
            {**DION, "algorithm": "local_sgd"},
            "algorithm=local_sgd with optimizer=dion: Dion exchanges momenta, and local SGD the changes of",
        ),
        (
            {**D_LION, "compressor": "sign_norm"},
            "optimizer=distributed_lion with compressor=sign_norm: its steps are votes or means of signs; valid is co",
        ),
        (
            {**D_LION, "policy": {"dense_1d": True}},
            "optimizer=distributed_lion with policy.dense_1d=True: tensors that are sent in another way would step",
        ),
        (
            {**D_LION, "clip": {"norm": 1.0}},
            "clip.norm=1.0 with optimizer=distributed_lion: the exchanged values are momenta; valid is clip.local_norm",
        ),
        (
            {**D_LION, "algorithm": "local_sgd"},
            "algorithm=local_sgd with optimizer=distributed_lion: the optimizer exchanges momenta, and local",
        ),
        (
            {**D_LION, "compressor": {"name": "sign", "aggregate": "mean"}}
            | {"exchange": {"name": "sharded", "second": "same"}},
            "compressor.aggregate=mean with exchange=sharded, exchange.second=same: the mean would become signs again",
        ),
        (
            {**ZERO_ONE, "memory": "scaled_residual"},
            "optimizer=zero_one_adam with memory=scaled_residual: gradients are exchanged first, and sums of momenta",
        ),
        (
            {**ZERO_ONE, "exchange": "hierarchical"},
            "optimizer=zero_one_adam with exchange=hierarchical: it also sends uncompressed gradients, in one sum",
        ),
        (
            {**ZERO_ONE, "exchange": {"name": "parameter_server", "placement": "dedicated"}},
            "optimizer=zero_one_adam with exchange.placement=dedicated: in some steps workers exchange without the ser",
        ),
        (
            {**ZERO_ONE, "exchange": {"name": "parameter_server", "backup": 1}},
            "optimizer=zero_one_adam with exchange.backup=1: in some steps workers exchange without the server, or",
        ),
        (
            {**ZERO_ONE, "batch_norm": "synchronised"},
            "optimizer=zero_one_adam with batch_norm=synchronised: the workers' models differ",
        ),
        (
            {**ZERO_ONE, "algorithm": "local_sgd"},
            "algorithm=local_sgd with optimizer=zero_one_adam: the optimizer exchanges momenta, and local",
        ),
        (
            {**ZERO_ONE, "max_steps": 40},
            "optimizer.freeze_steps=40: valid is an integer below the number of steps (40)",
        ),
        ({"clip": {"norm": 0.0}}, "clip.norm=0.0: valid is a finite number above 0.0 or null"),
        (
            {"batch": {"size": 8, "accumulate": 5}},
            "batch.accumulate=5: valid is an integer up to the samples of a worker in",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(compose_config(**changes))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_onebit_adam_is_dense_until_it_freezes() -> None:
    assert resolve(compose_config(**ONEBIT))["policy"]["start_step"] == 8
    resolved = resolve(compose_config(**ONEBIT, policy={"start_step": 8}))
    assert resolved["policy"]["start_step"] == 8 and resolved["exchange"]["name"] == "mixed"
    resolve(resolved)  # a resolved config resolves to itself
    assert resolve(compose_config(**DGC_SGD))["optimizer"]["name"] == "dgc_sgd"
