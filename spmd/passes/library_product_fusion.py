"""Make one kernel of each product and convolution that a library computes in one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import Annotations, HloInstruction
from spmd.hlo.module import HloModule, Stage
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import FusionAttrs, ParameterAttrs, TupleIndexAttrs
from spmd.ops.custom_call import custom_call_target
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.rewrite import move_control_edges
from spmd.passes.while_state import element_index, has_only_element_reads
from spmd.shape import TupleShape

_LIBRARIES = ("__cublas$gemm", "__cublas$lt$matmul", "__cudnn$conv")


@dataclass(frozen=True)
class LibraryProductFusion(FueledPass):
    """Put each call of a matrix product or convolution of cuBLAS or cuDNN into a fusion of its own.

        c = (bf16[4,8], s8[1024]) custom-call(x, y, z)      =>  c = bf16[4,8] fusion(x, y, z), kind=kCustom
        r = bf16[4,8] get-tuple-element(c), index=0

    ``library-call-expander``, which runs next, then writes the operations of the call inside the fusion: product,
    addend, bias and activation stay one kernel. Workspaces, which nothing reads, are no results of the fusion. Calls
    that stand in a fusion already stay there.
    """

    name: ClassVar[str] = "library-product-fusion"
    accepts: ClassVar[tuple[Stage, ...]] = tuple(Stage)

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        fused = {
            callee
            for x in module.all_instructions()
            if x.opcode is Opcode.FUSION
            for callee in x.called_computations
        }
        changed = False
        for computation in module.computations_post_order():
            if computation not in fused:
                sites = list(fuel.enough_for(_calls(computation)))
                order = {x: x for x in computation.instructions}
                for call in sites:
                    order[call] = _put_into_fusion(call, module)
                    changed = True
                if sites:
                    computation.set_order(x for x in order.values() if x.parent is computation)
        if changed:
            module.computations = module.computations_post_order()
        return changed


def _calls(computation: HloComputation) -> Iterator[HloInstruction]:
    """Yield the calls of products whose results only get-tuple-elements read."""
    for x in computation.with_opcode(Opcode.CUSTOM_CALL):
        if not custom_call_target(x).startswith(_LIBRARIES):
            continue
        if not isinstance(x.shape, TupleShape) or (x.users and has_only_element_reads(x)):
            yield x


def _put_into_fusion(call: HloInstruction, module: HloModule) -> HloInstruction:
    """Replace ``call`` by a fusion that contains it, whose results are those that something reads."""
    outside = call.parent
    assert outside is not None
    inside = module.new_computation(f"fused_{call.name}")
    numbers = {operand: i for i, operand in enumerate(dict.fromkeys(call.operands))}
    parameters = {
        operand: inside.create(Opcode.PARAMETER, operand.shape, (), ParameterAttrs(number))
        for operand, number in numbers.items()
    }
    copy = inside.add(call.clone(call.shape, [parameters[operand] for operand in call.operands]))
    results, indices = [copy], [0]
    if isinstance(call.shape, TupleShape):
        indices = sorted({element_index(user) for user in call.users})
        results = [
            inside.create(
                Opcode.GET_TUPLE_ELEMENT, call.shape.elements[i], (copy,), TupleIndexAttrs(i)
            )
            for i in indices
        ]
    inside.root = results[0]
    if len(results) > 1:
        shape = TupleShape(tuple(x.shape for x in results))
        inside.root = inside.create(Opcode.TUPLE, shape, results)
    fusion = HloInstruction(
        Opcode.FUSION,
        inside.root.shape,
        list(numbers),
        FusionAttrs("kCustom"),
        name=call.name,
        called_computations=(inside,),
        annotations=Annotations(metadata=call.annotations.metadata),
    )
    outside.add(fusion)
    move_control_edges(call, fusion)
    if not isinstance(call.shape, TupleShape):
        outside.replace(call, fusion)
        return fusion
    for user in call.users:
        if len(results) == 1:
            outside.replace(user, fusion)
        else:
            user.attrs = TupleIndexAttrs(indices.index(element_index(user)))
            user.replace_operand(0, fusion)
    outside.remove(call)
    return fusion
