"""Tests of effects and tokens: callbacks on one device, ordered effects, infeed and outfeed, host transfers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import spmd
from partitioner.spmd_partitioner import partition_module
from spmd.custom_call import register_custom_call
from spmd.errors import UnsupportedError
from spmd.hlo import HloModule, Opcode
from spmd.shape_compatibility import without_layout
from spmd.verifier.verifier import verify
from tests.differential.equivalence import check_equivalence, check_execution

ROWS = "sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}"
MESH = 'frontend_attributes={xla.sdy.meshes={maximal_mesh_2 = #sdy.mesh<[], device_ids=[2]>, mesh = #sdy.mesh<["x"=2, "y"=2]>}}'
ON_2 = (
    'sharding={maximal device=2}, frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value'
    '<[<@maximal_mesh_2, []>]>"}'
)

#: Operands of every evaluation of the callback below.
CALLS: list[Any] = []


def _remember(_: Any, operands: tuple[Any, ...]) -> Any:
    CALLS.append(operands)
    return operands[0] * 2


register_custom_call("test_effects_callback", evaluate=_remember)


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    CALLS.clear()
    yield
    CALLS.clear()


def callback(effect: str, annotation: str) -> str:
    return f"""HloModule m, {MESH}
ENTRY main {{
  x = f32[4,6] parameter(0), {ROWS}
  c = f32[4,6] custom-call(x), custom_call_target="test_effects_callback", {effect}{annotation}
  ROOT r = f32[4,6] add(c, x)
}}
"""


X = np.arange(24, dtype=np.float32).reshape(4, 6) - 5
X[0, 0] = -0.0


@pytest.mark.parametrize("annotation", [ON_2, "sharding={maximal device=2}"], ids=["sdy", "gspmd"])
@pytest.mark.parametrize("order", ["", "3,2,1,0"], ids=["counted", "permuted"])
def test_a_callback_happens_once_on_its_device(annotation: str, order: str) -> None:
    """The callback's result reaches every device bit by bit (the sign of zero too)."""
    text = callback("custom_call_has_side_effect=true, ", annotation)
    if order:
        text = text.replace("[2,1,2]<=[4]", "[2,1,2]" + order)
    module = spmd.parse(text)
    found = check_equivalence(module, 4, [X])
    assert len(CALLS) == 1 + 1, "once by the reference, once by the four devices"
    np.testing.assert_array_equal(CALLS[1][0], X)
    (conditional,) = [i for i in found.entry.instructions if i.opcode is Opcode.CONDITIONAL]
    assert conditional.called_computations[0].root.opcode is Opcode.CUSTOM_CALL


def test_a_callback_without_effect_is_computed_everywhere() -> None:
    found = check_equivalence(spmd.parse(callback("", ON_2)), 4, [X])
    assert len(CALLS) == 1 + 4
    assert not [i for i in found.all_instructions() if i.opcode is Opcode.CONDITIONAL]


def test_a_print_gives_nothing_and_stays() -> None:
    """A call of shape () that nobody uses, such as jax.debug.print's, stays."""
    text = callback("custom_call_has_side_effect=true, ", ON_2).replace(
        "  c = f32[4,6] custom-call", "  c = () custom-call"
    )
    text = text.replace("add(c, x)", "add(x, x)")
    found = spmd.partition(spmd.parse(text), 4)
    verify(found)
    assert [i for i in found.entry.instructions if i.opcode is Opcode.CONDITIONAL]


ORDERED = f"""HloModule m
cond {{
  p = (s32[], token[], f32[4,6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2)
  ROOT l = pred[] compare(i, n), direction=LT
}}
body {{
  p = (s32[], token[], f32[4,6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  t = token[] get-tuple-element(p), index=1
  x = f32[4,6] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4,6] add(x, x)
  u = token[] after-all(t)
  ROOT r = (s32[], token[], f32[4,6]) tuple(j, u, y)
}}
yes {{
  p = (token[], f32[4,6]) parameter(0)
  ROOT r = (token[], f32[4,6]) copy(p)
}}
no {{
  p = (token[], f32[4,6]) parameter(0)
  t = token[] get-tuple-element(p), index=0
  x = f32[4,6] get-tuple-element(p), index=1
  n = f32[4,6] negate(x)
  ROOT r = (token[], f32[4,6]) tuple(t, n)
}}
ENTRY main {{
  x = f32[4,6] parameter(0), {ROWS}
  c = pred[] parameter(1)
  first = token[] after-all()
  zero = s32[] constant(0)
  s = (s32[], token[], f32[4,6]) tuple(zero, first, x)
  w = (s32[], token[], f32[4,6]) while(s), condition=cond, body=body
  t = token[] get-tuple-element(w), index=1
  y = f32[4,6] get-tuple-element(w), index=2
  b = (token[], f32[4,6]) tuple(t, y)
  k = (token[], f32[4,6]) opt-barrier(b)
  d = (token[], f32[4,6]) conditional(c, k, k), true_computation=yes, false_computation=no
  ROOT r = f32[4,6] get-tuple-element(d), index=1
}}
"""


@pytest.mark.parametrize("choice", [True, False])
def test_tokens_pass_through_loops_branches_and_barriers(choice: bool) -> None:
    found = check_equivalence(spmd.parse(ORDERED), 4, [X, np.array(choice)])
    verify(found)
    assert str(found.entry.root.sharding) == "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"


def test_tokens_enter_and_leave() -> None:
    """A token may come first among parameters and outputs, as JAX writes ordered effects."""
    text = f"""HloModule m
ENTRY main {{
  t = token[] parameter(0)
  x = f32[4,6] parameter(1), {ROWS}
  c = token[] custom-call(t, x), custom_call_target="ordered", operand_layout_constraints={{token[], f32[4,6]}}, custom_call_has_side_effect=true
  y = f32[4,6] add(x, x)
  ROOT r = (token[], f32[4,6]) tuple(c, y)
}}
"""
    found = spmd.partition(spmd.parse(text), 4)
    verify(found)
    assert str(found.entry.root.shape) == "(token[], f32[2,6])"
    (call,) = [i for i in found.entry.instructions if i.opcode is Opcode.CUSTOM_CALL]
    assert call.operand(1).dims == (4, 6), "an unknown call sees the whole array"


def feeds(infeed: str, outfeed: str) -> HloModule:
    text = f"""HloModule m, num_partitions=4
ENTRY main {{
  t = token[] after-all()
  i = ((f32[4,6], s32[]), token[]) infeed(t){infeed}
  p = (f32[4,6], s32[]) get-tuple-element(i), index=0
  u = token[] get-tuple-element(i), index=1
  x = f32[4,6] get-tuple-element(p), index=0
  o = token[] outfeed(x, u), outfeed_shape=f32[4,6]{outfeed}
  ROOT y = f32[4,6] add(x, x), {ROWS}
}}
"""
    found = partition_module(spmd.parse(text), 4)
    verify(found)
    return found


def shapes(module: HloModule, opcode: Opcode) -> list[str]:
    """Return the shapes that infeeds give, or that outfeeds take."""
    found = [i for i in module.all_instructions() if i.opcode is opcode]
    return [
        str(without_layout((i.operand(0) if opcode is Opcode.OUTFEED else i).shape)) for i in found
    ]


def test_feeds_are_whole_without_an_annotation() -> None:
    found = feeds("", "")
    assert shapes(found, Opcode.INFEED) == ["((f32[4,6], s32[]), token[])"]
    assert shapes(found, Opcode.OUTFEED) == ["f32[4,6]"]


def test_feeds_are_split_as_annotated() -> None:
    tiles = ROWS.removeprefix("sharding=")
    found = feeds(f", sharding={{{tiles}, {{replicated}}, {{replicated}}}}", f", {ROWS}")
    assert shapes(found, Opcode.INFEED) == ["((f32[2,6], s32[]), token[])"]
    assert shapes(found, Opcode.OUTFEED) == ["f32[2,6]"]


def test_feeds_on_one_device() -> None:
    one = "{maximal device=1}"
    found = feeds(f", sharding={{{one}, {one}, {one}}}", f", sharding={one}")
    assert sum(i.opcode is Opcode.CONDITIONAL for i in found.entry.instructions) == 2
    assert shapes(found, Opcode.INFEED) == ["((f32[4,6], s32[]), token[])"]


SENDS = f"""HloModule m
ENTRY main {{
  x = f32[4,6] parameter(0), {ROWS}
  t = token[] after-all()
  s = (f32[4,6], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true
  d = token[] send-done(s), channel_id=1, is_host_transfer=true
  r = (f32[4,6], u32[], token[]) recv(d), channel_id=2, is_host_transfer=true
  e = (f32[4,6], token[]) recv-done(r), channel_id=2, is_host_transfer=true
  g = f32[4,6] get-tuple-element(e), index=0
  ROOT y = f32[4,6] add(x, g)
}}
"""


def test_host_transfers_take_whole_values() -> None:
    found = spmd.partition(spmd.parse(SENDS), 4)
    verify(found)
    assert str(found.entry.root.shape) == "f32[2,6]"


def test_a_host_transfer_on_one_device_is_refused_by_name() -> None:
    text = SENDS.replace(
        "send(x, t), channel_id=1, is_host_transfer=true",
        "send(x, t), channel_id=1, is_host_transfer=true, sharding={maximal device=0}",
        1,
    )
    with pytest.raises(UnsupportedError, match="s: send on one device"):
        spmd.partition(spmd.parse(text), 4)


def test_effects_and_tokens_run() -> None:
    """Effects and tokens pass all stages and run on loopback devices."""
    effect = callback("custom_call_has_side_effect=true, ", ON_2)
    check_execution(spmd.parse(effect), 4, [X])
    assert len(CALLS) == 1 + 1
    check_execution(spmd.parse(ORDERED), 4, [X, np.array(True)])
