"""Actions on arrays as native actions: copies of any strides, what is sent and counted, and errors of the message library."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.communicator.actions.array_actions import Copy, Exchange
from collectives.communicator.actions.engine import LoadedCollective, RunStatus
from collectives.communicator.actions.shared_actions import CopyRows
from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.loopback.communicator import LoopbackWorld
from collectives.communicator.messages.native_message_actions import native_program
from collectives.communicator.native_collective import NativeCollective
from runtime.cpu.collective.collective_engine import native_collective_engine
from spmd.errors import RunError
from tests.collectives.communicator.messages.message_world import Post, PostedMessages


def no_messages(_: Exchange) -> PostedMessages:
    raise AssertionError("there is no exchange")


def test_rows_are_as_long_as_they_can_be() -> None:
    whole = np.zeros((4, 6, 10), np.int32)
    (action,) = native_program([Copy(np.zeros((4, 6, 10), np.int32), whole)], no_messages).actions
    assert isinstance(action, CopyRows)
    assert (action.rows, action.row_bytes) == (1, 960)
    part = whole[:, 2:4]
    (action,) = native_program([Copy(np.zeros(part.shape, np.int32), part)], no_messages).actions
    assert isinstance(action, CopyRows)
    assert (action.rows, action.row_bytes, action.source_stride, action.target_stride) == (
        4,
        80,
        80,
        240,
    )
    assert not native_program([Copy(part, part)], no_messages).actions


@given(st.data())
def test_copies(data: st.DataObject) -> None:
    """Any pieces of any transposed arrays."""
    rank = data.draw(st.integers(0, 4))
    shape = tuple(data.draw(st.integers(0, 3)) for _ in range(rank))

    def view(fill: int) -> tuple[np.ndarray, np.ndarray]:
        order = data.draw(st.permutations(range(rank)))
        room = [shape[d] + data.draw(st.integers(0, 2)) for d in order]
        memory = np.full(room, fill, np.int16)
        memory += np.arange(memory.size, dtype=np.int16).reshape(room)
        part = memory.transpose(np.argsort(order)) if rank else memory
        return memory, part[(*(slice(size) for size in shape), ...)]

    _, source = view(1000)
    memory, target = view(0)
    want_memory, got_memory = memory.copy(), memory
    target[...] = source
    want = memory.copy()
    got_memory[...] = want_memory
    program = native_program([Copy(source, target)], no_messages)
    (actions,) = native_collective_engine().load([program])
    assert actions.start() == RunStatus.COMPLETE
    assert np.array_equal(got_memory, want)


def exchanging(post: Post) -> tuple[LoadedCollective, np.ndarray]:
    """Member 0 sends 3 to member 1 and waits for its answer."""
    value, answer = np.full(1, 3.0), np.zeros(1)

    def prepare(exchange: Exchange) -> PostedMessages:
        return PostedMessages(post, 0, exchange)

    exchange = Exchange(((1, value),), ((1, answer), (1, value[:0])))
    (actions,) = native_collective_engine().load([native_program([exchange], prepare)])
    return actions, answer


def test_an_exchange_knows_who_is_late() -> None:
    post = Post()
    actions, answer = exchanging(post)
    runs = []
    for run in (1, 2):
        assert actions.start() == RunStatus.BLOCKED
        assert actions.missing() == [1, 1]
        assert post.mail[0, 1].pop().view(np.float64)[0] == 3.0
        post.mail.setdefault((1, 0), deque()).append(np.full(1, float(run)).view(np.uint8))
        assert actions.advancing(100)() == RunStatus.BLOCKED  # the second is still missing
        post.mail[1, 0].append(np.zeros(0, np.uint8))
        assert actions.advancing(100)() == RunStatus.COMPLETE
        assert answer[0] == run
        runs.append(actions.run)
    assert runs[0] != runs[1]


@pytest.mark.parametrize("when", ["starts", "waits"])
def test_an_error_of_the_library_is_one_of_the_collective(when: str) -> None:
    post = Post()
    actions, _ = exchanging(post)
    post.refuses = when == "starts"
    outcome = actions.start()
    if when == "waits":
        assert outcome == RunStatus.BLOCKED
        post.refuses = True
        outcome = actions.advancing(0)()
    assert outcome == RunStatus.MESSAGES_FAILED
    world = LoopbackWorld(1, 1.0).communicator(0)
    collective = CollectiveBroadcast((0,))
    bound = NativeCollective(world, collective, "all-reduce.3", Buffers((), ()), 0)
    bound.load(actions, ())
    with pytest.raises(RunError, match=r"all-reduce\.3: messages fail: error 17"):
        bound.fail(outcome)
