"""I4: every instruction's shape and attributes fit its op definition."""

from __future__ import annotations

from collections.abc import Iterator

from spmd.errors import VerificationError
from spmd.hlo.module import HloModule
from spmd.ops import check_instruction
from spmd.verifier.rule import Rule


def instructions_fit_their_definitions(module: HloModule) -> Iterator[str]:
    for instruction in module.all_instructions():
        try:
            check_instruction(instruction)
        except VerificationError as error:
            yield str(error)


SHAPE_RULES = (
    Rule(
        "I4",
        "shape equals the shape inferred from opcode, operands and attributes (up to layout)",
        instructions_fit_their_definitions,
    ),
)
