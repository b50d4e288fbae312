"""Leave arrays with run-time sizes that the padder does not know to the reference evaluator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import ClassVar

from spmd.builder import Builder
from spmd.evaluator.manual_mesh import differs_by_device
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops import definition
from spmd.ops.attrs import CustomCallAttrs
from spmd.ops.custom_call import DYNAMIC_REGION, is_dynamic_region
from spmd.passes.dynamic_padder import says_size
from spmd.passes.interface import HloPass, register_pass
from spmd.shape import ArrayShape, Shape, TupleShape, leaves


@register_pass
@dataclass(frozen=True)
class DynamicRegionOutliner(HloPass):
    """d = f32[<=8] set-dimension-size(x, n)     =>     t = (f32[8]) custom-call(x, n), calls={d, s}
    s = f32[<=8] sort(d)                                s = f32[8] get-tuple-element(t)

    A region is every instruction that an array with a run-time size reaches, up to scalars, which have none, and what
    lies between two of them. Its results come at their bounds. It stays as it is where the evaluator could not run it
    alone: collectives, device ids, effects, control edges. A callee whose result may have sizes stays as it is, too;
    its callers' regions begin with the call.
    """

    name: ClassVar[str] = "dynamic-region-outliner"

    def run(self, module: HloModule) -> bool:
        sized: set[HloComputation] = set()
        outlined = {
            c for x in module.all_instructions() if is_dynamic_region(x) for c in _callees(x)
        }
        changed = False
        for computation in module.computations_post_order():
            region = _region(computation, sized)
            if computation in outlined or not region:
                continue
            root = computation.root
            if computation is not module.entry and root in region and not _is_scalar(root.shape):
                sized.add(computation)
            elif all(map(_can_be_evaluated, region)):
                _Outlining(Builder(computation), region).run(module)
                changed = True
        if changed:
            module.computations = module.computations_post_order()
        return changed


def _callees(x: HloInstruction) -> Iterator[HloComputation]:
    for callee in x.called_computations:
        yield callee
        for y in callee.instructions:
            yield from _callees(y)


def _region(computation: HloComputation, sized: set[HloComputation]) -> set[HloInstruction]:
    """Return the region of ``computation``, empty if it has no run-time sizes; ``sized``: callees that return some."""
    order = computation.post_order()
    region: set[HloInstruction] = set()
    static: set[HloInstruction] = set()
    for x in order:
        reads_sizes = any(y in region and y not in static for y in x.operands)
        gives_sizes = says_size(x) or not sized.isdisjoint(x.called_computations)
        if reads_sizes or gives_sizes or x.opcode is Opcode.SET_DIMENSION_SIZE:
            region.add(x)
            if _is_scalar(x.shape) or not (reads_sizes or gives_sizes):
                static.add(x)
    # A value that is computed outside the region from sizes computed inside would cause a cycle.
    after: set[HloInstruction] = set()
    for x in order:
        if any(y in region or y in after for y in x.operands):
            after.add(x)
    needed: set[HloInstruction] = set()
    for x in reversed(order):
        if x in region or x in needed:
            needed.update(x.operands)
    return region | (after & needed)


def _is_scalar(shape: Shape) -> bool:
    return isinstance(shape, ArrayShape) and not shape.dims


def _can_be_evaluated(x: HloInstruction) -> bool:
    return (
        not x.has_control_edges
        and not differs_by_device(x)
        and not definition(x.opcode).side_effect(x)
        and all(isinstance(s, ArrayShape) for _, s in leaves(x.shape))
        and all(_can_be_evaluated(y) for c in x.called_computations for y in c.instructions)
    )


@dataclass
class _Outlining:
    """One computation while its region moves to a computation of its own.

    ``arguments``: what the region takes from outside, in the order of its parameters. ``inside``: copies.
    """

    b: Builder
    region: set[HloInstruction]
    arguments: list[HloInstruction] = field(default_factory=list)
    inside: dict[HloInstruction, HloInstruction] = field(default_factory=dict)

    def run(self, module: HloModule) -> None:
        computation = self.b.computation
        body = self.b.within(module.new_computation("dynamic_region"))
        order = computation.post_order()
        root = computation.root
        if root.opcode is Opcode.TUPLE:
            self.region.discard(root)
        for x in order:
            if x in self.region:
                operands = [self._copy_of(y, body) for y in x.operands]
                copy = body.computation.add(x.clone(x.shape, operands))
                copy.sharding = None
                self.inside[x] = copy
        results = [x for x in order if x in self.region and self._is_read_outside(x)]
        parts = [part for x in results for part in _parts(body, self.inside[x])]
        body.computation.root = body.tuple(parts)
        static = TupleShape(tuple(_static(part.shape) for part in parts))
        attrs = CustomCallAttrs(DYNAMIC_REGION)
        calls = (body.computation,)
        call = self.b.create(Opcode.CUSTOM_CALL, self.arguments, attrs, shape=static, calls=calls)
        given = iter([self.b.get_tuple_element(call, i) for i in range(len(parts))])
        for x in results:
            same = _packed(self.b, x.shape, given)
            same.sharding = x.sharding
            computation.replace(x, same)
        if root.opcode is Opcode.TUPLE:
            root.shape = TupleShape(tuple(y.shape for y in root.operands))
        for x in reversed(order):
            if x in self.region and x.parent is computation:
                computation.remove(x)

    def _is_read_outside(self, x: HloInstruction) -> bool:
        return x.is_root or any(user not in self.region for user in x.users)

    def _copy_of(self, x: HloInstruction, body: Builder) -> HloInstruction:
        """Return what ``x`` is inside: its copy, or a parameter; of a tuple from outside, one for each part."""
        if x not in self.inside:
            if isinstance(x.shape, TupleShape):
                parts = [self.b.get_tuple_element(x, i) for i in range(len(x.shape.elements))]
                self.inside[x] = body.tuple([self._copy_of(part, body) for part in parts])
            else:
                self.inside[x] = body.parameter(len(self.arguments), x.shape)
                self.arguments.append(x)
        return self.inside[x]


def _parts(b: Builder, x: HloInstruction) -> Iterator[HloInstruction]:
    if not isinstance(x.shape, TupleShape):
        yield x
        return
    for i in range(len(x.shape.elements)):
        yield from _parts(b, b.get_tuple_element(x, i))


def _packed(b: Builder, shape: Shape, given: Iterator[HloInstruction]) -> HloInstruction:
    if not isinstance(shape, TupleShape):
        return next(given)
    return b.tuple([_packed(b, element, given) for element in shape.elements])


def _static(shape: Shape) -> Shape:
    assert isinstance(shape, ArrayShape)
    return replace(shape, dynamic=())
