"""Aliasing in text: ``input_output_alias``, ``buffer_donor``, ``output_to_operand_aliasing``."""

from __future__ import annotations

import re

from spmd.hlo.module import BufferDonor, InputOutputAlias
from spmd.ops.checks import set_text
from spmd.shape import ShapeIndex
from spmd.text.lexer import Scanner

_NUMBERS = r"((?:[0-9]{1,19}(?>(?:, ?[0-9]{1,19})*))?)"
#: An alias in the printed spelling; any other spelling is scanned.
_PLAIN_ALIAS = re.compile(
    rf"\{{{_NUMBERS}\}}: \(([0-9]{{1,19}}), \{{{_NUMBERS}\}}(?:, (may|must)-alias)?\)"
)


def _ints(text: str) -> ShapeIndex:
    return tuple(map(int, text.split(","))) if text else ()


def read_input_output_alias(scanner: Scanner) -> tuple[InputOutputAlias, ...]:
    """Read ``{ {0}: (0, {}, may-alias), {1}: (1, {0}) }``; the default kind is may-alias."""
    aliases: list[InputOutputAlias] = []
    for _ in scanner.items():
        if (plain := scanner.match(_PLAIN_ALIAS)) is not None:
            output, number, index, kind = plain.groups()
            aliases.append(
                InputOutputAlias(_ints(output), int(number), _ints(index), kind == "must")
            )
            continue
        output = scanner.integers()
        scanner.expect(":")
        scanner.expect("(")
        parameter = scanner.integer("a parameter number")
        scanner.expect(",")
        index = scanner.integers()
        must = False
        if scanner.consume_if(","):
            must = scanner.consume_if("must-alias")
            if not must:
                scanner.expect("may-alias")
        scanner.expect(")")
        aliases.append(InputOutputAlias(output, parameter, index, must))
    return tuple(aliases)


def format_input_output_alias(aliases: tuple[InputOutputAlias, ...]) -> str:
    parts = [
        f"{set_text(a.output_index)}: ({a.parameter}, {set_text(a.parameter_index)}, "
        f"{'must' if a.must_alias else 'may'}-alias)"
        for a in aliases
    ]
    return f"{{ {', '.join(parts)} }}"


def read_buffer_donors(scanner: Scanner) -> tuple[BufferDonor, ...]:
    """Read ``{ (0, {}), (1, {2}) }``."""
    donors: list[BufferDonor] = []
    for _ in scanner.items():
        scanner.expect("(")
        parameter = scanner.integer("a parameter number")
        scanner.expect(",")
        donors.append(BufferDonor(parameter, scanner.integers()))
        scanner.expect(")")
    return tuple(donors)


def format_buffer_donors(donors: tuple[BufferDonor, ...]) -> str:
    parts = [f"({d.parameter}, {set_text(d.parameter_index)})" for d in donors]
    return f"{{ {', '.join(parts)} }}"


def read_output_to_operand(scanner: Scanner) -> tuple[tuple[ShapeIndex, int, ShapeIndex], ...]:
    """Read ``{{0}: (1, {}), {1}: (0, {2})}``."""
    pairs: list[tuple[ShapeIndex, int, ShapeIndex]] = []
    for _ in scanner.items():
        output = scanner.integers()
        scanner.expect(":")
        scanner.expect("(")
        operand = scanner.integer("an operand number")
        scanner.expect(",")
        pairs.append((output, operand, scanner.integers()))
        scanner.expect(")")
    return tuple(pairs)


def format_output_to_operand(pairs: tuple[tuple[ShapeIndex, int, ShapeIndex], ...]) -> str:
    parts = [f"{set_text(out)}: ({operand}, {set_text(index)})" for out, operand, index in pairs]
    return f"{{{', '.join(parts)}}}"
