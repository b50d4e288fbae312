"""Parameters and outputs that are partial sums: the global array is the sum over the unreduced axes."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from launch.execution import StepLoop
from spmd.errors import ShardingError
from spmd.hlo import HloModule, Opcode


def dot(output: str, devices: int = 2) -> str:
    """Write a product whose contracted dimension is divided among the devices."""
    return f"""HloModule m
ENTRY main {{
  a = f32[4,8] parameter(0), sharding={{devices=[1,{devices}]<=[{devices}]}}
  b = f32[8,6] parameter(1), sharding={{devices=[{devices},1]<=[{devices}]}}
  ROOT d = f32[4,6] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, sharding={output}
}}
"""


def checked(text: str, devices: int) -> HloModule:
    """Run a program on global arrays, and return it partitioned."""
    module = spmd.parse(text)
    inputs = [
        np.arange(p.array_shape.num_elements, dtype=np.float32).reshape(p.dims)
        for p in module.entry.parameters
    ]
    executable = spmd.compile(module, devices, options=spmd.CompileOptions(check=True))
    for found, wanted in zip(executable.run(*inputs), spmd.evaluate(module, *inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)  # small whole numbers: sums are exact
    return spmd.partition(module, devices)


def count(module: HloModule, opcode: Opcode) -> int:
    return sum(i.opcode is opcode for i in module.all_instructions())


@pytest.mark.parametrize(
    ("output", "devices", "reductions"),
    [
        ("{unreduced}", 2, 0),
        ("{devices=[1,1,2]<=[2] last_tile_dims={unreduced}}", 2, 0),
        ("{devices=[1,1,2,2]<=[4] last_tile_dims={unreduced, replicated}}", 4, 1),
        ("{devices=[1,1,2,2]<=[2,2]T(1,0) last_tile_dims={unreduced, replicated}}", 4, 1),
    ],
)
def test_a_product_leaves_as_terms(output: str, devices: int, reductions: int) -> None:
    found = checked(dot(output, devices), devices)
    assert count(found, Opcode.ALL_REDUCE) == reductions
    assert "unreduced" in str(found.entry.root.sharding)


@pytest.mark.parametrize(
    "sharding", ["{unreduced}", "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}"]
)
@pytest.mark.parametrize("op", ["exponential", "negate"])
def test_terms_are_added_up_before_they_are_used(sharding: str, op: str) -> None:
    text = f"""HloModule m
ENTRY main {{
  a = f32[6,2] parameter(0), sharding={sharding}
  ROOT e = f32[6,2] {op}(a), sharding={sharding}
}}
"""
    executable = spmd.compile(spmd.parse(text), 4)
    a = np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)
    (found,) = executable.run(a)
    np.testing.assert_allclose(found, np.exp(a) if op == "exponential" else -a, rtol=1e-6)
    # Terms of each device's own: what they mean is their sum.
    rows = 6 // (1 if sharding == "{unreduced}" else 2)
    terms = [np.full((rows, 2), 0.25 * (d + 1), np.float32) for d in range(4)]
    outputs = executable.run_devices([[t] for t in terms])
    groups = [range(4)] if rows == 6 else [range(2), range(2, 4)]
    for group in groups:
        value = sum(terms[d] for d in group)
        expected = np.exp(value) if op == "exponential" else -value
        np.testing.assert_allclose(sum(outputs[d][0] for d in group), expected, rtol=1e-6)


def test_an_array_divided_in_uneven_tiles_of_terms_comes_back() -> None:
    sharding = "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}"
    checked(f"HloModule m\nENTRY e {{ ROOT a = f32[5,2] parameter(0), sharding={sharding} }}", 4)


SHARDY = r"""HloModule m, frontend_attributes={xla.sdy.meshes="{mesh = #sdy.mesh<[\"x\"=2, \"y\"=2]>}"}
ENTRY main {
  a = f32[4,8] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"x\"}, {\"y\"}]>"}
  b = f32[8,6] parameter(1), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"y\"}, {}]>"}
  ROOT d = f32[4,6] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"x\"}, {}], unreduced={\"y\"}>"}
}
"""


def test_shardy_writes_unreduced_axes() -> None:
    found = checked(SHARDY, 4)
    assert count(found, Opcode.ALL_REDUCE) == 0
    assert str(found.entry.root.sharding) == "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}"


def test_terms_that_feed_the_next_step_stay_on_their_devices() -> None:
    text = """HloModule m, input_output_alias={{0}: (0, {}, may-alias)}
ENTRY main {
  a = f32[4] parameter(0), sharding={unreduced}
  b = f32[4] parameter(1), sharding={replicated}
  ROOT r = (f32[4], f32[4]) tuple(a, b), sharding={{unreduced}, {unreduced}}
}
"""
    executable = spmd.compile(spmd.parse(text), 2)
    assert count(executable.module, Opcode.ALL_REDUCE) == 0
    terms = [np.full(4, float(d + 1), np.float32) for d in range(2)]
    ones = np.ones(4, np.float32)
    loop = StepLoop(executable, executable.put_tiles([[t, ones] for t in terms]), {0: 0})
    for _ in range(3):
        loop.prepare()
        loop.run()
    held = [np.asarray(own[0]) for own in loop.outputs.tiles]
    np.testing.assert_array_equal(held, terms)
    np.testing.assert_array_equal(np.asarray(loop.outputs[0]), [3, 3, 3, 3])
    np.testing.assert_array_equal(np.asarray(loop.outputs[1]), ones)


def test_an_axis_cannot_split_and_be_unreduced() -> None:
    text = SHARDY.replace(r"unreduced={\"y\"}", r"unreduced={\"x\"}")
    with pytest.raises(ShardingError, match="unreduced"):
        spmd.partition(spmd.parse(text), 4)
