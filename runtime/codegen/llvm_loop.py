"""Native code of a loop: a scalar program at every index of a strided space, its innermost dimension vectorized.

Sizes, strides and addresses are words of a record, so that one code serves all shapes. What the code depends on is the
program, the number of dimensions, and how each array moves along the innermost one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

from runtime.codegen.element_operations import stored_type
from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.scalar_program import ScalarProgram, program_ir, struct_type

FUNCTION = "spmd_loop"


class Step(Enum):
    """How an array moves along the innermost dimension."""

    PACKED = "packed"
    REPEATED = "repeated"
    STRIDED = "strided"


@dataclass(frozen=True, slots=True)
class LoopForm:
    """leaves, results: how each moves. counted: leaves that are numbers (s64), not memory. rank: at least one."""

    program: ScalarProgram
    rank: int
    leaves: tuple[Step, ...]
    results: tuple[Step, ...]
    counted: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class LoopWords:
    """Starts (addresses, or first numbers) and strides (in bytes, or in ones) of leaves, then of results; sizes.

    The slowest dimension first. Numbers count by ones; nothing is written where a size is 0.
    """

    starts: Sequence[int]
    sizes: Sequence[int]
    strides: Sequence[Sequence[int]]

    def packed(self) -> list[int]:
        words = [*self.starts, *self.sizes]
        for strides in self.strides:
            words += strides
        return words


@cache
def loop_code(form: LoopForm) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words."""
    return host_jit().compile(loop_ir(form), (FUNCTION,), level=2, unroll=False)


def loop_ir(form: LoopForm) -> str:
    return _Loop(form).ir()


class _Loop:
    """Writes the function: a loop per dimension, in each a pointer (or number) per array that steps along."""

    def __init__(self, form: LoopForm) -> None:
        self.form = form
        program = form.program
        self.inputs = len(form.leaves)
        self.steps = (*form.leaves, *form.results)
        kinds = (*program.parameters, *(program.kind_of(r) for r in program.results))
        self.types = [stored_type(kind) for kind in kinds]
        self.counted = (*form.counted, *[False] * len(form.results))
        self.arrays = range(len(kinds))
        self.inner = form.rank - 1

    def ir(self) -> str:
        return "\n".join(
            [
                *dict.fromkeys(program_ir(self.form.program, "body")),
                f"define void @{FUNCTION}(ptr %record) {{",
                "entry:",
                *self.words(),
                f"  br label %{self.label(0)}",
                *(line for d in range(self.inner) for line in self.head(d)),
                *self.element_loop(),
                *(line for d in reversed(range(self.inner)) for line in self.tail(d)),
                "end:",
                "  ret void\n}",
                # Results lie on leaves element on element or not at all, so iterations are independent.
                "!0 = distinct !{}",
                "!1 = distinct !{!1, !2}",
                '!2 = !{!"llvm.loop.parallel_accesses", !0}',
            ]
        )

    def kind_of_cursor(self, i: int) -> str:
        return "i64" if self.counted[i] else "ptr"

    def words(self) -> list[str]:
        """%start, %size and %stride, all of them."""
        lines = []
        rank, count = self.form.rank, len(self.arrays)
        names = [(f"start{i}", self.kind_of_cursor(i)) for i in self.arrays]
        names += [(f"size{d}", "i64") for d in range(rank)]
        names += [(f"stride{i}_{d}", "i64") for i in self.arrays for d in range(rank)]
        assert len(names) == count + rank + count * rank
        for number, (name, kind) in enumerate(names):
            lines += [
                f"  %{name}_word = getelementptr i64, ptr %record, i64 {number}",
                f"  %{name} = load {kind}, ptr %{name}_word",
            ]
        return lines

    def label(self, d: int) -> str:
        return f"loop{d}" if d < self.inner else "row"

    def outer(self, i: int, d: int) -> str:
        """The cursor of array ``i`` where the loop over dimension ``d`` begins."""
        return f"%start{i}" if d == 0 else f"%at{i}_{d - 1}"

    def head(self, d: int) -> list[str]:
        before = "entry" if d == 0 else self.label(d - 1)
        lines = [
            f"{self.label(d)}:",
            f"  %n{d} = phi i64 [ 0, %{before} ], [ %next_n{d}, %next{d} ]",
        ]
        for i in self.arrays:
            kind = self.kind_of_cursor(i)
            lines.append(
                f"  %at{i}_{d} = phi {kind} [ {self.outer(i, d)}, %{before} ], [ %past{i}_{d}, %next{d} ]"
            )
        return [*lines, f"  br label %{self.label(d + 1)}"]

    def tail(self, d: int) -> list[str]:
        lines = [f"next{d}:"]
        for i in self.arrays:
            step = f"i64 %stride{i}_{d}"
            if self.counted[i]:
                lines.append(f"  %past{i}_{d} = add {step}, %at{i}_{d}")
            else:
                lines.append(f"  %past{i}_{d} = getelementptr i8, ptr %at{i}_{d}, {step}")
        after = f"next{d - 1}" if d else "end"
        return [
            *lines,
            f"  %next_n{d} = add nuw nsw i64 %n{d}, 1",
            f"  %more{d} = icmp ult i64 %next_n{d}, %size{d}",
            f"  br i1 %more{d}, label %{self.label(d)}, label %{after}",
        ]

    def element_loop(self) -> list[str]:
        """One row: what is repeated is read before it."""
        lines = ["row:"]
        repeated = [i for i in range(self.inputs) if self.steps[i] is Step.REPEATED]
        for i in repeated:
            lines += self.read(i, self.outer(i, self.inner), "")
        lines += [
            "  br label %element",
            "element:",
            "  %k = phi i64 [ 0, %row ], [ %next_k, %element ]",
        ]
        for i in range(self.inputs):
            if i not in repeated:
                lines += self.cursor(i)
                lines += self.read(i, f"%here{i}", ", !llvm.access.group !0")
        program, struct = self.form.program, struct_type(self.form.program)
        arguments = ", ".join(f"{self.types[i]} %x{i}" for i in range(self.inputs))
        lines.append(f"  %values = call {struct} @body({arguments})")
        for number in range(len(program.results)):
            i = self.inputs + number
            lines += [
                f"  %y{number} = extractvalue {struct} %values, {number}",
                *self.cursor(i),
            ]
        for number in range(len(program.results)):
            i = self.inputs + number
            lines.append(f"  store {self.types[i]} %y{number}, ptr %here{i}, !llvm.access.group !0")
        after = f"next{self.inner - 1}" if self.inner else "end"
        return [
            *lines,
            "  %next_k = add nuw nsw i64 %k, 1",
            f"  %more = icmp ult i64 %next_k, %size{self.inner}",
            f"  br i1 %more, label %element, label %{after}, !llvm.loop !1",
        ]

    def cursor(self, i: int) -> list[str]:
        """%here: element %k of the row."""
        row, stride = self.outer(i, self.inner), f"%stride{i}_{self.inner}"
        packed = self.steps[i] is Step.PACKED
        if self.counted[i]:
            way = [] if packed else [f"  %way{i} = mul i64 %k, {stride}"]
            return [*way, f"  %here{i} = add i64 {row}, {'%k' if packed else f'%way{i}'}"]
        if packed:
            return [f"  %here{i} = getelementptr {self.types[i]}, ptr {row}, i64 %k"]
        return [
            f"  %way{i} = mul i64 %k, {stride}",
            f"  %here{i} = getelementptr i8, ptr {row}, i64 %way{i}",
        ]

    def read(self, i: int, cursor: str, metadata: str) -> list[str]:
        """%x, of memory or the number itself."""
        if self.counted[i]:
            return [f"  %x{i} = add i64 {cursor}, 0"]
        return [f"  %x{i} = load {self.types[i]}, ptr {cursor}{metadata}"]
