"""Native code that walks over places of convolutions' operands, one outer index after the other.

A *place* is five words: bytes in the input, the index of each of three spatial dimensions there (which may lie outside:
padding), and bytes in another array.
"""

from __future__ import annotations

from runtime.codegen.ir.record_words import RecordLayout, digits

#: Words of a place, and of places as they are walked: the last digit stands before it.
PLACE = 5
#: Words of a unit: the place, taps side by side, numbers of each, bytes in w from a tap to the next, numbers of all
#: taps.
UNIT = PLACE + 4


def walking_ir(record: RecordLayout) -> str:
    """``@seek``: the place of an outer index; ``@step``: that of the next one."""
    parts = "\n".join(_part(part) for part in range(PLACE))
    steps = "\n".join(
        f"""  %p{i} = getelementptr i64, ptr %place, i64 {1 + i}
  %v{i} = load i64, ptr %p{i}
  %s{i} = call i64 @word(ptr %outer, i64 {4 * PLACE + i})
  %n{i} = add i64 %v{i}, %s{i}
  store i64 %n{i}, ptr %p{i}"""
        for i in range(PLACE)
    )
    return f"""
define internal void @seek(ptr %record, i64 %number, ptr %place) noinline {{
{record.read("size1", "size2", "size3", "outer")}
{digits("d", "%number", ["", "%size1", "%size2", "%size3"])}
  store i64 %d3, ptr %place
{parts}
  ret void
}}

define internal void @step(ptr %record, i64 %next, ptr %place) alwaysinline {{
{record.read("size3", "outer")}
  %digit = load i64, ptr %place
  %after = add i64 %digit, 1
  %is_along = icmp ult i64 %after, %size3
  br i1 %is_along, label %along, label %anew
along:
  store i64 %after, ptr %place
{steps}
  ret void
anew:
  call void @seek(ptr %record, i64 %next, ptr %place)
  ret void
}}
"""


def _part(part: int) -> str:
    """Return IR that loads one part of the start and of the steps of four dimensions."""
    lines = [f"  %a{part}_0 = call i64 @word(ptr %outer, i64 {part})"]
    for d in range(4):
        lines += [
            f"  %w{part}_{d} = call i64 @word(ptr %outer, i64 {(1 + d) * PLACE + part})",
            f"  %m{part}_{d} = mul i64 %d{d}, %w{part}_{d}",
            f"  %a{part}_{d + 1} = add i64 %a{part}_{d}, %m{part}_{d}",
        ]
    return "\n".join(
        [
            *lines,
            f"  %to{part} = getelementptr i64, ptr %place, i64 {1 + part}",
            f"  store i64 %a{part}_4, ptr %to{part}",
        ]
    )
