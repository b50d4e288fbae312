"""Matrix products: dot, ragged-dot, scaled-dot.

    f32[b,m,n] dot(f32[b,m,k] lhs, f32[b,k,n] rhs), lhs_batch_dims={0}, rhs_batch_dims={0},
        lhs_contracting_dims={2}, rhs_contracting_dims={1}

The result's dimensions are the batch dimensions, the free ones of lhs, the free ones of rhs. Its element type may
differ from the operands' (preferred accumulation type): it is part of the instruction.
"""

from __future__ import annotations

import math

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import DotAttrs, RaggedDotAttrs
from spmd.ops.checks import bare, check_dims, operand_array, set_text, stated_element_type
from spmd.ops.opdef import OpCost, define
from spmd.shape import ArrayShape, PrimitiveType, Shape


def free_dims(rank: int, *used: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions that are neither batch nor contracting, ascending."""
    taken = {d for dims in used for d in dims}
    return tuple(d for d in range(rank) if d not in taken)


def dot_sizes(dot: HloInstruction) -> tuple[int, tuple[int, int, int]]:
    """Return the batch size of ``dot`` and the sizes (m, k, n) of each product."""
    attrs, (lhs, rhs) = dot.attrs_as(DotAttrs), (y.dims for y in dot.operands[:2])

    def product(dims: tuple[int, ...], chosen: tuple[int, ...]) -> int:
        return math.prod(dims[d] for d in chosen)

    m = product(lhs, free_dims(len(lhs), attrs.lhs_batch, attrs.lhs_contracting))
    n = product(rhs, free_dims(len(rhs), attrs.rhs_batch, attrs.rhs_contracting))
    return product(lhs, attrs.lhs_batch), (m, product(lhs, attrs.lhs_contracting), n)


def infer_dot(instruction: HloInstruction) -> Shape:
    lhs, rhs = operand_array(instruction, 0), operand_array(instruction, 1)
    attrs = instruction.attrs_as(DotAttrs)
    element_type = stated_element_type(instruction, promoted(lhs.element_type, rhs.element_type))
    return bare(element_type, dot_dims(lhs, rhs, attrs))


def dot_dims(lhs: ArrayShape, rhs: ArrayShape, attrs: DotAttrs) -> tuple[int, ...]:
    """Return the result's sizes. Raises ShapeError if batch or contracting sizes differ."""
    check_dims(
        attrs.lhs_batch + attrs.lhs_contracting, lhs.rank, "lhs batch and contracting dimensions"
    )
    check_dims(
        attrs.rhs_batch + attrs.rhs_contracting, rhs.rank, "rhs batch and contracting dimensions"
    )
    _check_sizes(lhs, attrs.lhs_batch, rhs, attrs.rhs_batch, "batch")
    _check_sizes(lhs, attrs.lhs_contracting, rhs, attrs.rhs_contracting, "contracting")
    lhs_free = free_dims(lhs.rank, attrs.lhs_batch, attrs.lhs_contracting)
    rhs_free = free_dims(rhs.rank, attrs.rhs_batch, attrs.rhs_contracting)
    return (
        *(lhs.dims[d] for d in attrs.lhs_batch),
        *(lhs.dims[d] for d in lhs_free),
        *(rhs.dims[d] for d in rhs_free),
    )


def _check_sizes(
    lhs: ArrayShape,
    lhs_dims: tuple[int, ...],
    rhs: ArrayShape,
    rhs_dims: tuple[int, ...],
    what: str,
) -> None:
    left, right = [lhs.dims[d] for d in lhs_dims], [rhs.dims[d] for d in rhs_dims]
    if left != right:
        raise ShapeError(
            f"{what} sizes differ: lhs dimensions {set_text(lhs_dims)} are {left}, "
            f"rhs dimensions {set_text(rhs_dims)} are {right}"
        )


def promoted(a: PrimitiveType, b: PrimitiveType) -> PrimitiveType:
    """Return the wider of two types of one kind; the first if they are equally wide."""
    return b if b.bits > a.bits else a


def kind_of(t: PrimitiveType) -> str:
    if t.is_complex:
        return "complex"
    return "float" if t.is_floating else "integer"


_KINDS = ("integer", "float", "complex")


def verify_product(instruction: HloInstruction) -> None:
    """Check that the result's kind of number holds the operands': integers may be multiplied into floating-point
    numbers.
    """
    lhs, rhs = (operand_array(instruction, i).element_type for i in (0, 1))
    result = instruction.array_shape.element_type
    if max(_KINDS.index(kind_of(t)) for t in (lhs, rhs)) > _KINDS.index(kind_of(result)):
        raise ShapeError(f"cannot multiply {lhs} by {rhs} into {result}")


def dot_cost(instruction: HloInstruction) -> OpCost:
    lhs = operand_array(instruction, 0)
    depth = math.prod(lhs.dims[d] for d in instruction.attrs_as(DotAttrs).lhs_contracting)
    return OpCost(flops=2.0 * instruction.array_shape.num_elements * depth)


# ---- ragged-dot: one dimension of lhs is cut into groups, each with its own slice of rhs
def infer_ragged_dot(instruction: HloInstruction) -> Shape:
    lhs, rhs, sizes = (operand_array(instruction, i) for i in range(3))
    attrs = instruction.attrs_as(RaggedDotAttrs)
    if len(attrs.lhs_ragged_dims) != 1:
        raise ShapeError("ragged-dot has one lhs_ragged_dims entry")
    check_dims(attrs.lhs_ragged_dims, lhs.rank, "lhs_ragged_dims")
    check_dims(attrs.rhs_group_dims, rhs.rank, "rhs_group_dims")
    _check_group_sizes(lhs, sizes, attrs)
    ragged, groups = attrs.lhs_ragged_dims[0], sizes.dims[-1]
    free = ragged not in attrs.dot.lhs_batch + attrs.dot.lhs_contracting
    if len(attrs.rhs_group_dims) != free:
        raise ShapeError(
            f"a ragged {'free' if free else 'batch or contracting'} dimension of lhs needs "
            f"{int(free)} rhs_group_dims, found {len(attrs.rhs_group_dims)}"
        )
    if any(rhs.dims[d] != groups for d in attrs.rhs_group_dims):
        raise ShapeError(
            f"rhs group dimension must have the number of groups {groups}, found {rhs}"
        )
    remaining = free_dims(rhs.rank, attrs.rhs_group_dims)
    number = {d: i for i, d in enumerate(remaining)}
    squeezed = bare(rhs.element_type, (rhs.dims[d] for d in remaining))
    try:
        plain = DotAttrs(
            attrs.dot.lhs_contracting,
            tuple(number[d] for d in attrs.dot.rhs_contracting),
            attrs.dot.lhs_batch,
            tuple(number[d] for d in attrs.dot.rhs_batch),
        )
    except KeyError as error:
        raise ShapeError("a group dimension of rhs is neither batch nor contracting") from error
    dims = dot_dims(lhs, squeezed, plain)
    if ragged in attrs.dot.lhs_contracting:
        dims = (groups, *dims)
    return bare(
        stated_element_type(instruction, promoted(lhs.element_type, rhs.element_type)), dims
    )


def group_prefix(lhs_rank: int, attrs: RaggedDotAttrs) -> tuple[int, ...]:
    """Return the dimensions of lhs that group_sizes may have before the groups.

    They are the batch dimensions and those of the ragged dimension's own kind, up to the ragged one.
    """
    (ragged,) = attrs.lhs_ragged_dims
    dot = attrs.dot
    if ragged in dot.lhs_batch:
        return dot.lhs_batch[: dot.lhs_batch.index(ragged)]
    free = free_dims(lhs_rank, dot.lhs_batch, dot.lhs_contracting)
    same = dot.lhs_contracting if ragged in dot.lhs_contracting else free
    return (*dot.lhs_batch, *same[: same.index(ragged)])


def _check_group_sizes(lhs: ArrayShape, sizes: ArrayShape, attrs: RaggedDotAttrs) -> None:
    """Check that sizes are [groups], or the sizes of ``group_prefix`` and then the groups."""
    if not sizes.element_type.is_integer:
        raise ShapeError(f"group sizes are integers, found {sizes}")
    prefix = tuple(lhs.dims[d] for d in group_prefix(lhs.rank, attrs))
    if sizes.rank != 1 and (sizes.rank == 0 or sizes.dims[:-1] != prefix):
        wanted = ",".join(map(str, (*prefix, "groups")))
        raise ShapeError(f"group sizes must be [groups] or [{wanted}], found {sizes}")


def ragged_dot_cost(instruction: HloInstruction) -> OpCost:
    """Count the work of the dense product without the group dimension: each row belongs to one group."""
    lhs, attrs = operand_array(instruction, 0), instruction.attrs_as(RaggedDotAttrs)
    depth = math.prod(lhs.dims[d] for d in attrs.dot.lhs_contracting)
    elements = instruction.array_shape.num_elements
    if attrs.lhs_ragged_dims[0] in attrs.dot.lhs_contracting:
        elements //= max(1, instruction.dims[0])
    return OpCost(flops=2.0 * elements * depth)


# ---- scaled-dot: operands lhs, rhs, and a block scale for each
def verify_scaled_dot(instruction: HloInstruction) -> None:
    for value, scale in ((0, 2), (1, 3)):
        x, s = operand_array(instruction, value), operand_array(instruction, scale)
        if s.rank == 0:
            continue
        if s.rank != x.rank or any(a % b for a, b in zip(x.dims, s.dims, strict=True) if b):
            raise ShapeError(f"the scale {s} does not divide {x} into blocks")


define(Opcode.DOT, infer_dot, 2, verify_product, dot_cost)
define(Opcode.RAGGED_DOT, infer_ragged_dot, 3, verify_product, ragged_dot_cost)
define(Opcode.SCALED_DOT, infer_dot, 4, verify_scaled_dot, dot_cost)
