"""Ops that move elements, against loops and NumPy's own."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmd.errors import RunError, UnsupportedError
from spmd.evaluator import evaluate
from spmd.text.parser import parse_module


@settings(max_examples=60)
@given(st.integers(0, 5), st.integers(-4, 4), st.integers(-4, 4), st.integers(0, 3))
def test_pad_with_holes_and_cuts(n, low, high, interior):
    """Spread first, then pad or cut the edges."""
    spread = [99.0] * max((n - 1) * (interior + 1) + 1, 0) if n else []
    for k in range(n):
        spread[k * (interior + 1)] = float(k)
    want = [99.0] * max(low, 0) + spread + [99.0] * max(high, 0)
    want = want[max(-low, 0) :]
    want = want[: len(want) - max(-high, 0)] if high < 0 else want
    size = low + len(spread) + high
    if size < 0:
        return
    text = f"""HloModule m
      ENTRY e {{ x = f32[{n}] parameter(0) v = f32[] constant(99)
      ROOT r = f32[{size}] pad(x, v), padding={low}_{high}_{interior} }}"""
    assert evaluate(parse_module(text), np.arange(n, dtype=np.float32))[0].tolist() == want


def test_slice_with_strides(run):
    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    body = "x = f32[6,10] parameter(0) ROOT r = f32[2,3] slice(x), slice={[1:6:3], [2:9:3]}"
    np.testing.assert_array_equal(run(body, x)[0], x[1:6:3, 2:9:3])


@pytest.mark.parametrize("start", [-3, 0, 2, 4, 100])
def test_dynamic_slices_are_moved_inside(run, start):
    x = np.arange(6, dtype=np.float32)
    at = min(max(start, 0), 4)
    body = "x = f32[6] parameter(0) i = s32[] parameter(1) ROOT r = f32[2] dynamic-slice(x, i), dynamic_slice_sizes={2}"
    assert run(body, x, np.int32(start))[0].tolist() == x[at : at + 2].tolist()
    body = "x = f32[6] parameter(0) u = f32[2] constant({-1, -2}) i = s32[] parameter(1) ROOT r = f32[6] dynamic-update-slice(x, u, i)"
    want = x.copy()
    want[at : at + 2] = [-1, -2]
    assert run(body, x, np.int32(start))[0].tolist() == want.tolist()
    assert x.tolist() == list(range(6))  # the operand is untouched


def test_scalars_stay_arrays(run):
    body = "x = f32[] parameter(0) s = f32[] slice(x), slice={} ROOT r = f32[] add(s, x)"
    assert float(run(body, np.float32(2))[0]) == 4


def test_concatenate_and_reverse(run, rng):
    x, y = rng.random((2, 3), np.float32), rng.random((2, 4), np.float32)
    body = """x = f32[2,3] parameter(0) y = f32[2,4] parameter(1) c = f32[2,7] concatenate(x, y), dimensions={1}
      ROOT r = f32[2,7] reverse(c), dimensions={0,1}"""
    np.testing.assert_array_equal(run(body, x, y)[0], np.concatenate([x, y], 1)[::-1, ::-1])


def test_broadcast_places_operand_dimensions(run):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    body = "x = f32[2,3] parameter(0) ROOT r = f32[2,4,3] broadcast(x), dimensions={0,2}"
    np.testing.assert_array_equal(run(body, x)[0], np.broadcast_to(x[:, None], (2, 4, 3)))
    body = "x = f32[2,3] parameter(0) ROOT r = f32[3,2] broadcast(x), dimensions={1,0}"
    np.testing.assert_array_equal(run(body, x)[0], x.T)


def test_transpose_permutes(run, rng):
    x = rng.random((2, 3, 4), np.float32)
    body = "x = f32[2,3,4] parameter(0) ROOT r = f32[4,2,3] transpose(x), dimensions={2,0,1}"
    np.testing.assert_array_equal(run(body, x)[0], x.transpose(2, 0, 1))


def test_bitcast_reads_memory_under_another_layout(run):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    # column-major [2,3] is row-major [3,2] in memory
    body = "x = f32[2,3]{0,1} parameter(0) ROOT r = f32[3,2]{1,0} bitcast(x)"
    np.testing.assert_array_equal(run(body, x)[0], x.T)
    body = "x = f32[2,3]{1,0} parameter(0) ROOT r = f32[6]{0} bitcast(x)"
    np.testing.assert_array_equal(run(body, x)[0], x.reshape(6))


def test_bitcast_convert_changes_widths(run):
    x = np.array([0x01020304, 0x7F000001], np.uint32)
    got = run("x = u32[2] parameter(0) ROOT r = u8[2,4] bitcast-convert(x)", x)[0]
    assert got.tolist() == [[4, 3, 2, 1], [1, 0, 0, 0x7F]]  # lowest byte first
    back = run("x = u8[2,4] parameter(0) ROOT r = u32[2] bitcast-convert(x)", got)[0]
    assert back.tolist() == x.tolist()
    f = np.array([1.0, -2.5], np.float32)
    assert (
        run("x = f32[2] parameter(0) ROOT r = s32[2] bitcast-convert(x)", f)[0].tolist()
        == f.view(np.int32).tolist()
    )


def test_bitcast_convert_of_four_bit_integers(run):
    x = np.array([0x21, 0xF8], np.uint8)
    got = run("x = u8[2] parameter(0) ROOT r = s4[2,2] bitcast-convert(x)", x)[0]
    assert got.astype(int).tolist() == [[1, 2], [-8, -1]]
    back = run("x = s4[2,2] parameter(0) ROOT r = u8[2] bitcast-convert(x)", got)[0]
    assert back.tolist() == x.tolist()


def test_iota_counts_along_one_dimension(run):
    for kind, dtype in {
        "s32": np.int32,
        "f32": np.float32,
        "bf16": ml_dtypes.bfloat16,
        "c64": np.complex64,
    }.items():
        got = run(f"ROOT r = {kind}[2,3] iota(), iota_dimension=1")[0]
        assert got.dtype == dtype
        assert got.astype(np.complex64).tolist() == [[0, 1, 2]] * 2


def test_dimension_sizes(run):
    x = np.zeros((2, 3), np.float32)
    assert (
        int(
            run(
                "x = f32[2,3] parameter(0) ROOT r = s32[] get-dimension-size(x), dimensions={1}", x
            )[0]
        )
        == 3
    )
    body = "x = f32[2,3] parameter(0) n = s32[] parameter(1) ROOT r = f32[2,<=3] set-dimension-size(x, n), dimensions={1}"
    assert run(body, x, np.int32(3))[0].shape == (2, 3)
    assert run(body, x, np.int32(2))[0].shape == (2, 2)
    with pytest.raises(RunError, match="leaves the bound 3"):
        run(body, x, np.int32(4))


def test_a_bounded_dimension_is_as_long_as_it_was_set(run):
    """Sum, concatenation and elementwise ops see the elements that are there; the size can be read back."""
    body = """x = f32[4] parameter(0) n = s32[] parameter(1) zero = f32[] constant(0)
      some = f32[<=4] set-dimension-size(x, n), dimensions={0}
      more = f32[<=4] add(some, some)
      total = f32[] reduce(more, zero), dimensions={0}, to_apply=add
      size = s32[] get-dimension-size(more), dimensions={0}
      both = f32[<=8] concatenate(some, more), dimensions={0}
      two = s32[] constant(2)
      square = f32[<=4,<=2] dynamic-reshape(both, n, two)
      ROOT t = (f32[], s32[], f32[<=4,<=2]) tuple(total, size, square)"""
    x = np.array([1, 2, 4, 8], np.float32)
    for n in (0, 1, 3, 4):
        total, size, square = run(body, x, np.int32(n))
        assert (float(total), int(size)) == (2 * sum(x[:n]), n)
        assert square.reshape(-1).tolist() == [*x[:n], *(2 * x[:n])]


def test_a_written_size_does_not_follow_a_bounded_one(run):
    body = """x = f32[4] parameter(0) n = s32[] parameter(1) some = f32[<=4] set-dimension-size(x, n), dimensions={0}
      ROOT r = f32[2,2] reshape(some)"""
    with pytest.raises(UnsupportedError, match="does not follow"):
        run(body, np.zeros(4, np.float32), np.int32(2))
    marked = body.replace("f32[2,2] reshape(some)", "f32[2,<=2] reshape(some)")
    assert run(marked, np.arange(4, dtype=np.float32), np.int32(2))[0].tolist() == [[0], [1]]
    inferred = body.replace("reshape(some)", "reshape(some), inferred_dimension=0")
    assert run(inferred, np.arange(4, dtype=np.float32), np.int32(2))[0].tolist() == [[0, 1]]


def test_elided_constants_have_no_value(run):
    with pytest.raises(UnsupportedError, match="elides this constant"):
        run("ROOT c = f32[3] constant({...})")


def test_a_scalar_reversed_is_an_array(run):
    body = "x = f32[] parameter(0) s = f32[] reverse(x), dimensions={} ROOT r = f32[] negate(s)"
    assert run(body, np.float32(3))[0] == -3
