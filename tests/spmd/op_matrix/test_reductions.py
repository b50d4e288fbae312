"""Operations that combine elements, on every element type they take, against a fold in Python.

Values are small whole numbers, so that sums and products are exact in every order; the results are compared exactly.
The elementwise tables are the definition of what the reducer does; these tests say which elements it meets.
"""

from __future__ import annotations

import functools
import itertools
import math

import pytest

from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, INTEGERS, wrap
from tests.spmd.op_matrix.judge import scalars
from tests.spmd.op_matrix.run import array, run
from tests.spmd.op_matrix.values import ALL_TYPES

NUMBERS = tuple(k for k in ALL_TYPES if k not in ("pred", "f8e8m0fnu"))
ORDERED = tuple(k for k in ALL_TYPES if k not in COMPLEX and k != "f8e8m0fnu")

REDUCERS = """
add {{ x = {k}[] parameter(0) y = {k}[] parameter(1) ROOT r = {k}[] add(x, y) }}
multiply {{ x = {k}[] parameter(0) y = {k}[] parameter(1) ROOT r = {k}[] multiply(x, y) }}
second {{ x = {k}[] parameter(0) y = {k}[] parameter(1) ROOT r = {k}[] copy(y) }}
"""
ORDERING = """
maximum {{ x = {k}[] parameter(0) y = {k}[] parameter(1) ROOT r = {k}[] maximum(x, y) }}
minimum {{ x = {k}[] parameter(0) y = {k}[] parameter(1) ROOT r = {k}[] minimum(x, y) }}
ge {{ x = {k}[] parameter(0) y = {k}[] parameter(1) ROOT r = pred[] compare(x, y), direction=GE }}
lt {{ x = {k}[] parameter(0) y = {k}[] parameter(1) ROOT r = pred[] compare(x, y), direction=LT }}
pair_lt {{ a = {k}[] parameter(0) b = {k}[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3) ROOT r = pred[] compare(a, b), direction=LT }}
"""

COMBINE = {
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: x * y,
    "maximum": lambda x, y: y if x < y else x,
    "minimum": lambda x, y: x if x < y else y,
}


def before(kind):
    return (REDUCERS + (ORDERING if kind not in COMPLEX else "")).format(k=kind)


def small(kind, count):
    """Whole numbers whose sums and products of three stay exact; {0, 1} or {0, -1} where the type holds little else."""
    if kind == "pred":
        return [i % 3 == 1 for i in range(count)]
    if INTEGERS.get(kind, 8) <= 2:
        return [wrap((i * 5 + i // 3) % 2, kind) for i in range(count)]
    numbers = [(i * 7 + i // 4) % 3 for i in range(count)]
    return [
        complex(n, 2 - n) if kind in COMPLEX else float(n) if kind in FLOATS else n for n in numbers
    ]


def held(kind, x):
    """``x`` as the type holds it."""
    if kind == "pred":
        return bool(x)
    if kind in INTEGERS:
        return wrap(int(x), kind)
    return x if kind in COMPLEX else FLOATS[kind].round(float(x))


def fold(kind, op, xs, start):
    return functools.reduce(lambda a, x: held(kind, COMBINE[op](a, x)), xs, start)


def positions(dims):
    return list(itertools.product(*map(range, dims)))


def operations(kind):
    return ("add", "multiply") if kind in COMPLEX else tuple(COMBINE)


@pytest.mark.parametrize("kind", [k for k in ALL_TYPES if k != "f8e8m0fnu"])
def test_reduce(kind):
    for op, (dims, over) in itertools.product(
        operations(kind),
        [
            ((3,), {0}),
            ((2, 3), {0}),
            ((3, 1, 2), {0, 2}),
            ((0, 2), {0}),
            ((2,), set()),
            ((2, 0), {0}),
        ],
    ):
        xs = small(kind, math.prod(dims))[: math.prod(dims)]
        kept = [d for d in range(len(dims)) if d not in over]
        result = [dims[d] for d in kept]
        body = (
            f"x = {kind}[{text_of(dims)}] parameter(0)\ninit = {kind}[] parameter(1)\n"
            f"ROOT r = {kind}[{text_of(result)}] reduce(x, init), dimensions={{{text_of(sorted(over))}}}, to_apply={op}"
        )
        start = held(kind, 1)
        (got,) = run(body, array(kind, xs, dims), array(kind, [start], ()), before=before(kind))
        of = dict(zip(positions(dims), xs, strict=True))
        want = [
            fold(
                kind, op, [x for at, x in of.items() if tuple(at[d] for d in kept) == place], start
            )
            for place in positions(result)
        ]
        assert scalars(got) == want, (kind, op, dims, over)


def text_of(dims):
    return ",".join(map(str, dims))


def covered(place, window, dims):
    """Positions of the operand under the window at ``place``: (size, stride, low, base dilation, window dilation) each."""
    for offsets in itertools.product(*(range(w[0]) for w in window)):
        at = []
        for p, o, (_, stride, low, base, dilation), size in zip(
            place, offsets, window, dims, strict=True
        ):
            here = p * stride + o * dilation - low
            at.append(here // base if here % base == 0 and 0 <= here // base < size else None)
        if None not in at:
            yield tuple(at)


@pytest.mark.parametrize("kind", [k for k in ALL_TYPES if k != "f8e8m0fnu"])
def test_reduce_window(kind):
    cases = [
        ("size=2x2 stride=2x1", (4, 3), (2, 2), [(2, 2, 0, 1, 1), (2, 1, 0, 1, 1)]),
        ("size=2 pad=1_1 lhs_dilate=2", (3,), (6,), [(2, 1, 1, 2, 1)]),
        ("size=2 rhs_dilate=3", (5,), (2,), [(2, 1, 0, 1, 3)]),
        ("size=1 pad=1_0", (1,), (2,), [(1, 1, 1, 1, 1)]),
        ("size=2", (0,), (0,), [(2, 1, 0, 1, 1)]),
    ]
    for (text, dims, result, window), op in itertools.product(cases, operations(kind)):
        xs = small(kind, math.prod(dims))
        start = held(kind, {"add": 0, "multiply": 1}.get(op, 1))
        body = (
            f"x = {kind}[{text_of(dims)}] parameter(0)\ninit = {kind}[] parameter(1)\n"
            f"ROOT r = {kind}[{text_of(result)}] reduce-window(x, init), window={{{text}}}, to_apply={op}"
        )
        (got,) = run(body, array(kind, xs, dims), array(kind, [start], ()), before=before(kind))
        of = dict(zip(positions(dims), xs, strict=True))
        want = [
            fold(kind, op, [of[at] for at in covered(p, window, dims)], start)
            for p in positions(result)
        ]
        assert scalars(got) == want, (kind, op, text)


@pytest.mark.parametrize("kind", ORDERED)
def test_select_and_scatter(kind):
    """The first position of each window that no later one beats gets the source's element."""
    dims, window = (6,), [(2, 2, 0, 1, 1)]
    xs, source, start = small(kind, 6), [held(kind, v) for v in (1, 0, 1)], held(kind, 0)
    body = (
        f"x = {kind}[6] parameter(0)\ns = {kind}[3] parameter(1)\ninit = {kind}[] parameter(2)\n"
        f"ROOT r = {kind}[6] select-and-scatter(x, s, init), window={{size=2 stride=2}}, select=ge, scatter=add"
    )
    (got,) = run(
        body, array(kind, xs), array(kind, source), array(kind, [start], ()), before=before(kind)
    )
    want = [start] * 6
    for p, value in enumerate(source):
        best = max((at[0] for at in covered((p,), window, dims)), key=lambda i: (xs[i], -i))
        want[best] = held(kind, want[best] + value)
    assert scalars(got) == want


@pytest.mark.parametrize("kind", [k for k in ALL_TYPES if k != "f8e8m0fnu"])
def test_scatter(kind):
    """Updates at one place combine; those that do not fit are dropped."""
    xs, updates, places = small(kind, 4), small(kind, 5), [1, 3, 1, -1, 4]
    for op in operations(kind):
        body = (
            f"x = {kind}[4] parameter(0)\ni = s32[5] constant({{1,3,1,-1,4}})\nu = {kind}[5] parameter(1)\n"
            f"ROOT r = {kind}[4] scatter(x, i, u), to_apply={op}, update_window_dims={{}}, inserted_window_dims={{0}},"
            " scatter_dims_to_operand_dims={0}, index_vector_dim=1"
        )
        (got,) = run(body, array(kind, xs), array(kind, updates), before=before(kind))
        want = list(xs)
        for place, update in zip(places, updates, strict=True):
            if 0 <= place < 4:
                want[place] = held(kind, COMBINE[op](want[place], update))
        assert scalars(got) == want, (kind, op)


@pytest.mark.parametrize("kind", ORDERED)
@pytest.mark.parametrize("dims", [(5,), (3, 2), (1, 4), (0, 3), (4, 0)])
def test_sort_is_stable_and_carries_along(kind, dims):
    xs = small(kind, math.prod(dims))
    body = (
        f"x = {kind}[{text_of(dims)}] parameter(0)\ni = s32[{text_of(dims)}] iota(), iota_dimension=0\n"
        f"ROOT r = ({kind}[{text_of(dims)}], s32[{text_of(dims)}]) sort(x, i), dimensions={{0}}, is_stable=true, to_apply=pair_lt"
    )
    keys, moved = run(body, array(kind, xs, dims), before=before(kind))
    of = dict(zip(positions(dims), xs, strict=True))
    columns = positions(dims[1:])
    order = {c: sorted(range(dims[0]), key=lambda i, c=c: of[i, *c]) for c in columns}
    assert scalars(moved) == [order[at[1:]][at[0]] for at in positions(dims)]
    assert scalars(keys) == [of[order[at[1:]][at[0]], *at[1:]] for at in positions(dims)]


@pytest.mark.parametrize("kind", [k for k in ORDERED if k != "pred"])
@pytest.mark.parametrize(("size", "k"), [(5, 2), (1, 1), (4, 0), (4, 4)])
def test_topk(kind, size, k):
    """The largest first; equal ones in their order."""
    xs = small(kind, size)
    body = f"x = {kind}[{size}] parameter(0)\nROOT r = ({kind}[{k}], s32[{k}]) topk(x), k={k}, largest=true"
    found, at = run(body, array(kind, xs))
    order = sorted(range(size), key=lambda i: -xs[i])[:k]
    assert scalars(at) == order
    assert scalars(found) == [xs[i] for i in order]


@pytest.mark.parametrize("kind", NUMBERS)
def test_dot(kind):
    """Batch, then free of lhs, then free of rhs."""
    for b, m, n, k in [(2, 2, 1, 3), (1, 2, 3, 0), (0, 1, 1, 2), (1, 1, 1, 1)]:
        left, right = small(kind, b * m * k), small(kind, b * k * n)
        body = (
            f"x = {kind}[{b},{m},{k}] parameter(0)\ny = {kind}[{k},{b},{n}] parameter(1)\n"
            f"ROOT r = {kind}[{b},{m},{n}] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{1}},"
            " lhs_contracting_dims={2}, rhs_contracting_dims={0}"
        )
        (got,) = run(body, array(kind, left, (b, m, k)), array(kind, right, (k, b, n)))
        want = [
            held(
                kind, sum(left[(i * m + r) * k + d] * right[(d * b + i) * n + c] for d in range(k))
            )
            for i, r, c in positions((b, m, n))
        ]
        assert scalars(got) == want, (kind, b, m, n, k)


@pytest.mark.parametrize("kind", NUMBERS)
def test_convolution(kind):
    """One row of two features, a kernel of two, padded and dilated."""
    size, taps, features = 4, 2, 2
    xs, kernel = small(kind, size * features), small(kind, taps * features)
    window = [(taps, 1, 1, 2, 1)]
    body = (
        f"x = {kind}[1,{size},{features}] parameter(0)\nw = {kind}[{taps},{features},1] parameter(1)\n"
        f"ROOT r = {kind}[1,7,1] convolution(x, w), window={{size=2 pad=1_0 lhs_dilate=2}}, dim_labels=b0f_0io->b0f"
    )
    (got,) = run(
        body, array(kind, xs, (1, size, features)), array(kind, kernel, (taps, features, 1))
    )
    want = []
    for p in range(7):
        total = 0
        for tap in range(taps):
            here = p * window[0][1] + tap - 1
            if here % 2 == 0 and 0 <= here // 2 < size:
                total += sum(
                    xs[here // 2 * features + f] * kernel[tap * features + f]
                    for f in range(features)
                )
        want.append(held(kind, total))
    assert scalars(got) == want


@pytest.mark.parametrize("kind", NUMBERS)
def test_scan(kind):
    """Running sums: each output is the carry before the element is added."""
    xs = small(kind, 3)
    function = (
        f"step {{ x = {kind}[] parameter(0) c = {kind}[] parameter(1) s = {kind}[] add(c, x)"
        f" ROOT t = ({kind}[], {kind}[]) tuple(c, s) }}"
    )
    body = (
        f"x = {kind}[3] parameter(0)\ninit = {kind}[] parameter(1)\n"
        f"ROOT r = ({kind}[3], {kind}[]) scan(x, init), dimensions={{0}}, num_carries=1, to_apply=step"
    )
    stacked, last = run(body, array(kind, xs), array(kind, [held(kind, 1)], ()), before=function)
    sums = list(itertools.accumulate(xs, lambda a, x: held(kind, a + x), initial=held(kind, 1)))
    assert scalars(stacked) == sums[:-1]
    assert scalars(last) == sums[-1:]
