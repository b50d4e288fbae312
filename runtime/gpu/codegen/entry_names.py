"""Names of PTX kernels that identify them in profilers, such as spmd_rows_subtract_exponential_divide_1f0c2a."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace

from runtime.gpu.codegen.launch import KernelSource
from runtime.program.kernel import Kernel
from spmd.hlo import Opcode

#: Opcodes that are left out of names, since most kernels contain them.
_USUAL = frozenset(
    {
        Opcode.AND,
        Opcode.BITCAST,
        Opcode.BROADCAST,
        Opcode.COMPARE,
        Opcode.CONSTANT,
        Opcode.CONVERT,
        Opcode.IS_FINITE,
        Opcode.OR,
        Opcode.RESHAPE,
        Opcode.SELECT,
    }
)
#: Largest number of opcodes in a name.
_MOST_OPCODES = 5


def named(source: KernelSource, kernel: Kernel) -> KernelSource:
    """Return ``source`` with its entry renamed: the old name, opcodes of ``kernel``, and a digest of the IR.

    Equal kernels with equal IR get equal names in every process.
    """
    found = dict.fromkeys(_opcodes(kernel))
    opcodes = [opcode.value for opcode in found if opcode not in _USUAL]
    parts = [
        source.entry,
        *opcodes[:_MOST_OPCODES],
        hashlib.sha256(source.ir.encode()).hexdigest()[:6],
    ]
    entry = re.sub(r"\W", "_", "_".join(parts))
    return replace(source, entry=entry)


def _opcodes(record: object) -> Iterator[Opcode]:
    """Yield the opcodes in a record of dataclasses and tuples, in the order of its fields."""
    if isinstance(record, Opcode):
        yield record
    elif isinstance(record, tuple):
        for part in record:
            yield from _opcodes(part)
    elif is_dataclass(record) and not isinstance(record, type):
        for field in fields(record):
            yield from _opcodes(getattr(record, field.name))
