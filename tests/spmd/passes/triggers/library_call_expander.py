"""Products and convolutions of GPU libraries, with everything that goes into one call, and a workspace."""

from __future__ import annotations

import json

from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.instruction import Annotations
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.window import Window, WindowDimension
from spmd.shape import ArrayShape, PrimitiveType, TupleShape
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger

_WORKSPACE = ArrayShape(PrimitiveType.S8, (32,))
_EPILOGUES = ("DEFAULT", "BIAS", "RELU", "BIAS_RELU", "GELU", "BIAS_GELU")


@trigger("library-call-expander")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    call = _product(p) if p.chance() else _convolution(p)
    return p.module(p.after(p.b.get_tuple_element(call, 0)))


def _product(p: Program) -> HloInstruction:
    kind = p.choose((PrimitiveType.F32, PrimitiveType.F64))
    rows, columns, depth = (p.integer(1, 5) for _ in range(3))
    epilogue, beta = p.choose(_EPILOGUES), p.choose((0, 1, 0.5))
    operands = [p.value(kind, (rows, depth)), p.value(kind, (depth, columns))]
    operands += [p.value(kind, (rows, columns))] if beta else []
    operands += [p.value(kind, (columns,))] if "BIAS" in epilogue else []
    settings = {
        "alpha_real": p.choose((1, -2)),
        "beta": beta,
        "epilogue": epilogue,
        "dot_dimension_numbers": {
            "lhs_contracting_dimensions": ["1"],
            "rhs_contracting_dimensions": ["0"],
        },
    }
    attrs = CustomCallAttrs("__cublas$lt$matmul")
    shape = ArrayShape(kind, (rows, columns))
    return _call(p, operands, attrs, shape, {"gemm_backend_config": settings})


def _convolution(p: Program) -> HloInstruction:
    batch, inputs, outputs, size = (p.integer(1, 3) for _ in range(4))
    length = p.integer(size, 6)
    w = WindowDimension(size, p.integer(1, 2), p.integer(0, 1), p.integer(0, 1))
    x, kernel = (batch, length, inputs), (outputs, size, inputs)
    y = (batch, w.output_size(length), outputs)
    target, first, second, result = p.choose(
        (
            ("Forward", x, kernel, y),
            ("BackwardInput", y, kernel, x),
            ("BackwardFilter", x, y, kernel),
        )
    )
    operands = [p.value(PrimitiveType.F32, dims) for dims in (first, second)]
    extra = (("dim_labels", "b0f_o0i->b0f"),)
    attrs = CustomCallAttrs(f"__cudnn$conv{target}", window=Window((w,)), extra=extra)
    return _call(p, operands, attrs, ArrayShape(PrimitiveType.F32, result), {})


def _call(
    p: Program,
    operands: list[HloInstruction],
    attrs: CustomCallAttrs,
    result: ArrayShape,
    config: dict[str, object],
) -> HloInstruction:
    p.b.annotations = Annotations(backend_config=json.dumps(config))
    call = p.b.create(Opcode.CUSTOM_CALL, operands, attrs, shape=TupleShape((result, _WORKSPACE)))
    p.b.annotations = Annotations()
    return call
