"""LLVM IR of the block functions of counter-based generators: Threefry-2x32 and Philox-4x32.

The algorithms are those of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.codegen.elements.builder import Code, Int
from runtime.codegen.ir.combine import element_of
from runtime.program.records.random_bits import Algorithm
from spmd.lazy_dataclass import dataclass
from spmd.shape import PrimitiveType

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)


@dataclass(frozen=True, slots=True)
class RandomBitsVariant:
    """Variant of the code of a generator of elements of the integer type ``kind``.

    ``state_length`` is the number of u64 elements of the state, which is a result if ``gives_state``. ``apart`` tells
    that the two numbers of a Threefry block belong to elements that are not adjacent.
    """

    algorithm: Algorithm
    kind: PrimitiveType
    state_length: int
    gives_state: bool
    apart: bool = False


def _threefry(key: Sequence[Int], x: Sequence[Int]) -> list[Int]:
    """Return the two 32-bit numbers of counter ``x`` after 20 rounds."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA)
    x0, x1 = x[0] + schedule[0], x[1] + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << rotation) | (x1 >> (32 - rotation)))
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + (group + 1)
    return [x0, x1]


def _philox(key: Sequence[Int], x: Sequence[Int]) -> list[Int]:
    """Return the four 32-bit numbers of counter ``x`` after 10 rounds."""
    k0, k1 = key
    for _ in range(10):
        products = [
            x[i].resized("i64") * multiplier
            for i, multiplier in zip((0, 2), _PHILOX_MULTIPLIERS, strict=True)
        ]
        (low0, high0), (low1, high1) = map(_halves, products)
        x = [high1 ^ x[1] ^ k0, low1, high0 ^ x[3] ^ k1, low0]
        k0, k1 = k0 + _PHILOX_WEYL[0], k1 + _PHILOX_WEYL[1]
    return list(x)


def _halves(x: Int) -> tuple[Int, Int]:
    """Return the low and the high 32 bits of an i64."""
    return x.resized("i32"), (x >> 32).resized("i32")


def block_function(variant: RandomBitsVariant) -> str:
    """Return @block(key, low, high), which returns the stored elements of the 128-bit counter (high, low)."""
    block = _threefry if variant.algorithm is Algorithm.THREEFRY else _philox
    code = Code()
    key, low, high = (Int(code, "i64", f"%{name}") for name in ("key", "low", "high"))
    counter = [*_halves(low), *_halves(high)][: variant.algorithm.block]
    numbers = block(_halves(key), counter)
    if variant.kind.bits == 64:
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        numbers = [a.resized("i64") | (b.resized("i64") << 32) for a, b in pairs]
    stored = element_of(variant.kind.numpy).stored
    numbers = [number.resized(stored) for number in numbers]
    if variant.kind.bits < 8:
        numbers = [number & ((1 << variant.kind.bits) - 1) for number in numbers]
    struct = f"{{ {', '.join([stored] * len(numbers))} }}"
    lines = [code.text(numbers[-1])]
    value = "undef"
    for n, number in enumerate(numbers):
        lines.append(f"%s{n} = insertvalue {struct} {value}, {stored} {number.name}, {n}")
        value = f"%s{n}"
    body = "\n  ".join(lines)
    return (
        f"define internal {struct} @block(i64 %key, i64 %low, i64 %high) alwaysinline {{\n"
        f"  {body}\n  ret {struct} {value}\n}}"
    )
