"""Pieces of instructions, as the rules for splitting them have it (spmd/analysis/split_rules.py)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spmd.analysis.split_rules import Along
from spmd.builder import Builder
from spmd.hlo import Attrs, HloInstruction
from spmd.ops.attrs import DynamicSliceAttrs, SliceAttrs


def piece_of(
    instruction: HloInstruction, along: Along, operands: Iterable[HloInstruction], pieces: int
) -> HloInstruction:
    """Create one of ``pieces`` of ``instruction``, of ``operands`` sliced as ``along`` says. It belongs to no
    computation yet.
    """
    shape, attrs, dim = instruction.array_shape, instruction.attrs, along.result
    if dim is not None:
        size = shape.dims[dim] // pieces
        shape = shape.with_dims(_with(shape.dims, dim, size))
        attrs = _attrs_of_piece(attrs, dim, size)
    return instruction.clone(shape, operands, attrs=attrs)


def operand_part(
    operand: HloInstruction, dim: int, number: int, pieces: int, b: Builder
) -> HloInstruction:
    """Return the part of ``operand`` along ``dim`` that piece ``number`` of ``pieces`` reads."""
    size = operand.dims[dim] // pieces
    return b.slice_along(operand, dim, number * size, (number + 1) * size)


def _attrs_of_piece(attrs: Attrs, dim: int, size: int) -> Attrs:
    """Return the attributes of a result with ``size`` elements in ``dim``."""
    if isinstance(attrs, SliceAttrs):
        return replace(attrs, limits=_with(attrs.limits, dim, size))
    if isinstance(attrs, DynamicSliceAttrs):
        return replace(attrs, sizes=_with(attrs.sizes, dim, size))
    return attrs


def _with(sizes: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*sizes[:dim], size, *sizes[dim + 1 :])
