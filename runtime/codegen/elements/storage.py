"""LLVM types in which each element type is stored and computed."""

from __future__ import annotations

from functools import cache

from runtime.codegen.elements import bfloat16
from runtime.codegen.elements.builder import Lines
from runtime.codegen.elements.instructions import Instructions
from runtime.codegen.ir.combine import Element, element_of
from runtime.program.scalar_program import Provenance
from spmd.shape import PrimitiveType


@cache
def element_layout(kind: PrimitiveType) -> Element:
    """Return the types and conversions of ``kind``. A complex number is one integer that holds both parts."""
    if kind.is_complex:
        integer = f"i{8 * kind.byte_size}"
        return Element(integer, integer)
    return element_of(kind.numpy)


def narrowing(kind: PrimitiveType, provenance: Provenance, instructions: Instructions) -> Lines:
    """Return the lines of ``Element.narrow``, which ``provenance`` and the processor's instructions may shorten."""
    if kind is PrimitiveType.BF16:
        return bfloat16.narrowing(provenance, instructions)
    return Lines(element_layout(kind).narrow)


@cache
def stored_type(kind: PrimitiveType) -> str:
    """Return the LLVM type of an element of ``kind`` in memory."""
    return element_layout(kind).stored


@cache
def wide_type(kind: PrimitiveType) -> str:
    """Return the LLVM type in which an element of ``kind`` is computed."""
    return element_layout(kind).wide
