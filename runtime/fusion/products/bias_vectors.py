"""Vectors that a kernel computes and broadcasts along the columns of a product: a library adds them from memory.

    s = f32[64] dynamic-slice(b, i)      the device's part of a bias that every device has
    c = bf16[64] convert(b)              a bias in the type of the products

Fusion computes such a vector in every kernel that reads it. A kernel of its own costs a short launch, and spares the
kernel that would add the vector to the product.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from runtime.fusion.element_graph import post_order
from runtime.fusion.emitters import emitted_region
from runtime.fusion.fusion_kernel import Kernel
from runtime.fusion.make_fusions import FusedKernel
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import ConvolutionAttrs, DotAttrs

#: Opcodes of views that a library reads through, and of constants.
_FREE = frozenset({Opcode.BROADCAST, Opcode.CONSTANT, Opcode.RESHAPE, Opcode.TRANSPOSE})


def computed_vectors(kernel: Kernel, product: HloInstruction) -> tuple[HloInstruction, ...]:
    """Return the values with one element for each column of ``product`` that ``kernel`` computes and broadcasts."""
    columns = _columns(product)
    members = frozenset(kernel.members)
    found = dict.fromkeys(
        x.operand(0)
        for x in kernel.members
        if x.opcode is Opcode.BROADCAST
        and x.operand(0) in members
        and x.operand(0).array_shape.num_elements == columns < x.array_shape.num_elements
    )
    return tuple(x for x in found if _is_computed(x, kernel.inputs))


def inputs_with(
    roots: Sequence[HloInstruction], inputs: Collection[HloInstruction]
) -> tuple[HloInstruction, ...]:
    """Return those of ``inputs`` that ``roots`` still need, if the inputs are not computed."""
    return tuple(x for x in post_order(roots, dict.fromkeys(inputs, 0)) if x in inputs)


def vector_kernel(vector: HloInstruction, kernel: Kernel, position: int) -> FusedKernel | None:
    """Return the kernel of ``vector``, which is computed as in ``kernel``, or None if it is a single instruction."""
    inputs = inputs_with((vector,), kernel.inputs)
    if all(operand in inputs for operand in vector.operands):
        return None
    emitted = emitted_region((vector,), {x: n for n, x in enumerate(inputs)})
    return FusedKernel((vector,), inputs, position, emitted)


def _columns(product: HloInstruction) -> int:
    """Return the number of columns of ``product``, a dot, or of features of a convolution."""
    if product.opcode is Opcode.CONVOLUTION:
        numbers = product.attrs_as(ConvolutionAttrs).dimension_numbers
        return product.dims[numbers.output_feature]
    attrs, rhs = product.attrs_as(DotAttrs), product.operand(1)
    others = {*attrs.rhs_batch, *attrs.rhs_contracting}
    columns = 1
    for d, size in enumerate(rhs.dims):
        columns *= 1 if d in others else size
    return columns


def _is_computed(x: HloInstruction, inputs: Sequence[HloInstruction]) -> bool:
    """Return whether ``x`` is more than a view of one of ``inputs``."""
    needed = post_order((x,), dict.fromkeys(inputs, 0))
    return any(y not in inputs and y.opcode not in _FREE for y in needed)
