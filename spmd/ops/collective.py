"""Collectives and point-to-point transfers, and their asynchronous halves."""

from __future__ import annotations

import math

from spmd.errors import ShapeError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ChannelAttrs, CollectiveAttrs
from spmd.ops.checks import (
    SCALAR_U32,
    TOKEN,
    bare,
    check_callees,
    check_dims,
    check_token,
    one_or_tuple,
    operand_array,
    plain,
    result_elements,
    same_type,
    scalar,
)
from spmd.ops.groups import group_size
from spmd.ops.in_place_permute import check_in_place, in_place
from spmd.ops.leaf import infer_free, infer_token
from spmd.ops.opdef import OpCost, SizeOf, always, define, no_bytes, not_counted
from spmd.ops.reshape import infer_operand
from spmd.shape import ArrayShape, Shape, TokenShape, TupleShape, as_array, as_tuple, leaves


def operand_shapes(instruction: HloInstruction) -> list[Shape]:
    if not instruction.num_operands:
        raise ShapeError(f"{instruction.opcode} needs an operand")
    return [plain(x.shape) for x in instruction.operands]


def infer_operands(instruction: HloInstruction) -> Shape:
    """Infer the results: as many as operands, of the same shapes."""
    return one_or_tuple(operand_shapes(instruction))


# ---- all-reduce
def verify_reduction(instruction: HloInstruction) -> None:
    check_callees(instruction, 1)
    parameters = instruction.to_apply.parameters
    if len(parameters) != 2 or not all(scalar(p.shape) for p in parameters):
        raise ShapeError(f"reducer {instruction.to_apply.name} must take two scalars")


def all_reduce_cost(instruction: HloInstruction) -> OpCost:
    """Count one combination per result element (XLA's assumption of two members)."""
    elements = sum(
        as_array(s).num_elements for _, s in leaves(instruction.shape) if isinstance(s, ArrayShape)
    )
    return OpCost(flops=float(elements))


def _members(instruction: HloInstruction) -> int | None:
    """Return ``group_size``. Raises ShapeError if the first group is empty, since no size can be divided by 0."""
    size = group_size(instruction)
    if size == 0:
        raise ShapeError("the first replica group has no members")
    return size


# ---- all-gather, reduce-scatter: one dimension grows or shrinks by the group's size
def _scaled(instruction: HloInstruction, grows: bool) -> list[Shape]:
    dimension = instruction.attrs_as(CollectiveAttrs).dimension
    if dimension is None:
        raise ShapeError(f"{instruction.opcode} needs a dimension")
    size = _members(instruction)
    shapes: list[Shape] = []
    for i in range(instruction.num_operands):
        operand = operand_array(instruction, i)
        check_dims((dimension,), operand.rank, "dimensions")
        factor = size if size is not None else _stated_factor(instruction, i, dimension, grows)
        shapes.append(_scale(operand, dimension, factor, grows))
    return shapes


def _stated_factor(instruction: HloInstruction, i: int, dimension: int, grows: bool) -> int:
    """Return the factor by which the written result ``i`` is larger (or smaller) than its operand: the group's size."""
    if isinstance(instruction.shape, TokenShape):
        raise ShapeError(
            "the size of the group is not known: state num_partitions, the groups or the result's shape"
        )
    results = result_elements(instruction.shape)
    if instruction.opcode is Opcode.ALL_GATHER_START:
        results = result_elements(results[-1])
    if i >= len(results):
        raise ShapeError(f"{instruction.num_operands} operands give {len(results)} results")
    operand, result = operand_array(instruction, i), as_array(results[i])
    if result.rank != operand.rank:
        raise ShapeError(f"the result {result} has another rank than the operand {operand}")
    small, large = operand.dims[dimension], result.dims[dimension]
    if not grows:
        small, large = large, small
    return max(1, large // max(1, small))


def _scale(shape: ArrayShape, dimension: int, size: int, grows: bool) -> ArrayShape:
    dims = list(shape.dims)
    if grows:
        dims[dimension] *= size
    elif dims[dimension] % size:
        raise ShapeError(f"a group of {size} cannot share out dimension {dimension} of {shape}")
    else:
        dims[dimension] //= size
    return bare(shape.element_type, dims)


def infer_all_gather(instruction: HloInstruction) -> Shape:
    operand_shapes(instruction)
    return one_or_tuple(_scaled(instruction, grows=True))


def infer_all_gather_start(instruction: HloInstruction) -> Shape:
    """Infer (operands, results), each a tuple if there are several."""
    return TupleShape(
        (one_or_tuple(operand_shapes(instruction)), one_or_tuple(_scaled(instruction, grows=True)))
    )


def infer_reduce_scatter(instruction: HloInstruction) -> Shape:
    operand_shapes(instruction)
    return one_or_tuple(_scaled(instruction, grows=False))


def reduce_scatter_cost(instruction: HloInstruction) -> OpCost:
    """Count one combination per operand element, as an all-reduce of the operand counts."""
    elements = sum(
        operand_array(instruction, i).num_elements for i in range(instruction.num_operands)
    )
    return OpCost(flops=float(elements))


# ---- all-to-all: an array cut along ``dimension``, or one operand per member and so many results, in a tuple
def infer_all_to_all(instruction: HloInstruction) -> Shape:
    shapes = operand_shapes(instruction)
    if instruction.attrs_as(CollectiveAttrs).dimension is None:
        return TupleShape(tuple(shapes))
    return one_or_tuple(shapes)


def verify_all_to_all(instruction: HloInstruction) -> None:
    attrs = instruction.attrs_as(CollectiveAttrs)
    parts = operand_shapes(instruction)
    if attrs.dimension is None and any(part != parts[0] for part in parts):
        raise ShapeError(
            f"members exchange operands of one shape, found {TupleShape(tuple(parts))}"
        )
    size = _members(instruction)
    if size is None:
        return
    if attrs.dimension is None:
        if instruction.num_operands != size:
            raise ShapeError(
                f"a group of {size} exchanges {size} operands, found {instruction.num_operands}"
            )
        return
    operand = operand_array(instruction, 0)
    check_dims((attrs.dimension,), operand.rank, "dimensions")
    if operand.dims[attrs.dimension] % size:
        raise ShapeError(
            f"a group of {size} cannot share out dimension {attrs.dimension} of {operand}"
        )


# ---- collective-permute: (values...), or in place (input, output, input starts, output starts) with slice_sizes
def infer_collective_permute(instruction: HloInstruction) -> Shape:
    if in_place(instruction):
        check_in_place(instruction)
        return plain(instruction.operand(1).shape)
    return infer_operands(instruction)


def verify_collective_permute_start(instruction: HloInstruction) -> None:
    """Check (input, output, contexts...)."""
    parts = as_tuple(instruction.shape).elements
    if len(parts) < 2:
        raise ShapeError("collective-permute-start gives (input, output, contexts...)")
    result = infer_collective_permute(instruction)
    source = plain(instruction.operand(0).shape) if in_place(instruction) else result
    for found, wanted in zip(parts, (source, result), strict=False):
        if not same_type(found, wanted):
            raise ShapeError(
                f"expected ({source}, {result}, contexts...), found {instruction.shape}"
            )


def infer_second_element(instruction: HloInstruction) -> Shape:
    """Infer the result part of a start's (operands, result, ...)."""
    parts = as_tuple(instruction.operand(0).shape).elements
    if len(parts) < 2:
        raise ShapeError(f"expected a start's (operand, result, ...), found {TupleShape(parts)}")
    return plain(parts[1])


def infer_ragged_all_to_all(instruction: HloInstruction) -> Shape:
    return plain(operand_array(instruction, 1))


def verify_ragged_all_to_all(instruction: HloInstruction) -> None:
    """Check (input, output, then offsets and sizes of sent and received rows, one per peer or a row per peer)."""
    source, target = operand_array(instruction, 0), operand_array(instruction, 1)
    if source.element_type is not target.element_type:
        raise ShapeError(f"{source} cannot be sent into {target}")
    first = operand_array(instruction, 2)
    if first.rank not in (1, 2) or not first.element_type.is_integer:
        raise ShapeError(f"offsets and sizes are integers of rank 1 or 2, found {first}")
    for i in range(3, instruction.num_operands):
        if not same_type(operand_array(instruction, i), first):
            raise ShapeError(
                f"offsets and sizes have one shape, found {first} and {instruction.operand(i).shape}"
            )


# ---- send, recv
def infer_send(instruction: HloInstruction) -> Shape:
    """Infer (data, context, token); XLA does not check the kind of the second operand."""
    return TupleShape((plain(instruction.operand(0).shape), SCALAR_U32, TOKEN))


def verify_recv(instruction: HloInstruction) -> None:
    check_token(instruction, 0)
    parts = as_tuple(instruction.shape).elements
    if len(parts) != 3 or parts[1:] != (SCALAR_U32, TOKEN):
        raise ShapeError("recv gives (data, context, token)")


def infer_recv_done(instruction: HloInstruction) -> Shape:
    parts = as_tuple(instruction.operand(0).shape).elements
    if len(parts) != 3:
        raise ShapeError("recv-done takes a recv's (data, context, token)")
    return TupleShape((plain(parts[0]), TOKEN))


def verify_channel(instruction: HloInstruction) -> None:
    instruction.attrs_as(ChannelAttrs)


def layout_constrained(instruction: HloInstruction) -> bool:
    """Return whether a collective must keep its position for external partners (XLA's constrain_layout)."""
    return isinstance(instruction.attrs, CollectiveAttrs) and instruction.attrs.constrain_layout


def sent_bytes(instruction: HloInstruction, size_of: SizeOf) -> float:
    return float(math.fsum(map(size_of, result_elements(instruction.shape))))


define(
    Opcode.ALL_REDUCE,
    infer_operands,
    None,
    verify_reduction,
    all_reduce_cost,
    applications=not_counted,
    side_effect=layout_constrained,
)
define(
    Opcode.ALL_REDUCE_START,
    infer_operands,
    None,
    verify_reduction,
    all_reduce_cost,
    applications=not_counted,
    side_effect=always,
)
define(Opcode.ALL_REDUCE_DONE, infer_operand, 1, bytes_accessed=no_bytes, side_effect=always)
define(Opcode.ALL_GATHER, infer_all_gather, None, side_effect=layout_constrained)
define(
    Opcode.ALL_GATHER_START,
    infer_all_gather_start,
    None,
    bytes_accessed=sent_bytes,
    side_effect=always,
)
define(Opcode.ALL_GATHER_DONE, infer_second_element, 1, bytes_accessed=no_bytes, side_effect=always)
define(
    Opcode.REDUCE_SCATTER,
    infer_reduce_scatter,
    None,
    verify_reduction,
    reduce_scatter_cost,
    applications=not_counted,
    side_effect=layout_constrained,
)
define(Opcode.ALL_TO_ALL, infer_all_to_all, None, verify_all_to_all, side_effect=layout_constrained)
define(
    Opcode.RAGGED_ALL_TO_ALL,
    infer_ragged_all_to_all,
    6,
    verify_ragged_all_to_all,
    side_effect=layout_constrained,
)
define(Opcode.COLLECTIVE_BROADCAST, infer_operands, None, side_effect=layout_constrained)
define(Opcode.COLLECTIVE_PERMUTE, infer_collective_permute, None)
define(
    Opcode.COLLECTIVE_PERMUTE_START,
    infer_free,
    None,
    verify_collective_permute_start,
    side_effect=always,
)
define(
    Opcode.COLLECTIVE_PERMUTE_DONE,
    infer_second_element,
    1,
    bytes_accessed=no_bytes,
    side_effect=always,
)
define(Opcode.SEND, infer_send, 2, verify_channel, side_effect=always)
define(
    Opcode.SEND_DONE, infer_token, 1, verify_channel, bytes_accessed=no_bytes, side_effect=always
)
define(Opcode.RECV, infer_free, 1, verify_recv, side_effect=always)
define(
    Opcode.RECV_DONE,
    infer_recv_done,
    1,
    verify_channel,
    bytes_accessed=no_bytes,
    side_effect=always,
)
