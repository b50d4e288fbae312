"""Functions that split runs of elements into bf16 parts: whole vectors first, then what is left of a run."""

from __future__ import annotations

from runtime.codegen.ir.record_words import again

#: Bytes: half a page, for beyond its end the processor itself does not look.
_AHEAD = 2048


def runs_ir(name: str, width: int, word: str, arguments: tuple[str, ...] = ()) -> str:
    """``@name(to, part_bytes, from, <arguments>, runs, count, from_step, to_step, most)``: runs of ``count`` elements.

    word: IR type that an element is stored as. ``@name_whole(to, part_bytes, from, <arguments>, before)`` splits
    ``width`` elements and gives the largest magnitudes with those ``before``; ``@name_some``, which takes an i64
    behind that, as many as this says, fewer than ``width``.
    """
    more = "".join(f"{argument}, " for argument in arguments)
    return f"""
define internal void @{name}(ptr %to, i64 %part_bytes, ptr %from, {more}i64 %runs, i64 %count, i64 %from_step,
    i64 %to_step, ptr %most) alwaysinline {{
entry:
  %most_before = load <16 x i32>, ptr %most
  %whole = and i64 %count, -{width}
  %left = and i64 %count, {width - 1}
  %any_whole = icmp ne i64 %whole, 0
  %any_left = icmp ne i64 %left, 0
  br label %run
run:
  %r = phi i64 [ 0, %entry ], [ %next_r, %run_done ]
  %from_r = phi ptr [ %from, %entry ], [ %next_from, %run_done ]
  %to_r = phi ptr [ %to, %entry ], [ %next_to, %run_done ]
  %most_r = phi <16 x i32> [ %most_before, %entry ], [ %most_done, %run_done ]
  br i1 %any_whole, label %vectors, label %rest
vectors:
  %i = phi i64 [ 0, %run ], [ %next_i, %vectors ]
  %largest = phi <16 x i32> [ %most_r, %run ], [ %larger, %vectors ]
  %from_i = getelementptr float, ptr %from_r, i64 %i
  %to_i = getelementptr {word}, ptr %to_r, i64 %i
  %larger = call <16 x i32> @{name}_whole(ptr %to_i, i64 %part_bytes, ptr %from_i, {more}<16 x i32> %largest)
{again("i", "whole", "vectors", "rest", width)}
rest:
  %most_here = phi <16 x i32> [ %most_r, %run ], [ %larger, %vectors ]
  br i1 %any_left, label %some, label %run_done
some:
  %from_left = getelementptr float, ptr %from_r, i64 %whole
  %to_left = getelementptr {word}, ptr %to_r, i64 %whole
  %most_left = call <16 x i32> @{name}_some(
    ptr %to_left, i64 %part_bytes, ptr %from_left, {more}<16 x i32> %most_here, i64 %left)
  br label %run_done
run_done:
  %most_done = phi <16 x i32> [ %most_here, %rest ], [ %most_left, %some ]
  %next_from = getelementptr i8, ptr %from_r, i64 %from_step
  %next_to = getelementptr i8, ptr %to_r, i64 %to_step
{again("r", "runs", "run", "end")}
end:
  store <16 x i32> %most_done, ptr %most
  ret void
}}
"""


def fetched_ahead(*places: str) -> str:
    """Lines that fetch what is split some rounds after what lies at these places."""
    return "\n".join(
        f"  %ahead{i} = getelementptr i8, ptr %{place}, i64 {_AHEAD}\n"
        f"  call void @llvm.prefetch.p0(ptr %ahead{i}, i32 0, i32 3, i32 1)"
        for i, place in enumerate(places)
    )
