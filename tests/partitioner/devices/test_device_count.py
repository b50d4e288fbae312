"""Tests that programs for many devices are as large as those for few, and list no devices."""

from __future__ import annotations

import pytest

from partitioner.spmd_partitioner import partition_module
from spmd.hlo import HloInstruction, HloModule, Opcode
from spmd.ops.attrs import CollectiveAttrs, CollectivePermuteAttrs, ConstantAttrs
from spmd.source_target_pairs import LinePairs
from spmd.text.parser import parse_module


def program(side: int) -> HloModule:
    """Return a program for side x side devices.

    It shifts tiles, turns them round, mirrors them, swaps axes, gathers and reduces.
    """
    n, rows, columns = 4 * side, f"[{side},1,{side}]", f"[1,{side},{side}]"
    tile = f"{{devices=[{side},{side}]<=[{side * side}]}}"
    split = f"devices={rows}<=[{side * side}] last_tile_dim_replicate"
    other = f"devices={columns}<=[{side * side}] last_tile_dim_replicate"
    swapped = f"devices=[{side},{side}]<=[{side},{side}]T(1,0)"
    return parse_module(f"""HloModule many
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY main {{
  x = f32[{n},{n}] parameter(0), sharding={tile}
  w = f32[{n},{n}] parameter(1), sharding={{{split}}}
  zero = f32[] constant(0)
  window = f32[{n},{n}] reduce-window(x, zero), window={{size=3x1 pad=1_1x0_0}}, to_apply=sum, sharding={tile}
  mirrored = f32[{n},{n}] reverse(window), dimensions={{0}}, sharding={tile}
  head = f32[1,{n}] slice(mirrored), slice={{[0:1],[0:{n}]}}
  tail = f32[{n - 1},{n}] slice(mirrored), slice={{[1:{n}],[0:{n}]}}
  rolled = f32[{n},{n}] concatenate(tail, head), dimensions={{0}}, sharding={tile}
  across = f32[{n},{n}] copy(rolled), sharding={{{swapped}}}
  v = f32[{n},{n}] copy(w), sharding={{{other}}}
  d = f32[{n},{n}] dot(across, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = f32[{n}] reduce(d, zero), dimensions={{0}}, to_apply=sum, sharding={{replicated}}
}}
""")


def lists_devices(instruction: HloInstruction) -> bool:
    attrs = instruction.attrs
    if isinstance(attrs, CollectivePermuteAttrs):
        return not isinstance(attrs.source_target_pairs, LinePairs)
    if isinstance(attrs, CollectiveAttrs):
        return attrs.replica_groups.spanned() is None
    return isinstance(attrs, ConstantAttrs) and instruction.array_shape.num_elements > 1


@pytest.fixture(scope="module")
def on_four() -> HloModule:
    return partition_module(program(2), 4)


@pytest.mark.parametrize("side", [4, 16, 128])
def test_as_many_instructions_and_no_list(side: int, on_four: HloModule) -> None:
    result = partition_module(program(side), side * side)
    permutes = list(result.entry.with_opcode(Opcode.COLLECTIVE_PERMUTE))
    assert len(permutes) >= 4
    assert not [x for x in result.all_instructions() if lists_devices(x)]
    few, many = (sum(1 for _ in m.all_instructions()) for m in (on_four, result))
    assert many <= 1.1 * few
