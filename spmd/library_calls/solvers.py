"""Factorizations of cuSOLVER and of XLA's own, written as the LAPACK calls that compute the same.

JAX's lowering names the targets of cuSOLVER, TensorFlow's those of XLA. Flags are in the backend_config as ``lower =
true``, those of LAPACK as characters, ``uplo = 76 : ui8``, and those of XLA's Eigh as a list of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from spmd.builder import Builder
from spmd.errors import UnsupportedError
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.library_calls.arithmetic import conjugate
from spmd.library_calls.registry import LIBRARY_CALLS, Expansion, Values, require_operands
from spmd.library_calls.settings import settings_of
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.checks import result_elements
from spmd.shape import ArrayShape, PrimitiveType, TupleShape, as_array
from spmd.shape_compatibility import without_layout

_FLAG = re.compile(r"(\w+)\s*=\s*(true|false)\b")
_LETTERS = {
    PrimitiveType.F32: "s",
    PrimitiveType.F64: "d",
    PrimitiveType.C64: "c",
    PrimitiveType.C128: "z",
}
#: Names of routines for complex matrices that differ from those for real ones.
_COMPLEX = {"syevd": "heevd", "orgqr": "ungqr"}


def flag(call: HloInstruction, name: str) -> bool:
    flags = dict(_FLAG.findall(call.annotations.backend_config))
    if name not in flags:
        raise UnsupportedError(f"{call!r}: its backend_config does not say {name}")
    return bool(flags[name] == "true")


def _lapack(
    call: HloInstruction,
    routine: str,
    operands: Sequence[HloInstruction],
    shapes: Sequence[ArrayShape],
    b: Builder,
    **flags: str,
) -> list[HloInstruction]:
    """Return the results, of ``shapes``, of LAPACK's ``routine`` for the type of the first operand."""
    kind = operands[0].array_shape.element_type
    if kind not in _LETTERS:
        raise UnsupportedError(f"{call!r}: LAPACK has no {routine} of {kind}")
    name = _COMPLEX.get(routine, routine) if kind.is_complex else routine
    attrs = CustomCallAttrs(
        f"lapack_{_LETTERS[kind]}{name}_ffi", api_version="API_VERSION_TYPED_FFI"
    )
    shape = TupleShape(tuple(shapes)) if len(shapes) > 1 else shapes[0]
    made = b.create(Opcode.CUSTOM_CALL, operands, attrs, shape=shape)
    said = ", ".join(f"{flag} = {ord(letter)} : ui8" for flag, letter in flags.items())
    made.annotations = replace(made.annotations, backend_config=f"{{{said}}}" if said else "")
    if len(shapes) == 1:
        return [made]
    return [b.get_tuple_element(made, i) for i in range(len(shapes))]


def _shapes(call: HloInstruction) -> list[ArrayShape]:
    return [as_array(without_layout(shape)) for shape in result_elements(call.shape)]


def _uplo(lower: bool) -> str:
    return "L" if lower else "U"


def _same_results(routine: str, operand_count: int, *, has_lower: bool = False) -> Expansion:
    """Return the expansion of a call with the operands and results of LAPACK's ``routine``."""

    def expansion(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
        require_operands(call, operands, operand_count)
        flags = {"uplo": _uplo(flag(call, "lower"))} if has_lower else {}
        if routine == "syevd":
            flags["mode"] = "V"
        return tuple(_lapack(call, routine, operands, _shapes(call), b, **flags))

    return expansion


LIBRARY_CALLS.add("cusolver_potrf_ffi", _same_results("potrf", 1, has_lower=True))
LIBRARY_CALLS.add("cusolver_getrf_ffi", _same_results("getrf", 1))
LIBRARY_CALLS.add("cusolver_geqrf_ffi", _same_results("geqrf", 1))
LIBRARY_CALLS.add("cusolver_orgqr_ffi", _same_results("orgqr", 2))
LIBRARY_CALLS.add("Qr", _same_results("geqrf", 1))
LIBRARY_CALLS.add("ProductOfElementaryHouseholderReflectors", _same_results("orgqr", 2))
LIBRARY_CALLS.add("cusolver_syevd_ffi", _same_results("syevd", 1, has_lower=True))


@LIBRARY_CALLS.register("__cusolver$cholesky")
def cholesky(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return (factor, workspace, info)."""
    require_operands(call, operands, 1)
    shapes = _shapes(call)
    if len(shapes) != 3:
        raise UnsupportedError(f"{call!r}: three results are expected")
    uplo = _uplo(settings_of(call).flag("lower"))
    factor, info = _lapack(call, "potrf", operands, [shapes[0], shapes[2]], b, uplo=uplo)
    return (factor, b.uninitialized(shapes[1]), info)


@LIBRARY_CALLS.register("Eigh")
def eigenvectors(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return (vectors, values). The backend_config gives lower, sorted, iterations and tolerance; values ascend in any
    case.
    """
    require_operands(call, operands, 1)
    said = call.annotations.backend_config.split(",")
    if len(said) != 4 or said[0] not in ("0", "1"):
        raise UnsupportedError(
            f"{call!r}: its backend_config is not lower,sorted,iterations,tolerance"
        )
    shapes = _shapes(call)
    info = ArrayShape(PrimitiveType.S32, operands[0].dims[:-2])
    flags = {"uplo": _uplo(said[0] == "1"), "mode": "V"}
    return tuple(_lapack(call, "syevd", operands, [*shapes, info], b, **flags)[:2])


@LIBRARY_CALLS.register("cusolver_gesvd_ffi", "cusolver_gesvdj_ffi")
def singular_values(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return (operand overwritten, values, U, V^H, info); V^H before U if ``transposed``; Jacobi's method returns V for
    V^H.
    """
    require_operands(call, operands, 1)
    *batch, rows, columns = operands[0].dims
    least = min(rows, columns)
    full = flag(call, "full_matrices")
    kind = operands[0].array_shape.element_type
    u = ArrayShape(kind, (*batch, rows, rows if full else least))
    vh = ArrayShape(kind, (*batch, columns if full else least, columns))
    shapes = _shapes(call)
    first, values, info = shapes[0], shapes[1], shapes[-1]
    found = _lapack(
        call, "gesdd", operands, [first, values, u, vh, info], b, mode="A" if full else "S"
    )
    vectors: list[HloInstruction]
    if call.attrs_as(CustomCallAttrs).target == "cusolver_gesvdj_ffi":
        vectors = [found[2], _adjoint(found[3], b)]
    elif not flag(call, "compute_uv"):
        vectors = [b.full(shape, 0) for shape in shapes[2:4]]
    else:
        vectors = [found[3], found[2]] if flag(call, "transposed") else [found[2], found[3]]
    return (*found[:2], *vectors, found[-1])


def _adjoint(x: HloInstruction, b: Builder) -> HloInstruction:
    last = len(x.dims) - 1
    return conjugate(b.transpose(x, (*range(last - 1), last, last - 1)), b)
