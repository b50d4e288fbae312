"""Calls of fused attention, forward and backward, with masks, biases, windows and heads in groups."""

from __future__ import annotations

import json

from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.instruction import Annotations
from spmd.ops.attrs import CustomCallAttrs
from spmd.shape import ArrayShape, PrimitiveType, TupleShape
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_MASKS = ("NO_MASK", "CAUSAL", "PADDING", "PADDING_CAUSAL")
_WORKSPACE = ArrayShape(PrimitiveType.U8, (4,))


@trigger("attention-expander", finite="the largest of infinite scores is subtracted from them")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    call = _call(p)
    count = len(call.shape.elements) if isinstance(call.shape, TupleShape) else 0
    return p.module(*(p.after(p.b.get_tuple_element(call, i)) for i in range(count - 1)))


def _call(p: Program) -> HloInstruction:
    kind = p.choose((PrimitiveType.F32, PrimitiveType.F64))
    b, g, repeats, s, t, d, e = (p.integer(1, 3) for _ in range(7))
    h, mask, is_backward, has_bias = g * repeats, p.choose(_MASKS), p.chance(), p.chance()
    heads_first = p.chance()

    def heads(count: int, length: int, size: int) -> HloInstruction:
        dims = (count, length) if heads_first else (length, count)
        return p.value(kind, (b, *dims, size))

    bias_dims = (p.choose((1, b)), p.choose((1, h)), s, t)
    bias = [p.value(kind, bias_dims)] if has_bias else []
    operands = [heads(h, s, d), heads(g, t, d), heads(g, t, e)]
    if is_backward:
        statistics = p.value(PrimitiveType.F32, (b, h, s))
        operands += [statistics, heads(h, s, e), *bias, heads(h, s, e)]
        results = [(b, h, s, d), (b, g, t, d), (b, g, t, e), *[bias_dims] * has_bias]
    else:
        operands += bias
        results = [(b, h, s, e)]
    if "PADDING" in mask:
        operands += [p.value(PrimitiveType.S32, (b,)) for _ in range(2)]
    numbers = {"lhs_batch_dimensions": ["0", "1"] if heads_first else ["0", "2"]}
    config = {
        "fmha_scale": p.choose((1, 0.5)),
        "mask_type": mask,
        "sliding_window_length": p.choose((0, 0, 1, 2)),
        "bmm1_dot_dimension_numbers": numbers,
        "bmm2_grad_gemm2_dot_dimension_numbers": numbers,
    }
    name = f"__cudnn$fmha{'ScaleBias' * has_bias}Softmax{'Backward' * is_backward}"
    shapes = [ArrayShape(kind, dims) for dims in results]
    p.b.annotations = Annotations(backend_config=json.dumps({"cudnn_fmha_backend_config": config}))
    shape = TupleShape((*shapes, _WORKSPACE))
    call = p.b.create(Opcode.CUSTOM_CALL, operands, CustomCallAttrs(name), shape=shape)
    p.b.annotations = Annotations()
    return call
