"""Fuse matrix products with their readers, or with slices that they read, after all other kernels are planned.

A product is computed once, so it is part of at most one kernel, and a kernel contains at most one product. If other
instructions read the product too, it is a result of that kernel. A product that joins no kernel forms its own kernel
with the slices that it reads in place. On a GPU a product joins only kernels that a library computes in the call of the
product, and so does a convolution.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import field

from runtime.fusion.cost.cost_model import CostModel
from runtime.fusion.element_graph import post_order
from runtime.fusion.element_operations import is_plain
from runtime.fusion.emitters import GEMM, Emitted, emitted_region
from runtime.fusion.fusion_graph import FusionGraph
from runtime.fusion.fusion_kernel import Kernel
from runtime.fusion.live_profile import LiveProfile
from runtime.fusion.make_fusions import FusedKernel
from runtime.fusion.products.bias_vectors import (
    computed_vectors,
    inputs_with,
    vector_kernel,
)
from runtime.fusion.products.convolution_fusion import ConvolutionFusion
from runtime.fusion.products.library_epilogues import is_for_library
from runtime.fusion.products.product_fusion import ProductFusion
from runtime.fusion.products.repeated_results import repeated_results
from runtime.fusion.refusal import NoEmitterError
from runtime.program.blocks import blocks_of, full_box
from runtime.program.dot_matrices import product_types
from spmd.analysis.fusion_emitter import CONVOLUTION
from spmd.analysis.structure import StructuralKeys, instruction_key
from spmd.hlo import HloInstruction, Opcode
from spmd.hlo.collective_opcodes import KIND
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DotAttrs
from spmd.verifier.collectives import STARTS_OF

#: Opcodes that begin or await communication between devices.
_EXCHANGES = frozenset({*KIND, *STARTS_OF, Opcode.ASYNC_START})


@dataclass
class ProductPlans:
    """Plans of kernels with products on the machine of ``cost_model``, for all searches of a module.

    ``by_structure`` has them by the structure of kernel and product, because the layers of a model repeat. None means
    that there is no emitter.
    """

    cost_model: CostModel
    keys: StructuralKeys = field(default_factory=StructuralKeys)
    by_structure: dict[Hashable, Emitted | None] = field(default_factory=dict)


def products_taken(graph: FusionGraph, profile: LiveProfile, plans: ProductPlans) -> TakenProducts:
    """Return the fusions of the products of ``graph`` that save time and that ``profile`` allows."""
    return _Epilogues(graph, profile, plans).taken()


def library_kernels(
    graph: FusionGraph, profile: LiveProfile, plans: ProductPlans
) -> frozenset[Kernel]:
    """Return the kernels that must not become parts of larger ones, because a library computes them with a product."""
    return frozenset(products_taken(graph, profile, plans).within)


def sums_read_again(
    graph: FusionGraph, profile: LiveProfile, plans: ProductPlans
) -> frozenset[HloInstruction]:
    """Return the results that a library computes with a product, that several kernels read, and that are not larger.

    If they are in memory instead of the product, nothing has to be added again, and a library can write them as the
    arguments of gelu.
    """
    found = products_taken(graph, profile, plans).within
    return frozenset(
        kernel.roots[0]
        for kernel in found
        if len(graph.readers_of(kernel)) > 1 and _is_not_larger(kernel)
    )


def _is_not_larger(kernel: Kernel) -> bool:
    """Return whether the elements of the result are not larger than those of the products that ``kernel`` reads."""
    (root,) = kernel.roots
    size = root.array_shape.element_type.byte_size
    return all(
        size <= x.array_shape.element_type.byte_size
        for x in kernel.inputs
        if x.opcode is Opcode.DOT
    )


def is_library_kernel(
    kernel: Kernel,
    without: Sequence[Kernel],
    graph: FusionGraph,
    profile: LiveProfile,
    plans: ProductPlans,
) -> bool:
    """Return whether a library computes ``kernel``, which would replace the kernels ``without``, with a product."""
    search = _Epilogues(graph, profile, plans)
    return any(
        search.with_product(x, graph.operands_of(x), kernel, without) is not None
        for x in kernel.inputs
        if x.opcode is Opcode.DOT and is_plain(x)
    )


@dataclass(frozen=True, slots=True)
class TakenProducts:
    """Fusions of products.

    ``within`` gives the new plan of each kernel that a product joins. ``alone`` are the kernels of the products that
    read slices in place and join no other kernel, and of vectors that calls of a library read.
    """

    within: Mapping[Kernel, FusedKernel]
    alone: Sequence[FusedKernel]


@dataclass
class _Epilogues:
    """Search for the kernel that each product joins."""

    graph: FusionGraph
    profile: LiveProfile
    plans: ProductPlans
    #: New positions of kernels that a product has joined, and of those products.
    kernel_positions: dict[Kernel, int] = field(default_factory=dict)
    product_positions: dict[HloInstruction, int] = field(default_factory=dict)
    #: Vectors that calls read, which fusion has made parts of these kernels.
    vectors: dict[HloInstruction, Kernel] = field(default_factory=dict)

    def taken(self) -> TakenProducts:
        """Return the fusions of all products, in the order of the computation."""
        found: dict[Kernel, FusedKernel] = {}
        alone: list[FusedKernel] = []
        is_gpu = self.plans.cost_model.machine.is_gpu
        opcodes = (Opcode.DOT, Opcode.CONVOLUTION) if is_gpu else (Opcode.DOT,)
        for x in self.graph.order:
            if x.opcode not in opcodes or not is_plain(x):
                continue
            reads = self.graph.operands_of(x)
            for kernel in sorted(self.graph.readers.get(x, {}), key=lambda k: k.position):
                made = None if kernel in found else self.with_product(x, reads, kernel)
                if made is not None:
                    found[kernel] = made
                    self.kernel_positions[kernel] = self.product_positions[x] = made.position
                    break
            else:
                if self.graph.reads_slices(x):
                    emitted = emitted_region((x,), {y: n for n, y in enumerate(reads)})
                    alone.append(FusedKernel((x,), reads, self.graph.position[x], emitted))
        for x, kernel in self.vectors.items():
            made = vector_kernel(x, kernel, self.graph.position[x])
            if made is not None and x not in self.graph.kernel_of:
                alone.append(made)
        return TakenProducts(found, alone)

    def with_product(
        self,
        product: HloInstruction,
        reads: Sequence[HloInstruction],
        kernel: Kernel,
        without: Sequence[Kernel] = (),
    ) -> FusedKernel | None:
        """Return ``kernel`` joined by ``product``, whose inputs are ``reads``, or None.

        The kernel must save time and be able to run at its own position or at that of the product. Kernels ``without``
        are those that it would replace.
        """
        graph = self.graph
        others = [
            self.kernel_position(r)
            for r in graph.readers[product]
            if r is not kernel and r not in without
        ]
        others += graph.outside_readers(product)
        position = self.position_of_both(product, kernel, min(others, default=len(graph.order)))
        if position is None:
            return None
        repeats = self.repeats(kernel)
        own = tuple(x for x in kernel.roots if x not in repeats)
        roots = (*own, product) if others else own
        read = [x for x in kernel.inputs if x is not product]
        inputs = tuple(dict.fromkeys((*read, *reads)))
        if not self.profile.keeps_in_place_updates(kernel, reads):
            return None
        if not self.plans.cost_model.machine.is_gpu:
            emitted = self.emitted(product, kernel, roots, inputs)
            if emitted is None or self.saved(product, _plan_of(emitted)) <= 0.0:
                return None
            return FusedKernel(roots, inputs, position, emitted)
        # One call saves a launch and the access to the product, whatever the sizes.
        emitted = self.in_one_call(product, kernel, roots, inputs)
        if emitted is None and (vectors := computed_vectors(kernel, product)):
            inputs = inputs_with(roots, (*vectors, *inputs))
            emitted = self.in_one_call(product, kernel, roots, inputs)
            self.vectors.update((x, kernel) for x in vectors if emitted is not None)
        if emitted is None:
            return None
        return FusedKernel(roots, inputs, position, emitted, tuple(repeats.items()))

    def in_one_call(
        self,
        product: HloInstruction,
        kernel: Kernel,
        roots: tuple[HloInstruction, ...],
        inputs: tuple[HloInstruction, ...],
    ) -> Emitted | None:
        """Return the emitter and plan of ``kernel`` joined by ``product``, or None if it is no call of a library."""
        emitted = self.emitted(product, kernel, roots, inputs)
        number = {x: n for n, x in enumerate(inputs)}
        if emitted is None:
            return None
        plan = emitted.plan
        assert isinstance(plan, ProductFusion | ConvolutionFusion)
        if not is_for_library(plan, product, number):
            return None
        return Emitted(GEMM if isinstance(plan, ProductFusion) else CONVOLUTION, plan)

    def repeats(self, kernel: Kernel) -> Mapping[HloInstruction, HloInstruction]:
        """Return the roots of ``kernel`` that repeat others; a library does not write a result twice."""
        if not self.plans.cost_model.machine.is_gpu or len(kernel.roots) == 1:
            return {}
        return repeated_results(kernel.roots, kernel.inputs)

    def position_of_both(self, product: HloInstruction, kernel: Kernel, needed: int) -> int | None:
        """Return where the joined kernel can run, or None.

        It runs at the position of ``kernel`` if possible, else at that of ``product``. If a collective is between the
        two, with which the product's place may decide what overlaps, it runs before the first collective. ``needed`` is
        the first position that reads the product outside of the kernel.
        """
        graph = self.graph
        first, last = graph.position[product], kernel.position
        inputs = [self.position_of(x) for x in kernel.inputs if x is not product]
        for n, x in enumerate(graph.order[first:last], first):
            if x.opcode in _EXCHANGES:
                return n - 1 if self.may_run_at(n - 1, kernel, inputs, needed) else None
        if needed > last:
            return last
        return first if max(inputs, default=-1) < first else None

    def may_run_at(self, position: int, kernel: Kernel, inputs: list[int], needed: int) -> bool:
        """Return whether ``kernel`` with its product may run at ``position``, which is before its own.

        inputs: positions of what it reads besides the product. It may not if something later reads an array that it
        overwrites, which would then have to be copied.
        """
        return max(inputs, default=-1) <= position < needed and not any(
            self.profile.last_read(target, besides=kernel) > position
            for root in kernel.roots
            if (target := self.profile.model.overwrites.get(root)) is not None
        )

    def kernel_position(self, kernel: Kernel) -> int:
        """Return the position of ``kernel`` as planned so far."""
        return self.kernel_positions.get(kernel, kernel.position)

    def position_of(self, x: HloInstruction) -> int:
        """Return the position at which ``x`` is computed as planned so far; a product may have moved since."""
        made = self.product_positions.get(x)
        if made is not None:
            return made
        producer = self.graph.kernel_of.get(x)
        return self.graph.position[x] if producer is None else self.kernel_position(producer)

    def emitted(
        self,
        product: HloInstruction,
        kernel: Kernel,
        roots: tuple[HloInstruction, ...],
        inputs: tuple[HloInstruction, ...],
    ) -> Emitted | None:
        """Return the emitter and plan of ``kernel`` joined by ``product``, or None if there is no emitter."""
        number, plans = {x: n for n, x in enumerate(inputs)}, self.plans.by_structure
        key = (
            kernel.kind.number,
            kernel.index_of[product],
            self.structural_key(product, number),
            tuple(kernel.index_of.get(x) for x in inputs),
            len(roots),
        )
        if key not in plans:
            try:
                plans[key] = emitted_region(roots, number)
            except NoEmitterError:
                plans[key] = None
        return plans[key]

    def structural_key(
        self, product: HloInstruction, inputs: Mapping[HloInstruction, int]
    ) -> tuple[Hashable, ...]:
        """Return a key of the structure of ``product`` and the views between it and the numbered ``inputs``."""
        members = post_order((product,), inputs)
        at = {x: n for n, x in enumerate(members)}
        return tuple(
            (inputs[x], x.shape)
            if x in inputs
            else (instruction_key(x, self.plans.keys.key), tuple(at[y] for y in x.operands))
            for x in members
        )

    def saved(self, product: HloInstruction, plan: ProductFusion) -> float:
        """Return the seconds that the fusion saves.

        A dispatch is saved, and the product is read, and written unless it is a result, in the cache instead of in
        memory. The additional time of computing the product in blocks is subtracted.
        """
        machine, shape = self.plans.cost_model.machine, product.array_shape
        size, block_bytes = (
            float(shape.byte_size),
            math.prod(plan.block) * shape.element_type.byte_size,
        )
        saved_by_cache = self.plans.cost_model.array(size) - self.plans.cost_model.again(
            size, 2.0 * block_bytes
        )
        touched = 1.0 if plan.product_result is not None else 2.0
        undivided = self.seconds(product, plan, plan.dims)
        parts = sum(self.seconds(product, plan, sizes) for sizes in _block_sizes(plan))
        return machine.thunk_seconds + touched * max(saved_by_cache, 0.0) - (parts - undivided)

    def seconds(
        self, product: HloInstruction, plan: ProductFusion, sizes: tuple[int, ...]
    ) -> float:
        """Return the seconds to compute a block of ``sizes`` of the product."""
        lhs = product.operand(0)
        attrs = product.attrs_as(DotAttrs)
        depth = math.prod(lhs.dims[d] for d in attrs.lhs_contracting)
        first = plan.batch + plan.rows
        m, n = math.prod(sizes[plan.batch : first]), math.prod(sizes[first:])
        each = self.plans.cost_model.machine.product_seconds(product_types(product), (m, depth, n))
        return math.prod(sizes[: plan.batch]) * each


def _plan_of(emitted: Emitted) -> ProductFusion:
    """Return the plan of a kernel with a product that other values are computed of."""
    assert isinstance(emitted.plan, ProductFusion)
    return emitted.plan


def _block_sizes(plan: ProductFusion) -> Iterator[tuple[int, ...]]:
    """Yield the sizes of each block of the product."""
    for box in blocks_of(full_box(plan.dims), plan.block):
        yield tuple(stop - start for start, stop in box)
