"""Rules that rewrite an operation with its dimensions in another order, which normalizes its layout.

    s = f32[4,6]{0,1} add(a, b)    =>    t = f32[6,4] add(f32[6,4] transpose(a), f32[6,4] transpose(b))
                                         s = f32[4,6] transpose(t)

A rule returns the operation with the dimensions of its result permuted to ``order``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from runtime import emit as _emit  # noqa: F401 - fills the table of lowerings
from runtime.emit.elementwise import is_elementwise
from runtime.layout.orders import is_row_major, memory_order, refilled, row_major
from runtime.lowering import Order
from runtime.program.strides import StridedView
from spmd.builder import Builder
from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.instruction import Annotations
from spmd.ops.attrs import CollectiveAttrs, DimensionsAttrs, DynamicSliceAttrs, PadAttrs
from spmd.ops.opdef import OPS
from spmd.ops.reduction import reduction_kind
from spmd.passes.rewrite import is_annotated
from spmd.registry import Registry
from spmd.shape import ArrayShape

#: Rule: function (instruction, order of its result, views of its operands, builder) that returns the operation with its
#: dimensions permuted.
Permute: TypeAlias = Callable[
    [HloInstruction, Order, tuple[StridedView, ...], Builder], HloInstruction
]

PERMUTED: Registry[Opcode, Permute] = Registry("operation in another order of dimensions")

#: Collectives whose operand must be contiguous and in the order of the result.
COLLECTIVES = (
    Opcode.ALL_REDUCE,
    Opcode.ALL_GATHER,
    Opcode.REDUCE_SCATTER,
    Opcode.COLLECTIVE_PERMUTE,
    Opcode.COLLECTIVE_BROADCAST,
)


def can_permute(x: HloInstruction) -> bool:
    """Return whether ``x`` may be rewritten by a rule: it has one, and only its readers depend on its layout."""
    if x.opcode not in PERMUTED or not isinstance(x.shape, ArrayShape) or len(x.dims) < 2:
        return False
    if not is_free(x):
        return False
    if isinstance(x.attrs, CollectiveAttrs) and x.attrs.constrain_layout:
        return False
    if x.opcode in COLLECTIVES:
        return x.num_operands == 1
    return x.opcode is not Opcode.REDUCE or x.num_operands == 2


def is_free(x: HloInstruction) -> bool:
    """Return whether another instruction may replace ``x``.

    It may unless ``x`` is a root, has control edges, annotations, or a layout with a suffix.
    """
    if x.is_root or x.has_control_edges or is_annotated(x):
        return False
    layout = x.array_shape.layout
    return layout is None or not layout.suffix


def in_order(x: HloInstruction, order: Order, b: Builder) -> HloInstruction:
    """Return ``x`` with its dimensions permuted to ``order``: a transpose, or ``x`` if ``order`` is row-major."""
    if is_row_major(order):
        return x
    if x.opcode is Opcode.TRANSPOSE:
        inner = x.attrs_as(DimensionsAttrs).dimensions
        return in_order(x.operand(0), tuple(inner[d] for d in order), b)
    return b.transpose(x, order)


def permute(
    x: HloInstruction, order: Order, views: tuple[StridedView, ...], b: Builder
) -> HloInstruction:
    """Return a transpose, with the dimensions of ``x``, of the operation of ``x`` written in ``order``.

    views: views of the array operands.
    """
    b.annotations = Annotations(metadata=x.annotations.metadata)
    written = PERMUTED[x.opcode](x, order, views, b)
    written.annotations = x.annotations
    return in_order(written, tuple(order.index(d) for d in range(len(order))), b)


def elementwise(
    x: HloInstruction, order: Order, _: tuple[StridedView, ...], b: Builder
) -> HloInstruction:
    """Permute an elementwise operation and its operands, except scalars that are not broadcast."""
    operands = [in_order(o, order, b) if o.dims == x.dims else o for o in x.operands]
    shape = x.array_shape.without_layout().with_dims(tuple(x.dims[d] for d in order))
    return b.create(x.opcode, operands, x.attrs, shape=shape)


for _opcode in list(OPS):
    if is_elementwise(_opcode):
        PERMUTED.add(_opcode, elementwise)


@PERMUTED.register(Opcode.CONCATENATE)
def concatenate(
    x: HloInstruction, order: Order, _: tuple[StridedView, ...], b: Builder
) -> HloInstruction:
    """Permute a concatenation and its operands."""
    (dimension,) = x.attrs_as(DimensionsAttrs).dimensions
    return b.concatenate([in_order(o, order, b) for o in x.operands], order.index(dimension))


@PERMUTED.register(Opcode.PAD)
def pad(x: HloInstruction, order: Order, _: tuple[StridedView, ...], b: Builder) -> HloInstruction:
    """Permute a pad and its operand."""
    attrs = x.attrs_as(PadAttrs)
    low, high, interior = (
        tuple(sizes[d] for d in order) for sizes in (attrs.low, attrs.high, attrs.interior)
    )
    operands = (in_order(x.operand(0), order, b), x.operand(1))
    return b.create(Opcode.PAD, operands, PadAttrs(low, high, interior))


@PERMUTED.register(Opcode.DYNAMIC_SLICE)
def dynamic_slice(
    x: HloInstruction, order: Order, _: tuple[StridedView, ...], b: Builder
) -> HloInstruction:
    """Permute a dynamic slice, its operand and its starts."""
    sizes = x.attrs_as(DynamicSliceAttrs).sizes
    starts = x.operands[1:]
    source = in_order(x.operand(0), order, b)
    attrs = DynamicSliceAttrs(tuple(sizes[d] for d in order))
    return b.create(Opcode.DYNAMIC_SLICE, (source, *(starts[d] for d in order)), attrs)


@PERMUTED.register(Opcode.DYNAMIC_UPDATE_SLICE)
def dynamic_update_slice(
    x: HloInstruction, order: Order, _: tuple[StridedView, ...], b: Builder
) -> HloInstruction:
    """Permute a dynamic update slice, its two arrays and its starts."""
    source, update, *starts = x.operands
    arrays = (in_order(source, order, b), in_order(update, order, b))
    return b.create(Opcode.DYNAMIC_UPDATE_SLICE, (*arrays, *(starts[d] for d in order)), x.attrs)


@PERMUTED.register(Opcode.REDUCE)
def reduce(
    x: HloInstruction, order: Order, views: tuple[StridedView, ...], b: Builder
) -> HloInstruction:
    """Permute a reduce and its operand. The operand's order is that of ``operand_order``."""
    reduced = x.attrs_as(DimensionsAttrs).dimensions
    wanted = operand_order(x, order, views[0])
    source = in_order(x.operand(0), wanted, b)
    dimensions = tuple(sorted(wanted.index(d) for d in reduced))
    shape = x.array_shape.without_layout().with_dims(tuple(x.dims[d] for d in order))
    return b.create(
        Opcode.REDUCE,
        (source, x.operand(1)),
        DimensionsAttrs(dimensions),
        shape=shape,
        calls=x.called_computations,
    )


def operand_order(x: HloInstruction, order: Order, view: StridedView) -> Order:
    """Return the operand order with the best memory access, for a reduce that writes its result in ``order``.

    view: view of the operand. Reduced dimensions keep their logical order if the reducer is no known reduction, since
    its result may depend on the order of the elements. Otherwise they have the positions of the memory order.
    """
    full_order = refilled(row_major(len(view.dims)), memory_order(view))
    if reduction_kind(x.to_apply) is None:
        full_order = refilled(full_order, sorted(x.attrs_as(DimensionsAttrs).dimensions))
    return refilled(full_order, (unreduced_dims(x)[d] for d in order))


def unreduced_dims(x: HloInstruction) -> Order:
    """Return, for each dimension of the result of the reduce ``x``, the dimension of its operand."""
    reduced = x.attrs_as(DimensionsAttrs).dimensions
    return tuple(d for d in range(len(x.operand(0).dims)) if d not in reduced)


@PERMUTED.register(*COLLECTIVES)
def collective(
    x: HloInstruction, order: Order, _: tuple[StridedView, ...], b: Builder
) -> HloInstruction:
    """Permute a collective with one operand, and the dimension along which it splits or concatenates."""
    attrs = x.attrs
    if isinstance(attrs, CollectiveAttrs) and attrs.dimension is not None:
        attrs = replace(attrs, dimension=order.index(attrs.dimension))
    shape = x.array_shape.without_layout().with_dims(tuple(x.dims[d] for d in order))
    return b.create(
        x.opcode,
        (in_order(x.operand(0), order, b),),
        attrs,
        shape=shape,
        calls=x.called_computations,
    )
