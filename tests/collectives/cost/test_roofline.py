"""RooflineEstimator: every kind of collective and its asynchronous form, and the public modules."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from collectives.cost.estimator import CostError
from collectives.cost.roofline import RooflineEstimator
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module
from tests.paths import SHARED

H100 = machine_named("dgx-h100")
#: Its links alone, without the protocols of a library.
LINKS = replace(
    H100, exchanges=tuple(replace(way, protocols=(), multicast=None) for way in H100.exchanges)
)
BEGIN = H100.thunk_seconds + H100.kernel_seconds
NVLINK = 4.5e11 * 0.822
LATENCY = 1.9e-6
ADD = "add {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}"
MIB = 1 << 20

COLLECTIVES = """
  p = f32[8388608] parameter(0)
  ag = f32[67108864] all-gather(p), channel_id=1, replica_groups=[1,8]<=[8], dimensions={0}, use_global_device_ids=true
  rs = f32[8388608] reduce-scatter(ag), channel_id=2, replica_groups=[1,8]<=[8], dimensions={0}, to_apply=add, use_global_device_ids=true
  ar = f32[8388608] all-reduce(rs), channel_id=3, replica_groups=[1,8]<=[8], to_apply=add, use_global_device_ids=true
  aa = f32[8388608] all-to-all(ar), channel_id=4, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  cb = f32[8388608] collective-broadcast(aa), channel_id=5, replica_groups={{0,1,2,3,4,5,6,7}}
  cp = f32[8388608] collective-permute(cb), channel_id=6, source_target_pairs={{0,1},{1,2}}
  ags = (f32[8388608], f32[67108864]) all-gather-start(cp), channel_id=7, replica_groups=[1,8]<=[8], dimensions={0}, use_global_device_ids=true
  agd = f32[67108864] all-gather-done(ags)
  ars = f32[8388608] all-reduce-start(cp), channel_id=8, replica_groups=[1,8]<=[8], to_apply=add, use_global_device_ids=true
  ard = f32[8388608] all-reduce-done(ars)
  cps = (f32[8388608], f32[8388608], u32[], u32[]) collective-permute-start(ard), channel_id=9, source_target_pairs={{0,1},{1,2}}
  cpd = f32[8388608] collective-permute-done(cps)
  rss = ((f32[67108864]), f32[8388608], u32[]) async-start(agd), calls=wrapped
  rsd = f32[8388608] async-done(rss)
  ROOT t = (f32[8388608], f32[8388608]) tuple(rsd, cpd)
"""
WRAPPED = """
wrapped {
  q = f32[67108864] parameter(0)
  ROOT r = f32[8388608] reduce-scatter(q), channel_id=10, replica_groups=[1,8]<=[8], dimensions={0}, to_apply=add, use_global_device_ids=true
}
"""


def module(body: str, before: str = ADD) -> HloModule:
    return parse_module(f"HloModule m, num_partitions=8\n{before}\nENTRY e {{\n{body}\n}}")


def named(found: HloModule, name: str) -> HloInstruction:
    return next(x for x in found.entry.instructions if x.name == name)


@pytest.mark.parametrize(
    ("name", "algorithm", "sent", "steps"),
    [
        ("ag", "one-shot", 7 * 32 * MIB, 1),
        ("rs", "one-shot", 7 * 32 * MIB, 1),
        ("ar", "ring", 2 * 7 / 8 * 32 * MIB, 14),
        ("aa", "one-shot", 7 / 8 * 32 * MIB, 1),
        ("cb", "tree", 32 * MIB, 3),
        ("cp", "one-shot", 32 * MIB, 1),
        ("ags", "one-shot", 7 * 32 * MIB, 1),
        ("ars", "ring", 2 * 7 / 8 * 32 * MIB, 14),
        ("cps", "one-shot", 32 * MIB, 1),
        ("rss", "one-shot", 7 * 32 * MIB, 1),
    ],
)
def test_collectives_and_their_starts(name: str, algorithm: str, sent: float, steps: int) -> None:
    found = module(COLLECTIVES, f"{ADD}\n{WRAPPED}")
    time = RooflineEstimator.of(found, LINKS).collective(named(found, name))
    assert time.algorithm == algorithm
    (link,) = time.links
    assert link.exchange == "NVLink 4"
    assert link.sent == pytest.approx(sent)
    assert time.seconds == pytest.approx(BEGIN + steps * LATENCY + sent / NVLINK)


def test_a_ragged_all_to_all_sends_its_input_at_most() -> None:
    operands = ", ".join(f"o{i}" for i in range(4))
    offsets = "\n".join(f"o{i} = s64[8] parameter({i + 2})" for i in range(4))
    found = module(f"""
  a = f32[1024,4096] parameter(0)
  b = f32[2048,4096] parameter(1)
  {offsets}
  ROOT r = f32[2048,4096] ragged-all-to-all(a, b, {operands}), replica_groups={{{{0,1,2,3,4,5,6,7}}}}, channel_id=1""")
    time = RooflineEstimator.of(found, H100).collective(found.entry.root)
    assert time.links[0].sent == pytest.approx(7 / 8 * 1024 * 4096 * 4)


def test_a_permute_in_place_sends_its_slices() -> None:
    found = module("""
  a = f32[1024,4096] parameter(0)
  z = s32[] constant(0)
  i = (s32[], s32[]) tuple(z, z)
  ROOT r = f32[1024,4096] collective-permute(a, a, i, i), source_target_pairs={{0,1}}, slice_sizes={{2,4096}}, channel_id=1""")
    time = RooflineEstimator.of(found, H100).collective(found.entry.root)
    assert time.links[0].sent == 2 * 4096 * 4


def test_the_worst_group_decides() -> None:
    found = parse_module(f"""
HloModule m, num_partitions=16
{ADD}
ENTRY e {{
  p = f32[8388608] parameter(0)
  ROOT a = f32[8388608] all-reduce(p), channel_id=1, replica_groups={{{{0,1}},{{2,8}}}}, to_apply=add, use_global_device_ids=true
}}""")
    time = RooflineEstimator.of(found, H100).collective(found.entry.root)
    assert [link.exchange for link in time.links] == ["InfiniBand NDR"]


def test_a_lone_member_sends_nothing() -> None:
    found = module("""
  p = f32[8] parameter(0)
  ROOT a = f32[8] all-reduce(p), channel_id=1, replica_groups=[8,1]<=[8], to_apply=add, use_global_device_ids=true""")
    time = RooflineEstimator.of(found, H100).collective(found.entry.root)
    assert (time.seconds, time.algorithm, time.links) == (0.0, "none", ())


def test_what_is_no_collective_is_refused() -> None:
    found = module("p = f32[8] parameter(0)\nROOT a = f32[8] negate(p)")
    with pytest.raises(CostError, match="negate has no collective cost model"):
        RooflineEstimator.of(found, H100).collective(found.entry.root)


def test_more_devices_than_the_machine_joins_are_refused() -> None:
    found = parse_module(f"""
HloModule m, num_partitions=128
{ADD}
ENTRY e {{
  p = f32[8] parameter(0)
  ROOT a = f32[8] all-reduce(p), channel_id=1, replica_groups=[1,128]<=[128], to_apply=add, use_global_device_ids=true
}}""")
    with pytest.raises(CostError, match="cpu-avx512 connects at most 64 devices"):
        RooflineEstimator.of(found, machine_named("cpu-avx512")).collective(found.entry.root)


PUBLIC = SHARED / "public"
MODULES = {
    "hlo_llama31_70b_bf16_16x8": (75, "ring"),
    "hlo_llama3_8b_cp_bf16_1x4": (79, "ring"),
    "hlo_mixtral_8x7b_bf16_1x8": (1775, "switch"),
}


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="needs ../shared/public")
@pytest.mark.parametrize("name", MODULES)
def test_every_instruction_of_the_public_modules_has_a_time(name: str) -> None:
    found = parse_module((PUBLIC / f"{name}.hlo").read_text(encoding="utf-8"))
    walked = (Opcode.WHILE, Opcode.CONDITIONAL, Opcode.CALL)
    begun = time.process_time()
    estimator = RooflineEstimator.of(found, H100)
    collectives, longest = 0, BEGIN
    for computation in found.computations_post_order():
        for x in computation.instructions:
            if x.opcode in KIND:
                collectives += 1
                seconds = estimator.collective(x)
                assert seconds.seconds > BEGIN
                assert all(link.seconds <= seconds.seconds for link in seconds.links)
            elif x.opcode not in walked:
                longest = max(longest, estimator.compute(x))
    assert math.isfinite(longest)
    assert time.process_time() - begun < 10
    count, algorithm = MODULES[name]
    assert collectives == count
    largest = max(
        (x for one in found.computations_post_order() for x in one.with_opcode(Opcode.ALL_REDUCE)),
        key=lambda x: x.shape.byte_size,
    )
    assert estimator.collective(largest).algorithm == algorithm


@pytest.mark.parametrize("kind", ["u4", "s4", "f4e2m1fn"])
def test_narrow_elements_are_packed_on_the_links_of_a_gpu(kind: str) -> None:
    text = """HloModule m, num_partitions=8
ENTRY e { p = u8[8388608] parameter(0)
  ROOT g = u8[67108864] all-gather(p), channel_id=1, replica_groups=[1,8]<=[8], dimensions={0}, use_global_device_ids=true }"""

    def sent(element: str, machine: str) -> float:
        module = parse_module(text.replace("u8[", f"{element}["))
        estimator = RooflineEstimator.of(module, machine_named(machine))
        return sum(link.sent for link in estimator.collective(module.entry.root).links)

    assert sent(kind, "dgx-h100") == sent("u8", "dgx-h100") / 2 > 0
    assert sent(kind, "cpu-avx512") == sent("u8", "cpu-avx512") > 0
