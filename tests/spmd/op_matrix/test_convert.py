"""convert between every two element types, bitcast-convert, reduce-precision, compare, select, clamp, stochastic-convert."""

from __future__ import annotations

import itertools
import math
import struct

import pytest

from tests.spmd.op_matrix import real_functions
from tests.spmd.op_matrix.formats import COMPLEX, FLOATS, INTEGERS, bounds, to_fraction, wrap
from tests.spmd.op_matrix.judge import has_nan, same, scalars
from tests.spmd.op_matrix.run import array, elementwise, run
from tests.spmd.op_matrix.values import ALL_TYPES, edges, values
from tests.spmd.op_matrix.whole_functions import clamp_to


def real_part(x):
    return x.real if isinstance(x, complex) else x


def to_whole(x, kind):
    """Floating: toward zero, saturating, NaN is 0. Integers wrap."""
    if isinstance(x, float):
        if not math.isfinite(x):
            return 0 if x != x else bounds(kind)[x > 0]
        return clamp_to(math.trunc(x), kind)
    return wrap(int(x), kind)


def to_float(x, kind):
    """Nearest; into a type narrower than f32 by way of f32."""
    form = FLOATS[kind]
    exact = x if isinstance(x, float) else real_functions.signed_zero(to_fraction(int(x)), 1)
    return form.round(FLOATS["f32"].round(exact) if form.bits < 32 else exact)


def converted(x, kind):
    if kind == "pred":
        return x != 0
    if kind in COMPLEX:
        part = COMPLEX[kind]
        return complex(
            to_float(real_part(x), part), to_float(x.imag if isinstance(x, complex) else 0.0, part)
        )
    x = real_part(x)
    return to_whole(x, kind) if kind in INTEGERS else to_float(x, kind)


@pytest.mark.parametrize("source", ALL_TYPES)
def test_convert(source):
    xs = values(source)
    for kind in ALL_TYPES:
        got = elementwise("convert", [(source, xs)], kind)
        wrong = [
            (x, g, converted(x, kind))
            for x, g in zip(xs, got, strict=True)
            if not converts(x, g, source, kind)
        ]
        assert not wrong, f"{source} to {kind}: {wrong[:6]}"


def converts(x, got, source, kind):
    want = converted(x, kind)
    if source == kind or isinstance(want, complex):
        return repr(got) == repr(want) or got == want or "nan" in repr(want)
    if kind in FLOATS:
        nan_without = want != want and not has_nan(FLOATS[kind])
        return same(got, want) or (
            real_part(x) != real_part(x) and (nan_without or not has_nan(FLOATS[kind]))
        )
    return got == want


PATTERNS = {"f16": "e", "f32": "f", "f64": "d"}


def pattern(kind, x):
    """The bits of a value as a natural number."""
    if kind == "pred":
        return int(x)
    if kind in INTEGERS:
        return x % (1 << INTEGERS[kind])
    if kind in PATTERNS:
        return int.from_bytes(struct.pack("<" + PATTERNS[kind], x), "little")
    form = FLOATS[kind]
    return next(p for p in range(1 << form.bits) if same(form.decode(p), x))


def bits_of(kind):
    return 8 if kind == "pred" else INTEGERS[kind] if kind in INTEGERS else FLOATS[kind].bits


@pytest.mark.parametrize("kind", ["pred", *INTEGERS, *FLOATS])
def test_bitcast_convert_to_and_from_unsigned(kind):
    """Formats of six bits have no unsigned type of their size: they meet themselves."""
    bits = bits_of(kind)
    other = f"u{bits}" if f"u{bits}" in INTEGERS else kind
    for xs, dims in ((values(kind), (-1,)), (values(kind)[:1], (1, 1)), ((), (0, 2))):
        given = array(kind, xs, dims)
        sizes = ",".join(map(str, given.shape))
        there, back = run(
            f"x = {kind}[{sizes}] parameter(0)\ny = {other}[{sizes}] bitcast-convert(x)\n"
            f"z = {kind}[{sizes}] bitcast-convert(y)\nROOT t = ({other}[{sizes}], {kind}[{sizes}]) tuple(y, z)",
            given,
        )
        assert back.tobytes() == given.tobytes()
        if other == kind:
            assert there.tobytes() == given.tobytes()
            continue
        for x, p in zip(xs, scalars(there), strict=True):
            if x == x:
                assert pattern(kind, x) == p, (kind, x, p)
            else:  # which of its patterns a NaN has is open
                assert value_of(kind, p) != value_of(kind, p), (kind, p)


def value_of(kind, bits):
    """The number with this pattern, of a floating type."""
    if kind in PATTERNS:
        size = FLOATS[kind].bits // 8
        return struct.unpack("<" + PATTERNS[kind], bits.to_bytes(size, "little"))[0]
    return FLOATS[kind].decode(bits)


@pytest.mark.parametrize(("wide", "narrow"), list(itertools.permutations([2, 4, 8, 16, 32, 64], 2)))
def test_bitcast_convert_between_widths(wide, narrow):
    if wide < narrow:
        wide, narrow, forward = narrow, wide, False
    else:
        forward = True
    ratio = wide // narrow
    xs = values(f"u{wide}")
    pieces = [
        x >> i * narrow & ((1 << narrow) - 1) for x in xs for i in range(ratio)
    ]  # lowest first
    whole, cut = f"u{wide}[{len(xs)}]", f"u{narrow}[{len(xs)},{ratio}]"
    if forward:
        (got,) = run(
            f"x = {whole} parameter(0)\nROOT r = {cut} bitcast-convert(x)", array(f"u{wide}", xs)
        )
        assert [int(v) for v in got.reshape(-1)] == pieces
    else:
        given = array(f"u{narrow}", pieces, (len(xs), ratio))
        (got,) = run(f"x = {cut} parameter(0)\nROOT r = {whole} bitcast-convert(x)", given)
        assert [int(v) for v in got] == list(xs)


@pytest.mark.parametrize(
    ("exponent", "mantissa"), [(5, 10), (8, 7), (4, 3), (5, 2), (2, 1), (1, 0), (8, 23), (11, 52)]
)
def test_reduce_precision(exponent, mantissa):
    """Formats that are not laid out as IEEE 754's are rounded as f32, and only to fewer bits than they have."""
    for kind, form in FLOATS.items():
        wide, bits = form, (exponent, mantissa)
        if form.flavour != "ieee":
            wide, many = FLOATS["f32"], 99
            bits = (
                exponent if exponent < form.exponent else many,
                mantissa if mantissa < form.mantissa else many,
            )
        xs = values(kind)
        attributes = f", exponent_bits={exponent}, mantissa_bits={mantissa}"
        got = elementwise("reduce-precision", [(kind, xs)], kind, attributes)
        for x, g in zip(xs, got, strict=True):
            want = form.round(real_functions.round_to_bits(x, wide, *bits))
            if mantissa == 0 and x != x and form.flavour != "ieee":
                want = form.round(math.inf)  # NaN without a mantissa is infinite
            assert same(g, want) or (want != want and not has_nan(form)), (
                f"{kind} {x} to e{exponent}m{mantissa}: {g}, should be {want}"
            )


DIRECTIONS = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_compare(kind):
    xs, ys = zip(*itertools.product(values(kind), repeat=2), strict=True)
    for direction, holds in DIRECTIONS.items():
        if kind in COMPLEX and direction not in ("EQ", "NE"):
            continue
        got = elementwise("compare", [(kind, xs), (kind, ys)], "pred", f", direction={direction}")
        assert got == [holds(x, y) for x, y in zip(xs, ys, strict=True)], (kind, direction)


@pytest.mark.parametrize("kind", FLOATS)
def test_compare_in_total_order(kind):
    xs, ys = zip(*itertools.product(values(kind), repeat=2), strict=True)

    for direction, holds in DIRECTIONS.items():
        got = elementwise(
            "compare", [(kind, xs), (kind, ys)], "pred", f", direction={direction}, type=TOTALORDER"
        )
        want = [holds(ordered(x, kind), ordered(y, kind)) for x, y in zip(xs, ys, strict=True)]
        assert got == want, (kind, direction)


def ordered(x, kind):
    """Sorts as the total order does. NaN is positive here, but for fnuz types: their one NaN has the sign bit."""
    nan = -1 if FLOATS[kind].flavour == "fnuz" else 1
    return (nan, 0.0, 0.0) if x != x else (0, x, math.copysign(1, x))


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_select(kind):
    xs = values(kind)
    ys = xs[::-1]
    flags = [i % 3 == 0 for i in range(len(xs))]
    got = elementwise("select", [("pred", flags), (kind, xs), (kind, ys)], kind)
    want = [x if flag else y for flag, x, y in zip(flags, xs, ys, strict=True)]
    assert list(map(repr, got)) == list(map(repr, want))


@pytest.mark.parametrize("kind", [k for k in ALL_TYPES if k not in COMPLEX])
def test_clamp(kind):
    few = (*edges(kind), *values(kind)[:: max(1, len(values(kind)) // 3)])
    low, xs, high = zip(*itertools.product(few, repeat=3), strict=True)
    got = elementwise("clamp", [(kind, low), (kind, xs), (kind, high)], kind)
    for a, x, b, g in zip(low, xs, high, got, strict=True):
        nan = kind in FLOATS and (a != a or x != x or b != b)
        want = math.nan if nan else min(b, max(x, a))
        assert (g != g) if nan else g == want, (kind, a, x, b, g)


@pytest.mark.parametrize("kind", [k for k in FLOATS if f"u{bits_of(k)}" in INTEGERS])
@pytest.mark.parametrize("result", ["s8", "s16", "s32"])
def test_stochastic_convert(kind, result):
    """A value is rounded up where the random bits, read as a fraction, are below the fraction of the value.

    Infinities saturate and NaN is 0, as in plain conversions.
    """
    bits = FLOATS[kind].bits
    top = (1 << bits) - 1
    cases = [(x, r) for x in values(kind) for r in (0, 1 << bits - 1, top)]
    xs, random = zip(*cases, strict=True)
    got = elementwise("stochastic-convert", [(kind, xs), (f"u{bits}", random)], result)
    assert elementwise("stochastic-convert", [(kind, []), (f"u{bits}", [])], result) == []
    assert elementwise("stochastic-convert", [(kind, [1.0]), (f"u{bits}", [top])], result) == [1]
    for x, r, g in zip(xs, random, got, strict=True):
        if not math.isfinite(x):
            assert g == to_whole(x, result), (kind, x, r)
            continue
        exact = to_fraction(abs(x))
        whole = math.floor(exact)
        up = to_fraction(r) < (exact - whole) * 2**bits
        want = clamp_to(int(math.copysign(1, x)) * (whole + up), result)
        assert g == want, (kind, x, r)
