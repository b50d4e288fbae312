"""Loops run as many trips as their predicate says, leave their state where the program has it, and hear signals."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

from runtime.cpu.step.segment_ir import JUMPS
from runtime.executable import Executable
from tests.runtime.programs import compiled

#: A counter, a product, and the two of a pair that change places.
COUNTING = """HloModule counting
condition {
  state = (s32[], f32[], s16[], s16[], s32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] get-tuple-element(state), index=4
  ROOT more = pred[] compare(i, n), direction=LT
}
body {
  state = (s32[], f32[], s16[], s16[], s32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[] get-tuple-element(state), index=1
  factor = f32[] constant(0.999)
  y = f32[] multiply(x, factor)
  a = s16[] get-tuple-element(state), index=2
  b = s16[] get-tuple-element(state), index=3
  n = s32[] get-tuple-element(state), index=4
  ROOT both = (s32[], f32[], s16[], s16[], s32[]) tuple(next, y, b, a, n)
}
ENTRY main {
  i = s32[] parameter(0)
  x = f32[] parameter(1)
  a = s16[] parameter(2)
  b = s16[] parameter(3)
  n = s32[] parameter(4)
  start = (s32[], f32[], s16[], s16[], s32[]) tuple(i, x, a, b, n)
  ROOT end = (s32[], f32[], s16[], s16[], s32[]) while(start), condition=condition, body=body
}
"""

OF_ARRAYS = COUNTING.replace("f32[]", "f32[2]").replace(
    "factor = f32[2] constant(0.999)", "factor = f32[2] constant({0.999, 0.999})"
)


def run(text: str, trips: int, x: np.ndarray) -> list[np.ndarray]:
    return step(compiled(text), trips, x)


def step(executable: Executable, trips: int, x: np.ndarray) -> list[np.ndarray]:
    inputs = [np.int32(0), x, np.int16(3), np.int16(-4), np.int32(trips)]
    return executable.run_devices([[np.asarray(value) for value in inputs]])[0]


@pytest.mark.parametrize("trips", [0, 1, 2, JUMPS - 1, JUMPS, JUMPS + 1, 2 * JUMPS, 2 * JUMPS + 7])
def test_trips_are_counted_across_visits_of_python(trips: int) -> None:
    i, x, a, b, n = run(COUNTING, trips, np.float32(2))
    want = np.float32(2)
    for _ in range(trips):
        want *= np.float32(0.999)
    assert (i, x, n) == (trips, want, trips)
    assert (a, b) == ((3, -4) if trips % 2 == 0 else (-4, 3))


def test_arrays() -> None:
    i, x, a, _, _ = run(OF_ARRAYS, 5, np.ones(2, np.float32))
    assert (i, a) == (5, -4)
    np.testing.assert_allclose(x, 0.999**5, rtol=1e-6)


def test_elements_at_computed_places() -> None:
    text = """HloModule picking
condition {
  state = (s32[], f32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  n = s32[] constant(8)
  ROOT more = pred[] compare(i, n), direction=LT
}
pick {
  i = s32[] parameter(0)
  total = f32[] parameter(1)
  x = f32[8] parameter(2)
  part = f32[1] dynamic-slice(x, i), dynamic_slice_sizes={1}
  element = f32[] reshape(part)
  ROOT sum = f32[] add(total, element)
}
body {
  state = (s32[], f32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  total = f32[] get-tuple-element(state), index=1
  x = f32[8] get-tuple-element(state), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  sum = f32[] fusion(i, total, x), kind=kLoop, calls=pick
  ROOT both = (s32[], f32[], f32[8]) tuple(next, sum, x)
}
ENTRY main {
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  nothing = f32[] constant(0)
  start = (s32[], f32[], f32[8]) tuple(zero, nothing, x)
  end = (s32[], f32[], f32[8]) while(start), condition=condition, body=body
  ROOT total = f32[] get-tuple-element(end), index=1
}
"""
    (total,) = compiled(text).run(np.arange(8, dtype=np.float32))
    assert total == 28


class SignalledError(Exception):
    """The error that a signal's handler raises."""


@pytest.mark.parametrize("text", [COUNTING, OF_ARRAYS], ids=["elements", "arrays"])
def test_endless_loops_hear_signals(text: str) -> None:
    def handler(*_: object) -> None:
        raise SignalledError

    executable = compiled(text.replace("constant(1)", "constant(0)"))
    x = np.ones(2 if text is OF_ARRAYS else (), np.float32)
    step(executable, 0, x)
    before = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(0.5, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(SignalledError):
            step(executable, 1, x)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
