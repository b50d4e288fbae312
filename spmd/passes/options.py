"""The text of a pipeline: ``algebraic-simplifier,constant-folding{max-bytes=64},dead-code-elimination``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import MISSING, Field

from spmd.errors import SpmdError
from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named
from spmd.name_suggestions import did_you_mean
from spmd.passes.interface import MACHINE_OPTION, PASSES, HloPass, option_fields

_PASS = re.compile(r"\s*([a-z0-9-]+)\s*(?:\{([^{}]*)\})?\s*(,|$)")


class PassOptionError(SpmdError):
    """A pipeline text that names no pass, or an option its pass does not have."""


def parse_passes(text: str, machines: Sequence[MachineDescription] = ()) -> tuple[HloPass, ...]:
    """Return the passes that a text names, in order. Options may name shipped machines, and ``machines``.

    Raises PassOptionError if it cannot be read, MachineError for an unknown machine.
    """
    passes: list[HloPass] = []
    position = 0
    while position < len(text):
        match = _PASS.match(text, position)
        if match is None:
            raise PassOptionError(f"expected pass{{option=value,..}} at {text[position:]!r}")
        passes.append(make_pass(match.group(1), match.group(2) or "", machines))
        position = match.end()
    return tuple(passes)


def make_pass(name: str, options: str = "", machines: Sequence[MachineDescription] = ()) -> HloPass:
    """Return the pass of this name with these options; see ``parse_passes``."""
    kind = PASSES.get(name)
    if kind is None:
        meant = did_you_mean(name, PASSES) or ";"
        raise PassOptionError(
            f"no pass is named {name!r}{meant} passes: {', '.join(sorted(PASSES))}"
        )
    known = {f.name.replace("_", "-"): f for f in option_fields(kind)}
    values: dict[str, object] = {}
    for option in filter(None, (part.strip() for part in options.split(","))):
        key, _, value = option.partition("=")
        if key not in known:
            has = ", ".join(known) or "none"
            raise PassOptionError(f"pass {name} has no option {key!r}; options: {has}")
        values[known[key].name] = (
            machine_named(value, machines)
            if known[key].metadata == MACHINE_OPTION
            else _value(name, known[key], value)
        )
    return kind(**values)


def _value(name: str, option: Field[object], text: str) -> object:
    """Convert ``text`` to the type of the option's default."""
    default = option.default
    if default is MISSING or isinstance(default, tuple):
        raise PassOptionError(f"option {option.name} of {name} cannot be given in text")
    if isinstance(default, bool):
        if text not in ("true", "false", ""):
            raise PassOptionError(
                f"option {option.name} of {name}: expected true or false, found {text!r}"
            )
        return text != "false"
    try:
        return type(default)(text)  # type: ignore[call-arg]
    except ValueError as error:
        kind = type(default).__name__
        raise PassOptionError(
            f"option {option.name} of {name}: expected {kind}, found {text!r}"
        ) from error
