"""Steering a program towards cells of the table: the operation is written, then a sharding is put on what it is about.

Every program aims at two cells, which its seed names, so that all are aimed at equally often however far the seeds run.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import CustomCallAttrs
from spmd.shape import ArrayShape
from tests.differential.cells import CELLS, PARTIAL, SMALL, Cell, column_of
from tests.differential.factors import Place, arrays, factors_of, row_of
from tests.differential.generator.annotations import Spec, constrain, demand_in_place
from tests.differential.generator.table import OPERATIONS
from tests.differential.generator.writer import Value, Writer

#: Annotations and the edges of manual regions mean shardings themselves.
_OWN_MEANING = ("Sharding", "xla.sdy.", "SPMD")
#: Nothing before these has the sharding of what they give, so that it stands on themselves. (So does one with more
#: shards than elements, which does not spread backwards.)
_IN_PLACE = (Opcode.IOTA, Opcode.CONSTANT, Opcode.CONDITIONAL)


def aims_of(seed: int, rows: Sequence[str] = ()) -> tuple[Cell, Cell]:
    """The cells that the program of ``seed`` aims at; among ``rows`` if some are given."""
    cells = _cells_written(tuple(rows)) or _cells_written(())
    return cells[2 * seed % len(cells)], cells[(2 * seed + 1) % len(cells)]


@functools.lru_cache(maxsize=256)
def _cells_written(rows: tuple[str, ...]) -> tuple[Cell, ...]:
    """The cells of ``rows``, or else of every row that some operation says it writes."""
    written = rows or tuple(row for entry in OPERATIONS for row in entry.rows)
    return tuple(cell for cell in CELLS if cell.row in written)


def steer(w: Writer, made: Sequence[HloInstruction]) -> None:
    """Annotate what was just written, where it is what the program aims at."""
    for instruction in made:
        for cell in w.aims:
            if row_of(instruction) == cell.row and not _means_sharding(instruction):
                _annotate(w, instruction, cell)


def _means_sharding(instruction: HloInstruction) -> bool:
    attrs = instruction.attrs
    return isinstance(attrs, CustomCallAttrs) and attrs.target.startswith(_OWN_MEANING)


def _annotate(w: Writer, instruction: HloInstruction, cell: Cell) -> None:
    places = [p for f in factors_of(instruction) if f.kind == cell.kind for p in f.places]
    options = [
        (place, dims, axes)
        for place in places
        if (dims := _dims_at(instruction, place)) is not None
        for axes in _ways(w, dims[place.dim], cell.column)
    ]
    if not options:
        return
    place, sizes, axes = w.choose(options)
    dims: list[tuple[str, ...]] = [()] * len(sizes)
    dims[place.dim] = axes
    if cell.column != PARTIAL and w.chance(0.5):
        other = w.choose(range(len(dims)))
        if other != place.dim and sizes[other]:
            dims[other] = tuple(a for a in w.free_axes if a not in axes)
    spec = Spec(tuple(dims), (False,) * len(dims))
    w.steered.append((cell, instruction))
    if place.is_result and (instruction.opcode in _IN_PLACE or cell.column == SMALL):
        demand_in_place(w, instruction, place.tensor, spec)
        return
    held = instruction if place.is_result else _operand_arrays(instruction)[place.tensor]
    _put(w, instruction, held, constrain(w, Value(held, 0.0), spec=spec).hlo)


def _ways(w: Writer, size: int, column: str) -> list[tuple[str, ...]]:
    """Axes that split a dimension of this size so that it stands in this column."""
    found = []
    for count in range(1, len(w.free_axes) + 1):
        for axes in itertools.permutations(w.free_axes, count):
            how = column_of(size, math.prod(w.mesh[a] for a in axes))
            if how == column or (column == PARTIAL and how and count < len(w.free_axes)):
                found.append(axes)
    return found


def _dims_at(instruction: HloInstruction, place: Place) -> tuple[int, ...] | None:
    """Sizes of an array that ``instruction`` takes or gives; None where it can be given no sharding."""
    if place.is_result:
        given = arrays(instruction.shape)
        alone = isinstance(instruction.shape, ArrayShape) or instruction.opcode in _IN_PLACE
        return given[place.tensor].dims if alone else None
    taken = _operand_arrays(instruction)
    return taken[place.tensor].dims if place.tensor < len(taken) else None


def _operand_arrays(instruction: HloInstruction) -> list[HloInstruction]:
    """The arrays that make up the operands; none where an operand is a tuple that was not just put together."""
    found: list[HloInstruction] = []
    for operand in instruction.operands:
        if isinstance(operand.shape, ArrayShape):
            found.append(operand)
        elif operand.opcode is Opcode.TUPLE:
            found += operand.operands
        else:
            return []
    return found if all(isinstance(o.shape, ArrayShape) for o in found) else []


def _put(w: Writer, instruction: HloInstruction, old: HloInstruction, new: HloInstruction) -> None:
    """``new`` takes the place of ``old`` as an operand of ``instruction``, or everywhere if it is that itself."""
    if old is instruction:
        for user in [u for u in old.users if u is not new]:
            _replace_operand(user, old, new)
        w.pool[:] = [replace(v, hlo=new) if v.hlo is old else v for v in w.pool]
        return
    for taker in (instruction, *(o for o in instruction.operands if o.opcode is Opcode.TUPLE)):
        _replace_operand(taker, old, new)
    computation = w.builder.computation
    computation.set_order(_operands_first(computation.instructions))


def _replace_operand(user: HloInstruction, old: HloInstruction, new: HloInstruction) -> None:
    for i, operand in enumerate(user.operands):
        if operand is old:
            user.replace_operand(i, new)


def _operands_first(instructions: Sequence[HloInstruction]) -> list[HloInstruction]:
    """The same instructions, each after its operands, otherwise in their order."""
    placed: dict[HloInstruction, None] = {}

    def place(instruction: HloInstruction) -> None:
        if instruction not in placed:
            for operand in instruction.operands:
                place(operand)
            placed[instruction] = None

    for instruction in instructions:
        place(instruction)
    return list(placed)
