"""Print modules, computations and instructions as HLO text that XLA's parser and ours read back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import AsyncAttrs
from spmd.shape import Shape, TupleShape
from spmd.shape_compatibility import without_layout
from spmd.text.alias_text import format_buffer_donors, format_input_output_alias
from spmd.text.annotations_text import (
    format_frontend_attributes,
    format_metadata,
    format_text_or_braces,
)
from spmd.text.async_sugar import is_sugared, sugared_opcode, write_sugared
from spmd.text.attrs_text import ATTRS_TEXT, AttrWriter
from spmd.text.names import written_name

#: Header attributes that XLA prints before the replica and partition counts.
_EARLY_HEADER = (
    "allow_spmd_sharding_propagation_to_parameters",
    "allow_spmd_sharding_propagation_to_output",
)


def print_module(module: HloModule, *, as_dump: bool = False) -> str:
    """Return the module's text; ``parse_module`` of it returns an equal module.

    It is what JAX's ``as_text("hlo")`` gives; with ``as_dump`` what ``--xla_dump_to`` writes: names with a ``%``,
    computations with ``(p: f32[2]) -> f32[2]``, and a comment at every fifth operand.
    """
    parts = [", ".join(_header(module)), "\n"]
    if module.file_tables:
        parts.extend(
            "\n" + "\n".join((title, *lines)) + "\n" for title, lines in module.file_tables
        )
        parts.append("\n")
    shapes: dict[int, str] = {}
    hidden = _sugared_computations(module)
    for computation in module.computations:
        if id(computation) in hidden:
            continue
        parts.append("\n")
        is_entry = computation is module.entry
        parts.extend(_computation_lines(computation, shapes, is_entry=is_entry, as_dump=as_dump))
    return "".join(parts)


def _sugared_computations(module: HloModule) -> set[int]:
    """Return the ids of computations that are written in short asynchronous operations."""
    return {
        id(instruction.to_apply)
        for computation in module.computations
        for instruction in computation.with_opcode(Opcode.ASYNC_START)
        if is_sugared(instruction)
    }


def _header(module: HloModule) -> Iterable[str]:
    yield f"HloModule {module.name}"
    if module.stage is Stage.SCHEDULED:
        yield "is_scheduled=true"
    if module.input_output_alias:
        yield f"input_output_alias={format_input_output_alias(module.input_output_alias)}"
    if module.buffer_donors:
        yield f"buffer_donor={format_buffer_donors(module.buffer_donors)}"
    extra = dict(module.extra_header)
    if "alias_passthrough_params" in extra:
        yield f"alias_passthrough_params={extra.pop('alias_passthrough_params')}"
    if module.entry_layout is not None:
        parameters = format_shapes(module.entry_layout.parameters)
        yield f"entry_computation_layout={{({parameters})->{module.entry_layout.result}}}"
    for name in _EARLY_HEADER:
        if name in extra:
            yield f"{name}={extra.pop(name)}"
    if module.replica_count != 1:
        yield f"replica_count={module.replica_count}"
    if module.num_partitions != 1 or module.states_partitions:
        yield f"num_partitions={module.num_partitions}"
    if module.frontend_attributes:
        yield f"frontend_attributes={format_frontend_attributes(module.frontend_attributes)}"
    for name, text in extra.items():
        yield f"{name}={text}"


def format_shapes(shapes: Sequence[Shape]) -> str:
    """Return a list of shapes with XLA's index comments."""
    return str(TupleShape(tuple(shapes)))[1:-1]


def _computation_lines(
    computation: HloComputation, shapes: dict[int, str], *, is_entry: bool, as_dump: bool
) -> Iterable[str]:
    name = written_name(computation.name, percent=as_dump)
    signature = f" {_signature(computation)}" if as_dump else ""
    yield f"{'ENTRY ' if is_entry else ''}{name}{signature} {{\n"
    root = computation.root
    for instruction in _definition_order(computation):
        mark = "  ROOT " if instruction is root else "  "
        yield f"{mark}{_instruction(instruction, shapes, as_dump=as_dump)}\n"
    thread = computation.execution_thread
    yield f'}}, execution_thread="{thread}"\n' if thread else "}\n"


def _definition_order(computation: HloComputation) -> Sequence[HloInstruction]:
    """Return the schedule; without one, an order in which definitions precede uses, which readers require and passes do
    not keep.
    """
    module = computation.module
    if module is not None and module.stage is Stage.SCHEDULED:
        return computation.instructions
    return computation.post_order()


def _signature(computation: HloComputation) -> str:
    parameters = [f"{p.name}: {_plain(p.shape)}" for p in computation.parameters]
    return f"({', '.join(parameters)}) -> {_plain(computation.root.shape)}"


def _plain(shape: Shape) -> str:
    return str(without_layout(shape))


def print_instruction(instruction: HloInstruction) -> str:
    """Return one line without ROOT and without indentation."""
    return _instruction(instruction, {}, as_dump=False)


def _instruction(instruction: HloInstruction, shapes: dict[int, str], *, as_dump: bool) -> str:
    """Return the instruction's text. ``shapes`` caches texts by identity: parsed shapes are shared, and the module
    keeps them alive.
    """
    shape = instruction.shape
    shape_text = shapes.get(id(shape))
    if shape_text is None:
        shape_text = shapes[id(shape)] = str(shape)
    text = ATTRS_TEXT[instruction.opcode]
    if text.write_parentheses is not None:
        inner = text.write_parentheses(instruction)
    else:
        inner = _operands(instruction, as_dump=as_dump)
    out = AttrWriter(percent=as_dump)
    opcode = instruction.opcode.value
    if isinstance(instruction.attrs, AsyncAttrs) and is_sugared(instruction):
        opcode = sugared_opcode(instruction)
        write_sugared(out, instruction)
    else:
        text.write(out, instruction)
    _write_common(out, instruction)
    tail = "".join([f", {part}" for part in out.parts])
    name = written_name(instruction.name, percent=as_dump)
    return f"{name} = {shape_text} {opcode}({inner}){tail}"


def _operands(instruction: HloInstruction, *, as_dump: bool) -> str:
    names = [written_name(operand.name, percent=as_dump) for operand in instruction.operands]
    for i in range(5, len(names), 5) if as_dump else ():
        names[i] = f"/*index={i}*/{names[i]}"
    return ", ".join(names)


def _write_common(out: AttrWriter, instruction: HloInstruction) -> None:
    """Write the attributes that any instruction may have, in XLA's order."""
    if instruction.sharding is not None:
        out.add("sharding", instruction.sharding)
    annotations = instruction.annotations
    if annotations.frontend_attributes:
        out.add("frontend_attributes", format_frontend_attributes(annotations.frontend_attributes))
    if instruction.control_predecessors:
        names = out.names(p.name for p in instruction.control_predecessors)
        out.add("control-predecessors", f"{{{names}}}")
    out.verbatim(annotations.extra)
    if annotations.metadata:
        out.add("metadata", format_metadata(annotations.metadata))
    if annotations.backend_config:
        out.add("backend_config", format_text_or_braces(annotations.backend_config))


__all__ = ["print_instruction", "print_module"]
