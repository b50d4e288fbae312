"""Steps over shared memory, run by members that take turns in any order, in one thread.

A member's buffers are its own before it starts and as soon as it is done: they are checked and overwritten then. So a
peer that reads or writes them too early or too late is found, whatever the order was. Results that members hold together
stay as they are from done to the next start.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

import numpy as np
import pytest
from collective_definition import dtype_of, make
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.communicator import shared_plan
from collectives.communicator.kinds import (
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    CollectiveBroadcast,
    CollectivePermute,
    RaggedAllToAll,
    ReduceScatter,
)
from collectives.communicator.shared_buffers import Buffers
from collectives.communicator.shared_plan import (
    MemberMemory,
    can_run_in_place,
    needs_staging,
    step_program,
)
from collectives.communicator.shared_steps import (
    Await,
    CopyRows,
    LoadedSteps,
    Outcome,
    RotateBytes,
    StepProgram,
    SwapRows,
)
from collectives.communicator.shared_transfers import TRANSFERS
from runtime.shared_memory_engine import native_step_engine
from spmd.device import ReductionKind

Arrays = list[np.ndarray]
Mutation = Callable[[StepProgram], StepProgram]
_POISON = 0xA5


@dataclass(frozen=True)
class Case:
    """``operands(member, run)`` and ``results()`` of a collective; ``aliases``: results that are operands.

    ``together``: every so many members hold their results together (member 0, 2, 4, ... where it is 2); 0 for nobody.
    ``tiles``: operands or results lie in the larger ones of their numbers, as the members' own tiles.
    """

    collectives: Sequence[Collective]
    operands: Callable[[int, int], Arrays]
    results: Callable[[], Arrays]
    aliases: dict[int, int] = field(default_factory=dict)
    together: int = 0
    tiles: bool = False


@dataclass
class Member:
    buffers: Buffers
    program: StepProgram
    steps: LoadedSteps
    run: int = 0
    running: bool = False
    snapshot: list[bytes] = field(default_factory=list)


class World:
    """All members of one group, in this process."""

    def __init__(self, case: Case, *, slots: bool, mutate: Mutation = lambda p: p) -> None:
        self.case = case
        self.count = len(case.collectives)
        self._memory: Arrays = []
        self.buffers: list[Buffers] = []
        for member in range(self.count):
            self.buffers.append(self._buffers(member))
        memories = [self._member_memory(buffers, slots) for buffers in self.buffers]
        self.members = []
        for index, (collective, buffers) in enumerate(
            zip(case.collectives, self.buffers, strict=True)
        ):
            staging = None
            if not (slots and self.count > 1) and needs_staging(collective, index, buffers):
                own = [np.empty_like(result) for result in buffers.results]
                self._memory += own
                staging = [one.ctypes.data for one in own]
            program = mutate(step_program(collective, index, buffers, memories, staging))
            (steps,) = native_step_engine().load([program])
            member = Member(buffers, program, steps)
            self._overwrite(member)
            self.members.append(member)

    def play(self, runs: int, rng: random.Random) -> None:
        """Every member takes part in ``runs`` runs; who moves next is drawn."""
        moves = 0
        while waiting := [m for m in range(self.count) if self.members[m].run < runs]:
            index = rng.choice(waiting)
            member = self.members[index]
            if member.running:
                outcome = member.steps.advancing(0)()
            else:
                outcome = self._start(index, member)
            if outcome == Outcome.COMPLETE:
                self._finish(index, member)
            else:
                assert outcome == Outcome.BLOCKED
                assert member.steps.missing()
            moves += 1
            assert moves < 10_000, "the members wait for each other"
        for index in range(self.count):
            self._require_untouched(index, "after the last run")

    def _start(self, index: int, member: Member) -> int:
        self._require_untouched(index, "before it started")
        for array, value in zip(
            member.buffers.operands, self.case.operands(index, member.run), strict=True
        ):
            np.copyto(array, value)
        member.running = True
        return member.steps.start()

    def _require_untouched(self, index: int, when: str) -> None:
        member = self.members[index]
        touched = [one.tobytes() for one in self._arrays(member)] != member.snapshot
        assert not touched, f"a peer touched buffers of member {index} {when}"

    def _finish(self, index: int, member: Member) -> None:
        collective = self.case.collectives[index]
        operands = [self.case.operands(m, member.run) for m in range(self.count)]
        want = self.case.results()
        collective.deliver(collective.combine(operands), index, want)
        for result, right in zip(member.buffers.results, want, strict=True):
            assert result.tobytes() == right.tobytes(), f"member {index} has a wrong result"
        member.running = False
        member.run += 1
        self._overwrite(member)

    def _overwrite(self, member: Member) -> None:
        """The owner uses its own buffers for something else."""
        own = member.buffers.operands if self.case.together else self._arrays(member)
        for array in own:
            array.reshape(-1).view(np.uint8)[:] = _POISON
        member.snapshot = [one.tobytes() for one in self._arrays(member)]

    def _arrays(self, member: Member) -> Arrays:
        return [*member.buffers.operands, *member.buffers.results]

    def _buffers(self, member: int) -> Buffers:
        operands = [np.empty_like(one) for one in self.case.operands(member, 0)]
        results = [np.empty_like(one) for one in self.case.results()]
        for result, operand in self.case.aliases.items():
            results[result] = operands[operand]
        if self.case.together and member >= self.case.together:
            results = list(self.buffers[member - self.case.together].results)
        if self.case.tiles and isinstance(self.case.collectives[0], AllGather):
            operands = [np.split(result, self.count)[member] for result in results]
        elif self.case.tiles:
            results = [np.split(operand, self.count)[member] for operand in operands]
        return Buffers(tuple(operands), tuple(results))

    def _member_memory(self, buffers: Buffers, slots: bool) -> MemberMemory:
        size = max(buffers.operand_bytes, 64) if slots else 0
        control = np.zeros(64 + 2 * size, np.uint8)
        self._memory.append(control)
        first = int(control.ctypes.data)
        return MemberMemory(
            first,
            tuple(int(one.ctypes.data) for one in buffers.operands),
            tuple(int(one.ctypes.data) for one in buffers.results),
            (first + 64, first + 64 + size) if slots and self.count > 1 else (),
        )


# ---- collectives to play
def plain(
    collective: Collective,
    shapes: Sequence[tuple[int, ...]],
    results: Sequence[tuple[int, ...]],
    dtype: str = "float32",
    aliases: dict[int, int] | None = None,
    together: int = 0,
) -> Case:
    kind = dtype_of(dtype)

    def operands(member: int, run: int) -> Arrays:
        return [make(member, shape, kind, seed=10 * run + k) for k, shape in enumerate(shapes)]

    return Case(
        [collective] * len(collective.group),
        operands,
        lambda: [np.empty(shape, kind) for shape in results],
        aliases or {},
        together,
    )


def permute(count: int, pairs: Sequence[tuple[int, int]], aliases: dict[int, int]) -> Case:
    group = CollectivePermute.among(tuple(pairs), pairs[0][0]).group
    shapes = [(5, 3), (191, 5), (0, 2)]
    case = plain(CollectivePermute(group, tuple(pairs)), shapes, shapes, aliases=aliases)
    assert len(group) <= count
    return case


def ragged(group: tuple[int, ...], updates: int, *, in_place: bool) -> Case:
    """Receivers lay what comes one after the other, by source and update."""
    count = len(group)
    rows = 6 + 3 * count * updates

    def operands(member: int, run: int) -> Arrays:
        rng = np.random.default_rng([run, count, updates])
        sizes = rng.integers(0, 3, (count, count, updates))
        starts = rng.integers(0, 4, (count, count, updates))
        places = np.zeros_like(sizes)
        for receiver in range(count):
            flat = sizes[:, receiver].reshape(-1)
            places[:, receiver] = (np.cumsum(flat) - flat).reshape(count, updates)
        tables = [starts[member], sizes[member], places[member], sizes[:, member]]
        return [
            make(member, (rows, 2), dtype_of("float32"), seed=run),
            np.full((rows, 2), run, np.float32),
            *(np.ascontiguousarray(table.reshape(-1), np.int32) for table in tables),
        ]

    return Case(
        [RaggedAllToAll(group)] * count,
        operands,
        lambda: [np.empty((rows, 2), np.float32)],
        {0: 1} if in_place else {},
    )


def cases(count: int) -> dict[str, Case]:
    """Every kind among ``count`` members, whose ranks do not ascend."""
    group = tuple(reversed(range(count)))
    total = ReductionKind.SUM
    n = count
    ring = [(i, (i + 1) % n) for i in range(n)]
    shift = [(i, i + 1) for i in range(n - 1)] or [(0, 0)]
    swap = [(i, j) for i in range(n) if (j := i ^ 1) < n] or [(0, 0)]
    whole = {0: 0, 1: 1, 2: 2}
    return {
        "all-reduce": plain(AllReduce(group, total), [(7,), (), (0, 3), (40, 5)], [(7,), (), (0, 3), (40, 5)]),
        "all-reduce over its operands": plain(AllReduce(group, total), [(3,), (50,)], [(3,), (50,)], aliases={0: 0, 1: 1}),
        "all-reduce of bf16": plain(AllReduce(group, ReductionKind.MAX), [(33,)], [(33,)], "bfloat16"),
        "all-gather": plain(AllGather(group, 1), [(3, 2, 2), (2, 1)], [(3, 2 * n, 2), (2, n)]),
        "all-gather over its tiles": dataclasses.replace(plain(AllGather(group, 0), [(2, 3), (64,), (0, 2)], [(2 * n, 3), (64 * n,), (0, 2)]), tiles=True),
        "all-gather over its operand": plain(AllGather(group, 0), [(0, 3)], [(0, 3)], aliases={0: 0}),
        "reduce-scatter over its tiles": dataclasses.replace(plain(ReduceScatter(group, total, 0), [(2 * n, 3), (64 * n,), (0, 2)], [(2, 3), (64,), (0, 2)]), tiles=True),
        "reduce-scatter": plain(ReduceScatter(group, total, 1), [(4, 3 * n)], [(4, 3)]),
        "all-to-all": plain(AllToAll(group, 1), [(2, 2 * n, 3)], [(2, 2 * n, 3)]),
        "all-to-all over its operand": plain(AllToAll(group, 0), [(n, 3)], [(n, 3)], aliases={0: 0}),
        "all-to-all over its operands, long rows": plain(AllToAll(group, 1), [(5, 300 * n), (n, n)], [(5, 300 * n), (n, n)], aliases={0: 0, 1: 1}),
        "all-to-all over its operand, short rows": plain(AllToAll(group, 2), [(3, 3, 5 * n)], [(3, 3, 5 * n)], "bfloat16", {0: 0}),
        "all-to-all over one of its operands": plain(AllToAll(group, 0), [(n, 3)] * 2, [(n, 3)] * 2, aliases={1: 1}),
        "all-to-all over each other's operands": plain(AllToAll(group, 0), [(n, 3)] * 2, [(n, 3)] * 2, aliases={0: 1, 1: 0}),
        "all-to-all, joined before": plain(AllToAll(group, 3, 0), [(1, 5, 2, n, 3)], [(n, 5, 2, 1, 3)]),
        "all-to-all, joined behind": plain(AllToAll(group, 1, 3), [(3, n, 4, 1, 2)], [(3, 1, 4, n, 2)]),
        "all-to-all, of several, joined elsewhere": plain(AllToAll(group, 0, 1), [(2 * n, 3), (n, 1)], [(2, 3 * n), (1, n)], "bfloat16"),
        "all-to-all of a tuple over its operands": plain(AllToAll(group, None), [(333,)] * n, [(333,)] * n, aliases={k: k for k in range(n)}),
        "all-to-all of a tuple": plain(AllToAll(group, None), [(2, 3)] * n, [(2, 3)] * n),
        "all-reduce, held together": plain(AllReduce(group, total), [(7,), (0, 3), (40, 5)], [(7,), (0, 3), (40, 5)], together=1),
        "all-gather, held together": plain(AllGather(group, 1), [(3, 2, 2), (2, 1)], [(3, 2 * n, 2), (2, n)], together=1),
        "broadcast, held together": plain(CollectiveBroadcast(group), [(5,), (2,)], [(5,), (2,)], together=1),
        "all-reduce, held by every other": plain(AllReduce(group, total), [(7,), (40, 5)], [(7,), (40, 5)], together=2),
        "all-gather, held by every other": plain(AllGather(group, 0), [(3, 2)], [(3 * n, 2)], together=2),
        "broadcast, held by every other": plain(CollectiveBroadcast(group), [(5,), (2,)], [(5,), (2,)], together=2),
        "broadcast": plain(CollectiveBroadcast(group), [(5,), (2,)], [(5,), (2,)]),
        "permute in a ring": permute(n, ring, {}),
        "permute in a ring over its operands": permute(n, ring, whole),
        "permute in a ring over one of its operands": permute(n, ring, {0: 0}),
        "permute with ends": permute(n, shift, {}),
        "permute with ends over its operands": permute(n, shift, whole),
        "permute of pairs over its operands": permute(n, swap, whole),
        "permute from one to all": permute(n, [(0, i) for i in range(n)], {}),
        "permute from one to all over its operands": permute(n, [(0, i) for i in range(n)], whole),
        "ragged-all-to-all": ragged(group, 2, in_place=False),
        "ragged-all-to-all into its output": ragged(group, 1, in_place=True),
    }  # fmt: skip


NAMES = sorted(cases(1))


@given(st.sampled_from(NAMES), st.integers(1, 4), st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_right_results_and_no_use_of_buffers_outside_of_a_run(
    name: str, count: int, slots: bool, rng: random.Random
) -> None:
    World(cases(count)[name], slots=slots).play(4, rng)


@pytest.mark.parametrize("slots", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_every_kind_once(name: str, slots: bool) -> None:
    World(cases(3)[name], slots=slots).play(3, random.Random(0))


def test_every_kind_has_a_transfer() -> None:
    kinds = [kind for kind in Collective.__subclasses__() if kind.__module__.endswith(".kinds")]
    assert [kind for kind in kinds if kind not in TRANSFERS] == []


# ---- planted bugs
def without(drop: Callable[[list[object], int], bool]) -> Mutation:
    """Leave out the steps for which ``drop(steps, position)`` is true; in both turns."""

    def mutate(program: StepProgram) -> StepProgram:
        turns = [
            tuple(step for i, step in enumerate(turn) if not drop(list(turn), i))
            for turn in (program.steps, program.alternate)
        ]
        return dataclasses.replace(program, steps=turns[0], alternate=turns[1])

    return mutate


def is_await(number: int) -> Callable[[list[object], int], bool]:
    def drop(steps: list[object], i: int) -> bool:
        step = steps[i]
        return isinstance(step, Await) and step.number == number

    return drop


def await_one(program: StepProgram) -> StepProgram:
    """Only the first of the others is waited for."""

    def shorten(step: object) -> object:
        if not isinstance(step, Await):
            return step
        return dataclasses.replace(step, ranks=step.ranks[:1], counters=step.counters[:1])

    turns = [tuple(map(shorten, turn)) for turn in (program.steps, program.alternate)]
    return dataclasses.replace(program, steps=turns[0], alternate=turns[1])  # type: ignore[arg-type]


def is_found(make_world: Callable[[], World]) -> bool:
    """Whether one of some orders of moves shows that something is wrong."""
    for seed in range(30):
        try:
            make_world().play(4, random.Random(seed))
        except AssertionError:
            return True
    return False


PLANTED: dict[str, tuple[bool, Mutation]] = {
    "departure is not awaited": (False, without(is_await(2))),
    "arrival is not awaited": (False, without(is_await(1))),
    "slots are read before all have come": (True, without(is_await(1))),
    "slots do not take turns": (True, lambda p: dataclasses.replace(p, alternate=p.steps)),
    "only one member is awaited": (False, await_one),
    "only one member is awaited, with slots": (True, await_one),
}


@pytest.mark.parametrize(
    "kind",
    [
        "all-reduce",
        "all-gather",
        "all-to-all",
        "reduce-scatter",
        "all-to-all over its operand",
        "all-gather over its tiles",
        "reduce-scatter over its tiles",
        "permute in a ring over its operands",
        "permute with ends over its operands",
        "all-reduce, held together",
        "all-gather, held together",
        "all-gather, held by every other",
        "broadcast, held together",
    ],
)
@pytest.mark.parametrize("bug", PLANTED)
def test_finds_planted_bugs(bug: str, kind: str) -> None:
    slots, mutate = PLANTED[bug]
    make_world = partial(World, cases(3)[kind], slots=slots, mutate=mutate)
    assert is_found(make_world), f"no order of moves shows the bug: {bug}"


def test_a_permutes_source_waits_for_its_target_to_depart() -> None:
    case = cases(3)["permute in a ring"]
    assert is_found(partial(World, case, slots=False, mutate=without(is_await(2))))


@pytest.mark.parametrize("slots", [True, False])
def test_who_holds_results_together_waits_for_all_who_do(slots: bool) -> None:
    """In a broadcast nobody else would have to wait for another target."""
    case = cases(3)["broadcast, held together"]
    with mock.patch.object(shared_plan, "_hold_results_together", return_value=False):
        assert is_found(partial(World, case, slots=slots))
    assert not is_found(partial(World, case, slots=slots))


def moved_bytes(case: Case) -> list[int]:
    """Bytes that each member writes in place."""

    def moved(step: object) -> int:
        if isinstance(step, RotateBytes):
            return len(step.places) * step.num_bytes
        if isinstance(step, (CopyRows, SwapRows)):
            return step.rows * step.row_bytes * (2 if isinstance(step, SwapRows) else 1)
        return 0

    world = World(case, slots=False)
    return [sum(map(moved, member.program.steps)) for member in world.members]


def test_what_lies_well_is_moved_once() -> None:
    group, n = (0, 1, 2, 3), 4
    shape, whole = (256, n), (256 * n, n)
    num_bytes = 256 * n * 4
    apart = plain(AllGather(group, 0), [shape], [whole])
    together = plain(AllGather(group, 0), [shape], [whole], together=1)
    assert moved_bytes(apart) == [n * num_bytes] * n
    assert moved_bytes(dataclasses.replace(apart, tiles=True)) == [(n - 1) * num_bytes] * n
    assert moved_bytes(together) == [num_bytes] * n
    source = plain(CollectiveBroadcast(group), [shape], [shape], together=1)
    assert moved_bytes(source) == [num_bytes, 0, 0, 0]
    apart = plain(AllToAll(group, 0), [shape], [shape])
    swapped = plain(AllToAll(group, 0), [shape], [shape], aliases={0: 0})
    assert moved_bytes(apart) == [num_bytes] * n
    assert moved_bytes(swapped) == [num_bytes * (n - 1) // n] * n
    ring = CollectivePermute(group, tuple((i, (i + 1) % n) for i in group))
    assert moved_bytes(plain(ring, [shape], [shape], aliases={0: 0})) == [num_bytes] * n


# ---- refusals
def test_an_all_reduce_whose_result_lies_on_another_operand_does_not_run_in_place() -> None:
    first, second = np.zeros(4, np.float32), np.zeros(4, np.float32)
    collective = AllReduce((0, 1), ReductionKind.SUM)
    assert can_run_in_place(collective, Buffers((first, second), (first, second)))
    assert not can_run_in_place(collective, Buffers((first, second), (second, first)))


def test_tables_that_point_outside_are_refused() -> None:
    case = ragged((0, 1), 1, in_place=False)
    world = World(case, slots=False)
    for index, member in enumerate(world.members):
        for array, value in zip(member.buffers.operands, case.operands(index, 0), strict=True):
            np.copyto(array, value)
    world.members[0].buffers.operands[2][:] = 1_000_000
    world.members[0].buffers.operands[3][:] = 1
    world.members[1].steps.start()
    assert world.members[0].steps.start() == Outcome.OUT_OF_BOUNDS
