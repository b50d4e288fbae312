"""Native code of a reduction of several arrays at once by a scalar program, such as the one of argmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from runtime.codegen.element_operations import stored_type
from runtime.codegen.llvm_jit import NativeLibrary, host_jit
from runtime.codegen.llvm_words import OFFSET, RANK, WORDS, digits, offset
from runtime.codegen.scalar_program import ScalarProgram, program_ir, struct_type

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
        WORDS,
        OFFSET,
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
        digits("kept_digit", "%k", [f"%kept{d}" for d in range(RANK)]),
        *(_moved(f"row{i}", "kept", word + 1, f"%operand{i}") for i, word in enumerate(operands)),
        *(_moved(f"to{i}", "kept", word + 1, f"%result{i}") for i, word in enumerate(results)),
        "  %empty = icmp eq i64 %reduced_count, 0",
        "  br i1 %empty, label %reduced_all, label %element",
        "element:",
        "  %r = phi i64 [ 0, %place ], [ %next_r, %element ]",
        *(
            f"  %total{i} = phi {kind} [ %start{i}, %place ], [ %combined{i}, %element ]"
            for i, kind in enumerate(types)
        ),
        digits("reduced_digit", "%r", [f"%reduced{d}" for d in range(RANK)]),
    ]
    for i, kind in enumerate(types):
        lines += [
            _moved(f"at{i}", "reduced", operands[i] + 1 + RANK, f"%row{i}"),
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


def _moved(result: str, which: str, first_word: int, base: str) -> str:
    """%{result}: ``base`` and its strides, from word ``first_word`` on, times the kept (or reduced) digits."""
    way = f"{result}_way"
    return (
        f"{offset(way, f'{which}_digit', first_word)}\n"
        f"  %{result} = getelementptr i8, ptr {base}, i64 %{way}"
    )
