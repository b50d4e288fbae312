"""The short form of asynchronous operations: ``slice-start(a), slice={..}`` for an async-start and its computation.

The wrapped computation (``wrapped_slice``) holds one parameter per operand and the operation itself. It is made when
the text is read, and left out again when it is printed, as long as it has that form.
"""

from __future__ import annotations

from collections.abc import Sequence

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import AsyncAttrs, ParameterAttrs
from spmd.shape import Shape, TupleShape
from spmd.text.attrs_text import ATTRS_TEXT, AttrValues, AttrWriter
from spmd.text.attrs_text.async_ops import read_start_aliasing, write_start_aliasing
from spmd.text.instruction_builder import InstructionBuilder
from spmd.text.read_context import ParsedAttrs

_PHASES = {
    "-start": Opcode.ASYNC_START,
    "-update": Opcode.ASYNC_UPDATE,
    "-done": Opcode.ASYNC_DONE,
}
#: Opcodes that have start and done opcodes of their own, or no asynchronous form.
_NOT_WRAPPED = frozenset(
    {
        Opcode.ALL_GATHER,
        Opcode.ALL_REDUCE,
        Opcode.ASYNC_DONE,
        Opcode.ASYNC_START,
        Opcode.ASYNC_UPDATE,
        Opcode.COLLECTIVE_PERMUTE,
        Opcode.CONSTANT,
        Opcode.COPY,
        Opcode.PARAMETER,
        Opcode.RECV,
        Opcode.SEND,
    }
)
_WITH_ALIASES = (Opcode.CUSTOM_CALL, Opcode.FUSION)
_WRAPPED = {opcode.value: opcode for opcode in Opcode if opcode not in _NOT_WRAPPED}


@dataclass(frozen=True, slots=True)
class Sugar:
    """Short syntax of an asynchronous operation, such as ``slice-start``: phase async-start of a slice."""

    phase: Opcode
    wrapped: Opcode


def split_sugar(text: str) -> Sugar | None:
    for suffix, phase in _PHASES.items():
        wrapped = _WRAPPED.get(text.removesuffix(suffix)) if text.endswith(suffix) else None
        if wrapped is not None:
            return Sugar(phase, wrapped)
    return None


def add_sugared(
    builder: InstructionBuilder,
    sugar: Sugar,
    name: str,
    start: int,
    operands: Sequence[HloInstruction],
    values: AttrValues,
    *,
    is_root: bool,
) -> HloInstruction:
    """Add the async instruction that is written as ``name = shape slice-start(operands), attributes``."""
    thread = values.string("async_execution_thread")
    if sugar.phase is not Opcode.ASYNC_START:
        _check_start(sugar, operands, values)
        rest = builder.context.parse_common(values, AsyncAttrs(thread, sugar=True))
        return builder.add(
            name, start, sugar.phase, values.shape, operands, rest, (), is_root=is_root
        )
    wrapped_attrs = ATTRS_TEXT[sugar.wrapped].read(values)
    # If the wrapped operation can have aliases, it has taken the attribute.
    aliasing = read_start_aliasing(values)
    attrs = AsyncAttrs(thread, sugar=True, output_to_operand_aliasing=aliasing)
    rest = builder.context.parse_common(values, attrs)
    shape = _result_shape(values)
    wrapped = ParsedAttrs(wrapped_attrs, rest.callees, None, rest.annotations, ())
    computation = _wrap(builder, sugar.wrapped, start, operands, shape, wrapped)
    computation.execution_thread = thread
    outer = ParsedAttrs(attrs, (), rest.sharding, rest.annotations, rest.control_predecessors)
    instruction = builder.add(
        name, start, sugar.phase, values.shape, operands, outer, (), is_root=is_root
    )
    instruction.called_computations = [computation]
    return instruction


def _result_shape(values: AttrValues) -> Shape:
    """Return the shape ``((operands), result, contexts...)``."""
    shape = values.shape
    if not isinstance(shape, TupleShape) or len(shape.elements) < 2:
        values.fail(f"{values.opcode} needs a shape ((operands), result, ...)")
    return shape.elements[1]


def _check_start(sugar: Sugar, operands: Sequence[HloInstruction], values: AttrValues) -> None:
    operand = operands[0] if len(operands) == 1 else None
    if operand is None or operand.opcode not in (Opcode.ASYNC_START, Opcode.ASYNC_UPDATE):
        values.fail(f"{values.opcode} takes one async-start or async-update")
    found = operand.to_apply.root.opcode
    if found is not sugar.wrapped:
        values.fail(f"{values.opcode} follows the start of a {found}")


def _wrap(
    builder: InstructionBuilder,
    opcode: Opcode,
    start: int,
    operands: Sequence[HloInstruction],
    shape: Shape,
    parsed: ParsedAttrs,
) -> HloComputation:
    module = builder.context.module
    computation = module.new_computation(f"wrapped_{opcode.value.replace('-', '_')}")
    inner = InstructionBuilder(builder.context, computation, builder.read_inline)
    parameters = [
        computation.create(
            Opcode.PARAMETER, operand.shape, attrs=ParameterAttrs(i), name=f"param_{i}"
        )
        for i, operand in enumerate(operands)
    ]
    before = len(module.computations)
    computation.root = inner.add(
        opcode.value, start, opcode, shape, parameters, parsed, parsed.callees
    )
    if len(module.computations) != before:  # after the computations written in place
        module.computations.append(module.computations.pop(before - 1))
    return computation


# ---- printing
def is_sugared(instruction: HloInstruction) -> bool:
    """Return whether the instruction was read in the short syntax and can still be written in it."""
    attrs = instruction.attrs
    if not (isinstance(attrs, AsyncAttrs) and attrs.sugar):
        return False
    wrapped = instruction.to_apply
    # Then the short syntax has one attribute for the aliases of both instructions.
    is_ambiguous = bool(attrs.output_to_operand_aliasing) and wrapped.root.opcode in _WITH_ALIASES
    return not is_ambiguous and _expands(wrapped)


def _expands(computation: HloComputation) -> bool:
    """Return whether the computation consists of parameters in order and one operation on them."""
    root = computation.root
    return (
        root.opcode in _WRAPPED.values()
        and root.operands == computation.parameters
        and len(computation) == computation.num_parameters + 1
    )


def sugared_opcode(instruction: HloInstruction) -> str:
    phase = instruction.opcode.value.removeprefix("async")
    return f"{instruction.to_apply.root.opcode.value}{phase}"


def write_sugared(out: AttrWriter, instruction: HloInstruction) -> None:
    """Write the wrapped operation's attributes as those of the start."""
    if instruction.opcode is not Opcode.ASYNC_START:
        return
    thread = instruction.attrs_as(AsyncAttrs).execution_thread
    if thread:
        out.add("async_execution_thread", f'"{thread}"')
    write_start_aliasing(out, instruction.attrs_as(AsyncAttrs))
    root = instruction.to_apply.root
    ATTRS_TEXT[root.opcode].write(out, root)
