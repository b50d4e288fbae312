"""Replacement of custom calls by the operations that they stand for: readers of a result read its value.

The operations stand where the call stood, so a schedule stays one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.library_calls.registry import Expansion, Values
from spmd.ops.checks import result_elements
from spmd.passes.fuel import Fuel
from spmd.passes.rewrite import builder_at, move_control_edges, put_in_place
from spmd.passes.while_state import element_index
from spmd.shape import TupleShape, as_array


def expand_calls(
    module: HloModule, fuel: Fuel, expansion_of: Callable[[HloInstruction], Expansion | None]
) -> bool:
    """Replace the custom calls that have an expansion. Returns whether there were any.

    Results that an expansion leaves out are workspaces; one that something reads becomes an array of any bytes.
    """
    scope = ModuleScope(module)
    changed = False
    for computation in module.computations_post_order():
        pairs = ((x, expansion_of(x)) for x in computation.with_opcode(Opcode.CUSTOM_CALL))
        sites = list(fuel.enough_for((x, expand) for x, expand in pairs if expand))
        if sites:
            _expand_in(computation, sites, scope)
            changed = True
    return changed


def _expand_in(
    computation: HloComputation,
    sites: Sequence[tuple[HloInstruction, Expansion]],
    scope: ModuleScope,
) -> None:
    order = {x: [x] for x in computation.instructions}
    for call, expand in sites:
        before = len(computation)
        b = builder_at(call, scope)
        values = expand(call, call.operands, b)
        _copy_shardings(call, values)
        readers = _readers(call, len(values))
        entire = None
        if not isinstance(call.shape, TupleShape):
            entire = values[0]
        elif call.num_users > len(readers) or computation.root is call:
            entire = _tuple_of(call, values, b)
        order[call] = list(computation.newest(len(computation) - before))
        for reader, value in ((x, values[element_index(x)]) for x in readers):
            move_control_edges(reader, value)
            value.sharding = reader.sharding or value.sharding
            computation.replace(reader, value)
        _remove(call, values[0], entire)
    computation.set_order(x for group in order.values() for x in group if x.parent is computation)


def _copy_shardings(call: HloInstruction, values: Values) -> None:
    """Give each result the sharding that the call states of it. In the program of one device only entry parameters and
    the root state any.
    """
    assert call.parent is not None
    module = call.parent.module
    if module is None or module.stage >= Stage.PARTITIONED:
        return
    if call.sharding is not None and isinstance(call.shape, TupleShape):
        parts = call.sharding.leaf_shardings(call.shape)
        for value, sharding in zip(values, parts, strict=False):
            value.sharding = sharding


def _readers(call: HloInstruction, count: int) -> list[HloInstruction]:
    """Return what takes one of the first ``count`` results out of the tuple."""
    takers = [x for x in call.users if x.opcode is Opcode.GET_TUPLE_ELEMENT]
    return [x for x in takers if element_index(x) < count]


def _tuple_of(call: HloInstruction, values: Values, b: Builder) -> HloInstruction:
    """Return all results, workspaces included."""
    workspaces = result_elements(call.shape)[len(values) :]
    uninitialized = [b.uninitialized(as_array(shape).without_layout()) for shape in workspaces]
    return b.tuple([*values, *uninitialized])


def _remove(call: HloInstruction, first: HloInstruction, entire: HloInstruction | None) -> None:
    """Replace ``call`` by ``entire`` where it is read as it is, and give its name to the first result."""
    assert call.parent is not None
    if entire is not None:
        put_in_place(call, entire)
    else:
        move_control_edges(call, first)
        call.parent.remove(call)
    first.name = call.name
