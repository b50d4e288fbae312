"""Fuse a short loop whose body is elementwise into one kernel, in which each element runs through all trips."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from runtime.fusion.element_graph import MAX_STEPS
from runtime.fusion.element_operations import is_elementwise, is_plain
from runtime.fusion.emitters import LOOP, emitted
from runtime.fusion.make_fusions import call_of
from runtime.fusion.plan_cache import store
from runtime.fusion.refusal import NoEmitterError
from spmd.analysis.call_sites import call_sites
from spmd.analysis.side_effects import SideEffects
from spmd.analysis.structure import StructuralKeys, computation_key
from spmd.analysis.trip_count import trip_count
from spmd.builder import Builder
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode, Stage
from spmd.hlo.clone import clone_computation
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import TupleIndexAttrs
from spmd.ops.opdef import definition
from spmd.passes.algebraic_simplifier import AlgebraicSimplifier
from spmd.passes.common_subexpression_elimination import CommonSubexpressionElimination
from spmd.passes.constant_folding import ConstantFolding
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.passes.loop_peeling import write_trips
from spmd.passes.pipeline import run_passes
from spmd.passes.rewrite import put_in_place
from spmd.passes.while_state import (
    Loop,
    element_index,
    match_loop,
    result_has_only_element_reads,
)

#: Number of program steps that a transcendental function counts as; another operation counts as one.
FUNCTION_STEPS = 16

#: Largest number of unrolled instructions before simplification, including scalar ones, which may fold to constants.
MOST_INSTRUCTIONS = 4 * MAX_STEPS

_SOURCES = (Opcode.CONSTANT, Opcode.IOTA)
#: Operations that keep each element at its index or repeat it, and operations without operands.
_IN_PLACE = (*_SOURCES, Opcode.BITCAST, Opcode.BROADCAST, Opcode.PARAMETER, Opcode.RESHAPE)
_STRUCTURE = (Opcode.GET_TUPLE_ELEMENT, Opcode.TUPLE)
#: Operations that may read constants, such as the table of a random generator: they fold once the trip is known.
_OF_CONSTANTS = (Opcode.DYNAMIC_SLICE, Opcode.SLICE)

_SIMPLIFICATION = (AlgebraicSimplifier(), ConstantFolding(), CommonSubexpressionElimination())


@register_pass
@dataclass(frozen=True)
class WhileLoopFusion(FueledPass):
    """while(a, b), n trips of body  =>  fusion(a, b), kind=kLoop, calls={body; body; .. n times}

    The trip count is known, the body is elementwise, and one kernel can hold all trips, with a transcendental function
    counted as ``FUNCTION_STEPS``. The state stays in registers, where the loop would write and read it in every trip.
    JAX's random numbers on a CPU are such loops of five trips. Equal loops call one computation.
    """

    name: ClassVar[str] = "while-loop-fusion"
    accepts: ClassVar[tuple[Stage, ...]] = (Stage.PARTITIONED, Stage.OPTIMIZED, Stage.SCHEDULED)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        sites, unrolling = call_sites(module), _Unrolling(module)
        changed = False
        for computation in module.computations_post_order():
            for x in computation.with_opcode(Opcode.WHILE):
                loop = None if fuel.is_spent else match_loop(x, sites)
                trips = None if loop is None else trip_count(x)
                if loop is None or trips is None or not _may_be_one_kernel(loop, trips):
                    continue
                if unrolling.fuse(loop, trips):
                    fuel.burn()
                    changed = True
        if changed:
            module.computations = module.computations_post_order()
        return changed


def _may_be_one_kernel(loop: Loop, trips: int) -> bool:
    """Return whether one kernel may hold ``trips`` trips of ``loop``, before they are written and simplified."""
    body, constants = loop.body.instructions, _constant_elements(loop)
    rest = [
        x for x in body if x.opcode not in _OF_CONSTANTS or not _is_element(x.operand(0), constants)
    ]
    return (
        trips > 0
        and result_has_only_element_reads(loop)
        and loop.instruction.num_users > 0
        and not SideEffects().inside(loop.condition)
        and all(map(is_plain, loop.initial))
        and all(x.opcode in (*_IN_PLACE, *_STRUCTURE) or is_elementwise(x.opcode) for x in rest)
        and sum(map(_steps, body)) * trips <= MAX_STEPS
        and len(body) * trips <= MOST_INSTRUCTIONS
    )


def _constant_elements(loop: Loop) -> set[int]:
    """Return the elements of the loop state that are constants in every trip, possibly permuted among each other."""
    found = {i for i, x in enumerate(loop.initial) if x.opcode is Opcode.CONSTANT}
    while moved := {i for i in found if not _is_element(loop.next_value(i), found)}:
        found -= moved
    return found


def _is_element(x: HloInstruction, elements: set[int]) -> bool:
    """Return whether ``x`` is one of the given elements of the loop's state."""
    return x.opcode is Opcode.GET_TUPLE_ELEMENT and element_index(x) in elements


def _steps(x: HloInstruction) -> int:
    """Return the number of program steps of ``x``. Scalars count as none, because they may fold to constants."""
    if not is_elementwise(x.opcode) or not x.dims:
        return 0
    return FUNCTION_STEPS if definition(x.opcode).cost(x).transcendentals else 1


class _Unrolling:
    """Unroller of the loops of one module. Equal loops share one fused computation."""

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._keys = StructuralKeys()
        self._fused: dict[Hashable, HloComputation | None] = {}

    def fuse(self, loop: Loop, trips: int) -> bool:
        """Replace ``loop`` by a fusion of ``trips`` trips, or by constants if its results fold to constants.

        Returns False, and changes nothing, if one kernel cannot hold all trips.
        """
        elements = sorted({element_index(user) for user in loop.instruction.users})
        kernel = _scratch()
        inputs = _write_state(loop.initial, Builder(kernel))
        state = computation_key(kernel, self._keys.key)
        key = (state, self._keys.key(loop.body), trips, tuple(elements))
        if key not in self._fused:
            self._fused[key] = self._unrolled(loop, trips, elements, kernel)
        fused = self._fused[key]
        if fused is None:
            return False
        made = _constants(fused) or [call_of(fused, inputs, LOOP, loop.instruction)]
        _put_in_place(loop.instruction, made, elements)
        return True

    def _unrolled(
        self, loop: Loop, trips: int, elements: Sequence[int], kernel: HloComputation
    ) -> HloComputation | None:
        """Return the computation of ``elements`` of the state after all trips, or None if no emitter takes it.

        The root of ``kernel`` is the initial state; the trips are written into ``kernel`` and simplified.
        """
        builder = Builder(kernel)
        *_, last = write_trips(loop, kernel.root.operands, builder, trips)
        results = [last[loop.next_value(i)] for i in elements]
        kernel.root = results[0] if len(results) == 1 else builder.tuple(results)
        kernel.remove_unused()
        assert kernel.module is not None
        run_passes(kernel.module, _SIMPLIFICATION)
        body = (x for x in kernel.instructions if x.opcode is not Opcode.TUPLE)
        if not all(x.opcode in _IN_PLACE or is_elementwise(x.opcode) for x in body):
            return None
        kernel.set_order(kernel.post_order())
        if all(x.opcode is Opcode.CONSTANT for x in kernel.root.elements):
            return kernel
        try:
            plan = emitted(kernel)
        except NoEmitterError:
            return None
        fused = clone_computation(kernel, self._module, lambda callee: callee)
        store(fused, plan)
        return fused


def _scratch() -> HloComputation:
    """Return an empty computation in a module of its own."""
    module = HloModule("trips")
    module.stage = Stage.OPTIMIZED
    module.entry = module.new_computation("fused_computation")
    return module.entry


def _write_state(initial: Sequence[HloInstruction], builder: Builder) -> list[HloInstruction]:
    """Write a tuple of ``initial`` as the root, and return the values for which it has parameters.

    Constants, iotas and broadcast constants are copied; every other value becomes a parameter.
    """
    inputs: list[HloInstruction] = []
    copies: dict[HloInstruction, HloInstruction] = {}

    def copy(x: HloInstruction) -> HloInstruction:
        if x in copies:
            return copies[x]
        if x.opcode in _SOURCES:
            made = builder.clone(x, ())
        elif x.opcode is Opcode.BROADCAST and x.operand(0).opcode is Opcode.CONSTANT:
            made = builder.clone(x, (copy(x.operand(0)),))
        else:
            made = builder.parameter(len(inputs), x.shape, f"param_{len(inputs)}")
            inputs.append(x)
        copies[x] = made
        return made

    builder.computation.root = builder.tuple([copy(x) for x in initial])
    return inputs


def _constants(fused: HloComputation) -> list[HloInstruction]:
    """Return copies of the results, in no computation yet, if all are constants; otherwise an empty list."""
    results = fused.root.elements
    if not all(x.opcode is Opcode.CONSTANT for x in results):
        return []
    return [x.clone(x.shape, ()) for x in results]


def _put_in_place(
    loop: HloInstruction, made: Sequence[HloInstruction], elements: Sequence[int]
) -> None:
    """Replace ``loop`` by ``made``: one result for each of ``elements``, or one tuple of all results."""
    computation, state = loop.parent, loop.operand(0)
    assert computation is not None
    order = list(computation.instructions)
    for x in made:
        computation.add(x)
    position = order.index(loop)
    computation.set_order([*order[:position], *made, *order[position:]])
    for user in loop.users:
        number = elements.index(element_index(user))
        if len(made) == len(elements):
            put_in_place(user, made[number])
        else:
            user.replace_operand(0, made[0])
            user.attrs = TupleIndexAttrs(number)
    computation.remove(loop)
    if not state.users:
        computation.remove(state)
