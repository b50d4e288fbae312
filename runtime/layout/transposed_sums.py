"""Sum gradients of filters over devices in the order in which they are written."""

from __future__ import annotations

from spmd.builder import Builder
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import CollectiveAttrs, DimensionsAttrs, TupleIndexAttrs
from spmd.passes.rewrite import is_pinned


def sum_before_transposing(x: HloInstruction, b: Builder) -> bool:
    """Rewrite an all-reduce of several arrays that reads transposes of convolutions. Returns whether ``x`` is one.

        t = f32[3,3,4,5] transpose(f), dimensions={1,2,3,0}
        s = (f32[3,3,4,5], ..) all-reduce(t, ..)
        d = f32[3,3,4,5] get-tuple-element(s), index=0
              =>  s = (f32[5,3,3,4], ..) all-reduce(f, ..)
                  e = f32[5,3,3,4] get-tuple-element(s), index=0
                  d = f32[3,3,4,5] transpose(e), dimensions={1,2,3,0}

    A collective takes arrays without gaps, so each transpose would be copied. (The order of an all-reduce of one array
    is chosen with all other orders.)
    """
    moved = {n: y for n, y in enumerate(x.operands) if _is_transposed_convolution(y)}
    if (
        x.num_operands < 2
        or not moved
        or is_pinned(x)
        or x.attrs_as(CollectiveAttrs).constrain_layout
        or not all(user.opcode is Opcode.GET_TUPLE_ELEMENT for user in x.users)
    ):
        return False
    operands = [y.operand(0) if n in moved else y for n, y in enumerate(x.operands)]
    made = b.create(Opcode.ALL_REDUCE, operands, x.attrs, calls=x.called_computations)
    made.annotations = x.annotations
    assert x.parent is not None
    for user in list(x.users):
        index = user.attrs_as(TupleIndexAttrs).index
        element = b.get_tuple_element(made, index)
        if index in moved:
            order = moved[index].attrs_as(DimensionsAttrs).dimensions
            element = b.transpose(element, order)
        x.parent.replace(user, element)
    x.parent.remove(x)
    return True


def _is_transposed_convolution(x: HloInstruction) -> bool:
    return (
        x.opcode is Opcode.TRANSPOSE
        and x.num_users == 1
        and x.operand(0).opcode is Opcode.CONVOLUTION
    )
