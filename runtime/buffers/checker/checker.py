"""Buffer checker: runs the thunks symbolically on shadow memory and compares them with the HLO they came from.

Every read must find the value that HLO's dataflow defines. No thunk may write memory that a collective in flight still
uses, nor touch its results. A result may overlap an operand only if the operation works element by element. Loops run
two trips, so that a value destroyed in the first is missed in the second; each branch runs on its own copy of memory.
Parameters that are not donated, and constants, must be unchanged after the step. Values lie in the memory space of
their layouts. Memory that a group of devices shares is written only when no member can be behind (``color_rules.py``).

The checker follows the definition: it uses thunks and HLO, and nothing of buffer assignment. Peers access a
collective's buffers in place, from its start until its done returns and never after: communicators guarantee that
(``BoundCollective``), and their own tests check it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
from runtime.buffers.kept import KeptBetweenSteps
from runtime.buffers.types import ArrayView, BufferSlice
from runtime.device_program import DeviceProgram
from runtime.program.thunks.collective import CollectiveDoneThunk, CollectiveStartThunk
from runtime.program.thunks.conditional import ConditionalThunk
from runtime.program.thunks.copy import CopyThunk
from runtime.program.thunks.sequence import ThunkSequence
from runtime.program.thunks.thunk import Role, Thunk, UseKind
from runtime.program.thunks.while_loop import WhileThunk
from spmd.errors import CheckFailed
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode
from spmd.ops.attrs import ParameterAttrs

_TRIPS = 2


def check_buffers(module: HloModule, program: DeviceProgram) -> None:
    """Raise CheckFailed for the first violation. ``program`` was compiled from ``module``, which is scheduled."""
    _Checker(module, program).run()


@dataclass(frozen=True)
class _InFlight:
    operands: tuple[BufferSlice, ...]
    results: tuple[BufferSlice, ...]
    symbols: tuple[Symbol, ...]
    op: CollectiveOp


Thunks = deque[Thunk]


@dataclass
class _Checker:
    module: HloModule
    program: DeviceProgram
    memory: ShadowMemory = field(init=False)
    in_flight: dict[str, _InFlight] = field(default_factory=dict)

    def run(self) -> None:
        """Check the entire program: parameters and constants exist before it, every output must exist after it."""
        allocations = self.program.assignment.allocations
        self.memory = ShadowMemory(allocations)
        entry = self.module.entry
        arguments = [own_meanings(p, (), p.shape) for p in entry.parameters]
        kept = KeptBetweenSteps(
            self.program, [m for argument in arguments for m in meaning_leaves(argument)]
        )
        kept.write(self.memory)
        thunks = deque(self.program.thunks.thunks)
        root = self.run_computation(entry, arguments, (), thunks)
        self.run_copies(thunks, entry.name)
        self.require_private(entry.name, "output", self.program.outputs)
        self.require_all(entry.name, "output", self.program.outputs, meaning_leaves(root))
        if self.in_flight:
            self.fail(f"{next(iter(self.in_flight))} is never waited for")
        lost = kept.first_lost(self.memory)
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
        """Run instructions in schedule order, each with the thunks of its name. Returns the meanings of the root."""
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
        opcode = instruction.opcode
        if opcode is Opcode.CALL:
            inner = (*context, instruction.name)
            return self.run_computation(instruction.to_apply, operands, inner, thunks)
        if opcode is Opcode.WHILE:
            return self.run_while(instruction, operands[0], context, thunks)
        if opcode is Opcode.CONDITIONAL:
            return self.run_conditional(instruction, operands, context, thunks)
        result = result_of(instruction, operands, context)
        for thunk in self.take(instruction, thunks):
            self.run_thunk(thunk, instruction, operands, result)
        return result

    def run_while(
        self, loop: HloInstruction, state: Meanings, context: Context, thunks: Thunks
    ) -> Meanings:
        thunk = self.run_copies_before(loop, thunks)
        if not isinstance(thunk, WhileThunk):
            self.fail(f"{loop.name} is no loop: {type(thunk).__name__}")
        self.require_private(loop.name, "loop state", [place for _, place in thunk.state])
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
        """Require that leaves with a slice hold the current loop state. The readers of other leaves check those."""
        meanings = meaning_leaves(state)
        for leaf, place in thunk.state:
            self.require(thunk.name, f"state {leaf} {when}", place.slice, meanings[leaf])

    def run_conditional(
        self,
        instruction: HloInstruction,
        operands: list[Meanings],
        context: Context,
        thunks: Thunks,
    ) -> Meanings:
        thunk = self.run_copies_before(instruction, thunks)
        if not isinstance(thunk, ConditionalThunk):
            self.fail(f"{instruction.name} is no conditional: {type(thunk).__name__}")
        (selector,) = meaning_leaves(operands[0])
        self.require(instruction.name, "selector", thunk.selector.slice, selector)
        self.require_private(instruction.name, "result", thunk.results)
        result = own_meanings(instruction, context, instruction.shape)
        before, flights = self.memory, dict(self.in_flight)
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
            for place, meaning in zip(thunk.results, meaning_leaves(result), strict=True):
                self.memory.add(place.slice, meaning.symbols[0])
            if self.in_flight != flights:
                self.fail(f"{instruction.name}: branch {i} leaves a collective in flight")
            after.append(self.memory)
        self.memory = after[0]
        for other in after[1:]:
            self.memory.keep_common(other)
        return result

    # ---- thunks
    def take(self, instruction: HloInstruction, thunks: Thunks) -> Iterator[Thunk]:
        """Yield the thunks of one execution: copies of operands, then the one that computes.

        A rearranging instruction has one copy, or no thunk. Further thunks of the same name belong to another call
        of the same computation.
        """
        while thunks and thunks[0].name == instruction.name:
            thunk = thunks.popleft()
            yield thunk
            if not isinstance(thunk, CopyThunk) or is_rearranging(instruction):
                return

    def run_copies_before(self, instruction: HloInstruction, thunks: Thunks) -> Thunk:
        """Run the copies before a control flow thunk. Returns that thunk."""
        while thunks and thunks[0].name == instruction.name:
            thunk = thunks.popleft()
            if not isinstance(thunk, CopyThunk):
                return thunk
            self.run_copy(thunk)
        return self.fail(f"no thunk runs {instruction.name}")

    def run_copies(self, thunks: Thunks, name: str) -> None:
        """Run the copies after the last instruction of a region. Fails on any other thunk."""
        while thunks:
            thunk = thunks.popleft()
            if not isinstance(thunk, CopyThunk) or thunk.name != name:
                self.fail(
                    f"{type(thunk).__name__} {thunk.name} stands where the schedule has no such instruction"
                )
            self.run_copy(thunk)

    def run_copy(self, thunk: CopyThunk) -> None:
        """Give the target the symbols of the source. Later reads check that these are right."""
        symbols = self.memory.held(thunk.source.slice)
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
        name = instruction.name
        wanted = [m for operand in operands for m in meaning_leaves(operand)]
        uses = list(thunk.buffer_uses())
        reads = [use for use in uses if use.kind is UseKind.READ]
        writes = [use for use in uses if use.kind is UseKind.WRITE]
        for use in reads:
            self.require(name, f"operand {use.leaf}", use.slice, wanted[use.leaf])
        scratch = [use.slice for use in writes if use.role is Role.SCRATCH]
        places = [use.slice for use in writes if use.role is Role.RESULT]
        op = thunk.op if isinstance(thunk, CollectiveStartThunk) else None
        wrong = wrong_overlap(instruction, [use.place for use in reads], scratch, places, op)
        if wrong:
            self.fail(f"{name} {wrong}")
        for slice_ in scratch:
            self.put(name, slice_, frozenset())
        own = meaning_leaves(written_by(instruction, result))
        symbols = tuple(meaning.symbols[0] for meaning in own)
        if len(symbols) != len(places):
            self.fail(f"{name} has {len(symbols)} results, its thunk writes {len(places)}")
        for slice_, meaning in zip(places, own, strict=True):
            self.require_space(name, "result", slice_, meaning)
        if isinstance(thunk, CollectiveStartThunk):
            for slice_ in places:
                self.touch(name, slice_, UseKind.WRITE, thunk.op)
            operand_slices = tuple(use.slice for use in reads)
            self.in_flight[name] = _InFlight(operand_slices, tuple(places), symbols, thunk.op)
            return
        for slice_, symbol in zip(places, symbols, strict=True):
            self.put(name, slice_, frozenset({symbol}))

    def finish(self, done: CollectiveDoneThunk) -> None:
        flight = self.in_flight.pop(done.start, None)
        if flight is None:
            self.fail(f"{done.name} waits for {done.start}, which is not in flight")
        for slice_, symbol in zip(flight.results, flight.symbols, strict=True):
            self.put(done.name, slice_, frozenset({symbol}), flight.op)

    # ---- memory
    def put(
        self,
        name: str,
        place: BufferSlice,
        symbols: frozenset[Symbol],
        op: CollectiveOp | None = None,
    ) -> None:
        self.touch(name, place, UseKind.WRITE, op)
        self.memory.write(place, symbols)

    def touch(
        self, name: str, place: BufferSlice, kind: UseKind, op: CollectiveOp | None = None
    ) -> None:
        """Check an access to ``place``. ``op``: that of the collective that writes, if one does."""
        allocation = self.program.assignment.allocations[place.allocation]
        if place.offset < 0 or place.offset + place.span > allocation.size:
            self.fail(f"{name} uses {place} outside of its allocation of {allocation.size} bytes")
        if kind is UseKind.WRITE and (reason := wrong_write(allocation, op)):
            self.fail(f"{name} writes to {reason} at {place}")
        for start, flight in self.in_flight.items():
            busy = flight.results if kind is UseKind.READ else (*flight.operands, *flight.results)
            if any(place.overlaps(other) for other in busy):
                self.fail(f"{name} {kind.value}s {place} while {start} is in flight")

    def require(self, name: str, what: str, place: BufferSlice, meaning: Meaning) -> None:
        self.touch(name, place, UseKind.READ)
        if not self.memory.holds(place, meaning.symbols):
            held = ", ".join(sorted(map(str, self.memory.held(place)))) or "no whole value"
            self.fail(f"{name}: {what} should be {meaning} at {place}, which holds {held}")
        self.require_space(name, what, place, meaning)

    def require_all(
        self, name: str, what: str, places: Sequence[ArrayView], meanings: Sequence[Meaning]
    ) -> None:
        for i, (place, meaning) in enumerate(zip(places, meanings, strict=True)):
            self.require(name, f"{what} {i}", place.slice, meaning)

    def require_space(self, name: str, what: str, place: BufferSlice, meaning: Meaning) -> None:
        allocation = self.program.assignment.allocations[place.allocation]
        if place.size and (reason := wrong_space(allocation, meaning)):
            self.fail(f"{name}: {what} at {place} {reason}")

    def require_private(self, name: str, what: str, places: Sequence[ArrayView]) -> None:
        for place in places:
            allocation = self.program.assignment.allocations[place.slice.allocation]
            if reason := wrong_state(allocation):
                self.fail(f"{name}: {what} lies at {place.slice}, {reason}")

    def fail(self, message: str) -> NoReturn:
        raise CheckFailed(f"buffer checker: {self.module.name}: {message}")
