"""Tests of the live bytes of small programs, counted by hand."""

from __future__ import annotations

import json

import pytest

from launch.options import CompileOptions
from launch.pipeline import stages
from runtime.schedule.exact_memory import device_bytes
from spmd.analysis.live_bytes import ModuleBytes, peak_bytes
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module
from spmd.text.sources.load import load
from tests.paths import CASES


def needs(text: str, header: str = "") -> dict[str, int]:
    """Return the live bytes at the entry's instructions, by name."""
    module = parse_module(f"HloModule m, is_scheduled=true, num_partitions=2{header}\n{text}")
    found = ModuleBytes.of(module)
    return {
        x.name: n for x, n in zip(module.entry.instructions, found.look(module.entry), strict=True)
    }


def test_operands_are_in_use_until_the_done() -> None:
    found = needs("""
    ENTRY e {
      p = f32[4] parameter(0)
      x = f32[4] sort(p), dimensions={0}, to_apply={ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }
      s = (f32[4], f32[8]) all-gather-start(x), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
      n = f32[4] negate(p)
      d = f32[8] all-gather-done(s)
      ROOT r = (f32[8], f32[4]) tuple(d, n)
    }
    """)
    assert found == {"p": 16, "x": 32, "s": 64, "n": 80, "d": 80, "r": 64}


def test_elementwise_results_take_the_place_of_a_dying_operand() -> None:
    text = "ENTRY e { p = f32[4] parameter(0)  a = f32[4] negate(p)  b = f32[4] add(a, p)  ROOT c = f32[4] abs(b) }"
    assert needs(text) == {"p": 16, "a": 32, "b": 32, "c": 32}
    assert needs(text, ", input_output_alias={ {}: (0, {}, may-alias) }") == {
        "p": 16,
        "a": 32,
        "b": 32,
        "c": 16,
    }


def test_parameters_are_known_by_their_numbers_wherever_they_stand() -> None:
    """The first parameter is donated, and ends with its reader; the second one stays."""
    text = "ENTRY e { q = f32[100] parameter(1)  b = f32[100] add(q, q)  p = f32[4] parameter(0)  c = f32[4] negate(p)  ROOT r = (f32[4], f32[100]) tuple(c, b) }"
    found = needs(text, ", input_output_alias={ {0}: (0, {}, may-alias) }")
    assert found == {"q": 416, "b": 816, "p": 816, "c": 816, "r": 816}


def test_a_fusion_of_several_updates_overwrites_each_array() -> None:
    """The results are two updated arrays and the update of one of them, which is new."""
    found = needs("""
    fused {
      x = f32[7,3] parameter(0)
      y = f32[5,3] parameter(1)
      u = f32[1,3] parameter(2)
      zero = s32[] constant(0)
      v = f32[1,3] negate(u)
      x1 = f32[7,3] dynamic-update-slice(x, u, zero, zero)
      y1 = f32[5,3] dynamic-update-slice(y, v, zero, zero)
      ROOT t = (f32[7,3], f32[1,3], f32[5,3]) tuple(x1, v, y1)
    }
    ENTRY e {
      p = f32[] parameter(0)
      a = f32[7,3] broadcast(p), dimensions={}
      b = f32[5,3] broadcast(p), dimensions={}
      c = f32[1,3] broadcast(p), dimensions={}
      ROOT f = (f32[7,3], f32[1,3], f32[5,3]) fusion(a, b, c), kind=kLoop, calls=fused
    }
    """)
    assert found == {"p": 4, "a": 88, "b": 148, "c": 160, "f": 172}


LOOP = """
body {
  t = (s32[], f32[100], f32[100]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[100] get-tuple-element(t), index=1
  w = f32[100] get-tuple-element(t), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[200] concatenate(x, w), dimensions={0}
  z = f32[100] slice(y), slice={[50:150]}
  ROOT u = (s32[], f32[100], f32[100]) tuple(j, z, w)
}
cond {
  t = (s32[], f32[100], f32[100]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[100] parameter(0)
  w = f32[100] parameter(1)
  zero = s32[] constant(0)
  state = (s32[], f32[100], f32[100]) tuple(zero, x, w)
  loop = (s32[], f32[100], f32[100]) while(state), condition=cond, body=body
  ROOT r = f32[100] get-tuple-element(loop), index=1
}
"""


def test_a_loop_holds_its_state_once_and_what_its_body_needs() -> None:
    """The counter overwrites the constant, x's copy is new (x is the caller's), and w is passed on."""
    found = needs(LOOP)
    inside = 800 + 4  # y beside x and w, and both counters at once at most
    assert found["loop"] >= 800 + 400 + 800
    assert found["loop"] <= 800 + 400 + inside + 8
    assert found["r"] == 1200


def test_a_module_with_its_constants() -> None:
    module = parse_module(f"HloModule m, is_scheduled=true\n{LOOP}")
    assert peak_bytes(module) == max(ModuleBytes.of(module).look(module.entry)) + 12


@pytest.mark.parametrize("name", ["einsums_2x4", "mlp_dp2", "mlp_dp4tp2", "ring_attention4"])
def test_near_what_buffer_assignment_needs(name: str) -> None:
    """Buffer assignment saves some bytes by views and shared buffers, and loses some by alignment."""
    place = CASES / name
    about = json.loads((place / "case.json").read_text())
    for stage, compilation in stages(
        load(place / "module.hlo"), about["num_partitions"], CompileOptions()
    ):
        if stage == "scheduled":
            needed = device_bytes(compilation.module)
            assert 0.95 * needed <= peak_bytes(compilation.module) <= 1.3 * needed
            return


def test_sizes_are_those_of_the_machine() -> None:
    """On a GPU elements of 4 bits are packed, and arrays in the host's memory take none of the device's."""
    module = parse_module("""HloModule m, is_scheduled=true
    ENTRY e {
      p = s4[33] parameter(0)
      h = f32[100]{0:S(5)} parameter(1)
      c = f4e2m1fn[3] constant({1, 2, 3})
      n = s4[33] reverse(p), dimensions={0}
      ROOT t = (s4[33], f4e2m1fn[3], f32[100]{0:S(5)}) tuple(n, c, h)
    }""")
    h100, core = machine_named("dgx-h100"), machine_named("cpu-avx512")
    assert peak_bytes(module) == peak_bytes(module, core.memory_bytes) == 33 + 33 + 400 + 3
    assert peak_bytes(module, h100.byte_size) == 17 + 17 + 400 + 2
    assert peak_bytes(module, h100.memory_bytes) == 17 + 17 + 2
