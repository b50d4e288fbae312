"""Predicted step times: sums over what runs, by the rates of a described machine and what the caches still hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

import spmd
from benchmarks.native.tile_unit_off import without_tile_unit
from launch.options import CompileOptions
from launch.pipeline import compile_module
from runtime.buffers.types import ArrayView, BufferSlice
from runtime.cpu.kernels.convolution.ir.vector_multiply_ir import vector_micro_kernel
from runtime.cpu.prediction.step import Prediction, predicted_step
from runtime.cpu.prediction.work import work_of
from runtime.program.records.dot import DotKernel
from runtime.program.strides import StridedView
from runtime.program.thunks import KernelThunk
from spmd.hlo import Opcode
from spmd.machine.convolutions import ConvolutionAlgorithm, ConvolutionClass
from spmd.machine.description import MachineDescription, MemoryLevel, Rates
from spmd.machine.exchange import Exchange
from spmd.machine.products import ProductClass
from spmd.shape import ArrayShape, PrimitiveType

P = PrimitiveType
#: 1 Gflop/s, 1 GB/s at every size, no overheads but those of thunks and exchanges.
MACHINE = MachineDescription(
    name="plain",
    kind="cpu",
    source="made up",
    units=1,
    levels=(MemoryLevel("memory", 1 << 40, 1e9),),
    rates=((P.F32, Rates(1e9, 1e9, 1e8)),),
    kernel_seconds=0.0,
    row_seconds=0.0,
    thunk_seconds=1e-6,
    exchanges=(Exchange("pairs", 2, 1e9, 1e-5), Exchange("many", 64, 1e8, 1e-4)),
)


def predicted(
    body: str,
    machine: MachineDescription = MACHINE,
    devices: int = 1,
    more: str = "",
    cores: int = 0,
    fusion: bool = False,
) -> Prediction:
    """cores: one for each device, unless it is said."""
    text = f"HloModule m, num_partitions={devices}\n{more}\nENTRY main {{\n{body}\n}}"
    options = CompileOptions(partitioned=True, fusion=fusion)
    executable = compile_module(spmd.parse(text), devices, options)
    return predicted_step(executable.program, executable.module, machine, cores or devices)


PRODUCT = """  x = f32[64,32] parameter(0)
  w = f32[32,16] parameter(1)
  ROOT d = f32[64,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}"
ALL_REDUCE = """  x = f32[1000] parameter(0)
  ROOT r = f32[1000] all-reduce(x), channel_id=1, replica_groups=[1,%d]<=[%d],
    use_global_device_ids=true, to_apply=sum"""
#: 1 GB/s from memory, 100 GB/s within 64 KiB.
CACHED = replace(
    MACHINE,
    levels=(MemoryLevel("near", 1 << 16, 1e11), MemoryLevel("far", (1 << 16) + 1, 1e9)),
    thunk_seconds=0.0,
)


def test_a_product_takes_what_its_class_says() -> None:
    one = ProductClass(P.F32, P.F32, P.F32, 1, 1, 1, 32, 1, 512, 128, 1e-5, 1e-9, 0.0, 0.0, 1e-8)
    found = predicted(PRODUCT, replace(MACHINE, products=(one,)))
    assert found.seconds == pytest.approx(1e-6 + 1e-5 + 1e-9 * 64 * 32 * 32 + 1e-8 * 64 * 16)
    assert [name for name, _ in found.by_kind] == ["Dot"]


def test_what_a_product_gives_is_near_for_what_is_computed_of_it() -> None:
    """64 KiB of it, which would be far away by then: written and read once less, and one thunk less."""
    body = """  x = f32[128,8] parameter(0)
  w = f32[8,256] parameter(1)
  y = f32[128,256] parameter(2)
  d = f32[128,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[128,256] add(d, y)
  ROOT r = f32[128,256] multiply(s, s)"""
    alone, together = (predicted(body, CACHED, fusion=fusion) for fusion in (False, True))
    assert [one.kind for one in together.thunks] == ["ProductEpilogue"]
    (whole,) = together.thunks
    parts = [one for one in alone.thunks if one.kind != "Dot"]
    near = 2 * 4 * 128 * 256 * CACHED.byte_seconds(4 * (128 * 8 + 8 * 256 + 128 * 256))
    begun = 3 * 16 / 1e9  # the sum is not an array any more, which was written once and read twice
    assert whole.compute == pytest.approx(sum(one.compute for one in alone.thunks) + near - begun)
    assert whole.memory < 0.5 * sum(one.memory for one in parts)


def test_a_slice_is_as_far_away_as_what_it_is_taken_of() -> None:
    """32 KiB of 256: nobody knows which, so that the same part of them is not near in the next step."""
    body = """  x = f32[8,32] parameter(0)
  w = f32[8,32,256] parameter(1)
  i = s32[] parameter(2)
  z = s32[] constant(0)
  one = f32[1,32,256] dynamic-slice(w, i, z, z), dynamic_slice_sizes={1,32,256}
  layer = f32[32,256] reshape(one)
  ROOT y = f32[8,256] dot(x, layer), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    (product,) = predicted(body, CACHED, fusion=True).thunks
    assert product.kind == "SlicedProduct"
    assert product.memory == pytest.approx(4 * 32 * 256 / 1e9, rel=0.1)


@pytest.mark.parametrize("lhs_turned", [False, True])
@pytest.mark.parametrize("rhs_turned", [False, True])
@pytest.mark.parametrize("result_turned", [False, True])
def test_products_take_what_their_layouts_do(
    lhs_turned: bool, rhs_turned: bool, result_turned: bool
) -> None:
    """One that is written column by column is the product of the transposed operands, the other way round."""
    types = (P.F32,) * 3
    kernel = DotKernel((), 64, 64, 64, *types, P.F32)
    turned = (lhs_turned, rhs_turned, result_turned)
    places = [
        ArrayView(
            BufferSlice(n, 0, 4 * 64 * 64),
            StridedView.dense_in_order(ArrayShape(P.F32, (64, 64)), (1, 0) if flag else (0, 1)),
        )
        for n, flag in enumerate(turned)
    ]
    thunk = KernelThunk("d", kernel, tuple(places[:2]), (places[2],))
    one = ProductClass(
        *types, 1, 1, 1, 1, 1, 64, 64, lhs_transposed_seconds=1e-8, rhs_transposed_seconds=2e-8
    )
    work = work_of(thunk, replace(MACHINE, products=(one,)))
    if result_turned:
        lhs_turned, rhs_turned = not rhs_turned, not lhs_turned
    assert work.compute == pytest.approx(64 * 64 * (1e-8 * lhs_turned + 2e-8 * rhs_turned))


def test_a_product_of_no_class_takes_its_flops_and_the_packing_of_its_operands() -> None:
    flops, operands = 2 * 64 * 32 * 16, 4 * (64 * 32 + 32 * 16)
    assert predicted(PRODUCT).seconds == pytest.approx(1e-6 + (flops + 2 * operands) / 1e9)


def test_devices_beyond_the_cores_take_turns() -> None:
    alone = predicted(PRODUCT, devices=2).seconds
    assert predicted(PRODUCT, devices=8, cores=3).seconds == pytest.approx(3 * alone)


def test_threads_of_a_device_share_its_products_in_pieces() -> None:
    """Four of 128 rows, each of which packs rhs by itself, and one way between cores; two devices have a core each."""
    body = """  x = f32[512,256] parameter(0)
  w = f32[256,256] parameter(1)
  ROOT d = f32[512,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    one = ProductClass(
        *(P.F32,) * 3, 1, 1, 1, 1, 1, 512, 512, multiply_seconds=1e-12, rhs_seconds=1e-9
    )
    machine = replace(MACHINE, products=(one,))
    multiplied, packed = 1e-12 * 512 * 256 * 256, 1e-9 * 256 * 256
    assert predicted(body, machine, cores=1).seconds == pytest.approx(1e-6 + multiplied + packed)
    shared = 1e-6 + 1e-5 + (multiplied + 4 * packed) / 2
    assert predicted(body, machine, cores=2).seconds == pytest.approx(shared)
    two = predicted(body, machine, devices=2, cores=2).seconds
    assert two == pytest.approx(1e-6 + multiplied + packed)


def test_threads_share_loops_but_no_short_ones() -> None:
    def body(count: int) -> str:
        return f"  x = f32[{count}] parameter(0)\n  ROOT y = f32[{count}] tanh(x)"

    functions = ((Opcode.TANH, 1e8),)
    machine = replace(CACHED, rates=((P.F32, Rates(1e9, 1e9, 1e8, functions)),))
    alone, shared = (predicted(body(1 << 14), machine, cores=n).seconds for n in (1, 2))
    assert shared == pytest.approx(1e-5 + alone / 2, rel=0.01)
    short = [predicted(body(1 << 11), machine, cores=n).seconds for n in (1, 2)]
    assert short[0] == short[1] < 3e-5


@pytest.mark.parametrize(("devices", "rate", "latency"), [(2, 1e9, 1e-5), (4, 1e8, 1e-4)])
def test_a_collective_goes_the_narrowest_way_that_joins_all(
    devices: int, rate: float, latency: float
) -> None:
    read = (devices - 1) / devices * 4000
    found = predicted(ALL_REDUCE % (devices, devices), devices=devices, more=SUM)
    assert found.seconds == pytest.approx(1e-6 + latency + read / rate)


def test_a_collective_takes_longer_where_its_operand_is_far() -> None:
    """400 KB lie within 1 MB of the last step's; 4 MB do not, and are touched again, as the result is."""
    levels = (MemoryLevel("near", 1 << 20, 1e11), MemoryLevel("far", (1 << 20) + 1, 1e9))
    ways = (Exchange("pairs", 2, 1e9, 1e-5, uncached_slowdown=3.0),)
    machine = replace(MACHINE, levels=levels, exchanges=ways)

    def seconds(count: int) -> float:
        body = ALL_REDUCE.replace("1000", str(count)) % (2, 2)
        return predicted(body, machine, devices=2, more=SUM).seconds - 1e-6 - 1e-5

    assert seconds(100_000) == pytest.approx(2e5 / 1e9)
    assert seconds(1_000_000) == pytest.approx(2e6 / 1e9 + 3 * 8e6 * (1 / 1e9 - 1 / 1e11))


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
        return predicted(body, more=more).seconds

    two, three, ten = steps(2), steps(3), steps(10)
    assert ten - three == pytest.approx(7 * (three - two))
    assert three - two > 2 * 4 * 4096 / 1e9


def test_what_was_just_written_is_read_from_the_cache() -> None:
    """8 KiB lie near whoever reads them next; 8 MiB have gone by before the second kernel reads their first."""

    def chain(count: int) -> float:
        body = f"""  x = f32[{count}] parameter(0)
  y = f32[{count}] negate(x)
  z = f32[{count}] sine(y)
  ROOT r = f32[{count}] negate(z)"""
        machine = replace(CACHED, rates=((P.F32, Rates(1e9, 1e15, 1e15)),))
        return predicted(body, machine).seconds / count

    assert chain(1 << 10) < 0.05 * chain(1 << 20)


def test_the_longer_of_arithmetic_and_traffic_counts_and_half_of_the_other() -> None:
    body = "  x = f32[1024] parameter(0)\n  ROOT r = f32[1024] tanh(x)"
    functions = ((Opcode.TANH, 1e7),)
    slow = replace(MACHINE, rates=((P.F32, Rates(1e9, 1e9, 1e8, functions)),))
    begun = 2 * 16 / 1e9  # a vector of each array
    expected = 1e-6 + 1024 / 1e7 + begun + 0.5 * 8192 / 1e9
    assert predicted(body, slow).seconds == pytest.approx(expected)


def test_division_hides_arithmetic_and_bytes() -> None:
    """x / y + y: the unit that divides is busy for longer than the addition, and longer than the bytes take."""
    body = """  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  q = f32[1024] divide(x, y)
  ROOT r = f32[1024] add(q, y)"""
    functions = ((Opcode.DIVIDE, 1e7),)
    slow = replace(MACHINE, rates=((P.F32, Rates(1e9, 1e9, 1e8, functions)),))
    found = predicted(body, slow, fusion=True)
    assert found.seconds == pytest.approx(1e-6 + 1024 / 1e7)


def test_gathers_touch_what_they_take() -> None:
    body = """  x = f32[65536] parameter(0)
  i = s32[16,1] parameter(1)
  ROOT g = f32[16] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1}"""
    assert predicted(body).seconds == pytest.approx(1e-6 + 3 * 64 / 1e9)


def test_of_a_conditional_the_longest_branch_counts() -> None:
    more = """short {
  x = f32[1024] parameter(0)
  ROOT y = f32[1024] negate(x)
}
long {
  x = f32[1024] parameter(0)
  y = f32[1024] sine(x)
  ROOT z = f32[1024] tanh(y)
}"""
    body = """  p = pred[] parameter(0)
  x = f32[1024] parameter(1)
  ROOT c = f32[1024] conditional(p, x, x), true_computation=short, false_computation=long"""
    kinds = [one.thunk.name for one in predicted(body, more=more).thunks]
    assert len(kinds) >= 2
    assert any("z" in name for name in kinds)


IMAGES = """  x = f32[4,16,16,16] parameter(0)
  w = f32[3,3,16,32] parameter(1)
  ROOT c = f32[4,16,16,32] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"""


def test_a_convolution_goes_by_panels_where_a_machine_knows_nothing_else() -> None:
    """Its kernel has a plan for a tile unit on every machine."""
    met = 4 * 16 * 16 * 9 * 16
    panels = ConvolutionClass(ConvolutionAlgorithm.PANELS, P.F32, 0.0, 1e-9, 1e-8, 0.0, 0.0)
    known = replace(MACHINE, levels=(MemoryLevel("all", 1 << 40, 1e18),), convolutions=(panels,))
    found = predicted(IMAGES, known)
    assert found.seconds == pytest.approx(1e-6 + 1e-9 * met * 32 + 1e-8 * met, rel=1e-6)
    image = ConvolutionClass(ConvolutionAlgorithm.IMAGE, P.F32, 1.0, 0.0, 0.0, 0.0, 0.0)
    assert predicted(IMAGES, replace(known, convolutions=(panels, image))).seconds > 1.0


@pytest.mark.skipif(
    vector_micro_kernel(32) is None, reason="no vectors that fuse products and sums"
)
def test_a_convolution_goes_by_vectors_where_a_machine_knows_them() -> None:
    """The machine has no tile unit. Sums of a whole block are stored once."""
    rows, depth, features = 4 * 16 * 16, 9 * 16, 32
    vectors = ConvolutionClass(ConvolutionAlgorithm.VECTORS, P.F32, 0.0, 1e-9, 1e-8, 0.0, 1e-7)
    known = replace(MACHINE, levels=(MemoryLevel("all", 1 << 40, 1e18),), convolutions=(vectors,))
    with without_tile_unit():
        found = predicted(IMAGES, known)
    each = 1e-9 * depth * features + 1e-8 * depth + 1e-7 * features
    assert found.seconds == pytest.approx(1e-6 + rows * each, rel=1e-6)


HOLES = """  x = f32[4,8,8,16] parameter(0)
  w = f32[2,2,16,32] parameter(1)
  ROOT c = f32[4,16,16,32] convolution(x, w), window={size=2x2 pad=1_1x1_1 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f"""


def test_holes_are_not_multiplied_without_a_tile_unit() -> None:
    """Each of 16 x 16 results meets one element of the window."""
    panels = ConvolutionClass(ConvolutionAlgorithm.PANELS, P.F32, 0.0, 1e-6, 0.0, 0.0, 0.0)
    known = replace(MACHINE, levels=(MemoryLevel("all", 1 << 40, 1e18),), convolutions=(panels,))
    with without_tile_unit():
        found = predicted(HOLES, known)
    assert found.seconds == pytest.approx(1e-6 * 4 * 16 * 16 * 16 * 32, rel=1e-3)


def test_a_product_of_vectors_within_a_kernel_takes_what_it_reads() -> None:
    """Its product is a number, which has no dimension along which it lies."""
    body = """  x = f32[50000] parameter(0)
  y = f32[50000] parameter(1)
  z = f32[] parameter(2)
  dot = f32[] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT sum = f32[] add(dot, z)"""
    fused = predicted(body, fusion=True)
    assert [one.kind for one in fused.thunks] == ["ProductEpilogue"]
    alone = predicted(body.split("  ROOT")[0].replace("  dot =", "  ROOT dot ="))
    assert fused.seconds == pytest.approx(alone.seconds, rel=0.01)
