"""Members of a group on several nodes, carried without MPI: by Python action by action, and by native code."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from collective_definition import dtype_of
from hypothesis import strategies as st

from collectives.communicator.actions.array_actions import (
    ArrayAction,
    Exchange,
    LocalBarrier,
    exchanges_of,
)
from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.hierarchical.algorithms import GroupNodes, HierarchicalAlgorithm
from collectives.communicator.kinds.op import Collective
from collectives.communicator.messages.native_message_actions import LocalMembers, native_program
from runtime.cpu.collective.collective_engine import native_collective_engine
from tests.collectives.communicator.messages.message_world import Post, play

RUNS = 3


@dataclass
class Carrier:
    """Members' runs, one after the other without a pause, in an order that ``choose`` picks; counts what crosses."""

    nodes: GroupNodes
    choose: Callable[[int], int]
    mail: dict[tuple[int, int], deque[np.ndarray]] = field(default_factory=dict)
    arrivals: Counter[int] = field(default_factory=Counter)
    bytes_between_nodes: int = 0
    messages_between_nodes: int = 0

    def carry(self, members: Sequence[Iterator[Exchange | LocalBarrier]]) -> None:
        """Run the members until all are done; fail where nobody can go on, and where a message is left."""
        current = [self._post(i, next(actions, None)) for i, actions in enumerate(members)]
        while any(one is not None for one in current):
            ready = [
                i for i, one in enumerate(current) if one is not None and self._is_over(i, one)
            ]
            assert ready, "the members wait for each other"
            member = ready[self.choose(len(ready))]
            one = current[member]
            if isinstance(one, Exchange):
                self._receive(member, one)
            current[member] = self._post(member, next(members[member], None))
        assert not any(self.mail.values()), "a message was never received"

    def _post(
        self, member: int, one: Exchange | LocalBarrier | None
    ) -> Exchange | LocalBarrier | None:
        if isinstance(one, LocalBarrier):
            self.arrivals[member] += 1
        for target, array in one.sends if isinstance(one, Exchange) else ():
            assert target != member
            assert array.flags.c_contiguous
            self.mail.setdefault((member, target), deque()).append(array.copy())
            if target not in self.nodes.local_members(member):
                self.bytes_between_nodes += array.nbytes
                self.messages_between_nodes += 1
        return one

    def _is_over(self, member: int, one: Exchange | LocalBarrier) -> bool:
        if isinstance(one, Exchange):
            wanted = Counter(source for source, _ in one.receives)
            return all(len(self.mail.get((s, member), ())) >= n for s, n in wanted.items())
        local_members = self.nodes.local_members(member)
        return all(
            self.arrivals[local_member] >= self.arrivals[member] for local_member in local_members
        )

    def _receive(self, member: int, one: Exchange) -> None:
        for source, array in one.receives:
            message = self.mail[source, member].popleft()
            assert message.nbytes == array.nbytes
            array.reshape(-1).view(np.uint8)[:] = message.reshape(-1).view(np.uint8)


def one_after_the_other(_: int) -> int:
    return 0


Values = list[list[np.ndarray]]
"""By member, its operands."""


def run(
    plan: HierarchicalAlgorithm | None,
    collective: Collective,
    nodes: GroupNodes,
    values: Callable[[int, int], list[np.ndarray]],
    results_like: Sequence[np.ndarray],
    choose: Callable[[int], int] = one_after_the_other,
    *,
    in_place: bool = False,
    runs: int = RUNS,
) -> Carrier:
    """Several runs with other ``values`` (of run and member) each, whose results are as defined."""
    members = range(nodes.count)
    inputs = [[values(r, i) for i in members] for r in range(runs)]
    combined = [collective.combine(one) for one in inputs]
    buffers = []
    for i in members:
        operands = tuple(np.empty_like(one) for one in inputs[0][i])
        results = operands if in_place else tuple(np.empty_like(one) for one in results_like)
        buffers.append(Buffers(operands, results))
    staging = {}
    if plan is not None:
        staging = {i: np.full(plan.staging_bytes(i), 0xA5, np.uint8) for i in members}

    def actions_of(member: int) -> tuple[ArrayAction, ...]:
        own = buffers[member]
        if plan is None:
            return collective.message_actions(collective.group[member], own.operands, own.results)
        return tuple(
            plan.actions(
                member,
                own,
                {
                    local_member: staging[local_member]
                    for local_member in nodes.local_members(member)
                },
            )
        )

    def begin(member: int, r: int) -> None:
        for operand, value in zip(buffers[member].operands, inputs[r][member], strict=True):
            operand[...] = value

    def finish(member: int, r: int) -> None:
        results = buffers[member].results
        want = [np.empty_like(one) for one in results]
        collective.deliver(combined[r], member, want)
        assert [one.tobytes() for one in results] == [one.tobytes() for one in want]

    def runs_of(member: int) -> Iterator[Exchange | LocalBarrier]:
        actions = actions_of(member)
        for r in range(runs):
            begin(member, r)
            met = 0
            for due in exchanges_of(actions):
                met += isinstance(due, LocalBarrier)
                assert not isinstance(due, LocalBarrier) or due.number == met
                yield due
            assert plan is None or met == plan.barriers
            finish(member, r)

    carrier = Carrier(nodes, choose)
    carrier.carry([runs_of(member) for member in members])
    assert plan is None or carrier.bytes_between_nodes == runs * plan.link_bytes
    if collective.has_code(native_collective_engine(), buffers[0].operands):
        post, counters = Post(), np.zeros((nodes.count, 8), np.int64)
        everyones = [actions_of(member) for member in members]  # which keep their memory
        programs = [
            native_program(
                actions,
                post.preparing(member),
                _mates(nodes, member, counters),
                0 if plan is None else plan.barriers,
            )
            for member, actions in enumerate(everyones)
        ]
        play(programs, runs, begin, finish, choose)
    return carrier


def _mates(nodes: GroupNodes, member: int, counters: np.ndarray) -> LocalMembers:
    others = tuple(
        local_member for local_member in nodes.local_members(member) if local_member != member
    )
    own, *addresses = (int(counters[one].ctypes.data) for one in (member, *others))
    return LocalMembers(own, others, tuple(addresses))


def nodes_of(sizes: Sequence[int]) -> GroupNodes:
    """Nodes of so many members each, one after the other."""
    ends = np.cumsum(sizes)
    return GroupNodes(tuple(tuple(range(end - n, end)) for n, end in zip(sizes, ends, strict=True)))


@st.composite
def some_nodes(draw: st.DrawFn, *, in_order: bool = False) -> GroupNodes:
    """Two to four nodes of one to four members; group order goes anyhow, unless it has to go node by node."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4).filter(lambda s: max(s) > 1))
    ordered = nodes_of(sizes)
    if in_order:
        return ordered
    names = draw(st.permutations(range(ordered.count)))
    moved = [tuple(sorted(names[i] for i in node)) for node in ordered.nodes]
    return GroupNodes(tuple(sorted(moved)))


SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple)
TYPES = st.sampled_from(["float32", "bfloat16", "int16", "bool", "complex64"]).map(dtype_of)


def chooser(data: st.DataObject) -> Callable[[int], int]:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    return lambda count: int(rng.integers(count))


def group_of(nodes: GroupNodes) -> tuple[int, ...]:
    return tuple(10 + member for member in range(nodes.count))
