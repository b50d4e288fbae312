"""Values that a program exchanges with its host while it runs, by infeeds and outfeeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from spmd.errors import RunError
from spmd.hlo.opcode import Opcode
from spmd.literal import NDArray
from spmd.shape import Shape, TupleShape, array_shapes, as_tuple

if TYPE_CHECKING:
    from spmd.hlo.instruction import HloInstruction

#: An array, or a tuple or list of items, nested as the tuples of the program.
Item: TypeAlias = Any


@runtime_checkable
class HostFeed(Protocol):
    """Host side of infeeds and outfeeds, as an evaluator uses it."""

    def take(self, infeed: HloInstruction, device: int) -> list[NDArray]:
        """Return the array leaves of the next value for ``device``. Raises RunError if there is none, or it does not
        fit.
        """
        ...

    def put(self, outfeed: HloInstruction, device: int, arrays: Sequence[NDArray]) -> None:
        """Take the array leaves of a value that ``device`` outputs."""
        ...


class UnpartitionedFeed:
    """Host side of a program that is evaluated unpartitioned: items in the order of its infeeds and outfeeds."""

    def __init__(self, infeed: Iterable[Item] | None, outfeed: list[Item] | None) -> None:
        self._items = None if infeed is None else iter(infeed)
        self._given = outfeed

    def take(self, infeed: HloInstruction, _: int) -> list[NDArray]:
        shape = fed_shape(infeed)
        arrays = next_item(self._items, infeed.name)
        require_fit(arrays, shape, infeed.name)
        return arrays

    def put(self, outfeed: HloInstruction, _: int, arrays: Sequence[NDArray]) -> None:
        if self._given is not None:
            copies = [np.array(array, order="C") for array in arrays]
            self._given.append(item_of(fed_shape(outfeed), iter(copies)))


def fed_shape(instruction: HloInstruction) -> Shape:
    """Return the shape of the data of an infeed or outfeed."""
    if instruction.opcode is Opcode.INFEED:
        return as_tuple(instruction.shape).elements[0]
    return instruction.operand(0).shape


def next_item(items: Iterator[Item] | None, name: str) -> list[NDArray]:
    """Return the array leaves of the next item. Raises RunError if there is none for infeed ``name``."""
    if items is None:
        raise RunError(
            f"{name}: the program reads arrays from the host (infeed), but none are given"
        )
    for item in items:
        return flat_item(item)
    raise RunError(f"{name}: the host has no more arrays for the infeed")


def item_of(shape: Shape, arrays: Iterator[NDArray]) -> Item:
    """Return the next of ``arrays`` as an item of ``shape``: an array, or a tuple of items."""
    if isinstance(shape, TupleShape):
        return tuple(item_of(element, arrays) for element in shape.elements)
    return next(arrays)


def require_fit(arrays: Sequence[NDArray], shape: Shape, name: str) -> None:
    """Raise RunError unless ``arrays`` are the leaves of a value of ``shape``."""
    wanted = array_shapes(shape)
    if len(arrays) != len(wanted):
        raise RunError(
            f"{name}: expected {len(wanted)} arrays for each execution, found {len(arrays)}"
        )
    for array, leaf in zip(arrays, wanted, strict=True):
        if array.shape != leaf.dims or array.dtype != leaf.element_type.numpy:
            raise RunError(
                f"{name}: expected {leaf.without_layout()}, found {array.dtype}{list(array.shape)}"
            )


def flat_item(item: Item) -> list[NDArray]:
    """Return the array leaves of an item."""
    if isinstance(item, (tuple, list)):
        return [leaf for element in item for leaf in flat_item(element)]
    return [np.asarray(item)]
