"""parameter, constant, iota, partition-id, replica-id."""

from __future__ import annotations

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import ConstantAttrs, IotaAttrs, ParameterAttrs
from spmd.ops.checks import set_text
from spmd.shape import leaves
from spmd.text.attrs_text.registry import attrs_text
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter, boolean
from spmd.text.lexer import Scanner
from spmd.text.literal_text import format_literal, read_literal


def _read_parameter(values: AttrValues) -> ParameterAttrs:
    scanner = Scanner(values.source, *values.parentheses)
    number = scanner.integer("a parameter number")
    scanner.finish()
    if number < 0:
        values.fail(f"a parameter number cannot be {number}")
    return ParameterAttrs(number, _read_replication(values))


def _read_replication(values: AttrValues) -> tuple[bool, ...]:
    """Read ``{true,false}``: one flag per leaf."""
    if "parameter_replication" not in values:
        return ()
    flags = values.flags("parameter_replication")
    count = 0 if values.shape is None else sum(1 for _ in leaves(values.shape))
    if len(flags) != count:
        values.fail(f"{len(flags)} flags of parameter_replication for {count} leaves")
    return flags


def _write_parameter(out: AttrWriter, instruction: HloInstruction) -> None:
    replication = instruction.attrs_as(ParameterAttrs).replication
    if replication:
        out.add("parameter_replication", set_text(map(boolean, replication)))


def _read_constant(values: AttrValues) -> ConstantAttrs:
    scanner = Scanner(values.source, *values.parentheses)
    if values.shape is None:
        values.fail("a constant needs its shape")
    literal = read_literal(scanner, values.shape)
    scanner.finish()
    return ConstantAttrs(literal)


def constant_text(instruction: HloInstruction) -> str:
    literal = instruction.attrs_as(ConstantAttrs).literal
    return "{...}" if literal is None else format_literal(literal)


attrs_text(
    Opcode.PARAMETER,
    read=_read_parameter,
    write=_write_parameter,
    write_parentheses=lambda instruction: str(instruction.attrs_as(ParameterAttrs).number),
)
attrs_text(Opcode.CONSTANT, read=_read_constant, write_parentheses=constant_text)
attrs_text(
    Opcode.IOTA,
    read=lambda values: IotaAttrs(values.need_integer("iota_dimension")),
    write=lambda out, instruction: out.add(
        "iota_dimension", instruction.attrs_as(IotaAttrs).dimension
    ),
)
attrs_text(Opcode.PARTITION_ID, Opcode.REPLICA_ID)
