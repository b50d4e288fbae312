"""A kernel as tables of benchmarks name it."""

from __future__ import annotations

from spmd.hlo import HloInstruction, Opcode
from spmd.shape import ArrayShape


def described(x: HloInstruction) -> str:
    """Return what an instruction computes, by shapes, so that equal kernels of several layers read alike."""
    operands = ", ".join(_shape(o) for o in x.operands[:4])
    more = ", .." if len(x.operands) > 4 else ""
    inside = ""
    if x.opcode is Opcode.FUSION:
        within = x.called_computations[0].instructions
        inside = "+".join(dict.fromkeys(i.opcode.value for i in within if _computes(i)))
        inside = f" [{inside[:60]}]"
    return f"{x.opcode.value}{inside} ({operands}{more}) -> {_shape(x)}"


def _shape(x: HloInstruction) -> str:
    shape = x.shape
    return str(shape.without_layout() if isinstance(shape, ArrayShape) else shape)


def _computes(x: HloInstruction) -> bool:
    return x.opcode not in {
        Opcode.PARAMETER,
        Opcode.TUPLE,
        Opcode.BROADCAST,
        Opcode.CONSTANT,
        Opcode.BITCAST,
        Opcode.RESHAPE,
    }
