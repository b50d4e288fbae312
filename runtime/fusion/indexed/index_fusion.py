"""Index fusions: a gather or scatter that computes its index vectors from elements of other arrays.

A negative index counts from the end, so that programs select between an index and an index plus a size before most
gathers. The kernel computes this for each index vector that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.fusion.element_graph import ElementGraph, Starts, element_graph
from runtime.fusion.element_operations import array_shape
from runtime.fusion.refusal import NoEmitterError
from runtime.fusion.view_path import ViewOp, ViewPath
from runtime.program.scalar_program import ScalarOp, ScalarProgram
from spmd.hlo import HloInstruction, Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import GatherAttrs, ScatterAttrs, SliceAttrs
from spmd.ops.elementwise_ops import ELEMENTWISE_OPS
from spmd.shape import PrimitiveType

#: Opcodes of instructions whose operand 1 is an array of index vectors.
INDEXED = frozenset({Opcode.GATHER, Opcode.SCATTER})
#: Limits on what a fusion computes for each index vector. A GPU's threads compute the vector again for every group of
#: elements, and a scatter's blocks examine all vectors.
MAX_READS, MAX_ADDITIONS = 4, 16


@dataclass(frozen=True, slots=True)
class IndexFusion:
    """Plan of a gather or scatter and the computation of its index vectors.

    ``graph`` computes the components of an index vector; its index space is that of the index vectors. ``array`` is the
    number of the input that is indexed, and ``updates`` that of a scatter's updates. ``overwrites`` are pairs (result,
    input) that may share memory.
    """

    graph: ElementGraph
    array: int
    updates: int | None
    overwrites: tuple[tuple[int, int], ...]


def computes_indices(roots: Sequence[HloInstruction], inputs: Mapping[HloInstruction, int]) -> bool:
    """Return whether a kernel of ``roots`` is a gather or scatter whose index array is not an input."""
    (root, *others) = roots
    return not others and root.opcode in INDEXED and root.operand(1) not in inputs


def index_fusion(root: HloInstruction, inputs: Mapping[HloInstruction, int]) -> IndexFusion:
    """Plan one kernel for the gather or scatter ``root``.

    Raises NoEmitterError, with the reason, if there is none: for a scatter of several arrays, indices of less than 8
    bits, or an index array whose elements are not computed from elements of inputs alone.
    """
    array, indices, *updates = root.operands
    kind = array_shape(indices).element_type
    if len(updates) > 1 or not (kind.is_integer and kind.bits >= 8):
        raise NoEmitterError(f"no code reads the indices of {root.name}")
    if not all(x in inputs for x in (array, *updates)):
        raise NoEmitterError(f"{root.name} moves elements that the kernel computes")
    starts = Starts()
    graph = element_graph([(indices, path) for path in _component_paths(root)], inputs, starts)
    if starts.scalars or len(graph.input_leaves) < len(graph.leaves):
        raise NoEmitterError(f"the indices of {root.name} are not computed from elements alone")
    number = inputs[array]
    read = {leaf.number for leaf in graph.input_leaves}
    if not updates:
        return IndexFusion(graph, number, None, ())
    update = inputs[updates[0]]
    in_place = () if number in (update, *read) else ((0, number),)
    return IndexFusion(graph, number, update, in_place)


def fused_indices(root: HloInstruction, inputs: Mapping[HloInstruction, int]) -> IndexFusion:
    """Plan one kernel for ``root``, as ``index_fusion``, if its index vectors take few reads and operations.

    Raises NoEmitterError otherwise, since a kernel may compute a vector many times.
    """
    plan = index_fusion(root, inputs)
    if len(plan.graph.leaves) > MAX_READS or _additions(plan.graph.program) > MAX_ADDITIONS:
        raise NoEmitterError(f"the indices of {root.name} take more than a few operations")
    return plan


def _component_paths(root: HloInstruction) -> list[ViewPath]:
    """Return the path from the index array of ``root`` to each component of all index vectors."""
    if root.opcode is Opcode.GATHER:
        gather = root.attrs_as(GatherAttrs)
        vector, components = gather.index_vector_dim, len(gather.start_index_map)
    else:
        scatter = root.attrs_as(ScatterAttrs)
        vector, components = scatter.index_vector_dim, len(scatter.scatter_dims_to_operand_dims)
    dims = array_shape(root.operand(1)).dims
    if vector == len(dims):
        return [()]
    vectors = ViewOp(Opcode.RESHAPE, dims[:vector] + dims[vector + 1 :])
    return [(_component(dims, vector, k), vectors) for k in range(components)]


def _component(dims: tuple[int, ...], vector: int, number: int) -> ViewOp:
    """Return the slice at ``number`` of dimension ``vector`` of an array of sizes ``dims``."""
    starts = tuple(number if d == vector else 0 for d in range(len(dims)))
    limits = tuple(number + 1 if d == vector else n for d, n in enumerate(dims))
    sizes = tuple(b - a for a, b in zip(starts, limits, strict=True))
    return ViewOp(Opcode.SLICE, sizes, SliceAttrs(starts, limits, (1,) * len(dims)))


def _additions(program: ScalarProgram) -> float:
    """Return how many additions of integers take as long as ``program``; infinity for operations on other types."""
    total = 0.0
    for step in program.steps:
        if not isinstance(step, ScalarOp):
            continue
        signature = step.signature
        op = ELEMENTWISE_OPS.get(signature.opcode)
        kinds = (*signature.operands, signature.result)
        if op is None or not all(kind.is_integer or kind is PrimitiveType.PRED for kind in kinds):
            return float("inf")
        total += op.cost.additions if op.cost.integers is None else op.cost.integers
    return total
