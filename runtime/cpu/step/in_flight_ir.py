"""Native code for the collectives of a table that were started and not yet waited for: its list of them.

Everything in flight goes on while one of its collectives is waited for: a peer may wait for this device in another one
than this device waits in. Messages between nodes do not go on by themselves: MPI moves them while it is called. So
there are places in a program where native code looks at all that is in flight and goes on at once (LOOK_AROUND;
runtime/cpu/step/polling_points.py says where they are).
"""

from __future__ import annotations

from runtime.codegen.ir.function_writer import FunctionWriter
from runtime.codegen.ir.module import Module
from runtime.cpu.step.clock_ir import now
from runtime.cpu.step.table_record import IN_FLIGHT, LOOKED, TableRecord

#: Since the last look around, before another one does anything. A look at messages takes 2 to 6 us (MPICH over TCP), so
#: this keeps looks to a tenth of a loop whose trips are shorter.
LOOK_NANOSECONDS = 50_000

TAKE_OFF, LAND, ADVANCE_ALL, LOOK_AROUND = "take_off", "land", "advance_all", "look_around"


def add_flights(module: Module) -> None:
    """Add functions to a module that has a clock and ENTRY_POINTS. A failure shows in the wait for the collective.

    TAKE_OFF: (table, header of a collective's steps) enters it. LAND: the same, where it is there: it is over.
    ADVANCE_ALL: (table) lets everything go on that can. LOOK_AROUND: (table) the same, unless that was done just now.
    """
    _add_take_off(module)
    _add_land(module)
    _add_advance_all(module)
    _add_look_around(module)


def _function(module: Module, name: str, *parameters: str, attributes: str = "") -> FunctionWriter:
    return FunctionWriter(
        name,
        TableRecord,
        module=module,
        parameters=parameters,
        linkage="internal",
        attributes=attributes,
    )


def _add_take_off(module: Module) -> None:
    f = _function(module, TAKE_OFF, "ptr")
    table, header = f.parameters
    flying = f.record.in_flight
    f.record.flight_list.element("ptr", flying).store(header)
    table.element("i64", IN_FLIGHT).store(flying + 1)
    f.finish()


def _add_land(module: Module) -> None:
    f = _function(module, LAND, "ptr")
    table, header = f.parameters
    flying, headers = f.record.in_flight, f.record.flight_list
    one_fewer = flying - 1
    with f.loop(flying, nonempty=False) as i:
        place = headers.element("ptr", i)
        with f.when(place.pointer().equals(header)):
            place.store(headers.pointer(one_fewer))
            table.element("i64", IN_FLIGHT).store(one_fewer)
            f.ret()
    f.finish()


def _add_advance_all(module: Module) -> None:
    f = _function(module, ADVANCE_ALL)
    headers = f.record.flight_list
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
