"""Sorts of which only the first elements are read become topk."""

from __future__ import annotations

from typing import ClassVar

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.evaluator.sort_keys import SortKey, expression_nodes, match_sort_keys
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops import definition
from spmd.ops.attrs import (
    DimensionsAttrs,
    GatherAttrs,
    IotaAttrs,
    ParameterAttrs,
    SliceAttrs,
    SortAttrs,
    TopKAttrs,
    TupleIndexAttrs,
)
from spmd.ops.reduction import through_annotations
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.on_arrays import on_arrays
from spmd.passes.rewrite import (
    builder_at,
    copy_annotation,
    is_pinned,
    replace_and_prune,
)

#: At least so many times the elements that are read. A topk of more takes as long as the sort, and has gathers besides.
_LEAST_REST = 2


@register_pass
@dataclass(frozen=True)
class TopkRewriter(InstructionPass):
    """slice(sort(x, iota, y), [0:k])  =>  (values, positions) = topk(x), k=k; positions; gather(y, positions)

    for a comparator that orders by one value of x, then at most by the position. Every sort here is stable, and so is
    topk. Its order is the total order, so that the value is a key that is made of x: of zeros that the comparator takes
    for equal, +0. Then the values are gathered too.
    """

    name: ClassVar[str] = "topk-rewriter"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.SORT,)

    def editor(self, module: HloModule) -> Edit:
        scope, effects = ModuleScope(module), SideEffects()

        def edit(x: HloInstruction) -> bool:
            match = match_first_elements(x)
            if match is None:
                return False
            replace_with_topk(match, builder_at(x, scope), effects)
            return True

        return edit


@dataclass(frozen=True)
class FirstElements:
    """A ``sort`` of which only the first ``count`` elements are read: ``slices[n]`` of its result number ``n``.

    The order is that of ``key`` of operand ``number``.
    """

    sort: HloInstruction
    count: int
    slices: dict[int, list[HloInstruction]]
    key: SortKey
    number: int


def match_first_elements(sort: HloInstruction) -> FirstElements | None:
    """Return what is read of a sort whose first elements alone are read; None for any other."""
    dimension = sort.attrs_as(SortAttrs).dimension
    slices = _slices(sort)
    key = _only_key(sort, dimension)
    if slices is None or key is None or is_pinned(sort):
        return None
    read = [x for of_one in slices.values() for x in of_one]
    for x in read:
        attrs = x.attrs_as(SliceAttrs)
        if x.has_control_edges or attrs.starts[dimension] != 0 or attrs.strides[dimension] != 1:
            return None
    count = max((x.attrs_as(SliceAttrs).limits[dimension] for x in read), default=0)
    size = sort.operand(0).dims[dimension]
    if not count or 0 in sort.operand(0).dims or count * _LEAST_REST > size:
        return None
    return FirstElements(sort, count, slices, key, _operand_of(key))


def _slices(sort: HloInstruction) -> dict[int, list[HloInstruction]] | None:
    """Return the readers of each result that has any; None if one of them is no slice."""
    parts = {0: [sort]} if sort.num_operands == 1 else _elements(sort)
    if parts is None:
        return None
    found: dict[int, list[HloInstruction]] = {}
    for number, values in parts.items():
        for value in values:
            if value.is_root or any(user.opcode is not Opcode.SLICE for user in value.users):
                return None
            found.setdefault(number, []).extend(value.users)
    return found


def _elements(sort: HloInstruction) -> dict[int, list[HloInstruction]] | None:
    found: dict[int, list[HloInstruction]] = {}
    for user in sort.users:
        if user.opcode is not Opcode.GET_TUPLE_ELEMENT or is_pinned(user):
            return None
        found.setdefault(user.attrs_as(TupleIndexAttrs).index, []).append(user)
    return None if sort.is_root else found


def _only_key(sort: HloInstruction, dimension: int) -> SortKey | None:
    """Return the key that alone, besides positions, decides the order; None if no array can hold it."""
    keys = match_sort_keys(sort.to_apply)
    if keys is None or not _is_elementwise(keys[0].expression):
        return None
    if len(keys) > 1 and not _is_position(keys[1], sort, dimension):
        return None
    kind = keys[0].expression.array_shape.element_type
    ordered = kind.byte_size > 1 if kind.is_floating else kind.is_integer and kind.bits >= 8
    return keys[0] if ordered and len(_parameters(keys[0].expression)) == 1 else None


def _is_position(key: SortKey, sort: HloInstruction, dimension: int) -> bool:
    """Return whether `key` is an operand that counts upwards along `dimension`, so that no two elements are equal."""
    expression = through_annotations(key.expression)
    if expression.opcode is not Opcode.PARAMETER or key.descending:
        return False
    return counts_along(sort.operand(expression.attrs_as(ParameterAttrs).number // 2), dimension)


def counts_along(x: HloInstruction, dimension: int) -> bool:
    """Return whether the integers `x` are the positions along `dimension`."""
    kind = x.array_shape.element_type
    sign = 1 if kind.is_signed_integer else 0
    if not kind.is_integer or (x.dims[dimension] - 1) >> (kind.bits - sign):
        return False
    if x.opcode is Opcode.IOTA:
        return x.attrs_as(IotaAttrs).dimension == dimension
    if x.opcode is Opcode.BROADCAST and dimension in x.attrs_as(DimensionsAttrs).dimensions:
        inner = x.attrs_as(DimensionsAttrs).dimensions.index(dimension)
        return counts_along(x.operand(0), inner)
    return False


def _parameters(expression: HloInstruction) -> list[int]:
    return [
        x.attrs_as(ParameterAttrs).number // 2
        for x in expression_nodes(expression)
        if x.opcode is Opcode.PARAMETER
    ]


def _operand_of(key: SortKey) -> int:
    (number,) = _parameters(key.expression)
    return number


def _is_elementwise(expression: HloInstruction) -> bool:
    return all(
        through_annotations(x) is not x
        or x.opcode in (Opcode.PARAMETER, Opcode.CONSTANT, Opcode.BITCAST_CONVERT)
        or (definition(x.opcode).elementwise and not x.called_computations)
        for x in expression_nodes(expression)
    )


def replace_with_topk(match: FirstElements, b: Builder, effects: SideEffects) -> None:
    """Replace the slices that read the sort by slices of topk's results, and of gathers at the positions it finds."""
    sort, dimension = match.sort, match.sort.attrs_as(SortAttrs).dimension
    source = sort.operand(match.number)
    key = _key_array(match.key, source, b)
    last = [*(d for d in range(len(key.dims)) if d != dimension), dimension]
    moved = dimension != len(last) - 1
    attrs = TopKAttrs(match.count, largest=match.key.descending)
    found = b.create(Opcode.TOPK, (b.transpose(key, last) if moved else key,), attrs)
    positions = b.get_tuple_element(found, 1)
    values = {}
    for result in match.slices:
        operand = sort.operand(result)
        if operand is source and key is source:
            value = b.get_tuple_element(found, 0)
        elif counts_along(operand, dimension):
            value = b.as_type(positions, operand.array_shape.element_type)
        else:
            value = gather_along(b, operand, positions, dimension)
        order = [last.index(d) for d in range(len(last))]
        values[result] = b.transpose(value, order) if moved else value
    for result, slices in match.slices.items():
        for x in slices:
            taken = x.attrs_as(SliceAttrs)
            part = b.slice(values[result], taken.starts, taken.limits, taken.strides)
            copy_annotation(x, part)
            replace_and_prune(x, part, effects)


def _key_array(key: SortKey, source: HloInstruction, b: Builder) -> HloInstruction:
    """Return the key of every element of `source`; where zeros are equal, +0 for both."""
    nodes = expression_nodes(key.expression)
    parameters = {x: source for x in nodes if x.opcode is Opcode.PARAMETER}
    values = on_arrays(nodes, parameters, b)[key.expression]
    if key.total_order or not values.array_shape.element_type.is_floating:
        return values
    zero = b.full(values.array_shape.without_layout(), 0)
    return b.select(b.compare(values, zero, "EQ"), zero, values)


def gather_along(
    b: Builder, x: HloInstruction, positions: HloInstruction, dimension: int
) -> HloInstruction:
    """Return what lies at `positions` along `dimension` of `x`, in the dimensions of `positions`: that one is last."""
    rank = len(x.dims)
    attrs = GatherAttrs(
        offset_dims=(),
        collapsed_slice_dims=(dimension,),
        start_index_map=(dimension,),
        index_vector_dim=rank,
        slice_sizes=(1,) * rank,
        operand_batching_dims=tuple(d for d in range(rank) if d != dimension),
        start_indices_batching_dims=tuple(range(rank - 1)),
    )
    return b.create(Opcode.GATHER, (x, positions), attrs)
