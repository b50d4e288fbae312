"""Random bits: rng-bit-generator (Threefry-2x32, Philox-4x32 exactly as XLA expands them), and the stateful rng.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. State vectors are u64: [key, counter] for
Threefry, [key, counter low, counter high] (or [key, counter low], read reversed, as XLA does) for Philox.
"""

from __future__ import annotations

import math

import numpy as np

from spmd.errors import UnsupportedError
from spmd.evaluator.conversion import convert
from spmd.evaluator.device import Device
from spmd.evaluator.registry import evaluates, evaluates_on_device
from spmd.evaluator.value import NDArray, Operands, Value, array_of, arrays_of
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.opcode import Opcode
from spmd.ops.attrs import RngAttrs, RngBitGeneratorAttrs, RngStateAttrs
from spmd.ops.checks import result_elements
from spmd.shape import ArrayShape, PrimitiveType, as_array

_U32 = np.uint32
_LOW_32 = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_PHILOX_WEYL = (_U32(0x9E3779B9), _U32(0xBB67AE85))


def threefry2x32(
    key: tuple[NDArray, NDArray], x: tuple[NDArray, NDArray]
) -> tuple[NDArray, NDArray]:
    """Compute 20 rounds; key and x are pairs of u32 arrays."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ _U32(0x1BD11BDA))
    x0, x1 = x[0] + schedule[0], x[1] + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << _U32(rotation)) | (x1 >> _U32(32 - rotation))
            x1 = x0 ^ x1
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + _U32(group + 1)
    return x0, x1


def philox4x32(key: tuple[NDArray, NDArray], x: list[NDArray]) -> list[NDArray]:
    """Compute 10 rounds; key is a pair and x four u32 arrays."""
    k0, k1 = key
    for _ in range(10):
        product0 = x[0].astype(np.uint64) * _PHILOX_MULTIPLIERS[0]
        product1 = x[2].astype(np.uint64) * _PHILOX_MULTIPLIERS[1]
        high0, low0 = _split(product0)[::-1]
        high1, low1 = _split(product1)[::-1]
        x = [high1 ^ x[1] ^ k0, low1, high0 ^ x[3] ^ k1, low0]
        k0, k1 = k0 + _PHILOX_WEYL[0], k1 + _PHILOX_WEYL[1]
    return x


def _split(x: NDArray) -> tuple[NDArray, NDArray]:
    """Return the low and high 32 bits of u64."""
    return (x & _LOW_32).astype(_U32), (x >> _32).astype(_U32)


def _join(low: NDArray, high: NDArray) -> NDArray:
    return np.asarray(low.astype(np.uint64) | (high.astype(np.uint64) << _32))


@evaluates(Opcode.RNG_BIT_GENERATOR)
def evaluate_rng_bit_generator(instruction: HloInstruction, operands: Operands) -> Value:
    """Return (new state, bits), or the bits alone. rng_default is Philox, as on XLA's CPU backend."""
    algorithm = instruction.attrs_as(RngBitGeneratorAttrs).algorithm
    shape = as_array(result_elements(instruction.shape)[-1])
    state = array_of(operands[0]).astype(np.uint64)
    make = _threefry_bits if algorithm == "rng_three_fry" else _philox_bits
    new_state, bits = make(state, shape)
    kind = shape.element_type
    if kind.bits < 32:
        bits = bits.astype(f"u{kind.byte_size}")
    bits = bits.reshape(shape.dims)
    if not kind.is_integer:
        raise UnsupportedError(f"{instruction!r}: random bits of {kind} are not evaluated")
    typed = convert(bits, kind) if kind.bits < 8 else bits.view(kind.numpy)
    if isinstance(instruction.shape, ArrayShape):
        return typed
    return (new_state.astype(array_of(operands[0]).dtype), typed)


def _threefry_bits(state: NDArray, shape: ArrayShape) -> tuple[NDArray, NDArray]:
    """Return the new state and bits. Counters run over the shape, or over half of it if each call gives two 32-bit
    numbers.
    """
    key = _split(state[0])
    if shape.element_type.bits == 64:
        counters = state[1] + np.arange(shape.num_elements, dtype=np.uint64)
        bits = _join(*threefry2x32(key, _split(counters)))
        return np.stack([state[0], state[1] + np.uint64(shape.num_elements)]), bits
    dims = shape.dims or (1,)
    even = [d for d, n in enumerate(dims) if n % 2 == 0]
    split = even[0] if even else int(np.argmax(dims))
    half = [(-(-n // 2) if d == split else n) for d, n in enumerate(dims)]
    count = math.prod(half)
    counters = (state[1] + np.arange(count, dtype=np.uint64)).reshape(half)
    pair = np.stack(threefry2x32(key, _split(counters)), axis=split + 1)
    joined = pair.reshape([*half[:split], 2 * half[split], *half[split + 1 :]])
    bits = np.take(joined, np.arange(dims[split]), axis=split)
    return np.stack([state[0], state[1] + np.uint64(count)]), bits


def _philox_bits(state: NDArray, shape: ArrayShape) -> tuple[NDArray, NDArray]:
    """Return the new state and bits. Each 128-bit counter gives four 32-bit (two 64-bit) numbers, used in order."""
    key = _split(state[0])
    low, high = (state[1], state[2]) if state.size >= 3 else (state[1], state[0])
    numbers_needed = shape.num_elements * (2 if shape.element_type.bits == 64 else 1)
    count = -(-numbers_needed // 4)
    counters = low + np.arange(count, dtype=np.uint64)
    carried = np.where(counters < low, high + np.uint64(1), high)
    numbers = philox4x32(key, [*_split(counters), *_split(carried)])
    if shape.element_type.bits == 64:
        numbers = [_join(numbers[0], numbers[1]), _join(numbers[2], numbers[3])]
    bits = np.stack(numbers, axis=1).reshape(-1)[: shape.num_elements]
    new_low = low + np.uint64(count)
    new_high = high + np.uint64(1) if new_low < low else high
    new_state = [state[0], new_low, new_high] if state.size >= 3 else [state[0], new_low]
    return np.stack(new_state), bits


@evaluates_on_device(Opcode.RNG)
def evaluate_rng(instruction: HloInstruction, operands: Operands, device: Device) -> Value:
    """Draw uniform in [a, b) or normal(mean, sigma). XLA leaves the numbers open; here they are the same in every run.

    They are made of Philox bits, whose counter is the state of rng-get-and-update-state. Every device draws the same
    numbers, as after partitioning a program whose value is replicated.
    """
    shape = instruction.array_shape
    kind, dims = shape.element_type, shape.dims
    first, second = arrays_of(operands)
    real = PrimitiveType.F64 if kind.is_floating and kind.bits == 64 else PrimitiveType.F32
    with np.errstate(all="ignore"):
        if instruction.attrs_as(RngAttrs).distribution == "rng_normal":
            radius, angle = _unit_interval(device, (2, *dims), real)
            normal = np.sqrt(-2 * np.log1p(-radius)) * np.cos(real.numpy.type(2 * np.pi) * angle)
            normal = normal * convert(second, real) + convert(first, real)
            return convert(np.asarray(normal), kind)
        if kind is PrimitiveType.PRED:
            odd = _stateful_bits(device, dims, PrimitiveType.U32) & _U32(1)
            return np.asarray(odd != 0)
        if kind.is_integer:
            word = PrimitiveType.U64 if kind.bits > 32 else PrimitiveType.U32
            low, span = convert(first, word), convert(second, word) - convert(first, word)
            bits = _stateful_bits(device, dims, word)
            return convert(np.asarray((bits % span if span else bits) + low), kind)
        low, high = convert(first, real), convert(second, real)
        uniform = _unit_interval(device, dims, real) * (high - low) + low
        return convert(np.asarray(uniform), kind)


def _unit_interval(device: Device, dims: tuple[int, ...], kind: PrimitiveType) -> NDArray:
    """Draw uniform in [0, 1): as many leading bits of a word as ``kind`` has in its mantissa, with the implied one."""
    word, significand_bits = (PrimitiveType.U64, 53) if kind.bits == 64 else (PrimitiveType.U32, 24)
    bits = _stateful_bits(device, dims, word) >> word.numpy.type(word.bits - significand_bits)
    return np.asarray(bits.astype(kind.numpy) * kind.numpy.type(2.0**-significand_bits))


def _stateful_bits(device: Device, dims: tuple[int, ...], kind: PrimitiveType) -> NDArray:
    """Draw Philox bits of key 0; the device's state counts the blocks of 128 bits."""
    before = device.rng_state
    shape = ArrayShape(kind, dims)
    device.rng_state = (before + -(-shape.num_elements * kind.bits // 128)) % (1 << 128)
    state = np.array([0, before & 0xFFFFFFFFFFFFFFFF, before >> 64], np.uint64)
    return _philox_bits(state, shape)[1].reshape(dims)


@evaluates_on_device(Opcode.RNG_GET_AND_UPDATE_STATE)
def evaluate_rng_state(instruction: HloInstruction, _: Operands, device: Device) -> Value:
    """Return the 128-bit state (low, high) before ``delta`` is added to it."""
    before = device.rng_state
    device.rng_state = (before + instruction.attrs_as(RngStateAttrs).delta) % (1 << 128)
    return np.array([before & 0xFFFFFFFFFFFFFFFF, before >> 64], np.uint64)
