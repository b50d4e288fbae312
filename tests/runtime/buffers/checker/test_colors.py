"""Memory by colour: a heap for each memory space, copies where the program crosses from one to another."""

from __future__ import annotations

import pytest

from runtime.buffers.types import AllocationKind, Color
from runtime.executable import Executable
from runtime.program.thunks import CopyThunk, traverse
from runtime.saved import save_bytes
from runtime.saved_program import load_bytes
from spmd.hlo import HloModule
from spmd.shape import ArrayShape, Layout, PrimitiveType
from tests.runtime.programs import SPACES, SPACES_BRANCHES, SPACES_LOOP, compiled

PROGRAMS = {"straight": SPACES, "loop": SPACES_LOOP, "branches": SPACES_BRANCHES}


def test_a_layout_says_the_memory_space() -> None:
    def of(suffix: str) -> int:
        return ArrayShape(PrimitiveType.F32, (8, 8), Layout((1, 0), suffix)).memory_space

    assert ArrayShape(PrimitiveType.F32, (8, 8)).memory_space == 0
    assert [of(s) for s in ("", "S(5)", "T(8,128)(2,1)S(1)", "E(4)S(3)SC(0:1,2)")] == [0, 5, 1, 3]
    assert of("SC(-1:4)") == 0


def stated_spaces(module: HloModule) -> dict[str, int]:
    """Memory space of each instruction that has an array."""
    return {
        i.name: i.array_shape.memory_space
        for computation in module.computations
        for i in computation.instructions
        if isinstance(i.shape, ArrayShape)
    }


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_lie_where_their_layouts_say(name: str) -> None:
    executable = compiled(PROGRAMS[name])
    assignment = executable.program.assignment
    stated = stated_spaces(executable.module)
    found = {
        value.name: assignment.allocations[value.slice.allocation].color.memory_space
        for value in assignment.values
    }
    common = stated.keys() & found.keys()
    assert {found[one] for one in common} == {0, 5}
    assert {one: found[one] for one in common} == {one: stated[one] for one in common}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_space_has_a_heap(name: str) -> None:
    executable = compiled(PROGRAMS[name], keep_order=True)
    heaps = list(executable.program.assignment.of_kind(AllocationKind.HEAP))
    assert [heap.color for heap in heaps] == [Color(0), Color(5)]
    stats = executable.stats
    assert stats.arena == heaps[0].size, "the host's heap is none of the device's memory"
    allocations = executable.program.assignment.allocations
    assert stats.spaces == tuple(
        (space, sum(a.size for a in allocations if a.color.memory_space == space))
        for space in (0, 5)
    )


def copies(executable: Executable) -> list[str]:
    return [t.name for t in traverse(executable.program.thunks) if isinstance(t, CopyThunk)]


def test_only_what_crosses_is_copied() -> None:
    """``t`` is a reshape that strides cannot say, which is a copy in any one space."""
    assert copies(compiled(SPACES, keep_order=True)) == ["hs", "i", "f", "t"]


def test_a_loop_starts_and_goes_on_by_copies_where_spaces_differ() -> None:
    """Copies before the loop are leaf 2 once for all, the counter, and leaves 1 and 3.

    Copies in the loop are leaf 3 there and back, and leaf 1 at the end.
    """
    names = copies(compiled(SPACES_LOOP, keep_order=True))
    assert names.count("cold") == names.count("c2") == 1
    assert names.count("l.1") == 5


def test_an_output_is_no_alias_of_a_parameter_in_another_space() -> None:
    executable = compiled(SPACES)
    assert executable.donated == ()
    assert compiled(SPACES.replace("{2}: (1", "{0}: (1")).donated == (1,)


def test_dumps_say_the_color() -> None:
    text = compiled(SPACES, keep_order=True).dump_buffers()
    assert ": size 256, color 5, constant 0:" in text
    assert ": size 768, color 5, preallocated-temp, maybe-live-out, placed best fit" in text
    assert " i @0> (size=256,offset=0): f32[64], output 2\n" in text
    assert " memory space 5: 1024 bytes\n" in text


def test_saved_executables_keep_spaces() -> None:
    executable = compiled(SPACES)
    loaded = load_bytes(save_bytes(executable), check=True)
    assert loaded.stats == executable.stats
    assert loaded.program.assignment == executable.program.assignment
