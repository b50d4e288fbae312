"""Planted bugs in reading annotations and in propagation."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from partitioner.annotations.entry_binding import EntryBinding
from partitioner.annotations.reader import AnnotationReader
from partitioner.devices.axes import DeviceAxes
from partitioner.ops import annotation
from partitioner.propagation import driver, value_graph
from partitioner.propagation.driver import ValueSharding
from tests.mutants.patching import function, method, mutant


@mutant("a Shardy dimension split over two axes is read minor-major")
def shardy_axes_reversed() -> AbstractContextManager[None]:
    original = AnnotationReader.of_shardy

    def of_shardy(self: AnnotationReader, sharding: Any, shape: Any) -> Any:
        found = original(self, sharding, shape)
        if found is None:
            return None
        return replace(found, dims=tuple(tuple(reversed(axes)) for axes in found.dims))

    return method(AnnotationReader, "of_shardy", of_shardy)


@mutant("a transposed iota sharding is read as if its axes stood in device order", first=5)
def gspmd_transpose_ignored() -> AbstractContextManager[None]:
    original = DeviceAxes.axes_of_sharding

    def axes_of_sharding(self: DeviceAxes, sharding: Any, rank: int) -> Any:
        dims, groups = original(self, sharding, rank)
        used = sorted(a for axes in dims for a in axes)
        parts = iter(used)
        ordered = tuple(tuple(next(parts) for _ in axes) for axes in dims)
        same = all(self.count(a) == self.count(b) for a, b in zip(ordered, dims, strict=True))
        return (ordered if same else dims), groups

    return method(DeviceAxes, "axes_of_sharding", axes_of_sharding)


@mutant("closed dimensions take further axes")
def closed_is_open() -> AbstractContextManager[None]:
    original = ValueSharding.fix

    def fix(self: ValueSharding, dims: Any, open_dims: Any, because: str) -> None:
        original(self, dims, [True] * len(list(open_dims)), because)

    return method(ValueSharding, "fix", fix)


@mutant("a result's annotation is forgotten", first=2)
def outputs_forgotten() -> AbstractContextManager[None]:
    return method(EntryBinding, "_output", lambda self, slot, constraint, allowed, is_bound: slot)


@mutant("values of a manual region may be split along its axes", "manual_region", first=7)
def manual_axes_not_forbidden() -> AbstractContextManager[None]:
    return function(value_graph.spread_manual, lambda graph: None)


@mutant("one axis splits two dimensions of a value")
def axis_used_twice() -> AbstractContextManager[None]:
    original = driver._extend

    def extend(
        axes: Any, rule: Any, parts: Any, factor: Any, have: Any, slot: Any, dim: Any, offer: Any
    ) -> bool:
        before, slot.dims = slot.dims, [d if i == dim else () for i, d in enumerate(slot.dims)]
        try:
            grew = bool(original(axes, rule, parts, factor, have, slot, dim, offer))
            grown = slot.dims[dim]
        finally:
            slot.dims = before
        slot.dims[dim] = grown
        return grew

    return function(original, extend)


@mutant(
    "an entry edge of a manual region leaves its operand in any order of axes",
    "manual_region",
    first=10,
)
def boundary_in_any_state() -> AbstractContextManager[None]:
    original = annotation.shape_conversion_rule

    def rule(graph: Any, boundary: Any, position: int) -> Any:
        found = original(graph, boundary, position)
        factors = tuple(
            f if f.pinned is None else replace(f, pinned=tuple(reversed(f.pinned)))
            for f in found.factors
        )
        return replace(found, factors=factors)

    return function(original, rule)
