"""More replicas of a program's data axis: its groups, its values, and programs without such an axis."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.simulate.data_parallel import with_more_replicas
from spmd.errors import UnsupportedError
from spmd.evaluator import evaluate_partitions
from spmd.hlo import HloModule, Opcode
from spmd.ops.groups import device_groups
from spmd.text.parser import parse_module
from spmd.verifier import verify

#: Two replicas of two devices. Device 2 r + i reads element i of a table, gathers within its replica, reduces over replicas.
PROGRAM = """HloModule p, num_partitions=4
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[2] parameter(0)
  i = u32[] partition-id()
  table = f32[4] constant({1, 2, 1, 2})
  own = f32[1] dynamic-slice(table, i), dynamic_slice_sizes={1}
  o = f32[] reshape(own)
  scale = f32[2] broadcast(o), dimensions={}
  y = f32[2] multiply(x, scale)
  g = f32[4] all-gather(y), channel_id=1, replica_groups=[2,2]<=[4], dimensions={0}, use_global_device_ids=true
  shifted = f32[4] collective-permute(g), channel_id=2, source_target_pairs={{0,1},{1,0},{2,3},{3,2}}
  over = f32[4] all-reduce(shifted), channel_id=3, replica_groups=[2,2]<=[2,2]T(1,0), use_global_device_ids=true, to_apply=add
  ROOT all = f32[4] all-reduce(over), channel_id=4, replica_groups=[1,4]<=[4], use_global_device_ids=true, to_apply=add
}"""


def program(text: str = PROGRAM) -> HloModule:
    return parse_module(text)


def groups(module: HloModule, opcode: Opcode) -> list[tuple[tuple[int, ...], ...]]:
    return [device_groups(x, module.num_partitions, 1) for x in module.entry.with_opcode(opcode)]


def test_groups_within_replicas_are_repeated_and_groups_across_them_grow() -> None:
    module = with_more_replicas(program(), 3)
    verify(module)
    assert module.num_partitions == 12
    assert groups(module, Opcode.ALL_GATHER) == [((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11))]
    over, everything = groups(module, Opcode.ALL_REDUCE)
    assert over == ((0, 2, 4, 6, 8, 10), (1, 3, 5, 7, 9, 11))
    assert [sorted(group) for group in everything] == [list(range(12))]


def test_equal_replicas_compute_equal_values() -> None:
    """Three times as many replicas with the same inputs: sums over replicas are three times as large, each."""
    once = program()
    inputs = [[np.arange(2, dtype=np.float32) + device] for device in range(4)]
    expected = evaluate_partitions(once, inputs)
    found = evaluate_partitions(with_more_replicas(once, 3), inputs * 3)
    for device, values in enumerate(found):
        np.testing.assert_array_equal(values, 9 * np.asarray(expected[device % 4]))


def test_the_program_itself_stays() -> None:
    module = program()
    with_more_replicas(module, 2)
    assert module.num_partitions == 4
    assert groups(module, Opcode.ALL_GATHER) == [((0, 1), (2, 3))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[2,2]<=[2,2]T(1,0)", "[4,1]<=[4]"), "p has no data axis"),
        (
            ("replica_groups=[2,2]<=[4], d", "replica_groups=[2,2]<=[2,2]T(1,0), d"),
            "g: this all-gather spans replicas",
        ),
    ],
)
def test_programs_without_a_data_axis_are_refused(change: tuple[str, str], message: str) -> None:
    text = PROGRAM.replace(*change)
    if "no data axis" in message:
        text = text.replace("[1,4]<=[4]", "[4,1]<=[4]")
    with pytest.raises(UnsupportedError, match=message):
        with_more_replicas(program(text), 2)


def test_replicas_of_the_header_are_refused() -> None:
    module = program()
    module.replica_count = 2
    with pytest.raises(UnsupportedError, match="p has 2 replicas"):
        with_more_replicas(module, 2)
