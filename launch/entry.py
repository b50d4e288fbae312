"""A program as its caller sees it: global arrays in and out; and the record of one that was compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runtime.executable import Executable
from spmd.lazy_dataclass import dataclass
from spmd.shape import ArrayShape, array_leaves

if TYPE_CHECKING:
    from runtime.arrays.sharded_arrays import ArraySpec
    from spmd.hlo import HloModule


@dataclass(frozen=True, slots=True)
class Entry:
    """Arrays of an entry computation.

    inputs, outputs: array leaves of the entry's parameters and of its result, in order.
    feedback: output number -> number of the input that it aliases, and becomes in the next step.
    """

    name: str
    inputs: tuple[ArrayShape, ...]
    outputs: tuple[ArrayShape, ...]
    feedback: dict[int, int]

    @staticmethod
    def of_module(module: HloModule) -> Entry:
        """Return the entry of an unpartitioned module, or of one device's program, whose arrays are tiles."""
        inputs = [s for p in module.entry.parameters for _, s in array_leaves(p.shape)]
        outputs = [s for _, s in array_leaves(module.entry.root.shape)]
        feedback = _static(_aliased(module), outputs)
        return Entry(module.name, tuple(inputs), tuple(outputs), feedback)

    @staticmethod
    def of_boundaries(
        module: HloModule, specs: tuple[Sequence[ArraySpec], Sequence[ArraySpec]]
    ) -> Entry:
        """Return the entry of one device's program; ``specs`` state how its tiles make up global arrays."""
        inputs, outputs = (tuple(one.shape for one in side) for side in specs)
        return Entry(module.name, inputs, outputs, _static(_aliased(module), outputs))

    @staticmethod
    def of_executable(executable: Executable) -> Entry:
        inputs = tuple(one.shape for one in executable.inputs)
        outputs = tuple(one.shape for one in executable.results)
        return Entry(executable.program.name, inputs, outputs, _static(executable.aliases, outputs))


def _aliased(module: HloModule) -> dict[int, int]:
    # A saved program states its aliases.
    from spmd.analysis.aliased_outputs import aliased_outputs

    return aliased_outputs(module)


def _static(feedback: dict[int, int], outputs: Sequence[ArrayShape]) -> dict[int, int]:
    """Return ``feedback`` without outputs that use a donor's memory but are no input of the next step: bounded outputs,
    and sizes.
    """
    return {
        output: argument
        for output, argument in feedback.items()
        if output < len(outputs) and not any(outputs[output].dynamic)
    }


@dataclass(frozen=True)
class Compiled:
    """A compiled program.

    warning: text for standard error; "" for none.
    saved: the executable as bytes, if it comes from the cache or was stored there.
    cached: it was loaded from the cache.
    """

    executable: Executable
    warning: str
    saved: bytes | None = None
    cached: bool = False
