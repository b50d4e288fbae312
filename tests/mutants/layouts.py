"""Planted bugs in device orders, in meshes that do not nest, in manual regions and in what an edge of them means."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from partitioner.annotations import inexpressible_shardings, manual_regions
from partitioner.annotations.reader import AnnotationReader
from partitioner.devices import axis_precedence, device_order
from partitioner.ops import collective
from partitioner.propagation.op_sharding_rule import FactorKind
from partitioner.registry import SHARDING_RULES
from spmd.hlo import Opcode
from spmd.iota import recognise_iota
from tests.mutants.patching import entry, function, method, mutant


@mutant("collectives of the program name positions where devices are meant")
def groups_left_as_positions() -> AbstractContextManager[None]:
    return function(device_order.rename_to_devices, lambda module, order: None)


@mutant("a device's place is looked up in the order itself, not in its inverse", "manual_region")
def order_not_inverted() -> AbstractContextManager[None]:
    return function(device_order._inverse, lambda order: order)


@mutant("a list of devices is taken for the order 0..n-1")
def listed_order_ignored() -> AbstractContextManager[None]:
    original = recognise_iota

    def recognised(ids: Any) -> Any:
        return original(ids) or ((len(ids),), (0,))

    return function(original, recognised)


@mutant("shardings over a mesh of another order are read as if it were the module's", first=98)
def other_orders_ignored() -> AbstractContextManager[None]:
    original = AnnotationReader.mesh

    def mesh(self: AnnotationReader, sharding: Any) -> Any:
        found = self.meshes.get(sharding.mesh)
        return original(self, sharding) if found is None else replace(found, device_ids=None)

    class Both:
        def __enter__(self) -> None:
            self.first = function(device_order.list_other_orders, lambda module: None)
            self.second = method(AnnotationReader, "mesh", mesh)
            self.first.__enter__()
            self.second.__enter__()

        def __exit__(self, *error: Any) -> None:
            self.second.__exit__(*error)
            self.first.__exit__(*error)

    return Both()


@mutant(
    "the tile of a foreign output is that of the device's number, not of its place in the list",
    first=20,
)
def foreign_output_unordered() -> AbstractContextManager[None]:
    original = inexpressible_shardings.View.__init__

    def init(self: Any, axes: Any, builder: Any, order: Any = None) -> None:
        original(self, axes, builder)

    return method(inexpressible_shardings.View, "__init__", init)


@mutant("a foreign parameter's tiles are gathered along the module's axes", first=20)
def foreign_parameter_read_as_own() -> AbstractContextManager[None]:
    original = inexpressible_shardings.own_axes

    def own_axes(sharding: Any, rank: int, devices: Any) -> Any:
        return replace(original(sharding, rank, devices), order=None)

    return function(original, own_axes)


@mutant(
    "a manual region's shardings do not lead, so that it may be foreign", "manual_region", first=12
)
def regions_do_not_lead() -> AbstractContextManager[None]:
    return function(axis_precedence._leads, lambda instruction, sharding: False)


@mutant(
    "free axes at the edge of a manual region stand before the manual ones",
    "manual_region",
    first=2,
)
def free_axes_first() -> AbstractContextManager[None]:
    original = manual_regions.ShapeConversion.rule

    def rule(self: Any, position: int, axis_count: Any) -> Any:
        found = original(self, position, axis_count)

        def turned(mapping: Any) -> Any:
            return tuple(tuple(reversed(parts)) for parts in mapping)

        return replace(
            found,
            operands=tuple(map(turned, found.operands)),
            results=tuple(map(turned, found.results)),
        )

    return method(manual_regions.ShapeConversion, "rule", rule)


@mutant("free axes may split the dimension that a region's collective runs along", "manual_region")
def acted_dimension_split() -> AbstractContextManager[None]:
    def wrap(rule: Any) -> Any:
        def wrong(instruction: Any) -> Any:
            found = rule(instruction)
            factors = tuple(replace(f, kind=FactorKind.PASS_THROUGH) for f in found.factors)
            whole = tuple(m if m else () for m in found.operands)
            return replace(found, factors=factors, results=whole)

        return wrong

    return entry(SHARDING_RULES, Opcode.ALL_TO_ALL, wrap)


@mutant(
    "the axes that a region's collective runs across may split what it takes", "manual_region", 100
)
def collective_split_across() -> AbstractContextManager[None]:
    return function(collective.axes_across, lambda axes, instruction: ())
