"""Convolutions of images with features last, gradients of their images and of their filters, of random sizes."""

from __future__ import annotations

from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.ops.attrs import ConvDimensionNumbers, ConvolutionAttrs
from spmd.ops.window import Window, WindowDimension
from spmd.shape import ArrayShape, PrimitiveType
from tests.spmd.passes.triggers.programs import Program
from tests.spmd.passes.triggers.registry import Rng, trigger


@trigger("convolution-canonicalization")
def modules(rng: Rng) -> HloModule:
    p = Program(rng)
    convolution = (_forward, _image_gradient, _filter_gradient)[p.integer(0, 2)](p)
    module = p.module(convolution, *p.some(convolution.operands))
    module.stage = Stage.PARTITIONED
    return module


def _value(p: Program, *dims: int) -> HloInstruction:
    return p.parameter(ArrayShape(PrimitiveType.F32, dims))


def _convolution(
    p: Program,
    operands: tuple[HloInstruction, HloInstruction],
    window: list[WindowDimension],
    numbers: tuple[int, int, int, int, int, int],
    spatial: tuple[int, int, int],
) -> HloInstruction:
    """Return a convolution. ``spatial`` are the first of the spatial dimensions of the three arrays."""
    rank = len(window)
    x, w, out = (tuple(range(first, first + rank)) for first in spatial)
    labels = ConvDimensionNumbers(*numbers[:2], x, *numbers[2:4], w, *numbers[4:], out)
    attrs = ConvolutionAttrs(Window(tuple(window)), labels)
    return p.b.create(Opcode.CONVOLUTION, operands, attrs)


def _forward(p: Program) -> HloInstruction:
    rank, c, k = p.integer(0, 3), p.integer(1, 3), p.integer(1, 3)
    window = [
        WindowDimension(
            size=p.integer(1, 3),
            stride=p.integer(1, 2),
            padding_low=p.integer(-1, 2),
            padding_high=p.integer(0, 2),
            window_dilation=p.integer(1, 2),
            reversal=p.chance(0.3),
        )
        for _ in range(rank)
    ]
    x = _value(p, p.integer(1, 2), *(p.integer(6, 8) for _ in window), c)
    w = _value(p, *(dim.size for dim in window), c, k)
    if p.chance():
        w = p.b.reverse(w, tuple(p.some(range(rank))))
    last = rank + 1
    return _convolution(p, (x, w), window, (0, last, rank, last, 0, last), (1, 0, 1))


def _image_gradient(p: Program) -> HloInstruction:
    rank, c, k = p.integer(1, 3), p.integer(1, 3), p.integer(1, 3)
    window = [
        WindowDimension(
            size=p.integer(1, 3), padding_low=2, padding_high=2, base_dilation=p.integer(1, 2)
        )
        for _ in range(rank)
    ]
    dy = _value(p, p.integer(1, 2), *(p.integer(2, 5) for _ in window), k)
    w = p.b.reverse(_value(p, *(dim.size for dim in window), c, k), tuple(range(rank)))
    last = rank + 1
    return _convolution(p, (dy, w), window, (0, last, last, rank, 0, last), (1, 0, 1))


def _filter_gradient(p: Program) -> HloInstruction:
    rank, n, c, k = p.integer(1, 3), p.integer(1, 3), p.integer(1, 3), p.integer(1, 3)
    sizes = [p.integer(4, 6) for _ in range(rank)]
    window = [WindowDimension(size=size, padding_low=1, padding_high=1) for size in sizes]
    x, dy = _value(p, n, *sizes, c), _value(p, n, *sizes, k)
    last = rank + 1
    return _convolution(p, (x, dy), window, (last, 0, 0, last, rank, last), (1, 1, 0))
