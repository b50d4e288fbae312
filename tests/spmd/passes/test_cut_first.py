"""Slices go before what they cut, after partitioning, where nobody else needs the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hlo_expression import expression

from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Stage
from spmd.passes.algebraic.reduce import common_factors
from spmd.passes.algebraic_simplifier import AlgebraicSimplifier
from spmd.text.parser import parse_module
from spmd.verifier import verify

#: parameters: a, b f32[4,6], v f32[6], s f32[], k s32[], u f32[4,1,6], p pred[]
CASES = {
    "c = f32[4,6] add(a, b); f32[2,6] slice(c), slice={[1:3], [0:6]}": (
        "add(slice(p0, (1, 0), (3, 6), (1, 1)), slice(p1, (1, 0), (3, 6), (1, 1)))"
    ),
    "c = f32[4,6] select(p, a, b); f32[4,3] slice(c), slice={[0:4], [0:6:2]}": (
        "select(p6, slice(p0, (0, 0), (4, 6), (1, 2)), slice(p1, (0, 0), (4, 6), (1, 2)))"
    ),
    "r = f32[4,6] broadcast(v), dimensions={1}; c = f32[4,6] multiply(a, r); "
    "f32[4,2] slice(c), slice={[0:4], [0:2]}": (
        "multiply(slice(p0, (0, 0), (4, 2), (1, 1)), broadcast(slice(p2, (0,), (2,), (1,)), (1,), f32[4,2]))"
    ),
    "c = f32[4,6] negate(a); f32[2,6] dynamic-slice(c, k, k), dynamic_slice_sizes={2,6}": (
        "negate(dynamic-slice(p0, p4, p4, (2, 6)))"
    ),
    "r = f32[4,6] broadcast(s), dimensions={}; c = f32[4,6] multiply(r, a); "
    "f32[2,6] dynamic-slice(c, k, k), dynamic_slice_sizes={2,6}": (
        "multiply(broadcast(p3, (), f32[2,6]), dynamic-slice(p0, p4, p4, (2, 6)))"
    ),
    "c = f32[12,6] concatenate(a, b, a), dimensions={0}; f32[4,6] slice(c), slice={[2:6], [0:6]}": (
        "concatenate(slice(p0, (2, 0), (4, 6), (1, 1)), slice(p1, (0, 0), (2, 6), (1, 1)), (0,))"
    ),
    # rows 1, 4, 7, 10: one of a, two of b, one of the second a
    "c = f32[12,6] concatenate(a, b, a), dimensions={0}; f32[4,6] slice(c), slice={[1:12:3], [0:6]}": (
        "concatenate(slice(p0, (1, 0), (4, 6), (3, 1)), slice(p1, (0, 0), (4, 6), (3, 1)), "
        "slice(p0, (2, 0), (4, 6), (3, 1)), (0,))"
    ),
    "c = f32[1,4,6] reshape(u); f32[1,2,3] slice(c), slice={[0:1], [1:3], [0:6:2]}": (
        "reshape(slice(p5, (1, 0, 0), (3, 1, 6), (1, 1, 2)), f32[1,2,3])"
    ),
}  # fmt: skip

KEPT = {
    "c = f32[4,6] add(a, b); d = f32[2,6] slice(c), slice={[1:3], [0:6]}; (f32[4,6], f32[2,6]) tuple(c, d)": "all of c is needed",
    "c = f32[4,6] add(a, b), sharding={replicated}; f32[2,6] slice(c), slice={[1:3], [0:6]}": "c is annotated",
    "c = f32[4,6] add(a, b); f32[2,6] dynamic-slice(c, k, k), dynamic_slice_sizes={2,6}": "two arrays would be cut",
    "c = f32[2,2,6] reshape(a); f32[1,2,6] slice(c), slice={[0:1], [0:2], [0:6]}": "rows are split",
}  # fmt: skip


def program(lines: str, stage: Stage = Stage.PARTITIONED) -> HloModule:
    *before, last = [line.strip() for line in lines.split(";")]
    shapes = ["f32[4,6]", "f32[4,6]", "f32[6]", "f32[]", "s32[]", "f32[4,1,6]", "pred[]"]
    parameters = [f"{n} = {s} parameter({i})" for i, (n, s) in enumerate(zip("abvskup", shapes, strict=True))]  # fmt: skip
    body = "\n  ".join([*parameters, *before, f"ROOT result = {last}"])
    module = parse_module(f"HloModule t\nENTRY e {{\n  {body}\n}}\n")
    module.stage = stage
    return module


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = ((4, 6), (4, 6), (6,), ())
    floats = [np.asarray(rng.normal(size=shape), np.float32) for shape in shapes]
    unit = rng.normal(size=(4, 1, 6)).astype(np.float32)
    return [*floats, np.asarray(1, np.int32), unit, np.asarray(True)]


@pytest.mark.parametrize("lines", CASES)
def test_what_is_cut_first(lines: str) -> None:
    module = program(lines)
    (want,) = evaluate(module, *arguments())
    assert AlgebraicSimplifier().run(module)
    verify(module)
    assert expression(module.entry.root) == CASES[lines]
    (got,) = evaluate(module, *arguments())
    np.testing.assert_array_equal(want, got)


@pytest.mark.parametrize("lines", CASES)
def test_nothing_before_partitioning(lines: str) -> None:
    module = program(lines, Stage.LOGICAL)
    assert not AlgebraicSimplifier().run(module)


@pytest.mark.parametrize("lines", KEPT)
def test_what_is_not(lines: str) -> None:
    assert not AlgebraicSimplifier().run(program(lines))


def test_common_factors() -> None:
    assert common_factors((2, 3, 1, 4), (6, 4)) == [([0, 1], [0]), ([3], [1])]
    assert common_factors((4, 6), (2, 12)) == [([0, 1], [0, 1])]
    assert common_factors((1, 4), (4, 1, 1)) == [([1], [0])]
    assert common_factors((), (1,)) == []
