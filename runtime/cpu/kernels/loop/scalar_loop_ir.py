"""Native code of a loop of which every value is one element: its state stays in registers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.record_words import WORDS
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.codegen.llvm.jit import NativeLibrary, host_jit
from runtime.program.records.scalar_loop import ScalarLoop, Statement

FUNCTION = "spmd_scalar_loop"
#: Trips after which the code returns, with the predicate still true.
TRIPS = 4096


@cache
def scalar_loop_code(loop: ScalarLoop) -> NativeLibrary:
    """``FUNCTION``, which takes the address of a list of the places' addresses."""
    return host_jit().compile(scalar_loop_ir(loop), (FUNCTION,))


def scalar_loop_ir(loop: ScalarLoop) -> str:
    """Places are loaded once, and those that are written are stored when the code returns.

    Places may share bytes: the stores come in the order of the program's last writes.
    """
    types = [stored_type(kind) for kind in loop.kinds]
    statements = [*loop.condition, *loop.body]
    written = _by_last_write([*loop.body, *loop.condition])
    functions = [
        part
        for k, statement in enumerate(statements)
        for part in program_ir(statement.program, f"statement{k}")
    ]
    values = [f"%before{p}" if p in written else f"%first{p}" for p in range(len(types))]
    condition = _lines(loop.condition, 0, values, types)
    after_condition = list(values)
    body = _lines(loop.body, len(loop.condition), values, types)
    lines = [WORDS, *dict.fromkeys(functions), f"define void @{FUNCTION}(ptr %record) {{", "entry:"]
    for p, kind in enumerate(types):
        lines += [
            f"  %place{p} = call ptr @pointer(ptr %record, i64 {p})",
            f"  %first{p} = load {kind}, ptr %place{p}",
        ]
    lines += ["  br label %condition", "condition:"]
    lines += [
        f"  %before{p} = phi {types[p]} [ %first{p}, %entry ], [ {values[p]}, %body ]"
        for p in written
    ]
    lines += [
        f"  %left = phi i64 [ {TRIPS}, %entry ], [ %fewer, %body ]",
        *condition,
        f"  %holds = icmp ne i8 {after_condition[loop.predicate]}, 0",
        "  %patient = icmp ne i64 %left, 0",
        "  %goes_on = and i1 %holds, %patient",
        "  br i1 %goes_on, label %body, label %end",
        "body:",
        *body,
        "  %fewer = sub i64 %left, 1",
        "  br label %condition",
        "end:",
        *(f"  store {types[p]} {after_condition[p]}, ptr %place{p}" for p in written),
        "  ret void\n}",
    ]
    return "\n".join(lines)


def _by_last_write(statements: Sequence[Statement]) -> list[int]:
    last = {place: k for k, statement in enumerate(statements) for place in statement.writes}
    return sorted(last, key=lambda place: (last[place], place))


def _lines(
    statements: tuple[Statement, ...], first: int, values: list[str], types: list[str]
) -> list[str]:
    """The statements, after which ``values`` holds the places' new values."""
    lines = []
    for k, statement in enumerate(statements, first):
        struct = struct_type(statement.program)
        arguments = ", ".join(f"{types[p]} {values[p]}" for p in statement.reads)
        lines.append(f"  %all{k} = call {struct} @statement{k}({arguments})")
        for position, p in enumerate(statement.writes):
            lines.append(f"  %new{k}_{position} = extractvalue {struct} %all{k}, {position}")
            values[p] = f"%new{k}_{position}"
    return lines
