"""Programs with infeeds and outfeeds, and what feeds them."""

from __future__ import annotations

import numpy as np

from spmd.host_feed import Item
from spmd.literal import NDArray

TILES = "{devices=[2,1]<=[2]}"
#: Each trip takes an array and a number, adds their product to the state, and gives the state.
LOOP = f"""HloModule loop, num_partitions=2
body {{
  s = (s32[], f32[5,4], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[5,4] get-tuple-element(s), index=1
  t = token[] get-tuple-element(s), index=2
  f = ((f32[5,4], s32[]), token[]) infeed(t), sharding={{{TILES}, {{replicated}}, {{replicated}}}}
  d = (f32[5,4], s32[]) get-tuple-element(f), index=0
  u = token[] get-tuple-element(f), index=1
  x = f32[5,4] get-tuple-element(d), index=0
  k = s32[] get-tuple-element(d), index=1
  kf = f32[] convert(k)
  kb = f32[5,4] broadcast(kf), dimensions={{}}
  y = f32[5,4] multiply(x, kb)
  b = f32[5,4] add(a, y)
  o = token[] outfeed(b, u), outfeed_shape=f32[5,4], sharding={TILES}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[5,4], token[]) tuple(j, b, o)
}}
cond {{
  s = (s32[], f32[5,4], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  a = f32[5,4] parameter(0), sharding={TILES}
  z = s32[] constant(0)
  t = token[] after-all()
  s = (s32[], f32[5,4], token[]) tuple(z, a, t)
  w = (s32[], f32[5,4], token[]) while(s), condition=cond, body=body
  ROOT g = f32[5,4] get-tuple-element(w), index=1
}}
"""


def loop_items() -> list[Item]:
    """Infeed items of three trips of LOOP."""
    return [(np.arange(20, dtype=np.float32).reshape(5, 4) + k, np.int32(k + 1)) for k in range(3)]


def loop_start() -> NDArray:
    return np.ones((5, 4), np.float32)
