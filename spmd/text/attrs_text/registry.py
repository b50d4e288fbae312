"""Text form of the attributes of each opcode: one record per opcode, with reader and writer."""

from __future__ import annotations

from collections.abc import Callable

from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import NO_ATTRS, Attrs, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.registry import Registry
from spmd.text.attrs_text.values import AttrValues
from spmd.text.attrs_text.writer import AttrWriter


def read_nothing(_: AttrValues) -> Attrs:
    return NO_ATTRS


def write_nothing(_: AttrWriter, __: HloInstruction) -> None:
    """Write nothing: the op has no attributes of its own."""


@dataclass(frozen=True, slots=True)
class AttrsText:
    """Reader and writer of a family's attributes in texts. ``read`` also names the callees in order; ``write`` uses
    XLA's order.

    ``write_parentheses`` is set where something other than operands stands in the parentheses.
    """

    read: Callable[[AttrValues], Attrs] = read_nothing
    write: Callable[[AttrWriter, HloInstruction], None] = write_nothing
    write_parentheses: Callable[[HloInstruction], str] | None = None


ATTRS_TEXT: Registry[Opcode, AttrsText] = Registry("attribute text")


def attrs_text(
    *opcodes: Opcode,
    read: Callable[[AttrValues], Attrs] = read_nothing,
    write: Callable[[AttrWriter, HloInstruction], None] = write_nothing,
    write_parentheses: Callable[[HloInstruction], str] | None = None,
) -> None:
    """Register one record for several opcodes."""
    record = AttrsText(read, write, write_parentheses)
    for opcode in opcodes:
        ATTRS_TEXT.add(opcode, record)
