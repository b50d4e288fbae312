"""Runs kernels that are written for a GPU on the processor: the same LLVM IR, every thread of every block.

The intrinsics that only a GPU has are functions here. Threads of a block that wait for each other are contexts of their
own (makecontext, POSIX.1-2001), each with a stack; a barrier or an exchange within a warp goes back to the scheduler,
which lets threads go on when all of their block, or of their warp, have come to the same kind of place.
"""

from __future__ import annotations

import ctypes
import itertools
import platform
import re
import sys
import threading
from functools import cache

import numpy as np
import pytest

from runtime.codegen.llvm.jit import NativeLibrary, Passes, host_jit
from runtime.gpu.codegen.launch import WARP, KernelSource

#: Bytes of a context, more than any C library's, and of a thread's stack.
CONTEXT, STACK = 8192, 1 << 16
#: Bytes behind a block's shared memory, which nobody may write.
BEYOND = 4096
READY, AT_BARRIER, AT_EXCHANGE, DONE = range(4)

needs_contexts = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="contexts are laid out as on 64-bit Linux",
)


class DivergenceError(AssertionError):
    """Threads that should meet do not come to the same place."""


#: The intrinsics, and threads in turn: one library for all kernels.
_SCHEDULER = f"""
@gpu.thread = global i32 0
@gpu.block = global i32 0
@gpu.kernel = global ptr null
@gpu.arguments = global ptr null
@gpu.status = global ptr null
@gpu.turns = global ptr null
@gpu.slots = global ptr null
@gpu.contexts = global ptr null
@gpu.main = global [{CONTEXT} x i8] zeroinitializer, align 64

declare i32 @getcontext(ptr)
declare i32 @swapcontext(ptr, ptr)
declare void @makecontext(ptr, ptr, i32, ...)

define i32 @gpu.read.ptx.sreg.tid.x() {{
  %t = load i32, ptr @gpu.thread
  ret i32 %t
}}
define i32 @gpu.read.ptx.sreg.ctaid.x() {{
  %b = load i32, ptr @gpu.block
  ret i32 %b
}}

define internal ptr @gpu.context(i32 %t) {{
  %all = load ptr, ptr @gpu.contexts
  %c = getelementptr [{CONTEXT} x i8], ptr %all, i32 %t
  ret ptr %c
}}
define internal ptr @gpu.place(i32 %t) {{
  %all = load ptr, ptr @gpu.status
  %s = getelementptr i32, ptr %all, i32 %t
  ret ptr %s
}}
define internal void @gpu.wait(i32 %status) noinline {{
  %t = load i32, ptr @gpu.thread
  %s = call ptr @gpu.place(i32 %t)
  store i32 %status, ptr %s
  %c = call ptr @gpu.context(i32 %t)
  %ignored = call i32 @swapcontext(ptr %c, ptr @gpu.main)
  ret void
}}
define void @gpu.barrier0() noinline {{
  call void @gpu.wait(i32 {AT_BARRIER})
  ret void
}}
; a slot for every thread, in turn one of two, so that nobody writes what another has yet to read
define internal i32 @gpu.exchanged(i32 %x, i32 %lane) noinline {{
  %t = load i32, ptr @gpu.thread
  %turns = load ptr, ptr @gpu.turns
  %turn_at = getelementptr i32, ptr %turns, i32 %t
  %turn = load i32, ptr %turn_at
  %next = xor i32 %turn, 1
  store i32 %next, ptr %turn_at
  %slots = load ptr, ptr @gpu.slots
  %own = getelementptr [2 x i32], ptr %slots, i32 %t, i32 %turn
  store i32 %x, ptr %own
  call void @gpu.wait(i32 {AT_EXCHANGE})
  %warp = and i32 %t, {-WARP}
  %from = or i32 %warp, %lane
  %other = getelementptr [2 x i32], ptr %slots, i32 %from, i32 %turn
  %y = load i32, ptr %other
  ret i32 %y
}}
define i32 @gpu.shfl.sync.bfly.i32(i32 %mask, i32 %x, i32 %way, i32 %most) noinline {{
  %t = load i32, ptr @gpu.thread
  %lane = and i32 %t, {WARP - 1}
  %other = xor i32 %lane, %way
  %y = call i32 @gpu.exchanged(i32 %x, i32 %other)
  ret i32 %y
}}
define i32 @gpu.shfl.sync.idx.i32(i32 %mask, i32 %x, i32 %lane, i32 %most) noinline {{
  %y = call i32 @gpu.exchanged(i32 %x, i32 %lane)
  ret i32 %y
}}

define internal void @gpu.body() noinline {{
  %kernel = load ptr, ptr @gpu.kernel
  %arguments = load ptr, ptr @gpu.arguments
  call void %kernel(ptr %arguments)
  call void @gpu.wait(i32 {DONE})
  ret void
}}

define void @gpu_prepare(ptr %kernel, ptr %arguments, ptr %status, ptr %turns, ptr %slots, ptr %contexts) {{
  store ptr %kernel, ptr @gpu.kernel
  store ptr %arguments, ptr @gpu.arguments
  store ptr %status, ptr @gpu.status
  store ptr %turns, ptr @gpu.turns
  store ptr %slots, ptr @gpu.slots
  store ptr %contexts, ptr @gpu.contexts
  ret void
}}
; all threads of a block that do not wait for each other
define void @gpu_simple_block(i32 %block, i32 %threads) {{
entry:
  store i32 %block, ptr @gpu.block
  %kernel = load ptr, ptr @gpu.kernel
  %arguments = load ptr, ptr @gpu.arguments
  br label %round
round:
  %t = phi i32 [ 0, %entry ], [ %next, %round ]
  store i32 %t, ptr @gpu.thread
  call void %kernel(ptr %arguments)
  %next = add i32 %t, 1
  %more = icmp ult i32 %next, %threads
  br i1 %more, label %round, label %end
end:
  ret void
}}
define void @gpu_begin(i32 %block, i32 %threads, ptr %stacks) {{
entry:
  store i32 %block, ptr @gpu.block
  br label %round
round:
  %t = phi i32 [ 0, %entry ], [ %next, %round ]
  %c = call ptr @gpu.context(i32 %t)
  %ignored = call i32 @getcontext(ptr %c)
  %link = getelementptr i8, ptr %c, i64 8
  store ptr null, ptr %link
  %stack_at = getelementptr i8, ptr %c, i64 16
  %stack = getelementptr [{STACK} x i8], ptr %stacks, i32 %t
  store ptr %stack, ptr %stack_at
  %size_at = getelementptr i8, ptr %c, i64 32
  store i64 {STACK}, ptr %size_at
  call void (ptr, ptr, i32, ...) @makecontext(ptr %c, ptr @gpu.body, i32 0)
  %s = call ptr @gpu.place(i32 %t)
  store i32 {READY}, ptr %s
  %next = add i32 %t, 1
  %more = icmp ult i32 %next, %threads
  br i1 %more, label %round, label %end
end:
  ret void
}}
; every thread that is ready, until it waits; the last one first if %turned
define void @gpu_turn(i32 %threads, i32 %turned) {{
entry:
  %last = sub i32 %threads, 1
  %backwards = icmp ne i32 %turned, 0
  br label %round
round:
  %n = phi i32 [ 0, %entry ], [ %next, %again ]
  %from_end = sub i32 %last, %n
  %t = select i1 %backwards, i32 %from_end, i32 %n
  %s = call ptr @gpu.place(i32 %t)
  %status = load i32, ptr %s
  %ready = icmp eq i32 %status, {READY}
  br i1 %ready, label %go, label %again
go:
  store i32 %t, ptr @gpu.thread
  %c = call ptr @gpu.context(i32 %t)
  %ignored = call i32 @swapcontext(ptr @gpu.main, ptr %c)
  br label %again
again:
  %next = add i32 %n, 1
  %more = icmp ult i32 %next, %threads
  br i1 %more, label %round, label %end
end:
  ret void
}}
"""

#: The intrinsics that call the scheduler, as kernels declare them.
_INTRINSICS = {
    "gpu.read.ptx.sreg.tid.x": "declare i32 @gpu.read.ptx.sreg.tid.x()",
    "gpu.read.ptx.sreg.ctaid.x": "declare i32 @gpu.read.ptx.sreg.ctaid.x()",
    "gpu.barrier0": "declare void @gpu.barrier0()",
    "gpu.shfl.sync.bfly.i32": "declare i32 @gpu.shfl.sync.bfly.i32(i32, i32, i32, i32)",
    "gpu.shfl.sync.idx.i32": "declare i32 @gpu.shfl.sync.idx.i32(i32, i32, i32, i32)",
}


@cache
def _scheduler() -> NativeLibrary:
    exports = ("gpu_prepare", "gpu_simple_block", "gpu_begin", "gpu_turn", *_INTRINSICS)
    return host_jit().compile(_SCHEDULER, exports, passes=Passes.CALL)


#: Arithmetic of bf16, for which LLVM would call functions that the processor's libraries may not have.
_SHORT = "".join(
    f"""
define internal bfloat @gpu.{operation}.bf16(bfloat %a, bfloat %b) alwaysinline {{
  %x = fpext bfloat %a to float
  %y = fpext bfloat %b to float
  %z = {operation} float %x, %y
  %r = call bfloat @gpu.f2bf16.rn(float %z)
  ret bfloat %r
}}
"""
    for operation in ("fadd", "fmul", "fsub")
)
_SHORT_ARITHMETIC = re.compile(r"= (fadd|fmul|fsub) bfloat (\S+), (\S+)")


def _emulation(entry: str, parameters: int) -> str:
    """Return the code beside a kernel: its call, and the intrinsic that is inlined."""
    loads = "\n".join(
        f"  %at{n} = getelementptr ptr, ptr %arguments, i64 {n}\n  %p{n} = load ptr, ptr %at{n}"
        for n in range(parameters)
    )
    call = f"call void @{entry}({', '.join(f'ptr %p{n}' for n in range(parameters))})"
    return f"""
define internal bfloat @gpu.f2bf16.rn(float %x) alwaysinline {{
  %bits = bitcast float %x to i32
  %high = lshr i32 %bits, 16
  %odd = and i32 %high, 1
  %half = add i32 %odd, 32767
  %near = add i32 %bits, %half
  %cut = lshr i32 %near, 16
  %nan = fcmp uno float %x, %x
  %r = select i1 %nan, i32 32767, i32 %cut
  %short = trunc i32 %r to i16
  %y = bitcast i16 %short to bfloat
  ret bfloat %y
}}

{_SHORT}
declare double @exp2(double)
define internal float @gpu.ex2.approx.ftz.f(float %x) alwaysinline {{
  %wide = fpext float %x to double
  %power = call double @exp2(double %wide)
  %near = fptrunc double %power to float
  %small = fcmp olt float %near, 0x3810000000000000
  %y = select i1 %small, float 0.0, float %near
  ret float %y
}}
define internal float @gpu.rcp.approx.ftz.f(float %x) alwaysinline {{
  %zero = call float @llvm.copysign.f32(float 0.0, float %x)
  %size = call float @llvm.fabs.f32(float %x)
  %denormal = fcmp olt float %size, 0x3810000000000000
  %from = select i1 %denormal, float %zero, float %x
  %quotient = fdiv float 1.0, %from
  %inverse = call float @llvm.fabs.f32(float %quotient)
  %small = fcmp olt float %inverse, 0x3810000000000000
  %finite = fcmp olt float %inverse, 0x7FF0000000000000
  %bits = bitcast float %quotient to i32
  ; an error of one unit in the last place, up or down
  %other = xor i32 %bits, 1
  %beside = bitcast i32 %other to float
  %near = select i1 %finite, float %beside, float %quotient
  %y = select i1 %small, float %zero, float %near
  ret float %y
}}
define internal float @gpu.saturate.f(float %x) alwaysinline {{
  %positive = fcmp ogt float %x, 0.0
  %low = select i1 %positive, float %x, float 0.0
  %above = fcmp ogt float %low, 1.0
  %y = select i1 %above, float 1.0, float %low
  ret float %y
}}

define ptr @gpu_shared() {{
  ret ptr addrspacecast (ptr addrspace(3) @shared to ptr)
}}

define void @gpu_run(ptr %arguments) {{
{loads}
  {call}
  ret void
}}
"""


@cache
def _compiled(ir: str, entry: str, parameters: int) -> tuple[NativeLibrary, int]:
    """Return the compiled kernel, and the bytes of shared memory of a block."""
    lines = [line for line in ir.splitlines() if not line.startswith(("declare", "!"))]
    declared = [x for x in ir.splitlines() if x.startswith("declare") and "@llvm.nvvm." not in x]
    text = "\n".join([*declared, *_INTRINSICS.values(), *lines])
    text = text.replace("@llvm.nvvm.", "@gpu.").replace("ptx_kernel ", "internal ")
    text = _SHORT_ARITHMETIC.sub(r"= call bfloat @gpu.\1.bf16(bfloat \2, bfloat \3)", text)
    # Other threads write it, too; nobody writes beyond it.
    shared = re.search(r"@shared = internal addrspace\(3\) global \[(\d+) x i8\] poison", text)
    size = int(shared[1]) if shared else 0
    if shared:
        text = text.replace(shared[0], _shared(size))
    else:
        text += f"\n{_shared(0)}, align 16\n"
    emulation = _emulation(entry, parameters)
    # Most kernels run once, over small arrays: making better code takes longer than it saves.
    symbols = dict.fromkeys(_INTRINSICS, _scheduler())
    exports = ("gpu_shared", "gpu_run")
    return host_jit().compile(text + emulation, exports, symbols, passes=Passes.CALL), size


def _shared(size: int) -> str:
    return f"@shared = addrspace(3) global [{size + BEYOND} x i8] undef"


#: Who runs now stands in one place, for all devices of this process.
_ONE_AT_A_TIME = threading.Lock()


def run_source(source: KernelSource, pointers: list[int]) -> None:
    """The whole grid, one block after the other."""
    with _ONE_AT_A_TIME:
        _run(source, pointers)


def _run(source: KernelSource, pointers: list[int]) -> None:
    library, size = _compiled(source.ir, source.entry, len(pointers))
    shared = library.function("gpu_shared", ctypes.c_void_p)()
    beyond = np.ctypeslib.as_array((ctypes.c_uint8 * BEYOND).from_address(shared + size))
    beyond[:] = 0xA5
    _run_grid(source, pointers, library)
    assert (beyond == 0xA5).all(), "written beyond shared memory"


def _run_grid(source: KernelSource, pointers: list[int], library: NativeLibrary) -> None:
    i32, ptr = ctypes.c_int32, ctypes.c_void_p
    threads = source.threads
    assert threads % WARP == 0
    assert 0 < source.blocks < 1 << 31
    assert threads <= 1024
    arguments = np.array([*pointers, 0], np.uint64)
    status = np.zeros(threads, np.int32)
    turns, slots = np.zeros(threads, np.int32), np.zeros((threads, 2), np.int32)
    contexts = np.zeros(threads * CONTEXT + 64, np.uint8)
    first = contexts.ctypes.data + -contexts.ctypes.data % 64
    scheduler = _scheduler()
    prepare = scheduler.function("gpu_prepare", None, *[ptr] * 6)
    data = (a.ctypes.data for a in (arguments, status, turns, slots))
    prepare(library.address("gpu_run"), *data, first)
    body = source.ir
    if (
        "call void @llvm.nvvm.barrier0" not in body
        and "@llvm.nvvm.shfl.sync" not in body.split("define ptx_kernel")[1]
    ):
        simple = scheduler.function("gpu_simple_block", None, i32, i32)
        for block in range(source.blocks):
            simple(block, threads)
        return
    stacks = np.empty(threads * STACK, np.uint8)
    begin = scheduler.function("gpu_begin", None, i32, i32, ptr)
    turn = scheduler.function("gpu_turn", None, i32, i32)
    for block in range(source.blocks):
        begin(block, threads, stacks.ctypes.data)
        # In either order: what threads that do not wait for each other do must not depend on it.
        for number in itertools.count(block):
            turn(threads, number % 2)
            if (status == DONE).all():
                break
            _let_go(status)


def _let_go(status: np.ndarray) -> None:
    """Threads that have all that they wait for are ready again."""
    warps = status.reshape(-1, WARP)
    exchanging = (warps == AT_EXCHANGE).all(axis=1)
    if exchanging.any():
        warps[exchanging] = READY
        return
    # On a GPU, too, threads that have ended do not keep others from passing a barrier.
    if ((status == AT_BARRIER) | (status == DONE)).all():
        status[status == AT_BARRIER] = READY
        return
    raise DivergenceError(f"threads wait at different places: {status.tolist()}")
