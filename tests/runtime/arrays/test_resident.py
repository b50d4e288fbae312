"""Arrays that stay on a device: where they lie, who consumes them, and that none changes while it is held."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from runtime.arrays.sharded_arrays import ShardedArrays
from runtime.arrays.slots import DeviceArray, DonatedError
from runtime.executable import Executable
from tests.runtime.programs import OUTPUTS_OVER_TEMPORARIES, compiled

#: state' = state + batch, in the state's place; the loss has a place of its own.
STEP = """HloModule step, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY main {
  state = f32[256] parameter(0)
  batch = f32[256] parameter(1)
  next = f32[256] add(state, batch)
  loss = f32[256] multiply(next, next)
  ROOT t = (f32[256], f32[256]) tuple(next, loss)
}
"""

#: Two states that trade places, neither donated.
SWAP = """HloModule swap
ENTRY main {
  a = f32[8] parameter(0)
  b = f32[8] parameter(1)
  x = f32[8] negate(a)
  y = f32[8] add(b, b)
  ROOT t = (f32[8], f32[8]) tuple(y, x)
}
"""


def put(executable: Executable, *values: float) -> ShardedArrays:
    shapes = [boundary.shape.dims for boundary in executable.inputs]
    arrays = [np.full(s, v, np.float32) for s, v in zip(shapes, values, strict=True)]
    return executable.put(arrays)


def only(arrays: ShardedArrays) -> DeviceArray:
    ((tile,),) = arrays.tiles
    return tile


def first(arrays: ShardedArrays) -> float:
    return float(np.asarray(only(arrays))[0])


def address(array: DeviceArray) -> int:
    return array.view().ctypes.data


def test_state_stays_where_it_is_and_a_used_one_says_so() -> None:
    executable = compiled(STEP)
    start = put(executable, 1, 2)
    state, batch = start[:1], start[1:]
    place = address(only(state))
    for step in range(1, 4):
        outputs = executable.run(state + batch)
        assert only(state).is_donated
        state = outputs[:1]
        assert address(only(state)) == place
        assert first(state) == 1 + 2 * step
    with pytest.raises(DonatedError, match="was donated to a step of step"):
        executable.run(start)
    with pytest.raises(DonatedError):
        np.asarray(only(start[:1]))
    assert first(batch) == 2


def test_a_refused_run_consumes_nothing() -> None:
    executable = compiled(STEP)
    arrays = put(executable, 1, 2)
    used = put(executable, 5, 0)
    executable.run(used)
    with pytest.raises(DonatedError):
        executable.run(arrays[1:] + used[:1])
    assert first(arrays[:1]) == 1
    assert first(arrays[1:]) == 2


def test_an_output_that_is_held_outlives_the_next_step() -> None:
    executable = compiled(STEP)
    arrays = put(executable, 1, 2)
    outputs = executable.run(arrays)
    loss, place = outputs[1:], address(only(outputs[1:]))
    again = executable.run(outputs[:1] + arrays[1:])
    assert address(only(again[1:])) == place
    assert address(only(loss)) != place
    assert (first(loss), first(again[1:])) == (9, 25)


def test_outputs_in_one_heap_outlive_steps_that_use_their_bytes_before_they_write_them() -> None:
    """Between steps all three lie in the heap; the next step's temporaries lie over them before its outputs do."""
    executable = compiled(OUTPUTS_OVER_TEMPORARIES, keep_order=True)
    x = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    held = [executable.run(executable.put([x + n])) for n in range(3)]
    for n, outputs in enumerate(held):
        o = np.exp(x + n)
        p = (x + n) * o
        (tiles,) = outputs.tiles
        for tile, want in zip(tiles, (o, p, p - p.T), strict=True):
            np.testing.assert_allclose(np.asarray(tile), want, rtol=1e-5, atol=1e-5)


def test_two_states_of_one_executable_do_not_meet() -> None:
    executable = compiled(STEP)
    one, other = put(executable, 1, 1), put(executable, 10, 10)
    assert first(one[:1]) == 1
    for _ in range(2):
        one = executable.run(one)[:1] + one[1:]
        other = executable.run(other)[:1] + other[1:]
    assert (first(one[:1]), first(other[:1])) == (3, 30)
    assert (first(one[1:]), first(other[1:])) == (1, 10)


def test_arrays_that_trade_places() -> None:
    executable = compiled(SWAP)
    state = put(executable, 1, 10)
    held = [state]
    for _ in range(4):
        state = executable.run(state)
        held.append(state)
    values = [(first(s[:1]), first(s[1:])) for s in held]
    assert values == [(1, 10), (20, -1), (-2, -20), (-40, 2), (4, 40)]


def test_one_array_for_two_parameters() -> None:
    executable = compiled(STEP)
    x = put(executable, 3, 0)[:1]
    outputs = executable.run(x + x)
    assert first(outputs[:1]) == 6
    assert only(x).is_donated


def test_state_of_one_executable_is_taken_by_another() -> None:
    train, swap = compiled(STEP.replace("256", "8")), compiled(SWAP)
    state = put(train, 1, 2)
    seen = swap.run(state)
    assert (first(seen[:1]), first(seen[1:])) == (4, -1)
    outputs = train.run(state)
    assert first(outputs[:1]) == 3
    assert first(seen[:1]) == 4


def test_arrays_handed_out_are_copies() -> None:
    executable = compiled(STEP)
    given = np.ones(256, np.float32)
    state = executable.put([given], first=0)
    given[:] = 7
    assert first(state) == 1
    np.asarray(only(state))[:] = 8
    assert first(state) == 1
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(only(state), copy=False)


def test_steps_in_a_row_hand_out_the_arrays_that_nobody_holds() -> None:
    executable = compiled(STEP)
    arrays = put(executable, 0, 1)
    state, batch = arrays[:1], arrays[1:]
    seen = set()
    for step in range(1, 7):
        outputs = executable.run(state + batch)
        seen |= {id(array) for array in outputs.tiles[0]}
        state = outputs[:1]
        assert (first(outputs[:1]), first(outputs[1:])) == (step, step**2)
        del outputs
    assert len(seen) == 3  # two for the state, of which its caller has one while the next step runs


def test_an_array_that_is_held_is_never_begun_anew() -> None:
    executable = compiled(STEP)
    arrays = put(executable, 0, 1)
    state, batch = only(arrays[:1]), arrays[1:]
    held = []
    for _ in range(5):
        outputs = executable.run(ShardedArrays(((state,),), arrays[:1].specs) + batch)
        held.append((state, only(outputs[1:])))
        state = only(outputs[:1])
        del outputs
    assert all(state.is_donated for state, _ in held)
    assert len({id(array) for pair in held for array in pair}) == 10
    assert [float(np.asarray(loss)[0]) for _, loss in held] == [1, 4, 9, 16, 25]


def test_an_array_in_memory_of_its_own_frees_it_when_it_is_let_go() -> None:
    executable = compiled(STEP)
    arrays = put(executable, 0, 1)
    outputs = executable.run(arrays)
    loss = only(outputs[1:])
    executable.run(outputs[:1] + arrays[1:])
    memory = weakref.ref(loss.view())
    del outputs, loss
    assert memory() is None


def test_one_value_that_is_two_outputs() -> None:
    executable = compiled(
        STEP.replace("loss = f32[256] multiply(next, next)", "").replace(
            "(next, loss)", "(next, next)"
        )
    )
    arrays = put(executable, 0, 1)
    outputs = executable.run(arrays)
    again = executable.run(outputs[:1] + arrays[1:])
    assert [first(x) for x in (outputs[1:], again[:1], again[1:])] == [1, 2, 2]


def test_what_a_step_consumes() -> None:
    assert compiled(STEP).donated == (0,)
    assert compiled(SWAP).donated == ()
