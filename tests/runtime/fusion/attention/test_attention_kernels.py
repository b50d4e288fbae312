"""Programs with attention that are compiled for a GPU: their kernels, memory and predicted times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collectives.cost.device_time import DeviceTime
from launch.checks.expect import check_output, read_expected
from launch.data.inputs import read_inputs
from launch.entry import Entry
from launch.options import CompileOptions
from launch.pipeline import compile_module
from launch.target.machine_option import described
from runtime.executable import Executable
from runtime.gpu.engine import GpuEngine
from runtime.gpu.launch_maker import launch_maker
from runtime.program.records.attention import AttentionKernel
from runtime.program.thunks import KernelThunk, traverse
from runtime.saved import save_bytes
from runtime.saved_program import load_bytes
from spmd.analysis.attention_cost import AttentionShape
from spmd.analysis.cost import module_cost
from spmd.analysis.fusion_emitter import is_attention
from spmd.evaluator import evaluate_partitions
from spmd.shape import PrimitiveType
from spmd.text.parser import parse_module
from tests.paths import CASES, SHARED
from tests.runtime.fusion.attention.attention_programs import BF16, Attention, attention_module
from tests.runtime.fusion.attention.contract import mode_of
from tests.runtime.gpu.doubles.host_driver import HostDriver
from tests.spmd.passes.triggers.check import compare, random_inputs

GROUPED = Attention(groups=2, heads=3, mask="causal", quotient=True)
LARGE = Attention(4, 16, 1, 512, 512, 128, 128, BF16, mask="causal")


def for_gpu(case: Attention, *, fusion: bool = True) -> Executable:
    options = CompileOptions(machine=described("dgx-h200"), fusion=fusion, check=True)
    return compile_module(attention_module(case), 1, options)


def kernels(executable: Executable) -> list[AttentionKernel]:
    return [
        thunk.kernel
        for thunk in traverse(executable.program.thunks)
        if isinstance(thunk, KernelThunk) and isinstance(thunk.kernel, AttentionKernel)
    ]


def assert_computes(executable: Executable, case: Attention) -> None:
    module = attention_module(case)
    inputs = random_inputs(module, np.random.default_rng(3), edges=False)
    found = executable.run(*inputs[0])
    compare(module, inputs, evaluate_partitions(module, inputs), [list(found)])


@pytest.mark.parametrize("kind", [PrimitiveType.F32, BF16], ids=str)
def test_a_cpu_computes_the_kernels(kind: PrimitiveType) -> None:
    case = replace(GROUPED, kind=kind)
    executable = for_gpu(case)
    assert len(kernels(executable)) == 3
    assert_computes(executable, case)


def test_kernels_run_among_those_of_a_gpu() -> None:
    executable = for_gpu(GROUPED)
    executable.engine = GpuEngine(lambda _: HostDriver(), launch_maker)
    assert_computes(executable, GROUPED)


def test_without_fusion_and_on_a_cpu_there_are_none() -> None:
    assert kernels(for_gpu(GROUPED, fusion=False)) == []
    assert kernels(compile_module(attention_module(GROUPED), 1)) == []


def test_saved_program_computes_the_same() -> None:
    again = load_bytes(save_bytes(for_gpu(GROUPED)), trusted=True)
    assert len(kernels(again)) == 3
    assert_computes(again, GROUPED)


def test_no_score_matrix_is_in_memory() -> None:
    """All temporary arrays together are smaller than one score matrix in bf16."""
    scores = 2 * np.prod(LARGE.scores)
    assert for_gpu(LARGE).stats.temp < scores
    assert for_gpu(LARGE, fusion=False).stats.temp > 2 * scores


def test_bytes_are_those_of_operands_and_results() -> None:
    """The forward pass reads queries, keys and values, and writes the output, in bf16."""
    executable = for_gpu(replace(LARGE, gradients=False))
    array = 2 * 4 * 16 * 512 * 128
    work = module_cost(executable.module)
    assert work.bytes_accessed == 4 * array
    assert work.flops >= 2 * 2 * 4 * 16 * 512 * 512 * 128


#: Flops of the two products of a forward pass of ``LARGE`` whose causal mask hides later keys.
VISIBLE_FLOPS = 2 * 2 * 4 * 16 * (512 * 513 / 2) * 128


def test_time_is_that_of_the_products_at_the_rate_of_attention() -> None:
    machine = described("dgx-h200").as_attained()
    executable = for_gpu(replace(LARGE, gradients=False))
    (fusion,) = (x for x in executable.module.all_instructions() if is_attention(x))
    found = DeviceTime(machine, {}).seconds(fusion) - machine.start_seconds()
    rate = machine.attention_rate(BF16, AttentionShape(128, 512, causal=True))
    assert found == pytest.approx(VISIBLE_FLOPS / rate)


def test_f32_goes_at_the_rate_of_its_precision() -> None:
    """TF32 is allowed: attention is then slower than that of bf16 by as much as products are."""
    machine = described("dgx-h200").as_attained()
    case = replace(LARGE, kind=PrimitiveType.F32, gradients=False)
    module = for_gpu(case).module
    (fusion,) = (x for x in module.all_instructions() if is_attention(x))
    found = DeviceTime(machine, {}).seconds(fusion) - machine.start_seconds()
    rate = machine.attention_rate(PrimitiveType.F32, AttentionShape(128, 512, causal=True))
    assert found == pytest.approx(VISIBLE_FLOPS / rate)


#: Modules of training steps with the number of fusions of attention: three for each, fewer without gradients.
CORPUS = {
    "gpt_dp2tp2": 6,
    "gpt_fsdp4": 6,
    "perf_gpt_tp2": 6,
    "perf_gpt_bf16_tp2": 6,
    "perf_attention_sp2": 8,
    "ring_attention4": 8,
    "block_train_dp2tp2sp": 3,
    "gpt_scan_remat_3d": 12,
    "gpt_remat_tp2": 8,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPUS)
def test_attention_of_the_corpus(name: str) -> None:
    """Fusions keep the rules of their computations, also in bodies of loops and where values are recomputed."""
    folders = (CASES / name, SHARED / "corpus" / name)
    path = next((one / "module.hlo" for one in folders if one.exists()), None)
    if path is None:
        pytest.skip("the corpus is not here")
    module = parse_module(path.read_text())
    executable = compile_module(module, None, CompileOptions(machine=described("dgx-h200")))
    fusions = [x for x in executable.module.all_instructions() if is_attention(x)]
    assert len(fusions) == CORPUS[name]
    assert {mode_of(x) for x in fusions} <= {"online", "rows", "columns"}
    assert len(kernels(executable)) == CORPUS[name]


@pytest.mark.parametrize("name", ["gpt_dp2tp2", "ring_attention4"])
def test_results_are_those_of_jax(name: str) -> None:
    """Steps on four devices, whose kernels of attention the reference evaluator computes."""
    folder = CASES / name
    module = parse_module((folder / "module.hlo").read_text())
    executable = compile_module(module, 4, CompileOptions(machine=described("dgx-h200")))
    assert len(kernels(executable)) == CORPUS[name]
    entry = Entry.of_module(module)
    outputs = executable.run(*read_inputs(folder / "inputs.npz", entry.inputs))
    assert isinstance(outputs, list)
    wanted = read_expected(folder / "expected.npz", entry.outputs)
    for got, want in zip(outputs, wanted, strict=True):
        result = check_output(got, want)
        assert result.ok, result
