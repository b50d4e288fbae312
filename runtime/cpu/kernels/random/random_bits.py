"""Random bits of counter-based generators, in native code."""

from __future__ import annotations

from runtime.codegen.ir.random_block_ir import RandomBitsVariant
from runtime.cpu.kernels.native_call import native_call
from runtime.cpu.kernels.random.random_bits_ir import FUNCTION, RandomBitsRecord, random_bits_code
from runtime.program.kernel import CPU_KERNELS, Action, KernelArrays
from runtime.program.records.random_bits import Algorithm, RandomBitsKernel, split_dimension


@CPU_KERNELS.binds(RandomBitsKernel)
def bind_random_bits(kernel: RandomBitsKernel, arrays: KernelArrays) -> Action:
    """Bind the generation as one native call, which finally stores the new state if there is a result for it."""
    (state,), bits = arrays.operands, arrays.results[-1]
    new_state = arrays.results[0] if len(arrays.results) > 1 else None
    numbers = bits.size * (2 if kernel.kind.bits == 64 else 1)
    each = kernel.algorithm.block // (2 if kernel.kind.bits == 64 else 1)
    counters = -(-numbers // kernel.algorithm.block)
    nest, apart = [bits.size // each, bits.size % each], False
    if kernel.algorithm is Algorithm.THREEFRY and kernel.kind.bits < 64:
        rows, lines, inner = split_dimension(bits.shape)
        counters = rows * -(-lines // 2) * inner
        apart = bits.size > 0 and (inner > 1 or (rows > 1 and lines % 2 > 0))
        if apart:
            nest = [rows, lines // 2, lines % 2, inner]
    variant = RandomBitsVariant(
        kernel.algorithm, kernel.kind, len(state), new_state is not None, apart
    )
    record = RandomBitsRecord(
        state.ctypes.data,
        state.strides[0],
        0 if new_state is None else new_state.ctypes.data,
        bits.ctypes.data,
        counters,
        nest,
    )
    every = (*arrays.operands, *arrays.results)
    return native_call(random_bits_code(variant), FUNCTION, record.to_array(), every)
