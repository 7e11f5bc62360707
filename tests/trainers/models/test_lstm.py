"""The language model: what is carried from batch to batch."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from mpi4py import MPI
from torch import nn

from tests.trainers.configs import compose_config
from trainers import models
from trainers.config.run_config import parse
from trainers.data.feeds import Batch
from trainers.devices.stopwatch import Stopwatch
from trainers.options import models as options
from trainers.replica.replica import Replica


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


class TestLanguageModel:
    """What is carried from batch to batch."""

    words = functools.partial(torch.randint, 0, 11)

    def model(self, **changes: Any) -> Any:
        return models.build(options.LSTM(**{"hidden": 6, "layers": 2, "dropout": 0.0, **changes}), (5,), 11)

    def test_two_halves_are_the_whole(self) -> None:
        model, text = self.model(), self.words((3, 10))
        whole = model(text)
        model.forget()
        torch.testing.assert_close(torch.cat((model(text[:, :4]), model(text[:, 4:])), 1), whole)
        assert not torch.allclose(model(text[:, :4]), whole[:, :4])  # it goes on, and does not begin

    def test_no_gradient_flows_into_the_batch_before(self) -> None:
        model, text = self.model(), self.words((3, 8))
        model(text[:, :4])
        second = model(text[:, 4:])
        second.sum().backward()
        gradient = model.lstm.weight_hh_l0.grad.clone()
        model.zero_grad()
        model.forget()
        model(text).narrow(1, 4, 4).sum().backward()
        assert not torch.allclose(gradient, model.lstm.weight_hh_l0.grad)
        assert not any(state.requires_grad for state in model.copy_carried().values())

    @pytest.mark.parametrize("begin", ["forget", "train", "eval"])
    def test_a_beginning_forgets(self, begin: str) -> None:
        model, text = self.model(), self.words((3, 5))
        first = model(text)
        assert model.copy_carried()
        getattr(model, begin)()
        assert not model.copy_carried()
        assert torch.equal(model(text), first)

    def test_a_batch_with_fewer_streams_continues_the_first_ones(self) -> None:
        model, text = self.model(), self.words((3, 10))
        whole = model(text)
        model.forget()
        model(text[:, :4])
        torch.testing.assert_close(model(text[:2, 4:]), whole[:2, 4:])

    def test_more_streams_begin_afresh(self) -> None:
        model, text = self.model(), self.words((4, 5))
        alone = model(text)
        model.forget()
        model(self.words((3, 5)))
        torch.testing.assert_close(model(text), alone)

    def test_what_is_carried_is_all_that_another_needs_to_go_on(self) -> None:
        model, text = self.model(), self.words((3, 8))
        model(text[:, :4])
        carried, state = model.copy_carried(), model.state_dict()
        expected = model(text[:, 4:])
        other = self.model()
        other.load_state_dict(state)
        other.train()
        other.carry(carried)
        assert torch.equal(other(text[:, 4:]), expected)
        other.carry({})
        assert not other.copy_carried()

    def test_it_is_a_copy(self) -> None:
        model = self.model()
        model(self.words((3, 4)))
        carried = model.copy_carried()
        model.carry(carried)
        before = model.copy_carried()["hidden"]
        carried["hidden"].zero_()
        assert torch.equal(model.copy_carried()["hidden"], before) and before.any()
        for state in model.copy_carried().values():
            state.zero_()
        assert all(bool(state.any()) for state in model.copy_carried().values())

    @pytest.mark.parametrize("streams", [4, 5])
    def test_pieces_of_a_batch_carry_what_is_their_own(self, streams: int) -> None:
        def gradients(accumulate: int) -> list[torch.Tensor]:
            model = {"name": "lstm", "hidden": 6, "layers": 2, "dropout": 0.0}
            config = parse(compose_config(model=model, dataset="synthetic_text", batch={"accumulate": accumulate}))
            replica, found = Replica(config, (4,), 11, MPI.COMM_SELF), []
            for step in range(3):
                words = text[:, 4 * step : 4 * step + 5]
                replica.compute_gradient(Batch(words[:, :-1], words[:, 1:], 4 * streams), Stopwatch())
                found.append(replica.flat.gradients.clone())
            assert replica.state_dict()["carried"]["hidden"].shape == (2, streams, 6)
            return found

        text = self.words((streams, 13))
        for whole, pieces in zip(gradients(1), gradients(2), strict=True):
            torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-6)

    def test_it_is_no_buffer_for_buffers_are_averaged_over_the_workers(self) -> None:
        model = self.model()
        model(self.words((3, 4)))
        assert not list(model.buffers()) and not any("hidden" in key for key in model.state_dict())

    def test_it_goes_on_under_autocast_and_after_it(self) -> None:
        model, text = self.model(), self.words((3, 4))
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.isfinite(model(text)).all() and model.copy_carried()
            model.carry({key: value.bfloat16() for key, value in model.copy_carried().items()})
            model(text)
        model.carry({key: value.bfloat16() for key, value in model.copy_carried().items()})
        assert model(text).dtype == torch.float32

    def test_words_in_and_out_share_their_vectors(self) -> None:
        tied, untied = self.model(), self.model(tied=False)
        assert tied.decoder.weight is tied.embedding.weight
        assert count(untied) - count(tied) == 11 * 6
        for model in (tied, untied):
            assert float(model.embedding.weight.detach().abs().max()) <= 0.1 and not model.decoder.bias.any()

    def test_dropout_is_on_vectors_between_layers_and_on_outputs(self) -> None:
        model, text = self.model(hidden=32, dropout=0.5), self.words((3, 5))
        seen: dict[str, torch.Tensor] = {}
        for name, part in (("vectors", model.lstm), ("outputs", model.decoder)):
            part.register_forward_pre_hook(lambda _, inputs, name=name: seen.update({name: inputs[0]}))
        model(text)
        assert all(0.3 < float((one == 0).float().mean()) < 0.7 for one in seen.values()) and len(seen) == 2
        assert model.lstm.dropout == 0.5 and self.model(layers=1, dropout=0.5).lstm.dropout == 0.0
        model.eval()
        model(text)
        assert all(bool(one.all()) for one in seen.values())
