"""Calls that XLA's partitioner reads: rotations, slices and paddings of one array, several in one call.

    _SPMDInternalOp_RotateRight  "dimension=0,amount=2"                    x rotated right by 2
    _SPMDInternalOp_MultiRotate  "dimension=0,left_amount=1,right_amount=1,bufferize=0"
                                                                           x rotated left by 1, x, x rotated right by 1
    _SPMDInternalOp_MultiSlice   "dimension=0,amount=1,start_indices=[5],limit_indices=[9],strides=[1],bufferize=0"
                                                                           x[5:9], x[6:10]
    _SPMDInternalOp_MultiPad     "dimension=0,amt=1,bufferize=0"           x behind 1 padding, x behind none
    _SPMDInternalOp_Wrap         "dimension=0,left_amount=1,right_amount=2"
                                                                           the last element, x, the first two

Compilers write them into programs on global arrays. ``bufferize`` is a memory hint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from spmd.builder import Builder
from spmd.errors import UnsupportedError
from spmd.hlo.instruction import HloInstruction
from spmd.lazy_dataclass import dataclass
from spmd.library_calls.registry import LIBRARY_CALLS, Values, require_operands
from spmd.ops.checks import result_elements
from spmd.shape import as_array

_PREFIX = "_SPMDInternalOp_"
WRAP = f"{_PREFIX}Wrap"
_LIST = r"\[\s*(?:-?\d+\s*(?:,\s*-?\d+\s*)*)?\]"
_ATTRIBUTE = re.compile(rf"\s*(\w+)\s*=\s*(-?\d+|{_LIST})\s*(?:,|$)")
_MAX_LENGTH = 18


@dataclass(frozen=True)
class _Attributes:
    """Attributes that a call carries as its configuration: names with numbers or lists of numbers."""

    call: HloInstruction
    numbers: dict[str, int] = field(default_factory=dict)
    lists: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def number(self, name: str, most: int | None = None) -> int:
        """Return the number ``name``, which must be from 0 to ``most``."""
        found = self.numbers.get(name)
        if found is None or found < 0 or (most is not None and found > most):
            raise self.wrong(name)
        return found

    def wrong(self, name: str) -> UnsupportedError:
        text = self.call.annotations.backend_config
        return UnsupportedError(
            f"{self.call!r}: {name} in its backend_config is missing or not known: {text[:200]}"
        )


def _attributes(call: HloInstruction) -> _Attributes:
    found = _Attributes(call)
    text, at = call.annotations.backend_config.strip('"'), 0
    while at < len(text):
        one = _ATTRIBUTE.match(text, at)
        if one is None:
            raise found.wrong(f"what begins with {text[at : at + 20]!r}")
        numerals = re.findall(r"-?\d+", one[2])
        if any(len(number) > _MAX_LENGTH for number in numerals):
            raise found.wrong(one[1])
        values = tuple(map(int, numerals))
        if one[2].startswith("["):
            found.lists[one[1]] = values
        else:
            found.numbers[one[1]] = values[0]
        at = one.end()
    return found


def _dimension(attributes: _Attributes, x: HloInstruction) -> int:
    dimension = attributes.number("dimension", len(x.dims) - 1)
    if x.dims[dimension] == 0:
        raise attributes.wrong("an empty dimension")
    return dimension


def _rotated(x: HloInstruction, dimension: int, amount: int, b: Builder) -> HloInstruction:
    """Return ``x`` rotated right by ``amount``: the last elements move to the front."""
    size = x.dims[dimension]
    amount %= size
    if amount == 0:
        return b.copy(x)
    parts = (
        b.slice_along(x, dimension, size - amount, size),
        b.slice_along(x, dimension, 0, size - amount),
    )
    return b.concatenate(parts, dimension)


@LIBRARY_CALLS.register(f"{_PREFIX}RotateRight")
def rotate_right(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    require_operands(call, operands, 1)
    attributes = _attributes(call)
    dimension = _dimension(attributes, operands[0])
    return (_rotated(operands[0], dimension, attributes.number("amount"), b),)


@LIBRARY_CALLS.register(f"{_PREFIX}MultiRotate")
def multi_rotate(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    require_operands(call, operands, 1)
    attributes = _attributes(call)
    dimension = _dimension(attributes, operands[0])
    size = operands[0].dims[dimension]
    left, right = (attributes.number(f"{side}_amount", size) for side in ("left", "right"))
    _require_results(call, left + right + 1)
    return tuple(_rotated(operands[0], dimension, k, b) for k in range(-left, right + 1))


@LIBRARY_CALLS.register(f"{_PREFIX}MultiSlice")
def multi_slice(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return the slice that the call states, and those that begin and end 1, 2, .. positions later."""
    require_operands(call, operands, 1)
    (x,), attributes = operands, _attributes(call)
    dimension = _dimension(attributes, x)
    start, limit = _bounds(attributes, x, dimension)
    amount = attributes.number("amount", x.dims[dimension] - limit)
    _require_results(call, amount + 1)
    return tuple(b.slice_along(x, dimension, start + k, limit + k) for k in range(amount + 1))


def _bounds(attributes: _Attributes, x: HloInstruction, dimension: int) -> tuple[int, int]:
    """Return the start and limit of the slice in ``dimension``; the other dimensions are taken entirely."""
    starts, limits, strides = (
        attributes.lists.get(name, ()) for name in ("start_indices", "limit_indices", "strides")
    )
    if len(starts) != len(x.dims) or len(limits) != len(x.dims):
        raise attributes.wrong("start_indices or limit_indices")
    if any(stride != 1 for stride in strides):
        raise attributes.wrong("strides")
    for d, (start, limit, size) in enumerate(zip(starts, limits, x.dims, strict=True)):
        inside = 0 <= start < limit <= size
        if not inside or (d != dimension and (start, limit) != (0, size)):
            raise attributes.wrong("start_indices or limit_indices")
    return starts[dimension], limits[dimension]


@LIBRARY_CALLS.register(f"{_PREFIX}MultiPad")
def multi_pad(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    """Return the array after that many padding elements, one fewer, .., none; the results' size gives the padding at
    the end.
    """
    require_operands(call, operands, 2)
    (x, padding), attributes = operands, _attributes(call)
    dimension = _dimension(attributes, x)
    amount = attributes.number("amt", x.dims[dimension])
    _require_results(call, amount + 1)
    shape = as_array(result_elements(call.shape)[0])
    if len(shape.dims) != len(x.dims):
        raise attributes.wrong("results of another rank")
    after = shape.dims[dimension] - x.dims[dimension]
    none = [0] * len(x.dims)

    def padded(before: int) -> HloInstruction:
        low, high = none.copy(), none.copy()
        low[dimension], high[dimension] = before, after - before
        return b.pad(x, padding, low, high)

    return tuple(padded(before) for before in range(amount, -1, -1))


@LIBRARY_CALLS.register(WRAP)
def wrap(call: HloInstruction, operands: Sequence[HloInstruction], b: Builder) -> Values:
    require_operands(call, operands, 1)
    (x,), attributes = operands, _attributes(call)
    dimension = _dimension(attributes, x)
    size = x.dims[dimension]
    left, right = (attributes.number(f"{side}_amount", size) for side in ("left", "right"))
    parts = [x]
    if left:
        parts.insert(0, b.slice_along(x, dimension, size - left, size))
    if right:
        parts.append(b.slice_along(x, dimension, 0, right))
    return (b.concatenate(parts, dimension) if len(parts) > 1 else b.copy(x),)


def _require_results(call: HloInstruction, count: int) -> None:
    found = len(result_elements(call.shape))
    if found != count:
        raise UnsupportedError(f"{call!r}: {count} results are expected, found {found}")
