"""A value as a nested expression, so that a test can say what a pass makes of it."""

from __future__ import annotations

from dataclasses import fields

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import ConstantAttrs, ParameterAttrs


def expression(x: HloInstruction) -> str:
    """``add(p0, broadcast(1, ()))``: parameters by number, constants by value, attributes that differ from defaults."""
    if isinstance(x.attrs, ParameterAttrs):
        return f"p{x.attrs.number}"
    if isinstance(x.attrs, ConstantAttrs):
        assert x.attrs.literal is not None
        return str(x.attrs.literal.value().tolist())
    parts = [expression(operand) for operand in x.operands]
    for f in fields(x.attrs):
        value = getattr(x.attrs, f.name)
        if value != f.default:
            parts.append(str(value))
    if x.opcode in (Opcode.RESHAPE, Opcode.BROADCAST, Opcode.CONVERT, Opcode.IOTA):
        parts.append(str(x.array_shape.without_layout()))
    return f"{x.opcode}({', '.join(parts)})"
