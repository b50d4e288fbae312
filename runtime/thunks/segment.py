"""Segments: native thunks in a row, loops and branches of them included, as one native call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from collectives.communicator.status import THUNK
from runtime.codegen.llvm_segment import SegmentRow, link_segment
from runtime.codegen.native_call import NativeAction
from runtime.thunks.thunk import Action

Numbered: TypeAlias = tuple[int, Action]
"""What a thunk does, and its number in the program."""


@dataclass(frozen=True)
class Segment:
    """An action that is rows of native code; a sequence makes it part of a larger one where it can.

    ``position``: of the device, where rows leave their thunks' numbers. ``alive``: what addresses in rows need.
    """

    position: memoryview = field(repr=False)
    rows: tuple[SegmentRow, ...] = ()
    alive: tuple[object, ...] = field(default=(), repr=False)

    def __call__(self) -> None:
        self.linked()

    @cached_property
    def linked(self) -> Action:
        """The action as it is called most quickly."""
        words = np.frombuffer(self.position, np.int64)
        return link_segment(self.rows, words[THUNK:].ctypes.data, (words, self.alive))


def joined(position: memoryview, segments: Sequence[Segment]) -> Segment:
    """One after the other."""
    return Segment(
        position,
        tuple(row for segment in segments for row in segment.rows),
        tuple(one for segment in segments for one in segment.alive),
    )


def segmented(numbered: Iterable[Numbered], position: memoryview) -> list[Numbered]:
    """The same actions; native ones that follow one another are a segment, with the first one's number."""
    found: list[Numbered] = []
    run: list[Segment] = []
    first = 0
    for number, action in numbered:
        segment = _segment_of(number, action, position)
        if segment is not None:
            first = first if run else number
            run.append(segment)
            continue
        if run:
            found.append((first, joined(position, run)))
            run = []
        found.append((number, action))
    return [*found, (first, joined(position, run))] if run or not found else found


def _segment_of(number: int, action: Action, position: memoryview) -> Segment | None:
    """None for what needs Python."""
    if isinstance(action, Segment):
        return action
    if isinstance(action, NativeAction):
        rows = tuple(SegmentRow(number, call.function, call.record) for call in action.calls)
        return Segment(position, rows, tuple(call.alive for call in action.calls))
    return None


def most_direct(action: Action) -> Action:
    """The same action, as Python calls it most quickly."""
    return action.linked if isinstance(action, Segment) else action
