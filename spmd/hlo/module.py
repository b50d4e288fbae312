"""HloModule: the computations of one program, its entry, and the data of its header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum

from spmd.errors import VerificationError
from spmd.hlo.carried import NOTHING_CARRIED
from spmd.hlo.computation import HloComputation
from spmd.hlo.host_functions import NO_FUNCTIONS
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.shape import Shape, ShapeIndex


class Stage(IntEnum):
    """Stage of compilation of a module. Each pass states which stages it accepts. A module never leaves PARTITIONED or
    SCHEDULED for an earlier stage.
    """

    LOGICAL = 0
    PROPAGATED = 1
    PARTITIONED = 2
    OPTIMIZED = 3
    SCHEDULED = 4


@dataclass(frozen=True, slots=True)
class EntryLayout:
    """Parameter and result shapes of the entry as the caller sees them, with layouts."""

    parameters: tuple[Shape, ...]
    result: Shape


@dataclass(frozen=True, slots=True)
class InputOutputAlias:
    """Output leaf ``output_index`` may (or must) share the buffer of a parameter leaf."""

    output_index: ShapeIndex
    parameter: int
    parameter_index: ShapeIndex = ()
    must_alias: bool = False


@dataclass(frozen=True, slots=True)
class BufferDonor:
    parameter: int
    parameter_index: ShapeIndex = ()


_NUMBER_SUFFIX = re.compile(r"\.\d+$")


class NameSpace:
    """Supplier of unique names."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unique_name(self, wanted: str) -> str:
        """Return ``wanted`` if it is free, else its base with the next free number (``add.3``)."""
        if wanted not in self._taken:
            self._taken.add(wanted)
            return wanted
        base = _NUMBER_SUFFIX.sub("", wanted)
        number = self._next.get(base, 1)
        while f"{base}.{number}" in self._taken:
            number += 1
        self._next[base] = number + 1
        name = f"{base}.{number}"
        self._taken.add(name)
        return name


class HloModule:
    """A program.

    M1 every called computation belongs to the module and stands before its callers in ``computations``
    M2 instruction names are unique, and so are computation names
    M3 the entry is one of the computations
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.stage = Stage.LOGICAL
        self.computations: list[HloComputation] = []
        self.entry: HloComputation = HloComputation("<no entry>")
        self.entry_layout: EntryLayout | None = None
        self.input_output_alias: tuple[InputOutputAlias, ...] = ()
        self.buffer_donors: tuple[BufferDonor, ...] = ()
        self.num_partitions = 1
        self.replica_count = 1
        self.frontend_attributes: tuple[tuple[str, str], ...] = ()
        #: Header attributes that are only preserved, as (name, text) in their order.
        self.extra_header: tuple[tuple[str, str], ...] = ()
        #: Data that only protos can represent; it is only preserved.
        self.carried = NOTHING_CARRIED
        #: Python functions that the module calls. Only a module that was made in this process has them.
        self.host_functions = NO_FUNCTIONS
        #: FileNames, FunctionNames, FileLocations, StackFrames sections as written: (title, lines).
        self.file_tables: tuple[tuple[str, tuple[str, ...]], ...] = ()
        #: Whether the text states num_partitions (JAX's as_text omits it).
        self.states_partitions = False
        self.instruction_names = NameSpace()
        self._computation_names = NameSpace()

    def frontend(self, key: str) -> str | None:
        for name, value in self.frontend_attributes:
            if name == key:
                return value
        return None

    # ---- computations
    def new_computation(self, name: str) -> HloComputation:
        """Add an empty computation at the end of the list, under a unique name."""
        computation = HloComputation(self._computation_names.unique_name(name), self)
        self.computations.append(computation)
        return computation

    def remove_unreachable_computations(self) -> int:
        """Remove computations that the entry does not reach. Returns their number."""
        reachable = {id(c) for c in self.computations_post_order()}
        remaining = [c for c in self.computations if id(c) in reachable]
        removed = len(self.computations) - len(remaining)
        self.computations = remaining
        return removed

    def move_from(self, other: HloModule) -> None:
        """Take over all data of ``other``, which must not be used afterwards: its computations become this module's."""
        vars(self).update(vars(other))
        for computation in self.computations:
            computation.module = self

    def computations_post_order(self) -> list[HloComputation]:
        """Return the computations that the entry reaches, callees before callers, the entry last."""
        order: list[HloComputation] = []
        state: dict[int, bool] = {}
        stack = [self.entry]
        while stack:
            node = stack[-1]
            if state.get(id(node)) is True:
                stack.pop()
                continue
            if id(node) in state:
                state[id(node)] = True
                order.append(node)
                stack.pop()
                continue
            state[id(node)] = False
            calling = [x for x in node.instructions if x.called_computations]
            for instruction in reversed(calling):
                for callee in reversed(instruction.called_computations):
                    seen = state.get(id(callee))
                    if seen is None:
                        stack.append(callee)
                    elif seen is False:
                        raise VerificationError(f"computation {callee.name} calls itself")
        return order

    def all_instructions(self) -> Iterator[HloInstruction]:
        for computation in self.computations:
            yield from computation.instructions

    @property
    def instruction_count(self) -> int:
        return sum(len(c) for c in self.computations)

    def __str__(self) -> str:
        from spmd.text.printer import (
            print_module,  # the printer needs the IR, and not the reverse
        )

        return print_module(self)

    def __repr__(self) -> str:
        return f"<HloModule {self.name}: {self.stage.name.lower()}, {self.instruction_count} instructions>"
