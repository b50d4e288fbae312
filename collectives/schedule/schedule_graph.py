"""The graph that a latency-hiding schedule is made on: instructions, what follows what, windows of collectives.

Nodes are numbered in the order in which the computation stands. Instructions of one scheduling group (the frontend
attribute ``_scheduling_group_id``, as XLA has it) are one node: they stay together, starts first and dones last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from collectives.schedule.links import Transfer
from collectives.schedule.phases import is_blocking, is_done, is_start
from collectives.schedule.scheduling_groups import Block, blocks_of
from collectives.schedule.timeline import run_timeline
from collectives.schedule.window_costs import Communication, WindowCosts
from spmd.analysis.live_buffers import Buffer, LiveBuffers
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.hlo.opcode_roles import WEIGHTLESS
from spmd.lazy_dataclass import dataclass
from spmd.shape import ShapeIndex, leaves

#: Ops that overwrite an operand: other readers of the operand must come first, or it is copied.
_IN_PLACE = frozenset({Opcode.DYNAMIC_UPDATE_SLICE, Opcode.SCATTER, Opcode.WHILE, Opcode.FUSION})


class NodeKind(Enum):
    FREE = "free"
    WORK = "work"
    START = "start"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Window:
    """A collective from its start to its done.

    start, done: the nodes.
    grows: bytes of its result minus those of its operands.
    """

    start: int
    done: int
    transfer: Transfer
    communication: Communication
    grows: int

    @property
    def seconds(self) -> float:
        return self.transfer.seconds


@dataclass
class ScheduleGraph:
    """Graph of a computation's instructions.

    members[n]: the instructions of node n, in order.
    before[n], after[n]: nodes that must run before and after node n.
    seconds[n]: seconds of work.
    window_of[n]: index of the window that a START or DONE belongs to.
    occupies[n]: resources of the collectives inside a WORK node: a blocking collective, a caller or a scheduling group.
    """

    members: list[tuple[HloInstruction, ...]]
    before: list[list[int]]
    after: list[list[int]]
    kinds: list[NodeKind]
    seconds: list[float]
    windows: list[Window]
    window_of: dict[int, int]
    occupies: dict[int, Communication]

    def __len__(self) -> int:
        return len(self.members)

    @property
    def has_blocks(self) -> bool:
        """Return whether there are scheduling groups of several instructions."""
        return any(len(inside) > 1 for inside in self.members)

    def paths(self, *, backward: bool) -> list[float]:
        """Return the seconds of the longest path from each node to the end (backward: from the beginning), the node
        included.
        """
        after = self.before if backward else self.after
        found = [0.0] * len(self)
        for node in self._sorted(backward=not backward):
            longest = max([found[later] for later in after[node]], default=0.0)
            window = self.window_of.get(node)
            opens = window is not None and node == (
                self.windows[window].done if backward else self.windows[window].start
            )
            own = (
                self.windows[window].seconds if window is not None and opens else self.seconds[node]
            )
            found[node] = longest + own
        return found

    def leads(self, *, backward: bool) -> list[float]:
        """Return the seconds of work on the shortest way from each node, itself included, to a window that opens after
        it.

        Backward, a window opens with its done. The result is infinite if no way leads to a window.
        """
        opening = NodeKind.DONE if backward else NodeKind.START
        after = self.before if backward else self.after
        found = [float("inf")] * len(self)
        for node in self._sorted(backward=not backward):
            if self.kinds[node] is opening:
                found[node] = 0.0
            else:
                nearest = min([found[later] for later in after[node]], default=float("inf"))
                found[node] = self.seconds[node] + nearest
        return found

    def _sorted(self, *, backward: bool) -> list[int]:
        """Return the nodes in an order in which each follows its predecessors (backward: its successors)."""
        before, after = (self.after, self.before) if backward else (self.before, self.after)
        left = [len(earlier) for earlier in before]
        order = [node for node, count in enumerate(left) if not count]
        for node in order:
            for later in after[node]:
                left[later] -= 1
                if not left[later]:
                    order.append(later)
        return order

    def instructions(self, nodes: Sequence[int]) -> list[HloInstruction]:
        return [x for node in nodes for x in self.members[node]]


def build_graph(
    computation: HloComputation, costs: WindowCosts, buffers: LiveBuffers
) -> ScheduleGraph:
    """Build the graph of a scheduled computation. Raises ScheduleError if a scheduling group cannot stay together."""
    blocks = blocks_of(computation)
    node_of: dict[HloInstruction, int] = {}
    members: list[tuple[HloInstruction, ...]] = []
    for x in computation.instructions:
        block = blocks.get(x)
        if block is None:
            node_of[x] = len(members)
            members.append((x,))
        elif x not in node_of:
            node_of.update(dict.fromkeys(block.members, len(members)))
            members.append(block.members)
    before = _edges(members, node_of, _readers_first(computation, buffers, blocks))
    graph = ScheduleGraph(members, before, [[] for _ in members], [], [], [], {}, {})
    for node, earlier in enumerate(before):
        for one in earlier:
            graph.after[one].append(node)
    for node, inside in enumerate(members):
        _describe(graph, node, inside, costs)
    _add_windows(graph, node_of, costs, buffers)
    return graph


def _edges(
    members: Sequence[Sequence[HloInstruction]],
    node_of: Mapping[HloInstruction, int],
    readers_first: Mapping[HloInstruction, Sequence[HloInstruction]],
) -> list[list[int]]:
    found = []
    for node, inside in enumerate(members):
        earlier = dict.fromkeys(
            node_of[one]
            for x in inside
            for one in (*x.operands, *x.control_predecessors, *readers_first.get(x, ()))
        )
        earlier.pop(node, None)
        found.append(list(earlier))
    return found


def _readers_first(
    computation: HloComputation,
    buffers: LiveBuffers,
    blocks: Mapping[HloInstruction, Block],
) -> dict[HloInstruction, list[HloInstruction]]:
    """Return the readers of values that an instruction overwrites, if all of them precede it in the current order.

    Among these values are the parameters in whose memory the module returns results.
    """
    position = {x: n for n, x in enumerate(computation.instructions)}
    readers: dict[int, list[HloInstruction]] = {}
    for x, read in buffers.read.items():
        for buffer in read:
            readers.setdefault(buffer, []).append(x)
    found: dict[HloInstruction, list[HloInstruction]] = {}
    replaced = _replaced_parameters(computation, buffers)
    for x in computation.instructions:
        if x.opcode not in _IN_PLACE or x in blocks:
            continue
        for written in buffers.written[x]:
            for target in dict.fromkeys(
                (*buffers.over.get(written, ()), *replaced.get(written, ()))
            ):
                others = [reader for reader in readers.get(target, ()) if reader is not x]
                if all(position[reader] < position[x] for reader in others):
                    found.setdefault(x, []).extend(others)
    return found


def _replaced_parameters(
    computation: HloComputation, buffers: LiveBuffers
) -> dict[Buffer, tuple[Buffer, ...]]:
    """Return, by the buffer of each result that the module returns in a parameter's memory, that of the parameter."""
    module = computation.module
    if module is None or computation is not module.entry:
        return {}
    results = _leaf_buffers(computation.root, buffers)
    return {
        results[alias.output_index]: (
            _leaf_buffers(computation.parameters[alias.parameter], buffers)[alias.parameter_index],
        )
        for alias in module.input_output_alias
    }


def _leaf_buffers(x: HloInstruction, buffers: LiveBuffers) -> dict[ShapeIndex, Buffer]:
    """Return the buffers of the leaves of ``x``, by their indices."""
    indices = (index for index, _ in leaves(x.shape))
    return dict(zip(indices, buffers.shown[x], strict=True))


def _describe(
    graph: ScheduleGraph, node: int, inside: Sequence[HloInstruction], costs: WindowCosts
) -> None:
    """Set kind, seconds and occupied resources of one node."""
    if len(inside) > 1:
        graph.kinds.append(NodeKind.WORK)
        graph.seconds.append(run_timeline(inside, costs).seconds)
        occupies = Communication()
        for x in inside:
            occupies |= costs.communication_of(x)
        if occupies:
            graph.occupies[node] = occupies
        return
    (x,) = inside
    graph.seconds.append(costs.seconds_of(x))
    if is_start(x):
        graph.kinds.append(NodeKind.START)
    elif is_done(x):
        graph.kinds.append(NodeKind.DONE)
    elif x.opcode in WEIGHTLESS:
        graph.kinds.append(NodeKind.FREE)
    else:
        graph.kinds.append(NodeKind.WORK)
        if (is_blocking(x) or x.called_computations) and (occupies := costs.communication_of(x)):
            graph.occupies[node] = occupies


def _add_windows(
    graph: ScheduleGraph,
    node_of: Mapping[HloInstruction, int],
    costs: WindowCosts,
    buffers: LiveBuffers,
) -> None:
    for done, inside in enumerate(graph.members):
        if graph.kinds[done] is not NodeKind.DONE:
            continue
        x = inside[0].operand(0)
        written = sum(buffers.size[b] for b in buffers.written[x])
        read = sum(buffers.size[b] for b in buffers.read[x])
        graph.window_of[node_of[x]] = graph.window_of[done] = len(graph.windows)
        graph.windows.append(
            Window(
                node_of[x],
                done,
                costs.transfer_of(x),
                costs.communication_of(x),
                written - read,
            )
        )
