"""Native code of a loop whose values are all single elements: its state stays in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.codegen.ir.element_operations import stored_type
from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.codegen.ir.scalar_program_ir import program_ir, struct_type
from runtime.cpu.kernels.loop.scalar_loop import FUNCTION, TRIPS, ScalarLoopRecord
from runtime.program.records.scalar_loop import ScalarLoop, Statement


def scalar_loop_ir(loop: ScalarLoop) -> str:
    """Return the IR of ``scalar_loop_code``.

    The function loads each element once, and stores the elements that the loop writes before it returns. Elements may
    share bytes, so the stores are in the order of the last writes.
    """
    types = [stored_type(kind) for kind in loop.kinds]
    module = Module()
    for k, statement in enumerate([*loop.condition, *loop.body]):
        module.add(program_ir(statement.program, f"statement{k}"))
    f = FunctionWriter(FUNCTION, ScalarLoopRecord, module=module, addresses=len(types))
    addresses = f.record.addresses
    values = [address.load(kind) for address, kind in zip(addresses, types, strict=True)]
    written = _by_last_write([*loop.body, *loop.condition])
    with f.repeat(*(values[p] for p in written), TRIPS) as rounds:
        *before, left = rounds.values
        for p, value in zip(written, before, strict=True):
            values[p] = value
        _write(f, loop.condition, 0, values)
        after_condition = list(values)
        holds = values[loop.predicate].differs(0)
        rounds.leave(~(holds & left.differs(0)))
        _write(f, loop.body, len(loop.condition), values)
        rounds.again(*(values[p] for p in written), left - 1)
    for p in written:
        addresses[p].store(after_condition[p])
    return f.end()


def _by_last_write(statements: Sequence[Statement]) -> list[int]:
    """Return the numbers of the elements that ``statements`` write, sorted by the last statement that writes each."""
    last = {number: k for k, statement in enumerate(statements) for number in statement.writes}
    return sorted(last, key=lambda number: (last[number], number))


def _write(
    f: FunctionWriter, statements: Sequence[Statement], first: int, values: list[Any]
) -> None:
    """Write the calls of ``statements``, which are numbered from ``first`` on, and set ``values`` to their results."""
    for k, statement in enumerate(statements, first):
        arguments = [values[p] for p in statement.reads]
        struct, count = struct_type(statement.program), len(statement.writes)
        results = f.results(struct, count, f"statement{k}", *arguments)
        for p, result in zip(statement.writes, results, strict=True):
            values[p] = result
