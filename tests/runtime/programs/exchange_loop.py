"""A loop with two collectives in flight at once, for four devices: what threads and hosts take turns at."""

from __future__ import annotations


def exchange_loop(
    size: int, *, between: str = "", received: str = "far", alias: str = "", entry: str
) -> str:
    """Five times x = (sum over pairs + x of the device before) * 0.3125, x of ``size`` elements.

    between: instructions of the body while the sum is on its way, which make ``received`` of ``far``. entry: those
    behind the loop, whose last state is ``end``. alias: the module's, behind a comma.
    """
    x, state = f"f32[{size}]", f"(s32[], f32[{size}])"
    return f"""HloModule program, num_partitions=4{alias}
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
minus {{
  a = f32[] parameter(0)
  ROOT b = f32[] negate(a)
}}
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT more = pred[] compare(i, n), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = {x} get-tuple-element(s), index=1
  start = {x} all-reduce-start(x), channel_id=1, replica_groups={{{{0,1}},{{2,3}}}}, use_global_device_ids=true, to_apply=sum
  far = {x} collective-permute(x), channel_id=2, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}
  {between}
  done = {x} all-reduce-done(start)
  half = f32[] constant(0.3125)
  halves = {x} broadcast(half), dimensions={{}}
  y = {x} add(done, {received})
  w = {x} multiply(y, halves)
  ROOT t = {state} tuple(next, w)
}}
ENTRY main {{
  x = {x} parameter(0)
  zero = s32[] constant(0)
  state = {state} tuple(zero, x)
  end = {state} while(state), condition=condition, body=body
  {entry}
}}
"""
