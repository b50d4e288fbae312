"""Join arrays in the order of dimensions in which matrix products read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import Annotations, HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import CollectiveAttrs, DimensionsAttrs, DotAttrs
from spmd.ops.dot import free_dims
from spmd.passes.algebraic.match import used_once
from spmd.passes.interface import UNSCHEDULED, HloPass, register_pass
from spmd.passes.rewrite import has_control_edges, is_annotated


@register_pass
@dataclass(frozen=True)
class ConcatenateLayout(HloPass):
    """Concatenate along another dimension, where products would have to copy what is joined into another order.

        a, b = f32[1,8,4]                                           a, b as f32[8,1,4]
        c = f32[2,8,4] concatenate(a, b), dimensions={0}     =>     c = f32[8,2,4] concatenate(a, b), dimensions={1}
        d = f32[8,9] dot(c, w), lhs_contracting_dims={0,2}          d = f32[8,9] dot(c, w), lhs_contracting_dims={1,2}

    A product reads without a copy what is a matrix in memory: its free dimensions one run, its contracting dimensions
    one run, and one of the two innermost. On the left, rows of 8 would be cut by the 2. Applies where all users are
    products and one order suits them all. The transpose that comes behind the new concatenation folds into the
    products' dimension numbers (algebraic/dot.py). An all-gather joins too: what it gathers is brought into the order
    before, which is one device's part of the copy, or none where that is a concatenation in turn.
    """

    name: ClassVar[str] = "concatenate-layout"
    accepts: ClassVar[tuple[Stage, ...]] = UNSCHEDULED

    def run(self, module: HloModule) -> bool:
        """Nothing before partitioning: how arrays lie is a matter of one device."""
        if module.stage < Stage.PARTITIONED:
            return False
        scope = ModuleScope(module)
        changed = False
        for computation in module.computations_post_order():
            for x in computation.with_opcode(Opcode.ALL_GATHER, Opcode.CONCATENATE):
                order = better_order(x) if x.parent is not None and is_join(x) else None
                if order is not None:
                    back = [order.index(d) for d in range(len(order))]
                    b = Builder(computation, scope)
                    computation.replace(x, b.transpose(_in_order(x, order, b), back))
                    changed = True
        return changed


@dataclass(frozen=True)
class Use:
    """How one product reads an operand: its dimensions by what they are, those of size 1 left out."""

    batch: tuple[int, ...]
    free: tuple[int, ...]
    contracting: tuple[int, ...]

    def orders(self) -> Iterator[tuple[int, ...]]:
        """Those in which it is a matrix, slowest first."""
        yield (*self.batch, *self.free, *self.contracting)
        yield (*self.batch, *self.contracting, *self.free)

    def reads(self, order: tuple[int, ...]) -> bool:
        """Without a copy, where the dimensions lie in this order."""
        if not order or order[-1] in self.batch:
            return not order
        return all(_is_run(run, order) for run in (self.free, self.contracting))


def _is_run(dims: tuple[int, ...], order: tuple[int, ...]) -> bool:
    start = order.index(dims[0]) if dims else 0
    return order[start : start + len(dims)] == dims


def is_join(x: HloInstruction) -> bool:
    """Its result lies in an array of its own, in which the order is free."""
    if is_annotated(x) or has_control_edges(x):
        return False
    return x.opcode is Opcode.CONCATENATE or (x.opcode is Opcode.ALL_GATHER and x.num_operands == 1)


def better_order(x: HloInstruction) -> tuple[int, ...] | None:
    """One of all dimensions that every product reads as it lies; None where there is none or it lies so already."""
    if x.is_root or not x.users:
        return None
    found = [
        use_of(x, user, side) for user in x.users for side, o in enumerate(user.operands) if o is x
    ]
    uses = [use for use in found if use is not None]
    present = tuple(d for d, n in enumerate(x.dims) if n != 1)
    if len(uses) < len(found) or all(use.reads(present) for use in uses):
        return None
    for use in uses:
        for order in use.orders():
            if all(other.reads(order) for other in uses):
                return (*(d for d in range(len(x.dims)) if d not in order), *order)
    return None


def use_of(x: HloInstruction, user: HloInstruction, side: int) -> Use | None:
    """None where ``user`` is no product."""
    if user.opcode is not Opcode.DOT or user.attrs_as(DotAttrs).extra:
        return None
    attrs = user.attrs_as(DotAttrs)
    sides = (attrs.lhs_batch, attrs.lhs_contracting), (attrs.rhs_batch, attrs.rhs_contracting)
    batch, contracting = sides[side]
    kinds = batch, free_dims(len(x.dims), batch, contracting), contracting
    return Use(*(tuple(d for d in dims if x.dims[d] != 1) for dims in kinds))


def _in_order(x: HloInstruction, order: tuple[int, ...], b: Builder) -> HloInstruction:
    """``x`` with its dimensions in this order, ``order[0]`` first; only joins are made anew for it."""
    if not is_join(x):
        return b.transpose(x, order)
    parts = [
        _in_order(part, order, b) if used_once(part) else b.transpose(part, order)
        for part in x.operands
    ]
    b.annotations = Annotations(metadata=x.annotations.metadata)
    if x.opcode is Opcode.CONCATENATE:
        return b.concatenate(parts, order.index(x.attrs_as(DimensionsAttrs).dimensions[0]))
    attrs = x.attrs_as(CollectiveAttrs)
    assert attrs.dimension is not None
    moved = replace(attrs, dimension=order.index(attrs.dimension))
    return b.create(Opcode.ALL_GATHER, parts, moved)
