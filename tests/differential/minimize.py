"""Greedy shrinking of a failing module: drop outputs, cut instructions out, forget annotations, as long as it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spmd.hlo import Annotations, HloInstruction, HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.ops.attrs import ParameterAttrs
from spmd.shape import ArrayShape, compatible

#: Without one of these a manual region may leave a value that differs between devices: no program at all.
_MAKES_EQUAL = (Opcode.ALL_REDUCE, Opcode.ALL_GATHER, Opcode.CALL)

#: Edits a fresh clone; False where there is nothing to do.
Edit = Callable[[HloModule], bool]


def minimize(module: HloModule, fails: Callable[[HloModule], bool], rounds: int = 6) -> HloModule:
    """A smaller module for which ``fails`` still holds. ``fails`` must take any valid module."""
    for _ in range(rounds):
        before = module.instruction_count
        for edit in _edits(module):
            smaller = clone_module(module)
            if edit(smaller):
                _clean(smaller)
                if fails(smaller):
                    module = smaller
        if module.instruction_count == before:
            break
    return module


def _edits(module: HloModule) -> Iterator[Edit]:
    """Edits by name, so that each still finds its place after the others."""
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
        entry = module.entry
        number = entry.num_parameters
        parameter = entry.create(
            Opcode.PARAMETER, found.shape, attrs=ParameterAttrs(number), name=f"arg.{number}"
        )
        found.replace_all_uses_with(parameter)
        return True

    return edit


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
    kept = entry.parameters
    entry._parameters.clear()
    for number, parameter in enumerate(kept):
        parameter.attrs = ParameterAttrs(number)
        entry._parameters[number] = parameter
    module.remove_unreachable_computations()
    for computation in module.computations:
        computation.set_order(computation.post_order())
    if module.entry.root.opcode is not Opcode.TUPLE and module.entry.root.sharding is not None:
        if module.entry.root.sharding.is_tuple:
            module.entry.root.sharding = None
