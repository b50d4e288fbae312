"""Slices go before what they cut, after partitioning, where nobody else needs the whole."""

from __future__ import annotations

import numpy as np
import pytest
from hlo_expression import expression
from hypothesis import given
from hypothesis import strategies as st

from spmd.analysis.common_factors import common_factors
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Opcode, Stage
from spmd.passes.algebraic.slice_of_pad import padded_range
from spmd.passes.algebraic_simplifier import AlgebraicSimplifier
from spmd.sharding import HloSharding
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
    # v at 0, 10, .. 50 of 51
    "c = f32[51] pad(v, s), padding=0_0_9; f32[1] slice(c), slice={[10:11]}": "slice(p2, (1,), (2,), (1,))",
    "c = f32[51] pad(v, s), padding=0_0_9; f32[3] slice(c), slice={[10:51:20]}": "slice(p2, (1,), (6,), (2,))",
    "c = f32[51] pad(v, s), padding=0_0_9; f32[9] slice(c), slice={[11:20]}": "broadcast(p3, (), f32[9])",
    "c = f32[51] pad(v, s), padding=0_0_9; f32[5] slice(c), slice={[0:21:5]}": (
        "pad(slice(p2, (0,), (3,), (1,)), p3, (0,), (0,), (1,))"
    ),
    "c = f32[51] pad(v, s), padding=0_0_9; f32[8] slice(c), slice={[5:13]}": (
        "pad(slice(p2, (1,), (2,), (1,)), p3, (5,), (2,), (0,))"
    ),
    "n = s32[70000] iota(), iota_dimension=0; s32[3] slice(n), slice={[60000:60005:2]}": (
        "add(multiply(iota(0, s32[3]), broadcast(2, (), s32[3])), broadcast(60000, (), s32[3]))"
    ),
    "n = u8[70000] iota(), iota_dimension=0; u8[3] slice(n), slice={[66000:66003]}": (
        "add(iota(0, u8[3]), broadcast(208, (), u8[3]))"
    ),
    # two slices of a negation: an eighth of it, computed by themselves
    "n = f32[4,6] negate(a); c = f32[1,1] slice(n), slice={[1:2], [2:3]}; "
    "d = f32[1,2] slice(n), slice={[3:4], [0:2]}; f32[1,3] concatenate(c, d), dimensions={1}": (
        "concatenate(negate(slice(p0, (1, 2), (2, 3), (1, 1))), negate(slice(p0, (3, 0), (4, 2), (1, 1))), (1,))"
    ),
}  # fmt: skip

KEPT = {
    "c = f32[4,6] add(a, b); d = f32[2,6] slice(c), slice={[1:3], [0:6]}; (f32[4,6], f32[2,6]) tuple(c, d)": "all of c is needed",
    "n = f32[4,6] negate(a); c = f32[2,6] slice(n), slice={[0:2], [0:6]}; "
    "d = f32[2,6] slice(n), slice={[2:4], [0:6]}; f32[2,6] add(c, d)": "all of n is needed, though nobody reads it whole",
    "c = f32[9] pad(v, s), padding=1_2; d = f32[3] slice(c), slice={[0:3]}; (f32[9], f32[3]) tuple(c, d)": "c is there",
    "c = f32[51] pad(v, s), padding=0_0_9; f32[5] slice(c), slice={[0:50:12]}": "every sixth and fifth element",
    "n = bf16[70000] iota(), iota_dimension=0; bf16[3] slice(n), slice={[60000:60003]}": "sums round",
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


@given(
    size=st.integers(0, 4),
    low=st.integers(-5, 5),
    interior=st.integers(0, 5),
    start=st.integers(0, 12),
    stride=st.integers(1, 7),
    count=st.integers(1, 6),
)
def test_the_range_of_a_padded_dimension(
    size: int, low: int, interior: int, start: int, stride: int, count: int
) -> None:
    """Source element by position of the slice, None for padding: by the definition, and by the range."""
    wanted: list[int | None] = []
    for position in range(start - low, start - low + stride * count, stride):
        element, between = divmod(position, interior + 1)
        wanted.append(element if not between and 0 <= element < size else None)
    found = padded_range(size, low, interior, start, stride, count)
    if found is None:
        return
    elements: list[int | None] = []
    for element in range(found.start, found.limit, found.stride):
        elements += [*([None] * found.interior if elements else []), element]
    assert [*[None] * found.low, *elements, *[None] * found.high] == wanted
    assert 0 <= found.start <= found.limit <= size


def test_the_result_keeps_its_sharding_and_is_cut_all_the_same() -> None:
    module = program("c = f32[4,6] add(a, b); f32[2,6] slice(c), slice={[1:3], [0:6]}")
    module.entry.root.sharding = HloSharding.replicated()
    assert AlgebraicSimplifier().run(module)
    assert module.entry.root.opcode is Opcode.ADD
    assert module.entry.root.sharding == HloSharding.replicated()


def test_a_result_that_is_a_parameter_is_a_copy_with_the_sharding_of_the_result() -> None:
    module = program("f32[4,6] slice(a), slice={[0:4], [0:6]}")
    module.entry.root.sharding = HloSharding.replicated()
    assert AlgebraicSimplifier().run(module)
    assert expression(module.entry.root) == "copy(p0)"
    assert module.entry.root.sharding == HloSharding.replicated()
    assert not AlgebraicSimplifier().run(module)


@pytest.mark.parametrize("lines", KEPT)
def test_what_is_not(lines: str) -> None:
    assert not AlgebraicSimplifier().run(program(lines))


def test_common_factors() -> None:
    assert common_factors((2, 3, 1, 4), (6, 4)) == [([0, 1], [0]), ([3], [1])]
    assert common_factors((4, 6), (2, 12)) == [([0, 1], [0, 1])]
    assert common_factors((1, 4), (4, 1, 1)) == [([1], [0])]
    assert common_factors((), (1,)) == []


def test_a_slice_goes_through_rotations_in_one_application() -> None:
    """Each rotation reads its operand twice, as in a random generator: the slice needs no round of passes for each."""
    lines = ["HloModule t, num_partitions=1", "ENTRY e {", "  x0 = u32[8] parameter(0)"]
    lines += ["  l = u32[8] parameter(1)", "  r = u32[8] parameter(2)"]
    for n in range(40):
        lines.append(f"  left{n} = u32[8] shift-left(x{n}, l)")
        lines.append(f"  right{n} = u32[8] shift-right-logical(x{n}, r)")
        lines.append(f"  o{n} = u32[8] or(left{n}, right{n})")
        lines.append(f"  x{n + 1} = u32[8] xor(o{n}, l)")
    lines += ["  ROOT y = u32[1] slice(x40), slice={[3:4]}", "}"]
    module = parse_module("\n".join(lines))
    module.stage = Stage.PARTITIONED
    inputs = [np.arange(8, dtype=np.uint32) + k for k in range(3)]
    (want,) = evaluate(module, *inputs)
    assert AlgebraicSimplifier().run(module)
    verify(module)
    dims = {x.dims for x in module.entry.instructions if x.opcode is not Opcode.PARAMETER}
    assert dims == {(1,)}
    np.testing.assert_array_equal(evaluate(module, *inputs)[0], want)
