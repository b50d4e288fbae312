"""ragged-dot and scaled-dot on every element type they take, and the operations on dynamic sizes."""

from __future__ import annotations

import itertools

import pytest

from spmd.evaluator import evaluate
from tests.spmd.op_matrix.formats import FLOATS
from tests.spmd.op_matrix.judge import scalars
from tests.spmd.op_matrix.run import array, read, run
from tests.spmd.op_matrix.test_reductions import NUMBERS, held, small
from tests.spmd.op_matrix.values import ALL_TYPES, rounds

ROWS, DEPTH, COLUMNS, GROUPS = 5, 2, 3, 2


def table(rows, columns, elements):
    return dict(zip(itertools.product(range(rows), range(columns)), elements, strict=True))


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("sizes", [(2, 3), (0, 5), (1, 2), (0, 0)])
def test_rows_in_groups(kind, sizes):
    """Each run of rows meets its own matrix; rows beyond the last run are zero."""
    left, right = small(kind, ROWS * DEPTH), small(kind, GROUPS * DEPTH * COLUMNS)
    body = (
        f"x = {kind}[{ROWS},{DEPTH}] parameter(0)\ny = {kind}[{GROUPS},{DEPTH},{COLUMNS}] parameter(1)\n"
        f"g = s32[{GROUPS}] parameter(2)\nROOT r = {kind}[{ROWS},{COLUMNS}] ragged-dot(x, y, g), lhs_contracting_dims={{1}},"
        " rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
    )
    given = array(kind, left, (ROWS, DEPTH)), array(kind, right, (GROUPS, DEPTH, COLUMNS))
    (got,) = run(body, *given, array("s32", sizes))
    x = table(ROWS, DEPTH, left)
    matrices = [
        table(DEPTH, COLUMNS, right[g * DEPTH * COLUMNS : (g + 1) * DEPTH * COLUMNS])
        for g in range(GROUPS)
    ]
    group_of = [g for g, size in enumerate(sizes) for _ in range(size)] + [None] * ROWS
    want = [
        held(kind, 0)
        if group_of[row] is None
        else held(kind, sum(x[row, k] * matrices[group_of[row]][k, c] for k in range(DEPTH)))
        for row, c in itertools.product(range(ROWS), range(COLUMNS))
    ]
    assert scalars(got) == want


@pytest.mark.parametrize("kind", NUMBERS)
def test_depth_in_groups(kind):
    """A ragged contraction gives one product per run."""
    sizes = (1, 0, 3)
    left, right = small(kind, 2 * 4), small(kind, 4 * COLUMNS)
    body = (
        f"x = {kind}[2,4] parameter(0)\ny = {kind}[4,{COLUMNS}] parameter(1)\ng = s32[3] parameter(2)\n"
        f"ROOT r = {kind}[3,2,{COLUMNS}] ragged-dot(x, y, g), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},"
        " lhs_ragged_dims={1}"
    )
    given = array(kind, left, (2, 4)), array(kind, right, (4, COLUMNS)), array("s32", sizes)
    (got,) = run(body, *given)
    x, y = table(2, 4, left), table(4, COLUMNS, right)
    ends = list(itertools.accumulate(sizes))
    want = [
        held(kind, sum(x[row, k] * y[k, c] for k in range(ends[g] - sizes[g], ends[g])))
        for g, row, c in itertools.product(range(3), range(2), range(COLUMNS))
    ]
    assert scalars(got) == want


@pytest.mark.parametrize("kind", [k for k in FLOATS if k != "f8e8m0fnu"])
@pytest.mark.parametrize("scale", ["f8e8m0fnu", "f32", "bf16"])
def test_scaled_dot(kind, scale):
    """Blocks of two along the depth share a power of two on either side."""
    depth, left, right = 4, small(kind, 2 * 4), small(kind, 3 * 4)
    left_scale, right_scale = [1.0, 2.0, 0.5, 4.0], [2.0, 1.0, 1.0, 0.25, 8.0, 2.0]
    body = (
        f"x = {kind}[2,4] parameter(0)\ny = {kind}[3,4] parameter(1)\ns = {scale}[2,2] parameter(2)\nt = {scale}[3,2] parameter(3)\n"
        "ROOT r = f32[2,3] scaled-dot(x, y, s, t), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    )
    given = [array(kind, left, (2, 4)), array(kind, right, (3, 4))]
    (got,) = run(body, *given, array(scale, left_scale, (2, 2)), array(scale, right_scale, (3, 2)))
    x, y = table(2, depth, left), table(3, depth, right)
    s, t = table(2, 2, left_scale), table(3, 2, right_scale)
    want = [
        float(sum(x[i, k] * s[i, k // 2] * y[j, k] * t[j, k // 2] for k in range(depth)))
        for i, j in itertools.product(range(2), range(3))
    ]
    assert scalars(got) == want


@pytest.mark.parametrize("size", [0, 1, 3])
def test_dynamic_sizes(size):
    """The size that was set is read back, the first elements stay; a dynamic reshape keeps their order."""
    for kind in ALL_TYPES:
        body = (
            f"x = {kind}[3] parameter(0)\nn = s32[] parameter(1)\n"
            f"d = {kind}[<=3] set-dimension-size(x, n), dimensions={{0}}\n"
            "g = s32[] get-dimension-size(d), dimensions={0}\n"
            f"one = s32[] constant(1)\nq = {kind}[<=3,<=1] dynamic-reshape(d, n, one)\n"
            f"ROOT t = ({kind}[<=3], s32[], {kind}[<=3,<=1]) tuple(d, g, q)"
        )
        module = read(body)
        for (elements,) in rounds(kind, (3,)):
            given = array(kind, elements), array("s32", [size], ())
            kept, found, reshaped = evaluate(module, *given)
            assert int(found) == size, kind
            assert kept.tobytes() == reshaped.tobytes() == given[0][:size].tobytes(), kind
            assert reshaped.shape == (size, 1), kind


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_batch_norm_gradient_is_that_of_the_training_form(kind):
    """Against differences of the loss sum(out * w) in double precision, the training form written out."""
    x, w = [0.5, -1.0, 2.0, 0.25], [1.0, 0.5, -2.0, 1.5]
    scale, epsilon = 1.5, 0.5

    def loss(points, factor):
        mean = sum(points) / len(points)
        spread = sum((p - mean) ** 2 for p in points) / len(points)
        normal = [(p - mean) / (spread + epsilon) ** 0.5 for p in points]
        return sum((n * factor) * a for n, a in zip(normal, w, strict=True))

    def slope(f):
        step = 1e-5
        return (f(step) - f(-step)) / (2 * step)

    mean = sum(x) / 4
    variance = sum((p - mean) ** 2 for p in x) / 4
    body = "\n".join(
        [f"x = {kind}[4,1] parameter(0)"]
        + [f"p{i} = {kind}[1] parameter({i})" for i in (1, 2, 3)]
        + [
            f"w = {kind}[4,1] parameter(4)",
            f"ROOT r = ({kind}[4,1], {kind}[1], {kind}[1]) batch-norm-grad(x, p1, p2, p3, w), epsilon={epsilon}, feature_index=1",
        ]
    )
    statistics = [array(kind, [v]) for v in (scale, mean, variance)]
    got = [
        scalars(out)
        for out in run(body, array(kind, x, (4, 1)), *statistics, array(kind, w, (4, 1)))
    ]
    along = [
        slope(lambda s, i=i: loss([p + s * (j == i) for j, p in enumerate(x)], scale))
        for i in range(4)
    ]
    want = [along, [slope(lambda s: loss(x, scale + s))], [sum(w)]]
    near = 2.0 ** -min(FLOATS[kind].mantissa, 30) * 16
    for a, b in zip(itertools.chain(*got), itertools.chain(*want), strict=True):
        assert abs(a - b) <= near * max(1.0, abs(b)), (kind, got, want)
