"""Noise moves what is rounded, by units in the last place, and nothing else."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from spmd.evaluator import evaluate, evaluate_partitions
from spmd.evaluator.rounding_noise import RoundingNoise, perturb
from spmd.text.parser import parse_module

PLUS = "plus { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"


def moved(x: np.ndarray, ulps: int = 1, seed: int = 0, *, excess: bool = True) -> np.ndarray:
    """Return by how many units in the last place each element moves."""
    after = perturb(x, RoundingNoise(seed, ulps, excess), ulps, placed=False)
    assert (after.dtype, after.shape) == (x.dtype, x.shape)
    kind = f"i{x.dtype.itemsize}"
    return after.view(kind).astype(np.int64) - x.view(kind).astype(np.int64)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("ulps", [1, 3])
def test_inexact_values_move_up_or_down(rng, kind, ulps):
    steps = moved(rng.standard_normal(1000).astype(kind) * kind(0.7), ulps)
    assert set(np.unique(steps)) <= {-ulps, 0, ulps}
    assert (steps > 0).sum() > 250
    assert (steps < 0).sum() > 250


def test_what_looks_exact_stays(rng):
    exact = [0.0, -0.0, 1.0, 0.5, -3.0, 65537.0, 2.0**100, np.inf, -np.inf, np.nan, 1e-45]
    assert not moved(np.array(exact, np.float32)).any()
    assert not moved(np.array([0.0, 1.0, 2.0**40 + 1, np.inf, np.nan])).any()
    for x in (np.arange(5), np.array([True]), np.array([1.5], ml_dtypes.float8_e4m3fn)):
        assert perturb(x, RoundingNoise(0, 1), 1, placed=True) is x


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_a_result_of_a_function_is_exact_at_zero_alone(kind):
    """tanh(30) is not 1, though it rounds to it; cosine(0) and tanh(inf) are."""
    text = f"""HloModule m
    ENTRY e {{ x = {kind}[3] parameter(0) t = {kind}[3] tanh(x) c = {kind}[3] cosine(x)
      ROOT r = ({kind}[3], {kind}[3]) tuple(t, c) }}"""
    x = np.array([30, 0, np.inf], {"f32": np.float32, "f64": np.float64}[kind])
    seen = set()
    for seed in range(8):
        tanh, cosine = evaluate_partitions(
            parse_module(text), [[x]], RoundingNoise(seed, 1).tables()
        )[0]
        assert (tanh[1:] == [0, 1]).all()
        assert cosine[1] == 1
        seen.add(float(tanh[0]))
    eps = float(np.finfo(x.dtype).eps)
    assert seen == {1 - eps / 2, 1 + eps}


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_results_of_a_function_that_round_to_one_number_move_apart(kind):
    """XLA CPU's tanh is the number below 1 at 17 and 1 at 23: what the noise of the one is says nothing of the other."""
    text = f"HloModule m\nENTRY e {{ x = {kind}[4] parameter(0) ROOT t = {kind}[4] tanh(x) }}"
    x = np.array([37, 43, 57, 43], {"f32": np.float32, "f64": np.float64}[kind])
    module, seen = parse_module(text), set()
    for seed in range(12):
        (tanh,) = evaluate_partitions(module, [[x]], RoundingNoise(seed, 1).tables())[0]
        assert tanh[1] == tanh[3]
        seen.add(tuple(tanh[:2] < 1))
    assert len(seen) == 4


@pytest.mark.parametrize(
    "kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e3m4]
)
def test_8_bit_floats_move_where_they_may_have_been_kept_in_f32(rng, kind):
    x = rng.standard_normal(1000).astype(kind)
    steps = moved(x)
    assert set(np.unique(steps)) <= {-1, 0, 1}
    assert np.count_nonzero(steps) > 900
    after = perturb(x, RoundingNoise(0, 1, excess=True), 1, placed=False)
    assert np.isfinite(after.astype(np.float32)).all()
    assert not moved(x, excess=False).any()


F8_SUM = """HloModule m, replica_count=2
add { a = f8e4m3fn[] parameter(0) b = f8e4m3fn[] parameter(1) ROOT c = f8e4m3fn[] add(a, b) }
ENTRY e {
  x = f8e4m3fn[64] parameter(0)
  s = f8e4m3fn[64] all-reduce(x), replica_groups={{0,1}}, to_apply=add
  ROOT r = f16[64] convert(s)
}"""


def test_noise_reaches_as_far_as_sums_over_devices_that_were_not_rounded_to_8_bits(rng):
    tiles = [[rng.standard_normal(64).astype(ml_dtypes.float8_e4m3fn)] for _ in range(2)]
    unrounded = sum(tile[0].astype(np.float32) for tile in tiles)
    module = parse_module(F8_SUM)
    ((base,), _) = evaluate_partitions(module, tiles)
    reached = np.zeros(64)
    for seed in range(6):
        noise = RoundingNoise(seed, 1, excess=True).tables()
        ((one,), (other,)) = evaluate_partitions(module, tiles, noise)
        np.testing.assert_array_equal(one, other)
        reached = np.maximum(reached, np.abs(one.astype(np.float32) - base))
    assert (np.abs(base - unrounded) <= 4 * reached).all()


def test_few_16_bit_values_cross_a_boundary(rng):
    steps = moved(rng.standard_normal(10_000).astype(ml_dtypes.bfloat16), excess=False)
    assert 0 < np.count_nonzero(steps) < 400


def test_equal_values_move_equally_and_seeds_differ(rng):
    x = rng.standard_normal((30, 30)).astype(np.float32)
    symmetric = x + x.T
    steps = moved(symmetric)
    np.testing.assert_array_equal(steps, steps.T)
    assert (steps != moved(symmetric, seed=1)).any()


def test_complex_parts_move(rng):
    x = (rng.standard_normal(50) + 1j * rng.standard_normal(50)).astype(np.complex64)
    after = perturb(x, RoundingNoise(0, 1), 1, placed=True)
    assert (after.real != x.real).any()
    assert (after.imag != x.imag).any()
    np.testing.assert_allclose(after, x, rtol=1e-6)


def run(body: str, *arrays: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    module = parse_module(f"HloModule m\n{PLUS}\nENTRY e {{ {body} }}")
    return evaluate(module, *arrays), evaluate(
        module, *arrays, tables=RoundingNoise(0, 1, excess=False).tables()
    )


def test_moving_data_adds_no_noise_and_integers_stay(rng):
    body = """x = f32[6,4] parameter(0) i = s32[6,4] parameter(1) t = f32[4,6] transpose(x), dimensions={1,0}
      n = f32[4,6] negate(t) m = s32[6,4] multiply(i, i) ROOT r = (f32[4,6], s32[6,4]) tuple(n, m)"""
    x = rng.standard_normal((6, 4)).astype(np.float32)
    exact, noisy = run(body, x, rng.integers(0, 99, (6, 4)).astype(np.int32))
    for one, other in zip(exact, noisy, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_sum_that_cancels_is_off_by_roundings_of_its_terms(rng):
    body = """x = f32[8,64] parameter(0) z = f32[] constant(0)
      ROOT r = f32[8] reduce(x, z), dimensions={1}, to_apply=plus"""
    half = rng.standard_normal((8, 32)).astype(np.float32)
    (exact,), (noisy,) = run(body, np.concatenate([half, -half], axis=1))
    assert np.abs(exact).max() < 1e-6
    assert np.abs(noisy - exact).min() > 0
    assert np.abs(noisy - exact).max() < 1e-5


def test_a_badly_conditioned_factorization_moves_by_its_condition(rng):
    body = """a = f64[8,8] parameter(0)
      ROOT c = (f64[8,8], s32[]) custom-call(a), custom_call_target="lapack_dpotrf_ffi", backend_config={uplo = 76 : ui8}"""
    q, _ = np.linalg.qr(rng.standard_normal((8, 8)))
    a = (q * 10.0 ** -np.arange(8)) @ q.T
    (exact, _), (noisy, _) = run(body, (a + a.T) / 2)
    difference = np.abs(noisy - exact).max() / np.abs(exact).max()
    assert 1e-14 < difference < 1e-7


def noisy_results(body: str, kind: str, *arrays: np.ndarray, seeds: int = 12) -> list[np.ndarray]:
    """Results of a module's only output under noise, one for each seed, 16-bit ones as if kept in f32 elsewhere."""
    text = f"HloModule m\n{PLUS.replace('f32', kind)}\nENTRY e {{ {body} }}"
    module = parse_module(text)
    noises = (RoundingNoise(seed, 1, excess=True) for seed in range(seeds))
    return [evaluate(module, *arrays, tables=noise.tables())[0] for noise in noises]


@pytest.mark.parametrize(("kind", "numpy"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_a_16_bit_result_that_was_rounded_moves_though_its_last_bits_are_zeros(kind, numpy):
    """A quarter of all 16-bit results end in two zero bits; those that lost next to nothing are exact, others are not."""
    body = f"x = {kind}[8] parameter(0) ROOT r = {kind}[8] rsqrt(x)"
    x = np.linspace(1, 4, 3001).astype(numpy)
    exact = 1 / np.sqrt(x.astype(np.float64))
    results = exact.astype(numpy)
    lost = np.abs(results.astype(np.float64) - exact) * 2.0 ** {"f16": 11, "bf16": 8}[kind]
    x = x[(results.view(np.uint16) & 3 == 0) & (lost > 0.1)][:6]
    x = np.concatenate([x, np.array([1, 4], numpy)])
    base = (1 / np.sqrt(x.astype(np.float64))).astype(numpy).view(np.int16).astype(int)
    seen = np.stack(noisy_results(body, kind, x))
    for k in range(6):
        assert set((seen[:, k].view(np.int16) - base[k]).tolist()) == {-1, 1}
    assert (seen[:, 6:] == np.array([1, 0.5], numpy)).all()


def test_16_bit_numbers_that_fit_or_saturate_stay():
    """tanh(9) rounds to 1 in every program, tanh(4) need not."""
    body = "x = f32[4] parameter(0) ROOT r = f16[4] convert(x)"
    x = np.array([0.75, np.tanh(9), 0.09765625, np.tanh(4)], np.float32)
    seen = np.stack(noisy_results(body, "f16", x))
    assert (seen[:, :3] == np.array([0.75, 1, 0.09765625])).all()
    assert len(np.unique(seen[:, 3])) == 2


def test_a_sum_of_rounded_terms_moves_though_it_is_a_whole_number(rng):
    """Rows of a softmax add up to 1, or to a neighbour of it; rows of whole numbers and of quarters are exact."""
    body = """x = f32[6,8] parameter(0) z = f32[] constant(0)
      ROOT r = f32[6] reduce(x, z), dimensions={1}, to_apply=plus"""
    e = np.exp(rng.standard_normal((64, 8)).astype(np.float32))
    e /= e.sum(1, keepdims=True)
    rounded = e[e.astype(np.float64).sum(1) != 1][:3]
    exact = rng.integers(-40, 40, (3, 8)).astype(np.float32) / 4
    seen = np.stack(noisy_results(body, "f32", np.concatenate([rounded, exact]), seeds=30))
    assert (seen[:, 3:] == exact.sum(1)).all()
    for k in range(3):
        assert seen[:, k].min() < 1 < seen[:, k].max()


def test_a_scalar_sum_that_is_a_whole_number_moves():
    body = """x = f32[10] parameter(0) z = f32[] constant(0)
      ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=plus"""
    seen = {float(s) for s in noisy_results(body, "f32", np.full(10, 0.1, np.float32))}
    assert min(seen) < 1 < max(seen)
