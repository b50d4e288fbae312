"""The table of identities: for each opcode, functions that return a simpler value or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode

#: A simpler value of the same shape (perhaps new instructions made by the builder), or None to leave it.
#: A rule looks before it builds: when it returns None, it has built nothing.
Identity: TypeAlias = Callable[[HloInstruction, Builder], HloInstruction | None]

IDENTITIES: dict[Opcode, list[Identity]] = {}


def simplifies(*opcodes: Opcode) -> Callable[[Identity], Identity]:
    """Register an identity for these opcodes, after those registered before it."""

    def decorator(identity: Identity) -> Identity:
        for opcode in opcodes:
            IDENTITIES.setdefault(opcode, []).append(identity)
        return identity

    return decorator
