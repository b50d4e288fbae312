"""Choose the dimension order in which arrays are written, to minimize the bytes that are reordered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from runtime.layout.attention_results import is_attention_result, write_in_order
from runtime.layout.exchanges import expose_members
from runtime.layout.loop_state import normalize
from runtime.layout.model import LayoutModel
from runtime.layout.orders import is_row_major, with_order
from runtime.layout.permuted import in_order, is_free, operand_order, permute
from runtime.layout.search import assign
from runtime.lowering import Order, result_order
from spmd.builder import Builder, ModuleScope
from spmd.hlo import HloComputation, HloInstruction, HloModule, Opcode, Stage
from spmd.hlo.instruction import Annotations
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs
from spmd.passes.dead_code_elimination import DeadCodeElimination
from spmd.passes.interface import HloPass, register_pass
from spmd.shape import ArrayShape


@register_pass
@dataclass(frozen=True)
class LayoutAssignment(HloPass):
    """Choose for each array the dimension order that its readers need.

        p = f32[2,3,16,8] dot(a, v)                             p = f32[2,3,16,8]{3,1,2,0} dot(a, v)
        h = f32[2,16,3,8] transpose(p), dimensions={0,2,1,3}    h = f32[2,16,3,8] transpose(p), dimensions={0,2,1,3}
        r = f32[2,16,24] reshape(h)                       =>    r = f32[2,16,24] reshape(h)
        e = f32[2,3,16,8] exponential(p)                        t = f32[2,16,3,8] exponential(h)
                                                                e = f32[2,3,16,8] transpose(t), dimensions={0,2,1,3}

    For a reader that needs other strides, the operand is copied or read out of order. ``model.py`` computes the cost of
    that, and ``search.py`` finds orders of lower cost. Products and all-to-alls write in the order of their layout. Any
    other operation is normalized: it is written with its dimensions in the chosen order, and read through a transpose,
    which is a view. Later passes therefore see no layouts but those of products and all-to-alls.
    """

    name: ClassVar[str] = "layout-assignment"

    def run(self, module: HloModule) -> bool:
        """Run the pass. A module that is not partitioned stays unchanged: layouts are a property of one device."""
        if module.stage < Stage.PARTITIONED:
            return False
        scope = ModuleScope(module)
        changed = expose_members(module, scope)
        model = LayoutModel.of(module)
        assign(model)
        changed |= normalize_results(model, scope)
        changed |= normalize_loops(model, scope)
        for x in list(model.instructions()):
            if x.opcode in (Opcode.DOT, Opcode.ALL_TO_ALL):
                changed |= _state(x, model.orders.get(x))
            elif x in model.orders or _reads_out_of_order(x, model):
                _normalize(x, model, scope)
                changed = True
        if changed:
            _merge_transposes(model.times, scope)
        return changed


def normalize_results(model: LayoutModel, scope: ModuleScope) -> bool:
    """Rewrite the attention fusions whose results have another order than row-major. Returns whether there are any."""
    results = [x for x in model.orders if is_attention_result(x)]
    for x in results:
        write_in_order(x, model.orders.pop(x), scope)
    model.forget_all()
    return bool(results)


def normalize_loops(model: LayoutModel, scope: ModuleScope) -> bool:
    """Rewrite the loops whose state elements have another order than row-major. Returns whether there are any."""
    changed = normalize(model.elements.values(), scope)
    model.elements.clear()
    model.handed_over.clear()
    model.forget_all()
    return changed


def _state(x: HloInstruction, order: Order | None) -> bool:
    """Set the layout of ``x`` to ``order`` (None: row-major). Returns whether the layout changed."""
    if not isinstance(x.shape, ArrayShape):
        return False
    wanted = order or tuple(range(len(x.dims)))
    if result_order(x) == wanted:
        return False
    x.shape = with_order(x.shape, wanted)
    return True


def _reads_out_of_order(x: HloInstruction, model: LayoutModel) -> bool:
    """Return whether ``x`` is a reduce that can read its operand in memory order at no cost, and does not do so yet."""
    if x.opcode is not Opcode.REDUCE or x.num_operands != 2 or not is_free(x) or model.costs(x):
        return False
    return not is_row_major(operand_order(x, model.order(x), model.view(x.operand(0))))


def _normalize(x: HloInstruction, model: LayoutModel, scope: ModuleScope) -> None:
    """Replace ``x`` by the operation with its dimensions in the chosen order, read through a transpose."""
    assert x.parent is not None
    b = Builder(x.parent, scope)
    views = tuple(model.view(o) for o in x.operands if isinstance(o.shape, ArrayShape))
    x.parent.replace(x, permute(x, model.order(x), views, b))


def _merge_transposes(computations: Iterable[HloComputation], scope: ModuleScope) -> None:
    """Rewrite transpose(transpose(x)) => transpose(x), or x itself."""
    for computation in computations:
        b = Builder(computation, scope)
        for x in list(computation.with_opcode(Opcode.TRANSPOSE)):
            if x.operand(0).opcode is Opcode.TRANSPOSE and is_free(x):
                order = x.attrs_as(DimensionsAttrs).dimensions
                b.annotations = Annotations(metadata=x.annotations.metadata)
                computation.replace(x, in_order(x.operand(0), order, b))


#: The last passes on an optimized module. Layout assignment leaves views without readers, which are then eliminated.
LAYOUT: tuple[HloPass, ...] = (LayoutAssignment(), DeadCodeElimination())
