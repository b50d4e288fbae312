"""Options of a compilation: plain values; the command line and the environment are read elsewhere in this folder."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from launch.collective_groups import COLLECTIVE_GROUPS
from spmd.errors import SpmdError
from spmd.lazy_dataclass import dataclass
from spmd.machine.named import machine_named

if TYPE_CHECKING:
    from collectives.cost.custom_calls import CallCost
    from spmd.machine.description import MachineDescription


class OptionError(SpmdError):
    """An option with a value that it cannot have."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of a compilation. They are part of the fingerprint that all ranks compare.

    ``partitioned``: the module is already one device's program (True), is a logical one (False), or decide by what it
    holds (None: see spmd.text.stage).
    ``check``: run the buffer and schedule checkers on the result.
    ``memory_limit``: bytes of a device that the program may take; values are computed again, or in pieces, to stay
    within them.
    ``fusion``: make kernels of several instructions, where that takes less time on ``machine``.
    ``costs``: of custom calls on ``machine``, by target, where no rule tells them.
    ``durations``: seconds of instructions of the scheduled module, by name, as they were measured on ``machine``.
    ``keep_attention_calls``: calls of fused attention stay calls, because a library of ``machine`` computes them, as in
    the simulation of a GPU's step; otherwise they become products and elementwise operations, which the back ends
    compute.
    ``attention_fusion``: on a GPU, attention keeps no score matrices in memory. Triton compiles such kernels.
    ``without``: names of ``COLLECTIVE_GROUPS``, the groups of passes on collectives to be left out.
    """

    partitioned: bool | None = None
    check: bool = False
    memory_limit: int | None = None
    fusion: bool = True
    machine: MachineDescription = field(default_factory=machine_named)
    costs: tuple[tuple[str, CallCost], ...] = ()
    durations: tuple[tuple[str, float], ...] = ()
    keep_attention_calls: bool = False
    attention_fusion: bool = True
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = [name for name in self.without if name not in COLLECTIVE_GROUPS]
        if unknown:
            raise OptionError(
                f"no group of passes is named {unknown[0]!r}; there are {', '.join(COLLECTIVE_GROUPS)}"
            )
