"""Operations that only move elements, on every element type, empty and size-1 dimensions included.

Each case says, for a position of the result, from where its element comes: that is the whole definition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from spmd.evaluator import evaluate
from tests.spmd.op_matrix.run import array, read, run
from tests.spmd.op_matrix.test_convert import converted
from tests.spmd.op_matrix.values import ALL_TYPES, rounds

#: (operand number, position in it)
Source = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class Move:
    """``k`` in the text is the element type; integer operands after the arrays are given in the text itself."""

    text: str
    operands: tuple[tuple[int, ...], ...]
    result: tuple[int, ...]
    source: Callable[..., Source]


def row_major(dims, number):
    """The position with this number."""
    position = []
    for size in reversed(dims):
        position.append(number % size)
        number //= size
    return tuple(reversed(position))


def numbered(position, dims):
    number = 0
    for at, size in zip(position, dims, strict=True):
        number = number * size + at
    return number


def padded(i, j):
    """padding=1_0_1x-1_2: rows 0 and 2 are holes or edge, column 0 is cut."""
    inside = i % 2 == 1 and j + 1 < 3
    return (0, (i // 2, j + 1)) if inside else (1, ())


MOVES = {
    "copy": Move("copy(p0)", ((2, 3),), (2, 3), lambda i, j: (0, (i, j))),
    "reshape": Move(
        "reshape(p0)", ((2, 6),), (3, 1, 4), lambda *at: (0, row_major((2, 6), numbered(at, (3, 1, 4))))
    ),
    "reshape of nothing": Move("reshape(p0)", ((0, 3),), (3, 2, 0), lambda *at: (0, at)),
    "bitcast": Move("bitcast(p0)", ((2, 3),), (6,), lambda i: (0, (i // 3, i % 3))),
    "transpose": Move("transpose(p0), dimensions={2,0,1}", ((2, 1, 3),), (3, 2, 1), lambda i, j, k: (0, (j, k, i))),
    "broadcast": Move("broadcast(p0), dimensions={0,2}", ((2, 1),), (2, 3, 1), lambda i, j, k: (0, (i, k))),
    "broadcast of a scalar": Move("broadcast(p0), dimensions={}", ((),), (2, 0), lambda *at: (0, ())),
    "broadcast with dimensions swapped": Move(
        "broadcast(p0), dimensions={1,0}", ((2, 3),), (3, 2), lambda i, j: (0, (j, i))
    ),
    "reverse": Move("reverse(p0), dimensions={1}", ((2, 3),), (2, 3), lambda i, j: (0, (i, 2 - j))),
    "slice": Move("slice(p0), slice={[1:4:2],[0:3:1]}", ((5, 3),), (2, 3), lambda i, j: (0, (1 + 2 * i, j))),
    "empty slice": Move("slice(p0), slice={[2:2],[0:3:3]}", ((5, 3),), (0, 1), lambda i, j: (0, (2, j))),
    "pad": Move("pad(p0, p1), padding=1_1_1x-1_2", ((2, 3), ()), (5, 4), padded),
    "pad of nothing": Move("pad(p0, p1), padding=1_1", ((0,), ()), (2,), lambda i: (1, ())),
    "concatenate": Move(
        "concatenate(p0, p1, p0), dimensions={1}",
        ((2, 1), (2, 0)),
        (2, 2),
        lambda i, j: (0, (i, 0)),
    ),
    "dynamic-slice clamps": Move(
        "dynamic-slice(p0, s32[] constant(7), s32[] constant(-3)), dynamic_slice_sizes={2,1}",
        ((5, 3),),
        (2, 1),
        lambda i, j: (0, (3 + i, j)),
    ),
    "dynamic-update-slice": Move(
        "dynamic-update-slice(p0, p1, s32[] constant(9), s32[] constant(1))",
        ((3, 3), (2, 1)),
        (3, 3),
        lambda i, j: (1, (i - 1, 0)) if i >= 1 and j == 1 else (0, (i, j)),
    ),
    "dynamic-update-slice of nothing": Move(
        "dynamic-update-slice(p0, p1, s32[] constant(1), s32[] constant(1))", ((3, 3), (0, 1)), (3, 3), lambda i, j: (0, (i, j))
    ),
    "gather": Move(
        "gather(p0, s32[4] constant({4,0,-2,2})), offset_dims={1}, collapsed_slice_dims={0},"
        " start_index_map={0}, index_vector_dim=1, slice_sizes={1,2}",
        ((4, 2),),
        (4, 2),
        lambda i, j: (0, ((3, 0, 0, 2)[i], j)),
    ),
    "gather nothing": Move(
        "gather(p0, s32[0] constant({})), offset_dims={1}, collapsed_slice_dims={0},"
        " start_index_map={0}, index_vector_dim=1, slice_sizes={1,2}",
        ((4, 2),),
        (0, 2),
        lambda i, j: (0, (0, j)),
    ),
    "gather in batches": Move(
        "gather(p0, s32[2] constant({1,0})), offset_dims={}, operand_batching_dims={0}, start_indices_batching_dims={0},"
        " collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, slice_sizes={1,1}",
        ((2, 3),),
        (2,),
        lambda i: (0, (i, 1 - i)),
    ),
    "scatter the last one": Move(
        "scatter(p0, s32[3] constant({2,9,0}), p1), to_apply=second, update_window_dims={1}, inserted_window_dims={0},"
        " scatter_dims_to_operand_dims={0}, index_vector_dim=1",
        ((4, 2), (3, 2)),
        (4, 2),
        lambda i, j: (1, (0 if i == 2 else 2, j)) if i in (0, 2) else (0, (i, j)),
    ),
    "tuple": Move("get-tuple-element(tuple(p0, p1)), index=1", ((2,), (1, 2)), (1, 2), lambda *at: (1, at)),
    "opt-barrier": Move("opt-barrier(p0)", ((2, 1),), (2, 1), lambda *at: (0, at)),
    "copy-done": Move("copy-done(copy-start(p0))", ((2, 1),), (2, 1), lambda *at: (0, at)),
    "custom-call": Move(
        'custom-call(p0), custom_call_target="Sharding", sharding={replicated}', ((2, 1),), (2, 1), lambda *at: (0, at)
    ),
    "add-dependency": Move("add-dependency(p0, after-all())", ((2,),), (2,), lambda *at: (0, at)),
    "map": Move("map(p0, p1), dimensions={0}, to_apply=second", ((3,), (3,)), (3,), lambda i: (1, (i,))),
    "call": Move("call(p0, p1), to_apply=whole", ((3,), (1,)), (3,), lambda i: (0, (i,))),
    "fusion": Move("fusion(p0, p1), kind=kLoop, calls=whole", ((3,), (1,)), (3,), lambda i: (0, (i,))),
    "conditional": Move(
        "conditional(s32[] constant(5), p0, p1), branch_computations={same, same}", ((3,), (3,)), (3,), lambda i: (1, (i,))
    ),
    "while": Move("while(p0), condition=never, body=same", ((3,),), (3,), lambda i: (0, (i,))),
}  # fmt: skip

BEFORE = """
second {{ x = {k}[] parameter(0) ROOT y = {k}[] parameter(1) }}
whole {{ ROOT x = {k}[3] parameter(0) y = {k}[1] parameter(1) }}
same {{ x = {k}[3] parameter(0) ROOT y = {k}[3] copy(x) }}
never {{ x = {k}[3] parameter(0) ROOT y = pred[] constant(false) }}
"""


@pytest.mark.parametrize("name", MOVES)
def test_move(name):
    move = MOVES[name]
    for kind in ALL_TYPES:
        body = [f"p{i} = {kind}[{text_of(d)}] parameter({i})" for i, d in enumerate(move.operands)]
        body.append(f"ROOT r = {kind}[{text_of(move.result)}] {move.text}")
        module = read("\n".join(body), BEFORE.format(k=kind))
        places = [move.source(*at) for at in itertools.product(*map(range, move.result))]
        positions = [list(itertools.product(*map(range, dims))) for dims in move.operands]
        for elements in rounds(kind, list(map(len, positions))):
            contents = [
                dict(zip(p, e, strict=True)) for p, e in zip(positions, elements, strict=True)
            ]
            arrays = [array(kind, e, d) for e, d in zip(elements, move.operands, strict=True)]
            (got,) = evaluate(module, *arrays)
            want = array(kind, [contents[o][at] for o, at in places], move.result)
            assert got.dtype == want.dtype, (name, kind)
            assert got.shape == want.shape, (name, kind)
            assert got.tobytes() == want.tobytes(), (name, kind, got, want)


def text_of(dims):
    return ",".join(map(str, dims))


@pytest.mark.parametrize("kind", [k for k in ALL_TYPES if k != "pred"])
@pytest.mark.parametrize(("dims", "dimension"), [((5,), 0), ((2, 0), 0), ((1, 3), 1), ((300,), 0)])
def test_iota(kind, dims, dimension):
    """The position along the dimension, as the type holds it."""
    (got,) = run(f"ROOT r = {kind}[{text_of(dims)}] iota(), iota_dimension={dimension}")
    positions = [at[dimension] for at in itertools.product(*map(range, dims))]
    want = array(kind, [converted(p, kind) for p in positions], dims)
    assert got.tobytes() == want.tobytes(), (kind, got)
