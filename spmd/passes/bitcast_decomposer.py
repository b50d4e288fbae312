"""Write bitcasts, which are defined by memory, as operations that are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from spmd.builder import ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.passes.bitcast_decomposition import decomposed, is_decomposed
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, is_pinned, put_in_place


@register_pass
@dataclass(frozen=True)
class BitcastDecomposer(FueledPass):
    """Replace bitcasts by the reshapes, transposes and bitcast-converts that they mean between their layouts.

        b = f32[30,20]{1,0} bitcast(f32[20,30]{0,1} x)  =>  b = transpose(x), dimensions={1,0}
        b = f32[8,16]{1,0} bitcast(f32[128]{0} x)       =>  b = reshape(x)
        b = u8[4,4]{1,0} bitcast(f32[4]{0} x)           =>  b = bitcast-convert(x)

    The passes that follow may then leave layouts out of account, so this one comes first. A schedule stays one: the
    instructions stand where the bitcast stood. Two kinds of bitcast remain: those with bounded dynamic dimensions, and
    those between elements of 6 and of 8 bits, which become bitcasts of rank 1.
    """

    name: ClassVar[str] = "bitcast-decomposer"
    accepts: ClassVar[tuple[Stage, ...]] = tuple(Stage)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        scope = ModuleScope(module)
        changed = False
        for computation in module.computations_post_order():
            bitcasts = filter(is_decomposed, computation.with_opcode(Opcode.BITCAST))
            sites = list(fuel.enough_for(bitcasts))
            if sites:
                _decompose_in(computation, sites, scope)
                changed = True
        return changed


def _decompose_in(
    computation: HloComputation, bitcasts: Sequence[HloInstruction], scope: ModuleScope
) -> None:
    order = {x: [x] for x in computation.instructions}
    for x in bitcasts:
        before = len(computation)
        b = builder_at(x, scope)
        b.annotations = x.annotations.of_parts()
        value = decomposed(x.operand(0), x.array_shape, b)
        if value is x.operand(0) and is_pinned(x):
            value = b.copy(value)
        made = list(computation.newest(len(computation) - before))
        _put_in_place(x, value, made)
        order[x] = made
    computation.set_order(x for group in order.values() for x in group)


def _put_in_place(
    bitcast: HloInstruction, value: HloInstruction, made: list[HloInstruction]
) -> None:
    """Give ``value`` the bitcast's uses, and its name and layout if it is one of those ``made`` for it."""
    assert bitcast.parent is not None
    if not made:
        bitcast.parent.replace(bitcast, value)
        return
    value.shape = bitcast.shape
    put_in_place(bitcast, value)
    value.name = bitcast.name
