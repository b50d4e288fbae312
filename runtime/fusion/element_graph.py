"""Elementwise computation of some instructions: a scalar program over elements that are read from memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from runtime.fusion.element_operations import (
    array_shape,
    combination,
    element_operation,
    is_elementwise,
    renames,
    splat_constant,
    terms,
)
from runtime.fusion.piecewise import is_piecewise, piece_read
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.view_path import (
    AccessMap,
    ViewOp,
    ViewPath,
    access_map,
    repeated,
    shifts,
    through,
    view_op,
)
from runtime.program.scalar_program import (
    ElementSignature,
    ScalarOp,
    ScalarProgram,
    ScalarStep,
)
from runtime.program.strides import Range, Shift, StridedView
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import IotaAttrs
from spmd.shape import PrimitiveType

#: Limits on the values computed and the elements read per index, for the sake of compile time and registers.
MAX_STEPS = 256
MAX_LEAVES = 48
#: Opcodes whose values a scalar program generates without operands.
SOURCES = frozenset({Opcode.CONSTANT, Opcode.IOTA})


@dataclass(frozen=True, slots=True)
class InputLeaf:
    """Element of input ``number``, of type ``kind``, that is seen through ``path`` at each point of the index space."""

    number: int
    kind: PrimitiveType
    path: ViewPath


@dataclass(frozen=True, slots=True)
class CountLeaf:
    """Leaf that is an s64 number: ``counting.offset`` plus the dot product of the index and ``counting.strides``."""

    counting: StridedView
    shifts: tuple[Shift, ...] = ()
    kind: PrimitiveType = PrimitiveType.S64


Leaf: TypeAlias = InputLeaf | CountLeaf


@dataclass(frozen=True, slots=True)
class ElementGraph:
    """Scalar program, whose parameter i is the element of leaf i, and whose results are wanted values, in order."""

    leaves: tuple[Leaf, ...]
    program: ScalarProgram

    @property
    def input_leaves(self) -> list[InputLeaf]:
        """Leaves that read inputs."""
        return [leaf for leaf in self.leaves if isinstance(leaf, InputLeaf)]


#: An instruction and the path through which its value is seen.
Wanted: TypeAlias = tuple[HloInstruction, ViewPath]
#: Key of a read of an instruction: the access map, or the path if strides cannot express it.
Key: TypeAlias = AccessMap | ViewPath
#: An instruction and the key of one read of its value.
_Read: TypeAlias = tuple[HloInstruction, Key]


@dataclass
class Starts:
    """Start scalars of dynamic slices, numbered in order of discovery. All graphs of a kernel share the numbers."""

    scalars: list[HloInstruction] = field(default_factory=list)

    def number(self, scalar: HloInstruction) -> int:
        """Return the number of ``scalar``, which is added if it is new."""
        if scalar not in self.scalars:
            self.scalars.append(scalar)
        return self.scalars.index(scalar)

    def copy(self) -> Starts:
        """Return an independent copy."""
        return Starts(list(self.scalars))

    def numbers(self, x: HloInstruction, starts: Sequence[HloInstruction]) -> tuple[int, ...]:
        """Return the numbers of ``starts``, the start scalars of ``x``, one for each dimension of its first operand.

        Raises NoEmitterError if the starts are a vector or of type u64.
        """
        if len(starts) != array_shape(x.operand(0)).rank:
            raise NoEmitterError(f"{x.name} starts at a vector of indices")
        if any(array_shape(start).element_type is PrimitiveType.U64 for start in starts):
            raise NoEmitterError(f"{x.name} starts at an index of u64")
        return tuple(map(self.number, starts))

    def view_op(self, x: HloInstruction) -> ViewOp | None:
        """Return the view operation of ``x``, which may be a dynamic slice; None if it computes or copies."""
        if x.opcode is Opcode.DYNAMIC_SLICE:
            return ViewOp(x.opcode, x.dims, starts=self.numbers(x, x.operands[1:]))
        return view_op(x)

    def graphs(self, inputs: Mapping[HloInstruction, int]) -> tuple[ElementGraph, ...]:
        """Return the graphs that compute the start scalars, once per kernel, from elements of ``inputs``.

        The results of the last graph are all scalars as s64. If the leaves of a graph are themselves dynamic slices,
        the graph before computes their start scalars.
        """
        if not self.scalars:
            return ()
        before = Starts()
        graph = element_graph([(scalar, ()) for scalar in self.scalars], inputs, before)
        program = graph.program
        steps, results = list(program.steps), []
        for register in program.results:
            signature = ElementSignature(
                Opcode.CONVERT, (program.kind_of(register),), PrimitiveType.S64
            )
            results.append(len(program.parameters) + len(steps))
            steps.append(element_operation(signature, (register,)))
        numbers = ScalarProgram(program.parameters, tuple(steps), tuple(results))
        return (*before.graphs(inputs), ElementGraph(graph.leaves, numbers))


def element_graph(
    wanted: Sequence[Wanted],
    inputs: Mapping[HloInstruction, int],
    starts: Starts,
    ranges: Sequence[Range] = (),
    order: Sequence[HloInstruction] | None = None,
) -> ElementGraph:
    """Return the program that computes ``wanted`` from elements of ``inputs``, which are its leaves.

    An instruction that several others read at one index is computed once; at two indices, twice. Start scalars of
    dynamic slices are added to ``starts``, and ``ranges`` narrow the index space. ``order`` may give the post order of
    ``wanted``, for a caller that needs the same instructions at several indices.

    Raises NoEmitterError if an instruction is not elementwise or strides cannot express how an input is read, and
    CutError if the index decides which operand is read.
    """
    if order is None:
        order = post_order([instruction for instruction, _ in wanted], inputs)
    return _Builder(wanted, inputs, starts, order, ranges).build()


def post_order(
    roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]
) -> list[HloInstruction]:
    """Return the instructions that ``roots`` need, operands first. ``inputs`` are included, but not their operands."""
    done: dict[HloInstruction, None] = {}
    begun: set[HloInstruction] = set()
    stack = [*reversed(roots)]
    while stack:
        instruction = stack[-1]
        if instruction not in begun and instruction not in done and instruction not in inputs:
            begun.add(instruction)
            stack += reversed(instruction.operands)
        else:
            done[stack.pop()] = None
    return list(done)


def read_key(
    instruction: HloInstruction, path: ViewPath, inputs: Collection[HloInstruction]
) -> Key:
    """Return the key of a read. All reads of a constant that is no input have one key, since its elements are equal."""
    if instruction.opcode is Opcode.CONSTANT and instruction not in inputs:
        return ()
    return _key_of_elements(instruction, path)


def _key_of_elements(instruction: HloInstruction, path: ViewPath) -> Key:
    """Return the key of a read of an array whose elements may all differ."""
    found = access_map(path, array_shape(instruction).dims)
    return path if found is None else found


def counting_line(iota: HloInstruction) -> StridedView:
    """Return the elements of an iota as the offsets of a view, with stride 1 along the dimension that is counted."""
    shape, along = array_shape(iota), iota.attrs_as(IotaAttrs).dimension
    steps = tuple(int(d == along) for d in range(shape.rank))
    return StridedView(shape.element_type, shape.dims, steps)


def shown_operand(instruction: HloInstruction, path: ViewPath, starts: Starts) -> Wanted | None:
    """Return the operand read equal to a read of ``instruction`` through ``path``, or None if the instruction computes.

    A concatenation or a pad must be passed to ``piece_read`` instead, because the index decides which operand is read.
    """
    if renames(instruction):
        return instruction.operand(0), path
    op = starts.view_op(instruction)
    return None if op is None else (instruction.operand(0), (op, *path))


def operand_reads(
    instruction: HloInstruction, path: ViewPath, key: Key
) -> Iterator[tuple[HloInstruction, ViewPath, Key]]:
    """Yield the operand reads, with their keys, of a computing ``instruction`` that is itself read.

    The instruction is read through ``path`` with ``key``. Operands of the instruction's own sizes are read with the
    same key. Raises NoEmitterError if the instruction is not elementwise.
    """
    if instruction.opcode is Opcode.REDUCE:
        for operand, there in terms(instruction, path):
            yield operand, there, _key_of_elements(operand, there)
        return
    if not is_elementwise(instruction.opcode):
        raise NoEmitterError(f"{instruction.opcode} is no element operation")
    dims = array_shape(instruction).dims
    for operand in instruction.operands:
        shape = array_shape(operand)
        if shape.dims == dims:
            yield operand, path, key
        elif not shape.dims:
            everywhere = (repeated(dims), *path)
            yield operand, everywhere, _scalar_key(key, everywhere)
        else:
            raise NoEmitterError(f"{instruction.name} has other sizes than its operands")


def _scalar_key(key: Key, path: ViewPath) -> Key:
    """Return the key of the read of a scalar operand through ``path``, by an instruction that is read with ``key``."""
    return AccessMap((0,) * len(key.strides), 0) if isinstance(key, AccessMap) else path


@dataclass
class _Builder:
    """Builder of a graph.

    ``demands`` holds the reads of each instruction, ``reads`` the operand reads of each read that computes, and
    ``same`` the equal operand read of each read that only renames or rearranges.
    """

    wanted: Sequence[Wanted]
    inputs: Mapping[HloInstruction, int]
    starts: Starts
    order: Sequence[HloInstruction]
    ranges: Sequence[Range] = ()
    demands: dict[HloInstruction, dict[Key, ViewPath]] = field(default_factory=dict)
    reads: dict[_Read, list[_Read]] = field(default_factory=dict)
    same: dict[_Read, _Read] = field(default_factory=dict)
    leaves: list[Leaf] = field(default_factory=list)
    steps: list[ScalarStep] = field(default_factory=list)
    leaf_of: dict[_Read, int] = field(default_factory=dict)
    registers: dict[_Read, int] = field(default_factory=dict)
    size: int = 0

    def build(self) -> ElementGraph:
        wanted = [self.add_read(*each) for each in self.wanted]
        for instruction in reversed(self.order):
            # Only the first of several paths to the same elements is in ``demands``.
            for key, path in list(self.demands.get(instruction, {}).items()):
                self.follow((instruction, key), path)
        self.make_leaves()
        for instruction in self.order:
            self.make_steps(instruction)
        self.check_size()
        return _in_order_of_use(self.leaves, self.steps, list(map(self.register, wanted)))

    def follow(self, read: _Read, path: ViewPath) -> None:
        """Demand the operand reads that ``read``, through ``path``, needs."""
        instruction, key = read
        if instruction in self.inputs or instruction.opcode in SOURCES:
            return
        if is_piecewise(instruction):
            seen: Wanted | None = piece_read(instruction, path, self.ranges)
        else:
            seen = shown_operand(instruction, path, self.starts)
        if seen is not None:
            self.same[read] = self.add_read(*seen)
        else:
            reads = operand_reads(instruction, path, key)
            self.reads[read] = [self.add_at(*each) for each in reads]

    def add_read(self, instruction: HloInstruction, path: ViewPath) -> _Read:
        return self.add_at(instruction, path, read_key(instruction, path, self.inputs))

    def add_at(self, instruction: HloInstruction, path: ViewPath, key: Key) -> _Read:
        """Demand the read of ``instruction`` through ``path``, whose key is ``key``."""
        if instruction.opcode is Opcode.CONSTANT and instruction not in self.inputs:
            key = ()
        demands = self.demands.setdefault(instruction, {})
        if key not in demands:
            demands[key] = path
            self.size += 1
        self.check_size()
        return instruction, key

    def check_size(self) -> None:
        """Raise NoEmitterError if the graph exceeds the limits of a kernel."""
        if self.size > 2 * MAX_STEPS or len(self.steps) > MAX_STEPS:
            raise NoEmitterError(f"a kernel computes at most {MAX_STEPS} values per element")
        if len(self.leaves) > MAX_LEAVES:
            raise NoEmitterError(f"a kernel reads at most {MAX_LEAVES} elements per index")

    def register(self, read: _Read) -> int:
        while read in self.same:
            read = self.same[read]
        return self.registers[read]

    def make_leaves(self) -> None:
        for instruction in self.order:
            if instruction not in self.inputs and instruction.opcode is not Opcode.IOTA:
                continue
            for key, path in self.demands.get(instruction, {}).items():
                self.leaf_of[instruction, key] = len(self.leaves)
                self.leaves.append(self.leaf(instruction, path))

    def leaf(self, instruction: HloInstruction, path: ViewPath) -> Leaf:
        """Return the leaf of an input or an iota that is read through ``path``."""
        shape = array_shape(instruction)
        if instruction in self.inputs:
            if access_map(path, shape.dims) is None:
                raise NoEmitterError(
                    f"no strides say how {instruction.name} is read after a reshape"
                )
            return InputLeaf(self.inputs[instruction], shape.element_type, path)
        line = counting_line(instruction)
        counting = through(path, line)
        if counting is None:
            raise NoEmitterError(
                f"{instruction.name} is no straight line of numbers after a reshape"
            )
        return CountLeaf(counting, shifts(path, line))

    def make_steps(self, instruction: HloInstruction) -> None:
        """Append the program steps of all reads of ``instruction``."""
        for key in self.demands.get(instruction, {}):
            read = instruction, key
            if instruction in self.inputs:
                self.registers[read] = self.leaf_of[read]
            elif read not in self.same:
                self.steps += self.steps_of(read)
                self.registers[read] = len(self.leaves) + len(self.steps) - 1

    def steps_of(self, read: _Read) -> list[ScalarStep]:
        """Return the program steps that compute ``read``; the last one gives its value."""
        instruction, _ = read
        if instruction.opcode is not Opcode.REDUCE:
            return [self.step(read)]
        registers = [self.register(each) for each in self.reads[read]]
        return [*combination(instruction, registers, len(self.leaves) + len(self.steps))]

    def step(self, read: _Read) -> ScalarStep:
        """Return the program step that computes ``read`` of a constant, an iota or an elementwise instruction."""
        instruction, _ = read
        if instruction.opcode is Opcode.CONSTANT:
            return splat_constant(instruction)
        result = array_shape(instruction).element_type
        if instruction.opcode is Opcode.IOTA:
            signature = ElementSignature(Opcode.CONVERT, (PrimitiveType.S64,), result)
            return element_operation(signature, (self.leaf_of[read],))
        reads = self.reads[read]
        kinds = tuple(array_shape(operand).element_type for operand, _ in reads)
        signature = ElementSignature(instruction.opcode, kinds, result, instruction.attrs)
        return element_operation(signature, tuple(map(self.register, reads)))


def _in_order_of_use(
    leaves: Sequence[Leaf], steps: Sequence[ScalarStep], results: Sequence[int]
) -> ElementGraph:
    """Return the graph with its leaves numbered in the order in which the program first uses them.

    Loops that differ only in their inputs then share one program and its machine code, such as the pieces of a stencil,
    which read each neighbour either from the halo or from the tile.
    """
    operands = [r for step in steps if isinstance(step, ScalarOp) for r in step.operands]
    used = [r for r in dict.fromkeys((*operands, *results)) if r < len(leaves)]
    order = list(dict.fromkeys((*used, *range(len(leaves)))))
    program = ScalarProgram(tuple(leaf.kind for leaf in leaves), tuple(steps), tuple(results))
    return ElementGraph(tuple(leaves[n] for n in order), program.with_parameters(order))
