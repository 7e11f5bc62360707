"""The workers agree on a stop without waiting for it in steps in which they exchange nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainers.configs import compose_config
from trainers.config import run_config
from trainers.mpi import stopping
from trainers.mpi.stopping import NOTHING, SAVE, STOP, Agreement
from trainers.training.assembly import find_lag


@pytest.mark.parametrize(
    ("changes", "lag"),
    [
        ({}, 0),
        ({"algorithm": {"name": "local_sgd", "steps": 30}}, 5),
        ({"algorithm": {"name": "local_sgd", "steps": 30}, "workers": 1}, 0),
        ({"algorithm": {"name": "local_sgd"}, "workers": 5}, 7),
        ({"algorithm": "noloco", "workers": 2}, 3),
        ({"algorithm": "dpsgd"}, 5),
        ({"exchange": {"name": "allreduce", "transport": "torch"}}, 5),
        ({"optimizer": "zero_one_adam"}, 5),
    ],
)
def test_answers_may_be_late_where_workers_do_not_all_exchange(changes: dict[str, Any], lag: int) -> None:
    config = run_config.parse(compose_config(**{"workers": 4, **changes}))
    assert find_lag(config) == lag


class Slow:
    """A communicator whose allreduce ends when it has been called `rounds` more times; nobody may wait for it."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.calls = rounds, 0

    def Iallreduce(self, mine: list[Any], most: list[Any], operation: object) -> Slow.Request:  # noqa: N802
        self.calls += 1
        most[0][:] = mine[0]
        return self.Request(self, self.calls + self.rounds)

    class Request:
        def __init__(self, comm: Slow, ends: int) -> None:
            self.comm, self.ends = comm, ends

        def Test(self) -> bool:  # noqa: N802
            return self.comm.calls >= self.ends

        def Wait(self) -> None:  # noqa: N802
            assert self.comm.calls >= self.ends, "a worker waits"


def test_nobody_waits_for_a_late_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    agreement: Any = Agreement(Slow(3), behind=3)  # type: ignore[arg-type]
    answers = []
    for step in range(1, 9):
        monkeypatch.setattr(stopping, "_requested", step >= 3)
        agreement.ask()
        answers.append(agreement.answer())
    assert answers == [NOTHING] * 5 + [STOP] * 3  # the signal before step 3 is answered after step 6


def test_workers_that_meet_wait_for_all_answers_but_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    agreement: Any = Agreement(Slow(1), behind=3)  # type: ignore[arg-type]
    for step in (1, 2):
        monkeypatch.setattr(stopping, "_requested", step == 1)
        agreement.ask()
        assert agreement.answer() == NOTHING
    assert agreement.answer_all(but=1) == STOP


def test_a_request_to_save_from_before_a_save_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    agreement: Any = Agreement(Slow(0), behind=2)  # type: ignore[arg-type]
    answers = []
    for step in range(1, 6):
        agreement.ask(save=step != 3)
        answers.append(agreement.answer())
        if step == 2:
            agreement.note_save()
    assert answers == [NOTHING] * 5 and agreement.answer_all() == SAVE
