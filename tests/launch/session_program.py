"""The user's scripts of test_session: `python session_program.py NAME [OUTPUT.npz]`, the same with mpirun and without."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import spmd
from launch.data.inputs import write_arrays
from launch.ranks.rank_environment import world_of_environment
from runtime.arrays.sharded_arrays import shard_of

STEPS = 3
RANK = (world_of_environment() or (0, 1))[0]
DOUBLE = """
HloModule double, num_partitions=2
ENTRY main {
  x = f32[4] parameter(0), sharding={devices=[2]<=[2]}
  ROOT y = f32[4] add(x, x), sharding={devices=[2]<=[2]}
}
"""
#: A training step: the weights, divided in two ways, are donated; every rank has the batch.
STEP = """
HloModule step, num_partitions=2, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }
sum {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] add(p, q)
}
ENTRY main {
  w = f32[8,16] parameter(0), sharding={devices=[2,1]<=[2]}
  v = f32[16,4] parameter(1), sharding={devices=[1,2]<=[2]}
  x = f32[6,8] parameter(2), sharding={replicated}
  h = f32[6,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[6,16] tanh(h)
  y = f32[6,4] dot(t, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  dt = f32[6,16] dot(y, v), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  dv = f32[16,4] dot(t, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  dw = f32[8,16] dot(x, dt), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  w_next = f32[8,16] subtract(w, dw)
  v_next = f32[16,4] subtract(v, dv)
  zero = f32[] constant(0)
  loss = f32[] reduce(y, zero), dimensions={0,1}, to_apply=sum
  ROOT r = (f32[8,16], f32[16,4], f32[]) tuple(w_next, v_next, loss), sharding={{devices=[2,1]<=[2]}, {devices=[1,2]<=[2]}, {replicated}}
}
"""


def train(path: str) -> None:
    """Outputs 0 and 1 are the state that inputs 0 and 1 take; the batch stays."""
    executable = spmd.compile(spmd.parse(STEP), devices=2)
    rng = np.random.default_rng(0)
    inputs = [
        rng.standard_normal(one.shape.dims).astype(np.float32) / 4 for one in executable.inputs
    ]
    state, batch = executable.put(inputs[:2]), executable.put(inputs[2:], first=2)
    for _ in range(STEPS):
        outputs = executable.run(state + batch)
        state = outputs[:2]
    whole = executable.get(outputs)
    if RANK == 0:
        write_arrays(Path(path), "out", whole)
    assert bool(whole) == (RANK == 0)
    (loss,) = executable.get(outputs[2:], gather="all")
    assert loss.shape == ()


def call_forms() -> None:
    executable = spmd.compile(spmd.parse(DOUBLE))
    x = np.arange(4, dtype=np.float32)
    outputs = executable.run(x)
    assert len(outputs) == (1 if RANK == 0 else 0)
    (everywhere,) = executable.run(x, gather="all")
    np.testing.assert_array_equal(everywhere, x + x)
    boundary = executable.inputs[0]
    mine = shard_of(x, boundary.sharding, boundary.shape, RANK)
    (tile,) = executable.run(mine, sharded=True)
    np.testing.assert_array_equal(tile, mine + mine)


def saved(path: str) -> None:
    """Saved by rank 0 and loaded by all: rank 0 alone reads the file."""
    executable = spmd.compile(spmd.parse(DOUBLE))
    if RANK == 0:
        executable.save(path)
    x = np.arange(4, dtype=np.float32)
    (everywhere,) = spmd.load_executable(path).run(x, gather="all")
    np.testing.assert_array_equal(everywhere, x + x)


def saved_for_others(path: str) -> None:
    spmd.load_executable(path)


def wrong_devices() -> None:
    spmd.compile(spmd.parse(DOUBLE), devices=4)


def different_modules() -> None:
    text = DOUBLE.replace("add(x, x)", "multiply(x, x)") if RANK == 1 else DOUBLE
    spmd.compile(spmd.parse(text))


def fails_on_one_rank() -> None:
    executable = spmd.compile(spmd.parse(DOUBLE))
    if RANK == 1:
        raise ValueError("the batch of rank 1 is missing")
    executable.run(np.zeros(4, np.float32), gather="all")


def hangs_on_one_rank() -> None:
    """The others give rank 1 up after the second that the second program is compiled with."""
    spmd.compile(spmd.parse(DOUBLE))
    executable = spmd.compile(spmd.parse(DOUBLE), timeout=1)
    if RANK == 1:
        time.sleep(60)
    executable.run(np.zeros(4, np.float32), gather="all")


def exits_on_one_rank() -> None:
    executable = spmd.compile(spmd.parse(DOUBLE))
    if RANK == 1:
        sys.exit(1)
    executable.run(np.zeros(4, np.float32), gather="all")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
