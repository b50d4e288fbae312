"""Fusions that the pass attention-fusion makes of programs: their kernels in Triton's interpreter, and their reports."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.target.machine_option import machine_for
from runtime.emit.reference import parentless
from runtime.fusion.attention.attention_fusion import AttentionFusion
from runtime.gpu.report import KernelReport
from runtime.gpu.triton.attention import attention_kernels
from runtime.layout.layout_assignment import LayoutAssignment
from runtime.program.strides import StridedView
from spmd.analysis.fusion_emitter import is_attention
from spmd.builder import Builder
from spmd.evaluator.evaluator import evaluate_instruction
from spmd.hlo import HloInstruction, HloModule, Opcode, Stage
from spmd.shape import PrimitiveType
from tests.runtime.fusion.attention.attention_programs import (
    BF16,
    F32,
    Attention,
    attention_module,
    ring_module,
)
from tests.runtime.fusion.attention.test_attention_fusion import CASES
from tests.runtime.gpu.doubles.engines import Doubles
from tests.runtime.gpu.triton.interpret import Interpreter
from tests.runtime.gpu.triton.running import largest_error

#: Largest error relative to the largest element, by element type of queries, keys and values.
BOUNDS = {F32: 3e-6, BF16: 1.2e-2}


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as made:
        yield made


def program(name: str, kind: PrimitiveType) -> HloModule:
    if name.startswith("ring"):
        return ring_module(Attention(kind=kind, mask="causal" if "causal" in name else "none"))
    return attention_module(replace(CASES[name], kind=kind))


def inputs_of(fusion: HloInstruction) -> list[np.ndarray]:
    """Random inputs. Values of rows, such as maxima and sums, are positive."""
    random, arrays = np.random.default_rng(0), []
    for shape in (x.array_shape for x in fusion.operands):
        if shape.element_type.is_floating:
            array = random.standard_normal(shape.dims)
            array = np.abs(array) + 0.5 if shape.rank < 4 else array
        else:
            array = random.integers(0, 2, shape.dims)
        arrays.append(array.astype(np.float32).astype(shape.element_type.numpy))
    return arrays


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="there is no Triton: the extra test brings it on Linux",
)
@pytest.mark.parametrize("kind", BOUNDS, ids=str)
@pytest.mark.parametrize("name", [*CASES, "ring", "ring causal"])
def test_numbers(name: str, kind: PrimitiveType, interpreter: Interpreter) -> None:
    module = program(name, kind)
    assert AttentionFusion().run(module)
    check_numbers(module, interpreter)


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="there is no Triton: the extra test brings it on Linux",
)
def test_numbers_of_results_in_the_order_of_their_readers(interpreter: Interpreter) -> None:
    module = program("causal", F32)
    assert AttentionFusion().run(module)
    root, b = module.entry.root, Builder(module.entry)
    module.entry.root = b.tuple([b.transpose(x, (0, 2, 1, 3)) for x in root.operands])
    module.entry.remove(root)
    module.stage = Stage.OPTIMIZED
    assert LayoutAssignment().run(module)
    module.entry.remove_unused()
    assert not any(x.opcode is Opcode.TRANSPOSE for x in module.entry.root.operands)
    check_numbers(module, interpreter)


def check_numbers(module: HloModule, interpreter: Interpreter) -> None:
    """Compare the kernels of the fusions of ``module`` with the reference evaluator."""
    for fusion in filter(is_attention, module.entry.instructions):
        arrays = inputs_of(fusion)
        value = evaluate_instruction(parentless(fusion), arrays)
        wanted = list(value) if isinstance(value, tuple) else [value]
        results = [np.zeros(one.shape, one.dtype) for one in wanted]
        views = [
            [StridedView.dense(x.array_shape) for x in own]
            for own in (fusion.operands, fusion.to_apply.root.elements)
        ]
        memories = [one.reshape(-1).view(np.uint8) for one in (*arrays, *results)]
        for kernel in attention_kernels(fusion.to_apply, *views, tf32=False):
            interpreter.run(kernel, memories, [0] * len(memories))
        kind = fusion.operand(0).array_shape.element_type
        assert largest_error(results, wanted) < BOUNDS[kind], fusion.name


@pytest.mark.parametrize("name", ["causal", "grouped", "cap", "segments"])
def test_attention_and_its_gradients_are_three_calls(name: str) -> None:
    machine = machine_for(None, backend="gpu")
    executable = compile_module(program(name, F32), 1, CompileOptions(machine=machine))
    report = Doubles(ptx=True).on(executable).kernel_report
    assert isinstance(report, KernelReport)
    assert (report.library, report.hosted) == (3, ())
