"""Colours of the timeline that eyes of any kind can tell apart; what kind of work an instruction is."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import spmd
from launch.report.overlap.model import Instruction
from launch.report.timeline_page.kinds import PALETTES, PageKind, kind_of_collective, kind_of_slice

#: Matrices that give what dichromats see, on linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
SIGHT = {
    "trichromat": np.eye(3),
    "protanope": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranope": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanope": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
_WHITE = np.array([0.95047, 1.0, 1.08883])


def lab(color: str, sight: np.ndarray) -> np.ndarray:
    """CIELAB of "#rrggbb" as these eyes see it."""
    parts = np.array([int(color[n : n + 2], 16) / 255 for n in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = _XYZ @ np.clip(sight @ linear, 0, 1) / _WHITE
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_no_two_kinds_look_alike(mode: str, sight: str) -> None:
    """A difference of 2.3 is just noticeable side by side; narrow slices apart need a few times that."""
    seen = {
        kind: lab(getattr(ink, mode), SIGHT[sight])
        for kind, ink in PALETTES.items()
        if kind is not PageKind.WAITING  # has stripes
    }
    close = {
        (one.value, other.value): round(float(np.linalg.norm(seen[one] - seen[other])), 1)
        for one, other in combinations(seen, 2)
    }
    nearest = min(close, key=lambda pair: close[pair])
    assert close[nearest] > 12, (nearest, close[nearest])


MODULE = """HloModule m
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
product { p = f32[8,8] parameter(0)  d = f32[8,8] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT e = f32[8,8] exponential(d) }
total { p = f32[8,8] parameter(0)  z = f32[] constant(0)  m = f32[8,8] multiply(p, p)
  ROOT r = f32[8] reduce(m, z), dimensions={1}, to_apply=sum }
turn { p = f32[8,8] parameter(0)  t = f32[8,8] transpose(p), dimensions={1,0}  ROOT s = f32[4,8] slice(t), slice={[0:4],[0:8]} }
ENTRY e {
  x = f32[8,8] parameter(0)
  f1 = f32[8,8] fusion(x), kind=kLoop, calls=product
  f2 = f32[8] fusion(x), kind=kLoop, calls=total
  f3 = f32[4,8] fusion(x), kind=kLoop, calls=turn
  s = f32[8,8] sine(x)
  ROOT t = (f32[8,8], f32[8], f32[4,8], f32[8,8]) tuple(f1, f2, f3, s)
}
"""


def test_a_fusion_is_what_is_in_it() -> None:
    named = {i.name: i for i in spmd.parse(MODULE).all_instructions()}
    wanted = {
        "f1": PageKind.PRODUCT,
        "f2": PageKind.REDUCTION,
        "f3": PageKind.MOVE,
        "s": PageKind.ELEMENTWISE,
    }
    found = {
        name: kind_of_slice("Kernel", Instruction(name, "fusion"), None, named[name])
        for name in wanted
    }
    assert found == wanted


@pytest.mark.parametrize(
    ("thunk", "name", "opcode", "kind"),
    [
        ("Kernel", "loop_subtract_fusion.2", "fusion", PageKind.ELEMENTWISE),
        ("Kernel", "input_reduce_fusion", "fusion", PageKind.REDUCTION),
        ("Kernel", "transpose_fusion", "fusion", PageKind.MOVE),
        ("Kernel", "dot_fusion.1", "fusion", PageKind.PRODUCT),
        ("Kernel", "dot.7", "dot", PageKind.PRODUCT),
        ("Kernel", "my_call", "custom-call", PageKind.OTHER),
        ("Kernel", "x", "no-such-opcode", PageKind.OTHER),
        ("Copy", "w", "while", PageKind.MOVE),
        ("While", "w", "while", PageKind.CONTROL),
        ("CollectiveDone", "ag-done", "all-gather-done", PageKind.WAITING),
    ],
)
def test_without_the_module_names_tell(thunk: str, name: str, opcode: str, kind: PageKind) -> None:
    assert kind_of_slice(thunk, Instruction(name, opcode), None, None) is kind


def test_collectives_are_told_by_kind() -> None:
    assert kind_of_collective("all-to-all") is PageKind.ALL_TO_ALL
    assert kind_of_collective("ragged-all-to-all") is PageKind.OTHER_COLLECTIVE
    issued = kind_of_slice("CollectiveStart", Instruction("ag"), "all-gather", None)
    assert issued is PageKind.ALL_GATHER
