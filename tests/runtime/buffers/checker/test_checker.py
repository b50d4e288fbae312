"""The buffer checker accepts what assignment makes, and finds bugs planted in it.

Each planted bug replaces one function of buffer assignment or emission; it must be found in at least one of the
programs, and must have changed nothing in the checker itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import runtime.buffers.assign
import runtime.buffers.colocation
import runtime.buffers.own_parts
import runtime.buffers.shared_results
import runtime.buffers.visit_control_flow
import runtime.emit.program
from runtime.buffers.checker.checker import check_buffers
from runtime.buffers.colocation import Colocation, GroupKind
from runtime.buffers.heap.arena import Arena, Interval
from runtime.buffers.linearizer import Linearizer
from runtime.buffers.program import (
    Program,
    Read,
    ScheduledConditional,
    ScheduledDone,
    ScheduledOp,
    ScheduledWhile,
    Value,
    ValueView,
    all_ops,
)
from runtime.buffers.types import ArrayView, BufferSlice
from runtime.executable import Executable
from runtime.program.thunks import (
    CollectiveDoneThunk,
    CollectiveStartThunk,
    CopyThunk,
    KernelThunk,
    Thunk,
    ThunkSequence,
)
from spmd.errors import CheckFailed
from spmd.hlo import Opcode
from spmd.literal import NDArray
from tests.runtime.programs import (
    ALIASING,
    ASYNC_COLLECTIVES,
    COLLECTIVES,
    OVER_OPERANDS,
    SHARING,
    compiled,
)

COLOCATION = runtime.buffers.colocation
SHARED = runtime.buffers.shared_results

PROGRAMS = {
    **ALIASING,
    **SHARING,
    "collectives": COLLECTIVES,
    "async": ASYNC_COLLECTIVES,
    "over_operands": OVER_OPERANDS,
}

Plant = Callable[[pytest.MonkeyPatch], None]


def replace(target: object, name: str, value: Any) -> Plant:
    return lambda patch: patch.setattr(target, name, value)


def _outputs_live(start: Callable[[Any], int], end: Callable[[Any], int]) -> Plant:
    """Heaps are packed as if outputs were there from ``start`` to ``end`` of their groups alone."""

    def intervals(groups: list[Any]) -> list[Interval]:
        return [
            Interval(start(g), end(g), g.size)
            if g.kind is GroupKind.OUTPUT
            else Interval(g.start, g.end, g.size)
            for g in groups
        ]

    return replace(SHARED, "intervals", intervals)


def _written(group: Any) -> int:
    """Return the position where the last value of the group is written, after which it is final."""
    return max((value.start for value in group.values), default=group.start)


def _into_final_outputs(original: Any) -> Any:
    """Each temporary that is written when an output of its size or more is final lies in that output."""

    def places(fixed: list[Any], heaps: list[Any]) -> dict[int, BufferSlice]:
        result: dict[int, BufferSlice] = original(fixed, heaps)
        for heap in heaps:
            outputs = [g for g in heap.groups if g.kind is GroupKind.OUTPUT]
            for group in heap.groups:
                for output in outputs if group.kind is GroupKind.TEMPORARY else ():
                    if group.start > _written(output) and 0 < group.size <= output.size:
                        at = result[id(output)]
                        result[id(group)] = BufferSlice(at.allocation, at.offset, group.size)
        return result

    return places


def _forget_reads_of_dones(original: Any) -> Any:
    def read(self: Linearizer, op: ScheduledOp, *rest: Any) -> None:
        if not isinstance(op, ScheduledDone):
            original(self, op, *rest)

    return read


def _no_copies(original: Any) -> Any:
    def ordered(program: Any) -> Colocation:
        result = original(program)
        result.copies.clear()
        return result

    return ordered


def _placed_at(move: Callable[[NDArray], NDArray]) -> Plant:
    """Every offset is what ``move`` makes of the right one."""
    original = Arena.allocate_all

    def moved(*given: Any) -> NDArray | None:
        offsets = original(*given)
        return None if offsets is None else move(offsets)

    return replace(Arena, "allocate_all", moved)


def _candidates_by_one_value(temporaries: list[Any], alike: Any) -> list[Any]:
    """Places of which any value is the same for all of a group, whatever else lies there."""
    found: dict[Any, list[Any]] = {}
    for group in temporaries:
        for groups in sorted({alike[value] for value in group.values if value in alike}):
            found.setdefault(groups, []).append(group)
            break
    return sorted(found.items())


def _one_heap_for_all_groups(original: Any) -> Any:
    def candidates(temporaries: list[Any], alike: Any) -> list[Any]:
        found = original(temporaries, alike)
        return [(found[0][0], [place for _, places in found for place in places])] if found else []

    return candidates


def _also_alike(wanted: Callable[[ScheduledOp], bool]) -> Plant:
    """Return a plant that takes the results of these ops to be equal for all of some groups.

    They are put into shared memory, whatever that costs.
    """
    original, rows = SHARED._equal_results, ((0, 1), (2, 3))

    def alike(program: Program) -> dict[Value, Any]:
        result = original(program)
        for op in all_ops(program.entry):
            if program.device.num_partitions == 4 and wanted(op):
                result.update(dict.fromkeys(op.results, rows))
        return result

    def divide(own: list[Any], candidates: list[Any], _: int) -> Any:
        taken, heap = SHARED._fill(candidates, 1 << 40)
        rest = [group for group in own if group not in taken]
        return taken, heap, SHARED.pack(SHARED.intervals(rest))

    def plant(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(SHARED, "_equal_results", alike)
        patch.setattr(SHARED, "_divide", divide)

    return plant


def _short_lives(original: Any) -> Any:
    def fill(places: list[Any], limit: int) -> Any:
        short = [dataclasses.replace(place, end=place.start) for place in places]
        taken, packing = original(short, limit)
        by_values = {id(place.values): place for place in places}
        return tuple(by_values[id(place.values)] for place in taken), packing

    return fill


PLANTED: dict[str, Plant] = {
    "every offset is 0": _placed_at(np.zeros_like),
    "offsets are too close": _placed_at(lambda offsets: np.maximum(offsets - 64, 0)),
    "values die where they are written": replace(
        Value, "last_read", property(lambda value: value.start)
    ),
    "values die one read too early": replace(
        Value,
        "last_read",
        property(lambda v: max([v.start, *sorted(r.until(v) for r in v.reads)[:-1]])),
    ),
    "loops do not keep what they read": replace(Read, "until", lambda read, _: read.position),
    "loop state is free when nobody reads it": replace(COLOCATION, "_earliest_ends", lambda _: {}),
    "every operand is seen whole": replace(ValueView, "is_entire", property(lambda _: True)),
    "results are written over live operands": replace(
        COLOCATION,
        "_can_share",
        lambda source, op, n, *_: (
            source.size == op.results[n].size and source.kind.value == "temporary"
        ),
    ),
    "results are written over parameters that are not donated": replace(
        COLOCATION,
        "_can_share",
        lambda source, op, n, *_: (
            source.size == op.results[n].size and source.kind.value == "parameter"
        ),
    ),
    "results are written over constants": replace(
        COLOCATION,
        "_can_share",
        lambda source, op, n, *_: (
            source.size == op.results[n].size and source.kind.value == "constant"
        ),
    ),
    "offsets are rounded down to what half of them share": _placed_at(
        lambda offsets: offsets // 128 * 128
    ),
    "results are written over any operand": replace(
        COLOCATION, "writes_over", lambda op, _: list(range(len(op.operands)))
    ),
    "loop state is overwritten while it is read": replace(
        COLOCATION, "_may_follow", lambda *_: True
    ),
    "a value is written into two places": replace(
        COLOCATION, "_can_write_directly", lambda c, view, region: view.value.parameter is None
    ),
    "leaves that trade places are not copied": replace(
        Linearizer, "own_copy", lambda self, instruction, leaf, view, places, region: view
    ),
    "every loop leaf passes through": replace(
        runtime.buffers.visit_control_flow, "carried_leaves", lambda _: []
    ),
    "copies are forgotten": lambda patch: patch.setattr(
        runtime.buffers.assign, "colocate", _no_copies(runtime.buffers.assign.colocate)
    ),
    "copies are not emitted": replace(runtime.emit.program._Emitter, "copies_at", lambda *_: []),
    "operands of collectives in flight are free": lambda patch: patch.setattr(
        Linearizer, "read", _forget_reads_of_dones(Linearizer.read)
    ),
    "outputs are overwritten by later temporaries": _outputs_live(lambda g: g.start, _written),
    "outputs are written where temporaries still live": _outputs_live(
        lambda g: g.end, lambda g: g.end
    ),
    "temporaries lie in outputs that are final": lambda patch: patch.setattr(
        runtime.buffers.assign,
        "_slices_of_groups",
        _into_final_outputs(runtime.buffers.assign._slices_of_groups),
    ),
    "values of different memory spaces share memory": replace(
        COLOCATION, "_fits", lambda value, other: value.size == other.size
    ),
    "nothing is copied from one memory space to another": replace(
        Linearizer, "in_space", lambda self, instruction, name, view, shape, region: view
    ),
    "what a group holds once is written over by one member": replace(
        SHARED, "_candidates", _candidates_by_one_value
    ),
    "results of different groups lie in one heap": lambda patch: patch.setattr(
        SHARED, "_candidates", _one_heap_for_all_groups(SHARED._candidates)
    ),
    "a group holds the state of a loop once": _also_alike(lambda s: isinstance(s, ScheduledWhile)),
    "a group holds a branch's result once": _also_alike(
        lambda s: isinstance(s, ScheduledConditional)
    ),
    "a group holds results once that differ": _also_alike(
        lambda op: op.instruction.opcode is Opcode.REDUCE_SCATTER
    ),
    "a group holds once what each member computes": _also_alike(
        lambda op: op.instruction.opcode is Opcode.SINE
    ),
    "operands lie in what is still read": replace(
        runtime.buffers.own_parts, "_is_free", lambda target, *_: target.kind.value != "temporary"
    ),
    "operands that are read later lie in results": replace(
        runtime.buffers.own_parts, "_dies_at", lambda *_: True
    ),
    "a group's heap is written over while it is read": lambda patch: patch.setattr(
        SHARED, "_fill", _short_lives(SHARED._fill)
    ),
}


def every_program() -> list[Callable[[], Executable]]:
    return [lambda text=text: compiled(text, keep_order=True) for text in PROGRAMS.values()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_accepts_what_assignment_makes(name: str) -> None:
    for keep_order in (False, True):
        executable = compiled(PROGRAMS[name], keep_order=keep_order)
        check_buffers(executable.module, executable.program)


@pytest.mark.parametrize("bug", PLANTED)
def test_finds_planted_bugs(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[bug](monkeypatch)
    found = []
    for compile_one in every_program():
        try:
            compile_one()
        except CheckFailed as failure:
            found.append(str(failure))
    assert found, f"no program shows the bug: {bug}"
    assert all(message.startswith("buffer checker: ") for message in found)


# ---- thunks edited after the fact
def edited(executable: Executable, edit: Callable[[Thunk], Thunk | None]) -> int:
    """Edit each top-level thunk in turn, on its own; how many edits the checker finds, all of them asserted."""
    program = executable.program
    count = 0
    for i, thunk in enumerate(program.thunks.thunks):
        new = edit(thunk)
        if new is None:
            continue
        thunks = (*program.thunks.thunks[:i], new, *program.thunks.thunks[i + 1 :])
        changed = dataclasses.replace(
            program, thunks=dataclasses.replace(program.thunks, thunks=thunks)
        )
        with pytest.raises(CheckFailed):
            check_buffers(executable.module, changed)
        count += 1
    return count


def moved(place: ArrayView) -> ArrayView:
    old = place.slice
    return ArrayView(BufferSlice(old.allocation, old.offset + 4, old.size), place.view)


def test_finds_every_result_that_is_misplaced() -> None:
    def edit(thunk: Thunk) -> Thunk | None:
        if not isinstance(thunk, KernelThunk):
            return None
        return dataclasses.replace(thunk, results=tuple(map(moved, thunk.results)))

    assert edited(compiled(ALIASING["elementwise"]), edit) == 4


def test_finds_every_operand_that_is_misplaced() -> None:
    def edit(thunk: Thunk) -> Thunk | None:
        if not isinstance(thunk, KernelThunk):
            return None
        return dataclasses.replace(thunk, operands=(moved(thunk.operands[0]), *thunk.operands[1:]))

    assert edited(compiled(ALIASING["elementwise"]), edit) == 4


def test_finds_two_thunks_in_the_wrong_order() -> None:
    executable = compiled(ALIASING["elementwise"], keep_order=True)
    first, second, *rest = executable.program.thunks.thunks
    swapped = ThunkSequence(executable.program.thunks.name, (second, first, *rest))
    with pytest.raises(CheckFailed):
        check_buffers(executable.module, dataclasses.replace(executable.program, thunks=swapped))


def test_finds_a_write_to_a_buffer_in_flight() -> None:
    """A copy onto the operand of an all-reduce, between its start and its done."""
    executable = compiled(ASYNC_COLLECTIVES, keep_order=True)
    thunks = list(executable.program.thunks.thunks)
    at = next(i for i, t in enumerate(thunks) if isinstance(t, CollectiveStartThunk))
    start = thunks[at]
    assert isinstance(start, CollectiveStartThunk)
    source = next(t for t in thunks if isinstance(t, KernelThunk) and t.name == "c").operands[0]
    follower = thunks[at + 1]
    thunks.insert(at + 1, CopyThunk(follower.name, source, start.operands[0]))
    broken = ThunkSequence(executable.program.thunks.name, tuple(thunks))
    with pytest.raises(CheckFailed, match="in flight"):
        check_buffers(executable.module, dataclasses.replace(executable.program, thunks=broken))


def test_finds_a_collective_that_nobody_waits_for() -> None:
    executable = compiled(ASYNC_COLLECTIVES, keep_order=True)
    kept = tuple(
        t for t in executable.program.thunks.thunks if not isinstance(t, CollectiveDoneThunk)
    )
    broken = ThunkSequence(executable.program.thunks.name, kept)
    with pytest.raises(CheckFailed):
        check_buffers(executable.module, dataclasses.replace(executable.program, thunks=broken))


def test_finds_an_output_in_the_wrong_place() -> None:
    executable = compiled(ALIASING["repeated_outputs"])
    outputs = executable.program.outputs
    swapped = (outputs[0], outputs[2], outputs[1], *outputs[3:])
    with pytest.raises(CheckFailed, match="output 1"):
        check_buffers(executable.module, dataclasses.replace(executable.program, outputs=swapped))
