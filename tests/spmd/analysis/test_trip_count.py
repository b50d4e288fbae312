"""Trip counts, through whatever stands around the induction variable."""

from __future__ import annotations

import pytest

from spmd.analysis.trip_count import induction_variable, trip_count
from spmd.hlo import HloInstruction, Opcode
from spmd.text.parser import parse_module


def loop(
    init: str = "constant(0)",
    limit: str = "constant(10)",
    step: str = "constant(1)",
    compare: str = "compare(i, n), direction=LT",
    update: str = "add(i, d)",
    config: str = "",
    counter: str = "s32",
) -> HloInstruction:
    text = f"""HloModule t
cond {{
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] {limit}
  ROOT c = pred[] {compare}
}}
body {{
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  d = s32[] {step}
  u = s32[] {update}
  x = f32[4] get-tuple-element(s), index=1
  y = f32[4] add(x, x)
  ROOT r = (s32[], f32[4]) tuple(u, y)
}}
ENTRY e {{
  a = f32[4] parameter(0)
  z = s32[] {init}
  t = (s32[], f32[4]) tuple(z, a)
  ROOT w = (s32[], f32[4]) while(t), condition=cond, body=body{config}
}}
"""
    return parse_module(text.replace("s32[]", f"{counter}[]")).entry.root


@pytest.mark.parametrize(
    ("changes", "trips"),
    [
        ({}, 10),
        ({"step": "constant(3)"}, 4),
        ({"init": "constant(10)"}, 0),
        ({"init": "constant(12)"}, 0),
        ({"compare": "compare(i, n), direction=LE"}, 11),
        ({"compare": "compare(n, i), direction=GT"}, 10),
        ({"compare": "compare(i, n), direction=NE", "step": "constant(5)"}, 2),
        ({"compare": "compare(i, n), direction=NE", "step": "constant(3)"}, None),
        ({"init": "constant(9)", "limit": "constant(0)", "update": "subtract(i, d)",
          "compare": "compare(i, n), direction=GT", "step": "constant(2)"}, 5),
        ({"init": "constant(9)", "limit": "constant(0)", "step": "constant(-3)",
          "compare": "compare(i, n), direction=GE"}, 4),
        ({"update": "add(d, i)"}, 10),
        ({"update": "multiply(i, d)"}, None),
        ({"step": "constant(2)\n  e = s32[] add(i, d)", "update": "add(d, e)"}, 3),
        ({"step": "constant(2)\n  e = s32[] add(i, d)", "update": "subtract(e, d)"}, None),
        ({"compare": "compare(i, n), direction=GT", "init": "constant(20)"}, None),
    ],
)  # fmt: skip
def test_counted_loops(changes: dict[str, str], trips: int | None) -> None:
    assert trip_count(loop(**changes)) == trips


def test_many_trips_in_one() -> None:
    """A counter that grows in two thousand small steps."""
    count = 2000
    steps = ["constant(1)\n  e0 = s32[] add(i, d)"]
    steps += [f"e{n} = s32[] add(e{n - 1}, d)" for n in range(1, count - 1)]
    found = loop(
        limit=f"constant({3 * count})",
        step="\n  ".join(steps),
        update=f"add(d, e{count - 2})",
    )
    assert trip_count(found) == 3


def test_constants_of_constants_are_computed_once() -> None:
    """A limit that is a product of itself with itself, sixty times over."""
    squares = ["constant(1)\n  q0 = s32[] multiply(o, o)"]
    squares += [f"q{n} = s32[] multiply(q{n - 1}, q{n - 1})" for n in range(1, 60)]
    text = "\n  ".join(squares).replace("constant(1)", "constant(10)\n  o = s32[] constant(1)", 1)
    assert trip_count(loop(limit=text, compare="compare(i, q59), direction=LT")) == 1


@pytest.mark.parametrize(
    ("init", "limit", "step", "direction", "trips"),
    [
        (0, 250, 100, "LT", None),  # 0, 100, 200, 44, ...
        (200, 250, 100, "LT", None),
        (0, 255, 1, "LE", None),  # always true
        (0, 255, 1, "LT", 255),
        (0, 250, 50, "LT", 5),
        (250, 240, 100, "LT", 0),
        (200, 100, 100, "LE", 0),
    ],
)
def test_counters_that_start_over(
    init: int, limit: int, step: int, direction: str, trips: int | None
) -> None:
    found = loop(
        f"constant({init})",
        f"constant({limit})",
        f"constant({step})",
        f"compare(i, n), direction={direction}",
        counter="u8",
    )
    assert trip_count(found) == trips


def test_a_start_that_its_type_cannot_hold_is_unknown() -> None:
    assert trip_count(loop(init="constant(0)\n  z2 = s32[] add(z, z)")) == 10
    wrapped = loop(init="constant(200)\n  h = s32[] add(z, z)", counter="u8")
    start = wrapped.operand(0)
    assert start.parent is not None
    start.replace_operand(0, next(x for x in start.parent.instructions if x.name == "h"))
    assert trip_count(wrapped) is None  # 400 is 144


def test_what_xla_states_is_believed() -> None:
    known = (
        ', backend_config={"known_trip_count":{"n":"7"},"known_init_step":{"init":"0","step":"1"}}'
    )
    assert trip_count(loop(config=known)) == 7


@pytest.mark.parametrize("digits", [20, 400, 5000])
def test_a_number_that_is_no_int64_states_nothing(digits: int) -> None:
    known = f', backend_config={{"known_trip_count":{{"n":"{"9" * digits}"}}}}'
    assert trip_count(loop(config=known)) == 10


def test_limit_and_step_carried_unchanged_behind_copies_and_calls() -> None:
    text = """HloModule t
next {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT sum = s32[] add(a, b)
}
cond {
  s = (s32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  m = s32[] copy(n)
  ROOT c = pred[] compare(i, m), direction=LT
}
body {
  s = (s32[], s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  d = s32[] get-tuple-element(s), index=2
  u = s32[] call(i, d), to_apply=next
  ROOT r = (s32[], s32[], s32[]) tuple(u, n, d)
}
ENTRY e {
  z = s32[] constant(2)
  n = s32[] constant(12)
  t = (s32[], s32[], s32[]) tuple(z, n, z)
  ROOT w = (s32[], s32[], s32[]) while(t), condition=cond, body=body
}
"""
    found = parse_module(text).entry.root
    variable = induction_variable(found)
    assert variable is not None
    assert (variable.index, variable.init, variable.step, variable.limit) == (0, 2, 2, 12)
    assert trip_count(found) == 5


def test_a_limit_that_changes_is_no_limit() -> None:
    found = loop(limit="get-tuple-element(s), index=0")
    assert trip_count(found) is None


def test_a_parameter_as_start_is_unknown() -> None:
    assert trip_count(loop(init="parameter(1)")) is None
    assert loop().opcode is Opcode.WHILE
