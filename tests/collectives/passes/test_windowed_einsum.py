"""windowed-einsum by price: large products beside a gather on a GPU's links, never where processors move the bytes."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.passes.windowed_cost import WindowedSavings
from collectives.passes.windowed_einsum import WindowedEinsum
from spmd.evaluator import evaluate_partitions
from spmd.hlo import HloModule, Opcode, Stage
from spmd.hlo.clone import clone_module
from spmd.literal import Literal
from spmd.machine.named import machine_named
from spmd.ops.attrs import CollectivePermuteAttrs
from spmd.shape import ArrayShape, PrimitiveType
from spmd.source_target_pairs import LinePairs
from spmd.text.parser import parse_module

TEXT = """HloModule t, num_partitions=8
ENTRY main {
  x = bf16[ROWS,8192] parameter(0)
  w = bf16[8192,8192] parameter(1)
  g = bf16[ALL,8192] all-gather(x), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true
  ROOT y = bf16[ALL,8192] dot(g, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def module(rows: int) -> HloModule:
    text = TEXT.replace("ROWS", str(rows)).replace("ALL", str(8 * rows))
    found = parse_module(text)
    found.stage = Stage.PARTITIONED
    return found


def gain(rows: int, machine: str) -> WindowedSavings:
    (found,) = WindowedEinsum(machine=machine_named(machine)).savings(module(rows)).values()
    return found


def test_communication_hides_behind_products() -> None:
    """Seven of eight parts come while others are multiplied: at most the longer of both and a part are left."""
    found = gain(2048, "dgx-h100")
    assert found.product == "y"
    assert 0.05 < found.share < 0.5
    changed = module(2048)
    assert WindowedEinsum(machine=machine_named("dgx-h100")).run(changed)
    assert not list(changed.entry.with_opcode(Opcode.ALL_GATHER))
    assert len(list(changed.entry.with_opcode(Opcode.DOT))) in (8, 16, 32)


@pytest.mark.parametrize(("rows", "machine"), [(1, "dgx-h100"), (2048, "cpu-avx512")])
def test_what_does_not_pay_stays(rows: int, machine: str) -> None:
    """Small parts take as long as large ones; a processor that moves bytes does not compute meanwhile."""
    assert gain(rows, machine).share < 0.05
    same = module(rows)
    text = str(same)
    assert not WindowedEinsum(machine=machine_named(machine)).run(same)
    assert str(same) == text


def test_slower_links_leave_more_to_hide_up_to_the_product_itself() -> None:
    assert gain(2048, "dgx-h100{links=0.5}").share > gain(2048, "dgx-h100").share


SCATTERED = """HloModule t, num_partitions=4
sum { a = KIND[] parameter(0)
  b = KIND[] parameter(1)
  ROOT c = KIND[] add(a, b) }
ENTRY main {
  x = KIND[4,1] parameter(0)
  w = KIND[1,1] parameter(1)
  y = KIND[4,1] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, frontend_attributes={said="product"}
  ROOT s = KIND[1,1] reduce-scatter(y), channel_id=1, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true, to_apply=sum, frontend_attributes={said="sum"}
}
"""


@pytest.mark.parametrize("kind", [PrimitiveType.BF16, PrimitiveType.F16, PrimitiveType.F8E5M2])
def test_narrow_sums_are_rounded_once(kind: PrimitiveType) -> None:
    """2^bits + 1 + 1 + 1, in whatever order: a sum that is rounded on its way loses each 1."""
    module = parse_module(SCATTERED.replace("KIND", str(kind)))
    module.stage = Stage.PARTITIONED
    whole = clone_module(module)
    assert WindowedEinsum().run(module)
    assert not list(module.entry.with_opcode(Opcode.REDUCE_SCATTER))
    big = {PrimitiveType.BF16: 256.0, PrimitiveType.F16: 2048.0, PrimitiveType.F8E5M2: 8.0}[kind]
    rows, one = ArrayShape(kind, (4, 1)), ArrayShape(kind, (1, 1))
    for place in range(4):
        inputs = [
            [
                Literal.of(rows, np.full((4, 1), big if device == place else 1.0)).array,
                Literal.of(one, np.ones((1, 1))).array,
            ]
            for device in range(4)
        ]
        expected, found = (evaluate_partitions(each, inputs) for each in (whole, module))
        for device in range(4):
            assert float(expected[device][0].item()) != big
            assert float(found[device][0].item()) == float(expected[device][0].item())


CONTRACTED = """HloModule t, num_partitions=2
ENTRY main {
  x = KIND[2,3] parameter(0)
  w = KIND[6,2] parameter(1)
  g = KIND[2,6] all-gather(x), channel_id=1, replica_groups={{0,1}}, dimensions={1}, use_global_device_ids=true
  ROOT y = KIND[2,2] dot(g, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize(("kind", "changed"), [("s32", True), ("f32", False), ("bf16", False)])
def test_sums_that_round_keep_one_order_on_all_devices(kind: str, *, changed: bool) -> None:
    found = parse_module(CONTRACTED.replace("KIND", kind))
    found.stage = Stage.PARTITIONED
    assert WindowedEinsum().run(found) is changed


def test_parts_say_what_the_product_and_the_collective_said() -> None:
    found = parse_module(SCATTERED.replace("KIND", "f32"))
    found.stage = Stage.PARTITIONED
    assert WindowedEinsum().run(found)
    for opcode, said in ((Opcode.DOT, "product"), (Opcode.COLLECTIVE_PERMUTE, "sum")):
        parts = list(found.entry.with_opcode(opcode))
        assert len(parts) > 1
        assert {x.annotations.frontend("said") for x in parts} == {said}


def test_windows_among_many_devices_are_as_few_numbers() -> None:
    """Pairs and offsets are patterns: 16,384 devices take the instructions of 16, and nothing has an entry for each."""
    sizes = []
    for devices in (16, 16_384):
        text = TEXT.replace("num_partitions=8", f"num_partitions={devices}")
        lines = f"[{devices // 8},8]<=[8,{devices // 8}]T(1,0)"
        text = text.replace("{{0,1,2,3,4,5,6,7}}", lines)
        found = parse_module(text.replace("ROWS", "4").replace("ALL", "32"))
        found.stage = Stage.PARTITIONED
        assert WindowedEinsum().run(found)
        for permute in found.entry.with_opcode(Opcode.COLLECTIVE_PERMUTE):
            pairs = permute.attrs_as(CollectivePermuteAttrs).source_target_pairs
            assert isinstance(pairs, LinePairs)
            assert len(pairs) == devices
        for constant in found.entry.with_opcode(Opcode.CONSTANT):
            assert constant.array_shape.num_elements == 1
        sizes.append(found.instruction_count)
    assert sizes[0] == sizes[1]
