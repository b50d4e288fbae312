"""Native code of a reduction of several arrays at once by a scalar program, such as the one of argmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.element_operations import stored_type
from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.scalar_program import ScalarProgram, program_ir, struct_type

#: Kept, and reduced, dimensions that the code counts in.
RANK = 4
FUNCTION = "spmd_reduce"


@dataclass(frozen=True, slots=True)
class ReduceWords:
    """Sizes and strides (in bytes), the slowest dimension first.

    operands: (address, strides along kept and along reduced dimensions). inits: addresses of scalars. results:
    (address, strides along kept dimensions).
    """

    kept: Sequence[int]
    reduced: Sequence[int]
    operands: Sequence[tuple[int, Sequence[int], Sequence[int]]]
    inits: Sequence[int]
    results: Sequence[tuple[int, Sequence[int]]]

    def packed(self) -> list[int]:
        words = [*_filled(self.kept, 1), *_filled(self.reduced, 1)]
        for address, kept, reduced in self.operands:
            words += [address, *_filled(kept, 0), *_filled(reduced, 0)]
        words += self.inits
        for address, kept in self.results:
            words += [address, *_filled(kept, 0)]
        return words


def _filled(values: Sequence[int], missing: int) -> list[int]:
    return [missing] * (RANK - len(values)) + list(values)


@cache
def reduce_code(program: ScalarProgram) -> NativeLibrary:
    """``FUNCTION``, which takes the address of packed words. The program combines totals, then elements."""
    return host_jit().compile(reduce_ir(program), (FUNCTION,), level=2, unroll=False)


def reduce_ir(program: ScalarProgram) -> str:
    """Totals start from the inits and take one element after the other, reduced dimensions in row-major order."""
    count = len(program.results)
    types = [stored_type(program.kind_of(r)) for r in program.results]
    operands = [2 * RANK + i * (1 + 2 * RANK) for i in range(count)]
    inits = 2 * RANK + count * (1 + 2 * RANK)
    results = [inits + count + i * (1 + RANK) for i in range(count)]
    totals = ", ".join(f"{kind} %total{i}" for i, kind in enumerate(types))
    elements = ", ".join(f"{kind} %element{i}" for i, kind in enumerate(types))
    lines = [
        *dict.fromkeys(program_ir(program, "combine")),
        _HELPERS,
        f"define void @{FUNCTION}(ptr %record) {{",
        "entry:",
        *(f"  %kept{d} = call i64 @word(ptr %record, i64 {d})" for d in range(RANK)),
        *(f"  %reduced{d} = call i64 @word(ptr %record, i64 {RANK + d})" for d in range(RANK)),
        *_product("kept"),
        *_product("reduced"),
        *_loaded("operand", operands),
        *_loaded("init", [inits + i for i in range(count)]),
        *_loaded("result", results),
        *(f"  %start{i} = load {kind}, ptr %init{i}" for i, kind in enumerate(types)),
        "  %none = icmp eq i64 %kept_count, 0",
        "  br i1 %none, label %end, label %place",
        "place:",
        "  %k = phi i64 [ 0, %entry ], [ %next_k, %stored ]",
        *_digits("kept", "%k"),
        *(_offset(f"row{i}", "kept", word + 1, f"%operand{i}") for i, word in enumerate(operands)),
        *(_offset(f"to{i}", "kept", word + 1, f"%result{i}") for i, word in enumerate(results)),
        "  %empty = icmp eq i64 %reduced_count, 0",
        "  br i1 %empty, label %reduced_all, label %element",
        "element:",
        "  %r = phi i64 [ 0, %place ], [ %next_r, %element ]",
        *(
            f"  %total{i} = phi {kind} [ %start{i}, %place ], [ %combined{i}, %element ]"
            for i, kind in enumerate(types)
        ),
        *_digits("reduced", "%r"),
    ]
    for i, kind in enumerate(types):
        lines += [
            _offset(f"at{i}", "reduced", operands[i] + 1 + RANK, f"%row{i}"),
            f"  %element{i} = load {kind}, ptr %at{i}",
        ]
    struct = struct_type(program)
    lines += [
        f"  %both = call {struct} @combine({totals}, {elements})",
        *(f"  %combined{i} = extractvalue {struct} %both, {i}" for i in range(count)),
        "  %next_r = add i64 %r, 1",
        "  %more_r = icmp ult i64 %next_r, %reduced_count",
        "  br i1 %more_r, label %element, label %reduced_all",
        "reduced_all:",
        *(
            f"  %value{i} = phi {kind} [ %start{i}, %place ], [ %combined{i}, %element ]"
            for i, kind in enumerate(types)
        ),
        "  br label %stored",
        "stored:",
        *(f"  store {kind} %value{i}, ptr %to{i}" for i, kind in enumerate(types)),
        "  %next_k = add i64 %k, 1",
        "  %more_k = icmp ult i64 %next_k, %kept_count",
        "  br i1 %more_k, label %place, label %end",
        "end:",
        "  ret void\n}",
    ]
    return "\n".join(lines)


def _product(name: str) -> list[str]:
    return [
        f"  %{name}_01 = mul i64 %{name}0, %{name}1",
        f"  %{name}_23 = mul i64 %{name}2, %{name}3",
        f"  %{name}_count = mul i64 %{name}_01, %{name}_23",
    ]


def _loaded(name: str, words: Sequence[int]) -> list[str]:
    lines = []
    for i, word in enumerate(words):
        lines += [
            f"  %{name}_slot{i} = getelementptr ptr, ptr %record, i64 {word}",
            f"  %{name}{i} = load ptr, ptr %{name}_slot{i}",
        ]
    return lines


def _digits(name: str, number: str) -> list[str]:
    """%name_digit0.. of a number over the sizes %name0.."""
    lines = []
    for d in range(RANK - 1, 0, -1):
        lines += [
            f"  %{name}_digit{d} = urem i64 {number}, %{name}{d}",
            f"  %{name}_left{d} = udiv i64 {number}, %{name}{d}",
        ]
        number = f"%{name}_left{d}"
    return [*lines, f"  %{name}_digit0 = add i64 {number}, 0"]


def _offset(result: str, digits: str, first_word: int, base: str) -> str:
    arguments = ", ".join(f"i64 %{digits}_digit{d}" for d in range(RANK))
    return f"  %{result} = call ptr @moved(ptr {base}, ptr %record, i64 {first_word}, {arguments})"


_HELPERS = """
define internal i64 @word(ptr %record, i64 %number) alwaysinline {
  %p = getelementptr i64, ptr %record, i64 %number
  %w = load i64, ptr %p
  ret i64 %w
}

define internal ptr @moved(
    ptr %base, ptr %record, i64 %first, i64 %d0, i64 %d1, i64 %d2, i64 %d3) alwaysinline {
  %n1 = add i64 %first, 1
  %n2 = add i64 %first, 2
  %n3 = add i64 %first, 3
  %s0 = call i64 @word(ptr %record, i64 %first)
  %s1 = call i64 @word(ptr %record, i64 %n1)
  %s2 = call i64 @word(ptr %record, i64 %n2)
  %s3 = call i64 @word(ptr %record, i64 %n3)
  %p0 = mul i64 %d0, %s0
  %p1 = mul i64 %d1, %s1
  %p2 = mul i64 %d2, %s2
  %p3 = mul i64 %d3, %s3
  %a = add i64 %p0, %p1
  %b = add i64 %p2, %p3
  %way = add i64 %a, %b
  %to = getelementptr i8, ptr %base, i64 %way
  ret ptr %to
}
"""
