"""Index maps: the operand element that an instruction reads for one of its own, in terms of kernel loop variables.

A map has one expression for each dimension of an array. Expressions are hashable and built the same way for the same
element. If two paths through a fused graph reach the same element of an instruction, their maps are therefore equal,
and the element is computed once. The cost depends on the loop variables of an expression.

    x = f32[4,8] .., t = f32[8,4] transpose(x), dimensions={1,0}, b = f32[2,8,4] broadcast(t), dimensions={1,2}
    loop (i0, i1, i2) over b:   b at (i0, i1, i2)   t at (i1, i2)   x at (i2, i1): not i0, so 32 elements read twice
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, replace
from typing import TypeAlias

from spmd.analysis.common_factors import common_factors
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs, PadAttrs, SliceAttrs
from spmd.ops.opdef import OPS
from spmd.registry import Registry


@dataclass(frozen=True, slots=True)
class Index:
    """Expression of the index along one dimension. Expressions are compared by ``key``, their structure, alone.

    ``variables`` are the loop variables that it depends on. ``plain`` is the number of a loop variable if the
    expression is that variable unchanged, and otherwise None. An expression that merges several others lists them in
    ``parts`` with their sizes, slowest first. An expression that is a part of a divided one refers to it in
    ``undivided``; merging all of its parts restores it.
    """

    key: tuple[object, ...]
    variables: frozenset[int] = field(compare=False)
    plain: int | None = field(default=None, compare=False)
    parts: tuple[tuple[Index, int], ...] = field(default=(), compare=False)
    undivided: tuple[Index, ...] = field(default=(), compare=False)


IndexMap: TypeAlias = tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """Read of an operand at ``map``, by the fraction ``share`` of the user's elements."""

    map: IndexMap
    share: float = 1.0


def variable(number: int) -> Index:
    """Return the expression that is loop variable ``number``."""
    return Index(("variable", number), frozenset((number,)), number)


def identity(rank: int) -> IndexMap:
    """Return the map of an array with ``rank`` dimensions whose index is the loop's own."""
    return tuple(map(variable, range(rank)))


#: Function that maps an instruction and the index map of its result to one access per operand.
Rule: TypeAlias = Callable[[HloInstruction, IndexMap], list[Access]]

_RULES: Registry[Opcode, Rule] = Registry("index map")


def operand_accesses(user: HloInstruction, at: IndexMap) -> list[Access]:
    """Return the access of each operand by ``user`` at the map ``at``.

    Opcodes without a rule are assumed to read an element that is known at run time only.
    """
    rule = _RULES.get(user.opcode)
    if rule is not None:
        return rule(user, at)
    if OPS[user.opcode].elementwise:
        return [_same(operand, at) for operand in user.operands]
    return [Access(_anywhere(user, operand, at)) for operand in user.operands]


def _same(operand: HloInstruction, at: IndexMap) -> Access:
    """Return the access of an elementwise instruction, which reads a scalar operand or an element at its own index."""
    return Access(at if operand.array_shape.rank else ())


def _made(kind: str, parts: IndexMap, *how: object) -> Index:
    """Return the expression ``kind`` of ``parts``, with the constants ``how``."""
    variables = frozenset[int]().union(*(part.variables for part in parts))
    return Index((kind, *(part.key for part in parts), *how), variables)


def _anywhere(user: HloInstruction, operand: HloInstruction, at: IndexMap) -> IndexMap:
    """Return the map of a read of ``operand`` at indices that are known at run time only."""
    number = user.operands.index(operand)
    return tuple(
        _made("unknown", at, user.name, number, d) for d in range(operand.array_shape.rank)
    )


# ---- moving data
@_RULES.register(Opcode.BROADCAST)
def broadcast(user: HloInstruction, at: IndexMap) -> list[Access]:
    """Return the access of a broadcast, at the index along the operand's dimensions."""
    return [Access(tuple(at[d] for d in user.attrs_as(DimensionsAttrs).dimensions))]


@_RULES.register(Opcode.TRANSPOSE)
def transpose(user: HloInstruction, at: IndexMap) -> list[Access]:
    """Return the access of a transpose, at the permuted index."""
    dimensions = user.attrs_as(DimensionsAttrs).dimensions
    source = dict(zip(dimensions, at, strict=True))
    return [Access(tuple(source[d] for d in range(len(dimensions))))]


@_RULES.register(Opcode.REVERSE)
def reverse(user: HloInstruction, at: IndexMap) -> list[Access]:
    """Return the access of a reverse."""
    reversed_dims = user.attrs_as(DimensionsAttrs).dimensions
    return [
        Access(
            tuple(
                _made("reverse", (index,), user.dims[d]) if d in reversed_dims else index
                for d, index in enumerate(at)
            )
        )
    ]


@_RULES.register(Opcode.SLICE)
def slice_(user: HloInstruction, at: IndexMap) -> list[Access]:
    """Return the access of a slice, at start + index * stride along each dimension."""
    attrs = user.attrs_as(SliceAttrs)
    steps = zip(at, attrs.starts, attrs.strides, strict=True)
    return [Access(tuple(_affine(index, start, stride) for index, start, stride in steps))]


def _affine(index: Index, start: int, stride: int) -> Index:
    """Return the expression ``start`` + ``index`` * ``stride``."""
    return index if (start, stride) == (0, 1) else _made("affine", (index,), start, stride)


@_RULES.register(Opcode.RESHAPE, Opcode.BITCAST)
def reshape(user: HloInstruction, at: IndexMap) -> list[Access]:
    """Return the access of a reshape, or one at unknown indices for a bitcast to another number of elements."""
    source, target = user.operand(0).dims, user.dims
    if math.prod(source) != math.prod(target):
        return [Access(_anywhere(user, user.operand(0), at))]
    return [Access(reshaped(at, target, source))]


def reshaped(at: IndexMap, target: tuple[int, ...], source: tuple[int, ...]) -> IndexMap:
    """Map the indices ``at`` of an array of sizes ``target`` to those of its reshape to sizes ``source``.

    Dimensions of equal sizes are kept; others are merged and divided among the dimensions that hold the same elements.
    """
    parts = [
        part for index, size in zip(at, target, strict=True) for part in _parts_of(index, size)
    ]
    sizes = tuple(size for _, size in parts)
    found = [_ZERO] * len(source)
    if 0 in source:
        return tuple(found)  # there are no elements
    for ours, theirs in common_factors(sizes, source):
        merged = _merged([parts[d] for d in ours])
        below = math.prod(source[d] for d in theirs)
        for d in theirs:
            below //= source[d]
            if len(theirs) == 1:
                found[d] = merged
            else:
                part = _made("divide", (merged,), below, source[d], below * source[d])
                found[d] = replace(part, undivided=(merged,))
    return tuple(found)


def _parts_of(index: Index, size: int) -> tuple[tuple[Index, int], ...]:
    """Return the parts of an index along a dimension of ``size``, with their sizes: itself if it has none.

    The first of concatenated operands, or a slice, may be shorter than the array whose index is ``index``.
    """
    if index.parts and math.prod(part_size for _, part_size in index.parts) == size:
        return index.parts
    return ((index, size),)


def _merged(parts: list[tuple[Index, int]]) -> Index:
    """Return the expression that merges ``parts``, given with their sizes, slowest first."""
    if len(parts) == 1:
        return parts[0][0]
    if parts and parts[0][0].undivided:
        (undivided,) = parts[0][0].undivided
        below = math.prod(size for _, size in parts)
        if _is_divided(undivided, parts, below):
            return undivided
    made = _made("merge", tuple(index for index, _ in parts), *(size for _, size in parts))
    return replace(made, parts=tuple(parts))


def _is_divided(undivided: Index, parts: list[tuple[Index, int]], count: int) -> bool:
    """Return whether ``parts`` are all parts, in order, of the expression ``undivided`` of ``count`` values."""
    top, below = count, count
    for part, size in parts:
        below //= max(size, 1)
        if part.key != ("divide", undivided.key, below, size, below * size) or part.undivided != (
            undivided,
        ):
            return False
    return below == 1 and parts[0][0].key[-1] == top


_ZERO = Index(("zero",), frozenset())


# ---- choosing among operands
@_RULES.register(Opcode.CONCATENATE)
def concatenate(user: HloInstruction, at: IndexMap) -> list[Access]:
    """Return one access per operand, whose share is the operand's fraction of the result's elements."""
    (along,) = user.attrs_as(DimensionsAttrs).dimensions
    found, start = [], 0
    for operand in user.operands:
        shifted = _affine(at[along], -start, 1)
        share = operand.dims[along] / max(user.dims[along], 1)
        found.append(Access((*at[:along], shifted, *at[along + 1 :]), share))
        start += operand.dims[along]
    return found


@_RULES.register(Opcode.PAD)
def pad(user: HloInstruction, at: IndexMap) -> list[Access]:
    """Return the access of the operand, whose share is its fraction of the result, and that of the padding value."""
    operand = user.operand(0)
    attrs = user.attrs_as(PadAttrs)
    share = operand.array_shape.num_elements / max(user.array_shape.num_elements, 1)
    steps = zip(at, attrs.low, attrs.interior, strict=True)
    moved = tuple(_made("pad", (index,), low, interior) for index, low, interior in steps)
    return [Access(moved, min(share, 1.0)), Access(())]


# ---- positions that are computed at run time
@_RULES.register(Opcode.DYNAMIC_SLICE)
def dynamic_slice(user: HloInstruction, at: IndexMap) -> list[Access]:
    """Return the access of the array, offset by the starts, and those of the starts."""
    starts = tuple(operand.name for operand in user.operands[1:])
    return [Access(_shifted(at, starts)), *_scalars(user, 1)]


@_RULES.register(Opcode.DYNAMIC_UPDATE_SLICE)
def dynamic_update_slice(user: HloInstruction, at: IndexMap) -> list[Access]:
    """Return the accesses of the array and of the update, with their shares, and those of the starts."""
    updated = user.operand(1).array_shape.num_elements
    share = updated / max(user.array_shape.num_elements, 1)
    starts = tuple(operand.name for operand in user.operands[2:])
    return [Access(at, 1.0 - share), Access(_shifted(at, starts), share), *_scalars(user, 2)]


def _shifted(at: IndexMap, starts: tuple[str, ...]) -> IndexMap:
    """Return ``at``, offset along each dimension by the start scalar of that name."""
    pairs = zip(at, starts, strict=True)
    return tuple(_made("shift", (index,), start) for index, start in pairs)


def _scalars(user: HloInstruction, first: int) -> list[Access]:
    """Return the accesses of the scalar operands from number ``first`` on."""
    return [Access(()) for _ in user.operands[first:]]
