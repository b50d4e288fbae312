"""Tests of where reshapes and transposes leave elements, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runtime.buffers.checker.element_order import Location, Order
from spmd.builder import Builder, ModuleScope
from spmd.hlo import HloInstruction, HloModule
from spmd.text.parser import parse_module


def module(dims: tuple[int, ...]) -> HloModule:
    shape = f"f32[{','.join(map(str, dims))}]"
    return parse_module(f"HloModule m\nENTRY e {{\n  ROOT p = {shape} parameter(0)\n}}\n")


def random_dims(rng: np.random.Generator, elements: int) -> tuple[int, ...]:
    dims: list[int] = []
    while elements > 1:
        factors = [f for f in range(2, elements + 1) if elements % f == 0]
        dims.append(int(rng.choice(factors)))
        elements //= dims[-1]
    return (*dims, 1) if not dims or rng.random() < 0.2 else tuple(dims)


@pytest.mark.parametrize("seed", range(200))
def test_places_are_numpy_s(seed: int) -> None:
    """Chains of operations move elements as NumPy does; what is said of a chain that is given up is not checked."""
    rng = np.random.default_rng(seed)
    elements = int(rng.choice([6, 10, 12, 24, 30, 36]))
    dims = random_dims(rng, elements)
    found = module(dims)
    b = Builder(found.entry, ModuleScope(found))
    x: HloInstruction = found.entry.parameters[0]
    locations = [Location.of(dims)]
    numbers = np.arange(elements).reshape(dims)
    for _ in range(5):
        user, numbers = moved(rng, b, x, numbers)
        after = [location.after(x, user) for location in locations]
        if None in after:
            return
        locations = [location for some in after if some is not None for location in some]
        assert_holds(locations, numbers)
        x = user


def moved(
    rng: np.random.Generator, b: Builder, x: HloInstruction, numbers: np.ndarray
) -> tuple[HloInstruction, np.ndarray]:
    """Move elements in a random way; others than those of the array are -1."""
    d, kind = int(rng.integers(len(x.dims))), rng.integers(7)
    if kind == 0:
        axes = tuple(map(int, rng.permutation(len(x.dims))))
        return b.transpose(x, axes), numbers.transpose(axes)
    if kind == 1:
        shape = random_dims(rng, numbers.size)
        return b.reshape(x, shape), numbers.reshape(shape)
    if kind == 2:
        return b.reverse(x, (d,)), np.flip(numbers, d)
    if kind == 3:
        starts, limits, strides = [0] * x.array_shape.rank, list(x.dims), [1] * x.array_shape.rank
        starts[d] = int(rng.integers(x.dims[d]))
        limits[d] = int(rng.integers(starts[d] + 1, x.dims[d] + 1))
        strides[d] = int(rng.integers(1, 3))
        part = tuple(map(slice, starts, limits, strides))
        return b.slice(x, starts, limits, strides), numbers[part]
    if kind == 4:
        low, high = map(int, rng.integers(-1, 3, 2))
        if x.dims[d] + low + high <= 0:
            low = high = 1
        widths = [(max(low, 0), max(high, 0)) if k == d else (0, 0) for k in range(len(x.dims))]
        wide = np.pad(numbers, widths, constant_values=-1)
        kept = slice(max(-low, 0), wide.shape[d] - max(-high, 0))
        lows, highs = ([n if k == d else 0 for k in range(len(x.dims))] for n in (low, high))
        part = tuple(kept if k == d else slice(None) for k in range(len(x.dims)))
        return b.pad(x, b.scalar(x.array_shape.element_type, 0), lows, highs), wide[part]
    if kind == 5:
        at, times = int(rng.integers(len(x.dims) + 1)), int(rng.integers(1, 4))
        shape = (*x.dims[:at], times, *x.dims[at:])
        kept = [k for k in range(len(shape)) if k != at]
        return b.broadcast(x, kept, shape), np.repeat(np.expand_dims(numbers, at), times, at)
    other = b.full(x.array_shape, 0)
    parts = [(x, numbers), (other, np.full_like(numbers, -1)), (x, numbers)]
    chosen = [parts[i] for i in rng.permutation(3)[: rng.integers(1, 4)]]
    if all(y is other for y, _ in chosen):
        chosen.append(parts[0])
    return b.concatenate([y for y, _ in chosen], d), np.concatenate([n for _, n in chosen], d)


def assert_holds(locations: list[Location], numbers: np.ndarray) -> None:
    """Check that each element has a location that says where it lay, and none that says otherwise for it alone."""
    for index in np.ndindex(numbers.shape):
        number = numbers[index]
        if number < 0:
            continue
        inside = [
            p
            for p in locations
            if all(a <= i < e for i, (a, e) in zip(index, p.window, strict=True))
        ]
        assert number in [offset_of(location.order, index) for location in inside]
    if all(location.order.is_own for location in locations) and locations:
        own = np.arange(numbers.size).reshape(numbers.shape)
        assert ((numbers < 0) | (numbers == own)).all()


def offset_of(order: Order, index: tuple[int, ...]) -> int:
    """Return where the element at ``index`` lay."""
    at = order.offset
    for i, parts in zip(index, order.dims, strict=True):
        for size, step in reversed(parts):
            at += i % size * step
            i //= size
    return at


@pytest.mark.parametrize(
    ("before", "after"),
    [((2, 5), (5, 2)), ((4, 2, 5), (10, 4)), ((3, 4), (2, 6)), ((3, 8, 0, 5), (0,))],
)
def test_a_reshape_of_what_lies_as_it_lay_is_known_wherever_dimensions_begin(
    before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    assert math.prod(before) == math.prod(after)
    found = module(before)
    x = found.entry.parameters[0]
    user = Builder(found.entry, ModuleScope(found)).reshape(x, after)
    (location,) = Location.of(before).after(x, user) or ()
    assert location.order.is_own
