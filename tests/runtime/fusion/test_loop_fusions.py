"""Tests that a fusion with the loop emitter is one kernel, and gives the evaluator's bits."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.executable import Executable
from runtime.fusion.emitters import emitter_of
from runtime.program.records.loop import LoopKernel, PiecesKernel
from runtime.program.thunks import CopyThunk, KernelThunk
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule
from spmd.shape import ArrayShape, leaves
from tests.runtime.cpu.kernels.loop.element_signatures import canonical
from tests.runtime.cpu.kernels.loop.test_native_elementwise import edges
from tests.runtime.fusion.random_fusions import random_fusion
from tests.runtime.programs.build import compiled, module_of


def edge_inputs(module: HloModule, seed: int) -> list[np.ndarray]:
    """Return edge values of every element type, in any sizes."""
    arrays = []
    for number, parameter in enumerate(module.entry.parameters):
        for _, shape in leaves(parameter.shape):
            assert isinstance(shape, ArrayShape)
            pool = edges(shape.element_type, seed + number).reshape(-1)
            arrays.append(
                np.resize(pool, shape.dims) if 0 not in shape.dims else pool[:0].reshape(shape.dims)
            )
    return arrays


def kernels(executable: Executable) -> list[object]:
    """Return the kernels of all thunks but copies; a thunk without a kernel stands for itself."""
    thunks = executable.program.thunks.thunks
    return [
        x.kernel if isinstance(x, KernelThunk) else x
        for x in thunks
        if not isinstance(x, CopyThunk)
    ]


def check(text: str, seed: int) -> None:
    executable = compiled(text)
    (kernel,) = kernels(executable)
    assert isinstance(kernel, LoopKernel | PiecesKernel)
    inputs = edge_inputs(executable.module, seed)
    with np.errstate(all="ignore"):
        wanted = evaluate(module_of(text), *inputs)
    for got, want in zip(executable.run(*inputs), wanted, strict=True):
        assert got.shape == want.shape
        assert canonical(got) == canonical(want), text


def test_random_fusions() -> None:
    """Most random fusions have an emitter, and all that have one are right."""
    emitted = 0
    for seed in range(60):
        text = random_fusion(seed)
        if emitter_of(module_of(text).entry.root) is None:
            continue
        emitted += 1
        check(text, seed)
    assert emitted > 40


@pytest.mark.parametrize("seed", [704, 948, 1050, 1262])
def test_a_result_seen_in_other_dimensions_may_overwrite_its_operand(seed: int) -> None:
    """The sizes of the last reshape have no divisor in common with the operand's, or there are no elements."""
    check(random_fusion(seed), seed)


IN_PLACE = """HloModule m, input_output_alias={ {}: (0, {}, may-alias) }

fused {
  p = f32[4,6] parameter(0)
  q = f32[6] parameter(1)
  b = f32[4,6] broadcast(q), dimensions={1}
  s = f32[4,6] add(p, b)
  m = f32[4,6] multiply(s, p)
  ROOT r = f32[4,6] abs(m)
}

ENTRY e {
  p = f32[4,6] parameter(0)
  q = f32[6] parameter(1)
  ROOT f = f32[4,6] fusion(p, q), kind=kLoop, calls=fused
}
"""


def test_a_result_takes_the_place_of_an_operand_that_dies() -> None:
    assert compiled(IN_PLACE).stats.temp == 0
    check(IN_PLACE, 0)


def test_a_result_takes_no_place_that_is_read_elsewhere() -> None:
    """The operand's first row is needed for every row, so that there is a copy at the end."""
    rows = IN_PLACE.replace(
        "b = f32[4,6] broadcast(q), dimensions={1}",
        "c = f32[1,6] slice(p), slice={[0:1], [0:6]}\n"
        "  v = f32[6] reshape(c)\n"
        "  b = f32[4,6] broadcast(v), dimensions={1}",
    )
    assert compiled(rows).stats.temp >= 4 * 6 * 4
    check(rows, 0)


def test_an_operand_that_no_strides_can_read_is_copied() -> None:
    text = """HloModule m

fused {
  p = f32[6,4] parameter(0)
  f = f32[24] reshape(p)
  ROOT r = f32[24] negate(f)
}

ENTRY e {
  p = f32[4,6] parameter(0)
  t = f32[6,4] transpose(p), dimensions={1,0}
  ROOT f = f32[24] fusion(t), kind=kLoop, calls=fused
}
"""
    copies = [x for x in compiled(text).program.thunks.thunks if isinstance(x, CopyThunk)]
    assert len(copies) == 1
    check(text, 0)


@pytest.mark.parametrize("dims", [(8, 9), (64, 128), (65, 131), (2, 70, 3, 66)])
@pytest.mark.parametrize("kind", ["f32", "bf16", "pred", "s64", "c128"])
def test_transposed_operands_and_results(dims: tuple[int, ...], kind: str) -> None:
    """Arrays of crossing orders are processed in tiles, with some elements left over."""
    order = tuple(range(len(dims) - 2, -1, -1))
    order = (len(dims) - 1, *order)
    turned = tuple(dims[d] for d in order)
    shape, other = (f"{kind}[{','.join(map(str, x))}]" for x in (dims, turned))
    permutation = ",".join(map(str, order))
    opcode = "xor" if kind == "pred" else "subtract"
    back = ",".join(str(order.index(d)) for d in range(len(dims)))
    text = f"""HloModule m

fused {{
  p = {shape} parameter(0)
  q = {other} parameter(1)
  t = {shape} transpose(q), dimensions={{{back}}}
  a = {shape} {opcode}(p, t)
  b = {other} transpose(a), dimensions={{{permutation}}}
  c = {shape} {opcode}(a, p)
  ROOT r = ({shape}, {other}) tuple(c, b)
}}

ENTRY e {{
  p = {shape} parameter(0)
  q = {other} parameter(1)
  ROOT f = ({shape}, {other}) fusion(p, q), kind=kLoop, calls=fused
}}
"""
    check(text, 0)


def test_a_halo_all_around_is_one_kernel_of_nine_loops() -> None:
    """The rows and columns around an array are read beside it."""
    text = """HloModule m

fused {
  p = f32[6,7] parameter(0)
  a = f32[1,7] parameter(1)
  b = f32[6,1] parameter(2)
  n = f32[5,7] slice(p), slice={[0:5], [0:7]}
  s = f32[5,7] slice(p), slice={[1:6], [0:7]}
  w = f32[6,6] slice(p), slice={[0:6], [0:6]}
  e = f32[6,6] slice(p), slice={[0:6], [1:7]}
  north = f32[6,7] concatenate(a, n), dimensions={0}
  south = f32[6,7] concatenate(s, a), dimensions={0}
  west = f32[6,7] concatenate(b, w), dimensions={1}
  east = f32[6,7] concatenate(e, b), dimensions={1}
  ns = f32[6,7] add(north, south)
  we = f32[6,7] add(west, east)
  ROOT r = f32[6,7] subtract(ns, we)
}

ENTRY e {
  p = f32[6,7] parameter(0)
  a = f32[1,7] parameter(1)
  b = f32[6,1] parameter(2)
  ROOT f = f32[6,7] fusion(p, a, b), kind=kLoop, calls=fused
}
"""
    (kernel,) = kernels(compiled(text))
    assert isinstance(kernel, PiecesKernel)
    assert len(kernel.pieces) == 9
    check(text, 0)
