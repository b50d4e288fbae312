"""Steps in a row: what goes in again, what is let go, and that nothing is made on the way."""

from __future__ import annotations

import tracemalloc

import numpy as np

from launch.execution import StepLoop
from tests.runtime.programs import compiled

#: state' = state + batch in the state's place, beside a value that is not fed back.
STEP = """HloModule step, num_partitions=2, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY main {
  state = f32[8] parameter(0)
  batch = f32[8] parameter(1)
  next = f32[8] add(state, batch)
  loss = f32[8] multiply(next, next)
  ROOT t = (f32[8], f32[8]) tuple(next, loss)
}
"""

#: Each partition has half of the state, and gives it whole.
GATHERED = """HloModule gathered, num_partitions=2
ENTRY main {
  state = f32[4] parameter(0), sharding={devices=[2]<=[2]}
  batch = f32[8] parameter(1)
  whole = f32[8] all-gather(state), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, dimensions={0}
  next = f32[8] add(whole, batch)
  loss = f32[8] multiply(next, next)
  ROOT t = (f32[8], f32[8]) tuple(next, loss)
}
"""


def looping(text: str = STEP) -> StepLoop:
    executable = compiled(text)
    arrays = [np.full(b.shape.dims, i, np.float32) for i, b in enumerate(executable.inputs)]
    return StepLoop(executable, executable.put(arrays), {0: 0})


def step(loop: StepLoop, times: int = 1) -> None:
    for _ in range(times):
        loop.prepare()
        loop.run()


def values(loop: StepLoop) -> list[float]:
    return [float(np.asarray(own[1])[-1]) for own in loop.outputs.tiles]


def test_outputs_go_in_again() -> None:
    loop = looping()
    for n in range(1, 6):
        step(loop)
        assert values(loop) == [n * n, n * n]


def test_who_holds_outputs_keeps_them() -> None:
    loop = looping()
    held = []
    for _ in range(4):
        step(loop)
        held.append(loop.outputs[1:])
    assert [float(np.asarray(one.tiles[1][0])[0]) for one in held] == [1, 4, 9, 16]


def test_a_step_leaves_and_takes_no_memory() -> None:
    """The least of three measurements: other threads of the process, such as the compiler's, allocate memory as well."""
    loop = looping()
    step(loop, 20)
    grown, peaks = zip(*(memory_of_steps(loop, 100) for _ in range(3)), strict=True)
    assert min(grown) < 1024
    assert min(peaks) < 4096


def memory_of_steps(loop: StepLoop, times: int) -> tuple[int, int]:
    """Return by how many bytes traced memory is larger after the steps, and at most within them."""
    tracemalloc.start()
    try:
        step(loop, 20)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        step(loop, times)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before, peak - before


def test_another_run_between_steps_does_not_disturb() -> None:
    loop = looping()
    step(loop, 2)
    executable = loop._executable
    executable.run(executable.put([np.full(8, 7, np.float32), np.full(8, 7, np.float32)]))
    step(loop)
    assert values(loop) == [9, 9]


def test_outputs_that_are_divided_unlike_their_inputs() -> None:
    loop = looping(GATHERED)
    for n in range(1, 4):
        step(loop)
        assert values(loop) == [n * n, n * n]
