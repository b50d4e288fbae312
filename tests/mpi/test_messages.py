"""Tests of what messages say when they do not arrive: whom they wait for, and why they failed."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from collectives.communicator.actions.array_actions import Exchange
from collectives.communicator.actions.engine import RunStatus
from collectives.communicator.messages.native_message_actions import native_program
from runtime.cpu.collective.collective_engine import native_collective_engine

pytestmark = pytest.mark.mpi(min_size=2)

LONG = 1 << 21
"""Values of a message that no library sends before somebody receives it."""


def test_a_failed_message_says_what_failed(comm: Any) -> None:
    """MPI_Testall itself says no more than that a status tells it."""
    from mpi4py import MPI

    from collectives.communicator.mpi.messages import GroupLink

    channel = GroupLink(MPI.COMM_SELF, (comm.rank,)).channel(1)
    messages = channel.prepare(Exchange(((0, np.zeros(2)),), ((0, np.zeros(2)),)))
    told = [MPI.Status(), MPI.Status()]
    told[0].Set_error(MPI.SUCCESS)
    told[1].Set_error(MPI.ERR_TRUNCATE)
    for n, status in enumerate(told):
        size = MPI._sizeof(status)
        ctypes.memmove(messages.statuses + n * size, MPI._addressof(status), size)
    word = ctypes.c_int64.from_address(messages.error)
    word.value = MPI.ERR_IN_STATUS
    assert messages.failure() == MPI.Get_error_string(MPI.ERR_TRUNCATE)
    word.value = MPI.ERR_OTHER
    assert messages.failure() == MPI.Get_error_string(MPI.ERR_OTHER)


@pytest.mark.parametrize("is_native", [True, False])
def test_who_does_not_receive_is_late(comm: Any, is_native: bool) -> None:
    from mpi4py import MPI

    from collectives.communicator.mpi.messages import GroupLink

    # Its members stand in another order than the world's ranks.
    group = (1, 0)
    colour = 0 if comm.rank in group else MPI.UNDEFINED
    own = MPI.COMM_WORLD.Split(colour, group.index(comm.rank) if colour == 0 else 0)
    if own == MPI.COMM_NULL:
        return
    channel = GroupLink(own, group).channel(1)
    value = np.full(LONG, 3.0)
    if comm.rank == 0:
        exchange = Exchange(((0, value),), ())
        if is_native:
            (steps,) = native_collective_engine().load(
                [native_program([exchange], channel.prepare)]
            )
            assert steps.start() == RunStatus.BLOCKED
            assert steps.missing() == [1]
            own.Barrier()
            while steps.advancing(0)() == RunStatus.BLOCKED:
                pass
        else:
            posted = channel.post(exchange)
            assert not posted.poll()
            assert posted.late() == [1]
            own.Barrier()
            while not posted.poll():
                pass
            assert posted.late() == []
    else:
        own.Barrier()
        received = np.zeros(LONG)
        own.Recv(received.view(np.uint8), 1, channel.first)
        assert (received == 3.0).all()
