"""Compute small values that depend on constants alone."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder, ModuleScope
from spmd.errors import RunError, UnsupportedError
from spmd.evaluator.evaluator import evaluate_instruction
from spmd.hlo.collective_opcodes import SYNCHRONOUS_COLLECTIVES
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.literal import Literal, NDArray
from spmd.passes.algebraic.match import constant_array
from spmd.passes.instruction_pass import Simplifier, Simplify
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at
from spmd.shape import ArrayShape

#: Opcodes that generate many elements from few. They are evaluated as operands, but not replaced by constants.
_COMPACT = (Opcode.IOTA, Opcode.BROADCAST)

#: Opcodes whose values do not depend on constants only, or that other passes handle.
_NEVER = (
    Opcode.PARAMETER,
    Opcode.CONSTANT,
    Opcode.PARTITION_ID,
    Opcode.REPLICA_ID,
    Opcode.CUSTOM_CALL,
    Opcode.WHILE,
    Opcode.CONDITIONAL,
    Opcode.CALL,
    Opcode.FUSION,
    Opcode.OPT_BARRIER,
    *SYNCHRONOUS_COLLECTIVES,
)


@register_pass
@dataclass(frozen=True)
class ConstantFolding(Simplifier):
    """Replace an instruction whose operands are constants (or iotas and repeated constants) by its value.

    The number of the partition, or of the replica, is a constant where there is one.

    max_bytes bounds every value that is computed on the way. A value whose elements are all equal becomes a broadcast
    scalar. Values are those of the reference evaluator (docs/numerics.md).
    """

    name: ClassVar[str] = "constant-folding"
    max_bytes: int = 1024

    def simplify(self, module: HloModule) -> Simplify:
        scope, known = ModuleScope(module), _Known(self.max_bytes)

        def rewrite(x: HloInstruction) -> HloInstruction | None:
            if _is_only_id(x, module):
                return builder_at(x, scope).full(x.array_shape, 0)
            value = None if x.opcode in _COMPACT else known.computed(x)
            if value is None:
                return None
            constant = _constant(builder_at(x, scope), x.array_shape, value)
            known.record(constant, value)
            return constant

        return rewrite


def _is_only_id(x: HloInstruction, module: HloModule) -> bool:
    """Return whether ``x`` is the number of the only partition, which the header must state, or of the only replica."""
    if x.opcode is Opcode.REPLICA_ID:
        return module.states_partitions and module.replica_count == 1
    return (
        x.opcode is Opcode.PARTITION_ID and module.states_partitions and module.num_partitions == 1
    )


def _constant(builder: Builder, shape: ArrayShape, value: NDArray) -> HloInstruction:
    flat = value.reshape(-1)
    if value.ndim and value.size and value.tobytes() == flat[:1].tobytes() * value.size:
        return builder.full(shape, flat[0])
    return builder.constant(Literal.of(shape.without_layout(), value))


class _Known:
    """Values of instructions as far as constants determine them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._effects = SideEffects()
        self._values: dict[HloInstruction, NDArray | None] = {}

    def record(self, x: HloInstruction, value: NDArray) -> None:
        self._values[x] = value

    def value(self, x: HloInstruction) -> NDArray | None:
        """Return the value of a constant, iota or broadcast, or of an instruction that was folded before; None if it is
        unknown or too large.
        """
        if x not in self._values:
            self._values[x] = self._evaluate(x) if x.opcode in _COMPACT else self._constant(x)
        return self._values[x]

    def _constant(self, x: HloInstruction) -> NDArray | None:
        array = constant_array(x)
        return array if array is not None and array.nbytes <= self._max_bytes else None

    def computed(self, x: HloInstruction) -> NDArray | None:
        if x.opcode in _NEVER or self._effects.of(x):
            return None
        return self._evaluate(x)

    def _evaluate(self, x: HloInstruction) -> NDArray | None:
        if (
            not isinstance(x.shape, ArrayShape)
            or x.shape.dynamic
            or x.shape.byte_size > self._max_bytes
        ):
            return None
        operands: list[NDArray] = []
        for operand in x.operands:
            value = self.value(operand)
            if value is None:
                return None
            operands.append(value)
        if not operands and x.opcode not in _COMPACT:
            return None
        try:
            result = evaluate_instruction(x, operands)
        except (RunError, UnsupportedError):
            return None
        return result if isinstance(result, np.ndarray) else None
