"""Tests of what the header's flags let propagation do at the module's edge, and what it may not do."""

from __future__ import annotations

import numpy as np
import pytest

import spmd
from partitioner.propagate_module import propagate_module
from spmd.errors import ShardingError
from tests.differential.equivalence import check_equivalence

ROWS = "{devices=[2,1]<=[2]}"
PARAMETERS = "allow_spmd_sharding_propagation_to_parameters"
OUTPUT = "allow_spmd_sharding_propagation_to_output"


def add(header: str, rows: int = 4, root: str = "") -> str:
    """Return a program in which a call annotates x by rows, and w has no annotation."""
    return f"""HloModule m{header}
ENTRY main {{
  x = f32[{rows},2] parameter(0)
  w = f32[{rows},2] parameter(1)
  s = f32[{rows},2] custom-call(x), custom_call_target="Sharding", sharding={ROWS}
  t = f32[{rows},2] add(s, w)
  u = f32[{rows},2] negate(t)
  ROOT r = (f32[{rows},2], f32[{rows},2]) tuple(t, u){root}
}}
"""


def shardings(text: str, devices: int = 2) -> tuple[str, str, str]:
    """Return the shardings of x, w and the outputs of a program, which is also checked to compute the same."""
    module = spmd.parse(text)
    inputs = [
        np.arange(p.array_shape.num_elements, dtype=np.float32).reshape(p.dims)
        for p in module.entry.parameters
    ]
    found = check_equivalence(module, devices, inputs)
    x, w = found.entry.parameters
    return str(x.sharding), str(w.sharding), str(found.entry.root.sharding)


def both(sharding: str) -> str:
    return f"{{{sharding}, {sharding}}}"


@pytest.mark.parametrize(
    ("flags", "x", "w"),
    [
        ("true", ROWS, ROWS),
        ("true,true", ROWS, ROWS),
        ("false,true", "{replicated}", ROWS),
        ("true,false", ROWS, "{replicated}"),
        ("false", "{replicated}", "{replicated}"),
    ],
)
def test_parameters_take_what_propagation_finds_where_they_may(flags: str, x: str, w: str) -> None:
    found = shardings(add(f", {PARAMETERS}={{{flags}}}"))
    assert found[:2] == (x, w)


def test_a_header_that_says_nothing_leaves_parameters_whole_and_outputs_free() -> None:
    found = shardings(add(""))
    assert found == ("{replicated}", "{replicated}", both(ROWS))


@pytest.mark.parametrize(
    ("flags", "outputs"),
    [
        ("true", both(ROWS)),
        ("false", both("{replicated}")),
        ("true,false", f"{{{ROWS}, {{replicated}}}}"),
        ("false,true", f"{{{{replicated}}, {ROWS}}}"),
    ],
)
def test_outputs_one_by_one(flags: str, outputs: str) -> None:
    assert shardings(add(f", {OUTPUT}={{{flags}}}"))[2] == outputs


def test_an_annotated_output_is_bound_whatever_the_flag() -> None:
    columns = "{devices=[1,2]<=[2]}"
    for flag in ("true", "false"):
        text = add(f", {OUTPUT}={{{flag}}}", root=f", sharding={both(columns)}")
        assert shardings(text)[2] == both(columns)


def test_propagation_never_leaves_uneven_tiles_at_the_edge() -> None:
    """Five rows over two devices are fine inside, but a host gives and gets tiles of one size."""
    text = add(f", {PARAMETERS}={{true}}, {OUTPUT}={{true}}", rows=5)
    assert shardings(text) == ("{replicated}", "{replicated}", both("{replicated}"))
    inside = propagate_module(spmd.parse(text), 2)
    assert str(next(i for i in inside.entry.instructions if i.name == "t").sharding) == ROWS


def test_elements_of_a_tuple_parameter_have_flags_of_their_own() -> None:
    text = f"""HloModule m, {PARAMETERS}={{true,false}}
ENTRY main {{
  p = (f32[4], f32[4]) parameter(0)
  x = f32[4] get-tuple-element(p), index=0
  w = f32[4] get-tuple-element(p), index=1
  s = f32[4] add(x, w)
  ROOT r = f32[4] custom-call(s), custom_call_target="Sharding", sharding={{devices=[2]<=[2]}}
}}
"""
    found = spmd.partition(spmd.parse(text), 2)
    assert str(found.entry.parameters[0].sharding) == "{{devices=[2]<=[2]}, {replicated}}"


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (f", {PARAMETERS}={{true,true,true}}", "3 flags for 2 parameters"),
        (f", {OUTPUT}={{true,true,true}}", "3 flags for 2 values"),
    ],
)
def test_a_wrong_number_of_flags_is_refused(header: str, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        spmd.partition(spmd.parse(add(header)), 2)
