"""Factors of a product: inputs of its kernel, or slices of inputs that start at an index known at run time.

A slice that is multiplied in place is never copied. Examples are slices of weights that are stacked over a loop's
layers, and of values that a forward pass has saved.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.fusion.element_graph import ElementGraph, Starts
from runtime.fusion.element_operations import array_shape
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.view_path import ViewPath, through
from runtime.program.dot_matrices import unread_operands
from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass

#: Views through which a factor may be read. With slices at index 0, its first element is that of the
#: array.
SEEN_THROUGH = frozenset({Opcode.DYNAMIC_SLICE, Opcode.RESHAPE, Opcode.TRANSPOSE})


@dataclass(frozen=True, slots=True)
class Factor:
    """Input ``number`` of the kernel, read through ``path``."""

    number: int
    path: ViewPath

    def seen(self, view: StridedView) -> StridedView | None:
        """Return the factor as a view of its input's memory ``view``, or None if strides cannot express it.

        Slices are taken at index 0.
        """
        return through(self.path, view)


@dataclass(frozen=True, slots=True)
class Factors:
    """Both factors of a product. The last graph of ``starts`` computes the start indices of all slices."""

    lhs: Factor
    rhs: Factor
    starts: tuple[ElementGraph, ...]

    @property
    def both(self) -> tuple[Factor, Factor]:
        """Return lhs and rhs."""
        return self.lhs, self.rhs


def factors_of(product: HloInstruction, inputs: Mapping[HloInstruction, int]) -> Factors:
    """Return the factors of ``product``.

    Raises NoEmitterError if an operand is computed in the same kernel, if both operands are views of one input, or if a
    slice of a row-major input cannot be multiplied in place.
    """
    starts = Starts()
    found = [_factor(product, operand, inputs, starts) for operand in product.operands]
    lhs, rhs = (factor for factor, _ in found)
    if lhs.number == rhs.number:
        raise NoEmitterError(f"{product.name} multiplies an array by itself")
    views = [factor.seen(StridedView.dense(array_shape(source))) for factor, source in found]
    known = tuple(view for view in views if view is not None)
    unread = unread_operands(product, known) if len(known) == len(views) else {0: (), 1: ()}
    if any(factor.path and n in unread for n, factor in enumerate((lhs, rhs))):
        raise NoEmitterError(f"{product.name} cannot read a slice as it lies")
    return Factors(lhs, rhs, starts.graphs(inputs))


def _factor(
    product: HloInstruction,
    x: HloInstruction,
    inputs: Mapping[HloInstruction, int],
    starts: Starts,
) -> tuple[Factor, HloInstruction]:
    """Return the factor of the operand ``x``, and the input that it is a view of."""
    path: ViewPath = ()
    while x not in inputs:
        op = starts.view_op(x)
        if op is None or op.opcode not in SEEN_THROUGH:
            raise NoEmitterError(f"an operand of {product.name} is computed in the same kernel")
        path = (op, *path)
        x = x.operand(0)
    return Factor(inputs[x], path), x
