"""How element types lie in memory and in which LLVM type they are computed with."""

from __future__ import annotations

from runtime.codegen.llvm_reduction import element_of
from spmd.shape import PrimitiveType


def stored_type(kind: PrimitiveType) -> str:
    """How an element lies in memory."""
    return element_of(kind.numpy).stored


def wide_type(kind: PrimitiveType) -> str:
    """How one is computed with."""
    return element_of(kind.numpy).wide
