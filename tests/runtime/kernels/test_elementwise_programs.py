"""Programs of several operations: registers hold what is still needed, whatever the blocks and the order of deaths."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.kernel import NUMPY_KERNELS, KernelArrays
from runtime.kernels.blocks import block_dims
from runtime.kernels.element_ops import ElementOp
from runtime.kernels.elementwise import ElementwiseKernel, Registers, allocate_registers
from runtime.kernels.reduce import ReduceKernel
from spmd.device import ReductionKind
from spmd.hlo import Opcode
from spmd.ops.attrs import CompareAttrs
from spmd.shape import PrimitiveType

F32 = PrimitiveType.F32
PRED = PrimitiveType.PRED


def random_program(seed: int, num_inputs: int, length: int) -> tuple[ElementOp, ...]:
    """Operations on inputs and earlier values, comparisons and selects (which may not overwrite all operands) among them."""
    rng = np.random.default_rng(seed)
    types = [F32] * num_inputs
    ops: list[ElementOp] = []

    def some(kind: PrimitiveType) -> int:
        return int(rng.choice([i for i, t in enumerate(types) if t is kind]))

    for k in range(length):
        choice = int(rng.integers(4)) if k < length - 1 else 0
        if choice == 2:
            op = ElementOp(
                Opcode.COMPARE, (some(F32), some(F32)), (F32, F32), PRED, CompareAttrs("LT")
            )
        elif choice == 3 and PRED in types:
            operands = (some(PRED), some(F32), some(F32))
            op = ElementOp(Opcode.SELECT, operands, (PRED, F32, F32), F32)
        elif choice == 1:
            op = ElementOp(Opcode.TANH, (some(F32),), (F32,), F32)
        else:
            opcode = (Opcode.ADD, Opcode.MULTIPLY, Opcode.SUBTRACT)[int(rng.integers(3))]
            op = ElementOp(opcode, (some(F32), some(F32)), (F32, F32), F32)
        ops.append(op)
        types.append(op.element_type)
    return tuple(ops)


def by_definition(ops: tuple[ElementOp, ...], inputs: list[np.ndarray]) -> np.ndarray:
    """Every value in an array of its own."""
    functions = {
        Opcode.ADD: np.add,
        Opcode.MULTIPLY: np.multiply,
        Opcode.SUBTRACT: np.subtract,
        Opcode.TANH: np.tanh,
        Opcode.COMPARE: np.less,
        Opcode.SELECT: np.where,
    }
    values = list(inputs)
    for op in ops:
        values.append(functions[op.opcode](*(values[r] for r in op.operands)))
    return values[-1]


def scratch_for(registers: Registers, elements: int) -> np.ndarray:
    return np.full(registers.count * registers.item_bytes * elements, 0xAB, np.uint8)


@pytest.mark.parametrize("limit", [1, 6, 1000])
@pytest.mark.parametrize("seed", range(25))
def test_elementwise(seed: int, limit: int) -> None:
    dims = (3, 4, 5)
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(dims).astype(np.float32) for _ in range(3)]
    inputs[2] = np.broadcast_to(inputs[2][:, :1, :], dims)
    ops = random_program(seed, 3, 2 + seed % 9)
    registers = allocate_registers(3, ops, keep_last=False)
    block = block_dims(dims, limit)
    kernel = ElementwiseKernel(dims, 3, ops, block, registers)
    out = np.empty(dims, np.float32)
    scratch = scratch_for(registers, int(np.prod(block)))
    with np.errstate(all="ignore"):
        NUMPY_KERNELS.bind(kernel, KernelArrays(tuple(inputs), (out,), (scratch,)))()
        np.testing.assert_array_equal(out, by_definition(ops, inputs))


@pytest.mark.parametrize("limit", [1, 6, 1000])
@pytest.mark.parametrize("seed", range(10))
def test_reduction_of_a_program(seed: int, limit: int) -> None:
    """The maximum, which no order of blocks changes."""
    dims, axes = (3, 4, 5), ((0,), (2,), (0, 2))[seed % 3]
    rng = np.random.default_rng(seed)
    inputs = [rng.standard_normal(dims).astype(np.float32) for _ in range(2)]
    ops = random_program(seed, 2, 2 + seed % 5)
    registers = allocate_registers(2, ops, keep_last=True)
    block = block_dims(dims, limit)
    kernel = ReduceKernel(dims, axes, ReductionKind.MAX, 2, ops, block, registers, F32, F32)
    scratch = [scratch_for(registers, kernel.block_elements)]
    if kernel.cuts_axes:
        scratch.append(np.empty(kernel.partial_elements, np.float32))
    init = np.array(-np.inf, np.float32)
    out = np.empty(tuple(dims[d] for d in kernel.kept), np.float32)
    NUMPY_KERNELS.bind(kernel, KernelArrays((*inputs, init), (out,), tuple(scratch)))()
    np.testing.assert_array_equal(out, by_definition(ops, inputs).max(axis=axes))


def test_a_chain_needs_one_register() -> None:
    ops = tuple(ElementOp(Opcode.TANH, (k,), (F32,), F32) for k in range(6))
    assert allocate_registers(1, ops, keep_last=False).count == 1
    assert allocate_registers(1, ops[:1], keep_last=False).count == 0
