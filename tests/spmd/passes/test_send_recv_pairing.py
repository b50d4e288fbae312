"""Programs with sends and receives run, on devices of one process, with what the evaluator gives."""

from __future__ import annotations

import numpy as np
import pytest

from launch.pipeline import compile_module
from spmd.errors import UnsupportedError
from spmd.evaluator import evaluate_partitions
from spmd.hlo import HloModule
from spmd.text.parser import parse_module
from tests.spmd.passes.triggers.sends import write_as_sends

RING = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2},{2,0}}}"
ROW = "frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}}}"
STATE = "(s32[], f32[4], (f32[4], u32[], token[]), (f32[4], u32[], token[]))"

PIPELINED = f"""HloModule pipelined, num_partitions=3

condition {{
  state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(4)
  ROOT less = pred[] compare(i, n), direction=LT
}}

body {{
  state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  r0 = (f32[4], u32[], token[]) get-tuple-element(state), index=2
  rd = (f32[4], token[]) recv-done(r0), channel_id=1, {RING}
  s0 = (f32[4], u32[], token[]) get-tuple-element(state), index=3
  sd = token[] send-done(s0), channel_id=1
  came = f32[4] get-tuple-element(rd), index=0
  x = f32[4] get-tuple-element(state), index=1
  y = f32[4] add(x, came)
  t = token[] after-all()
  r = (f32[4], u32[], token[]) recv(t), channel_id=1, {RING}, control-predecessors={{sd}}
  s = (f32[4], u32[], token[]) send(y, t), channel_id=1, {RING}, control-predecessors={{r}}
  ROOT new = {STATE} tuple(next, y, r, s)
}}

ENTRY main {{
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  t = token[] after-all()
  r = (f32[4], u32[], token[]) recv(t), channel_id=1, {RING}
  s = (f32[4], u32[], token[]) send(x, t), channel_id=1, {RING}, control-predecessors={{r}}
  state = {STATE} tuple(zero, x, r, s)
  end = {STATE} while(state), condition=condition, body=body
  recv.1 = (f32[4], u32[], token[]) get-tuple-element(end), index=2
  rd = (f32[4], token[]) recv-done(recv.1), channel_id=1, {RING}
  send.1 = (f32[4], u32[], token[]) get-tuple-element(end), index=3
  sd = token[] send-done(send.1), channel_id=1
  came = f32[4] get-tuple-element(rd), index=0
  y = f32[4] get-tuple-element(end), index=1
  ROOT both = (f32[4], f32[4]) tuple(y, came)
}}
"""

PERMUTES = """HloModule permutes, num_partitions=3

ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,2}}
  b = f32[4] negate(a)
  c = f32[4] collective-permute(b), channel_id=2, source_target_pairs={{2,0}}
  ROOT r = (f32[4], f32[4]) tuple(a, c)
}
"""

CHAIN = f"""HloModule chain, num_partitions=3

ENTRY main {{
  x = f32[4] parameter(0)
  t = token[] after-all()
  r = (f32[4], u32[], token[]) recv(t), channel_id=1, {ROW}
  rd = (f32[4], token[]) recv-done(r), channel_id=1
  came = f32[4] get-tuple-element(rd), index=0
  y = f32[4] add(x, came)
  s = (f32[4], u32[], token[]) send(y, t), channel_id=1, {ROW}
  sd = token[] send-done(s), channel_id=1
  ROOT z = f32[4] copy(y)
}}
"""


@pytest.mark.parametrize(
    "module",
    [parse_module(PIPELINED), write_as_sends(parse_module(PERMUTES))],
    ids=["loop", "written"],
)
def test_runs_as_the_evaluator_does(module: HloModule) -> None:
    inputs = [[np.arange(4, dtype=np.float32) + 10 * device] for device in range(3)]
    wanted = evaluate_partitions(module, inputs)
    got = compile_module(module).run_devices(inputs)
    for device in range(3):
        for one, other in zip(got[device], wanted[device], strict=True):
            np.testing.assert_array_equal(one, other)
    assert any(np.any(wanted[0][1] != wanted[device][1]) for device in (1, 2))


def test_a_chain_is_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedError, match="if the sent value does not depend on the recv"):
        compile_module(parse_module(CHAIN))
