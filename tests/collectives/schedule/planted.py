"""Ordering bugs planted in right schedules: each a small edit, and what the checker has to say of it.

A mutant edits the order, the edges or the text of a module that ``check_windows`` accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spmd.hlo import HloInstruction, HloModule
from spmd.text.parser import parse_module

_GROUPS = "use_global_device_ids=true, replica_groups="
#: Four devices: pairs along rows {0,1},{2,3} and columns {0,2},{1,3}, all of them, a ring; a loop and a conditional.
TEXT = f"""HloModule right, is_scheduled=true, num_partitions=4
sum {{
  p0 = f32[] parameter(0)
  p1 = f32[] parameter(1)
  ROOT s = f32[] add(p0, p1)
}}
body {{
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  v = f32[8] get-tuple-element(t), index=1
  one = s32[] constant(1)
  in-start = f32[8] all-reduce-start(v), channel_id=11, {_GROUPS}{{{{0,1,2,3}}}}, to_apply=sum
  j = s32[] add(i, one)
  in-done = f32[8] all-reduce-done(in-start)
  again-start = f32[8] all-reduce-start(in-done), channel_id=12, {_GROUPS}{{{{0,1,2,3}}}}, to_apply=sum
  again-done = f32[8] all-reduce-done(again-start)
  ROOT u = (s32[], f32[8]) tuple(j, again-done)
}}
condition {{
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}}
left {{
  x = f32[8] parameter(0)
  ROOT low = f32[8] all-reduce(x), channel_id=13, {_GROUPS}{{{{0,1}},{{2,3}}}}, to_apply=sum
}}
right {{
  x = f32[8] parameter(0)
  ROOT high = f32[8] all-reduce(x), channel_id=14, {_GROUPS}{{{{0,1}},{{2,3}}}}, to_apply=sum
}}
ENTRY main {{
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  row-start = f32[8] all-reduce-start(x), channel_id=1, {_GROUPS}{{{{0,1}},{{2,3}}}}, to_apply=sum
  column-start = f32[8] all-reduce-start(y), channel_id=2, {_GROUPS}{{{{0,2}},{{1,3}}}}, to_apply=sum
  n = f32[8] negate(x)
  row-done = f32[8] all-reduce-done(row-start)
  column-done = f32[8] all-reduce-done(column-start)
  big = f32[64] concatenate(n, x, y, row-done, column-done, n, x, y), dimensions={{0}}
  few = f32[8] slice(big), slice={{[8:16]}}
  all-start = (f32[8], f32[32]) all-gather-start(few), channel_id=3, {_GROUPS}{{{{0,1,2,3}}}}, dimensions={{0}}
  m = f32[8] negate(n)
  all-done = f32[32] all-gather-done(all-start)
  ring-start = (f32[32], f32[32]) collective-permute-start(all-done), channel_id=4, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}
  k = f32[8] negate(m)
  ring-done = f32[32] collective-permute-done(ring-start)
  scatter-start = ((f32[32]), f32[8]) reduce-scatter-start(ring-done), channel_id=5, {_GROUPS}{{{{0,1,2,3}}}}, dimensions={{0}}, to_apply=sum
  l = f32[8] abs(k)
  scatter-done = f32[8] reduce-scatter-done(scatter-start)
  zero = s32[] constant(0)
  state = (s32[], f32[8]) tuple(zero, scatter-done)
  loop = (s32[], f32[8]) while(state), condition=condition, body=body
  w = f32[8] get-tuple-element(loop), index=1
  me = u32[] partition-id()
  two = u32[] constant(2)
  below = pred[] compare(me, two), direction=LT
  branch = f32[8] conditional(below, w, w), true_computation=left, false_computation=right
  last = f32[8] all-reduce(branch), channel_id=6, {_GROUPS}{{{{0,3}},{{1,2}}}}, to_apply=sum
  wide = f32[128] iota(), iota_dimension=0
  part = f32[8] slice(wide), slice={{[8:16]}}
  ROOT r = (f32[8], f32[8], f32[8]) tuple(last, l, part)
}}
"""


def right_module() -> HloModule:
    return parse_module(TEXT)


#: Edits a right module.
Plant = Callable[[HloModule], None]


@dataclass(frozen=True)
class Planted:
    """``plant`` edits a right module; the message of what is found matches ``says``. spare: bytes of memory beside what
    the right module needs; None for any number.
    """

    name: str
    says: str
    plant: Plant
    spare: int | None = None


def named(module: HloModule, name: str) -> HloInstruction:
    return next(x for x in module.all_instructions() if x.name == name)


def move(name: str, *, before: str) -> Plant:
    def plant(module: HloModule) -> None:
        x, at = named(module, name), named(module, before)
        assert x.parent is not None
        order = [y for y in x.parent.instructions if y is not x]
        order.insert(order.index(at), x)
        x.parent.set_order(order)

    return plant


def swap(one: str, other: str) -> Plant:
    def plant(module: HloModule) -> None:
        x, y = named(module, one), named(module, other)
        assert x.parent is not None
        places = {x: y, y: x}
        x.parent.set_order([places.get(z, z) for z in x.parent.instructions])

    return plant


def edge(before: str, after: str) -> Plant:
    return lambda module: named(module, before).add_control_dependency_to(named(module, after))


def nothing(_: HloModule) -> None:
    """The bug is elsewhere."""


def written(*changes: tuple[str, str]) -> Plant:
    """Each old text, which stands there once, becomes the new one."""

    def plant(module: HloModule) -> None:
        text = TEXT
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        module.move_from(parse_module(text))

    return plant


def ahead(line: str, new: str) -> tuple[str, str]:
    """``new`` stands ahead of ``line``."""
    return line, f"{new}\n  {line}"


def both(*plants: Plant) -> Plant:
    def plant(module: HloModule) -> None:
        for one in plants:
            one(module)

    return plant


_ROWS = f"{_GROUPS}{{{{0,1}},{{2,3}}}}"
_COLUMNS = f"{_GROUPS}{{{{0,2}},{{1,3}}}}"
_ALL = f"{_GROUPS}{{{{0,1,2,3}}}}"
_MEMORY = "needs [0-9,]+ bytes, the limit is"


def _shared(one: str, other: str, *devices: int) -> str:
    return (
        f"{one} starts on device {devices[0]} while {other} is in flight: "
        rf"their groups share devices \[{', '.join(map(str, devices))}\]"
    )


#: A collective among rows of devices that is in flight from before a line until before another one.
def _long(first: str, last: str) -> Plant:
    return written(
        ahead(
            first, f"long-start = f32[8] all-reduce-start(x), channel_id=9, {_ROWS}, to_apply=sum"
        ),
        ahead(last, "long-done = f32[8] all-reduce-done(long-start)"),
    )


MODULES: tuple[Planted, ...] = (
    Planted(
        "a done before its start",
        "row-done is scheduled before row-start, which it needs",
        swap("row-start", "row-done"),
    ),
    Planted(
        "a wrapped done before its start",
        "scatter-done is scheduled before scatter-start",
        swap("scatter-start", "scatter-done"),
    ),
    Planted(
        "a permute's done before its start",
        "ring-done is scheduled before ring-start",
        swap("ring-start", "ring-done"),
    ),
    Planted(
        "a done before its start in a loop",
        "in-done is scheduled before in-start",
        swap("in-start", "in-done"),
    ),
    Planted(
        "a result read ahead of the wait for it",
        "big is scheduled before column-done",
        move("big", before="column-done"),
    ),
    Planted(
        "a start ahead of what it sends",
        "all-start is scheduled before few",
        move("all-start", before="few"),
    ),
    Planted(
        "a start ahead of the wait that it was to follow",
        "column-start is scheduled before row-done",
        edge("row-done", "column-start"),
    ),
    Planted(
        "a wait ahead of what it was to follow",
        "row-done is scheduled before k",
        edge("k", "row-done"),
    ),
    Planted(
        "a loop ahead of what it was to follow",
        "loop is scheduled before last",
        edge("last", "loop"),
    ),
    Planted(
        "a start that nobody waits for",
        "long-start has 0 all-reduce-done, expected one",
        written(
            ahead(
                "zero = ",
                f"long-start = f32[8] all-reduce-start(x), channel_id=9, {_ROWS}, to_apply=sum",
            )
        ),
    ),
    Planted(
        "a start that two wait for",
        "all-start has 2 all-gather-done, expected one",
        written(ahead("k = f32", "twice = f32[32] all-gather-done(all-start)")),
    ),
    Planted(
        "two reductions in flight with two common devices",
        _shared("column-start", "row-start", 0, 1),
        written((f"channel_id=2, {_COLUMNS}", f"channel_id=2, {_GROUPS}{{{{0,1,2}},{{3}}}}")),
    ),
    Planted(
        "a gather of all beside a reduction of some",
        _shared("all-start", "row-start", 0, 1),
        both(
            written(("all-gather-start(few)", "all-gather-start(x)")),
            move("all-start", before="column-start"),
        ),
    ),
    Planted(
        "a permute beside a gather of its devices",
        _shared("side-start", "all-start", 0, 1, 2),
        written(
            ahead(
                "m = f32",
                "side-start = (f32[8], f32[8]) collective-permute-start(few), channel_id=9, source_target_pairs={{0,2},{2,1}}",
            ),
            ahead("all-done = ", "side-done = f32[8] collective-permute-done(side-start)"),
        ),
    ),
    Planted(
        "a blocking reduction within the window of another one",
        _shared("side", "row-start", 0, 1),
        written(
            ahead("n = f32", f"side = f32[8] all-reduce(x), channel_id=9, {_ALL}, to_apply=sum")
        ),
    ),
    Planted(
        "a scatter beside a permute of its devices",
        _shared("side-start", "ring-start", 0, 1, 2, 3),
        written(
            ahead(
                "k = f32",
                f"side-start = ((f32[32]), f32[8]) reduce-scatter-start(all-done), channel_id=9, {_ALL}, dimensions={{0}}, to_apply=sum",
            ),
            ahead("ring-done = ", "side-done = f32[8] reduce-scatter-done(side-start)"),
        ),
    ),
    Planted(
        "a window across a loop that meets the same devices",
        _shared("in-start", "long-start", 0, 1),
        _long("zero = ", "me = "),
    ),
    Planted(
        "a window across a branch that meets the same devices",
        _shared("low", "long-start", 0, 1),
        _long("me = ", "last = "),
    ),
    Planted(
        "two windows of a loop's body",
        _shared("again-start", "in-start", 0, 1, 2, 3),
        both(
            written(("all-reduce-start(in-done)", "all-reduce-start(v)")),
            move("again-start", before="in-done"),
        ),
    ),
    Planted(
        "a branch that not all of a group take",
        r"group \(0, 1\): collective 1 is low on device 0 and high on device 1",
        written(("two = u32[] constant(2)", "two = u32[] constant(1)")),
    ),
    Planted(
        "a meeting of all within one branch",
        "is low on device 0 and last on device 2|is low on device 0 and nothing on device 2",
        written((f"channel_id=13, {_ROWS}", f"channel_id=13, {_ALL}")),
    ),
    Planted("one byte more than there is", _MEMORY, nothing, spare=-1),
    Planted(
        "a large value made ahead of its time",
        _MEMORY,
        move("wide", before="big"),
        spare=0,
    ),
)
