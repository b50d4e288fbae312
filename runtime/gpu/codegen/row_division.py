"""Divisions of the elements of a row by one number, such as the sum of a softmax.

A correctly rounded quotient is the product with the reciprocal, corrected by its remainder (P. Markstein, "Computation
of elementary functions on the IBM RISC System/6000 processor", 1990). The elements of a row share the reciprocal. This
fails near the ends of the range of exponents, for which ptxas makes a test and a branch for each division. Here a group
of elements is tested together: if one of them fails, all are divided in the ordinary way.
"""

from __future__ import annotations

import math
from dataclasses import replace

from runtime.codegen.elements.formats import F32
from runtime.gpu.codegen.row_inputs import Part
from runtime.program.records.rows import RowInput, Source
from runtime.program.scalar_program import ScalarOp, ScalarProgram, ScalarStep
from spmd.hlo import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

#: Largest divisor, and exponent of the least dividend that is not zero, for which the remainder is exact, a multiple of
#: 2^-149, and the quotient is normal. If the reciprocal or the quotient overflows, the remainder is infinite or nan.
_LARGEST_DIVISOR, _LEAST_DIVIDEND = 2.0**24, -102
#: Most dividends that are tested together: they and their quotients are in registers.
MOST_DIVIDENDS = 8
#: Bits of the least dividend, shifted left by one place, which drops the sign.
_LEAST_BITS = (127 + _LEAST_DIVIDEND) << 24


@dataclass(frozen=True, slots=True)
class DividedPart:
    """Element program that is computed in three steps.

    ``before`` computes a dividend and a divisor, which is the same for all elements of a row. ``after`` computes the
    results from the parameters and, as its last parameter, the quotient.
    """

    before: Part
    after: Part


def divided(part: Part) -> DividedPart | None:
    """Return ``part`` divided at its first division of an f32 of an element by one of its row, or None without one."""
    program = part.program
    count = len(program.parameters)
    varies = [
        not (isinstance(leaf, RowInput) and leaf.source in (Source.REDUCTION, Source.ROW))
        for leaf in part.leaves
    ]
    for number, step in enumerate(program.steps):
        operands = step.operands if isinstance(step, ScalarOp) else ()
        own = [varies[operand] for operand in operands]
        varies.append(any(own))
        is_division = isinstance(step, ScalarOp) and step.signature.opcode is Opcode.DIVIDE
        if (
            is_division
            and own == [True, False]
            and program.kind_of(count + number) is PrimitiveType.F32
        ):
            before = ScalarProgram(program.parameters, program.steps[:number], tuple(operands))
            return DividedPart(
                Part(before, part.leaves), Part(_with_quotient(program, number), part.leaves)
            )
    return None


def _with_quotient(program: ScalarProgram, number: int) -> ScalarProgram:
    """Return ``program`` without step ``number``, whose result is its last parameter instead."""
    count = len(program.parameters)
    others = [n for n in range(len(program.steps)) if n != number]
    renumbered = {register: register for register in range(count)}
    renumbered[count + number] = count
    renumbered.update((count + n, count + 1 + k) for k, n in enumerate(others))

    def moved(step: ScalarStep) -> ScalarStep:
        if not isinstance(step, ScalarOp):
            return step
        return replace(step, operands=tuple(renumbered[r] for r in step.operands))

    return ScalarProgram(
        (*program.parameters, PrimitiveType.F32),
        tuple(moved(program.steps[n]) for n in others),
        tuple(renumbered[r] for r in program.results),
    )


def quotients_type(count: int) -> str:
    """Return the LLVM type of ``count`` quotients."""
    return f"{{ {', '.join(['float'] * count)} }}"


def quotients_ir(name: str, count: int) -> list[str]:
    """Return the function ``name`` of ``count`` dividends and a divisor, which returns the quotients.

    The remainders are negative, so that the quotient of a zero keeps its sign; the divisor must be positive for that.
    Bits of other divisors are larger unsigned numbers, and the remainders of divisions by zero are nan.
    The remainders of two dividends are multiplied, which gives infinity or nan if one of them is infinite or nan.
    """
    numbers, total = range(count), quotients_type(count)
    parameters = ", ".join([*(f"float %a{n}" for n in numbers), "float %b"])
    lines = [
        f"define internal {total} @{name}({parameters}) alwaysinline {{",
        "entry:",
        "  %minus = fneg float %b",
        "  %guess = call float @llvm.nvvm.rcp.approx.ftz.f(float %b)",
        "  %error = call float @llvm.fma.f32(float %minus, float %guess, float 1.0)",
        "  %inverse = call float @llvm.fma.f32(float %guess, float %error, float %guess)",
        "  %opposite = fneg float %inverse",
        "  %divisor = bitcast float %b to i32",
        f"  %all = icmp ule i32 %divisor, {F32.bits_of(_LARGEST_DIVISOR)}",
    ]
    rest, exact = "0.0", "%all"
    for n in numbers:
        lines += [
            f"  %near{n} = fmul float %a{n}, %inverse",
            f"  %less{n} = fneg float %a{n}",
            f"  %rest{n} = call float @llvm.fma.f32(float %b, float %near{n}, float %less{n})",
            f"  %fast{n} = call float @llvm.fma.f32(float %rest{n}, float %opposite, float %near{n})",
            f"  %bits{n} = bitcast float %a{n} to i32",
            f"  %shifted{n} = shl i32 %bits{n}, 1",
            f"  %zero.last{n} = sub i32 %shifted{n}, 1",
            f"  %dividend{n} = icmp uge i32 %zero.last{n}, {_LEAST_BITS - 1}",
            f"  %all{n} = and i1 {exact}, %dividend{n}",
        ]
        exact = f"%all{n}"
        if n % 2 or n + 1 == count:
            other = f"%rest{n - 1}" if n % 2 else "1.0"
            lines.append(
                f"  %rests{n} = call float @llvm.fma.f32(float %rest{n}, float {other}, float {rest})"
            )
            rest = f"%rests{n}"
    lines += [
        f"  %extent = call float @llvm.fabs.f32(float {rest})",
        f"  %finite = fcmp olt float %extent, {F32.literal(math.inf)}",
        f"  %exact = and i1 {exact}, %finite",
        "  br i1 %exact, label %end, label %slow",
        "slow:",
        *(f"  %slow{n} = fdiv float %a{n}, %b" for n in numbers),
        "  br label %end",
        "end:",
        *(f"  %q{n} = phi float [ %fast{n}, %entry ], [ %slow{n}, %slow ]" for n in numbers),
    ]
    value = "poison"
    for n in numbers:
        lines.append(f"  %r{n} = insertvalue {total} {value}, float %q{n}, {n}")
        value = f"%r{n}"
    return ["\n".join([*lines, f"  ret {total} {value}\n}}\n"])]
