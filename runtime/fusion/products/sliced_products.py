"""Choice of the products that multiply slices of larger arrays in place, so that the slices are not copied.

A loop over layers reads its weights, and the values that a forward pass has saved, as slices of stacked arrays. Such an
array must be an input that does not change: it is alive anyway, and no instruction overwrites it before the product
reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from runtime.fusion.cost.cost_model import CostModel
from runtime.fusion.element_operations import is_plain
from runtime.fusion.emitters import emitted_region
from runtime.fusion.products.factors import SEEN_THROUGH, factors_of
from runtime.fusion.refusal import NoEmitterError
from runtime.program.dot_matrices import product_types, transposed_operands
from runtime.program.strides import StridedView
from spmd.hlo import HloInstruction, Opcode
from spmd.machine.products import class_for
from spmd.ops.attrs import TupleIndexAttrs
from spmd.ops.dot import dot_sizes
from spmd.shape import ArrayShape


def slices_read(
    product: HloInstruction, is_view: Callable[[HloInstruction], bool], cost_model: CostModel
) -> tuple[HloInstruction, ...]:
    """Return the inputs of ``product`` as one kernel with the slices that it reads in place.

    They are first arrays, then start indices. Returns an empty tuple if reading no slice in place saves time.
    ``is_view`` tells whether an instruction is a view of its operand. A GPU's library takes addresses that are known
    when the program is loaded, so its products read no slices in place.
    """
    if cost_model.machine.is_gpu:
        return ()
    slices: Slices = [_slice_shown(operand, is_view) for operand in product.operands]
    if not any(slices):
        return ()
    try:
        slowdowns = _slowdowns(product, _inputs(product, slices), cost_model)
        chosen: Slices = [
            taken if taken is not None and saves_time(taken, slowdown, cost_model) else None
            for taken, slowdown in zip(slices, slowdowns, strict=True)
        ]
        inputs = _inputs(product, chosen)
        emitted_region((product,), inputs)
    except NoEmitterError:
        return ()
    return tuple(inputs)


#: For each operand of a product, the dynamic slice of which it is a view, or None.
Slices: TypeAlias = Sequence[HloInstruction | None]


def _inputs(product: HloInstruction, slices: Slices) -> dict[HloInstruction, int]:
    """Number the inputs of ``product`` with ``slices`` read in place: first arrays, then start indices."""
    found: dict[HloInstruction, None] = {}
    for operand, taken in zip(product.operands, slices, strict=True):
        found[operand if taken is None else taken.operand(0)] = None
    for taken in slices:
        if taken is not None:
            starts = (x for x in taken.operands[1:] if x.opcode is not Opcode.CONSTANT)
            found.update(dict.fromkeys(starts))
    return {x: n for n, x in enumerate(found)}


def saves_time(taken: HloInstruction, slowdown: float, cost_model: CostModel) -> bool:
    """Return whether reading the slice ``taken`` in place beats copying it first.

    ``slowdown`` is the time to load it in place as a multiple of the time to load its copy.
    """
    once = cost_model.array(float(taken.shape.byte_size))
    return slowdown * once < cost_model.kernel(2.0 * once, 0.0)


def _slowdowns(
    product: HloInstruction, inputs: Mapping[HloInstruction, int], cost_model: CostModel
) -> tuple[float, float]:
    """Return the time to load lhs and rhs in place from memory, as multiples of that of dense copies."""
    known = class_for(cost_model.machine.products, product_types(product), dot_sizes(product)[1])
    if known is None:
        return 1.0, 1.0
    dense = [StridedView.dense(x.array_shape) for x in inputs]
    lhs, rhs = (x.seen(dense[x.number]) for x in factors_of(product, inputs).both)
    assert lhs is not None, "a factor lies in strides"
    assert rhs is not None, "a factor lies in strides"
    slow_lhs, slow_rhs, _ = known.uncached_slowdowns(transposed_operands(product, (lhs, rhs)))
    return slow_lhs, slow_rhs


def _slice_shown(
    x: HloInstruction, is_view: Callable[[HloInstruction], bool]
) -> HloInstruction | None:
    """Return the dynamic slice of an unchanged array of which ``x`` is a view, or None."""
    while x.opcode in _VIEWS and is_view(x):
        x = x.operand(0)
    taken = x.opcode is Opcode.DYNAMIC_SLICE and is_plain(x) and _stays(x.operand(0))
    return x if taken else None


_VIEWS = (SEEN_THROUGH | {Opcode.BITCAST}) - {Opcode.DYNAMIC_SLICE}


def _stays(array: HloInstruction) -> bool:
    """Return whether ``array`` is an unchanged input of its computation that is read by dynamic slices only.

    Outside of the entry computation it must be an element of a loop's state that the body returns unchanged.
    """
    computation = array.parent
    assert computation is not None, "it stands in a computation"
    assert computation.module is not None, "which stands in a module"
    if array.opcode not in (Opcode.PARAMETER, Opcode.GET_TUPLE_ELEMENT) or not is_plain(array):
        return False
    if array.opcode is Opcode.GET_TUPLE_ELEMENT and array.operand(0).opcode is not Opcode.PARAMETER:
        return False
    others = (user for user in array.users if user.opcode is not Opcode.DYNAMIC_SLICE)
    if any(user is not computation.root for user in others):
        return False
    return computation is computation.module.entry or _is_handed_on(array)


def _is_handed_on(element: HloInstruction) -> bool:
    """Return whether the computation returns ``element`` of its tuple parameter at the same tuple index."""
    assert element.parent is not None
    root = element.parent.root
    if element.opcode is not Opcode.GET_TUPLE_ELEMENT or root.opcode is not Opcode.TUPLE:
        return False
    index = element.attrs_as(TupleIndexAttrs).index
    if index >= root.num_operands:
        return False
    returned = root.operand(index)
    return (
        returned.opcode is Opcode.GET_TUPLE_ELEMENT
        and returned.operand(0) is element.operand(0)
        and returned.attrs_as(TupleIndexAttrs).index == index
        and isinstance(returned.shape, ArrayShape)
    )
