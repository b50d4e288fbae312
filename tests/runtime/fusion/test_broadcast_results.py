"""Broadcasts that are results of the program: written by what computes their elements."""

from __future__ import annotations

import pytest

from spmd.hlo import Opcode
from tests.runtime.fusion.test_priority_fusion import fused, fusions, inside, program


@pytest.mark.parametrize("root", ["ROOT b", "b"])
def test_a_broadcast_that_is_a_result_is_written_by_what_computes_it(root: str) -> None:
    tail = "" if root.startswith("ROOT") else "ROOT t = (f32[64,4096], f32[64,4096]) tuple(b, y)"
    module = program(
        "x = f32[64] parameter(0) y = f32[64,4096] parameter(1) n = f32[64] negate(x)\n"
        f"{root} = f32[64,4096] broadcast(n), dimensions={{0}}\n{tail}"
    )
    (fusion,) = fusions(fused(module))
    assert inside(fusion) == [Opcode.NEGATE, Opcode.BROADCAST]


@pytest.mark.parametrize("source", ["y = f32[64] parameter(1)", "y = f32[64] constant({...})"])
def test_a_broadcast_of_what_nothing_computes_stays_a_copy(source: str) -> None:
    source = source.replace("{...}", "{" + ",".join(["1"] * 64) + "}")
    module = program(
        f"x = f32[64] parameter(0) {source} ROOT b = f32[64,4096] broadcast(y), dimensions={{0}}"
    )
    assert not fusions(fused(module))
