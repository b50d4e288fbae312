"""The limit of a step: compulsory bytes with views seen through, products at their own rate, loops, bytes received."""

from __future__ import annotations

import pytest

import spmd
from benchmarks.timing.limit import Limits, compulsory_bytes, step_limit
from benchmarks.timing.rates import ProductShape, Rates, cores
from benchmarks.timing.reuse import byte_seconds
from runtime.compile import build_executable
from spmd.shape import PrimitiveType

PROGRAM = """HloModule steps, num_partitions=2
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
less {
  s = (s32[], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT more = pred[] compare(i, n), direction=LT
}
again {
  s = (s32[], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,16] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8,16] negate(x)
  ROOT t = (s32[], f32[8,16]) tuple(j, y)
}
ENTRY main {
  x = f32[8,16] parameter(0)
  bias = f32[16] parameter(1)
  w = f32[16,32] parameter(2)
  wide = f32[8,16] broadcast(bias), dimensions={1}
  biased = f32[8,16] add(x, wide)
  square = f32[8,16] multiply(biased, biased)
  zero = s32[] constant(0)
  start = (s32[], f32[8,16]) tuple(zero, square)
  loop = (s32[], f32[8,16]) while(start), condition=less, body=again
  last = f32[8,16] get-tuple-element(loop), index=1
  d = f32[8,32] dot(last, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[8,32] all-reduce(d), replica_groups={{0,1}}, to_apply=sum
}
"""
SHAPE = ProductShape(1, 8, 16, 32)
#: 1 GB/s; the product so slow that it decides.
RATES = Rates(((1 << 20, 1e9),), ((1 << 20, 5e8),), {SHAPE: 1e6})


def test_a_broadcast_operand_counts_what_it_shows_and_a_repeated_one_once() -> None:
    entry = {x.name: x for x in spmd.parse(PROGRAM).entry.instructions}
    assert compulsory_bytes(entry["biased"]) == 4 * (2 * 8 * 16 + 16)
    assert compulsory_bytes(entry["square"]) == 4 * (2 * 8 * 16)


def test_parts_of_the_limit() -> None:
    limit = step_limit(spmd.parse(PROGRAM), RATES)
    turns = -(-2 // cores())
    in_loop = 5 * (8 * 16 * 4 * 2 + 3 * 4 + 9)
    in_entry = 4 * (2 * 8 * 16 + 16) + 4 * (2 * 8 * 16)
    assert limit.memory == pytest.approx(turns * (in_loop + in_entry) / 1e9)
    assert limit.compute == pytest.approx(turns * SHAPE.flops / 1e6)
    assert limit.wire == pytest.approx(turns * 8 * 32 * 4 / 5e8)


def test_a_product_has_the_rate_of_its_own_types() -> None:
    """bf16 summed into f32, and f32 with bf16, are other products than those of one type; of 8-bit floats f32's count."""
    f32, bf16 = PrimitiveType.F32, PrimitiveType.BF16
    wanted = {("bf16", "bf16", "f32"): 1e6, ("f32", "bf16", "f32"): 2e6, ("f32", "f32", "f32"): 4e6}
    kinds = {"f32": f32, "bf16": bf16}
    known = {
        ProductShape(1, 8, 16, 32, (kinds[a], kinds[b], kinds[c])): rate
        for (a, b, c), rate in wanted.items()
    }
    rates = Rates(((1 << 20, 1e12),), (), known)
    for lhs, rhs, rate in (("bf16", "bf16", 1e6), ("f32", "bf16", 2e6), ("f8e4m3fn", "f32", 4e6)):
        module = spmd.parse(
            f"""HloModule products
ENTRY main {{
  x = {lhs}[8,16] parameter(0)
  w = {rhs}[16,32] parameter(1)
  ROOT d = f32[8,32] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
        )
        assert Limits(rates, 1).of(module.entry.root).compute == SHAPE.flops / rate


def test_rates_of_this_machine() -> None:
    """They are figures that a machine can have, and products are timed once."""
    rates = Rates(((1 << 20, 1e9),), ((1 << 20, 1e9),))
    shape = ProductShape(1, 64, 64, 64)
    rate = rates.flops(shape)
    assert 1e7 < rate < 1e13
    assert rates.flops(shape) == rate


def test_a_size_between_two_that_were_timed_has_a_rate_between_theirs() -> None:
    rates = Rates(((1 << 10, 4e9), (1 << 20, 1e9)), ((1 << 20, 5e8),))
    assert rates.bandwidth(1) == pytest.approx(4e9)
    assert rates.bandwidth(1 << 15) == pytest.approx(1.6e9)  # the mean of 0.25 and 1 ns
    assert rates.bandwidth(1 << 30) == pytest.approx(1e9)
    assert rates.exchange(1) == rates.exchange(1 << 30) == pytest.approx(5e8)


def test_bytes_come_from_as_far_away_as_the_step_has_them() -> None:
    """``near`` reads what has just been made, ``far`` the same behind two megabytes."""
    module = spmd.parse(
        """HloModule reuse, is_scheduled=true
ENTRY main {
  small = f32[256] parameter(0)
  x = f32[262144] parameter(1)
  made = f32[256] cosine(small)
  near = f32[256] sine(made)
  large = f32[262144] negate(x)
  far = f32[256] exponential(made)
  ROOT all = (f32[256], f32[256], f32[262144], f32[256]) tuple(made, near, large, far)
}
"""
    )
    rates = Rates(((1 << 10, 8e9), (1 << 21, 1e9)), ())
    executable = build_executable(module)
    lying = byte_seconds(executable.program, executable.module, rates)
    assert lying["far"] == pytest.approx(1e-9, rel=0.1)
    assert lying["near"] < 0.7e-9
    assert lying["large"] == pytest.approx(1e-9, rel=0.1)
    (far,) = (x for x in executable.module.entry.instructions if x.name == "far")
    assert Limits(rates, 1, lying).of(far).memory > 4 * Limits(rates, 1).of(far).memory
