"""The table of small programs: one maker per op, that writes HLO text with random sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Maker = Callable[["Draw"], str]
OPS: dict[str, Maker] = {}


@dataclass(frozen=True)
class Draw:
    """The random choices of one program; ``sizes`` are those that a dimension may have."""

    rng: np.random.Generator
    sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 9)

    def size(self) -> int:
        return int(self.rng.choice(self.sizes))


def op(make: Maker) -> Maker:
    """Enter a maker into the table, by its name."""
    OPS[make.__name__] = make
    return make


REDUCERS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
or { a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT r = pred[] or(a, b) }
last { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] copy(b) }
odd { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] maximum(a, b)
  ROOT r = f32[] add(c, b) }
largest { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] abs(b)
  ROOT r = f32[] maximum(c, a) }
product_and_largest { s = f32[] parameter(0)
  m = f32[] parameter(1)
  x = f32[] parameter(2)
  y = f32[] parameter(3)
  p = f32[] multiply(x, y)
  t = f32[] add(s, p)
  c = f32[] abs(y)
  n = f32[] maximum(m, c)
  ROOT r = (f32[], f32[]) tuple(t, n) }
argmax { v = f32[] parameter(0)
  i = s32[] parameter(1)
  w = f32[] parameter(2)
  j = s32[] parameter(3)
  gt = pred[] compare(v, w), direction=GT
  eq = pred[] compare(v, w), direction=EQ
  lt = pred[] compare(i, j), direction=LT
  tie = pred[] and(eq, lt)
  first = pred[] or(gt, tie)
  x = f32[] select(first, v, w)
  k = s32[] select(first, i, j)
  ROOT t = (f32[], s32[]) tuple(x, k) }
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
less2 { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT }
ge { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE }
"""


def text(*lines: str) -> str:
    """A module whose entry has these lines; it may call every computation above."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m\n{REDUCERS}\nENTRY main {{\n{body}\n}}\n"
