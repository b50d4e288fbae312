"""Buffers of a computation's values, and the bytes that are live while each instruction runs.

Buffers are counted per leaf, from the program alone, so the result holds for every device. A tuple, a tuple element, a
bitcast and a done share buffers of their operands. Inputs and a loop's state exist already. A result may overwrite an
operand of its size that dies with it if the operation allows it. The memory that a back end adds (alignment, scratch,
copies) or saves (views) is not included; buffer assignment reports it.

    p = f32[4] parameter(0)                      p live
    s = (f32[4], f32[8]) all-gather-start(p)     p, g live: g is the second part of s
    m = f32[4] multiply(p, p)                    p, g, m
    d = f32[8] all-gather-done(s)                p, g, m: operands are in use until the done
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TypeAlias

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.hlo.opcode_roles import CALLERS, DONES, PAIRED_STARTS
from spmd.lazy_dataclass import dataclass
from spmd.ops import definition
from spmd.ops.attrs import TupleIndexAttrs
from spmd.ops.opdef import SizeOf, byte_size
from spmd.shape import Shape, TupleShape, as_tuple, leaves

#: Number of a buffer within its computation.
Buffer: TypeAlias = int

#: Opcodes that share all their operands' buffers, in order.
_NAMES = frozenset({Opcode.TUPLE, Opcode.BITCAST, Opcode.OPT_BARRIER, Opcode.ASYNC_UPDATE})
#: Opcodes that write a part of operand 0 and keep the rest.
_UPDATES = frozenset({Opcode.DYNAMIC_UPDATE_SLICE, Opcode.SCATTER})
#: Opcodes that use none of a step's memory: constants are part of the program.
_NOTHING = frozenset({Opcode.CONSTANT, Opcode.AFTER_ALL})


def running_computations(module: HloModule) -> list[HloComputation]:
    """Return the computations with memory of their own, callees first: no reducers, no computations of fusions or async
    starts.
    """
    order = module.computations_post_order()
    run = {module.entry: None}
    for computation in reversed(order):
        if computation in run:
            for x in computation.with_opcode(*CALLERS):
                run.update(dict.fromkeys(x.called_computations))
    return [computation for computation in order if computation in run]


def module_buffers(
    module: HloModule, size_of: SizeOf = byte_size
) -> dict[HloComputation, LiveBuffers]:
    """Return the live buffers of every computation that runs on memory of its own, callees first.

    ``size_of`` gives the bytes of a leaf.
    """
    found: dict[HloComputation, LiveBuffers] = {}
    for computation in running_computations(module):
        found[computation] = LiveBuffers(computation, found, size_of)
    return found


@dataclass
class LiveBuffers:
    """Buffers of one computation, independent of its order.

    size[b]: bytes, by ``size_of``. shown[i]: the buffers of the leaves of i, in order. written[i]: buffers that i
    writes first. read[i]: buffers that must hold their values while i runs, each once. over[b]: buffers that b may
    overwrite if they die where b is written. returned: buffers that must exist at the end. inputs: buffers of the
    parameters.
    """

    computation: HloComputation
    callees: Mapping[HloComputation, LiveBuffers] = field(default_factory=dict)
    size_of: SizeOf = byte_size
    size: list[int] = field(default_factory=list)
    shown: dict[HloInstruction, tuple[Buffer, ...]] = field(default_factory=dict)
    written: dict[HloInstruction, tuple[Buffer, ...]] = field(default_factory=dict)
    read: dict[HloInstruction, tuple[Buffer, ...]] = field(default_factory=dict)
    over: dict[Buffer, tuple[Buffer, ...]] = field(default_factory=dict)
    inputs: tuple[Buffer, ...] = ()
    _counts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for instruction in self.computation.post_order():
            self._add(instruction)
        self.inputs = tuple(b for x in self.computation.parameters for b in self.shown[x])
        self.returned = tuple(dict.fromkeys(self.shown[self.computation.root]))

    @property
    def input_bytes(self) -> int:
        return sum(self.size[buffer] for buffer in self.inputs)

    @property
    def returned_bytes(self) -> int:
        """The bytes of returned buffers that are not inputs."""
        came_in = dict.fromkeys(self.inputs)
        return sum(self.size[buffer] for buffer in self.returned if buffer not in came_in)

    def _add(self, x: HloInstruction) -> None:
        opcode = x.opcode
        self.written[x] = self.read[x] = ()
        if opcode is Opcode.PARAMETER:
            self.shown[x] = self._new(x.shape)
        elif opcode in _NOTHING:
            self.shown[x] = self._new(x.shape, counts=False)
        elif opcode is Opcode.GET_TUPLE_ELEMENT:
            self.shown[x] = self._element(x)
        elif opcode in _NAMES:
            self.shown[x] = tuple(b for operand in x.operands for b in self.shown[operand])
        elif opcode in DONES or opcode is Opcode.COPY_DONE:
            self._add_done(x)
        elif opcode is Opcode.WHILE:
            self._add_loop(x)
        else:
            self._add_kernel(x)

    def _add_done(self, x: HloInstruction) -> None:
        start = x.operand(0)
        shown = self.shown[start]
        if start.opcode is Opcode.ALL_REDUCE_START:
            self.shown[x] = shown
        elif start.opcode is Opcode.COPY_START:
            self.shown[x] = shown[: self._count(x.shape)]
        else:
            before = self._count(as_tuple(start.shape).elements[0])
            self.shown[x] = shown[before : before + self._count(x.shape)]
        while start.opcode is Opcode.ASYNC_UPDATE:
            start = start.operand(0)
        self.read[x] = tuple(dict.fromkeys((*self.shown[x], *self.read[start])))

    def _add_loop(self, x: HloInstruction) -> None:
        """Add a loop. Elements that the body passes on unchanged keep their buffers; the others overwrite the initial
        state.
        """
        state = self.shown[x.operand(0)]
        body = self.callees[x.while_body]
        given, handed_on = body.inputs, body.shown[body.computation.root]
        shown = list(state)
        written = []
        for i, (_, leaf) in enumerate(leaves(x.shape)):
            if given[i] != handed_on[i]:
                (shown[i],) = self._new(leaf)
                self.over[shown[i]] = (state[i],)
                written.append(shown[i])
        self.shown[x], self.written[x] = tuple(shown), tuple(written)
        self.read[x] = tuple(dict.fromkeys(state))

    def _add_kernel(self, x: HloInstruction) -> None:
        operands = [self.shown[operand] for operand in x.operands]
        self.read[x] = tuple(dict.fromkeys(b for shown in operands for b in shown))
        if x.opcode is Opcode.COPY_START:
            parts = as_tuple(x.shape).elements
            self.written[x] = self._new(parts[0])
            self.shown[x] = (*self.written[x], *operands[0], *self._new(parts[2], counts=False))
            return
        if x.opcode in PAIRED_STARTS:
            parts = as_tuple(x.shape).elements
            self.written[x] = self._new(parts[1])
            contexts = self._new(TupleShape(parts[2:]), counts=False)
            self.shown[x] = (
                *(b for shown in operands for b in shown),
                *self.written[x],
                *contexts,
            )
            return
        self.shown[x] = self.written[x] = self._new(x.shape)
        for result, made in zip(self.written[x], _results_of(x, len(self.written[x])), strict=True):
            candidates = tuple(b for b in self._overwritable(x, made) if self.size[b])
            same = tuple(b for b in candidates if self.size[b] == self.size[result])
            if same:
                self.over[result] = same

    def _overwritable(self, x: HloInstruction, updated: HloInstruction) -> Iterable[Buffer]:
        """Return the buffers that a result of ``x`` may overwrite. ``updated``: ``x``, or the root that makes it."""
        if x.opcode is Opcode.FUSION:
            while updated.opcode in (Opcode.BITCAST, Opcode.COPY, Opcode.CONVERT):
                updated = updated.operand(0)
        if updated.opcode in _UPDATES:
            return self.shown[x.operand(0)] if updated is x else self.read[x]
        if definition(x.opcode).elementwise or x.opcode in (Opcode.COPY, Opcode.ALL_REDUCE):
            return self.read[x]
        return ()

    def _element(self, x: HloInstruction) -> tuple[Buffer, ...]:
        parent = x.operand(0)
        index = x.attrs_as(TupleIndexAttrs).index
        elements = as_tuple(parent.shape).elements
        # Most leaves are arrays. The index is then the position of the leaf, so a long tuple is not traversed once per
        # element.
        is_flat = self._count(parent.shape) == len(elements) and not any(
            isinstance(e, TupleShape) for e in elements[: index + 1]
        )
        first = index if is_flat else sum(self._count(e) for e in elements[:index])
        return self.shown[parent][first : first + self._count(elements[index])]

    def _count(self, shape: Shape) -> int:
        if not isinstance(shape, TupleShape):
            return 1
        known = self._counts.get(id(shape))
        if known is None:
            known = self._counts[id(shape)] = sum(1 for _ in leaves(shape))
        return known

    def _new(self, shape: Shape, *, counts: bool = True) -> tuple[Buffer, ...]:
        first = len(self.size)
        self.size.extend(self.size_of(leaf) if counts else 0 for _, leaf in leaves(shape))
        return tuple(range(first, len(self.size)))


def _results_of(x: HloInstruction, count: int) -> tuple[HloInstruction, ...]:
    """Return what makes each of the ``count`` results of ``x``: a root of a fusion, else ``x``."""
    root = x.to_apply.root if x.opcode is Opcode.FUSION else x
    if root is not x and root.opcode is Opcode.TUPLE and root.num_operands == count:
        return root.operands
    return (root,) * count
