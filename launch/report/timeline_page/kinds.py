"""Kinds of slices, which the page shows by colour.

Colours are Okabe and Ito's and some more, chosen so that no two look alike to dichromats either, on a light page and
on a dark one; a test checks that. Waiting has stripes, and collectives in flight have rows of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from launch.report.overlap.model import Instruction
from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.lazy_dataclass import dataclass


class PageKind(Enum):
    """Values are the words of the page's legend, in its order."""

    PRODUCT = "products"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reductions"
    MOVE = "copies and moves"
    OTHER = "other work"
    CONTROL = "loops and branches"
    WAITING = "waiting"
    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"
    PERMUTE = "collective-permute"
    OTHER_COLLECTIVE = "other collectives"


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours, as "#rrggbb", on a light page and on a dark one."""

    light: str
    dark: str


PALETTES = {
    PageKind.PRODUCT: Palette("#0072b2", "#2f93d1"),
    PageKind.ELEMENTWISE: Palette("#79c3ee", "#8fd0f5"),
    PageKind.REDUCTION: Palette("#009e73", "#14b88a"),
    PageKind.MOVE: Palette("#b4bcb8", "#6f8a8c"),
    PageKind.OTHER: Palette("#3a3a3a", "#5b5b5b"),
    PageKind.CONTROL: Palette("#eef1f4", "#333b45"),
    PageKind.WAITING: Palette("#8a8f98", "#a3abb6"),
    PageKind.ALL_REDUCE: Palette("#e69f00", "#f0ad1a"),
    PageKind.ALL_GATHER: Palette("#d55e00", "#ff6d40"),
    PageKind.REDUCE_SCATTER: Palette("#cc79a7", "#d691bc"),
    PageKind.ALL_TO_ALL: Palette("#f0e442", "#f5ea5c"),
    PageKind.PERMUTE: Palette("#7d18ed", "#9b45f0"),
    PageKind.OTHER_COLLECTIVE: Palette("#6e2c00", "#a9560d"),
}

_COLLECTIVES = {
    "all-reduce": PageKind.ALL_REDUCE,
    "all-gather": PageKind.ALL_GATHER,
    "reduce-scatter": PageKind.REDUCE_SCATTER,
    "all-to-all": PageKind.ALL_TO_ALL,
    "collective-permute": PageKind.PERMUTE,
}
_PRODUCTS = frozenset({Opcode.DOT, Opcode.CONVOLUTION, Opcode.RAGGED_DOT})
_REDUCTIONS = frozenset({Opcode.REDUCE, Opcode.REDUCE_WINDOW, Opcode.SELECT_AND_SCATTER})
_MOVES = frozenset(
    {
        Opcode.BITCAST,
        Opcode.BROADCAST,
        Opcode.CONCATENATE,
        Opcode.COPY,
        Opcode.DYNAMIC_SLICE,
        Opcode.DYNAMIC_UPDATE_SLICE,
        Opcode.GATHER,
        Opcode.IOTA,
        Opcode.PAD,
        Opcode.RESHAPE,
        Opcode.REVERSE,
        Opcode.SCATTER,
        Opcode.SLICE,
        Opcode.TRANSPOSE,
    }
)
#: Instructions that do not characterize a fusion.
_SILENT = frozenset(
    {Opcode.PARAMETER, Opcode.CONSTANT, Opcode.TUPLE, Opcode.GET_TUPLE_ELEMENT, Opcode.IOTA}
)
_OTHERS = frozenset({Opcode.CUSTOM_CALL, Opcode.SORT, Opcode.FFT, Opcode.PARTITION_ID})
_AROUND_OTHERS = frozenset({"ThunkSequence", "While", "Conditional"})


def kind_of_slice(
    thunk: str, said: Instruction, collective: str | None, hlo: HloInstruction | None
) -> PageKind:
    """Return the kind of a slice. thunk: the kind of thunk. collective: its kind, if it is one. hlo: the instruction,
    if the module is known; else a fusion is judged by its name."""
    if thunk == "CollectiveDone":
        return PageKind.WAITING
    if collective is not None:
        return kind_of_collective(collective)
    if thunk in _AROUND_OTHERS:
        return PageKind.CONTROL
    if thunk == "Copy":
        return PageKind.MOVE
    if hlo is not None:
        return _kind_of_opcodes(_opcodes(hlo))
    if said.opcode == Opcode.FUSION.value:
        return _kind_of_fusion_name(said.name)
    opcode = _BY_NAME.get(said.opcode)
    return PageKind.OTHER if opcode is None else _kind_of_opcodes(frozenset({opcode}))


def kind_of_collective(kind: str) -> PageKind:
    return _COLLECTIVES.get(kind, PageKind.OTHER_COLLECTIVE)


_BY_NAME: Mapping[str, Opcode] = {opcode.value: opcode for opcode in Opcode}


def _opcodes(instruction: HloInstruction) -> frozenset[Opcode]:
    """Return the opcodes that a kernel computes: the instruction's, or those fused into it."""
    if instruction.opcode is not Opcode.FUSION:
        return frozenset({instruction.opcode})
    fused = [one for body in instruction.called_computations for one in body.instructions]
    return frozenset().union(*map(_opcodes, fused)) - _SILENT


def _kind_of_opcodes(opcodes: frozenset[Opcode]) -> PageKind:
    """Return the kind of the op that usually takes longest: a product, then a reduction, then arithmetic."""
    if opcodes & _PRODUCTS:
        return PageKind.PRODUCT
    if opcodes & _REDUCTIONS:
        return PageKind.REDUCTION
    if opcodes & _OTHERS:
        return PageKind.OTHER
    if opcodes & KIND.keys():
        return PageKind.OTHER_COLLECTIVE
    return PageKind.MOVE if opcodes <= _MOVES else PageKind.ELEMENTWISE


def _kind_of_fusion_name(name: str) -> PageKind:
    """Return the kind of a fusion from its name, which contains its last ops: ``loop_subtract_fusion.2``,
    ``input_reduce_fusion``.
    """
    name_parts = re.split(r"[_.\d]+", name)
    opcodes = frozenset(_BY_NAME[word] for word in name_parts if word in _BY_NAME)
    return _kind_of_opcodes(opcodes - {Opcode.FUSION} or frozenset({Opcode.ADD}))
