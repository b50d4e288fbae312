"""Scatters that update one slice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.analysis.value_trace import holds_integer
from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import Annotations, HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ParameterAttrs, ScatterAttrs
from spmd.ops.reduction import reduction_kind, through_annotations
from spmd.passes.index_vector import full_starts, index_count
from spmd.passes.interface import UNSCHEDULED, HloPass, register_pass
from spmd.passes.rewrite import has_control_edges, is_annotated, replace_and_prune


@register_pass
@dataclass(frozen=True)
class ScatterSimplifier(HloPass):
    """scatter(x, one index vector, update), to_apply=f  =>

        old = dynamic-slice(x, start)
        dynamic-update-slice(x, select(start fits, f(old, update), old), start)

    A scatter leaves out a window that does not lie inside the operand, where slices clamp their start: then the old
    values are written back. What this moves is as large as the update, not as the operand (a cache of keys, say).
    """

    name: ClassVar[str] = "scatter-simplifier"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED

    def run(self, module: HloModule) -> bool:
        scope, effects = ModuleScope(module), SideEffects()
        changed = False
        for computation in module.computations_post_order():
            builder = Builder(computation, scope)
            for x in computation.with_opcode(Opcode.SCATTER):
                combine = match_one_update(x)
                if combine is not None:
                    builder.annotations = Annotations(metadata=x.annotations.metadata)
                    replace_and_prune(x, updated_slice(x, combine, builder), effects)
                    changed = True
        return changed


@dataclass(frozen=True)
class Combine:
    """How an update meets what is there: an elementwise ``opcode``, or None where it takes its place."""

    opcode: Opcode | None


def match_one_update(x: HloInstruction) -> Combine | None:
    """For a scatter of one array at one index vector."""
    if x.num_operands != 3 or is_annotated(x) or has_control_edges(x):
        return None
    if index_count(x.operand(1), x.attrs_as(ScatterAttrs).index_vector_dim) != 1:
        return None
    if not x.operand(2).array_shape.num_elements:
        return None
    return _combine(x.to_apply)


def _combine(computation: HloComputation) -> Combine | None:
    root = through_annotations(computation.root)
    if isinstance(root.attrs, ParameterAttrs):
        return Combine(None) if root.attrs.number == 1 else None
    return Combine(root.opcode) if reduction_kind(computation) is not None else None


def updated_slice(x: HloInstruction, combine: Combine, b: Builder) -> HloInstruction:
    attrs, (operand, indices, update) = x.attrs_as(ScatterAttrs), x.operands
    window = _window(x)
    starts = full_starts(b, indices, attrs.scatter_dims_to_operand_dims, operand.array_shape.rank)
    old = b.dynamic_slice(operand, starts, window)
    new = b.reshape(update, window)
    if combine.opcode is not None:
        new = b.binary(combine.opcode, old, new)
    fits = _fits(x, starts, window, b)
    if fits is not None:
        new = b.select(b.broadcast_scalar(fits, window), new, old)
    return b.dynamic_update_slice(operand, new, starts)


def _window(x: HloInstruction) -> tuple[int, ...]:
    """The update's sizes in the operand's dimensions."""
    attrs, (operand, _, update) = x.attrs_as(ScatterAttrs), x.operands
    left_out = (*attrs.inserted_window_dims, *attrs.input_batching_dims)
    sizes = iter(update.dims[d] for d in attrs.update_window_dims)
    return tuple(1 if d in left_out else next(sizes) for d in range(len(operand.dims)))


def _fits(
    x: HloInstruction, starts: list[HloInstruction], window: tuple[int, ...], b: Builder
) -> HloInstruction | None:
    """Whether the window at ``starts`` lies inside the operand; None where it always does."""
    kind = x.operand(1).array_shape.element_type
    bounds: list[HloInstruction] = []
    for d in x.attrs_as(ScatterAttrs).scatter_dims_to_operand_dims:
        last = x.dims[d] - window[d]
        if not kind.is_unsigned_integer:
            bounds.append(b.compare(starts[d], b.scalar(kind, 0), "GE"))
        if holds_integer(kind, last):
            bounds.append(b.compare(starts[d], b.scalar(kind, last), "LE"))
    return reduce(b.logical_and, bounds) if bounds else None
