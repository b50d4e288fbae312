"""windowed-einsum by price: large products beside a gather on a GPU's links, never where processors move the bytes."""

from __future__ import annotations

import pytest

from collectives.passes.window_price import WindowGain
from collectives.passes.windowed_einsum import WindowedEinsum
from spmd.hlo import HloModule, Opcode, Stage
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


def gain(rows: int, machine: str) -> WindowGain:
    (found,) = WindowedEinsum(machine=machine).gains(module(rows))
    return found


def test_communication_hides_behind_products() -> None:
    """Seven of eight parts come while others are multiplied: at most the longer of both and a part are left."""
    found = gain(2048, "dgx-h100")
    assert found.product == "y"
    assert 0.05 < found.share < 0.5
    changed = module(2048)
    assert WindowedEinsum(machine="dgx-h100").run(changed)
    assert not list(changed.entry.with_opcode(Opcode.ALL_GATHER))
    assert len(list(changed.entry.with_opcode(Opcode.DOT))) == 8


@pytest.mark.parametrize(("rows", "machine"), [(1, "dgx-h100"), (2048, "cpu-avx512")])
def test_what_does_not_pay_stays(rows: int, machine: str) -> None:
    """Small parts take as long as large ones; a processor that moves bytes does not compute meanwhile."""
    assert gain(rows, machine).share < 0.05
    same = module(rows)
    text = str(same)
    assert not WindowedEinsum(machine=machine).run(same)
    assert str(same) == text


def test_slower_links_leave_more_to_hide_up_to_the_product_itself() -> None:
    assert gain(2048, "dgx-h100{links=0.5}").share > gain(2048, "dgx-h100").share
