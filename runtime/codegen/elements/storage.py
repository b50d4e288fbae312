"""How element types lie in memory and in which LLVM type they are computed with."""

from __future__ import annotations

from runtime.codegen.elements import bfloat16
from runtime.codegen.elements.bfloat16 import Origin
from runtime.codegen.elements.builder import Instructions, Lines
from runtime.codegen.ir.combine import Element, element_of
from spmd.shape import PrimitiveType


def element_form(kind: PrimitiveType) -> Element:
    """Complex numbers are one integer each, of both parts."""
    if kind.is_complex:
        whole = f"i{8 * kind.byte_size}"
        return Element(whole, whole)
    return element_of(kind.numpy)


def narrowing(kind: PrimitiveType, origin: Origin, instructions: Instructions) -> Lines:
    """``Element.narrow``, as short as the number's origin and the processor allow."""
    if kind is PrimitiveType.BF16:
        return bfloat16.narrowing(origin, instructions)
    return Lines(element_form(kind).narrow)


def stored_type(kind: PrimitiveType) -> str:
    """How an element lies in memory."""
    return element_form(kind).stored


def wide_type(kind: PrimitiveType) -> str:
    """How one is computed with."""
    return element_form(kind).wide


def float_name(kind: PrimitiveType) -> tuple[str, str]:
    """Of f32 or f64: LLVM's type, and the end of its intrinsics' names."""
    return {PrimitiveType.F32: ("float", "f32"), PrimitiveType.F64: ("double", "f64")}[kind]
