"""A program as its caller sees it."""

from __future__ import annotations

import numpy as np

import spmd
from launch.entry import Entry

TOKENS = spmd.parse("""HloModule m, input_output_alias={{1}: (1, {}, may-alias)}
ENTRY main {
  t = token[] parameter(0)
  x = f32[4] parameter(1)
  y = f32[4] negate(x)
  ROOT r = (token[], f32[4]) tuple(t, y)
}""")


def test_tokens_are_no_inputs_and_outputs() -> None:
    entry = Entry.of_module(TOKENS)
    assert [str(shape) for shape in (*entry.inputs, *entry.outputs)] == ["f32[4]", "f32[4]"]
    assert entry.feedback == {0: 0}
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(spmd.compile(TOKENS, devices=1).run(x)[0], -x)
