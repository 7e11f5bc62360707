"""The GPT: parameter counts of nanoGPT, GPT-2 and OpenDiLoCo, causality, rotary positions, and its first weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from gradsweep.errors import UsageError
from gradsweep.options.parameters import InvalidParameter
from tests.conftest import read_presets
from trainers.models import build, gpt, try_out
from trainers.options.models import GPT, LSTM

LLAMA = {"norm": "rms", "positions": "rotary", "activation": "swiglu", "tied": False}
KINDS = [GPT(2, 4, 32, dropout=0.1), GPT(2, 4, 32, bias=True), GPT(2, 4, 32, **LLAMA)]


def count(config: GPT, length: int, words: int) -> int:
    with torch.device("meta"):
        return sum(each.numel() for each in build(config, (length,), words).parameters())


@pytest.mark.parametrize(
    ("name", "words", "parameters"),
    [
        ("gpt_char", 65, 10_745_088),
        ("gpt_char_cpu", 65, 804_096),
        ("gpt2", 50_257, 124_439_808),
        ("llama_150m", 32_000, 214_983_680),
    ],
)
def test_presets_have_the_published_numbers_of_parameters(name: str, words: int, parameters: int) -> None:
    _, options = read_presets("model")[name]
    assert count(GPT(**options), 64, words) == parameters


@pytest.mark.parametrize(
    ("layers", "width", "inner", "words", "parameters"),
    [
        (2, 64, 256, 1024, 262_464),
        (6, 128, 512, 32_000, 9_766_528),
        (3, 1024, 2688, 32_000, 102_898_688),
        (12, 1024, 2688, 32_000, 214_983_680),
    ],
    ids=["2m", "14m", "60m", "150m"],
)
def test_the_llamas_of_opendiloco(layers: int, width: int, inner: int, words: int, parameters: int) -> None:
    """But its 1b, in which heads share keys and values. The shapes of 2m and 60m are those that fit their counts."""
    config = GPT(layers, 2, width, inner=inner, **LLAMA)
    assert count(config, 64, words) == parameters
    if layers == 12:
        assert round((parameters - 2 * words * width) / 1e6, 1) == 149.4


@pytest.mark.parametrize(("layers", "width", "length", "words"), [(1, 8, 4, 10), (3, 48, 32, 7)])
def test_the_formula_of_the_docs(layers: int, width: int, length: int, words: int) -> None:
    counted = words * width + length * width + layers * (12 * width**2 + 2 * width) + width
    assert count(GPT(layers, 2, width), length, words) == counted


@pytest.mark.parametrize("config", KINDS)
def test_no_position_sees_a_later_one(config: GPT) -> None:
    torch.manual_seed(0)
    model = build(config, (12,), 20).eval()
    tokens = torch.randint(20, (3, 12))
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 20
    before, after = model(tokens), model(changed)
    assert before.shape == (3, 12, 20)
    assert torch.equal(before[:, :7], after[:, :7]) and not torch.allclose(before[:, 7:], after[:, 7:])
    assert torch.allclose(model(tokens[:, :5]), before[:, :5], atol=1e-6), "shorter texts are the same texts"


def test_rotary_positions_depend_on_distances_only() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 8)
    angles = gpt.compute_angles(torch.arange(40), 8)
    product = lambda i, j: float(gpt.rotate(q, angles[i]) @ gpt.rotate(k, angles[j]))  # noqa: E731
    assert product(9, 4) == pytest.approx(product(35, 30), abs=1e-5) != pytest.approx(product(9, 5), abs=1e-3)
    assert angles[3].tolist() == pytest.approx([3 / 10_000 ** (pair / 4) for pair in range(4)])


def test_weights_begin_as_in_gpt2() -> None:
    torch.manual_seed(0)
    model = build(GPT(8, 2, 128), (64,), 65)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            expected = 0.02 / math.sqrt(16) if name.endswith("output.weight") else 0.02
            assert float(weight.detach().std()) == pytest.approx(expected, rel=0.05), name
    tokens, labels = torch.randint(65, (2, 8, 64))
    loss = F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten()).detach()
    assert float(loss) == pytest.approx(math.log(65), abs=0.1), "it knows nothing yet"


@pytest.mark.parametrize("config", KINDS)
def test_it_learns_a_text(config: GPT) -> None:
    torch.manual_seed(0)
    model = build(config, (16,), 8)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    text = torch.arange(17).repeat(4, 1) % 8
    for _ in range(60):
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"heads": 5, "width": 384}, "heads=5: valid is a divisor of model.width=384"),
        ({"heads": 2, "width": 6, "positions": "rotary"}, "positions=rotary: valid is learned where"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        GPT(**options)


def test_a_longer_text_than_its_context_is_refused() -> None:
    try_out(GPT(context=64), (64,), 65)
    with pytest.raises(UsageError, match=r"dataset\.bptt=65: valid is up to 64 with model\.context=64"):
        try_out(GPT(context=64), (65,), 65)
    with pytest.raises(UsageError, match="model=gpt takes text"):
        try_out(GPT(), (3, 32, 32), 10)
    assert LSTM().takes == GPT().takes
