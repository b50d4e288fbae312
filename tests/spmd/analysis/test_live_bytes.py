"""Tests of the live bytes of small programs, counted by hand."""

from __future__ import annotations

import json

import pytest

from launch.options import CompileOptions
from launch.pipeline import stages
from runtime.buffers.linearize import linearize
from runtime.lowering import LOWERINGS
from runtime.schedule.exact_memory import device_bytes
from spmd.analysis.live_buffers import module_buffers
from spmd.analysis.live_bytes import ModuleBytes, peak_bytes
from spmd.hlo import Opcode
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


def test_each_result_of_a_fusion_may_update_an_operand_in_place() -> None:
    """The updated arrays end here; the third result is new."""
    text = """
    f {
      a = f32[100] parameter(0)
      b = f32[100] parameter(1)
      u = f32[1] parameter(2)
      i = s32[] parameter(3)
      da = f32[100] dynamic-update-slice(a, u, i)
      n = f32[1] negate(u)
      db = f32[100] dynamic-update-slice(b, n, i)
      cb = f32[100]{0} bitcast(db)
      w = f32[100] broadcast(u), dimensions={0}
      ROOT t = (f32[100], f32[100], f32[100]) tuple(da, cb, w)
    }
    ENTRY e {
      a = f32[100] parameter(0)
      b = f32[100] parameter(1)
      u = f32[1] parameter(2)
      i = s32[] parameter(3)
      ROOT r = (f32[100], f32[100], f32[100]) fusion(a, b, u, i), kind=kLoop, calls=f
    }
    """
    given = ", input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }"
    inputs = 400 + 400 + 4 + 4
    assert needs(text, given)["r"] == inputs + 400
    assert needs(text)["r"] == inputs + 3 * 400
    # Exchanged operands are updated as well; one that stays is not.
    only_b = ", input_output_alias={ {0}: (1, {}, may-alias) }"
    assert needs(text, only_b)["r"] == inputs + 2 * 400


def test_an_array_that_a_fusion_computes_is_new_although_a_slice_of_it_is_updated() -> None:
    text = """
    f {
      a = f32[100] parameter(0)
      u = f32[1] parameter(1)
      i = s32[] parameter(2)
      z = f32[100] broadcast(u), dimensions={0}
      d = f32[100] dynamic-update-slice(z, u, i)
      s = f32[1] dynamic-slice(a, i), dynamic_slice_sizes={1}
      ROOT t = (f32[100], f32[1]) tuple(d, s)
    }
    ENTRY e {
      a = f32[100] parameter(0)
      u = f32[1] parameter(1)
      i = s32[] parameter(2)
      ROOT r = (f32[100], f32[1]) fusion(a, u, i), kind=kLoop, calls=f
    }
    """
    assert needs(text, ", input_output_alias={ {0}: (0, {}, may-alias) }")["r"] == 408 + 400 + 4


def test_results_of_a_fusion_overwrite_what_it_reads_at_the_same_index() -> None:
    """The moments and the weights of an optimizer end here, and so does the gradient, which a reduction reads, too."""
    text = """
    sum { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }
    f {
      m = f32[100] parameter(0)
      w = f32[100] parameter(1)
      g = f32[100] parameter(2)
      n = f32[100] multiply(m, g)
      d = f32[100] subtract(w, n)
      zero = f32[] constant(0)
      s = f32[] reduce(g, zero), dimensions={0}, to_apply=sum
      ROOT t = (f32[100], f32[100], f32[]) tuple(n, d, s)
    }
    ENTRY e {
      m = f32[100] parameter(0)
      w = f32[100] parameter(1)
      p = f32[100] parameter(2)
      g = f32[100] sine(p)
      ROOT r = (f32[100], f32[100], f32[]) fusion(m, w, g), kind=kLoop, calls=f
    }
    """
    given = ", input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }"
    assert needs(text, given)["r"] == 4 * 400 + 4
    assert needs(text)["r"] == 6 * 400 + 4
    in_columns = text.replace("f32[100]", "f32[10,10]").replace(
        "dimensions={0}, to_apply", "dimensions={0,1}, to_apply"
    )
    assert needs(in_columns, given)["r"] == 4 * 400 + 4
    other = in_columns.replace(
        "ENTRY e {\n      m = f32[10,10]", "ENTRY e {\n      m = f32[10,10]{0,1}"
    )
    assert needs(other, given)["r"] == 5 * 400 + 4
    # Nothing can be written over an array that is read at other indices, too.
    moved = text.replace("subtract(w, n)", "subtract(x, n)").replace(
        "n = f32[100] multiply(m, g)",
        "n = f32[100] multiply(m, g)  x = f32[100] reverse(w), dimensions={0}",
    )
    assert needs(moved, given)["r"] == 5 * 400 + 4


def test_a_result_overwrites_nothing_that_only_other_results_read() -> None:
    """They may be written after it."""
    text = """
    f {
      m = f32[100] parameter(0)
      w = f32[100] parameter(1)
      n = f32[100] negate(m)
      h = bf16[100] convert(w)
      ROOT t = (f32[100], bf16[100]) tuple(n, h)
    }
    ENTRY e {
      m = f32[100] parameter(0)
      w = f32[100] parameter(1)
      ROOT r = (f32[100], bf16[100]) fusion(m, w), kind=kLoop, calls=f
    }
    """
    assert needs(text, ", input_output_alias={ {0}: (1, {}, may-alias) }")["r"] == 800 + 600
    assert needs(text, ", input_output_alias={ {0}: (0, {}, may-alias) }")["r"] == 800 + 200


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


@pytest.mark.parametrize("name", ["gpt_dp2tp2", "mlp_dp4tp2", "kv_decode_dp2tp2"])
def test_fusions_overwrite_what_their_kernels_may(name: str) -> None:
    place = CASES / name
    about = json.loads((place / "case.json").read_text())
    options = CompileOptions(machine=machine_named("dgx-h100"))
    *_, (_, compilation) = stages(load(place / "module.hlo"), about["num_partitions"], options)
    linearize(compilation.module)
    tried = 0
    for computation, buffers in module_buffers(compilation.module).items():
        for x in computation.with_opcode(Opcode.FUSION):
            may = LOWERINGS[Opcode.FUSION].in_place(x)
            for number, result in enumerate(buffers.written[x]):
                if buffers.size[result] <= 64 or result not in buffers.over:
                    continue
                over = {
                    n
                    for n, y in enumerate(x.operands)
                    if buffers.shown[y][0] in buffers.over[result]
                }
                assert over <= {operand for leaf, operand in may if leaf == number}
                tried += 1
    assert tried


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
