"""Tests of where values lie: sharing in place, loop state without copies, aliased outputs, memory figures."""

from __future__ import annotations

from itertools import combinations

import pytest

from runtime.buffers.types import AllocationKind, BufferSlice, alignment_of
from runtime.executable import Executable
from runtime.program.thunks import CopyThunk, traverse
from tests.runtime import programs
from tests.runtime.programs import compiled


def slices(executable: Executable) -> dict[str, BufferSlice]:
    return {value.name: value.slice for value in executable.program.assignment.values}


def copies(executable: Executable) -> list[str]:
    return [t.name for t in traverse(executable.program.thunks) if isinstance(t, CopyThunk)]


def test_elementwise_chain_runs_in_place() -> None:
    executable = compiled(programs.ELEMENTWISE, keep_order=True)
    where = slices(executable)
    assert where["d"] == where["c"]
    assert where["c"] in (where["a"], where["b"])
    assert executable.stats.temp == 64 * 32 * 4
    assert copies(executable) == []


def test_a_sum_is_not_written_over_its_transposed_operand() -> None:
    where = slices(compiled(programs.SYMMETRIC, keep_order=True))
    assert not where["s"].overlaps(where["x"])


def test_views_need_no_memory() -> None:
    names = slices(compiled(programs.VIEWS)).keys()
    assert not {"s", "r", "t", "b"} & set(names)


def test_iota_is_a_line_of_numbers() -> None:
    executable = compiled(programs.VIEWS)
    assert executable.stats.constants == 4 * 4


def test_nested_loops_update_one_buffer_without_a_copy() -> None:
    executable = compiled(programs.NESTED_UPDATE)
    where = slices(executable)
    assert where["u"] == where["wi{2}"] == where["wo{1}"]
    assert where["x0"].size == 96
    assert where["x0"] == where["u"]
    large = [
        thunk
        for thunk in traverse(executable.program.thunks)
        if isinstance(thunk, CopyThunk) and thunk.source.slice.size == 96
    ]
    assert large == []


def test_rotation_takes_one_copy_more_than_leaves() -> None:
    """Three leaves that trade places: the first must step aside, the others move straight."""
    executable = compiled(programs.ROTATE_LOOP)
    body = [t for t in traverse(executable.program.thunks) if t.name == "body"]
    (sequence,) = body
    moved = [t for t in sequence.nested() if isinstance(t, CopyThunk)]
    assert len(moved) == 4


def test_donated_parameters_hold_the_outputs() -> None:
    executable = compiled(programs.DONATED)
    stats = executable.stats
    assert (stats.arguments, stats.outputs, stats.aliased) == (1536, 1536, 1024)
    parameters = list(executable.program.assignment.of_kind(AllocationKind.PARAMETER))
    assert [p.allocation for p in (o.slice for o in executable.program.outputs)][:2] == [
        parameters[0].index,
        parameters[1].index,
    ]
    assert stats.temp == 0
    assert copies(executable) == []


def test_donated_parameter_that_is_still_read_costs_a_copy() -> None:
    text = programs.DONATED.replace("l = f32[128] multiply(x, g)", "l = f32[128] multiply(x, x2)")
    executable = compiled(text, keep_order=True)
    assert copies(executable) == ["main"]


def test_temporaries_lie_where_the_output_will_be() -> None:
    """Two of the four arrays are live at any one time, and one of the four is the output."""
    stats = compiled(programs.OUTPUT_AS_SPACE, keep_order=True).stats
    assert stats.arena == stats.peak_live_in_arena == 2 * 1024
    assert (stats.outputs, stats.temp) == (1024, 1024)


def test_outputs_lie_where_temporaries_were() -> None:
    executable = compiled(programs.OUTPUTS_OVER_TEMPORARIES, keep_order=True)
    where, stats = slices(executable), executable.stats
    assert where["q"].overlaps(where["wide"])
    assert stats.arena == stats.peak_live_in_arena == 4 * 1024
    assert (stats.outputs, stats.temp) == (3 * 1024, 1024)
    assert [o.slice for o in executable.program.outputs] == [where[n] for n in ("o", "p", "q")]


def test_outputs_that_are_copied_at_the_end_have_a_place_and_a_name() -> None:
    executable = compiled(programs.REPEATED_OUTPUTS)
    named = {v.output: v for v in executable.program.assignment.values if v.output is not None}
    assert [named[n].slice for n in range(5)] == [o.slice for o in executable.program.outputs]
    for one, other in combinations(named.values(), 2):
        assert not one.slice.overlaps(other.slice)
    ends = {v.end for v in named.values()}
    assert len(ends) == 1


def test_scalars_lie_side_by_side() -> None:
    """A small value starts at a multiple of what its elements need, a large one at a line of the caches."""
    assert [alignment_of(size) for size in (0, 1, 4, 12, 16, 24, 192, 1024, 1028)] == [
        *(64, 1, 4, 4, 16, 8, 64, 64, 64)
    ]
    for text in programs.ALIASING.values():
        for value in compiled(text).program.assignment.values:
            assert value.slice.offset % alignment_of(value.slice.size) == 0


def test_peak_is_a_lower_bound() -> None:
    for text in programs.ALIASING.values():
        stats = compiled(text).stats
        assert stats.peak_live_in_arena <= stats.arena == stats.outputs - stats.aliased + stats.temp


@pytest.mark.parametrize("name", programs.ALIASING)
def test_dumps_name_every_value(name: str) -> None:
    executable = compiled(programs.ALIASING[name])
    text = executable.dump_buffers()
    for value in executable.program.assignment.values:
        assert f" {value.name} @0> " in text
        assert f"    {value.name}:{value.start}-{value.end}\n" in text
    assert f"temp {executable.stats.temp}" in text
    for thunk in traverse(executable.program.thunks):
        assert thunk.name in executable.dump_thunks()


def test_an_all_to_all_of_one_array_is_written_over_its_dying_operand() -> None:
    where = slices(compiled(programs.SHARING["all_to_alls"], keep_order=True))
    assert where["b"] == where["c"] == where["d"]
    assert not where["a"].overlaps(where["y"])
