"""Decision whether the f32 operands of a product may be rounded to TF32, as XLA does on a GPU."""

from __future__ import annotations

from spmd.ops.attrs import ConvolutionAttrs, DotAttrs

#: The algorithm that requests TF32; every other named one requires at least f32.
_TF32 = "dot_tf32_tf32_f32"


def allows_tf32(attrs: DotAttrs | ConvolutionAttrs) -> bool:
    """Return whether f32 operands may lose all but 10 bits of their mantissas; sums are f32 in any case.

    A named ``algorithm`` decides; without one only ``operand_precision`` HIGHEST, of either operand, forbids it.
    """
    if isinstance(attrs, DotAttrs) and attrs.algorithm:
        return attrs.algorithm == _TF32
    return "highest" not in attrs.operand_precision
