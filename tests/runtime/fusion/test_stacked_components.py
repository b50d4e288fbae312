"""Concatenations of single components, as of cross products and rotations: one loop that writes all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.fusion import loop_fusion
from runtime.fusion.element_graph import ElementGraph, element_graph
from runtime.fusion.emitters import LOOP, emitted
from runtime.program.records.loop import LoopKernel, PiecesKernel
from spmd.evaluator.evaluator import evaluate
from tests.runtime.fusion.test_loop_fusions import kernels
from tests.runtime.programs.build import compiled, module_of

_PARTS = """x0 = f32[6,1] slice(x), slice={[0:6], [0:1]}
  x1 = f32[6,1] slice(x), slice={[0:6], [1:2]}
  x2 = f32[6,1] slice(x), slice={[0:6], [2:3]}
  y0 = f32[6,1] slice(y), slice={[0:6], [0:1]}
  y1 = f32[6,1] slice(y), slice={[0:6], [1:2]}
  y2 = f32[6,1] slice(y), slice={[0:6], [2:3]}
"""
_CROSS = f"""{_PARTS}  a = f32[6,1] multiply(x1, y2)
  b = f32[6,1] multiply(x2, y1)
  c = f32[6,1] multiply(x2, y0)
  d = f32[6,1] multiply(x0, y2)
  e = f32[6,1] multiply(x0, y1)
  f = f32[6,1] multiply(x1, y0)
  u = f32[6,1] subtract(a, b)
  v = f32[6,1] subtract(c, d)
  w = f32[6,1] subtract(e, f)
"""
_OUTER = "\n".join(
    f"  {a}{b} = f32[6,1,1] reshape(m{a}{b})"
    for a in ("x0", "x1", "x2")
    for b in ("y0", "y1", "y2")
)
_PRODUCTS = "\n".join(
    f"  m{a}{b} = f32[6,1] multiply({a}, {b})"
    for a in ("x0", "x1", "x2")
    for b in ("y0", "y1", "y2")
)
_ROWS = "\n".join(
    f"  r{n} = f32[6,1,3] concatenate(x{n}y0, x{n}y1, x{n}y2), dimensions={{2}}" for n in range(3)
)
#: Name: the result and the body, then how many loops there are, and of how many outputs the first is.
STACKS = {
    "cross product": (
        "f32[6,3]",
        f"{_CROSS}  ROOT r = f32[6,3] concatenate(u, v, w), dimensions={{1}}",
        (1, 3),
    ),
    "cross product and a sum": (
        "(f32[6,3], f32[6,3])",
        (
            f"{_CROSS}  r = f32[6,3] concatenate(u, v, w), dimensions={{1}}\n  s = f32[6,3] add(r, x)\n"
            "  ROOT t = (f32[6,3], f32[6,3]) tuple(r, s)"
        ),
        (1, 6),
    ),
    "outer product": (
        "f32[6,3,3]",
        (
            f"{_PARTS}{_PRODUCTS}\n{_OUTER}\n{_ROWS}\n"
            "  ROOT r = f32[6,3,3] concatenate(r0, r1, r2), dimensions={1}"
        ),
        (1, 9),
    ),
    "edges": (
        "f32[6,5]",
        (
            "z = f32[] constant(2)\n  p = f32[6,5] pad(x, z), padding=0_0x1_1\n"
            "  q = f32[6,5] pad(y, z), padding=0_0x1_1\n  ROOT r = f32[6,5] multiply(p, q)"
        ),
        (3, 1),
    ),
}


def program(name: str) -> str:
    result, body, _ = STACKS[name]
    return f"""HloModule m
fused {{
  x = f32[6,3] parameter(0)
  y = f32[6,3] parameter(1)
  {body}
}}
ENTRY e {{
  x = f32[6,3] parameter(0)
  y = f32[6,3] parameter(1)
  ROOT f = {result} fusion(x, y), kind=kLoop, calls=fused
}}
"""


@pytest.mark.parametrize("name", STACKS)
def test_components_are_written_by_one_loop(name: str) -> None:
    text, (loops, outputs) = program(name), STACKS[name][-1]
    executable = compiled(text)
    (kernel,) = kernels(executable)
    pieces = kernel.pieces if isinstance(kernel, PiecesKernel) else (kernel,)
    assert all(isinstance(piece, LoopKernel) for piece in pieces)
    assert (len(pieces), len(pieces[0].results)) == (loops, outputs)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((6, 3)).astype(np.float32) for _ in range(2)]
    for got, want in zip(executable.run(*inputs), evaluate(module_of(text), *inputs), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", STACKS)
def test_one_graph_is_made_of_each_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of components does not matter, since the cuts are found without graphs."""
    made = []

    def counted(*arguments: Any) -> ElementGraph:
        made.append(element_graph(*arguments))
        return made[-1]

    monkeypatch.setattr(loop_fusion, "element_graph", counted)
    (fused,) = (c for c in module_of(program(name)).computations if c.name == "fused")
    assert emitted(fused).emitter == LOOP
    assert len(made) == STACKS[name][-1][0]


def test_what_several_components_need_is_not_overwritten() -> None:
    text = program("cross product and a sum").replace(
        "HloModule m", "HloModule m, input_output_alias={ {0}: (0, {}), {1}: (1, {}) }"
    )
    executable = compiled(text)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal((6, 3)).astype(np.float32) for _ in range(2)]
    want = evaluate(module_of(text), *inputs)
    for got, expected in zip(executable.run(*inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_components_that_read_too_much_together_stay_loops_of_their_own() -> None:
    """Each of three components adds 17 columns: one loop over all would read 51 elements per index."""
    lines = ["x = f32[6,51] parameter(0)"]
    for n in range(51):
        lines.append(f"c{n} = f32[6,1] slice(x), slice={{[0:6], [{n}:{n + 1}]}}")
    for part in range(3):
        total = f"c{17 * part}"
        for n in range(17 * part + 1, 17 * part + 17):
            lines.append(f"t{n} = f32[6,1] add({total}, c{n})")
            total = f"t{n}"
    lines.append("ROOT r = f32[6,3] concatenate(t16, t33, t50), dimensions={1}")
    body = "\n  ".join(lines)
    text = f"""HloModule m
fused {{
  {body}
}}
ENTRY e {{
  x = f32[6,51] parameter(0)
  ROOT f = f32[6,3] fusion(x), kind=kLoop, calls=fused
}}
"""
    executable = compiled(text)
    (kernel,) = kernels(executable)
    assert isinstance(kernel, PiecesKernel)
    assert len(kernel.pieces) == 3
    x = np.random.default_rng(2).standard_normal((6, 51)).astype(np.float32)
    (got,) = executable.run(x)
    np.testing.assert_array_equal(got, evaluate(module_of(text), x)[0])
