"""Buffer checker: it runs thunks symbolically on shadow memory, and compares their values with the dataflow of the HLO.

Every read must find the value that HLO's dataflow defines. No thunk may write memory that a collective in flight still
uses, or access the collective's results. A result may overlap an operand only if the operation works element by
element. Loops run two trips, so that a value that the first trip destroys is missed in the second. Each branch runs on
its own copy of memory. Parameters that are not donated, and constants, must be unchanged after the step. Values must be
in the memory space of their layouts. Memory that a group of devices shares may be written only when no member can still
need the former values (``color_rules.py``).

The checker uses thunks and HLO, but no code of buffer assignment. Peers access the buffers of a collective in place,
from its start until its done returns and never later. Communicators guarantee that (``BoundCollective``), and their own
tests check it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import NoReturn

from collectives.communicator.kinds.op import CollectiveOp
from runtime.buffers.checker.color_rules import wrong_space, wrong_state, wrong_write
from runtime.buffers.checker.overlap_rules import wrong_overlap
from runtime.buffers.checker.shadow import ShadowMemory
from runtime.buffers.checker.symbols import (
    Context,
    Meaning,
    Meanings,
    Symbol,
    in_spaces_of,
    is_rearranging,
    meaning_leaves,
    own_meanings,
    result_of,
    written_by,
)
from runtime.buffers.persistent import PersistentContents
from runtime.buffers.types import ArrayView, BufferSlice
from runtime.device_program import DeviceProgram
from runtime.program.thunks import (
    CollectiveDoneThunk,
    CollectiveStartThunk,
    ConditionalThunk,
    CopyThunk,
    Role,
    Thunk,
    ThunkSequence,
    UseKind,
    WhileThunk,
)
from spmd.errors import CheckFailed
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import ParameterAttrs

_TRIPS = 2


def check_buffers(module: HloModule, program: DeviceProgram) -> None:
    """Check ``program``, compiled from the scheduled ``module``. Raises CheckFailed for the first violation."""
    _Checker(module, program).run()


@dataclass(frozen=True)
class _PendingCollective:
    """Collective in flight: its slices, and the symbols of its results."""

    operands: tuple[BufferSlice, ...]
    results: tuple[BufferSlice, ...]
    symbols: tuple[Symbol, ...]
    op: CollectiveOp


Thunks = deque[Thunk]


@dataclass
class _Checker:
    """State of a check: the shadow memory, and the collectives in flight by the name of their start."""

    module: HloModule
    program: DeviceProgram
    memory: ShadowMemory = field(init=False)
    pending: dict[str, _PendingCollective] = field(default_factory=dict)

    def run(self) -> None:
        """Check the entire program. Memory holds parameters and constants at first, and must hold outputs at last."""
        allocations = self.program.assignment.allocations
        self.memory = ShadowMemory(allocations)
        entry = self.module.entry
        arguments = [own_meanings(p, (), p.shape) for p in entry.parameters]
        persistent = PersistentContents(
            self.program, [m for argument in arguments for m in meaning_leaves(argument)]
        )
        persistent.write(self.memory)
        thunks = deque(self.program.thunks.thunks)
        root = self.run_computation(entry, arguments, (), thunks)
        self.run_copies(thunks, entry.name)
        self.require_private(entry.name, "output", self.program.outputs)
        self.require_all(entry.name, "output", self.program.outputs, meaning_leaves(root))
        if self.pending:
            self.fail(f"{next(iter(self.pending))} is never waited for")
        lost = persistent.first_lost(self.memory)
        if lost is not None:
            self.fail(lost)

    # ---- dataflow
    def run_computation(
        self,
        computation: HloComputation,
        arguments: Sequence[Meanings],
        context: Context,
        thunks: Thunks,
    ) -> Meanings:
        """Run the instructions in schedule order, each with the thunks of its name, which are taken from ``thunks``.

        arguments: meanings of the parameters. context: activation of the computation. Returns the meanings of the root.
        """
        env: dict[HloInstruction, Meanings] = {}
        for instruction in computation.instructions:
            if instruction.opcode is Opcode.PARAMETER:
                env[instruction] = arguments[instruction.attrs_as(ParameterAttrs).number]
                continue
            operands = [env[operand] for operand in instruction.operands]
            env[instruction] = self.visit(instruction, operands, context, thunks)
        return env[computation.root]

    def visit(
        self,
        instruction: HloInstruction,
        operands: list[Meanings],
        context: Context,
        thunks: Thunks,
    ) -> Meanings:
        """Run the thunks of ``instruction``, and return the meanings of its result."""
        opcode = instruction.opcode
        if opcode is Opcode.CALL:
            inner = (*context, instruction.name)
            return self.run_computation(instruction.to_apply, operands, inner, thunks)
        if opcode is Opcode.WHILE:
            return self.run_while(instruction, operands[0], context, thunks)
        if opcode is Opcode.CONDITIONAL:
            return self.run_conditional(instruction, operands, context, thunks)
        result = result_of(instruction, operands, context)
        for thunk in self.thunks_of(instruction, thunks):
            self.run_thunk(thunk, instruction, operands, result)
        return result

    def run_while(
        self, loop: HloInstruction, state: Meanings, context: Context, thunks: Thunks
    ) -> Meanings:
        """Run two trips of ``loop``, and its condition once more. Returns the meanings of the state after that."""
        thunk = self.run_copies_before(loop, thunks)
        if not isinstance(thunk, WhileThunk):
            self.fail(f"{loop.name} is no loop: {type(thunk).__name__}")
        self.require_private(loop.name, "loop state", [array for _, array in thunk.state])
        state = in_spaces_of(loop.shape, state)
        self.require_state(thunk, "on entry", state)
        for trip in range(_TRIPS + 1):
            inner = (*context, loop.name, trip)
            queue = deque(thunk.condition.thunks)
            (predicate,) = meaning_leaves(
                self.run_computation(loop.while_condition, [state], inner, queue)
            )
            self.run_copies(queue, loop.name)
            self.require(loop.name, "predicate", thunk.predicate.slice, predicate)
            if trip == _TRIPS:
                break
            queue = deque(thunk.body.thunks)
            state = self.run_computation(loop.while_body, [state], inner, queue)
            self.run_copies(queue, loop.name)
            state = in_spaces_of(loop.shape, state)
            self.require_state(thunk, f"after trip {trip + 1}", state)
        return state

    def require_state(self, thunk: WhileThunk, when: str, state: Meanings) -> None:
        """Require that the state leaves with a slice hold the present state. Reads check the other leaves."""
        meanings = meaning_leaves(state)
        for leaf, array in thunk.state:
            self.require(thunk.name, f"state {leaf} {when}", array.slice, meanings[leaf])

    def run_conditional(
        self,
        instruction: HloInstruction,
        operands: list[Meanings],
        context: Context,
        thunks: Thunks,
    ) -> Meanings:
        """Run each branch on a copy of the memory, and keep the values that memory has after all branches."""
        thunk = self.run_copies_before(instruction, thunks)
        if not isinstance(thunk, ConditionalThunk):
            self.fail(f"{instruction.name} is no conditional: {type(thunk).__name__}")
        (selector,) = meaning_leaves(operands[0])
        self.require(instruction.name, "selector", thunk.selector.slice, selector)
        self.require_private(instruction.name, "result", thunk.results)
        result = own_meanings(instruction, context, instruction.shape)
        before, pending_before = self.memory, dict(self.pending)
        after: list[ShadowMemory] = []
        for i, (computation, branch) in enumerate(
            zip(instruction.called_computations, thunk.branches, strict=True)
        ):
            self.memory = before.copy()
            queue = deque(branch.thunks)
            inner = (*context, instruction.name, i)
            root = self.run_computation(computation, [operands[i + 1]], inner, queue)
            self.run_copies(queue, instruction.name)
            what, left = f"result of branch {i}", in_spaces_of(instruction.shape, root)
            self.require_all(instruction.name, what, thunk.results, meaning_leaves(left))
            for array, meaning in zip(thunk.results, meaning_leaves(result), strict=True):
                self.memory.add(array.slice, meaning.symbols[0])
            if self.pending != pending_before:
                self.fail(f"{instruction.name}: branch {i} leaves a collective in flight")
            after.append(self.memory)
        self.memory = after[0]
        for other in after[1:]:
            self.memory.keep_common(other)
        return result

    # ---- thunks
    def thunks_of(self, instruction: HloInstruction, thunks: Thunks) -> Iterator[Thunk]:
        """Yield the thunks of one execution of ``instruction``: copies of operands, then the thunk that computes.

        A rearranging instruction has one copy, or no thunk. Further thunks of the same name belong to another call of
        the same computation.
        """
        while thunks and thunks[0].name == instruction.name:
            thunk = thunks.popleft()
            yield thunk
            if not isinstance(thunk, CopyThunk) or is_rearranging(instruction):
                return

    def run_copies_before(self, instruction: HloInstruction, thunks: Thunks) -> Thunk:
        """Run the copies before the control flow thunk of ``instruction``, and return this thunk."""
        while thunks and thunks[0].name == instruction.name:
            thunk = thunks.popleft()
            if not isinstance(thunk, CopyThunk):
                return thunk
            self.run_copy(thunk)
        return self.fail(f"no thunk runs {instruction.name}")

    def run_copies(self, thunks: Thunks, name: str) -> None:
        """Run the copies after the last instruction of a region of ``name``. Any other thunk is a violation."""
        while thunks:
            thunk = thunks.popleft()
            if not isinstance(thunk, CopyThunk) or thunk.name != name:
                self.fail(
                    f"{type(thunk).__name__} {thunk.name} stands where the schedule has no such instruction"
                )
            self.run_copy(thunk)

    def run_copy(self, thunk: CopyThunk) -> None:
        """Give the target of a copy the symbols of its source. Later reads check that these are the right ones."""
        symbols = self.memory.symbols_in(thunk.source.slice)
        if not symbols and thunk.source.slice.size:
            self.fail(f"{thunk.name} copies from {thunk.source.slice}, which holds no whole value")
        self.touch(thunk.name, thunk.source.slice, UseKind.READ)
        if thunk.source.slice.overlaps(thunk.target.slice):
            self.fail(
                f"{thunk.name} copies {thunk.source.slice} over itself to {thunk.target.slice}"
            )
        self.put(thunk.name, thunk.target.slice, symbols)

    def run_thunk(
        self,
        thunk: Thunk,
        instruction: HloInstruction,
        operands: list[Meanings],
        result: Meanings,
    ) -> None:
        """Run a thunk of ``instruction``. ``operands``, ``result``: meanings of its operands and its result."""
        if isinstance(thunk, ThunkSequence):
            for inner in thunk.thunks:
                self.run_thunk(inner, instruction, operands, result)
        elif isinstance(thunk, CopyThunk):
            self.run_copy(thunk)
        elif isinstance(thunk, CollectiveDoneThunk):
            self.finish(thunk)
        else:
            self.run_ordinary(thunk, instruction, operands, result)

    def run_ordinary(
        self,
        thunk: Thunk,
        instruction: HloInstruction,
        operands: list[Meanings],
        result: Meanings,
    ) -> None:
        """Run a thunk that is no copy, sequence or done: check its reads and overlaps, and write its results."""
        name = instruction.name
        wanted = [m for operand in operands for m in meaning_leaves(operand)]
        uses = list(thunk.buffer_uses())
        reads = [use for use in uses if use.kind is UseKind.READ]
        writes = [use for use in uses if use.kind is UseKind.WRITE]
        for use in reads:
            self.require(name, f"operand {use.leaf}", use.slice, wanted[use.leaf])
        scratch = [use.slice for use in writes if use.role is Role.SCRATCH]
        result_slices = [use.slice for use in writes if use.role is Role.RESULT]
        op = thunk.op if isinstance(thunk, CollectiveStartThunk) else None
        wrong = wrong_overlap(instruction, [use.array for use in reads], scratch, result_slices, op)
        if wrong:
            self.fail(f"{name} {wrong}")
        for slice_ in scratch:
            self.put(name, slice_, frozenset())
        own = meaning_leaves(written_by(instruction, result))
        symbols = tuple(meaning.symbols[0] for meaning in own)
        if len(symbols) != len(result_slices):
            self.fail(f"{name} has {len(symbols)} results, its thunk writes {len(result_slices)}")
        for slice_, meaning in zip(result_slices, own, strict=True):
            self.require_space(name, "result", slice_, meaning)
        if isinstance(thunk, CollectiveStartThunk):
            for slice_ in result_slices:
                self.touch(name, slice_, UseKind.WRITE, thunk.op)
            operand_slices = tuple(use.slice for use in reads)
            self.pending[name] = _PendingCollective(
                operand_slices, tuple(result_slices), symbols, thunk.op
            )
            return
        for slice_, symbol in zip(result_slices, symbols, strict=True):
            self.put(name, slice_, frozenset({symbol}))

    def finish(self, done: CollectiveDoneThunk) -> None:
        """End a collective: its results have their values from now on."""
        collective = self.pending.pop(done.start, None)
        if collective is None:
            self.fail(f"{done.name} waits for {done.start}, which is not in flight")
        for slice_, symbol in zip(collective.results, collective.symbols, strict=True):
            self.put(done.name, slice_, frozenset({symbol}), collective.op)

    # ---- memory
    def put(
        self,
        name: str,
        slice_: BufferSlice,
        symbols: frozenset[Symbol],
        op: CollectiveOp | None = None,
    ) -> None:
        """Check the write of ``slice_`` by ``name``, and write ``symbols``. ``op``: the collective that writes."""
        self.touch(name, slice_, UseKind.WRITE, op)
        self.memory.write(slice_, symbols)

    def touch(
        self, name: str, slice_: BufferSlice, kind: UseKind, op: CollectiveOp | None = None
    ) -> None:
        """Check an access to ``slice_`` by ``name``. ``op``: the collective that writes; None for other accesses."""
        allocation = self.program.assignment.allocations[slice_.allocation]
        if slice_.offset < 0 or slice_.offset + slice_.span > allocation.size:
            self.fail(f"{name} uses {slice_} outside of its allocation of {allocation.size} bytes")
        if kind is UseKind.WRITE and (reason := wrong_write(allocation, op)):
            self.fail(f"{name} writes to {reason} at {slice_}")
        for start, collective in self.pending.items():
            busy = (
                collective.results
                if kind is UseKind.READ
                else (*collective.operands, *collective.results)
            )
            if any(slice_.overlaps(other) for other in busy):
                self.fail(f"{name} {kind.value}s {slice_} while {start} is in flight")

    def require(self, name: str, what: str, slice_: BufferSlice, meaning: Meaning) -> None:
        """Check that ``slice_``, which ``name`` reads as ``what``, holds a value with ``meaning``."""
        self.touch(name, slice_, UseKind.READ)
        if not self.memory.holds(slice_, meaning.symbols):
            found = ", ".join(sorted(map(str, self.memory.symbols_in(slice_)))) or "no whole value"
            self.fail(f"{name}: {what} should be {meaning} at {slice_}, which holds {found}")
        self.require_space(name, what, slice_, meaning)

    def require_all(
        self, name: str, what: str, arrays: Sequence[ArrayView], meanings: Sequence[Meaning]
    ) -> None:
        """Check that each of ``arrays`` holds the value with the meaning at its position."""
        for i, (array, meaning) in enumerate(zip(arrays, meanings, strict=True)):
            self.require(name, f"{what} {i}", array.slice, meaning)

    def require_space(self, name: str, what: str, slice_: BufferSlice, meaning: Meaning) -> None:
        """Check that ``slice_`` is in the memory space of ``meaning``."""
        allocation = self.program.assignment.allocations[slice_.allocation]
        if slice_.size and (reason := wrong_space(allocation, meaning)):
            self.fail(f"{name}: {what} at {slice_} {reason}")

    def require_private(self, name: str, what: str, arrays: Sequence[ArrayView]) -> None:
        """Check that ``arrays`` are in memory that no other device shares."""
        for array in arrays:
            allocation = self.program.assignment.allocations[array.slice.allocation]
            if reason := wrong_state(allocation):
                self.fail(f"{name}: {what} lies at {array.slice}, {reason}")

    def fail(self, message: str) -> NoReturn:
        """Raise CheckFailed."""
        raise CheckFailed(f"buffer checker: {self.module.name}: {message}")
