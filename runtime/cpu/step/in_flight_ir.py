"""Native code for the list of a table's collectives in flight, which have been started and not yet waited for.

A wait for one collective also advances all others in flight, since a peer may wait for this device in another
collective than the one in which this device waits. Messages between nodes make progress only while MPI is called, so a
program has points at which native code polls all collectives in flight (LOOK_AROUND). runtime/cpu/step/segment.py
chooses these points.
"""

from __future__ import annotations

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.internal_function import internal_function
from runtime.codegen.ir.module import Module
from runtime.cpu.step.clock_ir import now
from runtime.cpu.step.device_table import IN_FLIGHT, LOOKED, TableRecord

#: Least nanoseconds between two polls; a LOOK_AROUND before does nothing. A poll of messages takes 2 to 6 us (MPICH
#: over TCP), so in a loop with short trips polls take at most about a tenth of the time.
LOOK_NANOSECONDS = 50_000

ENTER_IN_FLIGHT, LEAVE_IN_FLIGHT, ADVANCE_ALL, LOOK_AROUND = (
    "enter_in_flight",
    "leave_in_flight",
    "advance_all",
    "look_around",
)


def add_in_flight_list(module: Module) -> None:
    """Add the functions of the list to ``module``, which must have a clock and ENTRY_POINTS.

    ENTER_IN_FLIGHT(table, header of a collective's program) adds the collective to the list. LEAVE_IN_FLIGHT(table,
    header) removes it if it is in the list. ADVANCE_ALL(table) advances all collectives in flight; failures are
    reported by the later wait for the collective. LOOK_AROUND(table) calls ADVANCE_ALL unless the last poll was less
    than LOOK_NANOSECONDS ago.
    """
    _add_enter_in_flight(module)
    _add_leave_in_flight(module)
    _add_advance_all(module)
    _add_look_around(module)


def _function(module: Module, name: str, *parameters: str, attributes: str = "") -> FunctionWriter:
    return internal_function(module, name, *parameters, record=TableRecord, attributes=attributes)


def _add_enter_in_flight(module: Module) -> None:
    f = _function(module, ENTER_IN_FLIGHT, "ptr")
    table, header = f.parameters
    flying = f.record.in_flight
    f.record.in_flight_list.element("ptr", flying).store(header)
    table.element("i64", IN_FLIGHT).store(flying + 1)
    f.finish()


def _add_leave_in_flight(module: Module) -> None:
    f = _function(module, LEAVE_IN_FLIGHT, "ptr")
    table, header = f.parameters
    flying, headers = f.record.in_flight, f.record.in_flight_list
    one_fewer = flying - 1
    with f.loop(flying, nonempty=False) as i:
        entry = headers.element("ptr", i)
        with f.when(entry.pointer().equals(header)):
            entry.store(headers.pointer(one_fewer))
            table.element("i64", IN_FLIGHT).store(one_fewer)
            f.ret()
    f.finish()


def _add_advance_all(module: Module) -> None:
    f = _function(module, ADVANCE_ALL)
    headers = f.record.in_flight_list
    with f.loop(f.record.in_flight, nonempty=False) as i:
        f.call("i64", "spmd_advance", headers.pointer(i), 0)
    f.finish()


def _add_look_around(module: Module) -> None:
    f = _function(module, LOOK_AROUND, attributes="noinline")
    (table,) = f.parameters
    with f.unless_zero(f.record.in_flight):
        looked = table.element("i64", LOOKED)
        time = now(f)
        with f.when((time - looked.word()).compared("uge", LOOK_NANOSECONDS)):
            looked.store(time)
            f.call("void", ADVANCE_ALL, table)
    f.finish()
