"""Tests of which fused computations have an emitter, and of what is said of the others."""

from __future__ import annotations

import pytest

from runtime.fusion.emitters import emitted, emitter_of
from spmd.hlo import HloComputation
from spmd.text.parser import parse_module
from tests.runtime.fusion.reasons import why_not


def computation(body: str) -> HloComputation:
    return parse_module(f"HloModule m\n\nENTRY e {{\n{body}\n}}\n").entry


LOOPS = {
    "chain": """
        p = f32[4,6] parameter(0)
        q = f32[6] parameter(1)
        two = f32[] constant(2)
        twos = f32[4,6] broadcast(two), dimensions={}
        qs = f32[4,6] broadcast(q), dimensions={1}
        a = f32[4,6] multiply(p, twos)
        ROOT r = f32[4,6] add(a, qs)""",
    "view of a value": """
        p = f32[4,6] parameter(0)
        n = f32[4,6] negate(p)
        t = f32[6,4] transpose(n), dimensions={1,0}
        s = f32[3,2] slice(t), slice={[0:6:2], [1:3]}
        ROOT r = f32[3,2] abs(s)""",
    "transposed, reshaped result": """
        p = f32[4,6] parameter(0)
        n = f32[4,6] negate(p)
        t = f32[6,4] transpose(n), dimensions={1,0}
        ROOT r = f32[24] reshape(t)""",
    "several results of one index space": """
        p = f32[4,6] parameter(0)
        n = f32[4,6] negate(p)
        a = f32[24] reshape(n)
        b = f32[6,4] transpose(n), dimensions={1,0}
        ROOT r = (f32[4,6], f32[24], f32[6,4]) tuple(n, a, b)""",
    "run-time slice": """
        p = f32[4,6] parameter(0)
        i = s32[] parameter(1)
        j = s32[] negate(i)
        n = f32[4,6] negate(p)
        s = f32[2,6] dynamic-slice(n, i, j), dynamic_slice_sizes={2,6}
        ROOT r = f32[12] reshape(s)""",
    "joined and padded": """
        p = f32[4,6] parameter(0)
        q = f32[4,2] parameter(1)
        z = f32[] constant(0)
        n = f32[4,6] negate(p)
        j = f32[4,8] concatenate(n, q), dimensions={1}
        a = f32[4,9] pad(j, z), padding=0_0x1_0
        t = f32[9,4] transpose(a), dimensions={1,0}
        ROOT r = f32[9,4] abs(t)""",
    "cut between rows": """
        p = f32[4] parameter(0)
        j = f32[8] concatenate(p, p), dimensions={0}
        f = f32[4,2] reshape(j)
        v = f32[4,2] reverse(f), dimensions={0,1}
        ROOT r = f32[4,2] negate(v)""",
    "numbers": """
        i = s32[4,6] iota(), iota_dimension=1
        v = s32[4,6] reverse(i), dimensions={1}
        p = s32[4,6] parameter(0)
        ROOT r = pred[4,6] compare(p, v), direction=LT""",
    "splat": """
        c = f32[2] constant({3, 3})
        p = f32[2] parameter(0)
        ROOT r = f32[2] add(p, c)""",
}
REFUSED = {
    "sort is no element operation": """
        p = f32[4] parameter(0)
        ROOT r = f32[4] sort(p), dimensions={0}, to_apply=less""",
    "no strides say how p is read after a reshape": """
        p = f32[4,6] parameter(0)
        t = f32[6,4] transpose(p), dimensions={1,0}
        f = f32[24] reshape(t)
        ROOT r = f32[24] negate(f)""",
    "other indices than the first result": """
        p = f32[4,6] parameter(0)
        s = f32[2,6] slice(p), slice={[0:2], [0:6]}
        n = f32[4,6] negate(p)
        ROOT r = (f32[4,6], f32[2,6]) tuple(n, s)""",
    "padding between elements": """
        p = f32[2] parameter(0)
        z = f32[] constant(0)
        ROOT r = f32[3] pad(p, z), padding=0_0_1""",
    "at most 16 pieces": """
        p = f32[2] parameter(0)
        q = f32[10] concatenate(p, p, p, p, p), dimensions={0}
        ROOT r = f32[40] concatenate(q, q, q, q), dimensions={0}""",
    "no one dimension cuts": """
        p = f32[3] parameter(0)
        j = f32[6] concatenate(p, p), dimensions={0}
        f = f32[3,2] reshape(j)
        ROOT r = f32[3,2] negate(f)""",
    "an array constant": """
        p = f32[2] parameter(0)
        c = f32[2] constant({1, 2})
        ROOT r = f32[2] add(p, c)""",
    "is no array": """
        p = f32[4] parameter(0)
        t = (f32[4]) tuple(p)
        ROOT r = (f32[4], (f32[4])) tuple(p, t)""",
    "at most 256 values": "\n".join(
        [
            "p = f32[4] parameter(0)",
            *(f"a{i} = f32[4] negate({f'a{i - 1}' if i else 'p'})" for i in range(600)),
            "ROOT r = f32[4] abs(a599)",
        ]
    ),
}
LESS = """
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}
"""


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    fused = computation(LOOPS[name])
    assert emitter_of(fused) == "loop"
    assert why_not(fused) == ""


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    body = REFUSED[reason]
    less = LESS if "to_apply=less" in body else ""
    fused = parse_module(f"HloModule m\n{less}\nENTRY e {{\n{body}\n}}\n").entry
    assert emitter_of(fused) is None
    assert reason in why_not(fused)


def test_an_instruction_alone() -> None:
    entry = computation("""
        p = f32[4,6] parameter(0)
        n = f32[4,6] negate(p)
        d = f32[4,4] dot(n, n), lhs_contracting_dims={1}, rhs_contracting_dims={1}
        ROOT t = f32[4,4] transpose(d), dimensions={1,0}""")
    _, negate, dot, transpose = entry.instructions
    assert [emitter_of(x) for x in (negate, dot, transpose)] == ["loop", None, "loop"]


def test_what_is_read_at_one_place_is_computed_once() -> None:
    fused = computation("""
        p = f32[4,4] parameter(0)
        n = f32[4,4] negate(p)
        t = f32[4,4] transpose(n), dimensions={1,0}
        tt = f32[4,4] transpose(t), dimensions={1,0}
        a = f32[4,4] add(n, tt)
        ROOT r = f32[4,4] add(a, t)""")
    graph = emitted(fused).plan.pieces[0].graph
    assert len(graph.leaves) == 2  # p and its transpose
    assert len(graph.program.steps) == 4  # two negations, two additions


def test_results_over_inputs() -> None:
    fused = computation("""
        p = f32[4,4] parameter(0)
        q = f32[4,4] parameter(1)
        h = bf16[4,4] parameter(2)
        t = f32[4,4] transpose(q), dimensions={1,0}
        w = f32[4,4] convert(h)
        a = f32[4,4] add(p, t)
        b = f32[4,4] add(a, w)
        ROOT r = f32[16] reshape(b)""")
    assert emitted(fused).plan.overwrites == ((0, 0),)
