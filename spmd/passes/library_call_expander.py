"""Write calls of GPU libraries and of XLA's partitioner as the operations that they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.library_calls import FAMILIES  # noqa: F401 - fills the table
from spmd.library_calls.registry import Values, expanded, expansion_of
from spmd.ops.checks import result_elements
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, move_control_edges, put_in_place
from spmd.passes.while_state import element_index
from spmd.shape import TupleShape, as_array


@register_pass
@dataclass(frozen=True)
class LibraryCallExpander(FueledPass):
    """Replace custom calls of cuBLAS, cuBLASLt, cuDNN and CUB by dot, convolution, sort and elementwise operations.

    Calls that XLA's partitioner reads become slices, concatenations and paddings.

        c = (f32[4,8], s8[1024]) custom-call(x, y, bias),        d = f32[4,8] dot(x, y)
            custom_call_target="__cublas$lt$matmul",         =>  w = f32[4,8] broadcast(bias), dimensions={1}
            backend_config={.. "epilogue":"BIAS" ..}             r = f32[4,8] add(d, w)

    Readers of a result read its value; a workspace that something reads becomes an array of any bytes. A schedule stays
    one: the operations stand where the call stood.
    """

    name: ClassVar[str] = "library-call-expander"
    accepts: ClassVar[tuple[Stage, ...]] = tuple(Stage)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        scope = ModuleScope(module)
        changed = False
        for computation in module.computations_post_order():
            calls = (x for x in computation.with_opcode(Opcode.CUSTOM_CALL) if expansion_of(x))
            sites = list(fuel.enough_for(calls))
            if sites:
                _expand_in(computation, sites, scope)
                changed = True
        return changed


def _expand_in(
    computation: HloComputation, calls: Sequence[HloInstruction], scope: ModuleScope
) -> None:
    order = {x: [x] for x in computation.instructions}
    for call in calls:
        before = len(computation)
        b = builder_at(call, scope)
        values = expanded(call, call.operands, b)
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
    """Give each result the sharding that the call states of it."""
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
