"""Where reshapes and transposes leave elements: against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runtime.buffers.checker.element_order import Order
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
    return (*dims, 1) if rng.random() < 0.2 else tuple(dims)


@pytest.mark.parametrize("seed", range(60))
def test_orders_are_numpy_s(seed: int) -> None:
    """Of chains of both; an order that is given up may be any."""
    rng = np.random.default_rng(seed)
    elements = int(rng.choice([6, 10, 12, 24, 30, 36]))
    dims = random_dims(rng, elements)
    found = module(dims)
    b = Builder(found.entry, ModuleScope(found))
    x: HloInstruction = found.entry.parameters[0]
    order: Order | None = Order.of(dims)
    numbers = np.arange(elements).reshape(dims)
    for _ in range(4):
        if rng.random() < 0.5:
            axes = tuple(map(int, rng.permutation(len(x.dims))))
            user, numbers = b.transpose(x, axes), numbers.transpose(axes)
        else:
            shape = random_dims(rng, elements)
            user, numbers = b.reshape(x, shape), numbers.reshape(shape)
        assert order is not None
        order = order.after(x, user)
        if order is None:
            return
        assert listed(order) == numbers.reshape(-1).tolist()
        assert order.is_own is bool((np.diff(numbers.reshape(-1)) == 1).all())
        x = user


def listed(order: Order) -> list[int]:
    """Of each element, in order, where it lay."""
    found = np.zeros(1, np.int64)
    for digits in order.dims:
        for size, step in digits:
            found = (found[:, None] + step * np.arange(size)).reshape(-1)
    return [int(at) for at in found]


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
    order = Order.of(before).after(x, user)
    assert order is not None
    assert order.is_own
