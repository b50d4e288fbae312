"""The HLO graph: module, computation, instruction, opcode.

A name is loaded at its first use: compiled programs have opcodes and attributes, and no graph.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spmd.hlo.computation import HloComputation
    from spmd.hlo.instruction import NO_ANNOTATIONS, Annotations, HloInstruction, OpMetadata
    from spmd.hlo.module import BufferDonor, EntryLayout, HloModule, InputOutputAlias, Stage
    from spmd.hlo.opcode import NO_ATTRS, Attrs, Opcode

__all__ = [
    "NO_ANNOTATIONS",
    "NO_ATTRS",
    "Annotations",
    "Attrs",
    "BufferDonor",
    "EntryLayout",
    "HloComputation",
    "HloInstruction",
    "HloModule",
    "InputOutputAlias",
    "OpMetadata",
    "Opcode",
    "Stage",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in ("opcode", "instruction", "computation", "module"):
            found = vars(import_module(f"spmd.hlo.{module}"))
            if name in found:
                return globals().setdefault(name, found[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
