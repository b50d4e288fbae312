"""Results that can use the memory of parameters that their caller has donated."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import BufferDonor, HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import TupleIndexAttrs
from spmd.ops.checks import plain
from spmd.shape import ArrayShape, ShapeIndex, leaves
from spmd.sharding import HloSharding


@dataclass(frozen=True, slots=True)
class _Leaf:
    """An array of a parameter or of the result. ``source``: the instruction that makes it, and its index in that."""

    shape: ArrayShape
    sharding: HloSharding | None
    source: tuple[HloInstruction, ShapeIndex]


def match_donors(module: HloModule) -> Iterator[tuple[BufferDonor, ShapeIndex]]:
    """Yield each donor with the index of the result that reuses its memory. Donors without a fitting result are left
    out.
    """
    taken = {alias.output_index for alias in module.input_output_alias}
    aliased = {(a.parameter, a.parameter_index) for a in module.input_output_alias}
    results = {i: leaf for i, leaf in array_leaves(module.entry.root).items() if i not in taken}
    given = [array_leaves(parameter) for parameter in module.entry.parameters]
    donors = {
        donor: given[donor.parameter][donor.parameter_index]
        for donor in module.buffer_donors
        if (donor.parameter, donor.parameter_index) not in aliased
        and donor.parameter_index in given[donor.parameter]
    }
    for key in (_itself, _tile, _shape):
        free: defaultdict[Hashable, deque[ShapeIndex]] = defaultdict(deque)
        for index, leaf in results.items():
            free[key(leaf)].append(index)
        for donor, leaf in tuple(donors.items()):
            if fitting := free[key(leaf)]:
                index = fitting.popleft()
                del results[index], donors[donor]
                yield donor, index


def array_leaves(x: HloInstruction) -> dict[ShapeIndex, _Leaf]:
    """Return the arrays of an instruction's value by their index in its shape."""
    found = list(leaves(x.shape))
    shardings: Sequence[HloSharding | None] = (None,) * len(found)
    if x.sharding is not None:
        shardings = x.sharding.leaf_shardings(x.shape)
    return {
        index: _Leaf(shape, sharding, _source(x, index))
        for (index, shape), sharding in zip(found, shardings, strict=True)
        if isinstance(shape, ArrayShape)
    }


def _source(x: HloInstruction, index: ShapeIndex) -> tuple[HloInstruction, ShapeIndex]:
    while True:
        if x.opcode is Opcode.TUPLE and index:
            x, index = x.operand(index[0]), index[1:]
        elif x.opcode is Opcode.GET_TUPLE_ELEMENT:
            x, index = x.operand(0), (x.attrs_as(TupleIndexAttrs).index, *index)
        else:
            return x, index


def _itself(leaf: _Leaf) -> Hashable:
    return leaf.source


def _tile(leaf: _Leaf) -> Hashable:
    return _shape(leaf), leaf.sharding


def _shape(leaf: _Leaf) -> Hashable:
    return plain(leaf.shape), leaf.shape.memory_space
