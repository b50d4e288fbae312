"""Cubins of attention kernels: what the assembler says of their registers, and what a launch must pass."""

from __future__ import annotations

import importlib.util
import re

import pytest

from runtime.gpu.errors import GpuLibraryError
from runtime.gpu.triton import compilation
from runtime.gpu.triton.compilation import compile_kernel, compiled
from tests.runtime.gpu.triton.fusions import Attention
from tests.runtime.gpu.triton.resources import resources
from tests.runtime.gpu.triton.running import kernel_of

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="there is no Triton: the extra test brings it on Linux",
)
IN_TF32 = ", operand_precision={default,default}"
MODES = ("forward", "of_rows", "of_columns")


def kernel_text(mode: str, kind: str, depth: int, mask: str = "causal") -> str:
    sizes = {"g": 4, "s": 1024, "t": 1024, "d": depth, "e": depth}
    case = Attention(**sizes, kind=kind, mask=mask, hidden="-1e30", precision=IN_TF32)  # type: ignore[arg-type]
    return getattr(case, mode)()


@pytest.mark.slow
@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("mode", MODES)
def test_no_register_is_spilled(mode: str, kind: str, depth: int) -> None:
    used = resources(kernel_of(kernel_text(mode, kind, depth)), "sm_90")
    print(f"{mode} {kind} {depth}: {used}")
    assert used.spilled == 0
    assert used.registers * 32 * used.warps <= 64 << 10
    assert used.shared <= 227 << 10


def test_a_launch_has_two_parameters_more_than_the_source() -> None:
    kernel = kernel_of(kernel_text("forward", "bf16", 64))
    made = compile_kernel(kernel, "sm_90")
    found = re.search(r"\.entry (\w+)\((.*?)\)", made.asm["ptx"], re.DOTALL)
    assert found is not None
    assert found[1] == compiled(kernel, "sm_90").entry == kernel.entry
    assert found[2].count(".param") == len(kernel.signature) + 2
    assert made.metadata.profile_scratch_size == 0


def test_fewer_stages_on_a_gpu_with_less_shared_memory() -> None:
    kernel = kernel_of(kernel_text("forward", "bf16", 128))
    much = compiled(kernel, "sm_90").shared_bytes
    little = compiled(kernel, "sm_89").shared_bytes
    assert little <= 99 << 10 < much


def test_arrays_of_more_elements_than_32_bits_count() -> None:
    case = Attention(g=1 << 13, s=4096, t=64, d=128, e=128, kind="bf16", mask="causal")
    kernel = kernel_of(case.forward())
    assert "b0.to(tl.int64) * 524288" in kernel.text  # queries
    assert "b0 * 8192" in kernel.text  # keys
    assert compiled(kernel, "sm_90").image
    columns = kernel_of(Attention(g=1 << 13, s=4096, t=64, d=128, e=128, kind="bf16").of_columns())
    assert "start.to(tl.int64) * 128" in columns.text
    assert compiled(columns, "sm_90").image


def test_a_kernel_that_needs_too_much_shared_memory_is_refused() -> None:
    with pytest.raises(
        GpuLibraryError, match=r"needs 1\d\d,\d+ bytes of shared memory, of which sm_89 has 101,376"
    ):
        compiled(kernel_of(kernel_text("forward", "f32", 256)), "sm_89")


def test_one_compilation_for_equal_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    text = kernel_text("forward", "bf16", 16, mask="")
    first = compiled(kernel_of(text), "sm_90")
    monkeypatch.setattr(compilation, "compile_kernel", None)
    assert compiled(kernel_of(text), "sm_90") is first
