"""Native code of one elementwise operation: a loop over strided arrays, its innermost dimension vectorized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

from runtime.codegen.element_operations import ElementSignature, operation_ir, stored_type
from runtime.codegen.llvm_jit import NativeLibrary, host_jit

#: Dimensions that the code counts in.
RANK = 4
FUNCTION = "spmd_elementwise"


class Step(Enum):
    """How an array moves along the innermost dimension."""

    PACKED = "packed"
    REPEATED = "repeated"
    STRIDED = "strided"


@dataclass(frozen=True, slots=True)
class ElementwiseWords:
    """Addresses of result and operands; sizes, the slowest dimension first; strides of each array in bytes."""

    arrays: Sequence[int]
    sizes: Sequence[int]
    strides: Sequence[Sequence[int]]

    def packed(self) -> list[int]:
        missing = RANK - len(self.sizes)
        words = [*self.arrays, *[1] * missing, *self.sizes]
        for strides in self.strides:
            words += [*[0] * missing, *strides]
        return words


@cache
def elementwise_code(signature: ElementSignature, steps: tuple[Step, ...]) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words. steps: of the result and of each operand."""
    ir = elementwise_ir(signature, steps)
    return host_jit().compile(ir, (FUNCTION,), level=2, unroll=False)


def elementwise_ir(signature: ElementSignature, steps: tuple[Step, ...]) -> str:
    count = 1 + len(signature.operands)
    types = [stored_type(kind) for kind in (signature.result, *signature.operands)]
    sizes, strides = count, count + RANK
    lines = [
        *operation_ir(signature),
        "define internal i64 @word(ptr %record, i64 %number) alwaysinline {",
        "  %p = getelementptr i64, ptr %record, i64 %number",
        "  %w = load i64, ptr %p",
        "  ret i64 %w\n}",
        f"define void @{FUNCTION}(ptr %record) {{",
        "entry:",
    ]
    for i in range(count):
        lines += [
            f"  %slot{i} = getelementptr ptr, ptr %record, i64 {i}",
            f"  %array{i} = load ptr, ptr %slot{i}",
            f"  %inner{i} = call i64 @word(ptr %record, i64 {strides + RANK * i + 3})",
        ]
    lines += [f"  %size{d} = call i64 @word(ptr %record, i64 {sizes + d})" for d in range(RANK)]
    lines += [
        "  %rows01 = mul i64 %size0, %size1",
        "  %rows = mul i64 %rows01, %size2",
        "  br label %row",
        "row:",
        "  %n = phi i64 [ 0, %entry ], [ %next_row, %row_done ]",
        "  %d2 = urem i64 %n, %size2",
        "  %left = udiv i64 %n, %size2",
        "  %d1 = urem i64 %left, %size1",
        "  %d0 = udiv i64 %left, %size1",
    ]
    for i in range(count):
        lines += [
            f"  %w{i}_{d} = call i64 @word(ptr %record, i64 {strides + RANK * i + d})"
            for d in range(3)
        ]
        lines += [f"  %m{i}_{d} = mul i64 %d{d}, %w{i}_{d}" for d in range(3)]
        lines += [
            f"  %s{i} = add i64 %m{i}_0, %m{i}_1",
            f"  %offset{i} = add i64 %s{i}, %m{i}_2",
            f"  %row{i} = getelementptr i8, ptr %array{i}, i64 %offset{i}",
        ]
    repeated = [i for i in range(1, count) if steps[i] is Step.REPEATED]
    lines += [f"  %x{i - 1} = load {types[i]}, ptr %row{i}" for i in repeated]
    lines += ["  br label %element", "element:", "  %k = phi i64 [ 0, %row ], [ %next, %element ]"]
    for i in range(count):
        if i not in repeated:
            lines += _place(i, types[i], steps[i])
    lines += [
        f"  %x{i - 1} = load {types[i]}, ptr %at{i}, !llvm.access.group !0"
        for i in range(1, count)
        if i not in repeated
    ]
    arguments = ", ".join(f"{types[i]} %x{i - 1}" for i in range(1, count))
    lines += [
        f"  %value = call {types[0]} @operation({arguments})",
        f"  store {types[0]} %value, ptr %at0, !llvm.access.group !0",
        "  %next = add nuw nsw i64 %k, 1",
        "  %more = icmp ult i64 %next, %size3",
        "  br i1 %more, label %element, label %row_done, !llvm.loop !1",
        "row_done:",
        "  %next_row = add i64 %n, 1",
        "  %more_rows = icmp ult i64 %next_row, %rows",
        "  br i1 %more_rows, label %row, label %end",
        "end:",
        "  ret void\n}",
        # The result lies on an operand element on element or not at all, so iterations are independent.
        "!0 = distinct !{}",
        "!1 = distinct !{!1, !2}",
        '!2 = !{!"llvm.loop.parallel_accesses", !0}',
    ]
    return "\n".join(lines)


def _place(i: int, kind: str, step: Step) -> list[str]:
    if step is Step.PACKED:
        return [f"  %at{i} = getelementptr {kind}, ptr %row{i}, i64 %k"]
    return [
        f"  %way{i} = mul i64 %k, %inner{i}",
        f"  %at{i} = getelementptr i8, ptr %row{i}, i64 %way{i}",
    ]
