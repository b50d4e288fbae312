"""Windows that hide less than it costs to have them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectives.passes.async_to_sync import AsyncToSync
from spmd.hlo import Opcode
from spmd.machine.named import machine_named
from spmd.text.parser import parse_module

TEXT = """HloModule m, is_scheduled=true, num_partitions=2
ENTRY main {
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  g-start = (f32[8], f32[16]) all-gather-start(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}ATTRIBUTES
  n = f32[8] negate(y)
  g-done = f32[16] all-gather-done(g-start)
  ROOT r = (f32[16], f32[8]) tuple(g-done, n)
}
"""
GROUP = ', frontend_attributes={_scheduling_group_id="1"}'


@pytest.mark.parametrize(
    ("dispatch", "attributes", "blocks"),
    [(1e-7, "", False), (1e-3, "", True), (1e-3, GROUP, False)],
)
def test_a_window_that_does_not_pay(dispatch: float, attributes: str, blocks: bool) -> None:
    machine = replace(machine_named("dgx-h100"), name="slow to dispatch", thunk_seconds=dispatch)
    module = parse_module(TEXT.replace("ATTRIBUTES", attributes))
    assert AsyncToSync(machine=machine).run(module) is blocks
    assert any(x.opcode is Opcode.ALL_GATHER for x in module.entry.instructions) is blocks
