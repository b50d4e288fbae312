"""Layouts of the results of attention fusions, whose kernels write blocks with any strides."""

from __future__ import annotations

from runtime.layout.permuted import in_order, is_free
from runtime.lowering import Order
from spmd.analysis.fusion_emitter import is_attention
from spmd.builder import Builder, ModuleScope
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import TupleIndexAttrs
from spmd.shape import ArrayShape


def is_attention_result(x: HloInstruction) -> bool:
    """Return whether ``x`` is a result of an attention fusion whose dimension order may be chosen.

    It is the fusion itself, or the only get-tuple-element that reads the result.
    """
    if not isinstance(x.shape, ArrayShape) or not is_free(x):
        return False
    if x.opcode is not Opcode.GET_TUPLE_ELEMENT:
        return is_attention(x)
    fusion = x.operand(0)
    if not is_attention(fusion) or fusion.is_root:
        return False
    return all(
        user.opcode is Opcode.GET_TUPLE_ELEMENT and (user is x or _index(user) != _index(x))
        for user in fusion.users
    )


def write_in_order(x: HloInstruction, order: Order, scope: ModuleScope) -> None:
    """Let the attention fusion transpose its result ``x`` to ``order``, and readers see a transpose of that.

    o = f32[2,3,16,8] fusion(q, k, v)   =>   t = f32[2,16,3,8] fusion(q, k, v)  (its root is a transpose)
                                             o = f32[2,3,16,8] transpose(t)
    """
    assert x.parent is not None
    fusion = x.operand(0) if x.opcode is Opcode.GET_TUPLE_ELEMENT else x
    fused = fusion.to_apply
    b, root = Builder(fused, scope), fused.root
    if x is fusion:
        fused.root = in_order(root, order, b)
    else:
        results = list(root.operands)
        results[_index(x)] = in_order(results[_index(x)], order, b)
        fused.root = b.tuple(results)
        fused.remove(root)
    x.shape = x.array_shape.without_layout().with_dims(tuple(x.dims[d] for d in order))
    fusion.shape = fused.root.shape
    back = tuple(order.index(d) for d in range(len(order)))
    x.replace_all_uses_with(in_order(x, back, Builder(x.parent, scope)))


def _index(element: HloInstruction) -> int:
    """Return the index of the tuple element that ``element`` reads."""
    return element.attrs_as(TupleIndexAttrs).index
