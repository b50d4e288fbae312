"""Products of matrices in one kernel with what reads them: done when all other kernels are planned.

A product is computed once, so it goes into one kernel at most, and a kernel makes one product at most. Where others
read it, too, it is a result of that kernel.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from runtime.fusion.emitters import Emitted, emitted_region
from runtime.fusion.fusion_graph import FusionGraph, is_plain
from runtime.fusion.fusion_kernel import Kernel
from runtime.fusion.live_profile import LiveProfile
from runtime.fusion.make_fusions import PlannedKernel
from runtime.fusion.prices import Prices
from runtime.fusion.product_fusion import ProductFusion, bands_of, whole
from runtime.fusion.refusal import NoEmitterError
from spmd.analysis.structure import StructuralKeys, instruction_form
from spmd.analysis.wire import KIND
from spmd.hlo import HloInstruction, Opcode
from spmd.ops.attrs import DotAttrs
from spmd.shape import PrimitiveType
from spmd.verifier.collectives import STARTS_OF

#: What begins to exchange something between devices, or waits for it.
_EXCHANGES = frozenset({*KIND, *STARTS_OF, Opcode.ASYNC_START})


def products_taken(
    graph: FusionGraph, profile: LiveProfile, prices: Prices
) -> dict[Kernel, PlannedKernel]:
    """What kernels become with the products that they are to make."""
    return _Epilogues(graph, profile, prices).taken()


@dataclass
class _Epilogues:
    graph: FusionGraph
    profile: LiveProfile
    prices: Prices
    keys: StructuralKeys = field(default_factory=StructuralKeys)
    #: By what a kernel and a product say together: layers repeat.
    planned: dict[Hashable, Emitted | None] = field(default_factory=dict)

    def taken(self) -> dict[Kernel, PlannedKernel]:
        found: dict[Kernel, PlannedKernel] = {}
        for x in self.graph.order:
            if x.opcode is not Opcode.DOT or not is_plain(x):
                continue
            for kernel in sorted(self.graph.readers.get(x, {}), key=lambda k: k.position):
                made = None if kernel in found else self.together(x, kernel)
                if made is not None:
                    found[kernel] = made
                    break
        return found

    def together(self, product: HloInstruction, kernel: Kernel) -> PlannedKernel | None:
        """The kernel with the product, if it saves time and may run at the place of either."""
        graph = self.graph
        others = [r.position for r in graph.readers[product] if r is not kernel]
        others += graph.outside_readers(product)
        position = self.place(product, kernel, min(others, default=len(graph.order)))
        if position is None:
            return None
        roots = (*kernel.roots, product) if others else kernel.roots
        read = [x for x in kernel.inputs if x is not product]
        inputs = tuple(dict.fromkeys((*read, *product.operands)))
        emitted = self.emitted(product, kernel, roots, inputs)
        if emitted is None or not self.profile.keeps_places(kernel, product.operands):
            return None
        assert isinstance(emitted.plan, ProductFusion)
        if self.saved(product, emitted.plan) <= 0.0:
            return None
        return PlannedKernel(roots, inputs, position, emitted)

    def place(self, product: HloInstruction, kernel: Kernel, needed: int) -> int | None:
        """Where both can run, if the product is ``needed`` elsewhere at that place: the kernel's, else the product's.

        Not on the other side of a collective: it may have been put there to run beside the product.
        """
        graph = self.graph
        first, last = graph.position[product], kernel.position
        if any(x.opcode in _EXCHANGES for x in graph.order[first:last]):
            return None
        if needed > last:
            return last
        inputs = [graph.place_of(x) for x in kernel.inputs if x is not product]
        return first if max(inputs, default=-1) < first else None

    def emitted(
        self,
        product: HloInstruction,
        kernel: Kernel,
        roots: tuple[HloInstruction, ...],
        inputs: tuple[HloInstruction, ...],
    ) -> Emitted | None:
        """Who makes it, and how; None if nobody does."""
        number = {x: n for n, x in enumerate(inputs)}
        form = instruction_form(product, self.keys.key)
        shapes = tuple(x.shape for x in product.operands)
        places = tuple(number[x] for x in product.operands)
        key = (kernel.kind.number, kernel.place[product], form, shapes, places, len(roots))
        if key not in self.planned:
            try:
                self.planned[key] = emitted_region(roots, number)
            except NoEmitterError:
                self.planned[key] = None
        return self.planned[key]

    def saved(self, product: HloInstruction, plan: ProductFusion) -> float:
        """Seconds: bytes that stay near and a thunk, less what it takes to make the product in bands."""
        machine, shape = self.prices.machine, product.array_shape
        size, band = float(shape.byte_size), math.prod(plan.band) * shape.element_type.byte_size
        near = self.prices.array(size) - self.prices.again(size, 2.0 * band)
        touched = 1.0 if plan.kept is not None else 2.0
        whole = self.seconds(product, plan, plan.dims)
        parts = sum(self.seconds(product, plan, sizes) for sizes in _band_sizes(plan))
        return machine.thunk_seconds + touched * max(near, 0.0) - (parts - whole)

    def seconds(
        self, product: HloInstruction, plan: ProductFusion, sizes: tuple[int, ...]
    ) -> float:
        """Of the part of the product that has these sizes."""
        lhs = product.operand(0)
        attrs = product.attrs_as(DotAttrs)
        depth = math.prod(lhs.dims[d] for d in attrs.lhs_contracting)
        first = plan.batch + plan.rows
        m, n = math.prod(sizes[plan.batch : first]), math.prod(sizes[first:])
        each = self.prices.machine.product_seconds(_types(product), (m, depth, n))
        return math.prod(sizes[: plan.batch]) * each


def _band_sizes(plan: ProductFusion) -> Iterator[tuple[int, ...]]:
    for box in bands_of(whole(plan.dims), plan.band):
        yield tuple(stop - start for start, stop in box)


def _types(product: HloInstruction) -> tuple[PrimitiveType, PrimitiveType, PrimitiveType]:
    lhs, rhs = (x.array_shape.element_type for x in product.operands)
    return lhs, rhs, product.array_shape.element_type
