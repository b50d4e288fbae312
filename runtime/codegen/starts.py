"""Records and variants of the starts of dynamic slices (dynamic_starts.py has their code), and of loop nests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from runtime.codegen.record import Record, Word, record, sized
from runtime.program.scalar_program import ScalarConstant, ScalarProgram, ScalarStep
from spmd.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StartsStage:
    """Stage that computes starts. ``program`` gives them as s64; ``counted`` parameters are words, others pointers.

    shifts: for each parameter, the numbers of the previous stage's starts that move its pointer.
    """

    program: ScalarProgram
    counted: tuple[bool, ...]
    shifts: tuple[tuple[int, ...], ...]


@cache
def without_constants(program: ScalarProgram) -> tuple[ScalarProgram, tuple[int, ...]]:
    """Return `program` with its integer constants as parameters behind its own, and these constants as words.

    The slices of a module often start at (id + 1) % n, (id + 2) % n, ...: one function serves all of them.
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
    """Return up to 64 bits as the signed number that a record's word holds."""
    return bits - (1 << 64) if bits >> 63 else bits


def _renumbered(step: ScalarStep, register: Mapping[int, int]) -> ScalarStep:
    if isinstance(step, ScalarConstant):
        return step
    return replace(step, operands=tuple(register[r] for r in step.operands))


@dataclass(frozen=True, slots=True)
class StartsVariant:
    """Variant of the code of starts. shifts: for each array, the numbers of the last stage's starts that move it."""

    stages: tuple[StartsStage, ...]
    shifts: tuple[tuple[int, ...], ...]


@record
class ShiftRecord(Record):
    """Largest value of a start, and the stride of the dimension, in bytes or in ones."""

    limit: Word
    stride: Word


@record
class StageRecord(Record):
    """Parameters of a stage, which are addresses or numbers, and the shifts of those that earlier starts move."""

    parameters: Sequence[Word]
    shifts: Sequence[ShiftRecord]


@record
class StartsRecord(Record):
    """Words that ``computed_starts`` reads one by one, and then ``moved_by``: the stages, and the shifts of arrays."""

    stages: Sequence[StageRecord]
    shifts: Sequence[ShiftRecord]


@record
class NestRecord(Record):
    """Record of a loop nest: base addresses of its arrays (or numbers), sizes, strides, starts.

    Strides are given for each array, in bytes or in ones, in the order of ``sizes``. No size is 0.
    """

    firsts: Sequence[Word]
    sizes: Sequence[Word]
    strides: Sequence[Sequence[Word]] = sized("firsts", "sizes")
    starts: StartsRecord
