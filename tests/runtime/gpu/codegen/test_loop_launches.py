"""Launches of loops on a GPU: how many threads take what, and ptxas accepts them without spills."""

from __future__ import annotations

import re

import pytest

from runtime.compile import build_executable
from runtime.fusion.priority_fusion import PriorityFusion
from runtime.gpu.codegen.emitters import GpuArrays, Sources, sources
from runtime.gpu.codegen.launch import (
    ArgumentKind,
    GpuTarget,
    KernelArgument,
    KernelSource,
    anchored,
    placed,
)
from runtime.gpu.codegen.ptx_module import launches_for, ptx_text
from runtime.program.records.reference import ReferenceKernel
from runtime.program.strides import StridedView
from runtime.program.thunks import KernelThunk
from spmd.errors import UnsupportedError
from spmd.hlo import HloInstruction, Opcode
from spmd.machine.named import machine_named
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.gpu.codegen.assembler import ARCHITECTURES, accepted, needs_assembler
from tests.runtime.gpu.codegen.test_loop import KINDS, dense, sum_loop
from tests.runtime.programs.build import compiled, module_of

P = PrimitiveType


# ---- launches
def launches(kind: PrimitiveType, *dims: int) -> tuple[KernelSource, ...] | None:
    view = dense(kind, *dims)
    return launches_for(sum_loop(view, view, view), (view, view), (view,), (), GpuTarget())


def test_launch() -> None:
    (launch,) = launches(P.F32, 1000, 1001)
    assert launch.entry in ptx_text(launch.ir, "sm_90")
    assert launch.threads == 256
    # Two groups of four neighbours for a thread would leave too few threads.
    assert launch.blocks == -(-1001000 // 4 // 256)
    assert launch.arguments == (
        KernelArgument(ArgumentKind.OPERAND, 0),
        KernelArgument(ArgumentKind.OPERAND, 1),
        KernelArgument(ArgumentKind.RESULT, 0),
    )
    text = ptx_text(launch.ir, "sm_90")
    assert "ld.global.v4" in text
    assert "st.global.v4" in text


SCALED_SUM = """HloModule m
ENTRY e {
  x = f32[16777216] parameter(0)
  y = f32[16777216] parameter(1)
  z = f32[16777216] parameter(2)
  w = f32[16777216] parameter(3)
  xy = f32[16777216] multiply(x, y)
  s = f32[16777216] add(xy, z)
  ROOT d = f32[16777216] subtract(s, w)
}
"""


def test_a_loop_over_four_arrays_reads_two_groups_and_contracts() -> None:
    module = module_of(SCALED_SUM)
    PriorityFusion(machine=machine_named("dgx-h200")).run(module)
    (thunk,) = build_executable(module).program.thunks.thunks
    assert isinstance(thunk, KernelThunk)
    views = [tuple(x.view for x in own) for own in (thunk.operands, thunk.results)]
    (found,) = sources(thunk.kernel, GpuArrays(*views, (), GpuTarget())) or ()
    assert found.blocks == (1 << 24) // 4 // 2 // 256
    text = ptx_text(found.ir, "sm_90")
    assert text.count("ld.global.v4") == 8
    assert text.count("fma.rn.f32") == 8
    assert "mul." not in text


def test_threads_of_large_arrays_read_several_groups_before_they_compute() -> None:
    (found,) = lying_sum(P.F32, 1 << 24) or ()
    assert found.blocks == (1 << 24) // 4 // 2 // 256
    loads = [n for n, line in enumerate(found.ir.splitlines()) if "= load <4 x float>" in line]
    calls = [n for n, line in enumerate(found.ir.splitlines()) if "@body(" in line]
    assert len(loads) == 4
    assert max(loads) < calls[1]


@pytest.mark.parametrize(("strides", "groups"), [((16384, 4), 2), ((0, 4), 4)])
def test_an_array_that_rows_share_does_not_count_for_what_a_thread_reads(
    strides: tuple[int, int], groups: int
) -> None:
    whole, other = dense(P.F32, 16384, 4096), StridedView(P.F32, (16384, 4096), strides)
    arrays = GpuArrays((whole, other), (whole,), (), GpuTarget())
    (found,) = sources(sum_loop(whole, other, whole), arrays) or ()
    assert found.blocks == 16384 * 4096 // 4 // groups // 256


def test_large_arrays_count_in_64_bits_only_where_they_must() -> None:
    (small,) = lying_sum(P.F32, 1 << 20)
    (large,) = lying_sum(P.F32, 1 << 30)
    assert "add nuw nsw i32" in small.ir
    assert "add nuw nsw i64" in large.ir


def lying_sum(kind: PrimitiveType, *dims: int) -> Sources:
    view = dense(kind, *dims)
    return sources(sum_loop(view, view, view), GpuArrays((view, view), (view,), (), GpuTarget()))


def test_nothing_to_do_is_no_launch() -> None:
    assert launches(P.F32, 3, 0) == ()


def test_records_without_form() -> None:
    instruction = HloInstruction(Opcode.ADD, ArrayShape(P.F32, ()))
    assert launches_for(ReferenceKernel(instruction), (), (), (), GpuTarget()) is None


def test_text_is_the_same_again() -> None:
    (first,) = launches(P.BF16, 77, 3) or ()
    text = ptx_text(first.ir, "sm_90")
    ptx_text.cache_clear()
    assert launches(P.BF16, 77, 3) == (first,)
    assert ptx_text(first.ir, "sm_90") == text


def test_one_text_for_arrays_that_lie_alike() -> None:
    view = dense(P.F32, 64)
    assert anchored(4096 + 8, view) == (4096, StridedView(P.F32, (64,), (4,), 8))
    start, seen = anchored(1 << 20, view)
    assert (start, seen) == (1 << 20, view)


def test_a_later_gpu_takes_the_text_of_an_earlier_one() -> None:
    view = dense(P.F32, 64)
    for arch, found in (("sm_90", "sm_90"), ("sm_121", "sm_120"), ("sm_88", "sm_87")):
        launches = launches_for(
            sum_loop(view, view, view), (view, view), (view,), (), GpuTarget(arch)
        )
        assert launches is not None
        assert f".target {found}\n" in ptx_text(launches[0].ir, arch)
    with pytest.raises(UnsupportedError, match=r"8\.0 or more, found sm_75"):
        launches_for(sum_loop(view, view, view), (view, view), (view,), (), GpuTarget("sm_75"))


def test_pointers() -> None:
    view = dense(P.F32, 64)
    launches = launches_for(sum_loop(view, view, view), (view, view), (view,), (), GpuTarget())
    assert launches is not None
    found = placed(launches, {ArgumentKind.OPERAND: [512, 1024], ArgumentKind.RESULT: [4096]})
    assert [each.pointers for each in found] == [(512, 1024, 4096)]


@needs_assembler
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_accepted_without_spills(kind: PrimitiveType, arch: str) -> None:
    for dims in ((1 << 20,), (1000, 1001), (7,)):
        (found,) = accepted(lying_sum(kind, *dims), arch)
        assert found.spilled == 0
        assert found.registers <= 64


# ---- what a training step has most of
GELU = """
  p = {kind}[4096,4096] parameter(0)
  b = {kind}[4096] parameter(1)
  c = {kind}[4096,4096] broadcast(b), dimensions={{1}}
  x = {kind}[4096,4096] add(p, c)
  h = {kind}[] constant(0.5)
  k = {kind}[] constant(0.044715)
  o = {kind}[] constant(1)
  s = {kind}[] constant(0.7978845608)
  hb = {kind}[4096,4096] broadcast(h), dimensions={{}}
  kb = {kind}[4096,4096] broadcast(k), dimensions={{}}
  ob = {kind}[4096,4096] broadcast(o), dimensions={{}}
  sb = {kind}[4096,4096] broadcast(s), dimensions={{}}
  xx = {kind}[4096,4096] multiply(x, x)
  xxx = {kind}[4096,4096] multiply(xx, x)
  t = {kind}[4096,4096] multiply(xxx, kb)
  u = {kind}[4096,4096] add(x, t)
  v = {kind}[4096,4096] multiply(u, sb)
  w = {kind}[4096,4096] tanh(v)
  y = {kind}[4096,4096] add(w, ob)
  z = {kind}[4096,4096] multiply(x, hb)
  ROOT r = {kind}[4096,4096] multiply(y, z)
"""
ADAM = """
  p = f32[16777216] parameter(0)
  m = f32[16777216] parameter(1)
  v = f32[16777216] parameter(2)
  g = f32[16777216] parameter(3)
  a = f32[] constant(0.9)
  b = f32[] constant(0.1)
  e = f32[] constant(1e-8)
  l = f32[] constant(0.001)
  ab = f32[16777216] broadcast(a), dimensions={}
  bb = f32[16777216] broadcast(b), dimensions={}
  eb = f32[16777216] broadcast(e), dimensions={}
  lb = f32[16777216] broadcast(l), dimensions={}
  m1 = f32[16777216] multiply(m, ab)
  g1 = f32[16777216] multiply(g, bb)
  mn = f32[16777216] add(m1, g1)
  gg = f32[16777216] multiply(g, g)
  g2 = f32[16777216] multiply(gg, bb)
  v1 = f32[16777216] multiply(v, ab)
  vn = f32[16777216] add(v1, g2)
  q = f32[16777216] sqrt(vn)
  qe = f32[16777216] add(q, eb)
  d = f32[16777216] divide(mn, qe)
  dl = f32[16777216] multiply(d, lb)
  pn = f32[16777216] subtract(p, dl)
  ROOT t = (f32[16777216], f32[16777216], f32[16777216]) tuple(pn, mn, vn)
"""


def fused(body: str) -> str:
    """A module of one fusion whose parameters and result are those of ``body``."""
    shapes = re.findall(r"= (\S+) parameter", body)
    (result,) = re.findall(r"ROOT \w+ = (\(.*?\)|\S+) ", body)
    entry = "".join(f"  p{n} = {shape} parameter({n})\n" for n, shape in enumerate(shapes))
    names = ", ".join(f"p{n}" for n in range(len(shapes)))
    call = f"  ROOT f = {result} fusion({names}), kind=kLoop, calls=fused\n"
    return f"HloModule m\n\nfused {{{body}}}\n\nENTRY e {{\n{entry}{call}}}\n"


@needs_assembler
@pytest.mark.parametrize(
    "body", [GELU.format(kind="f32"), GELU.format(kind="bf16"), ADAM], ids=("gelu", "bf16", "adam")
)
def test_large_fusions_stay_in_registers(body: str) -> None:
    (thunk,) = compiled(fused(body)).program.thunks.thunks
    assert isinstance(thunk, KernelThunk)
    operands, results = (tuple(x.view for x in own) for own in (thunk.operands, thunk.results))
    for found in accepted(sources(thunk.kernel, GpuArrays(operands, results, (), GpuTarget()))):
        assert found.spilled == 0
        assert found.registers <= 64
