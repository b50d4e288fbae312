"""Operations that need a dimension whole: order, numbers, factorizations; and per-device programs."""

from __future__ import annotations

from collections.abc import Sequence

from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import CollectiveAttrs, FftAttrs, SortAttrs, TriangularSolveAttrs
from tests.differential.factors.table import (
    MANUAL,
    PASS,
    PERMUTATION,
    REDUCTION,
    WHOLE,
    Factors,
    arrays,
    everywhere,
    factor,
    rows,
)


# ---- order, numbers, factorizations
@rows((PASS, WHOLE), Opcode.SORT)
def _sort(instruction: HloInstruction) -> Factors:
    """Sorted as a whole, every row on its own."""
    yield from _rows_alone(instruction, (instruction.attrs_as(SortAttrs).dimension,))


@rows((PASS, WHOLE), Opcode.TOPK, "custom-call TopK")
def _topk(instruction: HloInstruction) -> Factors:
    yield from _rows_alone(instruction, (instruction.operand(0).array_shape.rank - 1,))


@rows((PASS, WHOLE), Opcode.FFT)
def _fft(instruction: HloInstruction) -> Factors:
    rank = instruction.array_shape.rank
    taken = len(instruction.attrs_as(FftAttrs).length)
    yield from _rows_alone(instruction, tuple(range(rank - taken, rank)))


@rows((PASS, WHOLE), Opcode.CHOLESKY)
def _cholesky(instruction: HloInstruction) -> Factors:
    rank = instruction.array_shape.rank
    yield from _rows_alone(instruction, (rank - 2, rank - 1))


def _rows_alone(instruction: HloInstruction, whole: Sequence[int]) -> Factors:
    operands, results = instruction.num_operands, len(arrays(instruction.shape))
    for d in range(instruction.operand(0).array_shape.rank):
        kind = WHOLE if d in whole else PASS
        yield factor(kind, everywhere(operands, d), everywhere(results, d))


@rows((PASS, WHOLE), Opcode.TRIANGULAR_SOLVE)
def _triangular_solve(instruction: HloInstruction) -> Factors:
    rank = instruction.array_shape.rank
    solved = rank - 2 if instruction.attrs_as(TriangularSolveAttrs).left_side else rank - 1
    for d in range(rank - 2):
        yield factor(PASS, {0: d, 1: d}, {0: d})
    for d in (rank - 2, rank - 1):
        yield factor(WHOLE, {0: d}, {})
        yield factor(WHOLE if d == solved else PASS, {1: d}, {0: d})


@rows((WHOLE,), Opcode.RNG_BIT_GENERATOR)
def _rng_bit_generator(instruction: HloInstruction) -> Factors:
    """A bit depends on its place in the whole array, and on the whole state."""
    yield factor(WHOLE, {0: 0}, {0: 0})
    for d in range(arrays(instruction.shape)[1].rank):
        yield factor(WHOLE, {}, {1: d})


@rows((WHOLE,), Opcode.GET_DIMENSION_SIZE)
def _get_dimension_size(instruction: HloInstruction) -> Factors:
    for d in range(instruction.operand(0).array_shape.rank):
        yield factor(WHOLE, {0: d}, {})


# ---- per-device programs
@rows((PASS, WHOLE), Opcode.ALL_GATHER, Opcode.REDUCE_SCATTER, Opcode.ALL_TO_ALL)
def _exchange(instruction: HloInstruction) -> Factors:
    """Sharded by axes that the region leaves free; what runs along the manual ones takes its dimension whole."""
    acted = instruction.attrs_as(CollectiveAttrs).dimension
    for d in range(instruction.operand(0).array_shape.rank):
        yield factor(WHOLE if d == acted else PASS, {0: d}, {0: d})


@rows(
    (PASS, MANUAL),
    "custom-call xla.sdy.GlobalToLocalShape",
    "custom-call xla.sdy.LocalToGlobalShape",
    "custom-call SPMDFullToShardShape",
    "custom-call SPMDShardToFullShape",
)
def _edge(instruction: HloInstruction) -> Factors:
    befores = [array for o in instruction.operands for array in arrays(o.shape)]
    for i, (before, after) in enumerate(zip(befores, arrays(instruction.shape), strict=True)):
        for d in range(before.rank):
            yield factor(PASS if before.dims[d] == after.dims[d] else MANUAL, {i: d}, {i: d})


@rows((PASS, REDUCTION), "custom-call fuzz.product")
def _product(_: HloInstruction) -> Factors:
    """[i, k] x [k, j] -> [i, j], by a rule that the call carries."""
    yield factor(PASS, {0: 0}, {0: 0})
    yield factor(PASS, {1: 1}, {0: 1})
    yield factor(REDUCTION, {0: 1, 1: 0}, {})


@rows((PASS, WHOLE), "custom-call fuzz.running_sum")
def _running_sum(_: HloInstruction) -> Factors:
    """[i, j] -> [i, j], along j."""
    yield factor(PASS, {0: 0}, {0: 0})
    yield factor(WHOLE, {0: 1}, {0: 1})


@rows((PASS, PERMUTATION), "custom-call fuzz.mirror")
def _mirror(_: HloInstruction) -> Factors:
    """[i, j] -> [j, i], i the other way round."""
    yield factor(PERMUTATION, {0: 0}, {0: 1})
    yield factor(PASS, {0: 1}, {0: 0})
