"""Random bits, reductions by programs and windows on a GPU beside the processor's."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.gpu.codegen import random_bits
from runtime.gpu.codegen.emitters import GpuArrays, sources
from runtime.gpu.codegen.launch import GpuTarget
from runtime.program.records.random_bits import RandomBitsKernel
from runtime.program.records.reduce import (
    ProgramReduceKernel,
    ReduceWindowKernel,
    SelectAndScatterKernel,
)
from runtime.program.thunks import KernelThunk
from tests.runtime.cpu.kernels.random.test_random_bits import program
from tests.runtime.cpu.kernels.reduce.test_program_reduce import ARGMAX
from tests.runtime.cpu.kernels.reduce.test_windows import reduce_window, select_and_scatter
from tests.runtime.fusion.test_loop_fusions import edge_inputs
from tests.runtime.gpu.codegen.assembler import accepted, needs_assembler
from tests.runtime.gpu.codegen.both_ways import both_ways
from tests.runtime.gpu.codegen.emulator import needs_contexts
from tests.runtime.programs.build import compiled, random_inputs

pytestmark = needs_contexts


@pytest.mark.parametrize(
    ("algorithm", "words"), [("rng_three_fry", 2), ("rng_philox", 3), ("rng_default", 3)]
)
def test_random_bits(algorithm: str, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_bits, "THREADS", 32)
    monkeypatch.setattr(random_bits, "BLOCKS", 1)
    last = np.full(words, 2**64 - 3, np.uint64)  # the counter wraps
    with both_ways() as compared:
        compiled(program(algorithm, words)).run(last)
    assert compared.run["RandomBitsKernel"] > 20


def test_a_state_may_take_the_place_of_the_old_one() -> None:
    """All threads have read the old state before."""
    text = """HloModule random, input_output_alias={ {0}: (0, {}, must-alias) }
    ENTRY main {
      s = u64[3] parameter(0)
      ROOT r = (u64[3], u32[5000]) rng-bit-generator(s), algorithm=rng_philox
    }
    """
    with both_ways() as compared:
        compiled(text).run(np.array([1, 2, 3], np.uint64))
    assert compared.run["RandomBitsKernel"] == 1


SHAPES = [
    ("4,7", "4", 1, "1"),
    ("4,7", "7", 0, "0"),
    ("3,4,5", "", 1, "0,1,2"),
    ("3,0", "3", 1, "1"),
    ("37,65", "37", 1, "1"),
    ("5,1100", "1100", 0, "0"),
    ("3,5000", "3", 1, "1"),
    ("3,45,2,33", "3,45", 3, "2,3"),
    ("35,18,40", "18,40", 0, "0"),
]


@pytest.mark.parametrize(
    ("kind", "low"), [("f32", "-inf"), ("bf16", "-inf"), ("s8", "-128"), ("f64", "0")]
)
@pytest.mark.parametrize(("x", "y", "axis", "axes"), SHAPES)
def test_argmax(kind: str, low: str, x: str, y: str, axis: int, axes: str) -> None:
    with both_ways() as compared:
        executable = compiled(ARGMAX.format(kind=kind, low=low, x=x, y=y, axis=axis, axes=axes))
        executable.run(*edge_inputs(executable.module, 3))
    assert compared.run["ProgramReduceKernel"] == 1


ODD = """HloModule odd
f {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  z = {kind}[] constant(0)
  m = {kind}[] abs(b)
  n = {kind}[] maximum(a, m)
  l = {kind}[] minimum(a, z)
  ROOT r = {kind}[] subtract(n, l)
}}
ENTRY main {{
  x = {kind}[{x}] parameter(0)
  i = {kind}[] constant({init})
  ROOT r = {kind}[{y}] reduce(x, i), dimensions={{{axes}}}, to_apply=f
}}
"""
ODD_SHAPES = [("3,4", "3", "1"), ("37,65", "37", "1"), ("3,500", "500", "0"), ("2,9000", "2", "1")]


@pytest.mark.parametrize(("kind", "init"), [("s32", 0), ("s32", 7), ("f16", 0), ("f64", 3)])
@pytest.mark.parametrize(("x", "y", "axes"), ODD_SHAPES)
def test_an_odd_reducer_takes_elements_as_second_arguments(
    kind: str, init: int, x: str, y: str, axes: str
) -> None:
    """max(a, |b|) - min(a, 0), which is a from 0 on: of lanes that begin with elements it is so, too, at the end."""
    text = ODD.format(kind=kind, init=init, x=x, y=y, axes=axes)
    with both_ways() as compared:
        executable = compiled(text)
        (values,) = random_inputs(executable.module)
        executable.run(values)
    assert compared.run["ProgramReduceKernel"] == 1


HORNER = """HloModule horner
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  h = f32[] constant(0.5)
  m = f32[] multiply(a, h)
  ROOT r = f32[] add(m, b)
}
ENTRY main {
  x = f32[7,300] parameter(0)
  i = f32[] constant(2)
  ROOT r = f32[7] reduce(x, i), dimensions={1}, to_apply=f
}
"""


def test_a_reducer_that_is_not_associative_is_folded_in_order() -> None:
    """a / 2 + b, whose value depends on the association."""
    with both_ways() as compared:
        executable = compiled(HORNER)
        executable.run(*random_inputs(executable.module))
    assert compared.run["ProgramReduceKernel"] == 1


# ---- windows
WINDOWS = [
    ("2,6,8", "2,3,4", "size=1x2x2 stride=1x2x2"),
    ("2,6,8", "2,3,5", "size=1x3x2 stride=1x2x3 pad=0_0x1_0x3_3"),
    ("2,6,8", "2,2,8", "size=1x3x2 rhs_dilate=1x2x3 pad=0_0x0_0x1_2"),
    ("4,3,5", "4,7,8", "size=1x2x2 pad=0_0x2_1x0_0 lhs_dilate=1x2x2"),
    ("2,6,8", "2,4,6", "size=1x2x2 pad=0_0x-1_0x-1_0"),
    ("3,200", "3,200", "size=1x200 pad=0_0x199_0"),
    ("0,3", "4,3", "size=2x1 pad=2_3x0_0"),
]


@pytest.mark.parametrize(
    ("kind", "root", "init"),
    [("f32", "add", "0"), ("bf16", "maximum", "1"), ("s8", "add", "100"), ("c64", "add", "(0,0)")],
)
@pytest.mark.parametrize(("x", "y", "window"), WINDOWS)
def test_reduce_window(kind: str, root: str, init: str, x: str, y: str, window: str) -> None:
    with both_ways(rtol=1e-5) as compared:
        executable = compiled(reduce_window(kind, root, init, x, y, window))
        executable.run(*random_inputs(executable.module))
    assert compared.run["ReduceWindowKernel"] == 1


@pytest.mark.parametrize("kind", ["f32", "bf16", "s32"])
@pytest.mark.parametrize(
    ("x", "s", "window"),
    [
        ("2,6,8,3", "2,3,4,3", "size=1x2x2x1 stride=1x2x2x1"),
        ("6,8", "6,8", "size=3x3 pad=1_1x1_1"),
        ("6,8", "3,5", "size=3x2 stride=2x3 pad=1_0x3_3"),
        ("5", "7", "size=1 pad=1_1"),
    ],
)
def test_select_and_scatter(kind: str, x: str, s: str, window: str) -> None:
    text = select_and_scatter(kind, "a, b), direction=GE", "add", x, s, window)
    with both_ways() as compared:
        executable = compiled(text)
        executable.run(*random_inputs(executable.module))
    assert compared.run["SelectAndScatterKernel"] == 1


@needs_assembler
def test_accepted_without_spills() -> None:
    texts = [program("rng_three_fry", 2), program("rng_philox", 3)]
    texts += [
        ARGMAX.format(kind=kind, low="0", x=x, y=y, axis=axis, axes=axes)
        for x, y, axis, axes in (("4096,1024", "4096", 1, "1"), ("64,512", "512", 0, "0"))
        for kind in ("f32", "bf16")
    ]
    texts.append(ODD.format(kind="f32", init=0, x="4096,1024", y="4096", axes="1"))
    texts.append(reduce_window("f32", "add", "0", "8,64,64", "8,32,32", "size=1x2x2 stride=1x2x2"))
    pool = ("8,64,64", "8,32,32", "size=1x2x2 stride=1x2x2")
    texts.append(select_and_scatter("f32", "a, b), direction=GE", "add", *pool))
    for text in texts:
        for thunk in compiled(text).program.thunks.thunks:
            if isinstance(thunk, KernelThunk) and isinstance(
                thunk.kernel,
                RandomBitsKernel
                | ProgramReduceKernel
                | ReduceWindowKernel
                | SelectAndScatterKernel,
            ):
                operands, results = (
                    tuple(x.view for x in own) for own in (thunk.operands, thunk.results)
                )
                found = sources(thunk.kernel, GpuArrays(operands, results, (), GpuTarget()))
                assert all(x.spilled == 0 for x in accepted(found, "sm_90"))
