"""Shrinking of a module that fails: cut out what matters, drop outputs, cut instructions out, forget annotations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from spmd.hlo.clone import clone_module
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import Annotations, HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ParameterAttrs
from spmd.shape import ArrayShape, TupleShape
from spmd.shape_compatibility import compatible

#: Opcodes of which a manual region needs one. Otherwise it may return a value that differs between devices, and the
#: program would be invalid.
_MAKES_EQUAL = (Opcode.ALL_REDUCE, Opcode.ALL_GATHER, Opcode.CALL)

#: Distances, in operands, between a cut and the instructions to keep.
_DISTANCES = (1, 2, 4, 8, 16)

#: Function that edits a new clone. Returns False if there is nothing to do.
Edit = Callable[[HloModule], bool]
Fails = Callable[[HloModule], bool]


def minimize(
    module: HloModule,
    fails: Fails,
    rounds: int = 6,
    *,
    around: Collection[str] = (),
    attempts: int | None = None,
) -> HloModule:
    """Return a smaller module for which ``fails`` still holds. ``fails`` is called with valid modules only.

    ``around``: names of instructions that the failure is about; parts of the module around them are tried first.
    ``attempts``: the largest number of calls of ``fails``; None: no limit.
    """
    search = _Search(module, fails, attempts)
    for distance in _DISTANCES if around else ():
        if search.attempt(_cut_out(around, distance)):
            break
    for _ in range(rounds):
        before = search.module.instruction_count
        for edit in _edits(search.module):
            search.attempt(edit)
        if search.module.instruction_count == before:
            break
    return search.module


class _Search:
    """The smallest module found so far; edits that keep the failure are taken at once."""

    def __init__(self, module: HloModule, fails: Fails, attempts: int | None) -> None:
        self.module = module
        self._fails = fails
        self._left = attempts

    def attempt(self, edit: Edit) -> bool:
        if self._left == 0:
            return False
        smaller = clone_module(self.module)
        smaller.entry_layout = None
        smaller.input_output_alias, smaller.buffer_donors = (), ()
        if not edit(smaller):
            return False
        _clean(smaller)
        if self._left is not None:
            self._left -= 1
        if not self._fails(smaller):
            return False
        self.module = smaller
        return True


def _cut_out(names: Collection[str], distance: int) -> Edit:
    """Return an edit that keeps the entry's instructions ``names``, their operands up to ``distance``, and their users.

    One inside another computation stands for the instructions of the entry that call it.
    """

    def edit(module: HloModule) -> bool:
        holding = _holding(module, names)
        wanted = [
            x
            for x in module.entry.instructions
            if x.name in names or any(callee in holding for callee in x.called_computations)
        ]
        results = dict.fromkeys([*wanted, *(user for x in wanted for user in x.users)])
        results = {x: None for x in results if isinstance(x.shape, ArrayShape)}
        if not results:
            return False
        for x in _beyond(list(results), distance):
            _make_parameter(x)
        parts = tuple(x for x in results if x.opcode is not Opcode.PARAMETER)
        if not parts:
            return False
        shape = TupleShape(tuple(x.shape for x in parts))
        module.entry.root = module.entry.create(Opcode.TUPLE, shape, parts)
        return True

    return edit


def _holding(module: HloModule, names: Collection[str]) -> set[HloComputation]:
    """Return the computations that contain one of the instructions ``names``, or call one that does."""
    holding: set[HloComputation] = set()
    for computation in module.computations_post_order():
        if any(
            x.name in names or any(callee in holding for callee in x.called_computations)
            for x in computation.instructions
        ):
            holding.add(computation)
    return holding


def _beyond(results: list[HloInstruction], distance: int) -> list[HloInstruction]:
    """Return the arrays that are more than ``distance`` operands away from ``results`` and that these depend on."""
    visited = set(results)
    layer = results
    for _ in range(distance):
        layer = [o for x in layer for o in x.operands if o not in visited]
        visited.update(layer)
    edge = dict.fromkeys(o for x in layer for o in x.operands if o not in visited)
    return [x for x in edge if x.num_operands and isinstance(x.shape, ArrayShape)]


def _edits(module: HloModule) -> Iterator[Edit]:
    """Yield edits that refer to instructions by name, so that each can be applied after the others."""
    root = module.entry.root
    if root.opcode is Opcode.TUPLE:
        for element in root.operands:
            yield _keep_only(element.name)
    for computation in reversed(module.computations_post_order()):
        in_entry = computation is module.entry
        for instruction in reversed(computation.post_order()):
            if instruction.opcode in _MAKES_EQUAL:
                continue
            for i in range(instruction.num_operands):
                yield _replace_by_operand(instruction.name, i)
            if in_entry and instruction.opcode is not Opcode.PARAMETER:
                yield _replace_by_parameter(instruction.name)
            if instruction.sharding is not None or instruction.annotations != Annotations():
                yield _forget_annotations(instruction.name)


def _find(module: HloModule, name: str) -> HloInstruction | None:
    return next((i for i in module.all_instructions() if i.name == name), None)


def _keep_only(name: str) -> Edit:
    def edit(module: HloModule) -> bool:
        found = _find(module, name)
        if found is None or found is module.entry.root:
            return False
        module.entry.root = found
        return True

    return edit


def _replace_by_operand(name: str, position: int) -> Edit:
    def edit(module: HloModule) -> bool:
        found = _find(module, name)
        if found is None or position >= found.num_operands:
            return False
        operand = found.operand(position)
        if not compatible(operand.shape, found.shape):
            return False
        found.replace_all_uses_with(operand)
        return True

    return edit


def _replace_by_parameter(name: str) -> Edit:
    def edit(module: HloModule) -> bool:
        found = _find(module, name)
        if found is None or not isinstance(found.shape, ArrayShape) or not found.num_operands:
            return False
        _make_parameter(found)
        return True

    return edit


def _make_parameter(x: HloInstruction) -> None:
    """Replace ``x`` in the entry by a new parameter."""
    assert x.parent is not None
    number = x.parent.num_parameters
    attrs = ParameterAttrs(number)
    x.replace_all_uses_with(
        x.parent.create(Opcode.PARAMETER, x.shape, attrs=attrs, name=f"arg.{number}")
    )


def _forget_annotations(name: str) -> Edit:
    def edit(module: HloModule) -> bool:
        found = _find(module, name)
        if found is None or (found.sharding is None and found.annotations == Annotations()):
            return False
        found.sharding = None
        found.annotations = Annotations()
        return True

    return edit


def _clean(module: HloModule) -> None:
    """Drop what nothing uses, parameters of the entry included."""
    for computation in module.computations:
        computation.remove_unused()
    entry = module.entry
    for parameter in entry.parameters:
        if not parameter.users and parameter is not entry.root:
            entry.remove(parameter)
    parameters = entry.parameters
    entry._parameters.clear()
    for number, parameter in enumerate(parameters):
        parameter.attrs = ParameterAttrs(number)
        entry._parameters[number] = parameter
    module.remove_unreachable_computations()
    for computation in module.computations:
        computation.set_order(computation.post_order())
    if module.entry.root.opcode is not Opcode.TUPLE and module.entry.root.sharding is not None:
        if module.entry.root.sharding.is_tuple:
            module.entry.root.sharding = None
