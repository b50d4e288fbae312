"""The size of a partitioned program follows its arrays, not the numbers that its windows and slices state."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from spmd.hlo.instruction import ArrayShape

SUM = "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }"
ROWS = "x = f32[8] parameter(0), sharding={devices=[2]<=[2]}\n z = f32[] constant(0)"
IMAGE = "x = f32[1,8,1] parameter(0), sharding={devices=[1,2,1]<=[2]}\n k = f32[2,1,1] constant({{{1}},{{2}}})"
LABELS = "dim_labels=b0f_0io->b0f"

#: By what is large: the body of a program of one parameter, with ``N`` for the number.
BODIES = {
    "stride of a slice": f"{ROWS}\n ROOT r = f32[1] slice(x), slice={{[5:8:N]}}",
    "window": f"{ROWS}\n ROOT r = f32[9] reduce-window(x, z), window={{size=N pad=N_0}}, to_apply=sum",
    "stride": f"{ROWS}\n ROOT r = f32[1] reduce-window(x, z), window={{size=2 stride=N}}, to_apply=sum",
    "stride over padding": (
        f"{ROWS}\n ROOT r = f32[2] reduce-window(x, z), window={{size=2 stride=N pad=N_-5}}, to_apply=sum"
    ),
    "dilation of a window": (
        f"{ROWS}\n ROOT r = f32[8] reduce-window(x, z), window={{size=2 pad=N_0 rhs_dilate=N}}, to_apply=sum"
    ),
    "dilation of the base": (
        f"{ROWS}\n ROOT r = f32[8] reduce-window(x, z), window={{size=2 stride=N pad=1_0 lhs_dilate=N}}, "
        "to_apply=sum"
    ),
    "dilation of a kernel": (
        f"{IMAGE}\n ROOT r = f32[1,8,1] convolution(x, k), window={{size=2 pad=N_0 rhs_dilate=N}}, {LABELS}"
    ),
    "dilation of an image": (
        f"{IMAGE}\n ROOT r = f32[1,8,1] convolution(x, k), window={{size=2 stride=N pad=1_0 lhs_dilate=N}}, "
        f"{LABELS}"
    ),
}


def program(body: str, number: int) -> spmd.HloModule:
    text = BODIES[body].replace("N", str(number))
    return spmd.parse(f"HloModule m\n{SUM}\nENTRY e {{\n {text}\n}}")


@pytest.mark.parametrize("body", BODIES)
def test_a_large_number_makes_no_large_program(body: str) -> None:
    module = spmd.partition(program(body, 10**9), 2)
    instructions = list(module.all_instructions())
    assert len(instructions) < 60
    arrays = [i.shape for i in instructions if isinstance(i.shape, ArrayShape)]
    assert max(shape.num_elements for shape in arrays) < 100


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("number", [9, 40])
def test_numbers_beyond_the_arrays_give_the_right_values(body: str, number: int) -> None:
    module = program(body, number)
    x = np.arange(1, 9, dtype=np.float32).reshape(module.entry.parameters[0].array_shape.dims)
    (wanted,) = spmd.evaluate(module, x)
    (found,) = spmd.compile(module, devices=2).run(x)
    assert np.array_equal(found, wanted)
