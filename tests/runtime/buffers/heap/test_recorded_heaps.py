"""Heaps that come with a saved program: taken over where they are sound, refused where not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.buffers.assign import assign_buffers
from runtime.buffers.heap.arena import Interval
from runtime.buffers.heap.recorded_heaps import (
    RecordedHeap,
    RecordedHeaps,
    RecordedHeapsError,
    share_bytes,
)
from runtime.buffers.linearize import linearize
from runtime.buffers.program import Program
from runtime.buffers.types import Color
from tests.runtime.programs import COLLECTIVES, SHARING, compiled
from tests.runtime.programs.collectives import SUM

LOCAL = """HloModule local
ENTRY main {
  x = f32[300] parameter(0)
  a = f32[300] exponential(x)
  b = f32[300] sine(a)
  c = f32[300] add(a, b)
  ROOT d = f32[300] multiply(c, b)
}
"""


#: Two divisions of the devices, of which the one that sorts later saves more.
TWO_DIVISIONS = f"""HloModule two, num_partitions=4, is_scheduled=true
{SUM}
ENTRY main {{
  x = f32[8192] parameter(0)
  y = f32[2048] parameter(1)
  zero = f32[] constant(0)
  k = f32[16384] all-gather(x), channel_id=1, replica_groups={{{{0,2}},{{1,3}}}}, dimensions={{0}}, use_global_device_ids=true
  g = f32[4096] all-gather(y), channel_id=2, replica_groups={{{{0,1}},{{2,3}}}}, dimensions={{0}}, use_global_device_ids=true
  sum_k = f32[] reduce(k, zero), dimensions={{0}}, to_apply=sum
  sum_g = f32[] reduce(g, zero), dimensions={{0}}, to_apply=sum
  ROOT o = f32[] add(sum_k, sum_g)
}}
"""


def program_of(text: str) -> tuple[Program, RecordedHeaps]:
    executable = compiled(text, keep_order=True)
    return linearize(executable.module), RecordedHeaps.of(executable.program.assignment)


@pytest.mark.parametrize("text", [LOCAL, COLLECTIVES, TWO_DIVISIONS, *SHARING.values()])
def test_what_was_recorded_gives_the_same_assignment(text: str) -> None:
    program, recorded = program_of(text)
    assert assign_buffers(program, recorded).assignment == assign_buffers(program).assignment


def test_unsound_places_are_refused() -> None:
    program, recorded = program_of(LOCAL)
    (heap,), places = recorded.heaps, recorded.offsets
    for changed, message in (
        (replace(recorded, offsets=places[:-1]), "places for"),
        (replace(recorded, offsets=((0, 0),) * len(places)), "bytes, of which|the same bytes"),
        (replace(recorded, offsets=((0, -64), *places[1:])), "offset -64"),
        (replace(recorded, offsets=((0, 4), *places[1:])), "offset 4 for 1200 bytes"),
        (replace(recorded, offsets=((1, 0), *places[1:])), "no heap 1"),
        (replace(recorded, heaps=(replace(heap, size=heap.size + 64),)), "of which"),
        (replace(recorded, heaps=(replace(heap, color=Color(7)),)), "other heaps"),
        (replace(recorded, heaps=(heap, heap)), "other heaps"),
        (replace(recorded, heaps=()), "other heaps"),
    ):
        with pytest.raises(RecordedHeapsError, match=message):
            assign_buffers(program, changed)


def test_values_of_other_sizes_are_packed_anew() -> None:
    program, recorded = program_of(LOCAL)
    other, _ = program_of(LOCAL.replace("300", "400"))
    assert assign_buffers(other, recorded).assignment == assign_buffers(other).assignment
    assert assign_buffers(program, recorded).assignment.offsets == recorded.offsets


def test_memory_is_shared_only_where_the_program_allows_it() -> None:
    program, recorded = program_of(SHARING["shared"])
    own, columns, rows = recorded.heaps
    swapped = (own, replace(columns, size=rows.size), replace(rows, size=columns.size))
    places = tuple((-number % 3, offset) for number, offset in recorded.offsets)
    with pytest.raises(RecordedHeapsError, match="other devices hold"):
        assign_buffers(program, RecordedHeaps(swapped, places, recorded.sizes))
    local, private = program_of(LOCAL)
    claimed = RecordedHeap(Color(0, ((0, 1),)), private.heaps[0].size, "")
    everything = RecordedHeaps(
        (RecordedHeap(Color(0), 0, ""), claimed),
        tuple((1, o) for _, o in private.offsets),
        private.sizes,
    )
    with pytest.raises(RecordedHeapsError, match="other devices hold"):
        assign_buffers(local, everything)


@pytest.mark.parametrize(
    ("lives", "offsets", "meet"),
    [
        ([], [], False),
        ([(0, 2, 8), (3, 4, 8)], [0, 0], False),
        ([(0, 3, 8), (3, 4, 8)], [0, 0], True),
        ([(0, 3, 8), (1, 2, 8)], [0, 8], False),
        ([(0, 3, 8), (1, 2, 8)], [0, 7], True),
        ([(0, 3, 8), (1, 2, 8)], [8, 1], True),
        ([(0, 9, 64), (1, 2, 8), (4, 5, 8)], [0, 64, 60], True),
        ([(0, 9, 0), (0, 9, 8)], [4, 0], False),
        ([(0, 1, 8), (0, 9, 8), (2, 3, 8), (2, 3, 8)], [0, 8, 0, 16], False),
        ([(0, 3, 8), (0, 2, 8)], [0, 0], True),  # one start and one offset
        ([(0, 2, 8), (0, 2, 16), (0, 2, 8)], [0, 0, 0], True),
    ],
)
def test_meeting_in_time_and_in_bytes(
    lives: list[tuple[int, int, int]], offsets: list[int], meet: bool
) -> None:
    assert share_bytes([Interval(*life) for life in lives], offsets) is meet
