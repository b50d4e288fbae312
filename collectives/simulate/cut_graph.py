"""Dataflow graph of a program whose values can be split into pieces. Calls, fusions and loop trips are expanded.

Nodes are arrays. A kernel's seconds are those of the nodes of its results. The nodes inside a fusion take no time; they
determine along which dimensions of the operands each result can be computed piece by piece. Only some trips of a long
loop are expanded, one of which stands for all others. This shortens the paths before and after the loop's nodes, which
is valid because the results are lower bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from collectives.cost.estimator import CollectiveTime, Estimator
from collectives.cost.host_link import ended_start
from collectives.passes.exchange_region import region_ways
from collectives.schedule.phases import is_blocking, is_done, is_start
from spmd.analysis.executions import counted_trips
from spmd.analysis.split_rules import Along, length_along
from spmd.hlo import HloComputation, HloInstruction, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.hlo.opcode_roles import WEIGHTLESS, wrapped
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import CollectiveAttrs, ParameterAttrs, TupleIndexAttrs
from spmd.ops.groups import group_size
from spmd.shape import ArrayShape, Shape, TupleShape

#: Largest numbers of pieces into which passes split a value, and into which they split each device's part of a value in
#: a ring of at most LARGEST_RING devices.
PIECES, RING_PIECES, LARGEST_RING = 8, 4, 8
#: Number of nodes up to which loops are expanded.
MOST_NODES = 60_000
#: Number of trips of a loop that are expanded in any case.
LEAST_TRIPS = 3


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to split a node into pieces.

    along: the dimensions that are split.
    first: seconds until the first piece is complete, counted from when the first pieces of its operands are.
    last: seconds until the last piece is complete, counted from when all operands are.
    """

    along: Along
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Node:
    """A value that can be split.

    reads: the nodes that it is computed from.
    cuts: ways to split it, with a dimension of each node that it reads.
    seconds: time of the unsplit computation.
    """

    reads: tuple[int, ...]
    cuts: tuple[Cut, ...] = ()
    seconds: float = 0.0


@dataclass(slots=True)
class Task:
    """A task that occupies resources.

    nodes: the nodes of its results.
    uses: (name of a resource, seconds for which it is busy) pairs.
    times: number of executions that the task stands for.
    """

    nodes: tuple[int, ...]
    uses: tuple[tuple[str, float], ...]
    seconds: float
    times: int


#: A value: a node, or the values of a tuple's elements.
Value: TypeAlias = "int | tuple[Value, ...]"

COMPUTE = "compute"
_RINGS = (Opcode.ALL_GATHER, Opcode.ALL_GATHER_START, Opcode.REDUCE_SCATTER)


@dataclass
class CutGraph:
    """Graph of one device's program; ``branches``: the branches that conditionals are assumed to run."""

    estimator: Estimator
    branches: Mapping[HloInstruction, HloComputation] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    pieces: int = PIECES
    _known: dict[HloInstruction, tuple[Cut, ...]] = field(default_factory=dict)
    _times: int = 1
    _copies: dict[HloInstruction, None] = field(default_factory=dict)

    @staticmethod
    def of(
        entry: HloComputation,
        estimator: Estimator,
        branches: Mapping[HloInstruction, HloComputation],
    ) -> CutGraph:
        """Return the graph of ``entry``, whose parameters are available at the beginning."""
        graph = CutGraph(estimator, branches, pieces=_most_pieces(entry))
        graph._run(entry, [graph._given(x.shape) for x in entry.parameters])
        return graph

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _given(self, shape: Shape) -> Value:
        """Add the nodes of a parameter. Returns its value."""
        if isinstance(shape, TupleShape):
            return tuple(map(self._given, shape.elements))
        return self._add(Node(()))

    def _run(self, computation: HloComputation, given: list[Value], timed: bool = True) -> Value:
        """Add the nodes of ``computation`` on the parameters ``given``. Returns the root's value.

        ``timed``: instructions take time of their own, which those inside a fusion do not.
        """
        values: dict[HloInstruction, Value] = {}
        for x in computation.instructions:
            if x.opcode is Opcode.PARAMETER:
                values[x] = given[x.attrs_as(ParameterAttrs).number]
            else:
                values[x] = self._value(x, [values[y] for y in x.operands], timed)
        return values[computation.root]

    def _value(self, x: HloInstruction, read: list[Value], timed: bool) -> Value:
        """Add the nodes of ``x`` on the operands ``read``. Returns the value of ``x``."""
        match x.opcode:
            case Opcode.TUPLE:
                return tuple(read)
            case Opcode.GET_TUPLE_ELEMENT if isinstance(read[0], tuple):
                return read[0][x.attrs_as(TupleIndexAttrs).index]
            case Opcode.OPT_BARRIER:
                return read[0]
            case Opcode.CALL:
                return self._run(x.to_apply, read, timed)
            case Opcode.CONDITIONAL:
                taken = self.branches.get(x, x.called_computations[0])
                return self._run(taken, [read[1 + x.called_computations.index(taken)]], timed)
            case Opcode.WHILE:
                return self._loop(x, read[0])
            case Opcode.FUSION:
                made = self._run(x.called_computations[0], read, timed=False)
                return self._kernel(x, made) if timed else made
        if is_done(x):
            return read[0]
        if is_start(x) or is_blocking(x):
            return self._collective(x, read)
        if ended_start(x) in self._copies:
            return read[0]
        if x.opcode is Opcode.ASYNC_UPDATE and x.operand(0) in self._copies:
            self._copies[x] = None
            return read[0]
        copy = self.estimator.host_copy(x) if timed else None
        if copy is not None:
            self._copies[x] = None
            return self._transfer(copy, x, read)
        return self._plain(x, read, timed)

    def _plain(self, x: HloInstruction, read: list[Value], timed: bool) -> Value:
        seconds = self.estimator.compute(x) if timed and x.opcode not in WEIGHTLESS else 0.0
        if isinstance(x.shape, ArrayShape) and all(isinstance(one, int) for one in read):
            made: Value = self._add(Node(tuple(_leaves(read)), self._cuts(x, seconds), seconds))
        else:
            read_nodes = tuple(_leaves(read))
            made = self._each(x.shape, lambda: Node(read_nodes, (), seconds))
        self._computes(made, seconds)
        return made

    def _cuts(self, x: HloInstruction, seconds: float) -> tuple[Cut, ...]:
        """Return the ways to split ``x`` into several pieces, which take ``seconds`` together."""
        if x not in self._known:
            counted = ((way, self._count(length_along(x, way))) for way in region_ways(x))
            self._known[x] = tuple(
                Cut(way, seconds / count, seconds / count) for way, count in counted if count > 1
            )
        return self._known[x]

    def _count(self, length: int) -> int:
        """Return the number of pieces into which a dimension of ``length`` elements is split."""
        return next(n for n in range(self.pieces, 0, -1) if length % n == 0)

    def _each(self, shape: Shape, node: Callable[[], Node]) -> Value:
        """Add a node for each array of ``shape``. Returns their value."""
        if isinstance(shape, TupleShape):
            return tuple(self._each(one, node) for one in shape.elements)
        return self._add(node())

    def _kernel(self, x: HloInstruction, made: Value) -> Value:
        """Return the kernel's value, each result of which may be split as its instructions allow."""
        seconds = self.estimator.compute(x)
        if not seconds:
            return made

        def out(value: Value, shape: Shape) -> Value:
            if isinstance(value, tuple):
                assert isinstance(shape, TupleShape)
                return tuple(map(out, value, shape.elements))
            counts = [self._count(size) for size in _dims(shape)]
            cuts = (Cut(Along(d, (d,)), seconds / n, seconds / n) for d, n in enumerate(counts))
            return self._add(Node((value,), tuple(cuts), seconds))

        results = out(made, x.shape)
        self._computes(results, seconds)
        return results

    def _computes(self, made: Value, seconds: float) -> None:
        """Add the task of a kernel that computes ``made``, if it takes time."""
        if seconds > 0.0:
            leaves = tuple(_leaves([made]))
            self.tasks.append(Task(leaves, ((COMPUTE, seconds),), seconds, self._times))

    def _collective(self, x: HloInstruction, read: list[Value]) -> Value:
        """Add a collective. Returns its value, one node per operand.

        The seconds of a combined collective are divided among its operands in proportion to their bytes.
        """
        return self._transfer(self.estimator.collective(x), x, read)

    def _transfer(self, time: CollectiveTime, x: HloInstruction, read: list[Value]) -> Value:
        """Add the collective or the copy ``x``, which takes ``time``."""
        operation = wrapped(x)
        sizes = [
            one.shape.byte_size if isinstance(one.shape, ArrayShape) else 0 for one in x.operands
        ]
        sending = (time.seconds - time.latency) / (sum(sizes) or 1)
        made = tuple(
            self._add(self._sent(operation, one, time.latency, sending * size, _dims(of.shape)))
            for of, one, size in zip(x.operands, map(_leaf, read), sizes, strict=True)
        )
        uses = tuple((link.exchange, link.seconds) for link in time.links if link.seconds > 0.0)
        if uses:
            self.tasks.append(Task(made, uses, time.seconds, self._times))
        return made if len(made) > 1 else made[0]

    def _sent(
        self, x: HloInstruction, read: int, latency: float, sending: float, dims: tuple[int, ...]
    ) -> Node:
        """Return the node of one array of a collective that takes ``latency + sending`` seconds.

        The first piece of an all-gather along its dimension, the device's own part, is available at once. The device
        may add its own part to a reduce-scatter last.
        """
        kind, attrs = KIND.get(x.opcode), x.attrs
        dim = attrs.dimension if isinstance(attrs, CollectiveAttrs) else None
        cuts = []
        for d, count in enumerate(map(self._count, dims)):
            piece = latency + sending / count
            if d != dim:
                cuts.append(Cut(Along(d, (d,)), piece, piece))
            elif kind == "all-gather":
                cuts.append(Cut(Along(d, (d,)), 0.0, piece))
            elif kind == "reduce-scatter":
                cuts.append(Cut(Along(d, (d,)), piece, 0.0))
        return Node((read,), tuple(cuts), latency + sending)

    def _loop(self, x: HloInstruction, state: Value) -> Value:
        """Add the trips of a loop, up to a limit. Tasks of the middle trip also stand for the trips left out."""
        trips = counted_trips(x)
        self._run(x.while_condition, [state])
        before, outer, done = len(self.nodes), self._times, 0
        written = trips
        while done < written:
            if done == 1:
                room = (MOST_NODES - before) // max(len(self.nodes) - before, 1)
                written = min(trips, max(room, LEAST_TRIPS))
            is_middle = done == max(written // 2, 1)
            self._times = outer * (trips - written + 1 if is_middle else 1)
            state = self._run(x.while_body, [state])
            self._run(x.while_condition, [state])
            done += 1
        self._times = outer
        return state


def _most_pieces(entry: HloComputation) -> int:
    """Return the largest number of pieces into which a value is split.

    Products that may be computed in a ring with an all-gather or reduce-scatter are split into more pieces.
    """
    assert entry.module is not None
    sizes = (
        group_size(operation) or 1
        for computation in entry.module.computations
        for operation in computation.with_opcode(*_RINGS)
    )
    return max([PIECES, *(RING_PIECES * size for size in sizes if size <= LARGEST_RING)])


def _leaf(value: Value) -> int:
    return next(_leaves([value]))


def _leaves(values: list[Value] | tuple[Value, ...]) -> Iterator[int]:
    for value in values:
        if isinstance(value, tuple):
            yield from _leaves(value)
        else:
            yield value


def _dims(shape: Shape) -> tuple[int, ...]:
    return shape.dims if isinstance(shape, ArrayShape) else ()
