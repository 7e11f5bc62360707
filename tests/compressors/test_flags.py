"""Flags of refused payloads: read at once, together, or not at all."""

from __future__ import annotations

import pytest
import torch

from compressors import CorruptPayload, flags

CPU = torch.device("cpu")


def test_a_flag_is_read_at_once() -> None:
    flag = flags.make(CPU)
    assert not flags.is_refused(flag)
    flag.fill_(1)
    assert flags.is_refused(flag)
    assert not flags.is_refused(flags.make(CPU))


def test_flags_are_read_together_at_the_end_of_a_block() -> None:
    message = "^2 of 5000 payloads of this step cannot come from their encoders$"
    with pytest.raises(CorruptPayload, match=message), flags.read_together():
        taken = [flags.make(CPU) for _ in range(5000)]
        for place in (3, 4500):
            taken[place].fill_(1)
            assert not flags.is_refused(taken[place])
    with flags.read_together(), flags.read_together():
        assert not any(int(flags.make(CPU)) for _ in range(5000))


def test_flags_are_lowered_after_another_error() -> None:
    with pytest.raises(OSError), flags.read_together():
        flags.make(CPU).fill_(1)
        raise OSError
    with flags.read_together():
        assert int(flags.make(CPU)) == 0


def test_own_payloads_are_not_checked() -> None:
    with flags.read_together(), flags.unread():
        flag = flags.make(CPU)
        flag.fill_(1)
        assert not flags.is_refused(flag)
        flag.zero_()
