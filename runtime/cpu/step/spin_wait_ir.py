"""LLVM IR of who waits by looking again and again, for the modules that do."""

from __future__ import annotations

import platform

#: The instruction that tells a core that it is in a spin loop: the intrinsic's declaration, and its call.
_SPIN_HINTS = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_DECLARATION, _HINT = _SPIN_HINTS.get(platform.machine(), ("", ""))

WAITS = f"""
{_DECLARATION}
declare i32 @sched_yield()

define internal void @pause() alwaysinline {{
  {_HINT}
  ret void
}}

define internal void @give_way(i64 %looks, i64 %patience) alwaysinline {{
entry:
  %soon = icmp ult i64 %looks, %patience
  br i1 %soon, label %spin, label %yield
spin:
  call void @pause()
  ret void
yield:
  %y = call i32 @sched_yield()
  ret void
}}
"""
"""``@pause()``: between two looks. ``@give_way(looks, patience)``: the same; after that many, give up the core."""
