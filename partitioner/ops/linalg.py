"""Transforms and factorizations: batch dimensions pass through, transformed dimensions are not split.

    fft               [b, t]                     -> [b, t']        the last len(fft_length) dimensions replicated
    cholesky          [b, n, n]                  -> [b, n, n]
    triangular-solve  [b, n, n], [b, n, m]       -> [b, n, m]      columns m pass (rows, when solving from the right)

Letters are factors; every device needs all of a dimension that is marked replicated.
"""

from __future__ import annotations

from partitioner.ops.elementwise import dims_pass
from partitioner.propagation.op_sharding_rule import OpShardingRule, RuleBuilder
from partitioner.registry import sharding_rule
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import FftAttrs, TriangularSolveAttrs


@sharding_rule(Opcode.FFT)
def fft_rule(fft: HloInstruction) -> OpShardingRule:
    return dims_pass(fft, range(fft.array_shape.rank - len(fft.attrs_as(FftAttrs).length)))


@sharding_rule(Opcode.CHOLESKY)
def cholesky_rule(cholesky: HloInstruction) -> OpShardingRule:
    return dims_pass(cholesky, range(cholesky.array_shape.rank - 2))


@sharding_rule(Opcode.TRIANGULAR_SOLVE)
def triangular_solve_rule(solve: HloInstruction) -> OpShardingRule:
    rank = solve.array_shape.rank
    rule = RuleBuilder.for_instruction(solve)
    for d in range(rank - 2):
        rule.factor(solve.dims[d], {0: d, 1: d}, {0: d})
    free = rank - 1 if solve.attrs_as(TriangularSolveAttrs).left_side else rank - 2
    rule.factor(solve.dims[free], {1: free}, {0: free})
    return rule.build()
