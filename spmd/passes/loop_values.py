"""Values of a loop's body that follow from some elements of its state alone, and copies of what they are made from."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set

from spmd.analysis.side_effects import SideEffects
from spmd.builder import Builder
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.hlo.opcode_roles import CALLERS, DEVICE_IDS
from spmd.passes.while_state import Loop, add_elements, element_index, is_element_of

_STAY = CALLERS | {Opcode.PARAMETER, Opcode.OPT_BARRIER, *KIND}
_MADE_HERE = frozenset({Opcode.CONSTANT, Opcode.IOTA})
#: Ops without operands whose result is the same in all trips of a loop, though not on all devices.
SAME_IN_ALL_TRIPS = _MADE_HERE | DEVICE_IDS


def determined_instructions(
    loop: Loop,
    elements: Set[int],
    effects: SideEffects,
    made_here: frozenset[Opcode] = _MADE_HERE,
) -> dict[HloInstruction, None]:
    """Return the instructions of the body that depend only on state ``elements`` and on ``made_here``, in post-order.

    Neither collectives nor what has an effect, an order among others, or computations of its own to run.
    """
    parameter = loop.body.parameters[0]
    determined: dict[HloInstruction, None] = {}
    for x in loop.body.post_order():
        if is_element_of(x, parameter):
            if element_index(x) in elements:
                determined[x] = None
            continue
        if x.opcode in _STAY or x.has_control_edges or effects.of(x) or x.is_root:
            continue
        of_these = x.operands and all(operand in determined for operand in x.operands)
        if x.opcode in made_here or of_these:
            determined[x] = None
    return determined


def cone(x: HloInstruction, known: Container[HloInstruction] = ()) -> list[HloInstruction]:
    """Return ``x`` and all values of the body that it depends on, operands first. State elements and ``known`` values
    are leaves.
    """
    order: list[HloInstruction] = []
    seen: set[HloInstruction] = set()
    stack: list[tuple[HloInstruction, bool]] = [(x, False)]
    while stack:
        value, ready = stack.pop()
        if ready:
            order.append(value)
            continue
        if value in seen:
            continue
        seen.add(value)
        stack.append((value, True))
        if value not in known and not _is_element(value):
            stack.extend((operand, False) for operand in reversed(value.operands))
    return order


def _is_element(x: HloInstruction) -> bool:
    return x.opcode is Opcode.GET_TUPLE_ELEMENT and x.operand(0).opcode is Opcode.PARAMETER


def copy_cones(
    values: Iterable[HloInstruction],
    element: Callable[[HloInstruction], HloInstruction],
    builder: Builder,
    known: Mapping[HloInstruction, HloInstruction] | None = None,
) -> dict[HloInstruction, HloInstruction]:
    """Copy ``values`` and all values that they depend on, by ``builder``.

    ``element``: gives the replacement of a read of the state. ``known``: replacements of other values.
    """
    copies = dict(known or {})
    for value in values:
        for x in cone(value, copies):
            if x in copies:
                continue
            if _is_element(x):
                copies[x] = element(x)
            else:
                copies[x] = builder.clone(x, [copies[operand] for operand in x.operands])
    return copies


def compute_before(loop: Loop, values: Sequence[HloInstruction], builder: Builder) -> Loop:
    """Add ``values`` to the loop's state, computed before the loop. They depend on elements that no trip changes.

    The values that they depend on are copied by ``builder`` to the computation of the loop.
    """
    outside = copy_cones(values, lambda x: loop.initial[element_index(x)], builder)
    loop, carried = add_elements(loop, [outside[value] for value in values], builder)
    for value, element in zip(values, carried, strict=True):
        value.replace_all_uses_with(element)
    loop.body.remove_unused(keep=lambda x: x not in outside)
    return loop
