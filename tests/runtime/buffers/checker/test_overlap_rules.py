"""A fusion's result may lie on an operand of which each element is needed for the element at its own place alone."""

from __future__ import annotations

import pytest

from runtime.buffers.checker.overlap_rules import wrong_overlap
from runtime.buffers.types import ArrayView, BufferSlice
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.programs.build import module_of

PLACE = BufferSlice(0, 0, 64)
ARRAY = ArrayView(PLACE, StridedView.dense(ArrayShape(PrimitiveType.F32, (4, 4))))

STEADY = {
    "elementwise": "ROOT r = f32[4,4] add(p, p)",
    "reshaped": "f = f32[16] reshape(p)\n  n = f32[16] abs(f)\n  ROOT r = f32[4,4] reshape(n)",
    "as other bits": "b = u32[4,4] bitcast-convert(p)\n  n = u32[4,4] not(b)\n"
    "  ROOT r = f32[4,4] bitcast-convert(n)",
    "turned, as a row": "f = f32[1,16] reshape(p)\n  t = f32[16,1] transpose(f), dimensions={1,0}\n"
    "  v = f32[16,1] reverse(t), dimensions={1}\n  ROOT r = f32[4,4] reshape(v)",
    "repeated once": "f = f32[16] reshape(p)\n  b = f32[1,16] broadcast(f), dimensions={1}\n"
    "  ROOT r = f32[4,4] reshape(b)",
    "turned there and back": "t = f32[4,4] transpose(p), dimensions={1,0}\n  n = f32[4,4] abs(t)\n"
    "  ROOT r = f32[4,4] transpose(n), dimensions={1,0}",
    "turned and seen as something else": "f = f32[2,8] reshape(p)\n"
    "  t = f32[8,2] transpose(f), dimensions={1,0}\n  s = f32[4,2,2] reshape(t)\n"
    "  u = f32[2,4,2] transpose(s), dimensions={2,0,1}\n  ROOT r = f32[4,4] reshape(u)",
    "cut off by padding": "z = f32[] constant(0)\n  t = f32[4,4] transpose(p), dimensions={1,0}\n"
    "  c = f32[4,4] pad(t, z), padding=4_-4x0_0\n  ROOT r = f32[4,4] add(p, c)",
    "sliced whole": "ROOT r = f32[4,4] slice(p), slice={[0:4], [0:4]}",
    "cut and joined": "a = f32[1,4] slice(p), slice={[0:1], [0:4]}\n  n = f32[1,4] abs(a)\n"
    "  b = f32[3,4] slice(p), slice={[1:4], [0:4]}\n"
    "  ROOT r = f32[4,4] concatenate(n, b), dimensions={0}",
    "reversed twice": "a = f32[4,4] reverse(p), dimensions={0,1}\n  n = f32[4,4] abs(a)\n"
    "  ROOT r = f32[4,4] reverse(n), dimensions={1,0}",
    "one column with a stride": "z = f32[] constant(0)\n  a = f32[4,1] slice(p), slice={[0:4], [1:2:2]}\n"
    "  ROOT r = f32[4,4] pad(a, z), padding=0_0x1_2",
    "cut of the reversed": "z = f32[] constant(0)\n  a = f32[4,4] reverse(p), dimensions={1}\n"
    "  c = f32[4,3] slice(a), slice={[0:4], [0:3]}\n  d = f32[4,3] reverse(c), dimensions={1}\n"
    "  ROOT r = f32[4,4] pad(d, z), padding=0_0x1_0",
    "padded, and cut where the device says": "z = f32[] constant(0)\n  n = s32[] constant(0)\n"
    "  f = f32[4,4,1] reshape(p)\n  a = f32[4,4,2] pad(f, z), padding=0_0x0_0x0_1\n"
    "  i = u32[] partition-id()\n  k = s32[] convert(i)\n"
    "  d = f32[4,4,1] dynamic-slice(a, n, n, k), dynamic_slice_sizes={4,4,1}\n"
    "  ROOT r = f32[4,4] reshape(d)",
    "rows cut, seen as lines, and joined": "a = f32[1,4] slice(p), slice={[0:1], [0:4]}\n"
    "  b = f32[3,4] slice(p), slice={[1:4], [0:4]}\n  l = f32[4] reshape(a)\n  n = f32[4] abs(l)\n"
    "  c = f32[1,4] reshape(n)\n  ROOT r = f32[4,4] concatenate(c, b), dimensions={0}",
    "cut and padded": "z = f32[] constant(0)\n  a = f32[4,3] slice(p), slice={[0:4], [1:4]}\n"
    "  ROOT r = f32[4,4] pad(a, z), padding=0_0x1_0",
    "repeated and cut": "b = f32[4,3,4] broadcast(p), dimensions={0,2}\n"
    "  s = f32[4,1,4] slice(b), slice={[0:4], [1:2], [0:4]}\n  ROOT r = f32[4,4] reshape(s)",
    "joined, and cut where others are": "a = f32[4,1] slice(p), slice={[0:4], [0:1]}\n"
    "  c = f32[4,1,1] reshape(a)\n  z = f32[] constant(0)\n  o = f32[4,1,3] broadcast(z), dimensions={}\n"
    "  j = f32[4,1,4] concatenate(c, o), dimensions={2}\n  s = f32[4,4] reshape(j)\n"
    "  l = f32[4,1] slice(s), slice={[0:4], [1:2]}\n  v = f32[4] reshape(l)\n"
    "  b = f32[4,4] broadcast(v), dimensions={0}\n  ROOT r = f32[4,4] add(s, b)",
    "repeated, and a few summed": "b = f32[4,2,4] broadcast(p), dimensions={0,2}\n"
    "  z = f32[] constant(0)\n  ROOT r = f32[4,4] reduce(b, z), dimensions={1}, to_apply=add",
    "what nobody needs": "t = f32[4,4] transpose(p), dimensions={1,0}\n  ROOT r = f32[4,4] abs(p)",
}
MOVED = {
    "transposed": "t = f32[4,4] transpose(p), dimensions={1,0}\n  ROOT r = f32[4,4] add(p, t)",
    "reversed": "ROOT r = f32[4,4] reverse(p), dimensions={0}",
    "repeated": "s = f32[1,4] slice(p), slice={[0:1], [0:4]}\n  v = f32[4] reshape(s)\n"
    "  ROOT r = f32[4,4] broadcast(v), dimensions={1}",
    "joined, and cut where it is": "a = f32[4,1] slice(p), slice={[0:4], [0:1]}\n"
    "  c = f32[4,1,1] reshape(a)\n  z = f32[] constant(0)\n  o = f32[4,1,3] broadcast(z), dimensions={}\n"
    "  j = f32[4,1,4] concatenate(c, o), dimensions={2}\n  s = f32[4,4] reshape(j)\n"
    "  l = f32[4,1] slice(s), slice={[0:4], [0:1]}\n  v = f32[4] reshape(l)\n"
    "  b = f32[4,4] broadcast(v), dimensions={0}\n  ROOT r = f32[4,4] add(s, b)",
    "repeated, and cut along itself": "b = f32[4,4,2] broadcast(p), dimensions={0,1}\n"
    "  s = f32[4,2,2] slice(b), slice={[0:4], [1:3], [0:2]}\n  ROOT r = f32[4,4] reshape(s)",
    "as narrower bits": "b = u16[4,4,2] bitcast-convert(p)\n  n = u16[4,4,2] not(b)\n"
    "  ROOT r = f32[4,4] bitcast-convert(n)",
    "turned on two ways": "t = f32[4,4] transpose(p), dimensions={1,0}\n  a = f32[4,4] add(p, t)\n"
    "  ROOT r = f32[4,4] transpose(a), dimensions={1,0}",
    "turned, and seen as something else": "t = f32[4,4] transpose(p), dimensions={1,0}\n"
    "  s = f32[2,8] reshape(t)\n  u = f32[8,2] transpose(s), dimensions={1,0}\n  ROOT r = f32[4,4] reshape(u)",
    "cut off but for a row": "z = f32[] constant(0)\n  t = f32[4,4] transpose(p), dimensions={1,0}\n"
    "  c = f32[4,4] pad(t, z), padding=3_-3x0_0\n  ROOT r = f32[4,4] add(p, c)",
    "cut and joined in another order": "a = f32[1,4] slice(p), slice={[0:1], [0:4]}\n"
    "  b = f32[3,4] slice(p), slice={[1:4], [0:4]}\n"
    "  ROOT r = f32[4,4] concatenate(b, a), dimensions={0}",
    "joined with itself": "a = f32[2,4] slice(p), slice={[0:2], [0:4]}\n"
    "  ROOT r = f32[4,4] concatenate(a, a), dimensions={0}",
    "cut of the reversed, at another place": "z = f32[] constant(0)\n"
    "  a = f32[4,4] reverse(p), dimensions={1}\n  c = f32[4,3] slice(a), slice={[0:4], [1:4]}\n"
    "  d = f32[4,3] reverse(c), dimensions={1}\n  ROOT r = f32[4,4] pad(d, z), padding=0_0x1_0",
    "padded, and cut where the device says, of several": "z = f32[] constant(0)\n"
    "  n = s32[] constant(0)\n  a = f32[8,4] pad(p, z), padding=0_4x0_0\n"
    "  i = u32[] partition-id()\n  k = s32[] convert(i)\n"
    "  ROOT d = f32[4,4] dynamic-slice(a, k, n), dynamic_slice_sizes={4,4}",
    "repeated, padded in front, and cut where the device says": "z = f32[] constant(0)\n"
    "  n = s32[] constant(0)\n  i = u32[] partition-id()\n  k = s32[] convert(i)\n"
    "  t = f32[4,4] transpose(p), dimensions={1,0}\n  f = f32[16] reshape(t)\n"
    "  b = f32[2,16] broadcast(f), dimensions={1}\n  a = f32[8,16] pad(b, z), padding=6_0x0_0\n"
    "  d = f32[3,16] dynamic-slice(a, k, n), dynamic_slice_sizes={3,16}\n"
    "  s = f32[1,16] slice(d), slice={[2:3], [0:16]}\n  ROOT r = f32[4,4] reshape(s)",
    "cut with strides": "z = f32[] constant(0)\n  a = f32[4,2] slice(p), slice={[0:4], [0:4:2]}\n"
    "  ROOT r = f32[4,4] pad(a, z), padding=0_0x0_2",
    "padded elsewhere": "z = f32[] constant(0)\n  a = f32[4,3] slice(p), slice={[0:4], [1:4]}\n"
    "  ROOT r = f32[4,4] pad(a, z), padding=0_0x0_1",
    "repeated, and several of its own summed": "b = f32[4,4,4] broadcast(p), dimensions={0,1}\n"
    "  z = f32[] constant(0)\n  ROOT r = f32[4,4] reduce(b, z), dimensions={1}, to_apply=add",
    "repeated transposed, and a few summed": "t = f32[4,4] transpose(p), dimensions={1,0}\n"
    "  b = f32[4,2,4] broadcast(t), dimensions={0,2}\n  z = f32[] constant(0)\n  ROOT r = f32[4,4] reduce(b, z), dimensions={1}, to_apply=add",
    "the start of a sum": "f = f32[16] reshape(p)\n  o = f32[1] slice(f), slice={[0:1]}\n"
    "  z = f32[] reshape(o)\n  b = f32[4,2,4] broadcast(p), dimensions={0,2}\n"
    "  ROOT r = f32[4,4] reduce(b, z), dimensions={1}, to_apply=add",
    "later": "a = f32[4,4] abs(p)\n  ROOT r = f32[4,4] transpose(a), dimensions={1,0}",
}


def overlap(body: str) -> str:
    text = f"""HloModule m

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}

fused {{
  p = f32[4,4] parameter(0)
  {body}
}}

ENTRY e {{
  p = f32[4,4] parameter(0)
  ROOT f = f32[4,4] fusion(p), kind=kLoop, calls=fused
}}
"""
    return wrong_overlap(module_of(text).entry.root, [ARRAY], [], [PLACE])


@pytest.mark.parametrize("name", STEADY)
def test_element_on_element(name: str) -> None:
    assert overlap(STEADY[name]) == ""


@pytest.mark.parametrize("name", MOVED)
def test_needed_elsewhere(name: str) -> None:
    assert "writes its result" in overlap(MOVED[name])


def test_a_root_of_more_elements_lies_elsewhere() -> None:
    """Element n of f16[32] is in the middle of another element of f32[16]."""
    text = """HloModule m

fused {
  p = f32[16] parameter(0)
  z = f16[] constant(0)
  c = f16[16] convert(p)
  ROOT r = f16[32] pad(c, z), padding=0_16
}

ENTRY e {
  p = f32[16] parameter(0)
  ROOT f = f16[32] fusion(p), kind=kLoop, calls=fused
}
"""
    read = ArrayView(PLACE, StridedView.dense(ArrayShape(PrimitiveType.F32, (16,))))
    assert "writes its result" in wrong_overlap(module_of(text).entry.root, [read], [], [PLACE])


ROWS = """HloModule m

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}

fused {{
  p = f32[4,4] parameter(0)
  z = f32[] constant(0)
  s = f32[4] reduce(p, z), dimensions={{{axis}}}, to_apply=add
  b = f32[4,4] broadcast(s), dimensions={{{spread}}}
  d = f32[4,4] divide(p, b)
  {last}
}}

ENTRY e {{
  p = f32[4,4] parameter(0)
  ROOT f = {shape} fusion(p), kind=kInput, calls=fused
}}
"""


def rows_overlap(last: str, axis: int = 1, spread: int = 0) -> str:
    shape = "(f32[4,4], f32[4,4])" if "tuple" in last else "f32[4,4]"
    root = module_of(ROWS.format(axis=axis, spread=spread, last=last, shape=shape)).entry.root
    places = [PLACE, BufferSlice(1, 0, 64)][: 1 + ("tuple" in last)]
    return wrong_overlap(root, [ARRAY], [], places)


BITS = """w = u32[4,4] bitcast-convert(d)
  n = u32[4,4] not(w)
  ROOT r = f32[4,4] bitcast-convert(n)"""


def test_rows_as_other_bits() -> None:
    assert rows_overlap(BITS) == ""


def test_rows_of_rows() -> None:
    assert rows_overlap("ROOT r = f32[4,4] abs(d)") == ""
    assert rows_overlap("a = f32[4,4] abs(p)\n  ROOT r = (f32[4,4], f32[4,4]) tuple(d, a)") == ""


def test_rows_that_are_needed_elsewhere() -> None:
    wrong = "writes its result"
    assert wrong in rows_overlap("ROOT r = f32[4,4] transpose(d), dimensions={1,0}")
    assert wrong in rows_overlap("ROOT r = f32[4,4] abs(d)", axis=1, spread=1)
    # Written before the row has been read for the last time.
    assert wrong in rows_overlap("a = f32[4,4] abs(p)\n  ROOT r = (f32[4,4], f32[4,4]) tuple(a, d)")


def test_row_values_that_are_transposed_after_they_were_repeated() -> None:
    """All elements of the only row are divided by one number, in whatever order; of several rows, not by their own."""
    turned = "t = f32[4,4] transpose(b), dimensions={1,0}\n  ROOT r = f32[4,4] divide(p, t)"
    assert "writes its result" in rows_overlap(turned)
    text = ROWS.format(axis="0,1", spread="", last=turned, shape="f32[4,4]")
    root = module_of(text.replace("s = f32[4] reduce", "s = f32[] reduce")).entry.root
    assert wrong_overlap(root, [ARRAY], [], [PLACE]) == ""


OTHER_SIZES = """HloModule m

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}

fused {{
  p = f32[4,4] parameter(0)
  z = f32[] constant(0)
  f = f32[{sizes}] reshape(p)
  s = f32[{kept}] reduce(f, z), dimensions={{{axes}}}, to_apply=add
  v = f32[4] reshape(s)
  b = f32[4,4] broadcast(v), dimensions={{{spread}}}
  ROOT r = f32[4,4] divide(p, b)
}}

ENTRY e {{
  p = f32[4,4] parameter(0)
  ROOT f = f32[4,4] fusion(p), kind=kInput, calls=fused
}}
"""


@pytest.mark.parametrize(
    ("sizes", "axes", "kept", "spread", "fits"),
    [
        ("4,2,2", "1,2", "4", 0, True),
        ("2,2,4", "2", "2,2", 0, True),
        ("4,1,2,2", "0,1", "2,2", 1, True),
        ("4,2,2", "1,2", "4", 1, False),
        ("2,2,4", "2", "2,2", 1, False),
        ("2,4,2", "0,2", "4", 0, False),
    ],
)
def test_rows_of_an_array_of_other_sizes(
    sizes: str, axes: str, kept: str, spread: int, fits: bool
) -> None:
    """They are rows of the result as well where they hold the same elements of its memory."""
    text = OTHER_SIZES.format(sizes=sizes, axes=axes, kept=kept, spread=spread)
    wrong = wrong_overlap(module_of(text).entry.root, [ARRAY], [], [PLACE])
    assert (wrong == "") is fits


#: Operations on p, which is negated as n, and on w, of which a block is written.
BLOCKS = {
    "written as a block": ("u = f32[9,4] dynamic-update-slice(w, n, i, i)", True),
    "turned before": (
        "t = f32[4,4] transpose(p), dimensions={1,0}\n  u = f32[9,4] dynamic-update-slice(w, t, i, i)",
        False,
    ),
    "changed after": (
        "b = f32[9,4] dynamic-update-slice(w, n, i, i)\n  u = f32[9,4] negate(b)",
        False,
    ),
}


@pytest.mark.parametrize(("body", "may_lie_there"), BLOCKS.values(), ids=BLOCKS)
def test_what_is_written_as_a_block_of_another_result_is_needed_at_its_own_place(
    body: str, may_lie_there: bool
) -> None:
    module = module_of(f"""HloModule m

fused {{
  p = f32[4,4] parameter(0)
  w = f32[9,4] parameter(1)
  i = s32[] parameter(2)
  n = f32[4,4] negate(p)
  {body}
  ROOT r = (f32[4,4], f32[9,4]) tuple(n, u)
}}

ENTRY e {{
  p = f32[4,4] parameter(0)
  w = f32[9,4] parameter(1)
  i = s32[] parameter(2)
  ROOT f = (f32[4,4], f32[9,4]) fusion(p, w, i), kind=kLoop, calls=fused
}}
""")
    whole = ArrayView(
        BufferSlice(1, 0, 144), StridedView.dense(ArrayShape(PrimitiveType.F32, (9, 4)))
    )
    number = ArrayView(BufferSlice(2, 0, 4), StridedView.dense(ArrayShape(PrimitiveType.S32, ())))
    reads, results = (ARRAY, whole, number), (PLACE, BufferSlice(3, 0, 144))
    wrong = wrong_overlap(module.entry.root, reads, (), results)
    assert (not wrong) is may_lie_there, wrong


#: Operations on w, of which the first result changes a block.
TWO_UPDATES = {
    "changed in both": ("v = f32[9,4] dynamic-update-slice(w, m, i, i)", True),
    "changed in one as a row": (
        "f = f32[36] reshape(w)\n  h = f32[36] dynamic-update-slice(f, x, i)\n  v = f32[9,4] reshape(h)",
        True,
    ),
    "read besides": ("v = f32[9,4] negate(w)", False),
    "read as a row besides": (
        "f = f32[36] reshape(w)\n  h = f32[36] negate(f)\n  v = f32[9,4] reshape(h)",
        False,
    ),
    "read by what is written": (
        "s = f32[4,4] slice(w), slice={[0:4], [0:4]}\n  v = f32[9,4] dynamic-update-slice(w, s, i, i)",
        False,
    ),
}


@pytest.mark.parametrize(("body", "may_lie_there"), TWO_UPDATES.values(), ids=TWO_UPDATES)
def test_blocks_of_one_array_may_be_changed_in_several_results(
    body: str, may_lie_there: bool
) -> None:
    """A result that is not written in place is copied before the first block is written."""
    module = module_of(f"""HloModule m

fused {{
  m = f32[4,4] parameter(0)
  w = f32[9,4] parameter(1)
  i = s32[] parameter(2)
  n = f32[4,4] negate(m)
  x = f32[16] reshape(m)
  u = f32[9,4] dynamic-update-slice(w, n, i, i)
  {body}
  ROOT r = (f32[9,4], f32[9,4]) tuple(u, v)
}}

ENTRY e {{
  m = f32[4,4] parameter(0)
  w = f32[9,4] parameter(1)
  i = s32[] parameter(2)
  ROOT f = (f32[9,4], f32[9,4]) fusion(m, w, i), kind=kLoop, calls=fused
}}
""")
    place = BufferSlice(1, 0, 144)
    whole = ArrayView(place, StridedView.dense(ArrayShape(PrimitiveType.F32, (9, 4))))
    number = ArrayView(BufferSlice(2, 0, 4), StridedView.dense(ArrayShape(PrimitiveType.S32, ())))
    wrong = wrong_overlap(
        module.entry.root, (ARRAY, whole, number), (), (place, BufferSlice(3, 0, 144))
    )
    assert (not wrong) is may_lie_there, wrong
