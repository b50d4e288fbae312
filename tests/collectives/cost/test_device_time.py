"""Seconds of kernels: arithmetic or bytes, whichever takes longer; fusions as one kernel; nothing for what is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectives.cost.device_time import DeviceTime
from spmd.analysis.attention_cost import AttentionShape
from spmd.analysis.fusion_emitter import ATTENTION, emitter_config
from spmd.hlo import HloInstruction, HloModule
from spmd.machine.description import Attained
from spmd.machine.named import machine_named
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module
from spmd.text.printer import print_module
from tests.runtime.gpu.triton.fusions import Attention

#: With the rate of large products at any size, and as it is described.
H100 = replace(machine_named("dgx-h100").as_attained(), tiled=None)
TILED = machine_named("dgx-h100").as_attained()
CPU = machine_named("cpu-avx512")
BEGIN = H100.thunk_seconds + H100.kernel_seconds
BF16, F32 = H100.rates_of(PrimitiveType.BF16), H100.rates_of(PrimitiveType.F32)
L2, HBM = (level.bandwidth for level in H100.shared_levels)


def module(body: str, before: str = "") -> HloModule:
    return parse_module(f"HloModule m, num_partitions=8\n{before}\nENTRY e {{\n{body}\n}}")


def seconds(body: str, before: str = "") -> float:
    return DeviceTime(H100, {}).seconds(module(body, before).entry.root)


def test_a_large_product_goes_at_the_attained_matrix_rate() -> None:
    found = seconds("""
      a = bf16[8192,8192] parameter(0)
      b = bf16[8192,28672] parameter(1)
      ROOT c = bf16[8192,28672] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}""")
    assert found == pytest.approx(BEGIN + 2 * 8192 * 8192 * 28672 / BF16.matrix)
    assert BF16.matrix == pytest.approx(0.767 * 989.5e12)


@pytest.mark.parametrize(
    ("asked", "rate"),
    [
        ("", F32.matrix),
        (", operand_precision={high,default}", F32.matrix),
        (", operand_precision={highest,highest}", 2 * F32.simple),
        (", algorithm=dot_f32_f32_f32", 2 * F32.simple),
        (", operand_precision={highest,highest}, algorithm=dot_tf32_tf32_f32", F32.matrix),
    ],
)
def test_products_of_f32_go_at_the_rate_of_their_precision(asked: str, rate: float) -> None:
    found = seconds(f"""
      a = f32[8192,8192] parameter(0)
      ROOT c = f32[8192,8192] dot(a, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}{asked}""")
    assert found == pytest.approx(BEGIN + 2 * 8192**3 / rate)


@pytest.mark.parametrize(
    ("body", "sizes", "element"),
    [
        (
            """a = bf16[16,512,256] parameter(0)
            b = bf16[16,256,384] parameter(1)
            ROOT c = f32[16,512,384] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
              rhs_contracting_dims={1}""",
            (16, 512, 256, 384),
            4,
        ),
        (
            """a = bf16[8,64,30,30] parameter(0)
            b = bf16[256,64,3,3] parameter(1)
            ROOT c = bf16[8,256,28,28] convolution(a, b), window={size=3x3}, dim_labels=bf01_oi01->bf01""",
            (1, 8 * 28 * 28, 64 * 9, 256),
            2,
        ),
    ],
)
def test_products_and_convolutions_come_in_tiles(
    body: str, sizes: tuple[int, int, int, int], element: int
) -> None:
    assert TILED.tiled is not None
    of_tiles = TILED.tiled.seconds(BF16.matrix, 132, sizes, element, L2)
    found = DeviceTime(TILED, {}).seconds(module(body).entry.root)
    assert found == pytest.approx(BEGIN + of_tiles)
    assert found > seconds(body)


def test_a_thin_product_goes_at_the_rate_of_memory() -> None:
    found = seconds("""
      a = bf16[1,8192] parameter(0)
      b = bf16[8192,28672] parameter(1)
      ROOT c = bf16[1,28672] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}""")
    assert found == pytest.approx(BEGIN + 2 * (8192 + 8192 * 28672 + 28672) / HBM)


def test_elementwise_operations_by_bytes_and_by_level() -> None:
    large = "a = f32[{n}] parameter(0)\nROOT b = f32[{n}] add(a, a)"
    assert seconds(large.format(n=10**8)) == pytest.approx(BEGIN + 12e8 / HBM)
    assert seconds(large.format(n=10**6)) == pytest.approx(BEGIN + 12e6 / L2)


def test_transcendental_functions_have_a_rate_of_their_own() -> None:
    slow = replace(
        H100, rates=((PrimitiveType.F32, replace(F32, transcendental=1e9)),), attained=Attained()
    )
    root = module("a = f32[1000000] parameter(0)\nROOT b = f32[1000000] exponential(a)").entry.root
    assert DeviceTime(slow, {}).seconds(root) == pytest.approx(BEGIN + 1e6 / 1e9)


FUSED = """
fused {
  p = f32[4096,4096] parameter(0)
  q = f32[4096] parameter(1)
  r = f32[4096,4096] broadcast(q), dimensions={1}
  s = f32[4096,4096] multiply(p, r)
  ROOT t = f32[4096,4096] tanh(s)
}
"""


def test_a_fusion_touches_its_operands_and_result_alone() -> None:
    found = seconds(
        """
      a = f32[4096,4096] parameter(0)
      b = f32[4096] parameter(1)
      ROOT c = f32[4096,4096] fusion(a, b), kind=kLoop, calls=fused""",
        FUSED,
    )
    assert found == pytest.approx(BEGIN + (2 * 4096 * 4096 * 4 + 4096 * 4) / HBM)


def test_a_fused_product_computes_what_it_computes_alone() -> None:
    fused = """
fused {
  p = bf16[4096,4096] parameter(0)
  q = bf16[4096,4096] parameter(1)
  d = bf16[4096,4096] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT n = bf16[4096,4096] negate(d)
}
"""
    found = seconds(
        """
      a = bf16[4096,4096] parameter(0)
      ROOT c = bf16[4096,4096] fusion(a, a), kind=kOutput, calls=fused""",
        fused,
    )
    assert found == pytest.approx(BEGIN + 2 * 4096**3 / BF16.matrix + 4096**2 / BF16.simple)


def test_a_fusion_that_reads_a_slice_of_a_large_operand() -> None:
    fused = """
fused {
  p = f32[80,4096,4096] parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  s = f32[1,4096,4096] dynamic-slice(p, i, z, z), dynamic_slice_sizes={1,4096,4096}
  ROOT n = f32[1,4096,4096] negate(s)
}
"""
    found = seconds(
        """
      a = f32[80,4096,4096] parameter(0)
      i = s32[] parameter(1)
      ROOT c = f32[1,4096,4096] fusion(a, i), kind=kLoop, calls=fused""",
        fused,
    )
    assert found == pytest.approx(BEGIN + 2 * 4096 * 4096 * 4 / HBM, rel=1e-4)


def test_a_reduction_combines_as_often_as_it_does() -> None:
    found = DeviceTime(replace(H100, levels=(replace(H100.levels[-1], bandwidth=1e30),)), {})
    root = module(
        """
      a = f32[1000,1000] parameter(0)
      z = f32[] constant(0)
      ROOT r = f32[1000] reduce(a, z), dimensions={1}, to_apply=add""",
        """
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}""",
    ).entry.root
    assert found.seconds(root) == pytest.approx(BEGIN + 1e6 / F32.simple, rel=1e-2)


def test_products_that_the_machine_has_a_class_for() -> None:
    root = module("""
      a = f32[5,256,128] parameter(0)
      b = f32[5,64,128] parameter(1)
      ROOT c = f32[5,256,64] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0},
          lhs_contracting_dims={2}, rhs_contracting_dims={2}""").entry.root
    types = (PrimitiveType.F32,) * 3
    expected = 5 * CPU.product_seconds(types, (256, 128, 64))
    found = DeviceTime(CPU, {}).seconds(root)
    assert found == pytest.approx(CPU.thunk_seconds + CPU.kernel_seconds + expected)


NO_KERNELS = """
  p = f32[8,4] parameter(0)
  t = (f32[8,4], f32[8,4]) tuple(p, p)
  g = f32[8,4] get-tuple-element(t), index=0
  b = f32[32] bitcast(g)
  r = f32[4,8]{1,0} reshape(b)
  o = f32[4,8]{1,0} opt-barrier(r)
  i = u32[] partition-id()
  k = token[] after-all()
  s = f32[4,8]{1,0} all-reduce-start(o), channel_id=1, replica_groups=[1,8]<=[8], to_apply=add, use_global_device_ids=true
  d = f32[4,8]{1,0} all-reduce-done(s)
  m = f32[4,8]{1,0} custom-call(d), custom_call_target="Sharding", sharding={replicated}
  ROOT c = f32[4,8]{1,0} collective-permute(m), channel_id=2, source_target_pairs={{0,1}}
"""
ADD = "add {\n  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n  ROOT s = f32[] add(x, y)\n}"


def test_what_is_no_kernel_takes_nothing() -> None:
    time = DeviceTime(H100, {})
    for x in module(NO_KERNELS, ADD).entry.instructions:
        assert time.seconds(x) == 0.0, x


def test_a_reshape_into_another_order_is_a_copy() -> None:
    assert seconds("a = f32[8,4]{0,1} parameter(0)\nROOT b = f32[32]{0} reshape(a)") > BEGIN


def test_what_runs_other_computations_is_walked_by_the_caller() -> None:
    body = "a = f32[] parameter(0)\nROOT c = f32[] call(a), to_apply=one"
    with pytest.raises(ValueError, match="c: a call is priced by what it runs"):
        seconds(body, "one {\n  ROOT x = f32[] parameter(0)\n}")


def test_an_asynchronous_kernel_counts_where_it_starts() -> None:
    wrapped = "wrapped {\n  x = f32[1000000] parameter(0)\n  ROOT y = f32[1000000] negate(x)\n}"
    root = module(
        """
      a = f32[1000000] parameter(0)
      s = ((f32[1000000]), f32[1000000], u32[]) async-start(a), calls=wrapped
      ROOT d = f32[1000000] async-done(s)""",
        wrapped,
    ).entry.root
    time = DeviceTime(H100, {})
    assert time.seconds(root.operand(0)) == pytest.approx(BEGIN + 8e6 / L2)
    assert time.seconds(root) == 0.0


def test_instructions_that_say_the_same_are_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(f"b{i} = f32[8] add(a, a)" for i in range(50))
    many = module(f"a = f32[8] parameter(0)\n{lines}\nROOT t = (f32[8]) tuple(b0)")
    time, priced = DeviceTime(H100, {}), list[HloInstruction]()
    kernel = time._kernel

    def counted(x: HloInstruction) -> float:
        priced.append(x)
        return kernel(x)

    monkeypatch.setattr(time, "_kernel", counted)
    assert len({time.seconds(x) for x in many.entry.instructions}) == 2
    assert len(priced) == 1


@pytest.mark.parametrize(
    ("kind", "bits"), [("s4", 4), ("u4", 4), ("f4e2m1fn", 4), ("u2", 2), ("s8", 8), ("f6e2m3fn", 8)]
)
def test_narrow_elements_are_packed_in_the_memory_of_a_gpu(kind: str, bits: int) -> None:
    body = f"p = {kind}[65536,8192] parameter(0)\nROOT c = {kind}[65536,8192] reverse(p), dimensions={{0}}"
    elements = 65536 * 8192
    assert seconds(body) == pytest.approx(BEGIN + 2 * elements * bits / 8 / HBM)
    on_core = DeviceTime(CPU, {}).seconds(module(body).entry.root)
    assert on_core == DeviceTime(CPU, {}).seconds(module(body.replace(kind, "u8")).entry.root)


HOST = "f32[1024,1024]{1,0:S(5)}"
DEVICE = "f32[1024,1024]{1,0}"


@pytest.mark.parametrize(
    ("source", "copy"),
    [
        (DEVICE, f"{HOST} copy(p)"),
        (HOST, f"{DEVICE} copy(p)"),
        (DEVICE, f"({HOST}, {DEVICE}, u32[]) copy-start(p)"),
        (HOST, f"({DEVICE}, {HOST}, u32[]) copy-start(p)"),
    ],
)
def test_copies_between_memories_take_the_link_of_the_host(source: str, copy: str) -> None:
    body = f"p = {source} parameter(0)\nROOT c = {copy}"
    assert seconds(body) == pytest.approx(H100.thunk_seconds + 4 * 1024**2 / 5.1e10)
    one_memory = replace(H100, host_bandwidth=0.0)
    assert DeviceTime(one_memory, {}).seconds(module(body).entry.root) < seconds(body) / 5


@pytest.mark.parametrize("space", [DEVICE, HOST])
def test_copies_within_a_memory_do_not(space: str) -> None:
    body = f"p = {space} parameter(0)\nROOT c = {space} copy(p)"
    assert seconds(body) == pytest.approx(BEGIN + 8 * 1024**2 / L2)


def attention(which: str, mask: str, s: int, t: int, operand: str = "") -> tuple[float, int]:
    """Return the seconds of a fusion of attention, and the flops of one of its products without a mask."""
    made = Attention(g=16, s=s, t=t, d=128, e=128, kind="bf16", mask=mask, hidden=operand or "-inf")
    computation = parse_module(getattr(made, which)())
    entry = computation.entry
    entry.name = "fused"
    arrays = [f"p{n} = {x.shape} parameter({n})" for n, x in enumerate(entry.parameters)]
    names = ", ".join(f"p{n}" for n in range(len(arrays)))
    before = print_module(computation).split("\n\n", 1)[1].replace("ENTRY ", "")
    config = emitter_config(ATTENTION)
    result = (
        f"{entry.root.shape} fusion({names}), kind=kCustom, calls=fused, backend_config={config}"
    )
    body = "\n".join([*arrays, f"ROOT r = {result}"])
    return seconds(body, before), 2 * 16 * s * t * 128


@pytest.mark.parametrize("keys", [2048, 8192])
def test_hidden_scores_of_a_fusion_cost_nothing(keys: int) -> None:
    """A causal mask leaves half of the scores, at the rate of causal attention, as for a call of a library."""
    for which, products in (("forward", 2), ("of_rows", 3), ("of_columns", 4)):
        shape = AttentionShape(128, keys, backward=products > 2)
        for mask, share in (("", 1.0), ("causal", 0.5), ("padding", 1.0)):
            found, flops = attention(which, mask, keys, keys)
            rate = H100.attention_rate(PrimitiveType.BF16, replace(shape, causal=mask == "causal"))
            assert found == pytest.approx(BEGIN + share * products * flops / rate, rel=2e-3)


def test_a_sliding_window_costs_what_causal_attention_to_as_many_keys_does() -> None:
    """Each query sees 10 keys, as many as one in the mean of 19 or 20 under a causal mask."""
    found, flops = attention("forward", "window", 8192, 8192)
    rate = H100.attention_rate(PrimitiveType.BF16, AttentionShape(128, 20, causal=True))
    moved = 4 * 16 * 8192 * 128 * 2 / HBM
    assert found == pytest.approx(BEGIN + max(2 * flops * 10 / 8192 / rate, moved), rel=0.02)


def test_hidden_scores_of_later_keys() -> None:
    """1024 queries see the first 1024 of 4096 keys under a causal mask: an eighth of the scores."""
    found, flops = attention("forward", "causal", 1024, 4096)
    rate = H100.attention_rate(PrimitiveType.BF16, AttentionShape(128, 1024, causal=True))
    assert found == pytest.approx(BEGIN + 2 * flops / 8 / rate, rel=2e-3)
