"""Numbers of attention kernels in Triton's interpreter, next to those of the reference evaluator."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.runtime.gpu.triton.fusions import Attention
from tests.runtime.gpu.triton.interpret import Interpreter
from tests.runtime.gpu.triton.running import expected, in_order, largest_error, run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="there is no Triton: the extra test brings it on Linux",
)

#: Largest error relative to the largest element, by element type.
BOUNDS = {"f32": 2e-6, "bf16": 6e-3, "f16": 1e-3}
CASES = {
    "plain": Attention(),
    "even": Attention(s=64, t=64, d=16, e=32),
    "bf16": Attention(kind="bf16"),
    "f16": Attention(kind="f16"),
    "long": Attention(g=1, s=150, t=170, d=16, e=16, kind="bf16"),
    "causal": Attention(mask="causal"),
    "long causal": Attention(g=1, s=150, t=170, d=16, e=16, mask="causal", kind="bf16"),
    "more rows than columns": Attention(g=1, s=90, t=33, mask="causal"),
    "finite causal": Attention(mask="causal", hidden="-1e30"),
    "no select": Attention(g=1, s=80, t=90, mask="causal", hidden="-1e30", selects=False),
    "window": Attention(g=1, s=80, t=90, mask="window"),
    "finite window": Attention(g=1, s=80, t=90, mask="window", hidden="-1e30", selects=False),
    "first rows see nothing": Attention(g=1, s=90, t=70, mask="late"),
    "first rows see all": Attention(g=1, s=90, t=70, mask="late", hidden="-1e30", selects=False),
    "bias": Attention(mask="bias"),
    "grouped": Attention(r=3, s=21, mask="causal"),
    "no visible key": Attention(mask="padding"),
    "no visible key, finite": Attention(mask="padding", hidden="-1e30"),
}


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as made:
        yield made


@pytest.mark.parametrize("name", CASES)
def test_forward(name: str, interpreter: Interpreter) -> None:
    case = CASES[name]
    text, arrays = case.forward(), case.inputs()
    got = run(interpreter, text, arrays)
    assert largest_error(got, expected(text, arrays)) < BOUNDS[case.kind]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", ["of_rows", "of_columns"])
def test_gradients(name: str, mode: str, interpreter: Interpreter) -> None:
    case = CASES[name]
    text, arrays = getattr(case, mode)(), case.gradient_inputs()
    got = run(interpreter, text, arrays)
    assert largest_error(got, expected(text, arrays)) < BOUNDS[case.kind]


@pytest.mark.parametrize("results", ["o", "m", "l", "m, l", "o, l"])
def test_any_results_of_a_softmax(results: str, interpreter: Interpreter) -> None:
    case = Attention(s=20, t=24)
    text, arrays = case.forward(results), case.inputs()
    got = run(interpreter, text, arrays)
    assert largest_error(got, expected(text, arrays)) < BOUNDS["f32"]


def check_changed(
    interpreter: Interpreter, text: str, arrays: list[np.ndarray], *changes: tuple[str, str]
) -> None:
    """Check the kernels of the text after ``changes``."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    assert largest_error(run(interpreter, text, arrays), expected(text, arrays)) < BOUNDS["f32"]


@pytest.mark.parametrize("mask", ["", "padding"])
def test_exponentials_relative_to_another_value_than_the_maximum(
    mask: str, interpreter: Interpreter
) -> None:
    """Rows without a visible key are relative to 0, and give 0 / 0."""
    case = Attention(mask=mask)
    rows = case.rows
    guarded = f"""
  is_seen = pred[{rows[4:-1]}] is-finite(m)
  origin = f32[] constant(0.5)
  origins = {rows} broadcast(origin), dimensions={{}}
  shift = {rows} select(is_seen, m, origins)
  ms = f32[{case.dims}] broadcast(shift), dimensions={{0,1,2}}"""
    ms = f"\n  ms = f32[{case.dims}] broadcast(m), dimensions={{0,1,2}}"
    check_changed(interpreter, case.forward(), case.inputs(), (ms, guarded))


def test_weights_by_a_reciprocal_of_the_sum(interpreter: Interpreter) -> None:
    case = Attention()
    inverse = f"""
  one = f32[] constant(1)
  ones = {case.rows} broadcast(one), dimensions={{}}
  inverse = {case.rows} divide(ones, l)
  ls = f32[{case.dims}] broadcast(inverse), dimensions={{0,1,2}}"""
    ls = f"\n  ls = f32[{case.dims}] broadcast(l), dimensions={{0,1,2}}"
    changes = (ls, inverse), ("divide(e, ls)", "multiply(ls, e)")
    check_changed(interpreter, case.forward(), case.inputs(), *changes)


def test_weights_that_a_mask_drops(interpreter: Interpreter) -> None:
    case = Attention(mask="causal")
    dropped = f"""
  half = f32[] constant(0.5)
  halves = f32[{case.dims}] broadcast(half), dimensions={{}}
  twice = f32[{case.dims}] divide(p, halves)
  nothing = f32[] constant(0)
  nothings = f32[{case.dims}] broadcast(nothing), dimensions={{}}
  dropped = f32[{case.dims}] select(mask, nothings, twice)
  p_in = f32[{case.dims}] convert(dropped)"""
    change = (f"\n  p_in = f32[{case.dims}] convert(p)", dropped)
    check_changed(interpreter, case.forward(), case.inputs(), change)


def test_sums_over_different_dimensions_and_maxima(interpreter: Interpreter) -> None:
    """Gradients of keys sum over the queries that share them; a bias of each head does not."""
    case = Attention(r=3, s=21)
    columns = f"f32[{case.g},{case.r},{case.t}]"
    more = f"""
  none = f32[] constant(0)
  least = f32[] constant(-inf)
  sums_of_columns = {columns} reduce(dx, none), dimensions={{2}}, to_apply=sum
  most_of_columns = {columns} reduce(dx, least), dimensions={{2}}, to_apply=larger
  negative = {columns} negate(sums_of_columns)
  ROOT out = """
    text = case.of_columns().replace("\n  ROOT out = ", more)
    text = text.replace(
        "]) tuple(dk, dv)", f"], {columns}, {columns}) tuple(dk, dv, negative, most_of_columns)"
    )
    check_changed(interpreter, text, case.gradient_inputs())


def test_scores_of_minus_infinity_before_finite_ones(interpreter: Interpreter) -> None:
    case = Attention(g=1, s=20, t=100, mask="padding")
    text, arrays = case.forward(), case.inputs()
    arrays[-1][:] = np.arange(100) > 70  # all of the first two blocks of 32 columns are hidden
    got, wanted = run(interpreter, text, arrays), expected(text, arrays)
    assert np.isfinite(wanted[0]).all()
    assert largest_error(got, wanted) < BOUNDS["f32"]


@pytest.mark.parametrize("hidden", ["-inf", "-1e30"])
@pytest.mark.parametrize("mask", ["causal", "window"])
def test_values_in_hidden_blocks_are_not_read(
    mask: str, hidden: str, interpreter: Interpreter
) -> None:
    case = Attention(g=1, s=64, t=96, mask=mask, hidden=hidden)
    text, arrays = case.forward(), case.inputs()
    wanted = expected(text, arrays)
    arrays[2][:, 64:] = np.nan  # after all queries; the program itself would multiply it by 0
    assert largest_error(run(interpreter, text, arrays), wanted) < BOUNDS["f32"]


@pytest.mark.parametrize("mode", ["of_rows", "of_columns"])
def test_gradients_in_hidden_blocks_are_not_read(mode: str, interpreter: Interpreter) -> None:
    case = Attention(g=1, s=96, t=96, mask="window", hidden="-1e30", selects=False)
    text, arrays = getattr(case, mode)(), case.gradient_inputs()
    wanted = expected(text, arrays)
    arrays[0][:, :, :32] = np.nan  # queries whose windows end before the columns 32 to 96
    got = run(interpreter, text, arrays)
    rows = (slice(None), slice(None), slice(32, None)) if mode == "of_rows" else np.s_[:, 32:]
    assert largest_error([x[rows] for x in got], [x[rows] for x in wanted]) < BOUNDS["f32"]


def test_hidden_scores_that_count(interpreter: Interpreter) -> None:
    """All visible scores are about as small as the hidden ones, so no block may be skipped."""
    case = Attention(g=1, s=64, t=96, mask="causal", hidden="-1e4", selects=False)
    arrays = case.inputs()
    arrays[0][:] = 200
    arrays[1][:] = -10 - 1e-5 * np.arange(96)[:, np.newaxis]
    text = case.forward()
    wanted = expected(text, arrays)
    got = run(interpreter, text, arrays)
    assert largest_error(got, wanted) < 5e-3  # scores of 1e4 are rounded to 1e-3
    sums = (arrays[2].sum(1) / 96)[0]
    assert np.abs(wanted[0][0, 0, 0] - sums).max() < 0.2, "the first row averages hidden values"


def test_nan_and_infinity_in_keys(interpreter: Interpreter) -> None:
    case = Attention(g=3)
    text, arrays = case.forward(), case.inputs()
    arrays[1][0, 11] = np.nan
    arrays[1][1, 50] = np.inf
    assert largest_error(run(interpreter, text, arrays), expected(text, arrays)) < BOUNDS["f32"]


def test_arrays_of_any_layout(interpreter: Interpreter) -> None:
    case = Attention(r=2)
    text, arrays = case.of_columns(), case.gradient_inputs()
    orders = [(2, 0, 1, 3), (2, 1, 0), (1, 2, 0), (3, 2, 1, 0), (2, 1, 0), (0, 2, 1), (1, 0, 2)]
    views = [in_order(one, order, 4) for one, order in zip(arrays, orders, strict=True)]
    got = run(interpreter, text, arrays, views)
    assert largest_error(got, expected(text, arrays)) < BOUNDS["f32"]


def test_a_row_that_is_repeated(interpreter: Interpreter) -> None:
    case = Attention(s=20, t=24, mask="bias")
    text, arrays = case.forward(), case.inputs()
    arrays[3][:] = arrays[3][:, :1]
    views = [in_order(one, tuple(range(one.ndim)), 0) for one in arrays]
    views[3] = replace(views[3], strides=(views[3].strides[0], 0, views[3].strides[2]))
    got = run(interpreter, text, arrays, views)
    assert largest_error(got, expected(text, arrays)) < BOUNDS["f32"]
