"""Compute with arrays at their bounds, with their run-time sizes as separate values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, TypeAlias

from spmd.builder import Builder, ModuleScope
from spmd.hlo.computation import HloComputation
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import DimensionsAttrs
from spmd.ops.custom_call import cuts_to_sizes
from spmd.passes.algebraic.match import splat
from spmd.passes.dynamic_dimensions import OperandDim, flow_of
from spmd.passes.dynamic_packing import repacked
from spmd.passes.fuel import Fuel, FueledPass
from spmd.passes.interface import register_pass
from spmd.shape import ArrayShape, PrimitiveType, TupleShape, leaves

_S32 = PrimitiveType.S32
_SIZES = (Opcode.SET_DIMENSION_SIZE, Opcode.GET_DIMENSION_SIZE, Opcode.DYNAMIC_RESHAPE)
_MAX_S32 = 2**31 - 1

Sizes: TypeAlias = dict[int, HloInstruction]
"""The run-time size (s32[]) of each dimension that has one."""


@register_pass
@dataclass(frozen=True)
class DynamicPadder(FueledPass):
    """d = f32[<=8] set-dimension-size(x, n)  =>  s = reduce(select(iota < n, x, 0)), to_apply=add
    s = f32[] reduce(d), to_apply=add

    Elements beyond a size are arbitrary: if an operation reduces a dimension with a size, a mask sets them to the
    neutral element first. get-dimension-size becomes the size, dynamic-reshape a gather. A computation stays as it is
    if sizes reach an operation that this pass does not know (dynamic_dimensions.py), a callee, or the result; but the
    entry's result may have arrays with sizes, at their bounds, if it has those sizes, too:

    r = tuple(d, get-dimension-size(d))     =>     r = tuple(x, n)
    """

    name: ClassVar[str] = "dynamic-padder"

    def rewrite(self, module: HloModule, fuel: Fuel) -> bool:
        scope = ModuleScope(module)
        changed = False
        for computation in module.computations_post_order():
            if fuel.is_spent:
                break
            if any(computation.with_opcode(*_SIZES)) and can_pad(
                computation, is_entry=computation is module.entry
            ):
                fuel.burn()
                _Padding(Builder(computation, scope)).run()
                changed = True
        return changed


def can_pad(computation: HloComputation, *, is_entry: bool) -> bool:
    """Return whether padding is possible. Each operand dimension with a run-time size must be passed on or reduced by a
    known operation or, in the entry, be returned along with its size. Sizes that are combined in one dimension must be
    the same.
    """
    sized: dict[HloInstruction, Sizes] = {}
    for x in computation.post_order():
        found = Sizes()
        taken = [(i, d) for i, y in enumerate(x.operands) for d in sized[y]]
        if x.opcode in _SIZES:
            if x.has_control_edges or x.operand(0).array_shape.num_elements > _MAX_S32:
                return False
            found = _sized_by(x, sized)
        elif x.opcode in (Opcode.PARAMETER, Opcode.IOTA, Opcode.CUSTOM_CALL) and not taken:
            if _is_marked(x) or cuts_to_sizes(x):
                return False
        elif not (is_entry and x.is_root and _gives_sizes(x, taken)):
            flow = flow_of(x)
            if not all(map(flow.knows, taken)):
                return False
            for i, d in taken:
                if (i, d) in flow.result:
                    size = sized[x.operand(i)][d]
                    if not _is_same(found.setdefault(flow.result[i, d], size), size):
                        return False
        sized[x] = found
    return not sized[computation.root]


def _gives_sizes(x: HloInstruction, taken: list[OperandDim]) -> bool:
    """Return whether ``x`` is a tuple that contains the size of each of ``taken``, its operands' dimensions with
    run-time sizes.
    """
    if x.opcode is not Opcode.TUPLE:
        return False
    given = {
        (y.operand(0), _dimension(y)) for y in x.operands if y.opcode is Opcode.GET_DIMENSION_SIZE
    }
    return all((x.operand(i), d) in given for i, d in taken)


def _sized_by(x: HloInstruction, sized: Mapping[HloInstruction, Sizes]) -> Sizes:
    """Return the run-time sizes of a result that says its sizes; ``sized``: those of its operand."""
    if x.opcode is Opcode.SET_DIMENSION_SIZE:
        d, size = _dimension(x), x.operand(1)
        others = {k: other for k, other in sized.get(x.operand(0), {}).items() if k != d}
        return others if _is_bound(size, x.dims[d]) else {**others, d: _asked_of(size, sized)}
    if x.opcode is Opcode.DYNAMIC_RESHAPE:
        sizes = enumerate(zip(x.operands[1:], x.dims, strict=True))
        return {d: size for d, (size, bound) in sizes if not _is_bound(size, bound)}
    return {}


def _asked_of(size: HloInstruction, sized: Mapping[HloInstruction, Sizes]) -> HloInstruction:
    """Return the size that a get-dimension-size returns, if it is known; else ``size`` itself."""
    if size.opcode is not Opcode.GET_DIMENSION_SIZE:
        return size
    return sized.get(size.operand(0), {}).get(_dimension(size), size)


def _is_same(one: HloInstruction, other: HloInstruction) -> bool:
    if one is other:
        return True
    values = splat(one), splat(other)
    return values[0] is not None and values[1] is not None and int(values[0]) == int(values[1])


def says_size(x: HloInstruction) -> bool:
    """Return whether the result of ``x`` has a run-time size that none of its operands needs to have."""
    if cuts_to_sizes(x):
        return True
    return x.opcode in (Opcode.SET_DIMENSION_SIZE, Opcode.DYNAMIC_RESHAPE) and bool(
        _sized_by(x, {})
    )


def _dimension(x: HloInstruction) -> int:
    return x.attrs_as(DimensionsAttrs).dimensions[0]


def _is_bound(size: HloInstruction, bound: int) -> bool:
    value = splat(size)
    return value is not None and int(value) == bound


def _is_marked(x: HloInstruction) -> bool:
    return any(any(s.dynamic) for _, s in leaves(x.shape) if isinstance(s, ArrayShape))


class _Padding:
    """One computation: the sizes known so far."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._sizes: dict[HloInstruction, Sizes] = {}

    def run(self) -> None:
        for x in self._b.computation.post_order():
            if x.opcode is Opcode.SET_DIMENSION_SIZE:
                self._set_size(x)
            elif x.opcode is Opcode.GET_DIMENSION_SIZE:
                self._get_size(x)
            elif x.opcode is Opcode.DYNAMIC_RESHAPE:
                self._reshape(x)
            elif x.opcode is Opcode.TUPLE:
                if _is_marked(x):
                    x.shape = TupleShape(tuple(y.shape for y in x.operands))
            else:
                self._pass_on(x)

    def _of(self, x: HloInstruction) -> Sizes:
        return self._sizes.get(x, {})

    def _set_size(self, x: HloInstruction) -> None:
        """Replace a set-dimension-size by a copy of its operand. If the size grows, the new elements are zeros, as in
        the reference evaluator.
        """
        operand, size = x.operands
        d = _dimension(x)
        sizes = dict(self._of(operand))
        source = operand
        if d in sizes:
            source = self._masked(operand, {d: sizes.pop(d)}, 0)
        if not _is_bound(size, x.dims[d]):
            sizes[d] = size
        self._replace(x, self._b.copy(source), sizes)

    def _get_size(self, x: HloInstruction) -> None:
        (operand,) = x.operands
        size = self._of(operand).get(_dimension(x))
        bound = operand.dims[_dimension(x)]
        same = self._b.copy(size) if size is not None else self._b.scalar(_S32, bound)
        self._replace(x, same, {})

    def _reshape(self, x: HloInstruction) -> None:
        operand, *given = x.operands
        known = self._of(operand)
        old = [known.get(d) or self._b.scalar(_S32, n) for d, n in enumerate(operand.dims)]
        same = repacked(self._b, operand, old, given, x.dims)
        sizes = {d: size for d, size in enumerate(given) if not _is_bound(size, x.dims[d])}
        self._replace(x, same, sizes)

    def _replace(self, x: HloInstruction, same: HloInstruction, sizes: Sizes) -> None:
        same.sharding, same.annotations = x.sharding, x.annotations
        self._sizes[same] = sizes
        self._b.computation.replace(x, same)

    def _pass_on(self, x: HloInstruction) -> None:
        flow, sizes = flow_of(x), Sizes()
        for i, operand in enumerate(x.operands):
            used_up: Sizes = {}
            for d, size in self._of(operand).items():
                if (i, d) in flow.result:
                    sizes.setdefault(flow.result[i, d], size)
                else:
                    used_up[d] = size
            if used_up:
                x.replace_operand(i, self._masked(operand, used_up, flow.neutral[i]))
        if sizes:
            self._sizes[x] = sizes
        if isinstance(x.shape, ArrayShape) and x.shape.dynamic:
            x.shape = replace(x.shape, dynamic=())

    def _masked(self, x: HloInstruction, sizes: Sizes, beyond: object) -> HloInstruction:
        """Return ``x`` with the elements outside ``sizes`` replaced by ``beyond``."""
        b = self._b
        for d, size in sorted(sizes.items()):
            index = b.iota(_S32, x.dims, d)
            inside = b.compare(index, b.broadcast_scalar(size, x.dims), "LT")
            x = b.select(inside, x, b.full(x.array_shape.without_layout(), beyond))
        return x
