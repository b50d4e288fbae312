"""Outputs are named by the user's pytree, or by the operation that makes them."""

from __future__ import annotations

from launch.data.output_paths import output_paths
from spmd.analysis.aliased_outputs import aliased_outputs
from spmd.text.parser import parse_module

STEP = r"""
HloModule step, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY main {
  w = f32[2] parameter(0), metadata={op_name="params[\'dense\'][\'kernel\']"}
  x = f32[2] parameter(1), metadata={op_name="x"}
  next = f32[2] add(w, x), metadata={op_name="jit(step)/add"}
  loss = f32[2] multiply(w, x), metadata={op_name="jit(step)/mul"}
  unnamed = f32[2] negate(x)
  ROOT result = (f32[2], f32[2], f32[2]) tuple(next, loss, unnamed)
}
"""


def test_an_aliased_output_has_its_inputs_path_and_another_its_operations_name() -> None:
    module = parse_module(STEP)
    paths = output_paths(module, aliased_outputs(module))
    assert paths == ["params['dense']['kernel']", "jit(step)/mul", ""]


def test_a_single_output_is_its_own_maker() -> None:
    module = parse_module(
        'HloModule m\nENTRY e { ROOT y = f32[2] parameter(0), metadata={op_name="x"} }'
    )
    assert output_paths(module, {}) == ["x"]
