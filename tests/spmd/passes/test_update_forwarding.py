"""Tests of slices that are read where they were put: which update a slice belongs to, and which arrays stay."""

from __future__ import annotations

import numpy as np
import pytest
from hlo_expression import expression

from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Opcode
from spmd.passes.pipeline import Pipeline
from spmd.passes.update_forwarding import UpdateForwarding
from spmd.text.parser import parse_module

#: ``a`` has u at 1 and 2, ``b`` v at 4 and 5 besides.
TEXT = """HloModule t
ENTRY e {
  base = f32[8] parameter(0)
  u = f32[2] parameter(1)
  v = f32[2] parameter(2)
  i = s32[] parameter(3)
  one = s32[] constant(1)
  two = s32[] constant(2)
  four = s32[] constant(4)
  far = s32[] constant(100)
  below = s32[] constant(-3)
  a = f32[8] dynamic-update-slice(base, u, one)
  b = f32[8] dynamic-update-slice(a, v, four)
  REST
}
"""
U, V, BASE = "p1", "p2", "p0"


def module_of(rest: str) -> HloModule:
    return parse_module(TEXT.replace("REST", rest))


def arguments() -> list[np.ndarray]:
    return [
        np.arange(8, dtype=np.float32),
        np.array([10, 11], np.float32),
        np.array([20, 21], np.float32),
        np.array(1, np.int32),
    ]


def run(rest: str) -> tuple[HloModule, bool]:
    """The program after the pass, which must not change what it computes."""
    module = module_of(rest)
    expected = evaluate(module, *arguments())
    changed = Pipeline("once", (UpdateForwarding(),)).run(module)
    for want, got in zip(expected, evaluate(module, *arguments()), strict=True):
        np.testing.assert_array_equal(got, want)
    return module, changed


def updates(module: HloModule) -> int:
    return sum(x.opcode is Opcode.DYNAMIC_UPDATE_SLICE for x in module.all_instructions())


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("ROOT x = f32[2] slice(b), slice={[4:6]}", f"slice({V}, (0,), (2,), (1,))"),
        ("ROOT x = f32[1] slice(b), slice={[5:6]}", f"slice({V}, (1,), (2,), (1,))"),
        ("ROOT x = f32[1] slice(b), slice={[2:3]}", f"slice({U}, (1,), (2,), (1,))"),
        ("ROOT x = f32[1] slice(b), slice={[3:4]}", f"slice({BASE}, (3,), (4,), (1,))"),
        ("ROOT x = f32[1] slice(b), slice={[4:6:2]}", f"slice({V}, (0,), (2,), (2,))"),
        # The later update of a place is what is there.
        (
            "c = f32[8] dynamic-update-slice(b, u, four)  ROOT x = f32[2] slice(c), slice={[4:6]}",
            f"slice({U}, (0,), (2,), (1,))",
        ),
        # Updates lie within the array, wherever they are said to begin.
        (
            "c = f32[8] dynamic-update-slice(b, u, far)  ROOT x = f32[2] slice(c), slice={[6:8]}",
            f"slice({U}, (0,), (2,), (1,))",
        ),
        (
            "c = f32[8] dynamic-update-slice(b, v, below)  ROOT x = f32[2] slice(c), slice={[0:2]}",
            f"slice({V}, (0,), (2,), (1,))",
        ),
        # An update as large as the array begins at its beginning, whatever its index.
        (
            "c = f32[8] dynamic-update-slice(b, base, i)  ROOT x = f32[2] slice(c), slice={[1:3]}",
            f"slice({BASE}, (1,), (3,), (1,))",
        ),
        # Nothing is put in.
        (
            "n = f32[0] slice(u), slice={[0:0]}  c = f32[8] dynamic-update-slice(b, n, one)  ROOT x = f32[2] slice(c), slice={[4:6]}",
            f"slice({V}, (0,), (2,), (1,))",
        ),
    ],
)
def test_what_is_read_where_it_was_put(rest: str, expected: str) -> None:
    module, changed = run(rest)
    assert changed
    assert expression(module.entry.root) == expected
    assert updates(module) == 0


def test_each_read_has_its_own_update() -> None:
    """Reads of the array as it was before are forwarded, too."""
    module, changed = run(
        "c = f32[8] dynamic-update-slice(b, v, one)\n"
        "before = f32[2] slice(b), slice={[1:3]}\n"
        "after = f32[2] slice(c), slice={[1:3]}\n"
        "same = f32[1] slice(c), slice={[4:5]}\n"
        "oldest = f32[1] slice(a), slice={[4:5]}\n"
        "ROOT r = (f32[2], f32[2], f32[1], f32[1]) tuple(before, after, same, oldest)"
    )
    assert changed
    assert [expression(x.operand(0)) for x in module.entry.root.operands] == [U, V, V, BASE]
    assert updates(module) == 0


def test_dimensions_are_told_apart() -> None:
    module = parse_module("""HloModule t
ENTRY e {
  base = f32[4,4] parameter(0)
  u = f32[2,3] parameter(1)
  v = f32[4,1] parameter(2)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  three = s32[] constant(3)
  a = f32[4,4] dynamic-update-slice(base, u, one, zero)
  b = f32[4,4] dynamic-update-slice(a, v, zero, three)
  x = f32[1,2] slice(b), slice={[2:3], [1:3]}
  y = f32[2,1] slice(b), slice={[1:3], [3:4]}
  z = f32[1,3] slice(b), slice={[3:4], [0:3]}
  ROOT r = (f32[1,2], f32[2,1], f32[1,3]) tuple(x, y, z)
}
""")
    given = [np.arange(n, n + k, dtype=np.float32) for n, k in ((0, 16), (20, 6), (30, 4))]
    shaped = [x.reshape(d) for x, d in zip(given, ((4, 4), (2, 3), (4, 1)), strict=True)]
    expected = evaluate(module, *shaped)
    assert Pipeline("once", (UpdateForwarding(),)).run(module)
    for want, got in zip(expected, evaluate(module, *shaped), strict=True):
        np.testing.assert_array_equal(got, want)
    assert [expression(x) for x in module.entry.root.operands] == [
        f"slice({U}, (1, 1), (2, 3), (1, 1))",
        f"slice({V}, (1, 0), (3, 1), (1, 1))",
        f"slice({BASE}, (3, 0), (4, 3), (1, 1))",
    ]


@pytest.mark.parametrize(
    "rest",
    [
        # Others need the array.
        "x = f32[2] slice(b), slice={[4:6]}  n = f32[8] negate(b)  ROOT r = (f32[2], f32[8]) tuple(x, n)",
        "x = f32[2] slice(b), slice={[4:6]}  ROOT r = (f32[2], f32[8]) tuple(x, b)",
        # Elements of the update and of what was there before; every other one of both.
        "ROOT x = f32[2] slice(b), slice={[3:5]}",
        "ROOT x = f32[3] slice(b), slice={[1:6:2]}",
        # Nobody knows where the last update lies, or it is none.
        "c = f32[8] dynamic-update-slice(b, u, i)  ROOT x = f32[2] slice(c), slice={[4:6]}",
        "ROOT x = f32[2] dynamic-slice(b, i), dynamic_slice_sizes={2}",
        # One read for which the array is needed is enough.
        "x = f32[2] slice(b), slice={[4:6]}  y = f32[2] slice(b), slice={[2:4]}  ROOT r = (f32[2], f32[2]) tuple(x, y)",
        # Nothing is read.
        "ROOT x = f32[0] slice(b), slice={[5:5]}",
        # Instructions with control dependencies or a sharding stay.
        "ROOT x = f32[2] slice(b), slice={[4:6]}, control-predecessors={i}",
        "c = f32[8] dynamic-update-slice(b, u, two), control-predecessors={i}  ROOT x = f32[2] slice(c), slice={[2:4]}",
        "ROOT x = f32[2] slice(b), slice={[4:6]}, sharding={replicated}",
        "c = f32[8] dynamic-update-slice(b, u, two), sharding={replicated}  ROOT x = f32[2] slice(c), slice={[2:4]}",
    ],
)
def test_what_stays(rest: str) -> None:
    module, changed = run(rest)
    assert not changed
    assert str(module) == str(module_of(rest))


def test_the_result_of_a_program_stays() -> None:
    rest = "ROOT c = f32[8] dynamic-update-slice(b, u, two)  x = f32[2] slice(c), slice={[2:4]}"
    assert not run(rest)[1]


@pytest.mark.parametrize("pinned", [", control-predecessors={i}", ", sharding={replicated}"])
def test_updates_of_what_stays_are_looked_through(pinned: str) -> None:
    """Later updates are looked through, and the rest is read from the one that stays."""
    module = parse_module(
        TEXT.replace("(base, u, one)", f"(base, u, one){pinned}").replace(
            "REST",
            "x = f32[2] slice(b), slice={[4:6]}\n"
            "y = f32[3] slice(b), slice={[1:4]}\n"
            "ROOT r = (f32[2], f32[3]) tuple(x, y)",
        )
    )
    assert Pipeline("once", (UpdateForwarding(),)).run(module)
    assert [x.operand(0).name for x in module.entry.root.operands] == ["v", "a"]


def test_an_array_that_others_need_is_a_base() -> None:
    module, changed = run(
        "x = f32[2] slice(b), slice={[4:6]}\n"
        "y = f32[3] slice(b), slice={[0:3]}\n"
        "ROOT r = (f32[2], f32[3], f32[8]) tuple(x, y, a)"
    )
    assert changed
    assert [x.operand(0).name for x in module.entry.root.operands[:2]] == ["v", "a"]


def test_an_array_that_is_put_into_itself() -> None:
    module, changed = run(
        "c = f32[8] dynamic-update-slice(b, b, i)  ROOT x = f32[2] slice(c), slice={[4:6]}"
    )
    assert changed
    assert expression(module.entry.root).startswith("slice(dynamic-update-slice(")
    assert Pipeline("once", (UpdateForwarding(),)).run(module)
    assert expression(module.entry.root.operand(0)) == V


def test_an_array_that_is_put_into_another_is_needed() -> None:
    _, changed = run(
        "wide = f32[16] concatenate(base, base), dimensions={0}\n"
        "c = f32[16] dynamic-update-slice(wide, b, four)\n"
        "x = f32[2] slice(b), slice={[4:6]}\n"
        "n = f32[16] negate(c)\n"
        "ROOT r = (f32[2], f32[16]) tuple(x, n)"
    )
    assert not changed


@pytest.mark.parametrize("first", [1, 3])
def test_what_is_put_in_was_read_before(first: int) -> None:
    """A read of the array as it was goes into it again, and is read from there, or never more."""
    module, changed = run(
        "part = f32[1] slice(b), slice={[1:2]}\n"
        "three = s32[] constant(3)\n"
        "c = f32[8] dynamic-update-slice(b, part, three)\n"
        f"ROOT x = f32[1] slice(c), slice={{[{first}:{first + 1}]}}"
    )
    assert changed
    x = module.entry.root
    while x.opcode is Opcode.SLICE:
        x = x.operand(0)
    assert expression(x) == U
    assert updates(module) == 0


def test_a_single_element_without_dimensions() -> None:
    module = parse_module("""HloModule t
ENTRY e {
  base = f32[] parameter(0)
  u = f32[] parameter(1)
  a = f32[] dynamic-update-slice(base, u)
  ROOT x = f32[] slice(a), slice={}
}
""")
    assert Pipeline("once", (UpdateForwarding(),)).run(module)
    values = np.array(1, np.float32), np.array(2, np.float32)
    assert evaluate(module, *values)[0] == 2


def stacked(updates: str, reader: str = "exponential(x)") -> HloModule:
    """A module in which ``reader`` reads ``x``, the last one of ``updates`` of an array of 4 elements."""
    return parse_module(f"""HloModule t
ENTRY e {{
  base = f32[4] parameter(0)
  u = f32[2] parameter(1)
  v = f32[2] parameter(2)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  two = s32[] constant(2)
  {updates}
  ROOT r = f32[4] {reader}
}}
""")


def updates_at(first: str, second: str) -> str:
    """Return the text of two updates at the constants ``first`` and ``second``."""
    return (
        f"a = f32[4] dynamic-update-slice(base, u, {first})"
        f"  x = f32[4] dynamic-update-slice(a, v, {second})"
    )


PARTS = [np.array(part, np.float32) for part in ([0, 1, 2, 3], [10, 11], [20, 21])]


@pytest.mark.parametrize(
    ("first", "second", "expected"), [("zero", "two", ("p1", "p2")), ("two", "zero", ("p2", "p1"))]
)
def test_updates_that_write_all_elements_are_a_concatenation(
    first: str, second: str, expected: tuple[str, str]
) -> None:
    module = stacked(updates_at(first, second))
    want = evaluate(module, *PARTS)
    assert Pipeline("once", (UpdateForwarding(),)).run(module)
    np.testing.assert_array_equal(evaluate(module, *PARTS), want)
    joined = module.entry.root.operand(0)
    assert joined.opcode is Opcode.CONCATENATE
    assert tuple(expression(part) for part in joined.operands) == expected


@pytest.mark.parametrize(
    ("text", "reader"),
    [
        ("x = f32[4] dynamic-update-slice(base, u, zero)", "exponential(x)"),
        (
            updates_at("zero", "one"),
            "exponential(x)",
        ),
        (
            updates_at("zero", "two"),
            "reverse(x), dimensions={0}",
        ),
        (
            updates_at("zero", "two"),
            "add(x, a)",
        ),
    ],
    ids=["not all", "overlap", "reader is not elementwise", "array before is read"],
)
def test_other_updates_stay(text: str, reader: str) -> None:
    module = stacked(text, reader)
    assert not Pipeline("once", (UpdateForwarding(),)).run(module)


def test_parts_along_one_of_several_dimensions() -> None:
    module = parse_module("""HloModule t
ENTRY e {
  base = f32[3,2] parameter(0)
  u = f32[3,1] parameter(1)
  v = f32[3,1] parameter(2)
  i = s32[] parameter(3)
  zero = s32[] constant(0)
  one = s32[] constant(1)
  a = f32[3,2] dynamic-update-slice(base, u, i, one)
  x = f32[3,2] dynamic-update-slice(a, v, i, zero)
  ROOT r = f32[3,2] exponential(x)
}
""")
    given = [np.zeros((3, 2), np.float32)]
    given += [np.full((3, 1), value, np.float32) for value in (1, 2)]
    given.append(np.array(7, np.int32))
    want = evaluate(module, *given)
    assert Pipeline("once", (UpdateForwarding(),)).run(module)
    np.testing.assert_array_equal(evaluate(module, *given), want)
    assert module.entry.root.operand(0).opcode is Opcode.CONCATENATE
