"""The same program in double precision, for a tolerance that follows from the program instead of being guessed.

Every floating type becomes f64. What the original differs from it is its own rounding error; a program whose sums run
in another order may differ about as much again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import spmd
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.literal import Literal
from spmd.ops.attrs import ConstantAttrs
from spmd.shape import ArrayShape, PrimitiveType, Shape, TupleShape, leaves

Array = np.ndarray[Any, np.dtype[Any]]

#: They read or make the bits of a number, not its value.
_ABOUT_BITS = frozenset({Opcode.BITCAST_CONVERT, Opcode.RNG, Opcode.RNG_BIT_GENERATOR})


def evaluate_f64(
    module: HloModule, inputs: Sequence[Array]
) -> tuple[list[Array | None], float] | None:
    """Outputs in double precision, and the largest magnitude of any value on the way (the entry's).

    None for an output that depends on the bits of floating-point numbers, and where all do.
    """
    found = _without_bits(module)
    if found is None:
        return None
    rest, kept = found
    wide = widened_module(rest)
    assert wide is not None
    outputs = len(kept)
    extra = [
        i
        for i in _global_values(wide)
        if isinstance(i.shape, ArrayShape) and i.shape.element_type in _WIDE
    ]
    root = wide.entry.root
    parts = (root, *extra)
    wide.entry.root = wide.entry.create(
        Opcode.TUPLE, TupleShape(tuple(part.shape for part in parts)), parts
    )
    results = spmd.evaluate(wide, *map(widened, inputs))
    largest = max((magnitude(np.asarray(x)) for x in results[outputs:]), default=0.0)
    exact: list[Array | None] = [None] * sum(1 for _ in leaves(module.entry.root.shape))
    for number, x in zip(kept, results, strict=False):
        exact[number] = np.asarray(x)
    return exact, largest


def _without_bits(module: HloModule) -> tuple[HloModule, list[int]] | None:
    """``module`` with those outputs only that depend on no number's bits, and which these are. None if there are none."""
    if not any(map(_depends_on_width, module.all_instructions())):
        return module, list(range(sum(1 for _ in leaves(module.entry.root.shape))))
    rest = clone_module(module)
    entry = rest.entry
    if entry.root.opcode is not Opcode.TUPLE:
        return None
    about: dict[HloInstruction, bool] = {}
    for instruction in entry.post_order():
        about[instruction] = any(map(_depends_on_width, _within(instruction))) or any(
            about[operand] for operand in instruction.operands
        )
    parts = entry.root.operands
    kept = [n for n, part in enumerate(parts) if not about[part]]
    if not kept or any(isinstance(part.shape, TupleShape) for part in parts):
        return None
    parts = tuple(parts[n] for n in kept)
    entry.root = entry.create(Opcode.TUPLE, TupleShape(tuple(p.shape for p in parts)), parts)
    entry.remove_unused()
    rest.entry_layout, rest.input_output_alias, rest.buffer_donors = None, (), ()
    rest.remove_unreachable_computations()
    return rest, kept


def _within(instruction: HloInstruction) -> Iterator[HloInstruction]:
    """It and what it calls."""
    yield instruction
    for computation in instruction.called_computations:
        for inner in computation.instructions:
            yield from _within(inner)


def widened_module(module: HloModule) -> HloModule | None:
    """A copy that computes in double precision; None where the program is about the bits of its types."""
    if any(map(_depends_on_width, module.all_instructions())):
        return None
    wide = clone_module(module)
    wide.entry_layout = None
    for instruction in wide.all_instructions():
        _widen(instruction)
    return wide


def _depends_on_width(instruction: HloInstruction) -> bool:
    """It is about the bits of a floating-point number. Those of whole numbers are the same in double precision."""
    shapes = (instruction.shape, *(operand.shape for operand in instruction.operands))
    return instruction.opcode in _ABOUT_BITS and any(
        isinstance(leaf, ArrayShape)
        and (leaf.element_type.is_floating or leaf.element_type.is_complex)
        for shape in shapes
        for _, leaf in leaves(shape)
    )


_ENTRIES = ("xla.sdy.GlobalToLocalShape", "SPMDFullToShardShape")
_EXITS = ("xla.sdy.LocalToGlobalShape", "SPMDShardToFullShape")


def _global_values(module: HloModule) -> list[HloInstruction]:
    """Instructions of the entry that stand outside manual regions, where every device has a value of its own."""
    inside: dict[HloInstruction, bool] = {}
    for instruction in module.entry.post_order():
        target = getattr(instruction.attrs, "target", "")
        inside[instruction] = target in _ENTRIES or (
            target not in _EXITS and any(inside[o] for o in instruction.operands)
        )
    return [i for i, is_inside in inside.items() if not is_inside]


_WIDE = (PrimitiveType.F64, PrimitiveType.C128)


def magnitude(x: Array) -> float:
    """The largest finite one, 0 where there is none; of complex numbers, the largest part of one."""
    if x.dtype.kind == "c":
        return max(magnitude(x.real), magnitude(x.imag))
    finite = np.abs(x[np.isfinite(x)])
    return float(finite.max()) if finite.size else 0.0


def widened(x: Array) -> Array:
    """Return the array in double precision; integers stay as they are."""
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x if x.dtype.kind in "biu" else x.astype(np.float64)


def _widen(instruction: HloInstruction) -> None:
    instruction.shape = _wide_shape(instruction.shape)
    attrs = instruction.attrs
    if isinstance(attrs, ConstantAttrs) and attrs.literal is not None:
        instruction.attrs = ConstantAttrs(_wide_literal(attrs.literal))


def _wide_literal(literal: Literal) -> Literal:
    if literal.array is None:
        return Literal.tuple_of(tuple(map(_wide_literal, literal.elements)))
    shape = _wide_shape(literal.shape)
    return Literal.of(shape, widened(literal.array))


def _wide_shape(shape: Shape) -> Shape:
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(_wide_shape, shape.elements)))
    if not isinstance(shape, ArrayShape):
        return shape
    if shape.element_type.is_complex:
        return shape.with_element_type(PrimitiveType.C128)
    if shape.element_type.is_floating:
        return shape.with_element_type(PrimitiveType.F64)
    return shape
