"""Concatenations and pads read at a computed place: one kernel, whose loops' ends are known when it runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from runtime.program.records.loop import LoopKernel, PiecesKernel, UpdateKernel
from spmd.evaluator.evaluator import evaluate
from tests.runtime.fusion.reasons import why_not
from tests.runtime.fusion.test_loop_fusions import kernels
from tests.runtime.programs.build import compiled, module_of

_PROGRAM = """HloModule m
fused {{
  {parameters}
  {body}
}}
ENTRY e {{
  {parameters}
  ROOT f = {result} fusion({names}), kind=kLoop, calls=fused
}}
"""

#: Name: the fusion's operands, its result and its body; the last operands, of s32[], are places.
FUSIONS = {
    "concatenation": (
        ["f32[3,5]", "f32[4,5]", "f32[1,5]", "s32[]"],
        "f32[6,5]",
        """c = f32[8,5] concatenate(p0, p1, p2), dimensions={0}
  zero = s32[] constant(0)
  s = f32[6,5] dynamic-slice(c, p3, zero), dynamic_slice_sizes={6,5}
  ROOT r = f32[6,5] add(s, s)""",
    ),
    "innermost, and negated": (
        ["f32[3,40]", "f32[3,70]", "s32[]"],
        "f32[3,90]",
        """c = f32[3,110] concatenate(p0, p1), dimensions={1}
  zero = s32[] constant(0)
  s = f32[3,90] dynamic-slice(c, zero, p2), dynamic_slice_sizes={3,90}
  ROOT r = f32[3,90] negate(s)""",
    ),
    "pad of both dimensions": (
        ["f32[5,6]", "f32[]", "s32[]", "s32[]"],
        "f32[6,7]",
        """c = f32[9,11] pad(p0, p1), padding=2_2x1_4
  s = f32[6,7] dynamic-slice(c, p2, p3), dynamic_slice_sizes={6,7}
  ROOT r = f32[6,7] negate(s)""",
    ),
    "transposed": (
        ["f32[20,30]", "f32[20,5]", "s32[]"],
        "f32[25,20]",
        """c = f32[20,35] concatenate(p1, p0), dimensions={1}
  zero = s32[] constant(0)
  s = f32[20,25] dynamic-slice(c, zero, p2), dynamic_slice_sizes={20,25}
  ROOT r = f32[25,20] transpose(s), dimensions={1,0}""",
    ),
    "padded behind": (
        ["f32[1,4]", "f32[5,4]", "f32[]", "s32[]"],
        "f32[6,4]",
        """c = f32[6,4] concatenate(p0, p1), dimensions={0}
  zero = s32[] constant(0)
  s = f32[4,4] dynamic-slice(c, p3, zero), dynamic_slice_sizes={4,4}
  ROOT r = f32[6,4] pad(s, p2), padding=1_1x0_0""",
    ),
    "two places": (
        ["f32[2,4]", "f32[5,4]", "s32[]", "s32[]"],
        "f32[4,4]",
        """a = f32[7,4] concatenate(p0, p1), dimensions={0}
  b = f32[7,4] concatenate(p1, p0), dimensions={0}
  zero = s32[] constant(0)
  s = f32[4,4] dynamic-slice(a, p2, zero), dynamic_slice_sizes={4,4}
  t = f32[4,4] dynamic-slice(b, p3, zero), dynamic_slice_sizes={4,4}
  ROOT r = f32[4,4] subtract(s, t)""",
    ),
    "one row": (
        ["f32[2,4]", "f32[5,4]", "s32[]"],
        "f32[3,4]",
        """a = f32[7,4] concatenate(p0, p1), dimensions={0}
  zero = s32[] constant(0)
  s = f32[1,4] dynamic-slice(a, p2, zero), dynamic_slice_sizes={1,4}
  v = f32[4] reshape(s)
  ROOT r = f32[3,4] broadcast(v), dimensions={1}""",
    ),
    "one element": (
        ["f32[2]", "f32[5]", "s32[]"],
        "f32[]",
        """a = f32[7] concatenate(p0, p1), dimensions={0}
  s = f32[1] dynamic-slice(a, p2), dynamic_slice_sizes={1}
  ROOT r = f32[] reshape(s)""",
    ),
    "of a part": (
        ["f32[3,5]", "f32[4,5]", "s32[]"],
        "f32[4,5]",
        """c = f32[7,5] concatenate(p0, p1), dimensions={0}
  i = f32[5,5] slice(c), slice={[1:6], [0:5]}
  zero = s32[] constant(0)
  s = f32[4,5] dynamic-slice(i, p2, zero), dynamic_slice_sizes={4,5}
  ROOT r = f32[4,5] negate(s)""",
    ),
    "into a block": (
        ["f32[9,5]", "f32[3,5]", "f32[4,5]", "s32[]", "s32[]"],
        "f32[9,5]",
        """c = f32[7,5] concatenate(p1, p2), dimensions={0}
  zero = s32[] constant(0)
  s = f32[4,5] dynamic-slice(c, p3, zero), dynamic_slice_sizes={4,5}
  n = f32[4,5] negate(s)
  ROOT r = f32[9,5] dynamic-update-slice(p0, n, p4, zero)""",
    ),
}


@pytest.mark.parametrize("name", FUSIONS)
def test_wherever_the_slice_begins(name: str) -> None:
    """The slice begins before the array, behind it, and at each place within."""
    shapes, result, body = FUSIONS[name]
    text = _PROGRAM.format(
        parameters="\n  ".join(f"p{i} = {s} parameter({i})" for i, s in enumerate(shapes)),
        names=", ".join(f"p{i}" for i in range(len(shapes))),
        body=body,
        result=result,
    )
    executable, module = compiled(text), module_of(text)
    (kernel,) = kernels(executable)
    assert isinstance(kernel, LoopKernel | PiecesKernel | UpdateKernel)
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(p.dims).astype(np.float32)
        for p in module.entry.parameters
        if p.array_shape.element_type.is_floating
    ]
    places = len(shapes) - len(arrays)
    for where in itertools.product([-3, 0, 1, 2, 3, 4, 5, 7, 20, 41, 99], repeat=places):
        inputs = [*arrays, *(np.array(at, np.int32) for at in where)]
        (got,) = executable.run(*inputs)
        (want,) = evaluate(module, *inputs)
        np.testing.assert_array_equal(got, want, err_msg=str(where))


def test_steps_beside_one_are_no_range() -> None:
    """Every other element, and several slices of one another, are read of the array in memory."""
    text = """HloModule m
fused {
  a = f32[6] parameter(0)
  b = f32[6] parameter(1)
  i = s32[] parameter(2)
  c = f32[12] concatenate(a, b), dimensions={0}
  s = f32[8] dynamic-slice(c, i), dynamic_slice_sizes={8}
  ROOT t = f32[4] slice(s), slice={[0:8:2]}
}
ENTRY e {
  a = f32[6] parameter(0)
  b = f32[6] parameter(1)
  i = s32[] parameter(2)
  ROOT f = f32[4] fusion(a, b, i), kind=kLoop, calls=fused
}
"""
    assert "no one step says where c is read" in why_not(module_of(text).entry.root)
