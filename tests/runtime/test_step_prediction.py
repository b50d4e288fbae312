"""Predicted step times: sums over what runs, by the rates of a described machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

import spmd
from runtime.step_prediction import predicted_step
from spmd.hlo import HloModule
from spmd.machine.description import Exchange, MachineDescription, MemoryLevel, Rates
from spmd.shape import PrimitiveType

#: 1 Gflop/s, 1 GB/s at every size, no overheads but those of thunks and exchanges.
MACHINE = MachineDescription(
    name="plain",
    kind="cpu",
    source="made up",
    units=1,
    levels=(MemoryLevel("memory", 1 << 40, 1e9),),
    rates=((PrimitiveType.F32, Rates(1e9, 1e9, 1e8)),),
    kernel_seconds=0.0,
    row_seconds=0.0,
    thunk_seconds=1e-6,
    exchanges=(Exchange("pairs", 2, 1e9, 1e-5), Exchange("many", 64, 1e8, 1e-4)),
)


def module(body: str, devices: int = 2, more: str = "") -> HloModule:
    return spmd.parse(f"HloModule m, num_partitions={devices}\n{more}\nENTRY main {{\n{body}\n}}")


PRODUCT = """  x = f32[64,32] parameter(0)
  w = f32[32,16] parameter(1)
  ROOT d = f32[64,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}"
ALL_REDUCE = """  x = f32[1000] parameter(0)
  ROOT r = f32[1000] all-reduce(x), replica_groups={}, to_apply=sum"""


def test_a_product_takes_its_flops_and_the_packing_of_its_operands() -> None:
    flops, operands, result = 2 * 64 * 32 * 16, 4 * (64 * 32 + 32 * 16), 4 * 64 * 16
    found = predicted_step(module(PRODUCT), MACHINE, 2)
    assert found.seconds == pytest.approx(1e-6 + (flops + 2 * operands + result) / 1e9)
    assert [name for name, _ in found.by_opcode] == ["dot"]


def test_devices_beyond_the_cores_take_turns() -> None:
    alone = predicted_step(module(PRODUCT, 2), MACHINE, 2).seconds
    assert predicted_step(module(PRODUCT, 8), MACHINE, 3).seconds == pytest.approx(3 * alone)


@pytest.mark.parametrize(("devices", "rate", "latency"), [(2, 1e9, 1e-5), (4, 1e8, 1e-4)])
def test_a_collective_goes_the_narrowest_way_that_joins_all(
    devices: int, rate: float, latency: float
) -> None:
    sent = 2 * (devices - 1) / devices * 4000
    found = predicted_step(module(ALL_REDUCE, devices, SUM), MACHINE, devices)
    assert found.seconds == pytest.approx(1e-6 + latency + sent / rate)


def test_a_loop_takes_its_trips() -> None:
    def steps(trips: int) -> float:
        more = f"""less {{
  s = (s32[], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT more = pred[] compare(i, n), direction=LT
}}
again {{
  s = (s32[], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4096] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4096] negate(x)
  ROOT t = (s32[], f32[4096]) tuple(j, y)
}}"""
        body = """  x = f32[4096] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[4096]) tuple(zero, x)
  loop = (s32[], f32[4096]) while(start), condition=less, body=again
  ROOT last = f32[4096] get-tuple-element(loop), index=1"""
        return predicted_step(module(body, 1, more), MACHINE, 1).seconds

    one, two, ten = steps(1), steps(2), steps(10)
    assert ten - two == pytest.approx(8 * (two - one))
    assert two - one > 2 * 4 * 4096 / 1e9


def test_what_no_emitter_makes_is_priced_by_its_bytes() -> None:
    """And a machine twice as fast takes half as long for it."""
    body = """  x = f32[4096] parameter(0)
  i = s32[16,1] parameter(1)
  ROOT g = f32[16] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1}"""
    slow = replace(MACHINE, thunk_seconds=0.0)
    fast = replace(slow, levels=(MemoryLevel("memory", 1 << 40, 2e9),))
    found = predicted_step(module(body, 1), slow, 1).seconds
    assert found == pytest.approx(2 * predicted_step(module(body, 1), fast, 1).seconds)
