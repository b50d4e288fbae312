"""Tools of trigger generators: dice, random shapes, element types and values, and the builder of an entry."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from spmd.builder import Builder
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode, Stage
from spmd.literal import Literal
from spmd.shape import ArrayShape, PrimitiveType, Shape
from tests.dice import Dice

Rng = np.random.Generator

FLOATS = (PrimitiveType.F32, PrimitiveType.F64, PrimitiveType.BF16, PrimitiveType.F16)
INTEGERS = (
    PrimitiveType.S32,
    PrimitiveType.S8,
    PrimitiveType.S64,
    PrimitiveType.U8,
    PrimitiveType.U32,
    PrimitiveType.U64,
)
COMPLEX = (PrimitiveType.C64, PrimitiveType.C128)
#: Types with arithmetic; f32 as often as in programs.
NUMBERS = (PrimitiveType.F32,) * 6 + FLOATS + INTEGERS + COMPLEX
ANY_TYPE = (*NUMBERS, PrimitiveType.PRED)

#: Odd, even, 1 and (rarely) 0.
SIZES = (1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 16, 0)

#: Elementwise operations that every numeric type has.
_UNARY = (Opcode.NEGATE, Opcode.COPY)
_BINARY = (Opcode.ADD, Opcode.MULTIPLY, Opcode.SUBTRACT)


class Program(Dice):
    """A module being written: its dice ``rng`` and the builder ``b`` of its entry.

    With ``partitions`` or ``replicas`` above 1 it is one device's program, which is evaluated on all devices in lock
    step, with arrays that differ from device to device (devices.py writes its collectives).
    """

    def __init__(self, rng: Rng, partitions: int = 1, replicas: int = 1) -> None:
        self.rng = rng
        self.result = HloModule("trigger")
        self.result.num_partitions = partitions
        self.result.replica_count = replicas
        if partitions * replicas > 1:
            self.result.stage = Stage.PARTITIONED
        self.result.entry = self.result.new_computation("entry")
        self.b = Builder(self.result.entry)

    # ---- shapes
    def dims(
        self, low: int = 0, high: int = 4, *, empty: bool = True, most: int = 512
    ) -> tuple[int, ...]:
        """Return sizes of rank [low, high] and at most ``most`` elements; with ``empty`` a dimension may be 0."""
        while True:
            dims = tuple(self.choose(SIZES) for _ in range(self.integer(low, high)))
            if math.prod(dims) <= most and (empty or 0 not in dims):
                return dims

    def element_type(self, among: Sequence[PrimitiveType] = NUMBERS) -> PrimitiveType:
        return self.choose(among)

    def shape(
        self, among: Sequence[PrimitiveType] = NUMBERS, low: int = 0, high: int = 4
    ) -> ArrayShape:
        return ArrayShape(self.element_type(among), self.dims(low, high))

    # ---- values
    def parameter(self, shape: Shape) -> HloInstruction:
        return self.b.parameter(self.result.entry.num_parameters, shape)

    def value(self, element_type: PrimitiveType, dims: Sequence[int]) -> HloInstruction:
        """Return a parameter, or something made of one or two."""
        shape = ArrayShape(element_type, tuple(dims))
        x = self.parameter(shape)
        if element_type is PrimitiveType.PRED or self.chance():
            return x
        if self.chance():
            return self.b.unary(self.choose(_UNARY), x)
        return self.b.binary(self.choose(_BINARY), x, self.parameter(shape))

    def like(self, x: HloInstruction) -> HloInstruction:
        return self.value(x.array_shape.element_type, x.dims)

    def constant(self, element_type: PrimitiveType, dims: Sequence[int]) -> HloInstruction:
        """Return a constant of random small numbers."""
        shape = ArrayShape(element_type, tuple(dims))
        low = -4 if element_type.is_floating or element_type.is_signed_integer else 0
        values = self.rng.integers(low, 5, tuple(dims))
        if element_type is PrimitiveType.PRED:
            values = values % 2
        return self.b.constant(Literal.of(shape, np.asarray(values).astype(element_type.numpy)))

    def after(self, x: HloInstruction) -> HloInstruction:
        """Return ``x``, or something computed from it."""
        if x.array_shape.element_type is PrimitiveType.PRED or self.chance(0.6):
            return x
        return self.b.binary(self.choose(_BINARY), x, self.like(x))

    # ---- computations
    def computation(self, name: str, *shapes: Shape) -> tuple[Builder, tuple[HloInstruction, ...]]:
        """Return a new computation's builder, and its parameters.

        What is made last is not yet its root: see ``returns``.
        """
        inside = self.b.within(self.result.new_computation(name))
        return inside, tuple(inside.parameter(i, shape) for i, shape in enumerate(shapes))

    @staticmethod
    def returns(x: HloInstruction) -> HloComputation:
        """Make ``x`` the result of its computation, and return the computation."""
        assert x.parent is not None
        x.parent.root = x
        return x.parent

    def module(self, *results: HloInstruction) -> HloModule:
        """Return the module whose entry returns ``results``: the one, or a tuple of them."""
        entry, module = self.result.entry, self.result
        entry.root = results[0] if len(results) == 1 else self.b.tuple(results)
        ordered: dict[HloComputation, None] = {}
        for computation in [c for c in module.computations if c is not entry]:
            _callees_first(computation, ordered)
        _callees_first(entry, ordered)
        module.computations = list(ordered)
        return module


def _callees_first(computation: HloComputation, ordered: dict[HloComputation, None]) -> None:
    for instruction in computation.instructions:
        for callee in instruction.called_computations:
            _callees_first(callee, ordered)
    ordered.setdefault(computation)
