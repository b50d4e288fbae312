"""Fuse the computation of index vectors with the gathers and scatters that read them.

A kernel whose one result is indices disappears if every reader of the result is a gather or scatter that can compute
the indices itself, and if that saves time. This is decided after producers are fused, so that the kernel computes all
that the indices need.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from runtime.fusion.cost.cost_model import CostModel
from runtime.fusion.element_operations import is_plain
from runtime.fusion.emitters import emitted_region
from runtime.fusion.fusion_graph import FusionGraph
from runtime.fusion.fusion_kernel import Kernel
from runtime.fusion.indexed.index_fusion import INDEXED
from runtime.fusion.live_profile import LiveProfile
from runtime.fusion.make_fusions import FusedKernel
from runtime.fusion.refusal import NoEmitterError
from spmd.cost.elements import SINGLE_INTEGER
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass

#: Bytes of a cache line.
LINE = 64


@dataclass(frozen=True, slots=True)
class FusedIndices:
    """Fusions of gathers and scatters with their indices. ``kernels`` are those that they compute instead."""

    kernels: tuple[Kernel, ...]
    fusions: tuple[FusedKernel, ...]


def indices_fused(graph: FusionGraph, profile: LiveProfile) -> FusedIndices:
    """Return the fusions of the gathers and scatters of ``graph`` whose indices a kernel computes for them alone.

    Live bytes do not rise anywhere by more than the padding of an array.
    """
    readers: dict[Kernel, list[HloInstruction]] = {}
    for x in graph.order:
        if x.opcode in INDEXED and is_plain(x):
            for made in graph.seen_through(x.operand(1)):
                if made in graph.kernel_of:
                    readers.setdefault(graph.kernel_of[made], []).append(x)
    kernels, fusions = list[Kernel](), list[FusedKernel]()
    for kernel, indexed in readers.items():
        if (
            _are_only_readers(graph, kernel, indexed)
            and _may_read_inputs(profile, kernel, indexed)
            and _saves_time(graph.kinds.costs.model, kernel, indexed)
        ):
            with suppress(NoEmitterError):
                fusions += [_fused(graph, kernel, x) for x in indexed]
                kernels.append(kernel)
    return FusedIndices(tuple(kernels), tuple(fusions))


def _are_only_readers(
    graph: FusionGraph, kernel: Kernel, indexed: Sequence[HloInstruction]
) -> bool:
    """Return whether nothing but ``indexed`` reads a result of ``kernel``, and they read it as indices alone."""
    if len(kernel.roots) > 1 or graph.readers_of(kernel):
        return False
    (root,) = kernel.roots
    others = [y for x in indexed for n, y in enumerate(x.operands) if n != 1]
    return set(graph.outside[root]) == {graph.position[x] for x in indexed} and not any(
        root in graph.seen_through(y) for y in others
    )


def _may_read_inputs(
    profile: LiveProfile, kernel: Kernel, indexed: Sequence[HloInstruction]
) -> bool:
    """Return whether ``indexed`` may read the inputs of ``kernel`` instead of its result.

    A scatter that overwrites an array in place must not read it at other indices.
    """
    model = profile.model
    overwritten = {model.overwrites[x] for x in indexed if x in model.overwrites}
    read = {source for x in kernel.inputs for source in model.sources[x]}
    last = max(profile.graph.position[x] for x in indexed)
    return not overwritten & read and profile.may_keep_inputs(kernel, last)


def _saves_time(model: CostModel, kernel: Kernel, indexed: Sequence[HloInstruction]) -> bool:
    """Return whether ``indexed`` take less time with the indices than ``kernel`` and they do apart.

    A GPU computes indices while other threads wait for memory. A CPU computes them one by one, which takes longer than
    in vectors, unless it moves windows of at least ``LINE`` bytes in that time.
    """
    if model.machine.is_gpu:
        return True
    one_by_one = kernel.kind.points * SINGLE_INTEGER * sum(map(model.element, kernel.members))
    sizes = [(x.operand(2) if x.opcode is Opcode.SCATTER else x).shape.byte_size for x in indexed]
    moved = [2.0 * model.array(n) if n >= LINE * kernel.kind.points else 0.0 for n in sizes]
    return sum(max(0.0, one_by_one - each) for each in moved) < kernel.cost.least


def _fused(graph: FusionGraph, kernel: Kernel, x: HloInstruction) -> FusedKernel:
    """Return the kernel of ``x`` and its indices. Raises NoEmitterError if there is none."""
    array, _, *updates = x.operands
    inputs = tuple(dict.fromkeys((array, *kernel.inputs, *updates)))
    emitted = emitted_region((x,), {y: n for n, y in enumerate(inputs)})
    return FusedKernel((x,), inputs, graph.position[x], emitted)
