"""Products whose results a library narrows, in the call of the product, before anything else reads them.

    d = f32[m,n] dot(x, w)
    s = f32[m,n] multiply(d, scale)         =>  y in the call of the product, and the rest apart
    y = bf16[m,n] convert(s)
    .. = everything else that is computed of y

Otherwise the kernel of the rest would read d, whose elements are larger than those of y.
"""

from __future__ import annotations

from runtime.fusion.element_operations import is_plain
from runtime.fusion.fusion_graph import FusionGraph
from runtime.fusion.fusion_kernel import Kernel
from runtime.fusion.live_profile import LiveProfile
from runtime.fusion.products.epilogues import ProductPlans, is_library_kernel
from spmd.hlo import HloInstruction, Opcode


def narrow_results(
    graph: FusionGraph, profile: LiveProfile, plans: ProductPlans
) -> frozenset[HloInstruction]:
    """Join what narrows the results of products, and return the narrow results, which must be in memory."""
    found: set[HloInstruction] = set()
    for x in graph.order:
        if x.opcode is Opcode.DOT and is_plain(x) and len(graph.readers.get(x, ())) == 1:
            kernel = _narrowing(x, graph, profile, plans)
            if kernel is not None:
                found.update(kernel.roots)
    return frozenset(found)


def _narrowing(
    product: HloInstruction, graph: FusionGraph, profile: LiveProfile, plans: ProductPlans
) -> Kernel | None:
    """Return the kernel that narrows ``product``, after joining its parts; None if a library computes none."""
    (kernel,) = graph.readers[product]
    if not is_library_kernel(kernel, (), graph, profile, plans):
        return None
    while not graph.is_read_outside(kernel) and len(graph.readers_of(kernel)) == 1:
        (reader,) = graph.readers_of(kernel)
        joined = graph.joined(kernel, reader)
        if joined is None or joined.kind.emitter is None:
            break
        old, made = (kernel, reader), joined.kernel(kernel, reader, reader.position)
        if not is_library_kernel(made, old, graph, profile, plans):
            break
        if not profile.allows(old, (made,)):
            break
        graph.replace(old, (made,))
        kernel = made
    size = product.array_shape.element_type.byte_size
    return kernel if _result_size(kernel) < size else None


def _result_size(kernel: Kernel) -> int:
    """Return the bytes of an element of the largest result of ``kernel``."""
    return max(x.array_shape.element_type.byte_size for x in kernel.roots)
