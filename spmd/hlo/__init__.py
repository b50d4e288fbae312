"""The HLO graph: module, computation, instruction, opcode."""

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import (
    NO_ANNOTATIONS,
    NO_ATTRS,
    Annotations,
    Attrs,
    HloInstruction,
    OpMetadata,
)
from spmd.hlo.module import BufferDonor, EntryLayout, HloModule, InputOutputAlias, Stage
from spmd.hlo.opcode import Opcode

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
