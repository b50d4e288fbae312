"""Evaluation in which every inexact result is off by a few units in the last place: Monte Carlo arithmetic.

Two correct programs that differ in the order of their sums or in their exponential functions differ by roundings. A
program amplifies these where it subtracts nearly equal numbers, divides by noise, or feeds an error back. Evaluations
with noise of different seeds show by how much.

The sign of the noise is a hash of the value and the seed, as a real rounding error is a function of the operands: equal
values get equal noise, so that copies of one value on several devices, or computed twice, stay equal, and symmetric
matrices stay symmetric. The rounding of a sum depends on its position, so the noise of sums depends on the position as
well, and that of a transcendental function on the operand: where tanh rounds to 1, its errors at 17 and at 23 differ.
Exact results (exactness.py) get no noise.

D. S. Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997.
"""

from __future__ import annotations

import math

import numpy as np

from spmd.analysis.cost import op_cost
from spmd.custom_call import custom_call
from spmd.evaluator.device import Device, Steps
from spmd.evaluator.exactness import MANTISSA, TRANSCENDENTAL, exact_elements, has_few_bits
from spmd.evaluator.op_tables import OpTables
from spmd.evaluator.registry import EVALUATORS, IN_STEPS, Evaluate, EvaluateInSteps
from spmd.evaluator.value import NDArray, Operands, Value
from spmd.hlo.collective_opcodes import REDUCING_COLLECTIVES
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops import definition
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.elementwise_ops import ELEMENTWISE_OPS
from spmd.shape import ArrayShape, PrimitiveType, leaves

#: Ops that sum many terms or solve systems: another order of operations changes the result by as much as rounding the
#: operands does.
_SUMS = frozenset(
    {
        Opcode.BATCH_NORM_GRAD,
        Opcode.BATCH_NORM_INFERENCE,
        Opcode.BATCH_NORM_TRAINING,
        Opcode.CHOLESKY,
        Opcode.CONVOLUTION,
        Opcode.DOT,
        Opcode.FFT,
        Opcode.RAGGED_DOT,
        Opcode.REDUCE,
        Opcode.REDUCE_WINDOW,
        Opcode.SCATTER,
        Opcode.SELECT_AND_SCATTER,
        Opcode.TRIANGULAR_SOLVE,
    }
)
#: Ops that may use a different order of operations for each element of the result.
_REORDERED = frozenset(
    {Opcode.CONVOLUTION, Opcode.DOT, Opcode.RAGGED_DOT, Opcode.REDUCE, Opcode.REDUCE_WINDOW}
)
#: Ops whose results are rounded. Results of all other ops are elements of their operands, or exact.
_ROUNDED = _SUMS | {Opcode.MAP} | {x for x, op in ELEMENTWISE_OPS.items() if op.rounds}

#: One in this many elements (a power of two) of a 16-bit type is rounded to another neighbour by an error in f32.
_NARROW_EVERY = 64
#: A sum of more terms than the square of this number has an error of more than one rounding, which grows with the
#: square root of the number of terms.
_SHORT_SUM = 8


@dataclass(frozen=True)
class RoundingNoise:
    """Noise of `ulps` units in the last place (more in long sums), whose signs follow from `seed`.

    `excess`: 16-bit and 8-bit results may have been f32 elsewhere, as XLA does by default; else a 16-bit result
    differs only if an error in f32 crosses a boundary between two values, and an 8-bit one never.
    """

    seed: int
    ulps: int
    excess: bool = False

    def tables(self) -> OpTables:
        """Return the functions that evaluate opcodes with this noise."""

        def plain(opcode: Opcode) -> Evaluate | None:
            evaluate = EVALUATORS.get(opcode)
            rounded = opcode in _ROUNDED or (self.excess and opcode is Opcode.CONVERT)
            return evaluate if evaluate is None or not rounded else self._around(evaluate)

        def in_steps(opcode: Opcode) -> EvaluateInSteps | None:
            evaluate = IN_STEPS.get(opcode)
            if evaluate is not None and opcode in REDUCING_COLLECTIVES:
                return self._around_steps(evaluate)
            if evaluate is not None and opcode is Opcode.CUSTOM_CALL:
                return self._around_library_call(evaluate)
            return evaluate

        return OpTables(plain, in_steps)

    def _around(self, evaluate: Evaluate) -> Evaluate:
        def noisy(instruction: HloInstruction, operands: Operands) -> Value:
            if not _is_rounded(instruction):
                return evaluate(instruction, operands)
            ulps = self.ulps * _relative_error(instruction)
            placed = instruction.opcode in _REORDERED
            if instruction.opcode in _SUMS:
                operands = tuple(self._perturbed(operand, ulps, placed) for operand in operands)
            value = evaluate(instruction, operands)
            if not isinstance(value, np.ndarray):
                return self._perturbed(value, ulps, placed)
            exact = exact_elements(instruction, operands, value)
            if instruction.opcode in TRANSCENDENTAL and isinstance(operands[0], np.ndarray):
                return perturb(value, self, ulps, placed, exact, keys=operands[0])
            return perturb(value, self, ulps, placed, exact)

        return noisy

    def _around_steps(self, evaluate: EvaluateInSteps) -> EvaluateInSteps:
        def noisy(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
            around = tuple(
                self._perturbed(operand, self.ulps, placed=False) for operand in operands
            )
            value = yield from evaluate(instruction, around, device)
            return self._perturbed(value, self.ulps, placed=False) if self.excess else value

        return noisy

    def _around_library_call(self, evaluate: EvaluateInSteps) -> EvaluateInSteps:
        """Add noise to calls that compute, which have a known cost; the others are annotations and similar calls."""

        def noisy(instruction: HloInstruction, operands: Operands, device: Device) -> Steps:
            target = instruction.attrs_as(CustomCallAttrs).target
            if custom_call(target).cost is None:
                return (yield from evaluate(instruction, operands, device))
            around = tuple(
                self._perturbed(operand, self.ulps, placed=False) for operand in operands
            )
            value = yield from evaluate(instruction, around, device)
            return self._perturbed(value, self.ulps, placed=False)

        return noisy

    def _perturbed(self, value: Value, ulps: int, placed: bool) -> Value:
        if isinstance(value, tuple):
            return tuple(self._perturbed(element, ulps, placed) for element in value)
        return perturb(value, self, ulps, placed) if isinstance(value, np.ndarray) else value


def perturb(
    x: NDArray,
    noise: RoundingNoise,
    ulps: int,
    placed: bool,
    exact: NDArray | None = None,
    keys: NDArray | None = None,
) -> NDArray:
    """Move each element of `x` that is not exact up or down by `ulps` units in the last place.

    `placed`: the direction depends on the element's position too. `exact`: which elements are exact; if None, those
    that look so. Integers and pred are returned unchanged, and without `excess` 8-bit floats too.
    """
    if x.dtype.kind == "c":
        parts = np.ascontiguousarray(x).reshape(-1).view(x.real.dtype)
        return perturb(parts, noise, ulps, placed).view(x.dtype).reshape(x.shape)
    kind = PrimitiveType.from_numpy(x.dtype)
    if kind not in MANTISSA or x.size == 0 or (kind.bits == 8 and not noise.excess):
        return x
    raw = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")
    word = raw.dtype.type
    infinity = ((1 << (kind.bits - 1 - MANTISSA[kind])) - 1) << MANTISSA[kind]
    magnitude = raw & word((1 << (kind.bits - 1)) - 1)
    moved = (magnitude > ulps) & (magnitude < infinity - ulps)
    moved &= ~(has_few_bits(x) if exact is None else exact)
    hashed = raw if keys is None else np.ascontiguousarray(keys).view(raw.dtype)
    if placed:
        hashed = hashed ^ _hashes(
            np.arange(x.size, dtype=np.uint64 if kind.bits == 64 else np.uint32), 0
        ).astype(raw.dtype).reshape(raw.shape)
    signs = _hashes(hashed, noise.seed)
    if x.dtype.itemsize == 2 and not noise.excess:
        moved &= (signs & signs.dtype.type(_NARROW_EVERY - 1)) == 0
    up = (signs >> signs.dtype.type(8 * signs.dtype.itemsize - 1)).astype(np.bool_)
    shifted = np.where(up, raw + word(ulps), raw - word(ulps))
    return np.where(moved, shifted, raw).view(x.dtype).reshape(x.shape)


def _hashes(raw: NDArray, seed: int) -> NDArray:
    """Mix each element of `raw` with `seed`, by the finalizers of MurmurHash3 (32 bits) and SplitMix64."""
    if raw.dtype.itemsize == 8:
        steps = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
        h = raw ^ np.uint64((seed * 0x9E3779B97F4A7C15 + 1) & 0xFFFFFFFFFFFFFFFF)
    else:
        steps = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1))
        h = raw.astype(np.uint32) ^ np.uint32((seed * 0x9E3779B9 + 1) & 0xFFFFFFFF)
    word = h.dtype.type
    for shift, factor in steps:
        h ^= h >> word(shift)
        h *= word(factor)
    return h


def _is_rounded(instruction: HloInstruction) -> bool:
    """Return whether the instruction rounds its results; conversions do if they are to 16 bits or fewer."""
    if instruction.opcode is not Opcode.CONVERT:
        return True
    shape = instruction.shape
    if not isinstance(shape, ArrayShape):
        return False
    return shape.element_type in MANTISSA and shape.element_type.bits <= 16


def _relative_error(instruction: HloInstruction) -> int:
    """Return the noise of a sum in units of `ulps`: it grows with the square root of the number of terms."""
    if instruction.opcode not in _SUMS:
        return 1
    results = max(
        (math.prod(s.dims) for _, s in leaves(instruction.shape) if isinstance(s, ArrayShape)),
        default=1,
    )
    applied = sum(definition(instruction.opcode).applications(instruction))
    terms = max(applied, op_cost(instruction).flops / 2) / max(1, results)
    return max(1, math.isqrt(int(terms)) // _SHORT_SUM)
