"""Element operations as LLVM IR: a function ``@operation`` of stored elements, by opcode and types.

Floats narrower than f32 are computed in f32 and rounded once. Arithmetic, comparisons and conversions are bitwise equal
to the reference evaluator; functions such as exp stay within two units in the last place
(docs/internals/native_math.md).
"""

from __future__ import annotations

from functools import partial

from runtime.codegen.elements.bfloat16 import short_arithmetic
from runtime.codegen.elements.builder import Lines
from runtime.codegen.elements.formats import F32, F64
from runtime.codegen.elements.instructions import Instructions
from runtime.codegen.elements.registry import BODIES, float_function, float_lines
from runtime.codegen.elements.storage import element_layout, narrowing, stored_type, wide_type
from runtime.codegen.ir.combine import combination, conversion_ir
from runtime.codegen.llvm.jit import host_adds_pairs, host_fuses, host_permutes, host_scales
from runtime.program.scalar_program import ElementSignature, provenance_of
from spmd.device import ReductionKind
from spmd.hlo import Opcode

_EXTREMES = {Opcode.MAXIMUM: ReductionKind.MAX, Opcode.MINIMUM: ReductionKind.MIN}

#: Operations of floats that may be parts of a fused multiply-add.
_CONTRACTED = {Opcode.ADD: "fadd", Opcode.MULTIPLY: "fmul", Opcode.SUBTRACT: "fsub"}


def has_operation(signature: ElementSignature) -> bool:
    """Return whether there is code for ``signature``."""
    return _lines(signature, Instructions()) is not None


def host_instructions() -> Instructions:
    """Return which special instructions the host's processor has."""
    return Instructions(host_fuses(), host_permutes(), host_scales(), host_adds_pairs())


def operation_ir(
    signature: ElementSignature,
    name: str = "operation",
    *,
    instructions: Instructions | None = None,
) -> list[str]:
    """Return the function ``name`` of ``signature`` after the functions, intrinsics and constants that it uses.

    Operands arrive as they are stored, and are widened to ``%a``, ``%b`` and ``%c``; the result is stored again.
    ``instructions`` are the special instructions that may be used, by default the host's. Equal texts occur once.
    """
    instructions = instructions or host_instructions()
    short = short_arithmetic(signature, instructions)
    if short is not None:
        head = f"define internal i16 @{name}(i16 %a, i16 %b) alwaysinline {{"
        return ["\n".join([head, *short, "  ret i16 %stored\n}\n"])]
    lines = _lines(signature, instructions)
    assert lines is not None, "has_operation says so"
    kinds = signature.operands
    functions, parameters, widened = [], [], []
    for i, (kind, letter) in enumerate(zip(kinds, "abc", strict=False)):
        element = element_layout(kind)
        if not element.widen:
            parameters.append(f"{element.stored} %{letter}")
            continue
        name_of = f"widen_{kind}"
        functions.append(conversion_ir(name_of, element.stored, element.wide, element.widen))
        parameters.append(f"{element.stored} %x{i}")
        widened.append(f"  %{letter} = call {element.wide} @{name_of}({element.stored} %x{i})")
    stored, wide = stored_type(signature.result), wide_type(signature.result)
    provenance = provenance_of(signature)
    narrow = f"narrow_{provenance.name.lower()}_{signature.result}"
    narrowed = narrowing(signature.result, provenance, instructions)
    returned = [f"  ret {stored} %r\n}}\n"]
    if narrowed.body:
        functions += [*narrowed.globals, conversion_ir(narrow, wide, stored, narrowed.body)]
        returned = [
            f"  %stored = call {stored} @{narrow}({wide} %r)",
            f"  ret {stored} %stored\n}}\n",
        ]
    body = [
        f"define internal {stored} @{name}({', '.join(parameters)}) alwaysinline {{",
        *widened,
        f"  {lines.body}",
        *returned,
    ]
    unique = dict.fromkeys(functions)
    return [*lines.globals, *unique, "\n".join(body)]


def _lines(signature: ElementSignature, instructions: Instructions) -> Lines | None:
    complex_ones = any(kind.is_complex for kind in (*signature.operands, signature.result))
    if complex_ones and signature.opcode is Opcode.CONVERT:
        from runtime.codegen.elements.complex_conversion import complex_conversion

        return complex_conversion(signature, partial(_lines, instructions=instructions))
    if complex_ones and signature.opcode is not Opcode.SELECT:
        from runtime.codegen.elements.complex_arithmetic import complex_lines

        return complex_lines(signature, instructions)
    wide = {F32.name: F32, F64.name: F64}.get(wide_type(signature.result))
    if wide is not None and (function := float_function(signature, wide)) is not None:
        return float_lines(function, len(signature.operands), wide, instructions)
    if wide is F32 and instructions.extremes and signature.opcode in _EXTREMES:
        kind = _EXTREMES[signature.opcode]
        return Lines(combination(signature.result.numpy, kind, F32.name, instructions=instructions))
    if wide is not None and instructions.contracts and signature.opcode in _CONTRACTED:
        name = _CONTRACTED[signature.opcode]
        return Lines(f"%r = {name} contract {wide.name} %a, %b")
    make = BODIES.get(signature.opcode)
    body = None if make is None else make(signature)
    return None if body is None else Lines(body)
