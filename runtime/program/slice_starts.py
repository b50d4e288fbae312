"""Records of starts of dynamic slices and of loop nests; runtime/codegen/ir/dynamic_starts.py writes their code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from runtime.program.argument_record import Record, Word, record, sized
from runtime.program.scalar_program import ScalarConstant, ScalarProgram, ScalarStep
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StageVariant:
    """Stage of the computation of starts. ``program`` returns the starts as s64.

    Parameters that are ``counted`` are words of the record; all others are addresses of scalars. ``shifts`` gives for
    each parameter the numbers of the previous stage's starts that offset its address.
    """

    program: ScalarProgram
    counted: tuple[bool, ...]
    shifts: tuple[tuple[int, ...], ...]


@cache
def without_constants(program: ScalarProgram) -> tuple[ScalarProgram, tuple[int, ...]]:
    """Return ``program`` with its integer constants as additional parameters, and the constants as words.

    The slices of a module often start at (id + 1) % n, (id + 2) % n, and so on, which one function then computes.
    """
    count = len(program.parameters)
    lifted = [
        n
        for n, step in enumerate(program.steps)
        if isinstance(step, ScalarConstant) and step.kind.is_integer
    ]
    remaining = [n for n in range(len(program.steps)) if n not in set(lifted)]
    order = [*range(count), *(count + n for n in (*lifted, *remaining))]
    register = {old: new for new, old in enumerate(order)}
    constants = [step for n in lifted if isinstance(step := program.steps[n], ScalarConstant)]
    general = ScalarProgram(
        (*program.parameters, *(constant.kind for constant in constants)),
        tuple(_renumbered(program.steps[n], register) for n in remaining),
        tuple(register[r] for r in program.results),
    )
    return general, tuple(_signed(constant.bits) for constant in constants)


def _signed(bits: int) -> int:
    """Return ``bits``, an unsigned 64-bit number, as the signed number with the same bits."""
    return bits - (1 << 64) if bits >> 63 else bits


def _renumbered(step: ScalarStep, register: Mapping[int, int]) -> ScalarStep:
    """Return ``step`` with its operand registers renumbered."""
    if isinstance(step, ScalarConstant):
        return step
    return replace(step, operands=tuple(register[r] for r in step.operands))


@dataclass(frozen=True, slots=True)
class StartsVariant:
    """Variant of the code of starts.

    ``shifts`` gives for each array the numbers of the last stage's starts that offset it.
    """

    stages: tuple[StageVariant, ...]
    shifts: tuple[tuple[int, ...], ...]


@record
class ShiftRecord(Record):
    """Offset by a start: the start's largest value, and the stride of its dimension in bytes or counted units."""

    limit: Word
    stride: Word


@record
class StageRecord(Record):
    """Parameters of a stage, which are addresses or numbers, and the shifts of those that earlier starts offset."""

    parameters: Sequence[Word]
    shifts: Sequence[ShiftRecord]


@record
class StartsRecord(Record):
    """The stages, whose words ``computed_starts`` reads in order, and then the shifts of arrays for ``moved_by``."""

    stages: Sequence[StageRecord]
    shifts: Sequence[ShiftRecord]


@record
class NestRecord(Record):
    """Record of a loop nest: the base address (or first number) of each array, sizes, strides and starts.

    ``strides`` has one list per array, in bytes or in counted units, in the order of ``sizes``. No size is 0.
    """

    firsts: Sequence[Word]
    sizes: Sequence[Word]
    strides: Sequence[Sequence[Word]] = sized("firsts", "sizes")
    starts: StartsRecord
