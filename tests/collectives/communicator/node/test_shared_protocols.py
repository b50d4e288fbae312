"""Actions over shared memory: right results in any order of the members' moves, and bugs that some order shows."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from functools import partial
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.communicator.actions.engine import RunStatus
from collectives.communicator.actions.shared_actions import (
    Await,
    CollectiveProgram,
    CopyRows,
    RotateBytes,
    SwapRows,
)
from collectives.communicator.actions.shared_buffers import Buffers
from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.all_reduce import AllReduce
from collectives.communicator.kinds.all_to_all import AllToAll
from collectives.communicator.kinds.collective_broadcast import CollectiveBroadcast
from collectives.communicator.kinds.collective_permute import CollectivePermute
from collectives.communicator.node import shared_protocols
from spmd.device import ReductionKind
from tests.collectives.communicator.member_cases import cases, plain, ragged
from tests.collectives.communicator.member_world import Case, Mutation, World

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


# ---- planted bugs
def without(drop: Callable[[list[object], int], bool]) -> Mutation:
    """Leave out the actions for which ``drop(actions, position)`` is true; in both turns."""

    def mutate(program: CollectiveProgram) -> CollectiveProgram:
        turns = [
            tuple(action for i, action in enumerate(turn) if not drop(list(turn), i))
            for turn in (program.actions, program.alternate)
        ]
        return dataclasses.replace(program, actions=turns[0], alternate=turns[1])

    return mutate


def is_await(number: int) -> Callable[[list[object], int], bool]:
    def drop(actions: list[object], i: int) -> bool:
        action = actions[i]
        return isinstance(action, Await) and action.number == number

    return drop


def await_one(program: CollectiveProgram) -> CollectiveProgram:
    """Only the first of the others is waited for."""

    def shorten(action: object) -> object:
        if not isinstance(action, Await):
            return action
        return dataclasses.replace(action, ranks=action.ranks[:1], counters=action.counters[:1])

    turns = [tuple(map(shorten, turn)) for turn in (program.actions, program.alternate)]
    return dataclasses.replace(program, actions=turns[0], alternate=turns[1])  # type: ignore[arg-type]


def is_found(make_world: Callable[[], World]) -> bool:
    """Return whether one of some orders of moves shows that something is wrong."""
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
    "slots do not take turns": (True, lambda p: dataclasses.replace(p, alternate=p.actions)),
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
    """The case is a broadcast, in which nobody else would have to wait for another target."""
    case = cases(3)["broadcast, held together"]
    with mock.patch.object(shared_protocols, "_share_results", return_value=False):
        assert is_found(partial(World, case, slots=slots))
    assert not is_found(partial(World, case, slots=slots))


def moved_bytes(case: Case) -> list[int]:
    """Bytes that each member writes in place."""

    def moved(action: object) -> int:
        if isinstance(action, RotateBytes):
            return len(action.addresses) * action.num_bytes
        if isinstance(action, (CopyRows, SwapRows)):
            return action.rows * action.row_bytes * (2 if isinstance(action, SwapRows) else 1)
        return 0

    world = World(case, slots=False)
    return [sum(map(moved, member.program.actions)) for member in world.members]


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
    assert collective.can_run_in_place(Buffers((first, second), (first, second)))
    assert not collective.can_run_in_place(Buffers((first, second), (second, first)))


def test_tables_that_point_outside_are_refused() -> None:
    case = ragged((0, 1), 1, in_place=False)
    world = World(case, slots=False)
    for index, member in enumerate(world.members):
        for array, value in zip(member.buffers.operands, case.operands(index, 0), strict=True):
            np.copyto(array, value)
    world.members[0].buffers.operands[2][:] = 1_000_000
    world.members[0].buffers.operands[3][:] = 1
    world.members[1].actions.start()
    assert world.members[0].actions.start() == RunStatus.OUT_OF_BOUNDS
