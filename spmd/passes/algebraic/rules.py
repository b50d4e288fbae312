"""The table of identities: for each opcode, functions that return a simpler value or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from spmd.builder import Builder
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode

#: A rule returns a simpler value of the same shape, perhaps of new instructions, or None to leave the value. A rule
#: that returns None has added no instruction to the builder.
Identity: TypeAlias = Callable[[HloInstruction, Builder], HloInstruction | None]

IDENTITIES: dict[Opcode, list[Identity]] = {}
"""The identities of each opcode, in the order in which they are tried. ``simplifies`` alone adds to it."""


def simplifies(*opcodes: Opcode) -> Callable[[Identity], Identity]:
    """Register an identity for these opcodes, after those registered before it.

    Raises ValueError if it is registered for one of them already.
    """

    def decorator(identity: Identity) -> Identity:
        for opcode in opcodes:
            known = IDENTITIES.setdefault(opcode, [])
            if identity in known:
                raise ValueError(
                    f"an identity of {opcode} is registered twice: {identity.__name__}"
                )
            known.append(identity)
        return identity

    return decorator
