"""Combiners of two elements: those of known reductions, and scalar programs of two parameters."""

from __future__ import annotations

from runtime.codegen.elements.storage import stored_type
from runtime.codegen.ir.combine import combiner_ir, combining_ir, conversion_ir, element_of
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.program.scalar_program import Reducer, ScalarProgram
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType


@dataclass(frozen=True, slots=True)
class Combining:
    """LLVM types of stored elements and of accumulators, and the functions @widen, @narrow and @combine."""

    stored: str
    wide: str
    functions: tuple[str, ...]


def combining(kind: PrimitiveType, reducer: Reducer) -> Combining:
    """Return the combiner of elements of type ``kind``, which must not be complex.

    Known reductions accumulate narrow floats in f32. A program accumulates in the type of the elements.
    """
    if not isinstance(reducer, ScalarProgram):
        element = element_of(kind.numpy)
        return Combining(element.stored, element.wide, combining_ir(kind.numpy, reducer))
    t, struct = stored_type(kind), struct_type(reducer)
    same = (conversion_ir(name, t, t) for name in ("widen", "narrow"))
    body = f"%both = call {struct} @reducer({t} %a, {t} %b)\n  %r = extractvalue {struct} %both, 0"
    combine = combiner_ir("combine", t, body)
    return Combining(t, t, (*dict.fromkeys(program_ir(reducer, "reducer")), *same, combine))
