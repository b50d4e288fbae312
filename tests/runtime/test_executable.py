"""Executables: global arrays in and out, arrays that stay divided, readable refusals, errors on one device."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.communicator.loopback.communicator import LoopbackWorld
from runtime.arrays.sharded_arrays import ArraySpec, ShardedArrays
from runtime.arrays.slots import DeviceArray
from runtime.compile import build_executable
from runtime.executable import Executable
from spmd.errors import RunError, UnsupportedError
from spmd.sharding import HloSharding
from tests.runtime.programs import ALIASING, COLLECTIVES, SUM, compiled, module_of, random_inputs

#: Two partitions hold half of the rows each; the sum of all comes out replicated.
SHARDED = (
    """HloModule sharded, num_partitions=2, input_output_alias={ {0}: (0, {}, may-alias) }
"""
    + SUM
    + """
ENTRY main {
  x = f32[3,4] parameter(0), sharding={devices=[2,1]<=[2]}
  y = f32[3,4] multiply(x, x)
  z = f32[] constant(0)
  r = f32[4] reduce(y, z), dimensions={0}, to_apply=sum
  s = f32[4] all-reduce(r), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=sum
  ROOT t = (f32[3,4], f32[4]) tuple(y, s), sharding={{devices=[2,1]<=[2]}, {replicated}}
}
"""
)


def test_global_arrays() -> None:
    executable = compiled(SHARDED)
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    y, s = executable.run(x)
    np.testing.assert_array_equal(y, x * x)
    np.testing.assert_array_equal(s, (x * x).sum(axis=0))


def test_uneven_arrays_are_padded_and_come_back_whole() -> None:
    logical = module_of(
        """HloModule logical
        ENTRY main {
          x = f32[5,4] parameter(0)
          s = f32[4] constant({0, 0, 0, 0})
          ROOT t = (f32[5,4], f32[4]) tuple(x, s)
        }
        """
    )
    executable = build_executable(module_of(SHARDED), logical=logical)
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    y, s = executable.run(x)
    np.testing.assert_array_equal(y, x * x)
    np.testing.assert_array_equal(s, (x * x).sum(axis=0))


def test_arrays_stay_divided_between_steps() -> None:
    executable = compiled(SHARDED)
    x = np.full((6, 4), 2, np.float32)
    state = executable.put([x])
    for _ in range(2):
        outputs = executable.run(state)
        assert isinstance(outputs, ShardedArrays)
        state = outputs[:1]
    (y, _) = executable.get(outputs)
    np.testing.assert_array_equal(y, np.full((6, 4), 16, np.float32))


def test_arrays_that_stay_divided_are_numbered_and_iterated() -> None:
    executable = compiled(SHARDED)
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    state = executable.put([x])
    assert len(list(state)) == 1
    with pytest.raises(IndexError):
        state[1]
    outputs = executable.run(*state)
    assert isinstance(outputs, ShardedArrays)
    y, s = outputs
    np.testing.assert_array_equal(np.asarray(y), x * x)
    np.testing.assert_array_equal(np.asarray(outputs[-1]), (x * x).sum(0))
    assert np.asarray(y, np.float64).dtype == np.float64
    assert outputs[1].specs == s.specs == executable.outputs[1:]
    with pytest.raises(TypeError, match="2 arrays are no single NumPy array"):
        np.asarray(outputs)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(y, copy=False)
    with pytest.raises(TypeError, match="not both"):
        executable.run(outputs[:1], x)  # type: ignore[call-overload]


def test_an_array_of_which_other_processes_hold_tiles_is_no_numpy_array() -> None:
    executable = compiled(SHARDED)
    x = np.zeros((6, 4), np.float32)
    state = executable.put([x])
    here = ShardedArrays(state.tiles[:1], state.specs)
    with pytest.raises(RunError, match=r"1 of the tiles of f32\[6,4\] \{devices=\[2,1\]"):
        np.asarray(here)
    on_one = (ArraySpec(state.specs[0].shape, HloSharding.maximal(0)),)
    np.testing.assert_array_equal(
        np.asarray(ShardedArrays(tuple((DeviceArray(x + d),) for d in range(2)), on_one)), x
    )
    with pytest.raises(RunError, match="maximal"):
        np.asarray(ShardedArrays(((DeviceArray(x),),), on_one))


def test_refuses_arrays_that_do_not_fit() -> None:
    executable = compiled(SHARDED)
    with pytest.raises(RunError, match="takes 1 arrays, found 2"):
        executable.run(np.zeros(3), np.zeros(3))
    with pytest.raises(RunError, match=r"argument 0 \(x\) is float64\[6, 4\], expected f32\[6,4\]"):
        executable.run(np.zeros((6, 4)))
    with pytest.raises(RunError, match=r"expected f32\[3,4\]"):
        executable.run_devices([[np.zeros((2, 4), np.float32)]] * 2)


def test_refuses_a_world_of_another_size() -> None:
    executable = compiled(SHARDED)
    with pytest.raises(RunError, match=r"is for 2 devices .* found 3"):
        executable.load(LoopbackWorld(3).communicator(0))


def test_an_error_on_one_device_ends_all_and_the_next_run_works() -> None:
    executable = compiled(COLLECTIVES)
    inputs = [random_inputs(executable.module, seed) for seed in range(4)]
    wrong = [*inputs[:2], [np.zeros(1, np.float32)], inputs[3]]
    with pytest.raises(RunError, match=r"argument 0 .* on device 2"):
        executable.run_devices(wrong)
    assert len(executable.run_devices(inputs)) == 4


def test_an_error_says_which_instruction_was_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise FloatingPointError("no factor")

    monkeypatch.setattr("runtime.cpu.kernels.reference.evaluate_instruction", broken)
    text = """HloModule factors
    minus {
      a = f32[] parameter(0)
      ROOT b = f32[] negate(a)
    }
    ENTRY main {
      x = f32[8,8] parameter(0)
      y = f32[8,8] negate(x)
      ROOT c = f32[8,8] map(y), dimensions={0,1}, to_apply=minus
    }
    """
    with pytest.raises(FloatingPointError) as caught:
        compiled(text).run(np.zeros((8, 8), np.float32))
    assert caught.value.__notes__ == ["while running c in main"]


def test_refuses_by_name_what_it_does_not_run() -> None:
    text = """HloModule sends
    ENTRY main {
      x = f32[4] parameter(0)
      t = token[] after-all()
      s = (f32[4], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true
      ROOT d = token[] send-done(s), channel_id=1, is_host_transfer=true
    }
    """
    with pytest.raises(UnsupportedError, match="does not run send"):
        compiled(text)


def test_refuses_a_constant_without_a_value() -> None:
    text = """HloModule elided
    ENTRY main {
      c = f32[64] constant({...})
      ROOT n = f32[64] negate(c)
    }
    """
    with pytest.raises(
        UnsupportedError, match=r"elided .*hlo_serialized.*--xla_dump_large_constants"
    ):
        compiled(text)


def test_counts_kernels() -> None:
    assert compiled(ALIASING["elementwise"]).kernel_count == 4


def test_infinities_and_nan_raise_no_warnings() -> None:
    executable: Executable = compiled(ALIASING["elementwise"])
    x = np.full((64, 32), np.inf, np.float32)
    (result,) = executable.run(x, -x)
    assert np.isnan(result).all() or np.isinf(result).all()
