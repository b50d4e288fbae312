"""Tests that the edges of a loop's concatenations and pads bound the number of pieces of its plan."""

from __future__ import annotations

import pytest

from runtime.fusion.emitters import LOOP, emitted
from runtime.fusion.loop_fusion import LoopFusion
from tests.runtime.fusion.test_kernel_kinds import entry, kind_of

PAD = "  x = f32[8,8] parameter(0)\n  z = f32[] parameter(1)\n  p = f32[10,10] pad(x, z), padding=1_1x1_1\n"
CENTRE = "  c = f32[8,8] slice(p), slice={[1:9], [1:9]}\n"
LEFT = "  l = f32[8,8] slice(p), slice={[1:9], [0:8]}\n"
UP = "  u = f32[8,8] slice(p), slice={[0:8], [1:9]}\n"


@pytest.mark.parametrize(
    ("body", "pieces"),
    [
        (PAD + "  ROOT r = f32[10,10] negate(p)", 9),  # the rows of padding are not cut
        (PAD + CENTRE + "  ROOT r = f32[8,8] negate(c)", 1),
        (PAD + CENTRE + LEFT + "  ROOT r = f32[8,8] add(c, l)", 2),
        (PAD + LEFT + UP + "  ROOT r = f32[8,8] add(u, l)", 4),
        (
            PAD
            + LEFT
            + "  t = f32[8,8] transpose(l), dimensions={1,0}\n  ROOT r = f32[8,8] add(l, t)",
            4,
        ),
        (
            (
                "  x = f32[4] parameter(0)\n  y = f32[3] parameter(1)\n"
                "  j = f32[7] concatenate(x, y), dimensions={0}\n"
                "  s = f32[5] slice(j), slice={[2:7]}\n  e = f32[5] slice(j), slice={[0:5]}\n"
                "  ROOT r = f32[5] add(s, e)"
            ),
            3,
        ),
        (
            (
                "  x = f32[9] parameter(0)\n  i = s32[] parameter(1)\n  z = f32[] parameter(2)\n"
                "  s = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={4}\n"
                "  ROOT p = f32[6] pad(s, z), padding=1_1"
            ),
            3,
        ),
    ],
)
def test_pieces_of_a_loop_are_known_without_a_plan(body: str, pieces: int) -> None:
    fused = entry(body)
    kind = kind_of(fused)
    assert kind.straight
    assert kind.cost is not None
    assert kind.cost.loops == pieces
    assert kind.emitter == LOOP
    plan = emitted(fused).plan
    assert isinstance(plan, LoopFusion)
    assert len(plan.pieces) == (5 if pieces == 9 else pieces)


def test_a_dynamic_slice_of_what_is_cut_needs_a_plan() -> None:
    fused = entry(
        PAD + "  i = s32[] parameter(2)\n"
        "  ROOT s = f32[4,4] dynamic-slice(p, i, i), dynamic_slice_sizes={4,4}"
    )
    assert not kind_of(fused).straight
