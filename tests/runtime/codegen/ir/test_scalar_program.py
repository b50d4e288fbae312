"""Scalar programs: what loops over them compute side by side."""

from __future__ import annotations

import pytest

from runtime.cpu.kernels.loop.loop import interleave_count
from runtime.program.scalar_program import ElementSignature, ScalarOp, ScalarProgram
from spmd.hlo import Opcode
from spmd.shape import PrimitiveType

P, Op = PrimitiveType, Opcode


def chained(opcode: Opcode, kind: PrimitiveType, length: int) -> ScalarProgram:
    """x op y, then op y again and again."""
    signature = ElementSignature(opcode, (kind, kind), kind)
    steps = [ScalarOp(signature, (0, 1))]
    steps += [ScalarOp(signature, (number + 2, 1)) for number in range(length - 1)]
    return ScalarProgram((kind, kind), tuple(steps), (length + 1,))


def beside_each_other(count: int) -> ScalarProgram:
    signature = ElementSignature(Op.ADD, (P.BF16, P.BF16), P.BF16)
    results = tuple(range(2, count + 2))
    return ScalarProgram((P.BF16,) * 2, (ScalarOp(signature, (0, 1)),) * count, results)


@pytest.mark.parametrize(
    ("program", "length", "wanted"),
    [
        (chained(Op.ADD, P.BF16, 6), 1024, 4),
        (chained(Op.ADD, P.BF16, 6), 100, 0),
        (chained(Op.ADD, P.BF16, 2), 1024, 0),
        (chained(Op.MAXIMUM, P.BF16, 6), 1024, 0),
        (chained(Op.ADD, P.F32, 6), 1024, 0),
        (beside_each_other(6), 1024, 0),
    ],
    ids=["deep", "short", "shallow", "not rounded", "f32", "independent"],
)
def test_vectors_go_together_where_roundings_wait(
    program: ScalarProgram, length: int, wanted: int
) -> None:
    assert interleave_count(program, length) == wanted
