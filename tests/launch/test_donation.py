"""Training state that JAX donates without knowing how the results are sharded: ``buffer_donor`` in the header."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from launch.entry import Entry
from spmd.analysis.aliased_outputs import aliased_outputs
from spmd.errors import SpmdError
from spmd.text.parser import parse_module

#: jit(step, donate_argnums=0) of a sharded w, no out_shardings: which result takes w's place is the compiler's to find.
STEP = """HloModule step, buffer_donor={ (0, {}) }, num_partitions=4
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
ENTRY main {
  w = f32[64,32] parameter(0), sharding={devices=[2,2]<=[4]}
  x = f32[16,64] parameter(1), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  y = f32[16,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  g = f32[64,32] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  new = f32[64,32] subtract(w, g)
  zero = f32[] constant(0)
  loss = f32[] reduce(g, zero), dimensions={0,1}, to_apply=sum
  ROOT r = (f32[], f32[64,32]) tuple(loss, new)
}
"""


def test_donated_state_is_written_in_place_and_used_up() -> None:
    executable = spmd.compile(parse_module(STEP))
    assert executable.donated == (0,)
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(64, 32)).astype(np.float32), np.ones((16, 64), np.float32)
    state, batch = executable.put([w]), executable.put([x], first=1)
    after = executable.run(state + batch)
    with pytest.raises(SpmdError, match="donated"):
        executable.run(state + batch)
    again = executable.run(after[1:] + batch)
    expected = w
    for _ in range(2):
        expected = expected - x.T @ (x @ expected)
    np.testing.assert_allclose(executable.get(again)[1], expected, rtol=1e-4)


def test_the_reference_feeds_back_what_the_compiled_program_does() -> None:
    module = parse_module(STEP)
    compiled = Entry.of_executable(spmd.compile(module)).feedback
    assert compiled == aliased_outputs(module) == {1: 0}
