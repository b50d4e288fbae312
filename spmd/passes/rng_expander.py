"""Write random draws as arithmetic on random bits."""

from __future__ import annotations

import math
from typing import ClassVar

from spmd.builder import Builder, ModuleScope
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.hlo.opcode import Opcode
from spmd.lazy_dataclass import dataclass
from spmd.ops.attrs import RngAttrs, RngBitGeneratorAttrs, RngStateAttrs
from spmd.passes.instruction_pass import Edit, InstructionPass
from spmd.passes.interface import register_pass
from spmd.passes.rewrite import builder_at, move_control_edges
from spmd.shape import ArrayShape, PrimitiveType, TupleShape

_U32, _U64 = PrimitiveType.U32, PrimitiveType.U64
_F32, _F64 = PrimitiveType.F32, PrimitiveType.F64


@register_pass
@dataclass(frozen=True)
class RngExpander(InstructionPass):
    """rng(a, b), distribution=rng_uniform  =>  a + (b - a) * (bits >> 8) / 2^24

    with bits from an rng-bit-generator (Philox, key 0) whose counter is the state that rng-get-and-update-state keeps.
    Normal numbers come from two uniform ones by Box and Muller's transform. Integers are bits modulo b - a, plus a;
    numbers narrower than f32 are rounded from f32. These are the reference evaluator's numbers; XLA leaves them open.
    """

    name: ClassVar[str] = "rng-expander"
    opcodes: ClassVar[tuple[Opcode, ...]] = (Opcode.RNG,)

    def editor(self, module: HloModule) -> Edit:
        scope = ModuleScope(module)

        def edit(x: HloInstruction) -> bool:
            expand(x, builder_at(x, scope))
            return True

        return edit


def expand(x: HloInstruction, b: Builder) -> None:
    """Replace an rng by instructions at its position in the computation, since that order determines the states."""
    assert x.parent is not None
    before = len(x.parent)
    numbers = _numbers(x, b)
    numbers.sharding = x.sharding
    made = x.parent.newest(len(x.parent) - before)
    order = dict.fromkeys(x.parent.instructions)
    rest = [y for y in order if y not in made]
    position = rest.index(x)
    x.parent.set_order([*rest[:position], *made, *rest[position:]])
    for state in made:
        if state.opcode is Opcode.RNG_GET_AND_UPDATE_STATE:
            move_control_edges(x, state)
    x.parent.replace(x, numbers)


def _numbers(x: HloInstruction, b: Builder) -> HloInstruction:
    kind, (first, second) = x.array_shape.element_type, x.operands
    if x.attrs_as(RngAttrs).distribution == "rng_normal":
        return _normal(x, b)
    if kind is PrimitiveType.PRED:
        odd = b.logical_and(_bits(b, _U32, x.dims), b.full(ArrayShape(_U32, x.dims), 1))
        return b.compare(odd, b.full(ArrayShape(_U32, x.dims), 0), "NE")
    if kind.is_integer:
        word = _U64 if kind.bits > 32 else _U32
        low = b.as_type(first, word)
        span = b.subtract(b.as_type(second, word), low)
        rest = b.remainder(_bits(b, word, x.dims), b.broadcast_scalar(span, x.dims))
        return b.as_type(b.add(rest, b.broadcast_scalar(low, x.dims)), kind)
    real = _F64 if kind is _F64 else _F32
    low = b.as_type(first, real)
    span = b.subtract(b.as_type(second, real), low)
    return b.as_type(_scaled(b, _unit_interval(b, real, x.dims), span, low), kind)


def _normal(x: HloInstruction, b: Builder) -> HloInstruction:
    """Return mean + sigma * sqrt(-2 log(1 - u)) * cos(2 pi v)."""
    kind, (mean, sigma) = x.array_shape.element_type, x.operands
    real = _F64 if kind is _F64 else _F32
    shape = ArrayShape(real, x.dims)
    pair = _unit_interval(b, real, (2, *x.dims))
    u, v = (_row(b, pair, i) for i in range(2))
    log = b.unary(Opcode.LOG_PLUS_ONE, b.negate(u))
    radius = b.unary(Opcode.SQRT, b.multiply(b.full(shape, -2), log))
    angle = b.multiply(b.full(shape, 2 * math.pi), v)
    standard = b.multiply(radius, b.unary(Opcode.COSINE, angle))
    scaled = _scaled(b, standard, b.as_type(sigma, real), b.as_type(mean, real))
    return b.as_type(scaled, kind)


def _unit_interval(b: Builder, kind: PrimitiveType, dims: tuple[int, ...]) -> HloInstruction:
    """Return uniform numbers in [0, 1), from as many high bits of a word as the significand of ``kind`` has, the
    implied one included.
    """
    word, significand_bits = (_U64, 53) if kind is _F64 else (_U32, 24)
    unused = b.full(ArrayShape(word, dims), word.bits - significand_bits)
    high_bits = b.binary(Opcode.SHIFT_RIGHT_LOGICAL, _bits(b, word, dims), unused)
    return b.multiply(
        b.convert(high_bits, kind), b.full(ArrayShape(kind, dims), 2.0**-significand_bits)
    )


def _bits(b: Builder, kind: PrimitiveType, dims: tuple[int, ...]) -> HloInstruction:
    shape = ArrayShape(kind, dims)
    blocks = -(-shape.num_elements * kind.bits // 128)
    counter = b.create(Opcode.RNG_GET_AND_UPDATE_STATE, (), RngStateAttrs(blocks))
    key = b.full(ArrayShape(_U64, (1,)), 0)
    state = b.concatenate([key, counter], 0)
    drawn = b.create(
        Opcode.RNG_BIT_GENERATOR,
        (state,),
        RngBitGeneratorAttrs("rng_philox"),
        shape=TupleShape((state.shape, shape)),
    )
    return b.get_tuple_element(drawn, 1)


def _row(b: Builder, x: HloInstruction, i: int) -> HloInstruction:
    return b.reshape(b.slice_along(x, 0, i, i + 1), x.dims[1:])


def _scaled(
    b: Builder, x: HloInstruction, factor: HloInstruction, offset: HloInstruction
) -> HloInstruction:
    product = b.multiply(x, b.broadcast_scalar(factor, x.dims))
    return b.add(product, b.broadcast_scalar(offset, x.dims))
