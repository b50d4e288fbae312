"""Exchanges lead to what the collectives mean, for any number of members: carried here by queues, without MPI.

Python carries them out, and native code.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from collective_definition import dtype_of, make
from hypothesis import given
from hypothesis import strategies as st

from collectives.communicator.actions.array_actions import (
    ArrayAction,
    Deferred,
    Exchange,
    exchanges_of,
)
from collectives.communicator.kinds import all_reduce
from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.kinds.op import Collective
from collectives.communicator.kinds.ragged_all_to_all import RaggedAllToAll
from collectives.communicator.kinds.reduce_scatter import ReduceScatter
from collectives.communicator.messages.native_message_actions import native_program
from runtime.cpu.collective.collective_engine import native_collective_engine
from spmd.device import ReductionKind
from spmd.errors import RunError
from tests.collectives.communicator.messages.message_world import Post, play

Operands = list[list[np.ndarray]]


def carry(members: Sequence[Iterator[Exchange]]) -> int:
    """Advance every member's exchanges until all are done; the number of messages. Fails where nobody can go on."""
    mail: dict[tuple[int, int], deque[np.ndarray]] = {}
    current: list[Exchange | None] = [None] * len(members)
    messages = 0

    def post(member: int) -> None:
        nonlocal messages
        exchange = current[member] = next(members[member], None)
        for target, array in exchange.sends if exchange else ():
            assert target != member
            assert array.flags.c_contiguous
            mail.setdefault((member, target), deque()).append(array.copy())
            messages += 1

    def complete(member: int) -> bool:
        exchange = current[member]
        assert exchange is not None
        wanted = Counter(source for source, _ in exchange.receives)
        if any(len(mail.get((source, member), ())) < n for source, n in wanted.items()):
            return False
        for source, array in exchange.receives:
            message = mail[source, member].popleft()
            assert message.nbytes == array.nbytes
            array.reshape(-1).view(np.uint8)[:] = message.reshape(-1).view(np.uint8)
        return True

    for member in range(len(members)):
        post(member)
    while any(exchange is not None for exchange in current):
        moved = [m for m in range(len(members)) if current[m] is not None and complete(m)]
        assert moved, "the members wait for each other"
        for member in moved:
            post(member)
    assert not any(mail.values()), "a message was never received"
    return messages


def messages_of(actions: Sequence[ArrayAction]) -> Iterator[Exchange]:
    for due in exchanges_of(actions):
        assert isinstance(due, Exchange)
        yield due


def planned(
    collectives: Sequence[Collective], operands: Operands, results: Operands
) -> list[tuple[ArrayAction, ...]]:
    group = collectives[0].group
    return [
        one.message_actions(group[i], operands[i], results[i]) for i, one in enumerate(collectives)
    ]


def assert_as_defined(
    collectives: Sequence[Collective], operands: Operands, results: Operands
) -> None:
    """The exchanges leave the bits that ``combine`` and ``deliver`` define, in every run of one plan."""
    actions = planned(collectives, operands, results)
    for run in range(2):
        for one in (array for own in operands for array in own if run):
            if one.dtype != np.int64:  # tables of rows stay
                one[...] = np.roll(one.reshape(-1), 1).reshape(one.shape)
        wanted = [[np.empty_like(result) for result in one] for one in results]
        for index, (collective, want) in enumerate(zip(collectives, wanted, strict=True)):
            collective.deliver(collective.combine(operands), index, want)
        before = [[one.copy() for one in own] for own in operands]
        carry([messages_of(own) for own in actions])
        got = [[one.tobytes() for one in own] for own in results]
        assert got == [[one.tobytes() for one in own] for own in wanted]
        restore(operands, before)
        if can_be_native(collectives[0], actions[0], operands[0]):
            run_native(actions, operands, results, got)
            restore(operands, before)


def restore(arrays: Operands, values: Operands) -> None:
    for one, value in zip(itertools.chain(*arrays), itertools.chain(*values), strict=True):
        one[...] = value


def can_be_native(
    collective: Collective, actions: Sequence[ArrayAction], operands: Sequence[np.ndarray]
) -> bool:
    is_deferred = any(isinstance(action, Deferred) for action in actions)
    return not is_deferred and collective.has_code(native_collective_engine(), operands)


def run_native(
    actions: Sequence[Sequence[ArrayAction]],
    operands: Operands,
    results: Operands,
    wanted: list[list[bytes]],
) -> None:
    """Two runs on the same operands give the same."""
    before = [[one.copy() for one in own] for own in operands]

    def begin(member: int, _run: int) -> None:
        restore([operands[member]], [before[member]])

    def finish(member: int, _run: int) -> None:
        assert [one.tobytes() for one in results[member]] == wanted[member]

    post = Post()
    programs = [native_program(own, post.preparing(i)) for i, own in enumerate(actions)]
    play(programs, 2, begin, finish, lambda count: count - 1)


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
TYPES = st.sampled_from(["float32", "bfloat16", "int16", "bool", "complex64"]).map(dtype_of)


def groups(draw: st.DrawFn) -> tuple[int, ...]:
    """Ranks in any order, not the first ones."""
    count = draw(st.integers(1, 6))
    return tuple(draw(st.permutations(range(10))))[:count]


@given(st.data(), st.booleans())
def test_all_reduce(data: st.DataObject, small: bool) -> None:
    group = groups(data.draw)
    shapes = data.draw(st.lists(SHAPES, min_size=1, max_size=3))
    types = [data.draw(TYPES) for _ in shapes]
    operands = [[make(rank, s, t) for s, t in zip(shapes, types, strict=True)] for rank in group]
    results = [[np.empty_like(one) for one in mine] for mine in operands]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(all_reduce, "ONE_SHOT_BYTES", 1 << 20 if small else 0)
        assert_as_defined([AllReduce(group, ReductionKind.SUM)] * len(group), operands, results)


@given(st.data())
def test_all_gather_reduce_scatter_all_to_all(data: st.DataObject) -> None:
    group = groups(data.draw)
    shape = data.draw(SHAPES)
    dtype = data.draw(TYPES)
    dimension = data.draw(st.integers(0, len(shape) - 1))
    count = len(group)
    whole = tuple(n * count if d == dimension else n for d, n in enumerate(shape))

    small = [[make(rank, shape, dtype)] for rank in group]
    large = [[make(rank, whole, dtype)] for rank in group]
    of_small = [[np.empty(shape, dtype)] for _ in group]
    of_large = [[np.empty(whole, dtype)] for _ in group]
    assert_as_defined([AllGather(group, dimension)] * count, small, of_large)
    assert_as_defined([ReduceScatter(group, ReductionKind.SUM, dimension)] * count, large, of_small)
    assert_as_defined([AllToAll(group, dimension)] * count, large, of_large)

    joined = data.draw(st.integers(0, len(shape) - 1))
    wide = tuple(n * count if d == joined else n for d, n in enumerate(shape))
    elsewhere = [[np.empty(wide, dtype)] for _ in group]
    assert_as_defined([AllToAll(group, dimension, joined)] * count, large, elsewhere)


@given(st.data())
def test_all_to_all_of_a_tuple_and_broadcast(data: st.DataObject) -> None:
    group = groups(data.draw)
    shape, dtype = data.draw(SHAPES), data.draw(TYPES)
    operands = [[make(rank, shape, dtype, seed=j) for j in range(len(group))] for rank in group]
    results = [[np.empty(shape, dtype) for _ in group] for _ in group]
    assert_as_defined([AllToAll(group, None)] * len(group), operands, results)
    assert_as_defined([CollectiveBroadcast(group)] * len(group), operands, results)


@given(st.data(), st.booleans())
def test_permute(data: st.DataObject, in_place: bool) -> None:
    size = data.draw(st.integers(1, 6))
    targets = data.draw(st.permutations(range(size)))
    sources = [data.draw(st.integers(0, size - 1)) for _ in targets]
    kept = data.draw(st.integers(1, size))
    pairs = tuple(zip(sources, targets, strict=True))[:kept]
    group = CollectivePermute.among(pairs, pairs[0][0]).group
    operands = [[make(rank, (3,), dtype_of("float32"))] for rank in group]
    results = [[one[0] if in_place else np.empty_like(one[0])] for one in operands]
    collectives = [CollectivePermute.among(pairs, rank) for rank in group]
    wanted = [operands[group.index(s)][0].copy() if (s := c.source_of(r)) is not None else np.zeros(3, np.float32)
              for r, c in zip(group, collectives, strict=True)]  # fmt: skip
    carry([exchanges_of(own) for own in planned(collectives, operands, results)])
    assert [one[0].tolist() for one in results] == [want.tolist() for want in wanted]


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 1000))
def test_ragged_all_to_all(count: int, updates: int, seed: int) -> None:
    """Several updates for each pair, empty ones too."""
    rng = np.random.default_rng(seed)
    group = tuple(range(count))
    sizes = rng.integers(0, 4, (count, count, updates))
    starts = rng.integers(0, 5, (count, count, updates))
    # Receiver j lays what comes one after the other, by source and update.
    places = np.zeros_like(sizes)
    for j in range(count):
        flat = sizes[:, j].reshape(-1)
        places[:, j] = (np.cumsum(flat) - flat).reshape(count, updates)
    rows = 9 + 4 * count * updates
    operands = [
        [
            make(rank, (rows, 2), dtype_of("float32")),
            np.full((rows, 2), -1, np.float32),
            starts[rank].reshape(-1),
            sizes[rank].reshape(-1),
            places[rank].reshape(-1),
            sizes[:, rank].reshape(-1),
        ]
        for rank in group
    ]
    results = [[np.empty((rows, 2), np.float32)] for _ in group]
    assert_as_defined([RaggedAllToAll(group)] * count, operands, results)


@pytest.mark.parametrize(
    ("start", "rows", "place"),
    [(3, 2, 0), (-1, 1, 0), (0, 5, 0), (0, -1, 0), (0, 2, 3), (0, 1, -1)],
)
def test_ragged_rows_outside_of_an_array_are_refused_by_all(
    start: int, rows: int, place: int
) -> None:
    """One member's tables are wrong for arrays of four rows; nobody is left waiting."""
    group = (0, 1)
    tables = np.zeros((2, 3, 2), np.int32)
    tables[1, :, 0] = start, rows, place
    array = np.zeros((4, 2), np.float32)
    operands = [[array, array, *tables[rank], np.zeros(2, np.int32)] for rank in group]
    results = [[np.empty_like(array)] for _ in group]
    actions = planned([RaggedAllToAll(group)] * 2, operands, results)
    for rank, own in enumerate(actions):
        exchanges = messages_of(own)
        ((_, inbox),) = next(exchanges).receives
        inbox[...] = tables[1 - rank].reshape(inbox.shape)
        with pytest.raises(RunError, match="offsets and sizes point outside of an array"):
            next(exchanges)


def test_a_large_all_reduce_sends_each_element_twice_over_the_group() -> None:
    """2 (n-1)/n of the operand's bytes for each member, the least possible."""
    group = (0, 1, 2, 3)
    operands = [[make(rank, (4000,), dtype_of("float32"))] for rank in group]
    results = [[np.empty(4000, np.float32)] for _ in group]
    sent = [0]

    def counted(exchanges: Iterator[Exchange]) -> Iterator[Exchange]:
        for exchange in exchanges:
            sent[0] += sum(array.nbytes for _, array in exchange.sends)
            yield exchange

    collective = AllReduce(group, ReductionKind.SUM)
    actions = planned([collective] * len(group), operands, results)
    carry([counted(messages_of(own)) for own in actions])
    assert sent[0] == 4 * (2 * 3 / 4) * 16000
