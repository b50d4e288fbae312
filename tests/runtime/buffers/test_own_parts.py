"""Operands of all-gathers lie in results that are private anyway, results of reduce-scatters in what dies: own parts."""

from __future__ import annotations

import pytest

from collectives.communicator.kinds.all_gather import AllGather
from collectives.communicator.kinds.op import CollectiveOp
from runtime.buffers.checker.checker import check_buffers
from runtime.buffers.checker.overlap_rules import wrong_overlap
from runtime.buffers.types import ArrayView, BufferSlice
from runtime.executable import Executable
from runtime.program.strides import StridedView
from spmd.shape import ArrayShape, PrimitiveType
from tests.runtime.programs import OVER_OPERANDS, SUM, compiled, module_of

GROUPS = ((2, 0), (1, 3))
GATHER = CollectiveOp(GROUPS, AllGather((), 0))


def slices(executable: Executable) -> dict[str, BufferSlice]:
    return {value.name: value.slice for value in executable.program.assignment.values}


def test_a_part_lies_where_the_devices_place_in_its_group_says() -> None:
    own = BufferSlice(1, 64, 128, GROUPS)
    assert [own.start_on(device) for device in range(4)] == [192, 64, 64, 192]
    assert own.span == 256
    assert own.overlaps(BufferSlice(1, 256, 8))
    assert not own.overlaps(BufferSlice(1, 320, 8))
    assert BufferSlice(1, 256, 8).overlaps(own)


def test_operands_lie_in_the_output_and_in_the_donated_parameter() -> None:
    where = slices(compiled(OVER_OPERANDS, keep_order=True))
    for operand, result in (("tile", "own"), ("c", "back")):
        part, whole = where[operand], where[result]
        assert (part.allocation, part.offset, part.span) == (
            whole.allocation,
            whole.offset,
            whole.size,
        )
    assert where["c"].parts == GROUPS
    assert where["back"] == where["old"]
    assert not where["d"].parts
    assert not where["f"].parts


def test_a_result_lies_in_an_operand_that_dies() -> None:
    where = slices(compiled(OVER_OPERANDS, keep_order=True))
    part, whole = where["part"], where["g"]
    assert part.parts == ((1, 3, 0, 2),)
    assert (part.allocation, part.offset, part.span) == (whole.allocation, whole.offset, whole.size)
    assert where["some"] == part
    assert not where["apart"].parts


def test_permutes_write_over_their_operands() -> None:
    where = slices(compiled(OVER_OPERANDS, keep_order=True))
    assert where["late"] == where["y"] == where["end{1}"]


def scattered(tail: str, last: str = "") -> str:
    """A program with one reduce-scatter, and what is done with its result."""
    return f"""HloModule scattered, num_partitions=2
{SUM}
ENTRY main {{
  x = f32[1280] parameter(0)
  c = f32[1280] cosine(x)
  g = f32[640] reduce-scatter(c), channel_id=1, replica_groups={{{{1,0}}}}, use_global_device_ids=true, dimensions={{0}}, to_apply=sum
  {last}
  ROOT o = {tail}
}}
"""


def gathered(tail: str, dims: str = "[1280]", dimension: int = 0, last: str = "") -> str:
    """A program whose one all-gather makes an output."""
    part = {"[1280]": "[640]", "[4,320]": "[4,160]", "[60]": "[30]"}[dims]
    return f"""HloModule gathered, num_partitions=2

ENTRY main {{
  x = f32{part} parameter(0)
  c = f32{part} cosine(x)
  g = f32{dims} all-gather(c), channel_id=1, replica_groups={{{{0,1}}}}, use_global_device_ids=true, dimensions={{{dimension}}}
  {last}
  ROOT o = {tail}
}}
"""


def test_an_output_of_its_own() -> None:
    where = slices(compiled(gathered("(f32[1280]) tuple(g)"), keep_order=True))
    assert where["c"].overlaps(where["g"])


@pytest.mark.parametrize(
    "text",
    [
        gathered("(f32[1280], f32[640]) tuple(g, c)"),
        gathered("(f32[4,320]) tuple(g)", "[4,320]", 1),
        gathered("(f32[60]) tuple(g)", "[60]"),
        gathered("(f32[1280]) tuple(n)", last="n = f32[1280] reverse(g), dimensions={0}\n"),
        scattered("(f32[640]) tuple(g)"),
        scattered(
            "(f32[1280], f32[640]) tuple(e, d)",
            "e = f32[1280] sine(x)\n  d = f32[640] reverse(g), dimensions={0}",
        ),
    ],
    ids=[
        "used otherwise",
        "not whole",
        "parts off the lines",
        "not an output",
        "an output that would keep the whole",
        "more would live",
    ],
)
def test_elsewhere(text: str) -> None:
    where = slices(compiled(text, keep_order=True))
    assert not where["c"].parts
    assert not where["g"].parts


def test_what_is_gathered_of_a_part_does_not_lie_around_it() -> None:
    """A reduce-scatter leaves one of four parts, two devices gather two: half of the memory that the part lies in."""
    executable = compiled(
        f"""HloModule again, num_partitions=4
{SUM}
ENTRY main {{
  x = f32[1280] parameter(0)
  y = f32[640,10] parameter(1)
  e = f32[640,10] sine(y)
  m = f32[640,10] exponential(y)
  u = f32[640,10] add(e, m)
  z = f32[] constant(0)
  t = f32[640] reduce(u, z), dimensions={{1}}, to_apply=sum
  c = f32[1280] cosine(x)
  p = f32[320] reduce-scatter(c), channel_id=1, replica_groups={{{{1,0,2,3}}}}, use_global_device_ids=true, dimensions={{0}}, to_apply=sum
  g = f32[640] all-gather(p), channel_id=2, replica_groups={{{{0,1}},{{2,3}}}}, use_global_device_ids=true, dimensions={{0}}
  d = f32[640] reverse(g), dimensions={{0}}
  ROOT o = f32[640] add(d, t)
}}
""",
        keep_order=True,
    )
    where = slices(executable)
    assert where["p"].overlaps(where["c"])
    assert not where["g"].parts
    check_buffers(executable.module, executable.program)


PART = StridedView.dense(ArrayShape(PrimitiveType.F32, (32,)))


@pytest.mark.parametrize(
    ("place", "op", "is_right"),
    [
        (BufferSlice(0, 0, 128, GROUPS), GATHER, True),
        (BufferSlice(0, 0, 128, GROUPS[::-1]), GATHER, False),
        (BufferSlice(0, 0, 128, ((0, 2), (1, 3))), GATHER, False),
        (BufferSlice(0, 64, 128, GROUPS), GATHER, False),
        (BufferSlice(0, 0, 128), GATHER, False),
        (BufferSlice(0, 0, 128, GROUPS), None, False),
    ],
)
def test_the_checker_knows_the_part(
    place: BufferSlice, op: CollectiveOp | None, is_right: bool
) -> None:
    gather = module_of(gathered("(f32[1280]) tuple(g)")).entry.root.operand(0)
    wrong = wrong_overlap(gather, [ArrayView(place, PART)], [], [BufferSlice(0, 0, 256)], op)
    assert bool(wrong) is not is_right
